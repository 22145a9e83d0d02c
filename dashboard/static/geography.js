// The drawing of flows where places are known: regions and clusters on the earth, flows as
// curves as wide as what flows and coloured by what it costs there.

import { s, attr, text, keyed, rate, percent, seconds, href } from "./dom.js";
import { priceScale } from "./scale.js";
import { land } from "./land.js";

const margin = 58; // pixels
const most = 60; // flows that are drawn: more would hide each other

export function geography() {
  const earth = s("path", { class: "land", d: land });
  const curves = s("g", { class: "ribbons" }), places = s("g");
  const node = s("svg", { class: "places", role: "group", "aria-label": "Flows between places; the tables below say the same" }, s("g", null, earth), curves, places);
  return { node, draw: (m, width) => draw({ node, earth, curves, places }, m, width) };
}

// gathered joins clusters and regions to places by the name of their region.
function gathered(m) {
  const by = new Map();
  const at = (name, where) => {
    if (!by.has(name)) by.set(name, { name, where, clusters: [], region: null, arrives: 0, shed: 0 });
    return by.get(name);
  };
  for (const r of m.regions) if (r.at) at(r.name, r.at).region = r;
  for (const c of m.clusters) {
    if (!c.at) continue;
    const p = at(c.region, c.at);
    p.clusters.push(c.name);
    p.arrives += c.rate;
    p.shed += c.shed;
  }
  return by;
}

// projected puts the places on the drawing, north up, with room around them.
function projected(all, width) {
  const x = (p) => p.where[1], y = (p) => -p.where[0];
  const span = (f) => [Math.min(...all.map(f)), Math.max(...all.map(f))];
  const [x0, x1] = span(x), [y0, y1] = span(y);
  const wide = Math.max(20, x1 - x0), high = Math.max(12, y1 - y0);
  const unit = Math.min((width - 2 * margin) / wide, 460 / high);
  const height = Math.max(240, high * unit + 2 * margin);
  const dx = width / 2 - ((x0 + x1) / 2) * unit, dy = height / 2 - ((y0 + y1) / 2) * unit;
  for (const p of all) [p.x, p.y] = [x(p) * unit + dx, y(p) * unit + dy];
  return { height, around: 360 * unit, transform: `translate(${dx - 180 * unit} ${dy - 90 * unit}) scale(${unit / 4})`, line: 4 / unit };
}

function flowsOf(m, by) {
  const sums = new Map();
  for (const [c, r, x, price] of m.flows) {
    const a = by.get(m.clusters[c].region), b = by.get(m.regions[r].name);
    if (!a || !b) continue;
    const key = `${a.name}\0${b.name}`;
    const f = sums.get(key) ?? { key, a, b, rate: 0, cost: 0 };
    f.rate += x;
    f.cost += x * price;
    sums.set(key, f);
  }
  return [...sums.values()].map((f) => ({ ...f, price: f.cost / f.rate })).sort((a, b) => b.rate - a.rate);
}

function draw(parts, m, width) {
  const by = gathered(m), all = [...by.values()];
  const { height, transform, line, around } = projected(all, width);
  attr(parts.node, "viewBox", `0 0 ${width} ${Math.round(height)}`);
  attr(parts.node, "width", width);
  attr(parts.node, "height", Math.round(height));
  attr(parts.earth, "transform", transform);
  attr(parts.earth, "stroke-width", line.toFixed(2));
  const list = flowsOf(m, by);
  const color = priceScale(list.map((f) => f.price));
  const ways = list.filter((f) => f.a !== f.b);
  const drawn = ways.slice(0, most);
  const unit = Math.min(16 / Math.max(1e-9, drawn[0]?.rate ?? 0), 420 / Math.max(1e-9, drawn.reduce((a, f) => a + f.rate, 0)));
  color.drawn = ways.length > most ? `The ${most} largest of ${ways.length} flows between places are drawn.` : "";
  keyed(parts.curves, drawn, (f) => f.key, () => s("path", { fill: "none", "stroke-linecap": "round" }, s("title")), (p, f) => {
    attr(p, "d", way(f.a, f.b, around));
    attr(p, "stroke", color.color(f.price));
    attr(p, "stroke-width", Math.max(1.2, unit * f.rate).toFixed(1));
    text(p.firstChild, `${f.a.name} to ${f.b.name}: ${rate(f.rate)} requests/s at ${seconds(f.price)}`);
  });
  drawPlaces(parts.places, all, color, Math.max(1e-9, ...all.map((p) => p.region?.capacity ?? 0)), width);
  return color;
}

// way is the shorter one around the earth: over the edge of the drawing it is two pieces.
function way(a, b, around) {
  const far = b.where[1] - a.where[1];
  if (Math.abs(far) <= 180) return curve(a, b);
  const turn = far > 0 ? -around : around;
  return curve(a, { x: b.x + turn, y: b.y }) + curve({ x: a.x - turn, y: a.y }, b);
}

// curve bends to the right of its way, so that there and back are two.
function curve(a, b) {
  const dx = b.x - a.x, dy = b.y - a.y;
  const mx = (a.x + b.x) / 2 - dy * 0.15, my = (a.y + b.y) / 2 + dx * 0.15;
  return `M${a.x.toFixed(1)} ${a.y.toFixed(1)}Q${mx.toFixed(1)} ${my.toFixed(1)} ${b.x.toFixed(1)} ${b.y.toFixed(1)}`;
}

// labelled are the places whose names have room: those with the most capacity come first.
function labelled(all, most) {
  const taken = all.map((p) => [p.x - 13, p.y - 13, p.x + 13, p.y + 13, p]), out = new Map();
  const free = (box, p) => !taken.some((t) => t[4] !== p && box[0] < t[2] && box[2] > t[0] && box[1] < t[3] && box[3] > t[1]);
  for (const p of [...all].sort((a, b) => (b.region?.capacity ?? 0) - (a.region?.capacity ?? 0) || (a.name < b.name ? -1 : 1))) {
    const w = 4 + 3.6 * Math.max(p.name.length, 9), r = radiusOf(p, most);
    for (const dy of [r + 18, -r - 24]) { // below, else above
      const box = [p.x - w, p.y + dy - 12, p.x + w, p.y + dy + 18];
      if (!free(box, p)) continue;
      taken.push(box);
      out.set(p, dy);
      break;
    }
  }
  return out;
}

const radiusOf = (p, most) => (p.region ? 6 + 9 * Math.sqrt(p.region.capacity / most) * (most > 0 ? 1 : 0) : 5);

function drawPlaces(parent, all, color, most, width) {
  const small = all.length > 12 ? 0.6 : 1;
  const named = labelled(all, most);
  keyed(parent, all, (p) => p.name, () => s("a", { class: "node" }, s("circle", { class: "hit" }), s("circle", { class: "disc" }), s("circle", { class: "ring back" }), s("circle", { class: "ring" }),
    s("text", { "text-anchor": "middle" }, s("tspan", { class: "name" }), s("tspan", { dy: "1.2em", class: "figure" })), s("title")), (g, p) => {
    const [hit, disc, back, ring, label, title] = g.children;
    const r = p.region;
    const radius = small * radiusOf(p, most);
    const full = r && r.capacity > 0 ? r.load / r.capacity : 0;
    for (const c of [hit, disc, back, ring]) {
      attr(c, "cx", p.x.toFixed(1));
      attr(c, "cy", p.y.toFixed(1));
    }
    attr(hit, "r", Math.max(18, radius + 6));
    attr(disc, "r", radius.toFixed(1));
    attr(disc, "fill", r ? color.color(r.price) : "var(--idle)");
    const around = 2 * Math.PI * (radius + 3.5);
    attr(back, "r", (radius + 3.5).toFixed(1));
    attr(ring, "r", (radius + 3.5).toFixed(1));
    attr(ring, "stroke-dasharray", `${(full * around).toFixed(1)} ${around.toFixed(1)}`);
    attr(ring, "transform", `rotate(-90 ${p.x.toFixed(1)} ${p.y.toFixed(1)})`);
    for (const t of label.children) attr(t, "x", Math.min(width - 34, Math.max(34, p.x)).toFixed(1));
    attr(label, "y", (p.y + (named.get(p) ?? 0)).toFixed(1));
    text(label.firstChild, named.has(p) ? p.name : "");
    text(label.lastChild, named.has(p) && r ? `${percent(full)} used${p.shed > 0 ? ", sheds" : ""}` : "");
    text(title, `${p.name}: ${r ? `${rate(r.load)} of ${rate(r.capacity)} requests/s, price ${seconds(r.price)}, ${r.engines} engines` : "no engines"}; ${rate(p.arrives)} arrive (${p.clusters.join(", ") || "no cluster"})`);
    attr(g, "href", r ? href("engines", { region: p.name }) : href("weights", { cluster: p.clusters[0] }));
  });
}
