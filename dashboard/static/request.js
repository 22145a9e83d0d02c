// One request: how it was routed, in words, and what became of each attempt.

import { h, s, card, table, ask, input, seconds, href, error } from "./dom.js";

export function open(main, asked) {
  const id = input("Decision", { name: "id", value: asked.id ?? "", size: 34, autocomplete: "off", spellcheck: "false", required: true });
  const form = h("form", { class: "form", submit: (e) => { e.preventDefault(); location.hash = href("request", { id: id.lastChild.value.trim() }); } }, id, h("button", { class: "main" }, "Show"));
  const out = h("div", { "aria-live": "polite" });
  main.append(h("h1", null, "How a request was routed"), form, out);
  let turn = 0;
  async function load(of) {
    const mine = ++turn;
    if (!of) {
      out.replaceChildren(h("p", { class: "soft" }, "Each answer names its decision in the header ", h("code", null, "x-wardrop-decision"), ". Data planes remember the last 4,096."));
      return;
    }
    out.replaceChildren(h("p", { class: "soft" }, "Asking the data planes …"));
    try {
      const got = await ask(`/v1/why/request?id=${encodeURIComponent(of)}`);
      if (mine === turn) out.replaceChildren(...shown(got, of));
    } catch (e) {
      if (mine === turn) out.replaceChildren(error(e));
    }
  }
  load(asked.id);
  return { change(next) { id.lastChild.value = next.id ?? ""; load(next.id); return true; }, close() { turn++; } };
}

function shown(got, id) {
  const d = got.decision;
  return [
    card("In words", h("ol", { class: "words" }, got.words.map((w) => h("li", null, w))), whyNot(id)),
    (d.attempts ?? []).length ? card("Attempts", timeline(d), ...d.attempts.map((a, i) => h("details", null, h("summary", null, `Attempt ${i + 1}: ${a.engine}`), facts(a)))) : null,
    (d.probes ?? []).length ? h("section", { class: "card" }, probes(d)) : null,
    card("All that is recorded", facts({ ...d, attempts: undefined, probes: undefined, data_plane: got.data_plane })),
  ].filter(Boolean);
}

// whyNot asks of one engine why it was not picked.
function whyNot(id) {
  const engine = input("Why not", { name: "engine", placeholder: "an engine", autocomplete: "off", spellcheck: "false", required: true });
  const said = h("ul", { class: "words", "aria-live": "polite" });
  return h("div", null, h("form", { class: "form", submit: async (e) => {
    e.preventDefault();
    try {
      const got = await ask(`/v1/why/request?${new URLSearchParams({ id, engine: engine.lastChild.value.trim() })}`);
      said.replaceChildren(...(got.why_not ?? []).map((w) => h("li", null, w)));
    } catch (x) {
      said.replaceChildren(error(x));
    }
  } }, engine, h("button", null, "Ask")), said);
}

// probes lists what the decision looked at, in order.
function probes(d) {
  const t = table("What was looked at, in order", [
    { head: "Look", cell: (p) => p.look }, { head: "Engine", cell: (p) => (p.engine ? h("a", { href: href("engine", { name: p.engine }) }, p.engine) : "the row") },
    { head: "Found", cell: (p) => p.state }, { head: "In flight", number: true, cell: (p) => p.in_flight }, { head: "Bound", number: true, cell: (p) => (p.bound ? Math.round(p.bound) : "–") },
  ]);
  t.update(d.probes.map((p, i) => ({ ...p, i })), (p) => p.i);
  return t.node;
}

// timeline shows what was waited for and, beside it, what the plan predicted.
function timeline(d) {
  const most = Math.max(1e-6, d.seconds ?? 0, d.queued ?? 0, ...d.attempts.flatMap((a) => [(a.after ?? 0) + (a.first_byte ?? 0), (a.after ?? 0) + (a.predicted ?? 0)]));
  const rows = [];
  if (d.queued > 0) rows.push([h("span", null, "waited for room"), bar(0, d.queued, 0, most)]);
  for (const a of d.attempts) rows.push([h("a", { href: href("engine", { name: a.engine }) }, a.engine), bar(a.after ?? 0, a.first_byte, a.predicted, most), h("span"), h("span", { class: "soft" }, outcome(a))]);
  if (d.seconds > 0) rows.push([h("span", null, "whole answer"), bar(0, d.seconds, 0, most)]);
  return h("div", { class: "timeline" }, rows);
}

function outcome(a) {
  const parts = [a.outcome];
  if (a.first_byte > 0) parts.push(`first byte after ${seconds(a.first_byte)}`);
  if (a.predicted > 0) parts.push(`${seconds(a.predicted)} in all predicted (line)`);
  if (a.error) parts.push(a.error);
  return parts.join(", ");
}

// bar is from when to when something took, with a line where it was predicted to end.
function bar(from, x, predicted, most) {
  const at = (v) => `${(98 * Math.min(1, v / most)).toFixed(2)}%`;
  return s("svg", { class: "chart", width: "100%", height: 16, "aria-hidden": "true" }, s("rect", { class: "took", x: at(from), y: 3, height: 10, rx: 2, width: x > 0 ? at(x) : 2 }),
    predicted > 0 ? s("line", { class: "limit", x1: at(from + predicted), x2: at(from + predicted), y1: 0, y2: 16 }) : null);
}

// facts lists whatever is recorded, so that what is recorded one day is shown that day.
function facts(record) {
  const entries = Object.entries(record).filter(([, v]) => v !== undefined && v !== null && v !== "");
  return h("dl", { class: "facts" }, entries.map(([k, v]) => [h("dt", null, k.replaceAll("_", " ")), h("dd", null, value(k, v))]));
}

function value(key, v) {
  if (typeof v === "number" && ["queued", "seconds", "first_byte", "predicted", "after", "expected_first_byte"].includes(key)) return seconds(v);
  if (Array.isArray(v)) return v.every((x) => typeof x !== "object") ? v.join(", ") : h("ol", { class: "words" }, v.map((x) => h("li", null, facts(x))));
  if (typeof v === "object") return facts(v);
  return String(v);
}
