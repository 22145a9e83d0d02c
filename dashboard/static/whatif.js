// What would follow if something were different: another solve, which changes nothing.

import { h, text, keyed, card, table, select, input, ask, rate, seconds, percent, href, error } from "./dom.js";
import { live } from "./live.js";

// kinds of changes: their fields, how they are said, and how they are asked for.
const kinds = {
  drain: { label: "Drain an engine", fields: ["engine"], say: (f) => `drain ${f.engine}`, add: (c, f) => (c.drain ??= []).push(f.engine) },
  lose: { label: "Lose a region", fields: ["region"], say: (f) => `lose region ${f.region}`, add: (c, f) => (c.lose ??= []).push(f.region) },
  demand: { label: "Scale demand", fields: ["cluster", "model", "factor"], say: (f) => `${f.factor} times the demand of ${f.cluster || "all clusters"} for ${f.model || "all models"}`, add: (c, f) => (c.demand ??= []).push({ cluster: f.cluster, model: f.model, factor: Number(f.factor) }) },
  add: { label: "Add engines", fields: ["region", "model", "engines"], say: (f) => `${f.engines} more engines for ${f.model} in ${f.region}`, add: (c, f) => (c.add ??= []).push({ region: f.region, model: f.model, engines: Number(f.engines) }) },
  distance: { label: "Move a distance", fields: ["cluster", "region", "ms"], say: (f) => `${f.cluster} to ${f.region} takes ${f.ms} ms`, add: (c, f) => (c.distance ??= []).push({ cluster: f.cluster, region: f.region, seconds: f.ms / 1000 }) },
};

export function open(main) {
  const names = h("datalist", { id: "engine-names" });
  const fields = {
    engine: input("Engine", { name: "engine", list: "engine-names", autocomplete: "off", spellcheck: "false" }),
    region: select("Region", "region", [], ""), cluster: select("Cluster", "cluster", [], ""), model: select("Model", "model", [], ""),
    factor: input("Times", { name: "factor", type: "number", min: 0, step: 0.1, value: 1.5 }),
    engines: input("Engines", { name: "engines", type: "number", min: 1, max: 10000, value: 1 }),
    ms: input("Round trip in ms", { name: "ms", type: "number", min: 0, step: 1, value: 100 }),
  };
  const kind = select("Suppose", "kind", Object.entries(kinds).map(([k, v]) => [k, v.label]), "drain", () => arrange());
  const list = h("ul", { class: "chips", "aria-label": "What is supposed" });
  const out = h("div", { "aria-live": "polite" });
  const solve = h("button", { type: "button", class: "main", disabled: true, click: () => compute() }, "What would follow?");
  let changes = [], turn = 0, number = 0;
  main.append(h("h1", null, "What if"), h("section", { class: "card" },
    h("p", { class: "soft" }, "The policy solves again on what is known now, but for what is supposed here. Nothing is changed by that."),
    h("form", { class: "form", submit: (e) => { e.preventDefault(); add(); } }, kind, Object.values(fields), names, h("button", null, "Add")), list, solve), out);

  function arrange() {
    for (const [k, f] of Object.entries(fields)) f.hidden = !kinds[kind.lastChild.value].fields.includes(k);
    const all = kind.lastChild.value === "demand";
    if (live.map) for (const [k, of] of [["cluster", live.map.clusters], ["model", live.map.models], ["region", live.map.regions]]) fillNames(fields[k].lastChild, of.map((x) => x.name), all && k !== "region");
  }

  function add() {
    const k = kind.lastChild.value;
    const f = Object.fromEntries(kinds[k].fields.map((x) => [x, fields[x].lastChild.value.trim()]));
    if (kinds[k].fields.some((x) => f[x] === "" && !(k === "demand" && x !== "factor"))) return;
    changes.push({ id: ++number, k, f });
    show();
  }

  function show() {
    keyed(list, changes, (c) => c.id, (c) => h("li", null, kinds[c.k].say(c.f), h("button", { type: "button", "aria-label": `Leave out: ${kinds[c.k].say(c.f)}`, click: () => { changes = changes.filter((x) => x !== c); show(); } }, "×")));
    solve.disabled = changes.length === 0;
  }

  async function compute() {
    const mine = ++turn, body = {};
    for (const c of changes) kinds[c.k].add(body, c.f);
    out.replaceChildren(h("p", { class: "soft" }, "Solving …"));
    try {
      const got = await ask("/v1/what-if?moves=40", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) });
      if (mine === turn) out.replaceChildren(...outcome(got));
    } catch (e) {
      if (mine === turn) out.replaceChildren(error(e));
    }
  }

  let typing = 0;
  fields.engine.lastChild.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(async () => {
      const got = await ask(`/v1/search?${new URLSearchParams({ q: fields.engine.lastChild.value, limit: 12 })}`).catch(() => null);
      if (got) names.replaceChildren(...got.engines.map((e) => h("option", { value: e.name })));
    }, 150);
  });
  arrange();
  return { update: () => { if (!main.querySelector("select:focus")) arrange(); }, close() { turn++; clearTimeout(typing); } };
}

function fillNames(node, names, all) {
  const is = `${all}\n${names.join("\n")}`;
  if (node.dataset.names === is) return;
  const chosen = node.value;
  node.dataset.names = is;
  node.replaceChildren(...(all ? [h("option", { value: "" }, "all")] : []), ...names.map((n) => h("option", { value: n }, n)));
  if (names.includes(chosen)) node.value = chosen;
}

const shed = (t) => Object.values(t.shed).reduce((a, x) => a + x, 0);

function outcome(o) {
  const figures = table("Today and then", [
    { head: "", cell: (r) => r.name }, { head: "Today", number: true, cell: (r) => r.write(r.of(o.before)) }, { head: "Then", number: true, cell: (r) => r.write(r.of(o.after)), mark: (r) => better(r, o) },
    { head: "Difference", number: true, cell: (r) => difference(r, o) },
  ]);
  figures.update([
    { name: "Expected time of a request", of: (t) => t.mean_seconds, write: seconds, bad: 1 },
    { name: "Network in that", of: (t) => t.mean_network, write: seconds, bad: 1 },
    { name: "Admitted requests/s", of: (t) => t.admitted, write: rate, bad: 0 },
    { name: "Refused requests/s", of: shed, write: (x) => (x > 0 ? rate(x) : "none"), bad: 1 },
    ...["critical", "standard", "batch"].filter((k) => o.before.shed[k] || o.after.shed[k]).map((k) => ({ name: `Refused, ${k}`, of: (t) => t.shed[k] ?? 0, write: (x) => (x > 0 ? rate(x) : "none"), bad: 1 })),
    { name: "Fullest engine", of: (t) => t.utilisation, write: percent, bad: 1 },
    { name: "Engines at a limit", of: (t) => t.full, write: String, bad: 1 },
  ], (r) => r.name);
  const moves = table("Largest moves", [
    { head: "Cluster", cell: (m) => m.cluster, link: (m) => href("weights", { cluster: m.cluster, model: m.model }) }, { head: "Model", cell: (m) => m.model },
    { head: "Engine", cell: (m) => m.engine }, { head: "Before", number: true, cell: (m) => percent(m.before) }, { head: "After", number: true, cell: (m) => percent(m.after) },
    { head: "Requests/s", number: true, cell: (m) => signed(m.rate, rate) },
  ]);
  moves.update(o.moves, (m) => `${m.cluster}\0${m.model}\0${m.engine}`);
  return [
    card("What would follow", h("ul", { class: "words" }, (o.words ?? []).slice(0, 12).map((w) => h("li", null, w))), figures.node),
    o.moves.length ? h("section", { class: "card" }, moves.node) : card("Moves", h("p", { class: "soft" }, "No weight would change.")),
  ];
}

const signed = (x, write) => (x === 0 ? "0" : `${x > 0 ? "+" : "−"}${write(Math.abs(x))}`);

function difference(r, o) {
  const d = r.of(o.after) - r.of(o.before);
  return Math.abs(d) < 1e-9 ? "–" : signed(d, r.name === "Fullest engine" ? percent : r.write === String ? String : r.name.startsWith("Refused") ? rate : r.write);
}

function better(r, o) {
  const d = r.of(o.after) - r.of(o.before);
  if (Math.abs(d) < 1e-4 * Math.max(1e-3, Math.abs(r.of(o.before)))) return null;
  return d > 0 === (r.bad === 1) ? "bad" : "good";
}
