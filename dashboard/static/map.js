// The first page: what flows from where to where, and what it costs.

import { h, s, attr, text, table, count, rate, seconds, percent, utilisation, select, href } from "./dom.js";
import { live } from "./live.js";
import { flows } from "./flows.js";
import { geography } from "./geography.js";

export function open(main, asked) {
  const tiles = ["Requests", "Expected time", "Refused", "Engines", "Fullest region", "Data planes"].map(tile);
  const figure = h("div", { class: "figure" });
  const legend = scaleLegend();
  const models = select("Model", "model", [["", "all models"]], "", (e) => { location.hash = href("", { model: e.target.value, view: asked.view }); });
  const views = h("div", { class: "views", role: "group", "aria-label": "How the map is drawn" }, [["flows", "Flows"], ["places", "Places"]].map(([v, t]) =>
    h("button", { type: "button", "data-view": v, click: () => { location.hash = href("", { model: asked.model, view: v }); } }, t)));
  const regions = table("Regions", regionColumns), clusters = table("Clusters", clusterColumns(asked)), list = table("Largest flows", flowColumns, {});
  main.append(h("h1", { class: "hidden" }, "Map"), h("div", { class: "tiles" }, tiles.map((t) => t.node)),
    h("section", { class: "card map", "aria-label": "Map" }, h("div", { class: "bar" }, h("h2", null, "What flows where"), views, models), figure, legend.node),
    h("div", { class: "columns" }, h("section", { class: "card" }, regions.node), h("section", { class: "card" }, clusters.node)), h("section", { class: "card" }, list.node));
  let drawing = null, kind = "";
  const width = () => Math.max(280, figure.clientWidth);

  function draw(m) {
    const placed = m.regions.some((r) => r.at) && m.clusters.some((c) => c.at);
    views.hidden = !placed;
    const want = placed && asked.view !== "flows" && (asked.view === "places" || m.regions.filter((r) => r.at).length > 2) ? "places" : "flows";
    if (want !== kind) {
      kind = want;
      drawing = want === "places" ? geography() : flows();
      figure.replaceChildren(drawing.node);
      for (const b of views.children) attr(b, "aria-pressed", String(b.dataset.view === want));
    }
    legend.update(drawing.draw(m, width()), m);
  }

  const sizes = new ResizeObserver(() => live.map && live.map.model === (asked.model ?? "") && draw(live.map));
  sizes.observe(figure);
  if (live.model !== (asked.model ?? "")) live.connect(asked.model ?? "");
  return {
    change(next) {
      if ((next.model ?? "") !== live.model) live.connect(next.model ?? "");
      else if (next.view !== asked.view && live.map) { asked = next; draw(live.map); }
      asked = next;
      clusters.asked = next;
      return true;
    },
    update(m) {
      if (m.model !== (asked.model ?? "")) return;
      totals(tiles, m);
      options(models.lastChild, m, asked.model ?? "");
      draw(m);
      const sorted = [...m.regions].sort((a, b) => b.load - a.load);
      regions.update(sorted, (r) => r.name);
      clusters.update([...m.clusters].sort((a, b) => b.rate - a.rate).slice(0, 100), (c) => c.name);
      list.update([...m.flows].sort((a, b) => b[2] - a[2]).slice(0, 20).map(([c, r, x, p]) => ({ cluster: m.clusters[c].name, region: m.regions[r].name, rate: x, price: p })), (f) => `${f.cluster}\0${f.region}`);
    },
    close() { sizes.disconnect(); if (live.model) live.connect(""); },
  };
}

const regionColumns = [
  { head: "Region", cell: (r) => r.name, link: (r) => href("engines", { region: r.name }) },
  { head: "Requests/s", number: true, cell: (r) => rate(r.load) },
  { head: "Used", number: true, cell: (r) => (r.capacity ? percent(utilisation(r.load, r.capacity)) : "–"), mark: (r) => (r.full > 0 ? "full" : null) },
  { head: "Price", number: true, cell: (r) => (r.load ? seconds(r.price) : "–") },
  { head: "Dearest", number: true, cell: (r) => (r.load ? seconds(r.dearest) : "–") },
  { head: "Engines", number: true, cell: (r) => (r.away ? `${r.engines} + ${r.away} away` : r.engines), mark: (r) => (r.away ? "away" : null) },
];

const clusterColumns = (asked) => [
  { head: "Cluster", cell: (c) => c.name, link: (c) => href("weights", { cluster: c.name, model: asked.model }) },
  { head: "Region", cell: (c) => c.region },
  { head: "Requests/s", number: true, cell: (c) => rate(c.rate) },
  { head: "Refused/s", number: true, cell: (c) => (c.shed > 0 ? rate(c.shed) : "0"), mark: (c) => (c.shed > 0 ? "shed" : null) },
  { head: "Expected", number: true, cell: (c) => (c.seconds ? seconds(c.seconds) : "–") },
  { head: "Data planes", number: true, cell: (c) => c.data_planes, mark: (c) => (c.data_planes === 0 ? "away" : null) },
];

const flowColumns = [
  { head: "From", cell: (f) => f.cluster, link: (f) => href("weights", { cluster: f.cluster }) },
  { head: "To", cell: (f) => f.region, link: (f) => href("engines", { region: f.region }) },
  { head: "Requests/s", number: true, cell: (f) => rate(f.rate) },
  { head: "Price", number: true, cell: (f) => seconds(f.price) },
];

function tile(label) {
  const value = h("dd"), note = h("dd", { class: "note" });
  return { node: h("dl", { class: "tile" }, h("dt", null, label), value, note), set(v, n, mark) { text(value, v); text(note, n); attr(value, "data-mark", mark); } };
}

function totals(tiles, m) {
  const t = m.totals;
  const fullest = m.regions.reduce((a, r) => (utilisation(r.load, r.capacity) > utilisation(a?.load, a?.capacity) ? r : a), null);
  tiles[0].set(`${rate(t.rate)}/s`, `${m.clusters.length} ${m.clusters.length === 1 ? "cluster" : "clusters"}`);
  tiles[1].set(seconds(t.seconds), "network included");
  tiles[2].set(t.shed > 0 ? `${rate(t.shed)}/s` : "none", t.shed > 0 ? `${percent(t.shed / t.rate)} of what arrives` : "all that arrives is served", t.shed > 0 ? "shed" : null);
  tiles[3].set(t.live < t.engines ? `${count(t.live)} of ${count(t.engines)}` : count(t.live), `${t.live < t.engines ? "" : "all in the plan, "}${count(t.used)} used${t.full ? `, ${count(t.full)} full` : ""}`, t.live < t.engines ? "away" : null);
  tiles[4].set(fullest ? percent(utilisation(fullest.load, fullest.capacity)) : "–", fullest?.name ?? "no engine has load");
  tiles[5].set(t.data_planes, m.policy ? `${m.policy}, a tick takes ${seconds(m.tick_seconds)}` : "no plan yet");
}

// options are the models; the list is left alone while nothing of it changes.
function options(node, m, chosen) {
  const names = m.models.map((x) => x.name).join("\n");
  if (node.dataset.names !== names) {
    node.dataset.names = names;
    node.replaceChildren(h("option", { value: "" }, "all models"), ...m.models.map((x) => h("option", { value: x.name }, x.name)));
  }
  if (document.activeElement !== node) node.value = chosen;
}

// scaleLegend says what the colours mean.
function scaleLegend() {
  const low = h("span"), high = h("span"), shed = h("span", { class: "shed-key", hidden: true }, "refused");
  const boxes = [0, 1, 2, 3, 4].map((i) => s("rect", { x: i * 24, width: 24, height: 10 }));
  const drawn = h("span");
  const node = h("p", { class: "legend" }, h("span", null, "Width: requests/s. Colour: price, "), low, s("svg", { width: 120, height: 10, "aria-hidden": "true" }, boxes), high, shed, drawn);
  return {
    node,
    update(scale, m) {
      boxes.forEach((b, i) => attr(b, "fill", scale.stops[i]));
      text(low, seconds(scale.low));
      text(high, seconds(scale.high));
      text(drawn, scale.drawn ?? "");
      shed.hidden = !(m.totals.shed > 0);
    },
  };
}
