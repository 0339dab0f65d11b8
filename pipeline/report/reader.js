// The attempt reader: which attempts are listed, and moving between them. The address says it all:
// #dataset/model/question/trial?filters, where an empty model or question is all of them, and without
// a trial a question is shown, or a list. A widget changes the address, and an address the widgets.

// `files`: of rows of the data set; `rows`: those listed; `row`: the one that is shown; `shown`: how
// many the list has; `pane`: what is drawn; `token`: of the address that is being opened; `cell`: of
// the map, from which an attempt was opened; `entering`: it takes the focus; `redraw`: its response.
const reading = { dataset: null, model: -1, question: -1, filters: new URLSearchParams(), files: [], rows: [],
  row: -1, shown: 0, hash: null, pane: null, token: null, cell: null, entering: false, redraw: null };
const PAGE = 200; // rows of the list that are made at a time
const MOST_ROWS = 500000; // that are loaded for a list
const FILTERS = { outcome: "by-outcome", agreement: "by-agreement", end: "by-end", from: "least-bits", to: "most-bits",
  text: "by-text", in: "by-place", sort: "by-sort" };
const COUNTED = { model: "pick-model", outcome: "by-outcome", agreement: "by-agreement", end: "by-end" };
const GLYPHS = { correct: ["✓", "good"], wrong: ["✗", "bad"], no_answer: ["∅", "dim"],
  unparsable: ["?", "dim"], timeout: ["…", "dim"] };
const words = (text) => text.replaceAll("_", " ");
const fixed = (number, digits) => (number === null ? "–" : number.toFixed(digits));
const count = (number) => number.toLocaleString("en");

// Values of a row of the data set; those of a coded column {values, codes} have -1 for none.
const fileOf = (row) => Math.floor(row / page.rows);
const at = (name, row) => reading.files[fileOf(row)][name][row % page.rows];
function textAt(name, row) {
  const { values, codes } = reading.files[fileOf(row)][name];
  return values[codes[row % page.rows]] ?? null;
}

const withQuery = (path, query) => (String(query) ? `${path}?${query}` : path);
const firstAddress = (dataset) => address(page.datasets[dataset].name, "");
function questionAddress(question, model = -1, query = "") {
  const data = page.datasets[reading.dataset];
  return withQuery(address(data.name, data.models[model]?.name ?? "", data.questions[question] ?? ""), query);
}
function attemptAddress(model, question, trial) {
  const data = page.datasets[reading.dataset];
  const query = new URLSearchParams(reading.filters);
  for (const name of ["model", "question"]) if (reading[name] < 0) query.set(`${name}s`, "all");
  return withQuery(address(data.name, data.models[model].name, data.questions[question], trial), query);
}
const addressOf = (row) => attemptAddress(at("m", row), at("q", row), at("t", row));

// Options of a select: pairs of value and text.
function fill(id, options, chosen) {
  byId(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  byId(id).value = chosen;
}

// Which rows a question has; of all questions the first so many.
function rowsOf(question) {
  const { starts } = page.datasets[reading.dataset];
  const [first, end] = question < 0 ? [0, starts.at(-1)] : [starts[question], starts[question + 1]];
  return [first, Math.min(end, first + MOST_ROWS)];
}

// Pickers and list are filled as far as an address is known, before what is wrong with it is said.
async function openReader(query, datasetName, modelName, questionName = "", trialName = "") {
  const trialText = trialName || null;
  const token = {};
  reading.token = token;
  reading.hash = location.hash;
  const known = page.datasets.findIndex((data) => data.name === datasetName);
  const dataset = Math.max(known, 0);
  const data = page.datasets[dataset];
  if (reading.dataset !== dataset) clear(dataset);
  const model = data.models.findIndex(({ name }) => name === modelName);
  const question = data.questions.indexOf(questionName);
  reading.model = trialText !== null && query.get("models") === "all" ? -1 : model;
  reading.question = trialText !== null && query.get("questions") === "all" ? -1 : question;
  reading.filters = new URLSearchParams(Object.keys(FILTERS).filter((name) => query.get(name)).map((name) => [name, query.get(name)]));
  for (const [name, id] of Object.entries(FILTERS)) {
    if (byId(id).value !== (query.get(name) ?? "")) byId(id).value = query.get(name) ?? "";
  }
  fill("pick-dataset", page.datasets.map(({ name }, i) => [i, name]), dataset);
  fill("pick-question", [[-1, "all questions"], ...data.questions.map((name, i) => [i, name])], reading.question);
  fill("pick-model", [[-1, "all models"], ...data.models.map(({ name }, i) => [i, name])], reading.model);
  const fault = known < 0 || (modelName && model < 0) ? `There is no model ${modelName} in ${datasetName} here.`
    : data.starts ? null : `${datasetName} has outcomes only: no attempts were kept to read.`;
  if (fault) {
    clear(dataset);
    return complain(fault);
  }
  try {
    await Promise.all([loadRows(rowsOf(reading.question)), loadRows(rowsOf(Math.max(question, 0)))]);
    if (reading.token === token) await list(token);
  } catch (error) {
    if (reading.token !== token) return null;
    clear(dataset);
    return complain(error.message);
  }
  if (reading.token !== token) return null;
  reading.row = trialText === null ? -1 : rowAt(model, question, Number(trialText));
  markCurrent();
  if (questionName && question < 0) return complain(`There is no question ${questionName} in ${datasetName} here.`);
  if (trialText !== null && reading.row < 0) {
    return complain(`${modelName} has no trial ${trialText} of ${questionName}: it is owed, or out of range.`);
  }
  return drawPane(token, question);
}

async function drawPane(token, question) {
  const { row, rows } = reading;
  if (!rows.length) return say("Nothing found", "No attempt passes these filters. Reset lists all of them.");
  const pane = row < 0 ? null : `${reading.dataset}/${row}`;
  if (pane !== null && pane === reading.pane) return null; // only the list is another
  reading.pane = pane;
  if (row >= 0) return drawAttempt(token);
  if (question >= 0) return drawQuestion(token, question);
  return say("No attempt is open", "Choose one of the list, or press j. A question alone shows what all models answered.");
}

function rowAt(model, question, trial) {
  const [first, end] = question < 0 ? [0, 0] : rowsOf(question);
  for (let row = first; row < end; row += 1) if (at("m", row) === model && at("t", row) === trial) return row;
  return -1;
}

async function loadRows([first, end]) {
  const { files, dataset } = reading;
  const numbers = Array.from({ length: end > first ? fileOf(end - 1) - fileOf(first) + 1 : 0 }, (_, i) => fileOf(first) + i);
  await Promise.all(numbers.map(async (number) => { files[number] ??= await side(`${dataset}-i${number}`, soundIndex); }));
}

// Nothing of another data set may stay: neither its list nor its attempt.
function clear(dataset) {
  reading.entering ||= ["list", "attempt"].some((id) => byId(id).contains(document.activeElement));
  Object.assign(reading, { dataset, files: [], rows: [], row: -1, shown: 0, pane: null, redraw: null });
  byId("list").replaceChildren();
  byId("list-count").textContent = "";
  byId("more").hidden = true;
  byId("attempt").replaceChildren();
}

function say(title, text, role = null) {
  Object.assign(reading, { redraw: null, pane: null });
  document.title = ownTitle;
  showAttempt(el("section", {}, el("h3", { tabindex: -1 }, title), el("p", { role }, visible(text))));
}
const complain = (text) => say("Not shown", text, "alert");

// What the verifier says: its likeliest label, or null.
function verifierSays(row) {
  const shares = ["a", "b", "c"].map((name) => at(name, row));
  return shares.includes(null) ? null : "ABC"[shares.indexOf(Math.max(...shares))];
}
function agreement(row) {
  const [outcome, label] = [textAt("outcome", row), verifierSays(row)];
  if (label === null || outcome === null) return null;
  return (outcome === "correct") === (label === "A") ? "same" : outcome === "correct" ? "grader" : "verifier";
}
// How sure the verifier is that the grader is wrong, 0 to 1.
function against(row) {
  const a = at("a", row);
  return a === null ? null : textAt("outcome", row) === "correct" ? 1 - a : a;
}

// What is looked for in answers and names, or, behind "=", the answer itself; in responses elsewhere.
function hasText(row, text) {
  const answer = textAt("answer", row) ?? "";
  if (text.startsWith("=")) return answer === text.slice(1);
  const data = page.datasets[reading.dataset];
  return [answer, data.questions[at("q", row)], data.models[at("m", row)].name].some((one) => one.toLowerCase().includes(text.toLowerCase()));
}

// A value of each filter that is counted, and whether each is passed; `rest`: by all others.
const GROUPS = { __proto__: null, "!correct": (value) => value !== null && value !== "correct", differ: (value) => value === "grader" || value === "verifier" };
const fits = (wanted, value) => wanted === "" || (GROUPS[wanted]?.(value) ?? String(value) === wanted);
function judged(row, wanted) {
  const values = { model: at("m", row), outcome: textAt("outcome", row), agreement: agreement(row), end: at("cut", row) };
  const failed = Object.keys(COUNTED).filter((name) => !fits(wanted[name], values[name]));
  const bits = at("bits", row);
  const rest = (wanted.question < 0 || at("q", row) === wanted.question)
    && (!(wanted.from > 0) || (bits !== null && bits >= wanted.from))
    && (wanted.to === "" || (bits !== null && bits <= Number(wanted.to)))
    && (!wanted.text || wanted.in === "responses" || hasText(row, wanted.text));
  return { values, failed, rest };
}
function wantedNow() {
  const own = Object.fromEntries(Object.keys(FILTERS).map((name) => [name, reading.filters.get(name) ?? ""]));
  return { ...own, model: reading.model < 0 ? "" : String(reading.model), question: reading.question };
}
function passes(row) {
  const { failed, rest } = judged(row, wantedNow());
  return rest && !failed.length;
}

const ORDERS = { __proto__: null, short: (row) => at("tokens", row), long: (row) => -at("tokens", row), sure: (row) => at("bits", row),
  unsure: (row) => at("bits", row) && -at("bits", row), differ: (row) => { const sure = against(row); return sure && -sure; } };
async function list(token) {
  const [first, end] = rowsOf(reading.question);
  const wanted = wantedNow();
  const counts = Object.fromEntries(Object.keys(COUNTED).map((name) => [name, new Map()]));
  let rows = [];
  for (let row = first; row < end; row += 1) {
    const { values, failed, rest } = judged(row, wanted);
    if (!rest || failed.length > 1) continue;
    if (!failed.length) rows.push(row);
    for (const name of failed.length ? failed : Object.keys(COUNTED)) counts[name].set(values[name], (counts[name].get(values[name]) ?? 0) + 1);
  }
  if (wanted.text && wanted.in === "responses") rows = await inResponses(rows, wanted.text.toLowerCase(), token);
  if (reading.token !== token) return;
  const key = ORDERS[wanted.sort];
  if (key) {
    const keyed = rows.map((row) => [key(row) ?? Infinity, row]);
    rows = keyed.sort((a, b) => a[0] - b[0] || a[1] - b[1]).map(([, row]) => row);
  }
  Object.assign(reading, { rows, shown: 0 });
  showCounts(counts, wanted.in === "responses" && wanted.text);
  const { starts } = page.datasets[reading.dataset];
  const left = reading.question < 0 && starts.at(-1) > end ? `; of the first ${count(end)}: choose a question for the others` : "";
  byId("list-count").textContent = `${count(rows.length)} of ${count(end - first)} attempts${left}`;
}

// The rows whose responses hold a text: files are read one after another, and few are kept.
async function inResponses(rows, text, token) {
  const byFile = new Map();
  for (const row of rows) {
    const name = `${reading.dataset}-${at("m", row)}-${at("file", row)}`;
    if (at("file", row) >= 0) byFile.set(name, [...(byFile.get(name) ?? []), row]);
  }
  const found = [];
  let done = 0;
  for (const [name, own] of byFile) {
    const texts = await side(name, soundTexts);
    if (reading.token !== token) return [];
    found.push(...own.filter((row) => texts.rows[`${at("q", row)}/${at("t", row)}`]?.text.toLowerCase().includes(text)));
    byId("list-count").textContent = `Searched ${count(done += own.length)} of ${count(rows.length)} responses: ${count(found.length)} found`;
  }
  return found.sort((a, b) => a - b);
}

// What each choice would list. Outcomes are those that there are.
function showCounts(counts, unknown) {
  const outcomes = [...counts.outcome.keys()].filter((name) => name !== null && name !== "correct").sort();
  const options = [["", "any"], ["correct", "correct"], ["!correct", "not correct"], ...outcomes.map((name) => [name, words(name)])];
  const chosen = reading.filters.get("outcome") ?? "";
  fill("by-outcome", options.some(([value]) => value === chosen) ? options : [...options, [chosen, words(chosen)]], chosen);
  for (const [name, id] of Object.entries(COUNTED)) {
    for (const option of byId(id).options) {
      const wanted = option.value === "-1" ? "" : option.value;
      const numbers = [...counts[name]].map(([value, number]) => (fits(wanted, value) ? number : 0));
      option.dataset.name ??= option.text;
      option.text = unknown ? option.dataset.name : `${option.dataset.name} (${count(sum(numbers))})`;
    }
  }
}

// The list is made anew, up to the attempt that is shown.
function markCurrent() {
  const focused = byId("list").contains(document.activeElement);
  byId("list").replaceChildren();
  reading.shown = 0;
  const place = reading.rows.indexOf(reading.row);
  do moreRows(); while (reading.shown <= place && reading.shown < reading.rows.length);
  const current = byId("list").querySelector("[aria-current]");
  if (focused) current?.focus({ preventScroll: true });
  keepInSight(current);
}

// Scroll the list and nothing else, so that an item can be seen.
function keepInSight(item) {
  const box = byId("list").parentElement;
  if (!item) return;
  const from = item.getBoundingClientRect().top - box.getBoundingClientRect().top;
  if (from < 0 || from > box.clientHeight - 40) box.scrollTop += from - box.clientHeight / 2;
}

function moreRows() {
  const next = reading.rows.slice(reading.shown, reading.shown + PAGE);
  byId("list").append(...next.map(listItem));
  reading.shown += next.length;
  byId("more").hidden = reading.shown >= reading.rows.length;
}

function listItem(row) {
  const outcome = textAt("outcome", row) ?? "not graded";
  const data = page.datasets[reading.dataset];
  const [model, question] = [data.models[at("m", row)].name, data.questions[at("q", row)]];
  const [glyph, kind] = GLYPHS[outcome] ?? ["·", "dim"];
  const answer = textAt("answer", row);
  const [tokens, bits, sure] = [at("tokens", row), at("bits", row), against(row)];
  const facts = reading.filters.get("sort") === "differ" ? [sure === null ? null : `grader wrong: ${sure.toFixed(3)}`]
    : [tokens === null ? null : `${count(tokens)} tok`, bits === null ? null : `${bits.toFixed(2)} b`];
  return el("li", {}, el("a", { href: addressOf(row), "aria-current": row === reading.row ? "true" : null },
    el("span", { class: kind, role: "img", "aria-label": words(outcome), title: words(outcome) }, glyph),
    el("span", { class: "given", title: answer }, answer === null ? words(outcome) : named(visible(answer))),
    el("span", {}, facts.filter(Boolean).join(" · ")),
    el("span", { class: "of", title: `${model} · ${question}` }, reading.model < 0 ? el("span", {}, named(model)) : null,
      reading.question < 0 ? el("span", {}, named(question)) : null, el("span", {}, `trial ${at("t", row)}`))));
}

// Moving: along the list; to another question or model at the same trial.
function step(by) {
  const { rows, row } = reading;
  if (!rows.length) return;
  const place = rows.indexOf(row);
  const next = place < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(place + by, 0), rows.length - 1);
  if (rows[next] !== row) location.hash = addressOf(rows[next]);
}
function stepQuestion(by) {
  const { row, question, dataset, model } = reading;
  const next = (row < 0 ? question : at("q", row)) + by;
  if ((row < 0 && question < 0) || page.datasets[dataset].questions[next] === undefined) return;
  location.hash = row < 0 ? questionAddress(next, model, reading.filters) : attemptAddress(at("m", row), next, at("t", row));
}
function stepModel(by) {
  const { row, dataset } = reading;
  if (row < 0 || !page.datasets[dataset].models[at("m", row) + by]) return;
  location.hash = attemptAddress(at("m", row) + by, at("q", row), at("t", row));
}
const readerKeys = { j: () => step(1), k: () => step(-1), n: () => stepQuestion(1), p: () => stepQuestion(-1),
  m: () => stepModel(1), M: () => stepModel(-1), t: () => setHeat(!heat), a: toAnswer, f: () => byId("by-outcome").focus(),
  "/": () => byId("by-text").focus(), q: () => { if (reading.row >= 0) location.hash = questionAddress(at("q", reading.row)); },
  Escape: () => { location.hash = address(tabs[overview].dataset.name); } };

// The attempt that is shown stays where it passes; without it a question is shown, or the list alone.
function follow(filters, typed = false) {
  reading.filters = filters;
  const hash = reading.row >= 0 && passes(reading.row) ? addressOf(reading.row)
    : questionAddress(reading.question, reading.model, filters);
  if (typed) location.replace(hash);
  else location.hash = hash;
}

if (page.readable) {
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", (event) => {
    event.preventDefault(); // data set and attempt stay
    Object.assign(reading, { model: -1, question: -1 });
    follow(new URLSearchParams());
  });
  byId("filters").addEventListener("input", ({ target }) => {
    if (target.id === "pick-dataset") {
      location.hash = firstAddress(Number(target.value));
      return;
    }
    reading.model = Number(byId("pick-model").value);
    reading.question = Number(byId("pick-question").value);
    const set = Object.entries(FILTERS).map(([name, id]) => [name, byId(id).value]).filter(([, value]) => value !== "");
    follow(new URLSearchParams(set), target.localName === "input");
  });
  byId("more").addEventListener("click", moreRows);
}
