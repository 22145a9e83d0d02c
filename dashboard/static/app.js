// What is on all pages: their addresses, the search, and whether all is well.

import { h, s, attr, text, keyed, age, href } from "./dom.js";
import { live } from "./live.js";
import * as map from "./map.js";

// Pages that are not the first are loaded when they are opened.
const pages = {
  "": { title: "Map", load: async () => map },
  weights: { title: "Weights", load: () => import("./weights.js") },
  engines: { title: "Engines", load: () => import("./engines.js") },
  engine: { load: () => import("./engine.js"), under: "engines" },
  request: { title: "Request", load: () => import("./request.js") },
  "what-if": { title: "What if", load: () => import("./whatif.js") },
  overrides: { title: "Overrides", load: () => import("./overrides.js") },
};

const main = document.getElementById("main");
const nav = document.getElementById("nav");
const links = Object.entries(pages).filter(([, p]) => p.title).map(([name, p]) => h("a", { href: href(name), "data-page": name }, p.title));
nav.append(...links);

let shown = null; // the page that is open
let turn = 0;

// address reads what stands behind the #.
function address() {
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
  return { name: pages[path] ? path : "", asked: Object.fromEntries(new URLSearchParams(query)) };
}

async function go(first) {
  if (location.hash === "#main") return main.focus();
  const { name, asked } = address();
  const mine = ++turn;
  if (shown?.name === name && shown.page.change?.(asked)) return;
  const module = await pages[name].load();
  if (mine !== turn) return;
  shown?.page.close?.();
  main.replaceChildren();
  shown = { name, page: module.open(main, asked) };
  const at = pages[name].under ?? name;
  for (const a of links) attr(a, "aria-current", a.dataset.page === at ? "page" : null);
  document.title = `${main.querySelector("h1")?.textContent ?? "Wardrop"} – Wardrop`;
  if (live.map) shown.page.update?.(live.map);
  if (!first) main.focus({ preventScroll: true });
  if (!first) scrollTo(0, 0);
}

// The badge says whether what is shown is so now.
const badge = document.getElementById("badge");
function health() {
  const m = live.map;
  let state = "live", words = "";
  if (!live.open) [state, words] = ["stale", m ? `no connection for ${age(live.silence)}, trying again` : "connecting"];
  else if (!m.published) [state, words] = ["stale", "no plan yet"];
  else if (live.age > Math.max(m.good_for, 3 * m.tick)) [state, words] = ["stale", `plan ${m.epoch}.${m.version} is ${age(live.age)} old`];
  else words = `live, plan ${m.epoch}.${m.version}`;
  attr(badge, "data-state", state);
  attr(document.body, "data-state", state);
  text(badge, words);
}

// Notices say what an operator must know on whatever page.
function notices(m) {
  const list = [];
  if (m && !m.leading && m.leader) list.push(["info", `This member stands by and shows its own last plan; ${m.leader} leads`, m.leader_admin]);
  if (m?.trouble) list.push(["bad", `The policy gave no plan, and a fallback is in force: ${m.trouble}`]);
  if (m?.hold) list.push(["bad", `The policy's plan is held back (${m.hold.rail}): ${m.hold.reason}`]);
  for (const o of m?.overrides ?? []) if (!["drain", "cap"].includes(o.kind)) list.push(["info", `Overridden: ${o.kind} ${o.value ?? ""}${o.reason ? ` (${o.reason})` : ""}`]);
  keyed(document.getElementById("notices"), list, (n) => n[1], (n) => h("p", { class: "notice", "data-kind": n[0], role: "status" }, n[1],
    n[2] ? [": ", h("a", { href: `http://${n[2]}/` }, n[2])] : null));
}

live.watch((m) => {
  health();
  notices(m);
  if (m) shown?.page.update?.(m);
});
setInterval(health, 1000);

const search = document.getElementById("search");
search.addEventListener("submit", (e) => {
  e.preventDefault();
  location.hash = href("engines", { q: search.elements.q.value.trim() });
});
document.addEventListener("keydown", (e) => {
  const typing = e.target.closest?.("input, select, textarea");
  if (e.key === "/" && !typing && !e.ctrlKey && !e.metaKey && !e.altKey) {
    e.preventDefault();
    search.elements.q.focus();
    search.elements.q.select();
  } else if (e.key === "Escape" && e.target === search.elements.q) main.focus();
});
addEventListener("hashchange", () => go(false));
live.connect();
go(true);
