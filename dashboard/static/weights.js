// Weights of one cluster and model over time, what moved them, and why they are as they are.

import { h, timed, text, attr, keyed, card, table, select, ask, rate, seconds, percent, clock, href, error } from "./dom.js";
import { stacked } from "./chart.js";
import { live } from "./live.js";

const much = 0.02; // from which part of the requests on a change is marked
const rowsShown = 12; // engines of a row that are listed

export function open(main, asked) {
  const state = { cluster: asked.cluster ?? "", model: asked.model ?? "", by: asked.by === "engines" ? "engines" : "regions", points: [], last: 0, since: 0, now: 0, plan: "", turn: 0 };
  const go = (next) => { location.hash = href("weights", { cluster: state.cluster, model: state.model, by: state.by === "engines" ? "engines" : "", ...next }); };
  const clusters = select("Cluster", "cluster", [], "", (e) => go({ cluster: e.target.value }));
  const models = select("Model", "model", [], "", (e) => go({ model: e.target.value }));
  const by = select("By", "by", [["regions", "region"], ["engines", "engine"]], state.by, (e) => go({ by: e.target.value === "engines" ? "engines" : "" }));
  const change = h("div", { "aria-live": "polite" }, h("p", { class: "soft" }, "Choose a change: in the chart, where a line stands, or in the list."));
  const explain = (m) => { whatMoved(change, state, m); draw(); };
  const chart = stacked("Weights over time", explain);
  const figure = h("div", null, chart.node);
  const changes = h("ul", { class: "changes" });
  const none = h("p", { class: "soft" });
  const now = whyNow();
  now.node.hidden = state.cluster === "";
  main.append(h("h1", null, "Weights over time"), h("div", { class: "form" }, clusters, models, by),
    h("section", { class: "card", "aria-label": "Chart" }, figure, none),
    h("div", { class: "columns" }, card("Changes", changes), card("What moved them", change)), now.node);
  const sizes = new ResizeObserver(() => draw());
  sizes.observe(figure);

  function draw() {
    const points = state.points;
    const names = series(points, state.by);
    const shares = points.map((p) => ({ time: p.time, shares: withRest(p[state.by], names) }));
    const marks = points.filter((p) => p.moved >= much && p.from);
    chart.draw({ from: Math.max(state.since, points[0]?.time ?? state.since), to: Math.max(state.now, state.since + 1000), points: shares, names, rest: "others", marks }, Math.max(260, figure.clientWidth));
    keyed(changes, [...marks].reverse(), (m) => m.plan, (m) => h("li", null, h("button", { type: "button", click: () => explain(m) }, h("span", null, `${clock(m.time)}, plan ${m.plan}`), h("span", null, `${percent(m.moved)} moved`))),
      (li, m) => attr(li.firstChild, "aria-pressed", String(state.chosen === m.plan)));
    text(none, points.length === 0 ? "Nothing is remembered of it yet." : marks.length === 0 ? `No weight has moved by much since ${clock(state.since)}.` : `Remembered since ${clock(state.since)}. A line stands where ${100 * much} % or more of the requests went elsewhere at once.`);
  }

  async function fetchMore() {
    const mine = state.turn;
    const got = await ask(`/v1/weights?${new URLSearchParams({ cluster: state.cluster, model: state.model, ...(state.last ? { after: state.last } : {}) })}`);
    if (mine !== state.turn) return;
    state.points = state.points.concat(got.points).slice(-2000);
    state.last = state.points.at(-1)?.time ?? 0;
    [state.since, state.now] = [got.since, got.now];
    timed("wardrop-fetched", draw);
  }

  function begin() {
    Object.assign(state, { points: [], last: 0, plan: "", chosen: "", turn: state.turn + 1 });
    changes.replaceChildren();
    changes.keyedNodes = null;
  }

  return {
    change(next) {
      if ((next.cluster ?? "") !== state.cluster || (next.model ?? "") !== state.model) {
        Object.assign(state, { cluster: next.cluster ?? "", model: next.model ?? "" });
        begin();
      }
      state.by = next.by === "engines" ? "engines" : "regions";
      by.lastChild.value = state.by;
      if (live.map) this.update(live.map);
      return true;
    },
    update(m) {
      fillSelect(clusters.lastChild, m.clusters.map((c) => c.name), "all");
      fillSelect(models.lastChild, m.models.map((x) => x.name));
      state.model ||= m.models.reduce((a, x) => (x.rate > (a?.rate ?? -1) ? x : a), null)?.name ?? "";
      clusters.lastChild.value = state.cluster;
      models.lastChild.value = state.model;
      const plan = `${m.epoch}.${m.version}`;
      fetchMore().catch(() => {});
      now.node.hidden = state.cluster === "";
      if (plan !== state.plan && m.published && state.cluster) {
        state.plan = plan;
        now.update(state).catch(() => {});
      }
    },
    close() { sizes.disconnect(); },
  };
}

function fillSelect(node, names, all) {
  const is = names.join("\n");
  if (node.dataset.names === is) return;
  node.dataset.names = is;
  node.replaceChildren(...(all ? [h("option", { value: "" }, all)] : []), ...names.map((n) => h("option", { value: n }, n)));
}

// series are the names with the most weight in all points together; the others are one.
function series(points, by) {
  const sums = new Map();
  for (const p of points) for (const [k, v] of Object.entries(p[by])) sums.set(k, (sums.get(k) ?? 0) + v);
  const names = [...sums.entries()].sort((a, b) => b[1] - a[1]).slice(0, 8).map(([k]) => k).sort();
  const rest = points.some((p) => 1 - names.reduce((a, n) => a + (p[by][n] ?? 0), 0) > 0.002);
  return rest ? [...names, "others"] : names;
}

function withRest(shares, names) {
  if (names.at(-1) !== "others") return shares;
  return { ...shares, others: Math.max(0, 1 - names.reduce((a, n) => a + (shares[n] ?? 0), 0)) };
}

// whatMoved asks which inputs moved the weights of a plan.
async function whatMoved(node, state, m) {
  state.chosen = m.plan;
  node.replaceChildren(h("p", { class: "soft" }, `Solving plan ${m.plan} again with each of what changed …`));
  try {
    const got = await ask(`/v1/why/change?${new URLSearchParams({ from: m.from, to: m.plan, cluster: state.cluster, model: state.model })}`);
    if (state.chosen === m.plan) node.replaceChildren(...changed(got, m, state.cluster === ""));
  } catch (e) {
    if (state.chosen === m.plan) node.replaceChildren(error(e));
  }
}

function changed(c, m, all) {
  const weights = table("Weights that changed here", [
    { head: "Engine", cell: (w) => w.engine, link: (w) => href("engine", { name: w.engine }) },
    ...(all ? [{ head: "Cluster", cell: (w) => w.cluster, link: (w) => href("weights", { cluster: w.cluster, model: w.model }) }] : []),
    { head: "Before", number: true, cell: (w) => percent(w.before) },
    { head: "After", number: true, cell: (w) => percent(w.after) },
    { head: "By", cell: (w) => w.parts.filter((p) => Math.abs(p.weight) >= 0.0005).map((p) => `${p.input} ${p.weight > 0 ? "+" : "−"}${(100 * Math.abs(p.weight)).toFixed(1)} %`).join(", ") },
  ]);
  weights.update(c.weights.slice(0, rowsShown), (w) => `${w.cluster}\0${w.engine}`);
  return [
    h("p", null, `From plan ${m.from} to ${m.plan}, at ${clock(m.time)}:`),
    h("ul", { class: "words" }, c.inputs.map((i) => h("li", null, h("strong", null, `${i.input}, ${percent(i.share)} of all that moved. `), (i.what ?? []).slice(0, 6).join("; ")))),
    c.words?.length ? h("details", null, h("summary", null, "In words"), h("ol", { class: "words" }, c.words.slice(0, 30).map((w) => h("li", null, w)))) : null,
    c.weights.length ? weights.node : null,
  ].filter(Boolean);
}

// whyNow is the row as it is, with its terms.
function whyNow() {
  const terms = ["network", "latency", "congestion", "cap", "penalty", "churn", "total"];
  const list = table("What one more request would cost, by engine", [
    { head: "Engine", cell: (e) => e.engine, link: (e) => href("engine", { name: e.engine }) },
    { head: "Weight", number: true, cell: (e) => percent(e.weight) },
    { head: "Requests/s", number: true, cell: (e) => rate(e.rate) },
    ...terms.map((t) => ({ head: t[0].toUpperCase() + t.slice(1), number: true, cell: (e) => seconds(e.terms[t]) })),
    { head: "Dearer by", number: true, cell: (e) => (e.weight > 0 ? "–" : seconds(e.dearer)) },
  ]);
  const words = h("ul", { class: "words" });
  const said = h("p", { class: "soft" });
  return {
    node: card("Why it is so now", said, list.node, h("h3", null, "In words"), words),
    async update(state) {
      const mine = state.turn;
      const w = await ask(`/v1/why/weight?${new URLSearchParams({ cluster: state.cluster, model: state.model, engines: rowsShown })}`);
      if (mine !== state.turn) return;
      text(said, `${rate(w.rate)} requests/s for ${w.model} at ${w.cluster}, plan ${w.epoch}.${w.version}. On all engines in use one more request costs the same: ${seconds(w.level)}.`);
      list.update(w.engines, (e) => e.engine);
      keyed(words, w.words.slice(0, rowsShown), (x) => x, (x) => h("li", null, x));
    },
  };
}
