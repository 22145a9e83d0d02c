// Charts: weights over time, and a curve with points on it.

import { h, s, attr, text, keyed, clock } from "./dom.js";
import { seriesColor } from "./scale.js";

const pad = { left: 46, right: 12, top: 12, bottom: 26 };

// axis draws lines across with their values.
function axis(g, ticks, y, label, x0, x1) {
  keyed(g, ticks, (t) => String(t), () => s("g", null, s("line", { class: "grid" }), s("text", { class: "axis", "text-anchor": "end" })), (n, t) => {
    const [line, words] = n.children;
    for (const [k, v] of [["x1", x0], ["x2", x1], ["y1", y(t)], ["y2", y(t)]]) attr(line, k, v.toFixed(1));
    attr(words, "x", x0 - 6);
    attr(words, "y", (y(t) + 4).toFixed(1));
    text(words, label(t));
  });
}

// below writes values under a chart.
function below(g, ticks, x, y, label) {
  keyed(g, ticks, (t) => String(t), () => s("text", { class: "axis", "text-anchor": "middle" }), (n, t) => {
    attr(n, "x", x(t).toFixed(1));
    attr(n, "y", y);
    text(n, label(t));
  });
}

// nice gives about n round values from 0 to a top.
export function nice(top, n = 4) {
  const raw = top / n, unit = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((k) => k * unit >= raw) * unit;
  const out = [];
  for (let v = 0; v <= top * 1.0001; v += step) out.push(Number(v.toPrecision(6)));
  return out;
}

// stacked draws shares that add up to 1, in steps over time; marks are where much moved.
export function stacked(label, chosen) {
  const grid = s("g"), areas = s("g"), times = s("g"), marks = s("g");
  const node = s("svg", { class: "chart", role: "group", "aria-label": label }, areas, grid, times, marks);
  const key = h("ul", { class: "key" });
  return {
    node: h("div", null, node, key),
    draw(data, width) {
      const height = 240, x0 = pad.left, x1 = width - pad.right, y0 = height - pad.bottom, y1 = pad.top;
      const span = Math.max(1000, data.to - data.from);
      const x = (t) => x0 + ((Math.max(data.from, t) - data.from) / span) * (x1 - x0), y = (v) => y0 - v * (y0 - y1);
      attr(node, "viewBox", `0 0 ${width} ${height}`);
      attr(node, "width", width);
      attr(node, "height", height);
      axis(grid, [0, 0.25, 0.5, 0.75, 1], y, (v) => `${100 * v} %`, x0, x1);
      const n = width < 500 ? 2 : 4;
      below(times, Array.from({ length: n + 1 }, (_, i) => i), (i) => Math.min(x1 - 24, Math.max(x0 + 20, x0 + (i / n) * (x1 - x0))), height - 8, (i) => clock(data.from + (i / n) * span));
      drawAreas(areas, data, x, y);
      keyed(marks, data.marks, (m) => m.plan, (m) => mark(m, chosen), (g, m) => drawMark(g, m, x(m.time), y0, y1));
      drawKey(key, data.names);
    },
  };
}

function drawAreas(parent, data, x, y) {
  const floor = data.points.map(() => 0);
  const list = data.names.map((name, i) => {
    const low = [...floor];
    data.points.forEach((p, k) => (floor[k] += p.shares[name] ?? 0));
    return { name, i, low, high: [...floor] };
  });
  keyed(parent, list, (a) => a.name, () => s("path", null, s("title")), (path, a) => {
    const over = [], under = [];
    data.points.forEach((p, k) => {
      const from = x(p.time).toFixed(1), to = x(data.points[k + 1]?.time ?? data.to).toFixed(1);
      over.push(`${from} ${y(a.high[k]).toFixed(1)}`, `${to} ${y(a.high[k]).toFixed(1)}`);
      under.push(`${from} ${y(a.low[k]).toFixed(1)}`, `${to} ${y(a.low[k]).toFixed(1)}`);
    });
    attr(path, "d", over.length ? `M${over.join("L")}L${under.reverse().join("L")}Z` : "");
    attr(path, "fill", seriesColor(data.rest === a.name ? -1 : a.i));
    attr(path, "fill-opacity", 0.85);
    text(path.firstChild, a.name);
  });
}

function mark(m, chosen) {
  const g = s("g", { class: "mark", tabindex: 0, role: "button" }, s("rect", { class: "change-hit", width: 12 }), s("line", { class: "change" }), s("circle", { class: "knob", r: 4 }), s("title"));
  g.addEventListener("click", () => chosen(m));
  g.addEventListener("keydown", (e) => {
    if (e.key !== "Enter" && e.key !== " ") return;
    e.preventDefault();
    chosen(m);
  });
  return g;
}

function drawMark(g, m, x, y0, y1) {
  const [hit, line, knob, title] = g.children;
  const words = `${clock(m.time)}, plan ${m.plan}: ${(100 * m.moved).toFixed(0)} % of the requests moved. What moved them?`;
  attr(g, "aria-label", words);
  text(title, words);
  for (const [k, v] of [["x", x - 6], ["y", y1], ["height", y0 - y1]]) attr(hit, k, v.toFixed(1));
  for (const [k, v] of [["x1", x], ["x2", x], ["y1", y1], ["y2", y0]]) attr(line, k, v.toFixed(1));
  attr(knob, "cx", x.toFixed(1));
  attr(knob, "cy", y1);
}

function drawKey(parent, names) {
  keyed(parent, names.map((name, i) => ({ name, i })), (n) => n.name, () => h("li", null, s("svg", { viewBox: "0 0 10 10", "aria-hidden": "true" }, s("rect", { width: 10, height: 10, rx: 2 })), h("span")), (li, n) => {
    attr(li.firstChild.firstChild, "fill", n.name === "others" ? "var(--idle)" : seriesColor(n.i));
    text(li.lastChild, n.name);
  });
}

// lines draws curves over a load or a time, with points and limits: {lines: [{name, points,
// second}], limits: [{name, x}], points: [{name, x, y}], x, y: how values are written}.
export function lines(label) {
  const grid = s("g"), low = s("g"), limits = s("g"), curves = s("g"), points = s("g");
  const node = s("svg", { class: "chart", role: "img", "aria-label": label }, grid, low, limits, curves, points);
  return {
    node,
    draw(data, width) {
      const height = 230, x0 = pad.left + 12, x1 = width - pad.right, y0 = height - pad.bottom, y1 = pad.top;
      const xs = data.range ?? [0, Math.max(1e-9, ...data.lines.flatMap((l) => l.points.map((p) => p[0])))];
      const top = Math.max(1e-9, data.top);
      const x = (v) => x0 + ((v - xs[0]) / (xs[1] - xs[0] || 1)) * (x1 - x0), y = (v) => y0 - (Math.min(v, top * 1.02) / top) * (y0 - y1);
      attr(node, "viewBox", `0 0 ${width} ${height}`);
      attr(node, "width", width);
      attr(node, "height", height);
      axis(grid, nice(top), y, data.y, x0, x1);
      below(low, data.ticks ?? nice(xs[1], width < 420 ? 3 : 5), x, height - 8, data.x);
      keyed(limits, data.limits ?? [], (l) => l.name, () => s("g", null, s("line", { class: "limit" }), s("text", { class: "axis", "text-anchor": "end" })), (g, l) => {
        for (const [k, v] of [["x1", x(l.x)], ["x2", x(l.x)], ["y1", y1], ["y2", y0]]) attr(g.firstChild, k, v.toFixed(1));
        attr(g.lastChild, "x", (x(l.x) - 5).toFixed(1));
        attr(g.lastChild, "y", y0 - 8);
        text(g.lastChild, l.name);
      });
      keyed(curves, data.lines, (l) => l.name, (l) => s("path", { class: l.second ? "line second" : "line" }, s("title")), (p, l) => {
        const inside = l.points.filter((q) => q[1] <= top * 1.02);
        attr(p, "d", inside.length ? "M" + inside.map((q) => `${x(q[0]).toFixed(1)} ${y(q[1]).toFixed(1)}`).join("L") : "");
        text(p.firstChild, l.name);
      });
      keyed(points, data.points ?? [], (p) => p.name, () => s("circle", { class: "point", r: 6 }, s("title")), (c, p) => {
        attr(c, "cx", x(p.x).toFixed(1));
        attr(c, "cy", y(p.y).toFixed(1));
        text(c.firstChild, p.name);
      });
    },
  };
}
