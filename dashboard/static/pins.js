// What operators may pin, shown to those alone who are authorised.

import { h, text, keyed, card, input, age } from "./dom.js";
import { access, override, release } from "./access.js";

// controls are those of one engine.
export function controls(engine) {
  const node = h("div", { class: "form", hidden: true });
  const said = h("span", { role: "status" });
  const cap = h("input", { type: "number", min: 1, max: 99, value: 50, "aria-label": "Percent of its capacity" });
  const drain = h("button", { type: "button", click: () => act(() => (drained ? release(`drain/${engine}`) : override({ kind: "drain", subject: engine }))) }, "Drain");
  const limit = h("button", { type: "button", click: () => act(() => (capped ? release(`cap/${engine}`) : override({ kind: "cap", subject: engine, value: String(cap.value / 100) }))) }, "Cap");
  let drained = false, capped = false;
  const act = async (f) => {
    try {
      await f();
      text(said, "It counts from the next plan on.");
    } catch (e) {
      text(said, e.message);
    }
  };
  node.append(drain, limit, cap, h("span", { class: "soft" }, "% of its capacity"), said);
  access().then((a) => { node.hidden = !a.authorised; }).catch(() => {});
  return {
    node,
    update(m) {
      drained = !!m?.overrides.some((o) => o.kind === "drain" && o.subject === engine);
      capped = !!m?.overrides.some((o) => o.kind === "cap" && o.subject === engine);
      text(drain, drained ? "Let it serve again" : "Drain");
      text(limit, capped ? "End the cap" : "Cap at");
    },
  };
}
