// The attempt reader: which attempts are listed, and moving between them. The address says it all:
// #dataset/model/question/trial?filters, where an empty model or question is all of them, and without
// a trial a question is shown, or a list. A widget changes the address, and an address the widgets.

// `wanted`: what is listed, texts as in the address, model and question as numbers, -1 for all; `files`:
// of rows of the data set; `rows`: those listed, as `listed` says; `row`: the one that is shown; `from`, `to`:
// which of them the list has; `pane`: what is drawn; `token`: of the address that is being opened; `cell`: of the map, from which
// an attempt was opened; `entering`: it takes the focus; `redraw`: draws its response again.
const reading = { dataset: null, wanted: { model: -1, question: -1 }, files: [], rows: [], row: -1, from: 0, to: 0, listed: null, hash: null,
  pane: null, token: null, cell: null, entering: false, redraw: null };
const PAGE = 200; // rows of the list that are made at a time
const MOST_ROWS = 500000; // that are loaded for a list
const FILTERS = ["outcome", "agreement", "end", "from", "to", "text", "in", "sort"]; // of the address; widgets are by-NAME
const COUNTED = { model: (row) => at("m", row), outcome: (row) => textAt("outcome", row), agreement, end: (row) => at("cut", row) };
const GROUPS = new Map([["-1", () => true], ["", () => true], ["differ", (value) => value === "grader" || value === "verifier"],
  ["!correct", (value) => value !== null && value !== "correct"]]);
const fits = (wanted, value) => GROUPS.get(String(wanted))?.(value) ?? String(value) === String(wanted);
const GLYPHS = { correct: ["✓", "good"], wrong: ["✗", "bad"], no_answer: ["∅", "dim"],
  unparsable: ["?", "dim"], timeout: ["…", "dim"], error: ["!", "bad"] };
const words = (text) => text.replaceAll("_", " ");
const fixed = (number, digits) => (number === null ? "–" : number.toFixed(digits));
const count = (number) => number.toLocaleString("en");

// Values of a row of the data set; those of a coded column {values, codes} have -1 for none.
const fileOf = (row) => Math.floor(row / page.rows);
const at = (name, row) => reading.files[fileOf(row)][name][row % page.rows];
const coded = ({ values, codes }, place) => values[codes[place]] ?? null;
const textAt = (name, row) => coded(reading.files[fileOf(row)][name], row % page.rows);

// The address of what `wanted` lists: with a trial of an attempt beside the list.
function addressOf(model, question, trial = null, wanted = reading.wanted) {
  const data = page.datasets[reading.dataset];
  const query = new URLSearchParams(FILTERS.filter((name) => wanted[name]).map((name) => [name, wanted[name]]));
  if (trial !== null) for (const name of ["model", "question"]) if (wanted[name] < 0) query.set(`${name}s`, "all");
  const path = address(data.name, data.models[model]?.name ?? "", data.questions[question] ?? "", ...(trial === null ? [] : [trial]));
  return String(query) ? `${path}?${query}` : path;
}
const firstAddress = (dataset) => address(page.datasets[dataset].name, "");
const rowAddress = (row) => addressOf(at("m", row), at("q", row), at("t", row));

// Options of a select: pairs of text and value.
function fill(id, options, chosen) {
  byId(id).replaceChildren(...options.map((option) => new Option(...option)));
  byId(id).value = chosen;
}
const numbered = (names, all) => [...(all ? [[all, -1]] : []), ...names.map((name, i) => [name, i])];

// First and end of the rows of a question, or of all of them: the first so many.
function rowsOf(question) {
  const { starts } = page.datasets[reading.dataset];
  const [first, end] = question < 0 ? [0, starts.at(-1)] : [starts[question], starts[question + 1]];
  return [first, Math.min(end, first + MOST_ROWS)];
}

// Pickers and list are filled as far as an address is known, before what is wrong with it is said.
async function openReader(query, datasetName, modelName, questionName = "", trial = "") {
  const token = {};
  Object.assign(reading, { token, hash: location.hash });
  const known = page.datasets.findIndex((data) => data.name === datasetName);
  const dataset = Math.max(known, 0);
  const data = page.datasets[dataset];
  if (reading.dataset !== dataset) clear(dataset);
  const model = data.models.findIndex(({ name }) => name === modelName);
  const question = data.questions.indexOf(questionName);
  const wanted = { ...Object.fromEntries(FILTERS.map((name) => [name, query.get(name) ?? ""])),
    model: trial && query.get("models") === "all" ? -1 : model, question: trial && query.get("questions") === "all" ? -1 : question };
  reading.wanted = wanted;
  for (const name of FILTERS) if (byId(`by-${name}`).value !== wanted[name]) byId(`by-${name}`).value = wanted[name];
  const listed = JSON.stringify([dataset, wanted]);
  if (reading.listed !== listed) {
    fill("by-dataset", numbered(page.datasets.map(({ name }) => name)), dataset);
    fill("by-question", numbered(data.questions, "all questions"), wanted.question);
    fill("by-model", numbered(data.models.map(({ name }) => name), "all models"), wanted.model);
  }
  let [first, end] = [0, 0];
  const complain = (text) => say("Not shown", text, "alert");
  try {
    if (known < 0 || (modelName && model < 0)) throw new Error(`There is no model ${modelName} in ${datasetName} here.`);
    if (!data.starts) throw new Error(`${datasetName} has outcomes only: no attempts were kept to read.`);
    [first, end] = rowsOf(Math.max(question, 0));
    await Promise.all([loadRows(rowsOf(wanted.question)), loadRows([first, end])]);
    if (reading.token === token && reading.listed !== listed) await list(token, listed);
  } catch (error) {
    if (reading.token !== token) return null;
    clear(dataset);
    return complain(error.message);
  }
  if (reading.token !== token) return null;
  const rows = Array.from({ length: trial && question >= 0 ? end - first : 0 }, (_, i) => first + i);
  reading.row = rows.find((row) => at("m", row) === model && at("t", row) === Number(trial)) ?? -1;
  markCurrent();
  if (questionName && question < 0) return complain(`There is no question ${questionName} in ${datasetName} here.`);
  if (trial && reading.row < 0) return complain(`${modelName} has no trial ${trial} of ${questionName}: it is owed, or out of range.`);
  if (!reading.rows.length) return say("Nothing found", "No attempt passes these filters. Reset lists all of them.");
  const pane = `${dataset}/${question}/${reading.row}`;
  if (question < 0) return say("No attempt is open", "Choose one of the list, or press j. A question alone shows what all models answered.");
  if (trial && reading.pane === pane) return null; // only the list is another
  const sound = await (trial ? drawAttempt(token) : drawQuestion(token, question));
  if (reading.token !== token) return null; // before it was drawn
  if (reading.pane !== pane && matchMedia("(max-width: 800px)").matches) byId("attempt").scrollIntoView(); // it is below the list
  reading.pane = sound ? pane : null;
  return null;
}

async function loadRows([first, end]) {
  const { files, dataset } = reading;
  const numbers = Array.from({ length: end > first ? fileOf(end - 1) - fileOf(first) + 1 : 0 }, (_, i) => fileOf(first) + i);
  await Promise.all(numbers.map(async (number) => { files[number] ??= await side(`${dataset}-i${number}`, soundIndex); }));
}

// Nothing of another data set may stay: neither its list nor its attempt.
function clear(dataset) {
  reading.entering ||= ["list", "attempt"].some((id) => byId(id).contains(document.activeElement));
  Object.assign(reading, { dataset, files: [], rows: [], row: -1, listed: null, pane: null, redraw: null });
  markCurrent();
  byId("list-count").textContent = "";
  byId("attempt").replaceChildren();
}

function say(title, text, role = null) {
  Object.assign(reading, { redraw: null, pane: null });
  document.title = ownTitle;
  showAttempt(el("section", {}, el("h3", { tabindex: -1 }, title), el("p", { role }, visible(text))));
}

// What the verifier says: its likeliest label, or null; who of the two says correct alone; and how sure
// the verifier is, from 0 to 1, that the grader is wrong.
function verifierSays(row) {
  const shares = ["a", "b", "c"].map((name) => at(name, row));
  return shares.includes(null) ? null : "ABC"[shares.indexOf(Math.max(...shares))];
}
function agreement(row) {
  const [outcome, label] = [textAt("outcome", row), verifierSays(row)];
  if (label === null || outcome === null) return null;
  return (outcome === "correct") === (label === "A") ? "same" : outcome === "correct" ? "grader" : "verifier";
}
function against(row) {
  const a = at("a", row);
  return a === null ? null : textAt("outcome", row) === "correct" ? 1 - a : a;
}

// A text in answers and names or, behind "=", an answer itself.
function hasText(row, text) {
  const answer = textAt("answer", row) ?? "";
  if (text.startsWith("=")) return answer === text.slice(1);
  const data = page.datasets[reading.dataset];
  return [answer, data.questions[at("q", row)], data.models[at("m", row)].name].some((one) => one.toLowerCase().includes(text.toLowerCase()));
}

// The filters that a row fails: those that are counted by name, all others as "rest".
function failed(row, { from, to, text, ...wanted }) {
  const bits = at("bits", row);
  const rest = fits(wanted.question, at("q", row)) && (from === "" || (bits !== null && bits >= Number(from)))
    && (to === "" || (bits !== null && bits <= Number(to))) && (!text || wanted.in || hasText(row, text));
  return [...Object.keys(COUNTED).filter((name) => !fits(wanted[name], COUNTED[name](row))), ...(rest ? [] : ["rest"])];
}
const passes = (row) => !failed(row, reading.wanted).length;

const last = (number, sign) => (number === null ? Infinity : sign * number);
const ORDERS = new Map(Object.entries({ short: (row) => last(at("tokens", row), 1), long: (row) => last(at("tokens", row), -1),
  sure: (row) => last(at("bits", row), 1), unsure: (row) => last(at("bits", row), -1), differ: (row) => last(against(row), -1) }));
async function list(token, listed) {
  const { wanted } = reading;
  const [first, end] = rowsOf(wanted.question);
  const counts = Object.fromEntries(Object.keys(COUNTED).map((name) => [name, new Map()]));
  let rows = [];
  for (let row = first; row < end; row += 1) {
    const names = failed(row, wanted);
    if (!names.length) rows.push(row);
    for (const name of names.length ? names : Object.keys(COUNTED)) { // what another choice would list
      if (names.length < 2 && name !== "rest") counts[name].set(COUNTED[name](row), (counts[name].get(COUNTED[name](row)) ?? 0) + 1);
    }
  }
  if (wanted.text && wanted.in) rows = await inResponses(rows, wanted.text.toLowerCase(), token);
  if (reading.token !== token) return;
  const order = ORDERS.get(wanted.sort);
  const keys = new Map(order && rows.map((row) => [row, order(row)]));
  if (order) rows.sort((a, b) => keys.get(a) - keys.get(b) || a - b);
  Object.assign(reading, { rows, listed });
  showCounts(wanted.text && wanted.in ? null : counts, [...counts.outcome.keys(), wanted.outcome]);
  const left = wanted.question < 0 && page.datasets[reading.dataset].starts.at(-1) > end ? `; of the first ${count(end)}: choose a question for the others` : "";
  byId("list-count").textContent = `${count(rows.length)} of ${count(end - first)} attempts${left}`;
}

// The rows whose responses hold a text: files are read one after another, and few are kept.
async function inResponses(rows, text, token) {
  const byFile = new Map();
  for (const row of rows.filter((one) => at("file", one) >= 0)) {
    const name = `${reading.dataset}-${at("m", row)}-${at("file", row)}`;
    if (!byFile.get(name)?.push(row)) byFile.set(name, [row]);
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

// What each choice would list, if that is known; outcomes to choose are those that there are.
function showCounts(counts, there) {
  const outcomes = [...new Set(there)].filter((name) => name && name !== "!correct" && name !== "correct").sort();
  fill("by-outcome", [["any", ""], ["correct", "correct"], ["not correct", "!correct"], ...outcomes.map((name) => [words(name), name])], reading.wanted.outcome);
  for (const name of Object.keys(COUNTED)) {
    for (const option of byId(`by-${name}`).options) {
      option.dataset.name ??= option.text;
      const numbers = counts && [...counts[name]].map(([value, number]) => (fits(option.value, value) ? number : 0));
      option.text = option.dataset.name + (counts ? ` (${count(sum(numbers))})` : "");
    }
  }
}

// The list is made anew, about the attempt that is shown, which is scrolled into sight in its box.
function markCurrent() {
  const focused = byId("list").contains(document.activeElement);
  byId("list").replaceChildren();
  const place = reading.rows.indexOf(reading.row);
  reading.from = reading.to = Math.max(0, place - PAGE / 2);
  moreRows();
  const current = byId("list").querySelector("[aria-current]");
  if (!current) return;
  if (focused) current.focus({ preventScroll: true });
  const box = byId("list").parentElement;
  const from = current.getBoundingClientRect().top - box.getBoundingClientRect().top;
  if (from < 0 || from > box.clientHeight - 40) box.scrollTop += from - box.clientHeight / 2;
}

function moreRows(earlier = false) {
  const { rows, from, to } = reading;
  if (earlier) reading.from = Math.max(0, from - PAGE);
  else reading.to = Math.min(rows.length, to + PAGE);
  const made = (earlier ? rows.slice(reading.from, from) : rows.slice(to, reading.to)).map(listItem);
  byId("list")[earlier ? "prepend" : "append"](...made);
  byId("earlier").hidden = reading.from === 0;
  byId("more").hidden = reading.to === rows.length;
}

function listItem(row) {
  const outcome = textAt("outcome", row) ?? "not graded";
  const data = page.datasets[reading.dataset];
  const [model, question] = [data.models[at("m", row)].name, data.questions[at("q", row)]];
  const [glyph, kind] = GLYPHS[outcome] ?? ["·", "dim"];
  const [answer, tokens, bits] = [textAt("answer", row), at("tokens", row), at("bits", row)];
  const facts = reading.wanted.sort === "differ" ? [`grader wrong: ${fixed(against(row), 3)}`]
    : [tokens === null ? null : `${count(tokens)} tok`, bits === null ? null : `${bits.toFixed(2)} b`];
  return el("li", {}, el("a", { href: rowAddress(row), "aria-current": row === reading.row ? "true" : null },
    el("span", { class: kind, role: "img", "aria-label": words(outcome), title: words(outcome) }, glyph),
    el("span", { class: "given", title: answer }, answer === null ? words(outcome) : named(visible(answer))),
    el("span", {}, facts.filter(Boolean).join(" · ")),
    el("span", { class: "of", title: `${model} · ${question}` }, reading.wanted.model < 0 ? el("span", {}, named(model)) : null,
      reading.wanted.question < 0 ? el("span", {}, named(question)) : null, el("span", {}, `trial ${at("t", row)}`))));
}

// Moving: along the list; to another question or model at the same trial.
function step(by) {
  const { rows, row } = reading;
  if (!rows.length) return;
  const place = rows.indexOf(row);
  const next = place < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.min(Math.max(place + by, 0), rows.length - 1);
  if (rows[next] !== row) location.hash = rowAddress(rows[next]);
}
function stepAside(models, questions) {
  const { row, wanted, dataset } = reading;
  const [model, question, trial] = row < 0 ? [Number(wanted.model), Number(wanted.question), null] : [at("m", row), at("q", row), at("t", row)];
  const [there, asked] = [page.datasets[dataset].models[model + models], page.datasets[dataset].questions[question + questions]];
  if (models ? there : asked !== undefined) location.hash = addressOf(model + models, question + questions, trial);
}
const readerKeys = { j: () => step(1), k: () => step(-1), n: () => stepAside(0, 1), p: () => stepAside(0, -1),
  m: () => stepAside(1, 0), M: () => stepAside(-1, 0), t: () => setHeat(!heat), a: toAnswer, f: () => byId("by-outcome").focus(),
  "/": () => byId("by-text").focus(), q: () => { if (reading.row >= 0) location.hash = addressOf(-1, at("q", reading.row), null, {}); },
  Escape: () => { location.hash = address(tabs[overview].dataset.name); } };

// The attempt that is shown stays where it passes; without it a question is shown, or the list alone.
function follow(wanted, typed) {
  reading.wanted = wanted;
  const hash = reading.row >= 0 && passes(reading.row) ? rowAddress(reading.row) : addressOf(wanted.model, wanted.question);
  if (typed) location.replace(hash);
  else location.hash = hash;
}

if (page.readable) {
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", (event) => { // data set and attempt stay
    event.preventDefault();
    follow({ ...Object.fromEntries(FILTERS.map((name) => [name, ""])), model: -1, question: -1 }, false);
  });
  byId("filters").addEventListener("input", ({ target }) => {
    if (target.id === "by-dataset") location.hash = firstAddress(Number(target.value));
    else follow(Object.fromEntries([...FILTERS, "model", "question"].map((name) => [name, byId(`by-${name}`).value])), target.localName === "input");
  });
  byId("more").addEventListener("click", () => moreRows());
  byId("earlier").addEventListener("click", () => moreRows(true));
}
