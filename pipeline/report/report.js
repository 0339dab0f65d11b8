// The page: data sets as tabs, tables that sort, themes, keys, and addresses of attempts.
// Everything that comes from data is set as text; elements are made one by one, never parsed.

const page = JSON.parse(document.getElementById("page-data").textContent);
const byId = (id) => document.getElementById(id);
const stores = {
  get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* not remembered */ } },
};

function elementOf(namespace, tag, attributes = {}, ...children) {
  const element = document.createElementNS(namespace, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null));
  return element;
}
const el = (...parts) => elementOf("http://www.w3.org/1999/xhtml", ...parts);
const svg = (...parts) => elementOf("http://www.w3.org/2000/svg", ...parts);
const named = (name) => el("bdi", {}, name);

// Controls of writing direction are shown, not obeyed; names.py does so in the names of the page.
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
function visible(text) {
  return text.replace(DIRECTIONS, (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);
}

// Of many items Tab reaches one; arrows move it to another, if there is one.
function rove(group, item) {
  if (!item) return;
  for (const other of group.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
}

// Side files are scripts that hand over one value under their name: files on disk cannot be
// fetched. What is not sound is refused. The newest forty are kept.
const files = new Map();
const arrived = new Map();
window.bayesReport = (name, value) => arrived.set(name, value);
function side(name, sound) {
  const file = files.get(name) ?? load(name, sound);
  files.delete(name);
  files.set(name, file);
  if (files.size > 40) files.delete(files.keys().next().value);
  return file;
}
function load(name, sound) {
  if (page.single !== null) return unpacked(name, sound).catch((error) => { files.delete(name); throw error; });
  const path = `attempts/${page.stamp}/${name}.js`;
  return new Promise((resolve, reject) => {
    const refuse = (reason) => { files.delete(name); reject(new Error(`${path} is ${reason}`)); };
    const script = el("script", { src: path });
    script.onload = () => {
      const value = arrived.get(name);
      arrived.delete(name);
      if (sound(value)) resolve(value);
      else refuse("damaged");
    };
    script.onerror = () => refuse("missing; keep the folder “attempts” beside this page");
    document.head.append(script);
    script.remove(); // it is run all the same
  });
}

// A report in one file holds its side files as base64 of what deflate made of them.
async function unpacked(name, sound) {
  const held = document.querySelector(`[data-side="${name}"]`);
  if (!held) throw new Error(`${name} is not in this file; ${page.single}`);
  const bytes = Uint8Array.from(atob(held.textContent), (letter) => letter.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  if (name === "katex") document.head.append(el("script", {}, text)); // the policy knows its hash
  const value = name === "katex" ? true : JSON.parse(text);
  if (!sound(value)) throw new Error(`${name} in this file is damaged`);
  return value;
}

// A file that is cut short is no script, and hands over nothing; these tell one of another kind.
const soundTexts = (texts) => Boolean(texts?.rows);
const soundRows = (numbers, words) => (value) => [...numbers, ...words].every((name) => value?.[name])
  && new Set([...numbers.map((name) => value[name].length), ...words.map((name) => value[name].codes?.length)]).size === 1;
const soundIndex = soundRows(["m", "q", "t", "cut", "tokens", "bits", "a", "b", "c", "file"], ["outcome", "answer"]);
const soundMore = soundRows(["seconds", "prompt_bits", "ratio", "log_a", "log_b", "log_c"], ["box", "layer", "reason"]);

// Addresses: #dataset, or #dataset/model/question/trial?filters for the reader.
const address = (...parts) => `#${parts.map(encodeURIComponent).join("/")}`;
function parts() {
  return location.hash.slice(1).split("?")[0].split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
}

const tabs = [...document.querySelectorAll("[role=tab]")];
const panels = tabs.map((tab) => byId(tab.getAttribute("aria-controls")));
const datasetOf = (tab) => page.datasets.findIndex((data) => data.name === tab.dataset.name);
function show(number) {
  tabs.forEach((tab, i) => {
    tab.setAttribute("aria-selected", String(i === number));
    tab.tabIndex = i === number ? 0 : -1;
    panels[i].hidden = i !== number;
  });
  drawMap(panels[number], datasetOf(tabs[number]));
}
let overview = 0; // the tab to come back to from an attempt
const ownTitle = document.title;
function route() {
  const [name, ...rest] = parts();
  const number = tabs.findIndex((tab) => name !== undefined && tab.dataset.name === name);
  overview = number >= 0 ? number : overview;
  if (rest.length > 0 && page.readable) {
    if (reading.cell && reading.cell === document.activeElement) reading.entering = true; // by a click, or back again
    show(tabs.length - 1);
    return openReader(new URLSearchParams(location.hash.split("?")[1] ?? ""), name, ...rest);
  }
  const leaving = page.readable && !byId("reader").hidden && !tabs.includes(document.activeElement);
  reading.pane = null;
  reading.token = null; // an attempt that is still on its way comes too late
  document.title = ownTitle;
  show(Math.max(number, 0));
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
  const shown = datasetOf(tabs[overview]);
  const dataset = shown >= 0 ? shown : reading.dataset ?? 0;
  location.hash = reading.hash && reading.dataset === dataset ? reading.hash : firstAddress(dataset);
});

// Sorting: numbers and texts; a column's first click sorts numbers downwards, texts upwards.
function value(row, column) {
  const text = row.cells[column].dataset.v;
  return text === "" || Number.isNaN(Number(text)) ? text : Number(text);
}
function compare(a, b, sign) {
  if (a === "" || b === "") return (a === "") - (b === ""); // what is missing comes last
  if (typeof a === "number" && typeof b === "number") return sign * (a - b);
  return sign * String(a).localeCompare(String(b), undefined, { numeric: true });
}
function sortBy(head) {
  const first = head.classList.contains("number") ? "descending" : "ascending";
  const order = { ascending: "descending", descending: "ascending" }[head.getAttribute("aria-sort")] ?? first;
  for (const other of head.parentElement.cells) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", order);
  const sign = order === "ascending" ? 1 : -1;
  const body = head.closest("table").tBodies[0];
  body.append(...[...body.rows].sort((a, b) => compare(value(a, head.cellIndex), value(b, head.cellIndex), sign)));
}
for (const head of document.querySelectorAll(".sortable thead th")) {
  head.firstElementChild.addEventListener("click", () => sortBy(head));
}

// What goes on beyond the right edge of its box fades there.
const fade = (box) => box.classList.toggle("on-right",
  Math.abs(box.scrollLeft) + box.clientWidth < box.scrollWidth - 1);
const sizes = new ResizeObserver((changes) => changes.forEach((change) => fade(change.target)));
for (const box of document.querySelectorAll(".scroll")) {
  sizes.observe(box);
  box.addEventListener("scroll", () => fade(box), { passive: true });
}

const THEMES = { system: "◐ System", light: "☀ Light", dark: "☾ Dark" };
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = THEMES[name];
  byId("theme").setAttribute("aria-label", `Colours: ${name}`);
  stores.set("bayes-report-theme", name);
}
function nextTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
}
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, select, textarea");
  if (event.ctrlKey || event.metaKey || event.altKey || byId("keys").open) return;
  if (event.key === "Escape" && typing) typing.blur();
  if (typing) return;
  const keys = page.readable && !byId("reader").hidden ? readerKeys : {};
  const action = { "?": () => byId("keys").showModal(), d: nextTheme, ...keys }[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});
