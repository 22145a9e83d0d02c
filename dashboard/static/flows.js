// The drawing of flows: clusters on the left, regions on the right, ribbons between them as
// wide as what flows and coloured by what it costs there.

import { s, attr, text, keyed, rate, percent, seconds, href } from "./dom.js";
import { priceScale } from "./scale.js";

const gap = 10, bar = 10, slot = 34, most = 26; // pixels, slot the least that a label takes; beyond most clusters are summed up by region

// flows makes the drawing; draw shows a map in it.
export function flows() {
  const ribbons = s("g", { class: "ribbons" });
  const left = s("g"), right = s("g");
  const node = s("svg", { class: "flows", role: "group", "aria-label": "Flows from clusters to regions; the tables below say the same" }, ribbons, left, right);
  return { node, draw: (m, width) => draw({ node, ribbons, left, right }, m, width) };
}

// sources are the clusters, or where there are many, their regions.
export function sources(m) {
  if (m.clusters.length <= most) return m.clusters.map((c, i) => ({ name: c.name, region: c.region, rate: c.rate, shed: c.shed, of: [i], href: href("weights", { cluster: c.name, model: m.model }) }));
  const by = new Map();
  m.clusters.forEach((c, i) => {
    const x = by.get(c.region) ?? { name: c.region, region: c.region, rate: 0, shed: 0, of: [], href: href("weights", { cluster: c.name, model: m.model }) };
    x.rate += c.rate;
    x.shed += c.shed;
    x.of.push(i);
    by.set(c.region, x);
  });
  return [...by.values()];
}

// joined sums flows up by source.
function joined(m, list) {
  const source = [];
  list.forEach((x, i) => x.of.forEach((c) => (source[c] = i)));
  const by = new Map();
  for (const [c, r, x, price] of m.flows) {
    const key = source[c] * m.regions.length + r;
    const f = by.get(key) ?? { source: source[c], region: r, rate: 0, cost: 0 };
    f.rate += x;
    f.cost += x * price;
    by.set(key, f);
  }
  return [...by.values()].map((f) => ({ ...f, price: f.cost / f.rate })).sort((a, b) => a.source - b.source || a.region - b.region);
}

function draw(parts, m, width) {
  const list = sources(m).sort((a, b) => (a.region < b.region ? -1 : a.region > b.region ? 1 : a.name < b.name ? -1 : 1));
  const regions = m.regions.map((r, i) => ({ ...r, index: i }));
  const all = joined(m, list);
  const labels = Math.min(170, Math.max(92, width * 0.2));
  const rows = Math.max(list.length, regions.length);
  const height = Math.max(220, rows * 50);
  const total = Math.max(1e-9, list.reduce((a, x) => a + x.rate, 0));
  const unit = (height - (rows - 1) * gap) / total;
  const x0 = labels, x1 = width - labels;
  place(list, (x) => x.rate, unit, height);
  place(regions, (r) => all.reduce((a, f) => a + (f.region === r.index ? f.rate : 0), 0), unit, height);
  const color = priceScale(all.map((f) => f.price));
  const bottom = Math.max(...[...list, ...regions].map((x) => x.y + Math.max(x.h, slot)), height);
  attr(parts.node, "viewBox", `0 0 ${width} ${bottom + 8}`);
  attr(parts.node, "width", width);
  attr(parts.node, "height", bottom + 8);
  drawRibbons(parts.ribbons, all, list, regions, unit, x0, x1, color);
  drawSources(parts.left, list, x0, unit);
  drawRegions(parts.right, regions, x1, color);
  return color;
}

// place stacks nodes over the height: each is as high as what it has, with room for its label.
function place(nodes, of, unit, height) {
  let need = 0;
  for (const n of nodes) {
    n.total = of(n);
    n.h = Math.max(2, n.total * unit);
    need += Math.max(n.h, slot);
  }
  const space = Math.max(gap / 2, Math.min(48, (height - need) / Math.max(1, nodes.length)));
  let y = Math.max(0, (height - need - space * (nodes.length - 1)) / 2);
  for (const n of nodes) {
    n.y = y + Math.max(0, (slot - n.h) / 2);
    n.used = 0;
    y += Math.max(n.h, slot) + space;
  }
}

function drawRibbons(parent, all, list, regions, unit, x0, x1, color) {
  const from = list.map(() => 0);
  for (const r of regions) r.used = 0;
  for (const f of all) {
    f.a = list[f.source].y + from[f.source] + (f.rate * unit) / 2;
    from[f.source] += f.rate * unit;
  }
  for (const f of all) {
    const r = regions[f.region];
    f.b = r.y + r.used + (f.rate * unit) / 2;
    r.used += f.rate * unit;
  }
  const middle = (x0 + x1) / 2;
  keyed(parent, all, (f) => `${list[f.source].name}\0${regions[f.region].name}`, () => s("path", { fill: "none" }, s("title")), (p, f) => {
    attr(p, "d", `M${(x0 + bar).toFixed(1)} ${f.a.toFixed(1)}C${middle} ${f.a.toFixed(1)} ${middle} ${f.b.toFixed(1)} ${(x1 - bar).toFixed(1)} ${f.b.toFixed(1)}`);
    attr(p, "stroke", color.color(f.price));
    attr(p, "stroke-width", Math.max(1, f.rate * unit).toFixed(2));
    text(p.firstChild, `${list[f.source].name} to ${regions[f.region].name}: ${rate(f.rate)} requests/s at ${seconds(f.price)}`);
  });
}

function drawSources(parent, list, x, unit) {
  keyed(parent, list, (n) => n.name, (n) => s("a", { class: "node" },
    s("rect", { class: "hit", x: 0, width: x + bar }), s("rect", { class: "source", x, width: bar, rx: 2 }), s("rect", { class: "refused", x, width: bar, rx: 2 }),
    s("text", { x: x - 8, "text-anchor": "end" }, s("tspan", { x: x - 8, class: "name" }), s("tspan", { x: x - 8, dy: "1.25em", class: "figure" })), s("title")), (g, n) => {
    const [hit, rect, refused, label, title] = g.children;
    attr(g, "href", n.href);
    box(hit, n);
    line(rect, n.y, n.h);
    const cut = Math.min(n.h, n.shed * unit);
    line(refused, n.y + n.h - cut, n.shed > 0 ? Math.max(3, cut) : 0);
    for (const e of [hit, label.firstChild, label.lastChild]) attr(e, "x", e === hit ? 0 : x - 8);
    attr(hit, "width", x + bar);
    attr(rect, "x", x);
    attr(refused, "x", x);
    attr(label, "y", (n.y + n.h / 2 - 2).toFixed(1));
    fit(label.firstChild, n.name, x - 12);
    text(label.lastChild, n.shed > 0 ? `${rate(n.rate)}/s, ${percent(n.shed / n.rate)} shed` : `${rate(n.rate)}/s`);
    text(title, `${n.name}: ${rate(n.rate)} requests/s arrive${n.shed > 0 ? `, ${rate(n.shed)} are shed` : ""}`);
  });
}

function drawRegions(parent, list, x, color) {
  keyed(parent, list, (n) => n.name, () => s("a", { class: "node" },
    s("rect", { class: "hit" }), s("rect", { class: "region", width: bar, rx: 2 }), s("text", null, s("tspan", { class: "name" }), s("tspan", { dy: "1.25em", class: "figure" })), s("title")), (g, n) => {
    const [hit, rect, label, title] = g.children;
    const full = n.capacity > 0 ? n.load / n.capacity : 0;
    attr(g, "href", href("engines", { region: n.name }));
    box(hit, n);
    attr(hit, "x", x - bar);
    attr(hit, "width", x);
    attr(rect, "x", x - bar);
    attr(rect, "fill", color.color(n.price));
    line(rect, n.y, n.h);
    attr(label, "y", (n.y + n.h / 2 - 2).toFixed(1));
    for (const e of label.children) attr(e, "x", x + 8);
    fit(label.firstChild, n.name, x - 12);
    text(label.lastChild, n.engines === 0 ? "no engine" : `${percent(full)} used`);
    text(title, `${n.name}: ${rate(n.load)} of ${rate(n.capacity)} requests/s, price ${seconds(n.price)}, ${n.engines} engines`);
  });
}

function box(hit, n) {
  line(hit, n.y - Math.max(0, (slot - n.h) / 2), Math.max(slot, n.h));
}

function line(rect, y, h) {
  attr(rect, "y", y.toFixed(1));
  attr(rect, "height", h.toFixed(1));
}

// fit cuts a name to the room there is, by the usual width of a letter.
function fit(node, name, room) {
  const n = Math.floor(Math.max(40, Math.min(room, 160)) / 8.8);
  text(node, name.length > n ? name.slice(0, n - 1) + "…" : name);
}
