// All engines, a page of them at a time: searched, sorted and counted by the control plane.

import { h, timed, text, attr, keyed, table, select, input, ask, rate, seconds, percent, utilisation, href, error } from "./dom.js";

export function open(main, asked) {
  const go = (next) => { location.hash = href("engines", { ...asked, offset: "", ...next }); };
  const q = input("Search", { type: "search", name: "q", value: asked.q ?? "", "aria-label": "Words of a name, an address, a region or a model" });
  const region = select("Region", "region", [["", "all"]], "", (e) => go({ region: e.target.value }));
  const model = select("Model", "model", [["", "all"]], "", (e) => go({ model: e.target.value }));
  const state = select("State", "state", [["", "all"]], "", (e) => go({ state: e.target.value }));
  let typing = 0;
  q.lastChild.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => go({ q: q.lastChild.value.trim() }), 200);
  });
  const list = table("Engines", [
    { head: "Engine", cell: (e) => e.name, link: (e) => href("engine", { name: e.name }), sort: "" },
    { head: "State", cell: (e) => h("span", { class: "state", "data-state": e.state }, e.state), sort: "state" },
    { head: "Region", cell: (e) => e.region, sort: "region" },
    { head: "Models", cell: (e) => e.models.join(", ") },
    { head: "Load/s", number: true, cell: (e) => rate(e.load), sort: "load" },
    { head: "Used", number: true, cell: (e) => (e.capacity ? percent(utilisation(e.load, e.capacity)) : "–"), sort: "used" },
    { head: "Price", number: true, cell: (e) => (e.price ? seconds(e.price) : "–"), sort: "price" },
    { head: "Penalty", number: true, cell: (e) => (e.penalty ? seconds(e.penalty) : "–"), sort: "penalty" },
    { head: "Running", number: true, cell: (e) => e.running ?? "–" },
    { head: "Waiting", number: true, cell: (e) => e.waiting ?? "–", mark: (e) => (e.waiting > 0 ? "full" : null) },
  ], { sort: (by) => go({ sort: by }) });
  const count = h("p", { class: "soft", role: "status" });
  const names = h("ul", { class: "chips", "aria-label": "Clusters and models that fit" });
  const back = h("button", { type: "button", click: () => go({ offset: Math.max(0, found.offset - 50) }) }, "Back");
  const on = h("button", { type: "button", click: () => go({ offset: found.offset + 50 }) }, "On");
  const where = h("span");
  const problem = h("div");
  main.append(h("h1", null, "Engines"), h("div", { class: "form" }, q, region, model, state), count, names, problem,
    h("section", { class: "card" }, list.node, h("div", { class: "pager" }, back, on, where)));
  let found = { offset: 0 }, turn = 0, busy = null;

  async function load(newer) {
    if (busy && !newer) return;
    const mine = ++turn;
    busy?.abort();
    busy = new AbortController();
    try {
      const got = await ask(`/v1/search?${new URLSearchParams(asked)}`, { signal: busy.signal });
      if (mine !== turn) return;
      found = got;
      problem.replaceChildren();
      timed("wardrop-fetched", show);
    } catch (e) {
      if (mine === turn && e.name !== "AbortError") problem.replaceChildren(error(e));
    } finally {
      if (mine === turn) busy = null;
    }
  }

  function show() {
    list.update(found.engines, (e) => e.name);
    list.sorted(asked.sort ?? "");
    options(region, found.regions, asked.region);
    options(model, found.models, asked.model);
    options(state, Object.keys(found.states).sort(), asked.state, (s) => `${s} (${found.states[s]})`);
    text(count, `${found.total} ${found.total === 1 ? "engine fits" : "engines fit"}.`);
    text(where, found.total ? `${found.offset + 1} to ${found.offset + found.engines.length} of ${found.total}` : "");
    back.disabled = found.offset === 0;
    on.disabled = found.offset + found.engines.length >= found.total;
    const links = [...found.clusters.map((c) => ["cluster", c, href("weights", { cluster: c })]), ...found.model_names.map((m) => ["model", m, href("weights", { model: m })])];
    keyed(names, links, (l) => l[2], (l) => h("li", null, `${l[0]} `, h("a", { href: l[2] }, l[1])));
    names.hidden = links.length === 0;
  }

  load(true);
  return {
    change(next) {
      asked = next;
      if (document.activeElement !== q.lastChild) q.lastChild.value = asked.q ?? "";
      load(true);
      return true;
    },
    update: () => load(false),
    close() { turn++; busy?.abort(); clearTimeout(typing); },
  };
}

function options(field, names, chosen = "", label = (n) => n) {
  const node = field.lastChild;
  const is = names.map(label).join("\n") + "\n" + chosen;
  if (node.dataset.names !== is && document.activeElement !== node) {
    node.dataset.names = is;
    node.replaceChildren(h("option", { value: "" }, "all"), ...[...new Set(chosen && !names.includes(chosen) ? [...names, chosen] : names)].map((n) => h("option", { value: n }, names.includes(n) ? label(n) : n)));
  }
  node.value = chosen;
}
