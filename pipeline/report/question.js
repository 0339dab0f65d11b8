// One question: what all models answered, which attempts gave what, and each model's trials in a row.

const MOST_ANSWERS = 40; // that the histogram shows
const CELLS = 400; // of a model's row: of more trials some share a cell
const KINDS = ["good", "bad", "dim"];
const kindOf = (row) => (GLYPHS[textAt("outcome", row)] ?? ["·", "dim"])[1];

async function drawQuestion(token, question) {
  const { dataset } = reading;
  const data = page.datasets[dataset];
  const [first, end] = rowsOf(question);
  const rows = Array.from({ length: end - first }, (_, i) => first + i);
  const title = el("div", { class: "head" }, el("h3", { tabindex: -1 }, named(data.questions[question])),
    moves(["← Previous", "p", () => stepQuestion(-1)], ["Next →", "n", () => stepQuestion(1)]));
  const correct = rows.filter((row) => textAt("outcome", row) === "correct").length;
  const asked = [facts([["gold", rows.length ? gold(first) : null], ["correct", `${count(correct)} of ${count(rows.length)} attempts`]])];
  const source = data.models.findIndex(({ note }) => note === null);
  if (source >= 0) {
    try {
      const [prompts] = await Promise.all([side(`${dataset}-${source}-p`, soundTexts), side("katex", () => Boolean(window.katex?.render))]);
      if (reading.token !== token) return;
      asked.unshift(prose(prompts.rows[question]?.problem ?? ""));
    } catch (error) {
      if (reading.token !== token) return;
      asked.push(el("p", { role: "alert" }, error.message));
    }
  }
  showAttempt(title, card("Problem", ...asked), card("Answers", ...histogram(rows, question)), trialsCard(rows, data));
  document.title = `${data.questions[question]}, all answers`;
}

// Each answer with its grade: how many gave it, and how many of each model; a number lists them.
function histogram(rows, question) {
  const { models } = page.datasets[reading.dataset];
  const found = new Map();
  for (const row of rows) {
    const key = JSON.stringify([textAt("outcome", row), textAt("answer", row)]);
    if (!found.has(key)) found.set(key, { row, all: 0, of: models.map(() => 0) });
    found.get(key).all += 1;
    found.get(key).of[at("m", row)] += 1;
  }
  const answers = [...found.values()].sort((a, b) => b.all - a.all);
  const top = answers[0]?.all ?? 1;
  const lines = answers.slice(0, MOST_ANSWERS).map(({ row, all, of }) => {
    const [answer, outcome] = [textAt("answer", row), textAt("outcome", row)];
    const [glyph, kind] = GLYPHS[outcome] ?? ["·", "dim"];
    const query = new URLSearchParams({ ...(outcome && { outcome }), text: `=${answer ?? ""}` });
    const link = (number, model) => (number ? el("a", { href: questionAddress(question, model, query) }, count(number)) : "");
    const bar = el("span", { class: `bar ${kind}`, style: `width: ${(9 * all) / top}rem` });
    const head = el("th", { scope: "row", class: "text", title: answer }, el("span", { class: kind }, `${glyph} `),
      answer === null ? el("i", {}, words(outcome ?? "not graded")) : named(visible(answer)));
    return el("tr", { "aria-current": query.get("text") === reading.filters.get("text") ? "true" : null }, head,
      el("td", { class: "text" }, bar, " ", link(all, -1)), ...of.map((number, model) => el("td", {}, link(number, model))));
  });
  const heads = ["answer", "all", ...models.map(({ name }) => named(name))];
  const rest = answers.slice(MOST_ANSWERS);
  return [el("div", { class: "scroll" }, el("table", { class: "answers" },
    el("thead", {}, el("tr", {}, ...heads.map((head, i) => el("th", { scope: "col", class: i < 2 ? "text" : null }, head)))),
    el("tbody", {}, ...lines))),
  rest.length ? el("p", { class: "hint" }, `${count(rest.length)} rarer answers, of ${count(sum(rest.map(({ all }) => all)))} attempts, are in the list.`) : null];
}

// A row of cells for each model. What the filters leave out is pale.
function trialsCard(rows, data) {
  const most = rows.reduce((last, row) => Math.max(last, at("t", row)), 0) + 1;
  const width = Math.ceil(most / CELLS);
  const cells = data.models.map(() => []);
  for (const row of rows) (cells[at("m", row)][Math.floor(at("t", row) / width)] ??= []).push(row);
  const lines = cells.map((own, m) => {
    const all = own.flat();
    const right = all.filter((row) => kindOf(row) === "good").length;
    return el("tr", {}, el("th", { scope: "row" }, named(data.models[m].name)), el("td", {}, `${count(right)}/${count(all.length)}`),
      el("td", { class: "trials" }, ...Array.from(own, (group) => trialCell(group ?? []))));
  });
  const table = el("table", { class: "strips" }, el("tbody", {}, ...lines));
  table.querySelector(".trials a")?.setAttribute("tabindex", "0");
  table.addEventListener("keydown", (event) => {
    const [across, down] = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] }[event.key] ?? [];
    if (across === undefined || !event.target.closest(".trials")) return;
    event.preventDefault();
    const strips = [...table.querySelectorAll(".trials")];
    const strip = event.target.parentElement;
    const place = [...strip.children].indexOf(event.target) + across;
    rove(table, strips[strips.indexOf(strip) + down]?.children[place]);
  });
  const hint = width === 1 ? "A cell is a trial: Enter or a click opens it." : `A cell is ${width} trials: their shares from below; it opens the first of them.`;
  return card("Trials", el("p", { class: "hint" }, `${hint} Correct, wrong and without a valid answer, in their colours.`), el("div", { class: "scroll" }, table));
}

function trialCell(group) {
  if (!group.length) return el("span", { role: "img", "aria-label": "owed" });
  const kinds = group.map(kindOf);
  const [good, bad, dim] = KINDS.map((kind) => kinds.filter((one) => one === kind).length);
  const shown = group.find(passes);
  const row = shown ?? group[0];
  const label = group.length === 1 ? `trial ${at("t", row)}: ${words(textAt("outcome", row) ?? "not graded")}, ${visible(textAt("answer", row) ?? "no answer")}`
    : `trials ${at("t", group[0])} to ${at("t", group.at(-1))}: ${good} correct, ${bad} wrong, ${dim} without a valid answer`;
  return el("a", { href: addressOf(row), tabindex: -1, title: label, "aria-label": label, class: shown === undefined ? "pale" : null,
    style: `--g: ${(100 * good) / group.length}%; --b: ${(100 * (good + bad)) / group.length}%` });
}
