// The live stream: one event a tick. It comes again by itself, and says when it is down.

import { timed } from "./dom.js";

const watchers = new Set();
let source = null;
let again = 0;
let model = "";
let received = 0; // when the newest map came, by performance.now
let open = false;

export const live = {
  map: null, // the newest
  get model() { return model; },
  // age is that of the plan in seconds, by the control plane's clock and the time since.
  get age() {
    if (!live.map?.published) return null;
    return (Date.parse(live.map.now) - Date.parse(live.map.published)) / 1000 + live.silence;
  },
  get silence() { return (performance.now() - received) / 1000; },
  get open() { return open; },
  watch(f) { watchers.add(f); return () => watchers.delete(f); },
  connect,
};

// A page that nobody sees needs no stream: browsers have few connections for all pages together.
document.addEventListener("visibilitychange", () => {
  if (!document.hidden) return connect(model);
  clearTimeout(again);
  source?.close();
  open = false;
});

// connect asks for the map of a model, or of all.
function connect(of = "") {
  model = of;
  clearTimeout(again);
  source?.close();
  if (document.hidden) return;
  source = new EventSource(of ? `/v1/live?model=${encodeURIComponent(of)}` : "/v1/live");
  source.addEventListener("map", (e) => took(e.data));
  source.onerror = () => {
    open = false;
    tell();
    if (source.readyState === EventSource.CLOSED) again = setTimeout(() => connect(model), 2000); // it was answered with an error
  };
}

function took(data) {
  timed("wardrop-update", () => {
    live.map = JSON.parse(data);
    received = performance.now();
    open = true;
    tell();
  });
}

function tell() {
  for (const f of watchers) f(live.map);
}
