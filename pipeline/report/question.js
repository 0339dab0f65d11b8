// One question: what all models answered, which attempts gave what, and each model's trials in a row.

const MOST_ANSWERS = 20; // that the histogram shows
const CELLS = 200; // of a model's row: of more trials some share a cell

async function drawQuestion(token, question) {
  const { dataset } = reading;
  const data = page.datasets[dataset];
  const [first, end] = rowsOf(question);
  const rows = Array.from({ length: end - first }, (_, i) => first + i);
  const correct = rows.filter((row) => textAt("outcome", row) === "correct").length;
  const asked = [facts([["gold", rows.length ? gold(first) : null], ["correct", `${count(correct)} of ${count(rows.length)} attempts`]])];
  const source = data.models.findIndex(({ note }) => note === null);
  try {
    const [prompts] = source < 0 ? [] : await Promise.all([side(`${dataset}-${source}-p`, soundTexts), library()]);
    if (prompts) asked.unshift(prose(prompts.rows[question]?.problem ?? ""));
  } catch (error) {
    asked.push(el("p", { role: "alert" }, error.message));
  }
  if (reading.token !== token) return false;
  showAttempt(el("div", { class: "head" }, el("h3", { tabindex: -1 }, named(data.questions[question])),
    moves(["← Previous", "p", () => stepAside(0, -1)], ["Next →", "n", () => stepAside(0, 1)])),
  card("Problem", ...asked), card("Answers", ...histogram(rows, question, data)), card("Trials", ...strips(rows, data)));
  document.title = `${data.questions[question]}, all answers`;
  return true;
}

// Each answer with its grade: how many gave it, and how many of each model; a number lists them.
function histogram(rows, question, { models }) {
  const found = new Map();
  for (const row of rows) {
    const key = JSON.stringify([textAt("outcome", row), textAt("answer", row)]);
    if (!found.has(key)) found.set(key, { row, all: 0, of: models.map(() => 0) });
    found.get(key).all += 1;
    found.get(key).of[at("m", row)] += 1;
  }
  const answers = [...found.values()].sort((a, b) => b.all - a.all);
  const lines = answers.slice(0, MOST_ANSWERS).map(({ row, all, of }) => {
    const [answer, outcome] = [textAt("answer", row), textAt("outcome", row)];
    const [glyph, kind] = GLYPHS[outcome] ?? ["·", "dim"];
    const wanted = { outcome, text: `=${answer ?? ""}` };
    const cell = (number, model, ...bar) => el("td", { class: bar.length ? "text" : null }, ...bar,
      number ? el("a", { href: addressOf(model, question, null, wanted) }, count(number)) : "");
    return el("tr", { "aria-current": wanted.text === reading.wanted.text ? "true" : null },
      el("th", { scope: "row", class: "text", title: answer }, el("span", { class: kind }, `${glyph} `),
        answer === null ? el("i", {}, words(outcome ?? "not graded")) : named(visible(answer))),
      cell(all, -1, el("span", { class: `bar ${kind}`, style: `width: ${(9 * all) / answers[0].all}rem` }), " "), ...of.map((number, model) => cell(number, model)));
  });
  const heads = ["answer", "all", ...models.map(({ name }) => name)].map((head, i) => el("th", { scope: "col", class: i < 2 ? "text" : null, title: i < 2 ? null : head }, named(head)));
  const rest = answers.slice(MOST_ANSWERS);
  return [el("div", { class: "scroll" }, el("table", { class: "answers" }, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...lines))),
    rest.length ? el("p", { class: "hint" }, `${count(rest.length)} rarer answers, of ${count(sum(rest.map(({ all }) => all)))} attempts, are in the list.`) : null];
}

// A row of cells for each model. What the filters leave out is pale.
function strips(rows, data) {
  const width = Math.ceil((rows.reduce((last, row) => Math.max(last, at("t", row)), 0) + 1) / CELLS);
  const cells = data.models.map(() => []);
  for (const row of rows) (cells[at("m", row)][Math.floor(at("t", row) / width)] ??= []).push(row);
  const body = el("tbody", {}, ...cells.map((own, m) => el("tr", {}, el("th", { scope: "row", title: data.models[m].name }, named(data.models[m].name)),
    ...Array.from(own, (group) => el("td", {}, group ? trialCell(group) : null)))));
  body.querySelector("a")?.setAttribute("tabindex", "0");
  const table = el("table", { class: "strips" }, body);
  table.addEventListener("keydown", (event) => moveInMap(table, event));
  return [el("p", { class: "hint" }, `A cell is ${width === 1 ? "a trial" : `${width} trials, with their shares from below, and opens the first of them`}: `,
    ...["correct", "wrong", "without a valid answer"].flatMap((name, i) => [el("span", { class: `bar ${["good", "bad", "dim"][i]}` }), ` ${name} `])),
  el("div", { class: "scroll" }, table)];
}

function trialCell(group) {
  const kinds = group.map((row) => (GLYPHS[textAt("outcome", row)] ?? ["·", "dim"])[1]);
  const [good, bad] = ["good", "bad"].map((kind) => kinds.filter((one) => one === kind).length);
  const shown = group.find(passes);
  const row = shown ?? group[0];
  const label = group.length === 1 ? `trial ${at("t", row)}: ${words(textAt("outcome", row) ?? "not graded")}, ${visible(textAt("answer", row) ?? "no answer")}`
    : `trials ${at("t", group[0])} to ${at("t", group.at(-1))}: ${good} correct, ${bad} wrong, ${group.length - good - bad} without a valid answer`;
  return el("a", { href: rowAddress(row), tabindex: -1, title: label, "aria-label": label, class: shown === undefined ? "pale" : null,
    style: `--g: ${(100 * good) / group.length}%; --b: ${(100 * (good + bad)) / group.length}%` });
}
