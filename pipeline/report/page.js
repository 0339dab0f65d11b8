// The page: datasets as tabs, tables that sort, themes, keys, and the addresses of attempts.
// What data holds is set as text: elements are made by Preact or one by one, never parsed.

const byId = (id) => document.getElementById(id);
const page = JSON.parse(byId("page-data").textContent);
const words = (text) => text.replaceAll("_", " ");
const fixed = (number, digits) => (number === null ? "–" : number.toFixed(digits));
const chance = (number) => (number === null ? "–" : number < 0.005 ? "<0.01" : number > 0.995 ? ">0.99" : number.toFixed(2));
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

// Side files are scripts that hand over one value under their name: files on disk cannot be fetched.
// The view is drawn from what is there; what it needs more is loaded, and then it is drawn again.

const files = new Map(); // by name: { loading, value, error }
const arrived = new Map();
const PENDING = Symbol("on its way");
const NUMBERS = /-q\d+$/; // names of files with the numbers of attempts
const TEXTS = /^\d+-\d+-\d+$/; // names of files with texts
const KEPT = 40; // of them, the newest
window.bayesReport = (name, value) => arrived.set(name, value);

// The values of files. Throws PENDING while one is on its way, and the error of one that is not sound.
function need(...names) {
  const found = names.map(file);
  for (const { error } of found) if (error) throw error;
  if (found.some(({ value: one }) => one === undefined)) throw PENDING;
  return found.map(({ value: one }) => one);
}

function file(name) {
  const own = files.get(name) ?? {};
  files.delete(name);
  files.set(name, own);
  own.loading ??= (page.single === null ? load(name) : unpacked(name)).then((value) => {
    if (!isSound(name, value)) throw new Error(`${page.single === null ? pathOf(name) : name} is damaged`);
    own.value = NUMBERS.test(name) ? value.q.map((_, i) => new Attempt(value, i)) : value;
  }).catch((error) => { own.error = error; }).then(draw);
  const texts = TEXTS.test(name) ? [...files.keys()].filter((other) => TEXTS.test(other)) : [];
  if (texts.length > KEPT) files.delete(texts[0]);
  return own;
}

const pathOf = (name) => `attempts/${page.stamp}/${name}.js`;
function load(name) {
  return new Promise((resolve, reject) => {
    const script = el("script", { src: pathOf(name) });
    script.onload = () => {
      resolve(arrived.get(name));
      arrived.delete(name);
    };
    script.onerror = () => reject(new Error(`${pathOf(name)} is missing; keep the folder “attempts” beside this page`));
    document.head.append(script);
    script.remove(); // it is run all the same
  });
}

// A report in one file holds its side files as base64 of what deflate made of them.
async function unpacked(name) {
  const held = document.querySelector(`[data-side="${name}"]`);
  if (!held) throw new Error(`${name} is not in this file; ${page.single}`);
  const bytes = Uint8Array.from(atob(held.textContent), (letter) => letter.charCodeAt(0));
  const text = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"))).text();
  if (name !== "katex") return JSON.parse(text);
  document.head.append(el("script", {}, text)); // the policy knows its hash
  return true;
}

// A file that is cut short is no script, and hands over nothing; this tells one of another kind.
const COLUMNS = ["m", "q", "t", "file", "outcome", "answer", "box", "layer", "reason", "cut", "tokens", "seconds",
  "bits", "prompt_bits", "a", "b", "c", "log_a", "log_b", "log_c", "categories", "gold"];
function isSound(name, value) {
  if (name === "katex") return Boolean(window.katex?.render);
  if (!NUMBERS.test(name)) return Boolean(value?.rows);
  const columns = COLUMNS.map((column) => value?.[column]).filter((column) => column !== null);
  const lengths = columns.map((column) => (column?.codes ?? column)?.length);
  return lengths[0] !== undefined && new Set(lengths).size === 1;
}

// An attempt of a file of columns, which has their names: values stay where they are, for there may be many.
class Attempt {
  constructor(columns, i) { this.columns = columns; this.i = i; }
}
for (const name of COLUMNS) {
  Object.defineProperty(Attempt.prototype, name, { get() {
    const column = this.columns[name];
    return (column?.codes ? column.values[column.codes[this.i]] : column?.[this.i]) ?? null;
  } });
}

// Models by questions: a cell for each, the hardest question first, in as many lines as fit.

const [WIDE, NARROW] = [26, 3]; // pixels of a cell with a number, and of one without, at least
const TALL = 700; // pixels that cells with numbers may take

function drawMap(panel, dataset) {
  const box = panel.querySelector(".map");
  if (!box || box.firstChild) return;
  const data = page.datasets[dataset];
  let drawn = "";
  const drawCells = () => {
    const { columns, bare } = mapSize(data, box);
    const size = [columns, bare].join();
    if (size === drawn || !box.clientWidth) return;
    drawn = size;
    box.classList.toggle("bare", bare);
    render(mapTables(data, columns), box);
    if (!box.querySelector("[tabindex='0']")) box.querySelector("tbody a")?.setAttribute("tabindex", "0");
  };
  box.addEventListener("keydown", (event) => moveInMap(box, event));
  for (const [kind, shown] of [["pointerover", true], ["focusin", true], ["pointerout", false], ["focusout", false]]) {
    box.addEventListener(kind, (event) => tell(data, shown && event.target.closest("[data-q]")));
  }
  // After what stands above it is painted: of 10,000 cells it takes a while.
  new ResizeObserver(() => setTimeout(drawCells)).observe(box);
}

// How many columns a line has, all lines about as long, and whether cells go without a number.
function mapSize(data, box) {
  const names = parseFloat(getComputedStyle(box).getPropertyValue("--names")) * 16;
  const across = (least) => Math.max(1, Math.floor((box.clientWidth - names) / least));
  const lines = (least) => Math.ceil(data.questions.length / across(least));
  const bare = lines(WIDE) > 1 && lines(WIDE) * (data.models.length + 4) * WIDE > TALL;
  return { bare, columns: Math.ceil(data.questions.length / lines(bare ? NARROW : WIDE)) };
}

function mapTables(data, columns) {
  const mean = (numbers) => sum(numbers) / Math.max(numbers.length, 1);
  const share = (m, q) => (data.graded[m][q] ? data.correct[m][q] / data.graded[m][q] : null);
  const questions = data.questions.map((_, q) => q);
  const models = data.models.map((_, m) => m);
  const means = questions.map((q) => mean(models.map((m) => share(m, q)).filter((one) => one !== null)));
  const scores = models.map((m) => mean(questions.map((q) => share(m, q) ?? 0)));
  models.sort((a, b) => scores[b] - scores[a]);
  questions.sort((a, b) => means[a] - means[b]);

  const cell = (part, tag, attributes) => html`<td><${tag} style=${{ "--share": Math.round(100 * part) }}
    ...${attributes}>${part === null ? "–" : Math.round(100 * part)}<//></td>`;
  const ofModel = (m) => (q) => {
    const { name, side } = data.models[m];
    const label = `${name}, ${data.questions[q]}: ${+data.correct[m][q].toFixed(2)} of ${data.graded[m][q]} correct`;
    const open = ({ currentTarget }) => {
      reading.cell = currentTarget;
      rove(currentTarget.closest(".map"), currentTarget);
    };
    return cell(share(m, q), side ? "a" : "span", { "aria-label": label, "data-q": q, ...(side
      ? { tabindex: -1, href: address(data.name, name, data.questions[q], 0), onClick: open } : { role: "img" }) });
  };
  const row = (name, cells) => html`<tr><th scope="row" title=${name}>${named(name)}</th>${cells}</tr>`;
  const head = (q) => html`<th scope="col" data-q=${q}>
    <a href=${address(data.name, "", data.questions[q])} tabindex="-1">${named(data.questions[q])}</a></th>`;
  const lines = Array.from({ length: Math.ceil(questions.length / columns) },
    (_, i) => questions.slice(i * columns, (i + 1) * columns));
  return lines.map((line) => html`<table aria-label=${`Mean scores, ${data.name}`}
    style=${{ "--columns": columns, "--own": line.length }}>
    <thead><tr><th scope="col" aria-label="model"></th>${line.map(head)}</tr></thead>
    <tbody>
      ${models.length > 1 && row("mean of all", line.map((q) => cell(means[q], "span", { "data-q": q })))}
      ${models.map((m) => row(data.models[m].name, line.map(ofModel(m))))}
    </tbody></table>`);
}

// What a cell is, and how its question begins, beside the cell that is pointed at or has the focus.
function tell(data, cell) {
  const tip = byId("tip");
  tip.hidden = !cell;
  if (!cell) return;
  const q = Number(cell.dataset.q);
  render(html`<b>${cell.getAttribute("aria-label") ?? data.questions[q]}</b>
    <span dir="auto">${unescaped(data.problems[q] ?? "")}</span>`, tip);
  const box = cell.getBoundingClientRect();
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - wide - 12))}px`;
  tip.style.top = `${box.bottom + 6 + high > innerHeight ? box.top - high - 6 : box.bottom + 6}px`;
  cell.setAttribute("aria-describedby", "tip");
}

function moveInMap(group, event) {
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  const cell = event.target.closest("td");
  if (!step || !cell) return;
  event.preventDefault();
  const row = cell.closest("tbody").rows[cell.parentElement.sectionRowIndex + step[0]];
  const table = cell.closest("table");
  const beside = row?.cells[cell.cellIndex + step[1]]?.querySelector("a");
  // At the end of a line the next one goes on.
  const other = step[1] > 0 ? table.nextElementSibling : table.previousElementSibling;
  const next = other?.tBodies[0].rows[cell.parentElement.sectionRowIndex];
  rove(group, beside ?? (step[1] && next?.cells[step[1] > 0 ? 1 : next.cells.length - 1].querySelector("a")));
}
