// What operators have pinned; who shows the token may pin and release.

import { h, text, card, table, input, select, age, clock, error } from "./dom.js";
import { access, show, forget, override, release } from "./access.js";
import { live } from "./live.js";

export function open(main) {
  const who = h("div"), said = h("p", { role: "status" });
  const list = table("In force", [
    { head: "Override", cell: (o) => name(o) },
    { head: "Value", cell: (o) => o.value ?? "" },
    { head: "Since", cell: (o) => clock(Date.parse(o.set)) },
    { head: "Ends", cell: (o) => (o.until ? `in ${age((Date.parse(o.until) - Date.now()) / 1000)}` : "when it is released") },
    { head: "By", cell: (o) => o.by ?? "" },
    { head: "Why", cell: (o) => o.reason ?? "" },
    { head: "", cell: (o) => (allowed ? h("button", { type: "button", "aria-label": `Release ${name(o)}`, click: () => act(() => release(name(o))) }, "Release") : "") },
  ]);
  const none = h("p", { class: "empty" }, "Nothing is overridden: plans follow the configuration and the policy alone.");
  let allowed = false;
  main.append(h("h1", null, "Overrides"), who, said, h("section", { class: "card" }, none, list.node));

  async function act(f) {
    try {
      await f();
      text(said, "It counts from the next plan on.");
    } catch (e) {
      text(said, e.message);
    }
  }

  async function authorise() {
    try {
      const a = await access();
      allowed = a.authorised;
      who.replaceChildren(a.authorised ? pinForm(act, () => { forget(); authorise(); }) : a.token ? tokenForm(authorise) : readOnly());
    } catch (e) {
      who.replaceChildren(error(e));
    }
    if (live.map) update(live.map);
  }

  function update(m) {
    none.hidden = m.overrides.length > 0;
    list.node.hidden = m.overrides.length === 0;
    list.update(m.overrides, (o) => `${name(o)} ${o.set} ${allowed}`);
  }
  authorise();
  return { update };
}

const name = (o) => (o.subject ? `${o.kind}/${o.subject}` : o.kind);

const readOnly = () => h("p", { class: "soft" }, "This page only shows. Changes are made with ", h("code", null, "wardrop override"), ", or here once the configuration names a ", h("code", null, "control.admin_token_file"), ".");

function tokenForm(then) {
  const said = h("span", { role: "status" });
  const token = input("Token", { type: "password", name: "token", autocomplete: "off", required: true });
  const form = h("form", { class: "form", submit: async (e) => {
    e.preventDefault();
    try {
      if (await show(token.lastChild.value.trim())) await then();
      else text(said, "That is not the token.");
    } catch (x) {
      text(said, x.message);
    }
  } }, token, h("button", { class: "main" }, "Authorise"), said);
  return h("div", null, h("p", { class: "soft" }, "Who shows the token of control.admin_token_file may change things. It stays in this tab."), form);
}

const kinds = { drain: "Drain an engine", cap: "Cap an engine", freeze: "Freeze all weights", release: "Let through what is held back", policy: "Plan by another policy" };

function pinForm(act, leave) {
  const kind = select("Override", "kind", Object.entries(kinds), "drain", () => fields());
  const engine = input("Engine", { name: "engine", autocomplete: "off", spellcheck: "false" });
  const part = input("% of its capacity", { name: "part", type: "number", min: 1, max: 99, value: 50 });
  const policy = select("Policy", "policy", ["optimal", "static", "proportional"].map((p) => [p, p]), "optimal");
  const minutes = input("For minutes", { name: "minutes", type: "number", min: 1, placeholder: "until released" });
  const why = input("Why", { name: "why" });
  const fields = () => {
    const k = kind.lastChild.value;
    engine.hidden = k !== "drain" && k !== "cap";
    part.hidden = k !== "cap";
    policy.hidden = k !== "policy";
  };
  fields();
  return h("form", { class: "form card", submit: (e) => {
    e.preventDefault();
    const k = kind.lastChild.value, o = { kind: k };
    if (!engine.hidden) o.subject = engine.lastChild.value.trim();
    if (k === "cap") o.value = String(part.lastChild.value / 100);
    if (k === "policy") o.value = policy.lastChild.value;
    if (minutes.lastChild.value) o.until = new Date(Date.now() + 60000 * minutes.lastChild.value).toISOString();
    if (why.lastChild.value) o.reason = why.lastChild.value;
    act(() => override(o));
  } }, kind, engine, part, policy, minutes, why, h("button", { class: "main" }, "Pin"), h("button", { type: "button", click: leave }, "Forget the token"));
}
