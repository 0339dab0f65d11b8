// The attempt reader: which attempts are listed, and moving between them.

// `row`: of the attempt that is shown; `shown`: how many rows the list has; `token`: of the address
// that is being opened; `cell`: of the map, from which an attempt was opened; `entering`: it takes
// the focus; `single`: only its question is to be listed; `redraw`: draws its response again.
const reading = { dataset: null, model: null, index: null, rows: [], row: -1, shown: 0, hash: null,
  token: null, cell: null, entering: false, single: false, redraw: null };
const PAGE = 200; // rows of the list that are made at a time
const FILTERS = ["by-outcome", "by-agreement", "by-end", "least-bits", "most-bits"];
const GLYPHS = { correct: ["✓", "good"], wrong: ["✗", "bad"], no_answer: ["∅", "dim"],
  unparsable: ["?", "dim"], timeout: ["…", "dim"] };
const words = (text) => text.replaceAll("_", " ");
const fixed = (number, digits) => (number === null ? "–" : number.toFixed(digits));

function firstAddress(dataset, chosen = null) {
  const data = page.datasets[dataset];
  const model = data.models[chosen] ?? data.models.find(({ side }) => side) ?? data.models[0];
  return address(data.name, model.name, data.questions[0], 0);
}

function addressOf(row, model = reading.model, question = reading.index.q[row]) {
  const data = page.datasets[reading.dataset];
  return address(data.name, data.models[model].name, data.questions[question], reading.index.t[row]);
}

// Options of a select: pairs of value and text.
function fill(id, options, chosen) {
  byId(id).replaceChildren(...options.map(([value, text]) => new Option(text, value)));
  byId(id).value = chosen;
}
const numbered = (names) => names.map((name, i) => [i, name]);

// Values of a coded column: {values, codes}, -1 for none.
const coded = (column, row) => column.values[column.codes[row]] ?? null;

// Pickers and list are filled as far as an address is known, before what is wrong with it is said.
async function openAttempt(datasetName, modelName, questionName, trialText) {
  const token = {};
  reading.token = token;
  const known = page.datasets.findIndex((data) => data.name === datasetName);
  const dataset = Math.max(known, 0);
  const data = page.datasets[dataset];
  const model = known < 0 ? -1 : data.models.findIndex(({ name }) => name === modelName);
  fill("pick-dataset", numbered(page.datasets.map(({ name }) => name)), dataset);
  fill("pick-model", numbered(data.models.map(({ name }) => name)), model);
  if (reading.dataset !== dataset) fill("pick-question", [[-1, "all questions"], ...numbered(data.questions)], -1);
  if (reading.dataset !== dataset || reading.model !== model || !reading.index) clear(dataset, model);
  if (model < 0) return complain(`There is no model ${modelName ?? ""} in ${datasetName} here.`);
  if (!data.models[model].side) return complain(`${modelName} has outcomes only: no attempts were kept to read.`);
  if (!reading.index) {
    try {
      const index = await side(`${dataset}-${model}`, soundIndex);
      if (reading.token !== token) return null;
      reading.index = index;
      fillOutcomes();
    } catch (error) {
      return reading.token === token ? complain(error.message) : null;
    }
  }
  const { q, t } = reading.index;
  const question = data.questions.indexOf(questionName ?? data.questions[0]);
  const trial = Number(trialText ?? 0);
  reading.row = q.findIndex((number, row) => number === question && t[row] === trial);
  reading.hash = location.hash;
  const picker = byId("pick-question");
  if (reading.single || picker.value !== "-1") picker.value = String(question);
  reading.single = false;
  list();
  if (question < 0) return complain(`There is no question ${questionName} in ${datasetName} here.`);
  if (reading.row < 0) {
    return complain(`${modelName} has no trial ${trialText ?? 0} of ${questionName}: it is owed, or out of range.`);
  }
  return drawAttempt(token);
}

// Nothing of another model may stay: neither its list nor its attempt.
function clear(dataset, model) {
  reading.entering ||= ["list", "attempt"].some((id) => byId(id).contains(document.activeElement));
  Object.assign(reading, { dataset, model: Math.max(model, 0), index: null, rows: [], row: -1, shown: 0, redraw: null });
  byId("list").replaceChildren();
  byId("list-count").textContent = "";
  byId("more").hidden = true;
  byId("attempt").replaceChildren();
}

function complain(text) {
  reading.redraw = null;
  document.title = ownTitle;
  showAttempt(el("section", {}, el("h3", { tabindex: -1 }, "Not shown"), el("p", { role: "alert" }, visible(text))));
}

function fillOutcomes() {
  const others = reading.index.outcome.values.filter((name) => name !== "correct");
  const options = [["", "any"], ["correct", "correct"], ["!correct", "not correct"], ...others.map((name) => [name, words(name)])];
  const before = byId("by-outcome").value;
  fill("by-outcome", options, options.some(([value]) => value === before) ? before : "");
}

function verifierSays(index, row) {
  const shares = ["a", "b", "c"].map((name) => index[name][row]);
  return shares.includes(null) ? null : "ABC"[shares.indexOf(Math.max(...shares))];
}

function matches(row) {
  const { index } = reading;
  const [outcome, agreement, end] = FILTERS.slice(0, 3).map((id) => byId(id).value);
  const [least, most] = FILTERS.slice(3).map((id) => byId(id).valueAsNumber);
  const question = Number(byId("pick-question").value);
  const graded = coded(index.outcome, row);
  const bits = index.bits[row];
  if (question >= 0 && index.q[row] !== question) return false;
  if (outcome === "!correct" ? graded === "correct" || graded === null : outcome && graded !== outcome) return false;
  if (end !== "" && String(index.cut[row]) !== end) return false;
  if (least > 0 && (bits === null || bits < least)) return false;
  if (!Number.isNaN(most) && (bits === null || bits > most)) return false;
  if (!agreement) return true;
  const label = verifierSays(index, row);
  if (label === null || graded === null) return false;
  const [grader, verifier] = [graded === "correct", label === "A"];
  return { differ: grader !== verifier, same: grader === verifier, grader: grader && !verifier,
    verifier: !grader && verifier }[agreement];
}

function list() {
  if (!reading.index) return;
  const rows = reading.index.q.map((_, row) => row).filter(matches);
  const focused = byId("list").contains(document.activeElement);
  Object.assign(reading, { rows, shown: 0 });
  byId("list-count").textContent = `${rows.length} of ${reading.index.q.length} attempts`;
  byId("list").replaceChildren();
  const place = rows.indexOf(reading.row);
  do moreRows(); while (reading.shown <= place && reading.shown < rows.length);
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
  const { q, t, outcome, tokens, bits } = reading.index;
  const name = coded(outcome, row) ?? "not graded";
  const question = page.datasets[reading.dataset].questions[q[row]];
  const [glyph, kind] = GLYPHS[name] ?? ["·", "dim"];
  const facts = [tokens[row] === null ? null : `${tokens[row]} tok`, bits[row] === null ? null : `${bits[row].toFixed(2)} b`];
  return el("li", {}, el("a", { href: addressOf(row), "aria-current": row === reading.row ? "true" : null },
    el("span", { class: kind, role: "img", "aria-label": words(name), title: words(name) }, glyph),
    el("span", { title: question }, named(question)), el("span", {}, `· ${t[row]}`),
    el("span", {}, facts.filter(Boolean).join(" · "))));
}

// Moving: along the list; to another question or model at the same trial.
function step(by) {
  const { rows, row } = reading;
  if (!rows.length) return;
  let at = rows.indexOf(row);
  if (at < 0) at = by > 0 ? rows.findIndex((other) => other > row) - 1 : rows.findLastIndex((other) => other < row) + 1;
  const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
  if (next !== row) location.hash = addressOf(next);
}
function stepQuestion(by) {
  const { index, row, dataset, model } = reading;
  const next = row < 0 ? -1 : index.q[row] + by;
  if (page.datasets[dataset].questions[next] !== undefined) location.hash = addressOf(row, model, next);
}
function stepModel(by) {
  const { row, dataset, model } = reading;
  if (row >= 0 && page.datasets[dataset].models[model + by]?.side) location.hash = addressOf(row, model + by);
}
const readerKeys = { j: () => step(1), k: () => step(-1), n: () => stepQuestion(1), p: () => stepQuestion(-1),
  m: () => stepModel(1), M: () => stepModel(-1), t: () => setHeat(!heat), f: () => byId("by-outcome").focus(),
  Escape: () => { location.hash = address(tabs[overview].dataset.name); } };

if (page.readable) {
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", (event) => {
    event.preventDefault(); // data set and model stay
    for (const id of FILTERS) byId(id).value = "";
    byId("pick-question").value = "-1";
    list();
  });
  byId("pick-dataset").addEventListener("change", (event) => { location.hash = firstAddress(Number(event.target.value)); });
  byId("pick-model").addEventListener("change", (event) => {
    const model = Number(event.target.value);
    location.hash = reading.row < 0 ? firstAddress(reading.dataset, model) : addressOf(reading.row, model);
  });
  byId("pick-question").addEventListener("change", (event) => {
    list();
    if (Number(event.target.value) >= 0 && reading.rows.length) location.hash = addressOf(reading.rows[0]);
  });
  for (const id of FILTERS) byId(id).addEventListener("input", list);
  byId("more").addEventListener("click", moreRows);
}
