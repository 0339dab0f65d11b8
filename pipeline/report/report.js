// The page: data sets as tabs, tables that sort, themes, keys, and addresses of attempts.
// Everything that comes from data is set as text; elements are made one by one, never parsed.

const page = JSON.parse(document.getElementById("page-data").textContent);
const byId = (id) => document.getElementById(id);
const stores = { get: (k) => { try { return localStorage.getItem(k); } catch { return null; } },
  set: (k, v) => { try { localStorage.setItem(k, v); } catch { /* no storage: not remembered */ } } };

function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null));
  return made;
}

// Names come from folders and data files. Controls of writing direction are shown, not obeyed.
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
function visible(name) {
  return name.replace(DIRECTIONS, (one) => `⟨U+${one.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}
function named(name) {
  return el("bdi", {}, visible(name));
}

const MATHML = "http://www.w3.org/1998/Math/MathML";

// A tree of nested lists as MathML; maths.py lets only sound elements and attributes into it.
function math(tree) {
  if (typeof tree === "string") return document.createTextNode(tree);
  const [tag, attributes, ...children] = tree;
  const made = document.createElementNS(MATHML, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children.map(math));
  return made;
}

// Side files are scripts that hand over one value under their name: files on disk cannot be
// fetched. What is not sound is refused. The newest forty are kept.
const loaded = new Map();
const waiting = new Map();
window.bayesReport = (name, value) => {
  const promise = waiting.get(name);
  if (promise) promise.value = value;
};
function side(name, sound) {
  if (loaded.has(name)) {
    const found = loaded.get(name);
    loaded.delete(name);
    loaded.set(name, found);
    return found;
  }
  const holder = {};
  waiting.set(name, holder);
  const promise = new Promise((resolve, reject) => {
    const script = el("script", { src: `attempts/${page.stamp}/${name}.js` });
    const end = (action) => { script.remove(); waiting.delete(name); action(); };
    script.onload = () => end(() => ("value" in holder && sound(holder.value) ? resolve(holder.value)
      : reject(new Error(`attempts/${page.stamp}/${name}.js is damaged`))));
    script.onerror = () => end(() => reject(new Error(
      `attempts/${page.stamp}/${name}.js is missing; keep the folder “attempts” beside this page`)));
    document.head.append(script);
  });
  promise.catch(() => loaded.delete(name));
  loaded.set(name, promise);
  if (loaded.size > 40) loaded.delete(loaded.keys().next().value);
  return promise;
}

// A file that is cut short is no script, and hands over nothing; these tell one of another kind.
const COLUMNS = ["t", "file", "cut", "tokens", "seconds", "bits", "ratio", "a", "b", "c", "log_a", "log_b", "log_c"];
const soundTexts = (texts) => Boolean(texts?.rows && texts.trees);
const soundIndex = (index) => Array.isArray(index?.q) && Array.isArray(index.rubrics)
  && COLUMNS.every((name) => index[name]?.length === index.q.length)
  && ["outcome", "box", "layer", "reason"].every((name) => index[name]?.codes?.length === index.q.length);

// Addresses: #dataset, or #dataset/model/question/trial for the reader.
function address(...parts) {
  return `#${parts.map((part) => encodeURIComponent(part)).join("/")}`;
}
function parts() {
  return location.hash.slice(1).split("/").filter(Boolean).map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
}

const tabs = [...document.querySelectorAll("[role=tab]")];
const panels = tabs.map((tab) => byId(tab.getAttribute("aria-controls")));
function show(number) {
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", String(i === number));
    tab.tabIndex = i === number ? 0 : -1;
    panels[i].hidden = i !== number;
  });
  const dataset = page.panels[number];
  if (dataset !== undefined && dataset !== null) drawMap(dataset);
}
let overview = 0; // the tab to come back to from an attempt
const ownTitle = document.title;
function route() {
  const [name, ...rest] = parts();
  const reader = rest.length > 0 && page.readable;
  const found = tabs.findIndex((tab) => name !== undefined && tab.dataset.name === name);
  overview = found >= 0 ? found : overview;
  if (reader) {
    show(tabs.length - 1);
    return openAttempt(name, ...rest);
  }
  const leaving = page.readable && !byId("reader").hidden && !tabs.includes(document.activeElement);
  reading.token = null; // an attempt that is still on its way comes too late
  document.title = ownTitle;
  show(found >= 0 ? found : 0);
  if (leaving) (reading.cell?.closest(".panel:not([hidden])") ? reading.cell : byId("main")).focus();
  return null;
}
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
document.querySelector("[role=tablist]").addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const here = tabs.indexOf(document.activeElement);
  if (!step || here < 0) return;
  const next = tabs[(here + step + tabs.length) % tabs.length];
  next.focus();
  next.click();
});
byId("tab-reader")?.addEventListener("click", (event) => {
  event.preventDefault();
  const dataset = page.panels[overview] ?? reading.dataset ?? 0;
  location.hash = reading.hash && reading.dataset === dataset ? reading.hash : firstAddress(dataset);
});

// Sorting: numbers and texts; a column's first click sorts numbers downwards, texts upwards.
function value(row, column) {
  const text = row.cells[column].dataset.v;
  const number = text === "" ? Number.NaN : Number(text);
  return Number.isNaN(number) ? text : number;
}
function compare(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === ""); // what is missing comes last
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}
function sortBy(head) {
  const table = head.closest("table");
  const column = head.cellIndex;
  const before = head.getAttribute("aria-sort");
  const first = head.classList.contains("number") ? "descending" : "ascending";
  const order = { ascending: "descending", descending: "ascending" }[before] ?? first;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const rows = [...table.tBodies[0].rows];
  rows.sort((a, b) => compare(value(a, column), value(b, column), sign));
  table.tBodies[0].append(...rows);
}
for (const head of document.querySelectorAll(".sortable thead th")) {
  head.firstElementChild.addEventListener("click", () => sortBy(head));
}

// What goes on beyond the right edge of its box fades there.
const scrolling = [...document.querySelectorAll(".scroll")];
const edges = (box) => box.classList.toggle("on-right",
  Math.abs(box.scrollLeft) + box.clientWidth < box.scrollWidth - 1);
const sizes = new ResizeObserver((changed) => changed.forEach((one) => edges(one.target)));
for (const box of scrolling) {
  sizes.observe(box);
  box.addEventListener("scroll", () => edges(box), { passive: true });
}

const THEMES = ["system", "light", "dark"];
function setTheme(name) {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  const shown = { system: "◐ System", light: "☀ Light", dark: "☾ Dark" }[name];
  byId("theme").textContent = shown;
  byId("theme").setAttribute("aria-label", `Colours: ${name}`);
  stores.set("bayes-report-theme", name);
}
function theme() {
  return document.documentElement.dataset.theme ?? "system";
}
function nextTheme() {
  setTheme(THEMES[(THEMES.indexOf(theme()) + 1) % THEMES.length]);
}
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.key === "Escape" && typing) typing.blur();
  if (typing) return;
  const inReader = page.readable && !byId("reader").hidden;
  const keys = inReader ? readerKeys : {};
  const action = { "?": () => byId("keys").showModal(), d: nextTheme, ...keys }[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});
