// Making and changing nodes, and how figures are written.

const svgNames = new Set(["svg", "g", "path", "rect", "line", "circle", "text", "tspan", "polyline", "title", "desc", "clipPath"]);
const svgSpace = "http://www.w3.org/2000/svg";

// h makes an HTML element, s one of SVG. Functions are listeners; what is null or false is left
// out. Texts are never read as markup.
export const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);
export const s = (tag, attrs, ...children) => fill(document.createElementNS(svgSpace, tag), attrs, children);

function fill(node, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) attr(node, name, value);
  for (const c of children.flat(2)) if (c !== null && c !== undefined && c !== false) node.append(c);
  return node;
}

export function attr(node, name, value) {
  if (typeof value === "function") node.addEventListener(name, value);
  else if (value === null || value === undefined || value === false) node.removeAttribute(name);
  else {
    const text = value === true ? "" : String(value);
    if (node.getAttribute(name) !== text) node.setAttribute(name, text);
  }
}

// text sets a node's only text, where it differs.
export function text(node, value) {
  value = String(value);
  const first = node.firstChild;
  if (first && first.nodeType === Node.TEXT_NODE && !first.nextSibling) {
    if (first.data !== value) first.data = value;
  } else node.textContent = value;
}

// keyed makes the children of a node those of a list. Nodes stay who they are, so that focus and
// selection survive an update.
export function keyed(parent, items, key, make, update) {
  const old = parent.keyedNodes ?? new Map();
  const next = new Map();
  let at = parent.firstChild;
  for (const item of items) {
    const k = key(item);
    if (next.has(k)) continue;
    const node = old.get(k) ?? make(item);
    update?.(node, item);
    if (node === at) at = at.nextSibling;
    else parent.insertBefore(node, at);
    next.set(k, node);
  }
  for (const [k, node] of old) if (next.get(k) !== node) node.remove();
  parent.keyedNodes = next;
}

// table makes a real one. A column has head, cell (text of a row), and may have number (set to the
// right), link (address of a row's cell) and sort (what a click on its head asks for).
export function table(caption, columns, options = {}) {
  const body = h("tbody");
  const heads = columns.map((c) => h("th", { scope: "col", class: c.number ? "number" : null },
    c.sort && options.sort ? h("button", { type: "button", class: "plain", click: () => options.sort(c.sort) }, c.head) : c.head));
  const node = h("div", { class: "scroll" }, h("table", null, h("caption", { class: options.quiet ? "hidden" : null }, caption), h("thead", null, h("tr", null, heads)), body));
  return {
    node,
    sorted(by) {
      columns.forEach((c, i) => attr(heads[i], "aria-sort", c.sort && c.sort === by ? "descending" : null));
    },
    update(rows, key) {
      keyed(body, rows, key, () => h("tr", null, columns.map((c, i) => cell(c, i))), (tr, row) => {
        columns.forEach((c, i) => {
          const td = tr.children[i];
          const value = c.cell(row);
          if (c.link) {
            const href = c.link(row);
            const a = td.firstChild;
            attr(a, "href", href);
            text(a, value);
          } else if (value instanceof Node) td.replaceChildren(value);
          else text(td, value);
          if (c.mark) attr(td, "data-mark", c.mark(row));
        });
      });
    },
  };
}

function cell(column, i) {
  const tag = i === 0 ? "th" : "td";
  return h(tag, { scope: i === 0 ? "row" : null, class: column.number ? "number" : null }, column.link ? h("a", { href: "#/" }) : null);
}

// The figures: three digits are enough to see.
export function rate(x) {
  if (x === undefined || x === null) return "–";
  if (x === 0) return "0";
  if (x < 10) return x.toFixed(2);
  if (x < 100) return x.toFixed(1);
  return count(Math.round(x));
}

export const count = (n) => n.toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");

export function seconds(x) {
  if (x === undefined || x === null) return "–";
  if (x === 0) return "0";
  const a = Math.abs(x);
  if (a < 1e-3) return `${digits(x * 1e6)} µs`;
  if (a < 1) return `${digits(x * 1e3)} ms`;
  return `${digits(x)} s`;
}

function digits(x) {
  const a = Math.abs(x);
  return x.toFixed(a >= 100 ? 0 : a >= 10 ? 1 : 2);
}

export const percent = (x) => (x === undefined || x === null ? "–" : x > 0 && x < 0.001 ? "< 0.1 %" : `${(100 * x).toFixed(x >= 0.1 && x < 0.9995 ? 0 : x >= 0.9995 ? 0 : 1)} %`);

export function age(x) {
  if (x < 1) return "now";
  if (x < 100) return `${Math.round(x)} s`;
  if (x < 6000) return `${Math.round(x / 60)} min`;
  return `${Math.round(x / 3600)} h`;
}

export const clock = (ms) => new Date(ms).toTimeString().slice(0, 8);
export const utilisation = (load, capacity) => (capacity > 0 ? load / capacity : 0);

// href is the address of a page with what it is asked.
export function href(page, asked = {}) {
  const q = new URLSearchParams(Object.entries(asked).filter(([, v]) => v !== "" && v !== null && v !== undefined)).toString();
  return `#/${page}${q ? "?" + q : ""}`;
}

// ask reads JSON of the admin API. Its errors are in words.
export async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (e) {
    if (e.name === "AbortError") throw e;
    throw new Error("the control plane does not answer");
  }
  if (answer.status === 204) return null;
  let body;
  try {
    body = await answer.json();
  } catch {
    throw new Error(`the control plane answers with status ${answer.status}`);
  }
  if (!answer.ok) throw new Error(body.error ?? `status ${answer.status}`);
  return body;
}

// timed does something and measures what it takes, layout included. Only the newest measure of a
// name is kept, for pages are open for days.
export function timed(name, f) {
  const start = performance.now();
  f();
  document.body.getBoundingClientRect();
  performance.clearMeasures(name);
  performance.measure(name, { start });
}

// card is a part of a page under its own heading.
export const card = (title, ...children) => h("section", { class: "card", "aria-label": title }, h("h2", null, title), children);

export const select = (label, name, options, value, change) =>
  h("label", { class: "field" }, h("span", null, label),
    h("select", { name, change }, options.map(([v, t]) => h("option", { value: v, selected: v === value }, t))));

export const input = (label, attrs) => h("label", { class: "field" }, h("span", null, label), h("input", attrs));

export const error = (e) => h("p", { class: "error", role: "alert" }, e.message);
