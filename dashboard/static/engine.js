// One engine: what it says, what is made of it, and whether it is as fast as was predicted.

import { h, s, timed, text, attr, keyed, card, table, ask, rate, seconds, percent, utilisation, age, clock, href, error } from "./dom.js";
import { lines } from "./chart.js";
import { controls } from "./pins.js";
import { live } from "./live.js";

export function open(main, asked) {
  const name = asked.name ?? "";
  const badge = h("span", { class: "state" });
  const reason = h("p", { class: "soft" });
  const facts = h("dl", { class: "facts" }), signals = h("dl", { class: "facts" }), price = h("dl", { class: "facts" });
  const meter = s("rect", { height: 10 });
  const load = h("p"), gauge = s("svg", { class: "meter", viewBox: "0 0 100 10", width: "100%", preserveAspectRatio: "none", "aria-hidden": "true" }, meter);
  const curve = lines("Latency over load, by the profile, with the point where the plan puts the engine");
  const time = lines("Predicted and observed latency since this page is open");
  const curveBox = h("div", null, curve.node), timeBox = h("div", null, time.node);
  const said = h("p", { class: "soft" }), compared = h("p", { class: "soft" });
  const seen = observedTable(), rows = rowTable((r) => thresholds(below, name, r));
  const below = h("div", { "aria-live": "polite" });
  const problem = h("div");
  const pins = controls(name);
  main.append(h("h1", null, name, " ", badge), reason, problem, pins.node,
    h("div", { class: "columns" }, card("What it is", facts), card("What it says of itself", signals)),
    h("div", { class: "columns" }, card("Load", load, gauge, curveBox, said), card("Price", price, h("p", { class: "soft" }, "Seconds that one more request costs everybody, beside the network."))),
    card("Predicted and observed", timeBox, compared, seen.node), card("Who sends here, and why", rows.node, below));
  const past = { first: 0, points: [], looks: [] };
  let last = null, turn = 0, busy = false;
  const draw = () => { if (last) { drawCurve(curve, last, curveBox, said); drawTime(time, past, timeBox); } };
  const sizes = new ResizeObserver(draw);
  sizes.observe(curveBox);

  async function update() {
    if (busy) return;
    busy = true;
    const mine = ++turn;
    try {
      const got = await ask(`/v1/engine?name=${encodeURIComponent(name)}`);
      if (mine !== turn) return;
      last = got;
      problem.replaceChildren();
      timed("wardrop-fetched", () => show(got));
    } catch (e) {
      if (mine === turn) problem.replaceChildren(error(e));
    } finally { busy = false; }
  }

  function show(p) {
    const e = p.engine;
    text(badge, e.state);
    attr(badge, "data-state", e.state);
    text(reason, e.reason ? `${e.reason}${e.seconds_left ? `; for ${age(e.seconds_left)} still, unless it answers` : ""}` : "");
    list(facts, about(e));
    list(signals, says(e.reading));
    list(price, prices(p));
    const full = utilisation(e.load, e.capacity);
    text(load, e.capacity ? `${rate(e.load)} of ${rate(e.capacity)} requests/s: ${percent(full)} of its capacity` : "The plan sends nothing here.");
    attr(meter, "width", (100 * Math.min(1, full)).toFixed(1));
    attr(gauge, "data-mark", full > 0.98 ? "full" : null);
    rows.update(p);
    remember(past, p);
    seen.update(p, past);
    text(compared, comparison(p, past));
    draw();
    pins.update(live.map);
  }

  update();
  return { update, change: (next) => next.name === name, close() { turn++; sizes.disconnect(); } };
}

function list(node, entries) {
  keyed(node, entries.flatMap(([k, v]) => [{ k, tag: "dt", v: k }, { k: `${k}=`, tag: "dd", v }]), (x) => x.k, (x) => h(x.tag), (n, x) => text(n, x.v));
}

function about(e) {
  const p = e.profile;
  return [
    ["Region", e.region], ["Models", e.models.join(", ") || "none known"], ["Address", e.url ?? "none"], ["Read as", e.kind || "not read"],
    ["Profile", `${p.source}${p.doubt ? `, uncertain by ${percent(p.doubt)}` : ""}`],
    ["Alone", p.t0_seconds ? `a request takes ${seconds(p.t0_seconds)}` : "not known"], ["Saturation", p.saturation ? `${rate(p.saturation)} requests/s` : "not known"],
    ["Penalty", e.penalty ? seconds(e.penalty) : "none"],
    ...(e.slowdown ? [["Slow", `${e.slowdown.toFixed(2)} times slower than its profile`]] : []),
    ...(e.ramp ? [["Held to", `${percent(e.ramp)} of its capacity: it is cold, or capped`]] : []),
  ];
}

function says(r) {
  if (!r) return [["Reading", "none is known"]];
  const n = (x, f = (v) => v) => (x === undefined ? "not said" : f(x));
  return [
    ["Running", n(r.running)], ["Waiting", n(r.waiting)], ["KV cache in use", n(r.kv_usage, percent)], ["Fits at once", n(r.slots)],
    ["KV-cache tokens", n(r.kv_tokens, rate)],
    ["Prompt tokens found in cache", r.prefix_queries > 0 ? percent(r.prefix_hits / r.prefix_queries) : "not said"],
    ["Read", r.age_seconds === undefined ? "never with success" : `${age(r.age_seconds)}${r.age_seconds < 1 ? "" : " ago"}, by ${r.cluster} (${r.instance})`],
    ...(r.error ? [["Trouble", `${r.error}${r.failures ? `, ${r.failures} times in a row` : ""}`]] : []),
    ...(r.faults && r.faults.failed + r.faults.truncated + r.faults.spoilt > 0 ? [["Faulty answers", `${r.faults.failed} failed, ${r.faults.truncated} cut off, ${r.faults.spoilt} spoilt`]] : []),
  ];
}

function prices(p) {
  const t = p.terms;
  if (!t) return [["Price", "it is not in the plan"]];
  return [["Own latency", seconds(t.latency)], ["Congestion", seconds(t.congestion)], ["Capacity price", seconds(t.cap)], ["Penalty", seconds(t.penalty)], ["Together", seconds(t.total)]];
}

function drawCurve(chart, p, box, said) {
  if (!p.curve) return;
  const c = p.curve, load = p.engine.load;
  const top = Math.max(2.2 * c.points[0][1], 1.6 * (p.seconds ?? 0), c.points[Math.floor(c.points.length * 0.86)][1]);
  chart.draw({
    lines: [{ name: "latency", points: c.points }, ...(c.first_token ? [{ name: "first token", points: c.first_token, second: true }] : [])],
    limits: c.capacity ? [{ name: "capacity", x: c.capacity }] : [],
    points: p.seconds ? [{ name: "the plan", x: load, y: p.seconds }] : [],
    range: [0, c.saturation], top, x: (v) => `${Number(v.toPrecision(3))}/s`, y: (v) => seconds(v),
  }, Math.max(250, box.clientWidth));
  text(said, p.seconds ? `The point is where plan ${p.plan} puts it: ${rate(load)} requests/s, ${seconds(p.seconds)} each. It holds ${rate(load * p.seconds)} of the ${rate(c.batch)} that fit.` : "The curve is its profile.");
}

// windowMs is over how long what is observed is averaged, in milliseconds.
const windowMs = 20_000;

// remember keeps what was predicted and what was observed since the last look.
function remember(past, p) {
  const ended = p.observed.reduce((a, o) => a + o.ended, 0), spent = p.observed.reduce((a, o) => a + o.spent_seconds, 0);
  const sends = p.rows.filter((r) => r.weight > 0), all = sends.reduce((a, r) => a + r.rate, 0);
  const predicted = all > 0 ? sends.reduce((a, r) => a + r.rate * r.seconds, 0) / all : null;
  past.first ||= Date.now();
  past.begin ??= new Map(p.observed.map((o) => [o.cluster + o.instance + o.model, o]));
  const now = Date.now();
  past.looks.push({ time: now, ended, spent });
  while (past.looks.length > 2 && now - past.looks[1].time > windowMs) past.looks.shift();
  const b = past.looks[0];
  if (ended > b.ended) past.points.push({ time: now, predicted, observed: (spent - b.spent) / (ended - b.ended) });
  if (past.points.length > 400) past.points.shift();
}

function drawTime(chart, past, box) {
  const pts = past.points;
  box.hidden = pts.length < 2;
  if (box.hidden) return;
  const seen = [...pts.map((p) => p.observed)].sort((a, b) => a - b);
  const top = 1.25 * Math.max(...pts.map((p) => p.predicted ?? 0), seen[Math.floor(seen.length * 0.95)]);
  const range = [pts[0].time, Math.max(pts.at(-1).time, pts[0].time + 1000)];
  chart.draw({
    lines: [{ name: "predicted", points: pts.filter((p) => p.predicted !== null).map((p) => [p.time, p.predicted]) }, { name: "observed", second: true, points: pts.map((p) => [p.time, p.observed]) }],
    range, ticks: [0.06, 0.5, 0.94].map((f) => range[0] + f * (range[1] - range[0])), top, x: (v) => clock(v), y: (v) => seconds(v),
  }, Math.max(250, box.clientWidth));
}

function comparison(p, past) {
  if (past.points.length < 2) return "What is observed is compared from the second reading on, while this page is open.";
  const mean = (f) => past.points.reduce((a, x) => a + f(x), 0) / past.points.length;
  const predicted = mean((x) => x.predicted ?? 0), observed = mean((x) => x.observed);
  return `Since ${clock(past.first)}: ${seconds(predicted)} predicted (blue), ${seconds(observed)} observed (orange), from sending a request to its end.`;
}

function observedTable() {
  let past = null;
  const of = (o) => past?.begin?.get(o.cluster + o.instance + o.model);
  const t = table("What data planes see", [
    { head: "Cluster", cell: (o) => o.cluster, link: (o) => href("weights", { cluster: o.cluster, model: o.model }) },
    { head: "Model", cell: (o) => o.model },
    { head: "Requests/s", number: true, cell: (o) => rate(o.rate) },
    { head: "In flight", number: true, cell: (o) => rate(o.in_flight) },
    { head: "First byte", number: true, cell: (o) => (o.first_byte_seconds ? seconds(o.first_byte_seconds) : "–") },
    { head: "Until its end", number: true, cell: (o) => whole(o, of(o)) },
    { head: "Predicted", number: true, cell: (o) => (o.predicted ? seconds(o.predicted) : "–") },
    { head: "Failed", number: true, cell: (o) => `${o.failed} of ${o.requests}`, mark: (o) => (o.failed > 0.05 * o.requests ? "bad" : null) },
  ]);
  return {
    node: t.node,
    update(p, kept) {
      past = kept;
      const seen = p.observed.map((o) => ({ ...o, predicted: p.rows.find((r) => r.cluster === o.cluster && r.model === o.model)?.seconds }));
      t.update(seen.slice(0, 60), (o) => o.cluster + o.instance + o.model);
      t.node.hidden = seen.length === 0;
    },
  };
}

// whole is the mean since the page is open, or else since the data plane is.
function whole(o, begin) {
  const b = begin && o.ended > begin.ended ? begin : { ended: 0, spent_seconds: 0 };
  return o.ended > b.ended ? seconds((o.spent_seconds - b.spent_seconds) / (o.ended - b.ended)) : "–";
}

function rowTable(ask) {
  const said = h("p", { class: "soft" });
  const t = table("Clusters and models", [
    { head: "Cluster", cell: (r) => r.cluster, link: (r) => href("weights", { cluster: r.cluster, model: r.model }) },
    { head: "Model", cell: (r) => r.model },
    { head: "Weight", number: true, cell: (r) => percent(r.weight) },
    { head: "Requests/s", number: true, cell: (r) => rate(r.rate) },
    { head: "Network", number: true, cell: (r) => seconds(r.terms.network) },
    { head: "Total", number: true, cell: (r) => seconds(r.terms.total) },
    { head: "Why", cell: (r) => (r.weight > 0 ? r.words : why(r, ask)) },
  ]);
  return {
    node: h("div", null, t.node, said),
    update(p) {
      t.update(p.rows, (r) => `${r.cluster}\0${r.model}\0${r.weight > 0}`);
      const hidden = p.silent - p.rows.filter((r) => r.weight === 0).length;
      text(said, hidden > 0 ? `${hidden} more could send here and do not; those above would be the next.` : "");
    },
  };
}

const why = (r, ask) => h("span", null, `${r.words} `, h("button", { type: "button", click: () => ask(r) }, "What would have to change?"));

async function thresholds(node, engine, r) {
  node.replaceChildren(h("p", { class: "soft" }, `Solving again and again, until ${engine} gets something of ${r.cluster} …`));
  try {
    const got = await ask(`/v1/why/thresholds?${new URLSearchParams({ cluster: r.cluster, model: r.model, engine })}`);
    node.replaceChildren(h("h3", null, `When ${r.cluster} would send ${r.model} to ${engine}`), h("ul", { class: "words" }, (got.thresholds ?? []).map((t) => h("li", null, t.words))));
  } catch (e) {
    node.replaceChildren(error(e));
  }
}
