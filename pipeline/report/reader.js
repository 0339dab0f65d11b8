// The attempt reader: which attempts are listed, and moving between them.

// `cell`: of the map, from which an attempt was opened; `entering`: it is being opened from there.
const reading = { dataset: null, model: null, index: null, rows: [], row: -1, hash: null, shown: 0,
  cell: null, entering: false };
const PAGE = 200; // rows of the list that are made at a time
const GLYPHS = { correct: ["✓", "good"], wrong: ["✗", "bad"], no_answer: ["∅", "dim"],
  unparsable: ["?", "dim"], timeout: ["…", "dim"] };
const words = (text) => text.replaceAll("_", " ");
const fixed = (number, digits) => (number === null ? "–" : number.toFixed(digits));

function firstAddress(dataset) {
  const data = page.datasets[dataset];
  const model = data.models.find((one) => one.side) ?? data.models[0];
  return address(data.name, model.name, data.questions[0], 0);
}

function fill(select, names, chosen) {
  select.replaceChildren(...names.map((name, i) => new Option(visible(name), String(i))));
  select.value = String(chosen);
}

// Values of a coded column: {values, codes}, -1 for none.
function coded(column, row) {
  const code = column.codes[row];
  return code < 0 ? null : column.values[code];
}

// Pickers and list are filled as far as an address is known, before what is wrong with it is said.
async function openAttempt(datasetName, modelName, questionName, trialText) {
  const token = {};
  reading.token = token;
  const known = page.datasets.findIndex((data) => data.name === datasetName);
  const dataset = Math.max(known, 0);
  const data = page.datasets[dataset];
  const model = known < 0 ? -1 : data.models.findIndex((one) => one.name === modelName);
  fill(byId("pick-dataset"), page.datasets.map((one) => one.name), dataset);
  fill(byId("pick-model"), data.models.map((one) => one.name), model);
  if (reading.dataset !== dataset) pickQuestions(data);
  if (model < 0 || !data.models[model].side) {
    clear(dataset, model);
    return complain(model < 0 ? `There is no model ${modelName ?? ""} in ${datasetName} here.`
      : `${modelName} has outcomes only: no attempts were kept to read.`);
  }
  if (reading.dataset !== dataset || reading.model !== model || !reading.index) {
    clear(dataset, model);
    try {
      const index = await side(`${dataset}-${model}`, soundIndex);
      if (reading.token !== token) return null;
      reading.index = index;
      fillOutcomes();
    } catch (error) {
      return reading.token === token ? complain(error.message) : null;
    }
  }
  const question = data.questions.indexOf(questionName ?? data.questions[0]);
  const wanted = Number(trialText ?? 0);
  const { q, t } = reading.index;
  reading.row = q.findIndex((one, i) => one === question && t[i] === wanted);
  reading.hash = location.hash;
  if (reading.only !== undefined) byId("pick-question").value = String(reading.only);
  delete reading.only;
  const only = byId("pick-question").value;
  if (question < 0) byId("pick-question").value = "-1";
  else if (only !== "-1" && only !== String(question)) byId("pick-question").value = String(question);
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

function pickQuestions(data) {
  const select = byId("pick-question");
  select.replaceChildren(new Option("all questions", "-1"),
    ...data.questions.map((name, i) => new Option(visible(name), String(i))));
}

function fillOutcomes() {
  const select = byId("by-outcome");
  const before = select.value;
  const known = reading.index.outcome.values;
  select.replaceChildren(new Option("any", ""), new Option("correct", "correct"),
    new Option("not correct", "!correct"),
    ...known.filter((name) => name !== "correct").map((name) => new Option(words(name), name)));
  select.value = before;
  if (select.selectedIndex < 0) select.value = "";
}

function verifierSays(index, row) {
  const three = ["a", "b", "c"].map((name) => index[name]?.[row] ?? null);
  if (three.includes(null)) return null;
  return "ABC"[three.indexOf(Math.max(...three))];
}

function matches(row) {
  const index = reading.index;
  const outcome = byId("by-outcome").value;
  const agreement = byId("by-agreement").value;
  const end = byId("by-end").value;
  const [least, most] = ["least-bits", "most-bits"].map((id) => byId(id).valueAsNumber);
  const only = Number(byId("pick-question").value);
  const found = coded(index.outcome, row);
  if (only >= 0 && index.q[row] !== only) return false;
  if (outcome === "!correct" ? found === "correct" || found === null : outcome && found !== outcome) return false;
  if (end !== "" && String(index.cut[row]) !== end) return false;
  const bits = index.bits[row];
  if (least > 0 && !(bits >= least && bits !== null)) return false;
  if (!Number.isNaN(most) && !(bits !== null && bits <= most)) return false;
  if (!agreement) return true;
  const label = verifierSays(index, row);
  if (label === null || found === null) return false;
  const correct = found === "correct";
  const says = label === "A";
  return { differ: correct !== says, same: correct === says, grader: correct && !says,
    verifier: !correct && says }[agreement];
}

function list() {
  if (!reading.index) return;
  const rows = reading.index.q.map((_, row) => row).filter(matches);
  reading.rows = rows;
  byId("list-count").textContent = `${rows.length} of ${reading.index.q.length} attempts`;
  const held = byId("list").contains(document.activeElement);
  byId("list").replaceChildren();
  reading.shown = 0;
  const at = rows.indexOf(reading.row);
  do moreRows(); while (reading.shown <= at && reading.shown < rows.length);
  const current = byId("list").querySelector("[aria-current]");
  if (held) current?.focus({ preventScroll: true });
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

function addressOf(row, model = reading.model) {
  const data = page.datasets[reading.dataset];
  const { q, t } = reading.index;
  return address(data.name, data.models[model].name, data.questions[q[row]], t[row]);
}

function listItem(row) {
  const { q, t, outcome, tokens, bits } = reading.index;
  const name = coded(outcome, row) ?? "not graded";
  const question = page.datasets[reading.dataset].questions[q[row]];
  const [glyph, kind] = GLYPHS[name] ?? ["·", "dim"];
  const facts = [tokens[row] === null ? null : `${tokens[row]} tok`, bits[row] === null ? null : `${bits[row].toFixed(2)} b`];
  return el("li", {}, el("a", { href: addressOf(row), "aria-current": row === reading.row ? "true" : null },
    el("span", { class: kind, role: "img", "aria-label": words(name), title: words(name) }, glyph),
    el("span", { title: visible(question) }, named(question)), el("span", {}, `· ${t[row]}`),
    el("span", {}, facts.filter(Boolean).join(" · "))));
}

// Moving: along the list; to another question or model at the same trial.
function step(by) {
  const { rows, row } = reading;
  if (!rows.length) return;
  let at = rows.indexOf(row);
  if (at < 0) at = by > 0 ? rows.findIndex((one) => one > row) - 1 : rows.findLastIndex((one) => one < row) + 1;
  const next = rows[Math.min(Math.max(at + by, 0), rows.length - 1)];
  if (next !== row) location.hash = addressOf(next);
}
function stepQuestion(by) {
  const { index, row } = reading;
  if (row < 0) return;
  const data = page.datasets[reading.dataset];
  const next = index.q[row] + by;
  if (next < 0 || next >= data.questions.length) return;
  location.hash = address(data.name, data.models[reading.model].name, data.questions[next], index.t[row]);
}
function stepModel(by) {
  const next = reading.model + by;
  if (!reading.index || reading.row < 0 || !page.datasets[reading.dataset].models[next]?.side) return;
  location.hash = addressOf(reading.row, next);
}
const readerKeys = { j: () => step(1), k: () => step(-1), n: () => stepQuestion(1), p: () => stepQuestion(-1),
  m: () => stepModel(1), M: () => stepModel(-1), t: () => toggleHeat(), f: () => byId("by-outcome").focus(),
  Escape: () => { location.hash = address(tabs[overview].dataset.name); } };

if (page.readable) {
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("filters").addEventListener("reset", () => setTimeout(() => {
    const dataset = reading.dataset ?? 0;
    fill(byId("pick-dataset"), page.datasets.map((one) => one.name), dataset);
    fill(byId("pick-model"), page.datasets[dataset].models.map((one) => one.name), reading.model ?? 0);
    byId("pick-question").value = "-1";
    list();
  }));
  byId("pick-dataset").addEventListener("change", (event) => { location.hash = firstAddress(Number(event.target.value)); });
  byId("pick-model").addEventListener("change", (event) => {
    const data = page.datasets[reading.dataset ?? 0];
    const row = Math.max(reading.row, 0);
    const question = data.questions[reading.index?.q[row] ?? 0];
    location.hash = address(data.name, data.models[Number(event.target.value)].name, question, reading.index?.t[row] ?? 0);
  });
  byId("pick-question").addEventListener("change", (event) => {
    list();
    if (Number(event.target.value) >= 0 && reading.rows.length) location.hash = addressOf(reading.rows[0]);
  });
  for (const id of ["by-outcome", "by-agreement", "by-end", "least-bits", "most-bits"]) {
    byId(id).addEventListener("input", list);
  }
  byId("more").addEventListener("click", moreRows);
}
