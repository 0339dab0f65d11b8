// The page: datasets as tabs, tables that sort, themes, keys, and the addresses of attempts.
// What data holds is set as text: elements are made by Preact or one by one, never parsed.

const { Component, html, render } = htmPreact;
const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId("page-data").textContent);
const stores = {
  get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* not remembered */ } },
};
const words = (text) => text.replaceAll("_", " ");
const fixed = (number, digits) => (number === null ? "–" : number.toFixed(digits));
const chance = (number) => (number === null ? "–" : number < 0.005 ? "<0.01" : number > 0.995 ? ">0.99" : number.toFixed(2));
const count = (number) => number.toLocaleString("en");
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const named = (name) => html`<bdi>${name}</bdi>`;

// Controls of writing direction are shown, not obeyed; build.py does so in the page itself.
const DIRECTIONS = /[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/g;
const visible = (text) => text.replace(DIRECTIONS,
  (mark) => `⟨U+${mark.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`);

// Of many items Tab reaches one; arrows move it to another, if there is one.
function rove(group, item) {
  if (!item) return;
  for (const other of group.querySelectorAll("[tabindex='0']")) other.tabIndex = -1;
  item.tabIndex = 0;
  item.focus();
}

// Addresses: #dataset, or #dataset/model/question/trial?filters for the reader.
const address = (...parts) => `#${parts.map(encodeURIComponent).join("/")}`;
function parts() {
  return location.hash.slice(1).split("?")[0].split("/").map((part) => {
    try { return decodeURIComponent(part); } catch { return part; }
  });
}

const tabs = [...document.querySelectorAll(".tabs a")];
const panels = tabs.map((tab) => byId(tab.dataset.panel));
const ownTitle = document.title;
let overview = 0; // the tab to come back to from an attempt
const datasetOf = (tab) => page.datasets.findIndex((data) => data.name === tab.dataset.name);
function show(number) {
  tabs.forEach((tab, i) => {
    if (i === number) tab.setAttribute("aria-current", "page");
    else tab.removeAttribute("aria-current");
    panels[i].hidden = i !== number;
  });
  drawMap(panels[number], datasetOf(tabs[number]));
}
function route() {
  const [name, ...rest] = parts();
  const number = tabs.findIndex((tab) => name !== undefined && tab.dataset.name === name);
  overview = number >= 0 ? number : overview;
  if (rest.length > 0 && page.readable) {
    reading.entering ||= reading.cell !== null && reading.cell === document.activeElement; // by a click, or back again
    show(tabs.length - 1);
    for (const [file, { error }] of files) if (error) files.delete(file); // and tried again
    return void draw();
  }
  const leaving = page.readable && !byId("reader").hidden && !tabs.includes(document.activeElement);
  document.title = ownTitle;
  show(Math.max(number, 0));
  if (leaving) (reading.cell?.closest(".panel:not([hidden])") ? reading.cell : byId("main")).focus();
}
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });
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
for (const button of document.querySelectorAll(".sortable thead button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}

// Contents lead to a part of the page, which opens; the address names what is read, not where.
for (const link of document.querySelectorAll(".contents a")) {
  link.addEventListener("click", (event) => {
    event.preventDefault();
    const part = document.querySelector(link.getAttribute("href"));
    if (part.localName === "details") part.open = true;
    part.scrollIntoView();
  });
}

const THEMES = { system: "◐ System", light: "☀ Light", dark: "☾ Dark" };
function setTheme(name) {
  document.documentElement.dataset.theme = name;
  byId("theme").textContent = THEMES[name];
  byId("theme").setAttribute("aria-label", `Color theme: ${name}`);
  stores.set("bayes-report-theme", name);
}
function nextTheme() {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(document.documentElement.dataset.theme) + 1) % names.length]);
}
byId("theme").addEventListener("click", nextTheme);
byId("help").addEventListener("click", () => byId("keys").showModal());

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input:not([type=range]), select, textarea");
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

// All scripts are there: show what the address names.
addEventListener("load", () => {
  setTheme(Object.keys(THEMES).find((name) => name === stores.get("bayes-report-theme")) ?? "system");
  window.addEventListener("hashchange", route);
  route();
});
