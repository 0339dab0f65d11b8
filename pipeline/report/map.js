// The question map of a data set: one cell for each model and question.

function drawMap(dataset) {
  const place = document.querySelector(`.map[data-dataset="${dataset}"]`);
  if (!place || place.firstChild) return;
  const order = place.parentElement.querySelector(".map-order");
  const draw = () => place.replaceChildren(mapTable(dataset, order.value === "1"));
  order.addEventListener("change", draw);
  place.addEventListener("keydown", (event) => moveInMap(place, event));
  draw();
}

function share(data, model, question) {
  const graded = data.graded[model][question];
  return graded ? data.correct[model][question] / graded : null;
}

function mapTable(dataset, hardestFirst) {
  const data = page.datasets[dataset];
  const questions = data.questions.map((_, q) => q);
  if (hardestFirst) {
    const total = (q) => data.models.reduce((sum, _, m) => sum + (share(data, m, q) ?? 0), 0);
    const totals = questions.map(total);
    questions.sort((a, b) => totals[a] - totals[b]);
  }
  const head = el("tr", {}, el("th", { scope: "col" }, el("span", { class: "hidden" }, "model")),
    ...questions.map((q) => el("th", { scope: "col" }, el("span", {}, named(data.questions[q])))));
  const correct = data.correct.map((row) => row.reduce((sum, one) => sum + one, 0));
  const models = data.models.map((_, m) => m).sort((a, b) => correct[b] - correct[a]);
  const rows = models.map((m) => el("tr", {},
    el("th", { scope: "row" }, named(data.models[m].name)), ...questions.map((q) => mapCell(data, m, q))));
  const made = el("table", { "aria-label": visible(`Share of correct attempts, ${data.name}`) },
    el("thead", {}, head), el("tbody", {}, ...rows));
  const first = made.querySelector("tbody a");
  if (first) first.tabIndex = 0;
  return made;
}

function mapCell(data, m, q) {
  const found = share(data, m, q);
  const model = data.models[m];
  const counts = `${data.correct[m][q]} of ${data.graded[m][q]} correct`;
  const label = visible(`${model.name}, ${data.questions[q]}: ${counts}`);
  const text = found === null ? "–" : String(Math.round(100 * found));
  const attributes = { title: label, "aria-label": label };
  const made = model.side
    ? el("a", { ...attributes, tabindex: -1, href: address(data.name, model.name, data.questions[q], 0) }, text)
    : el("span", { ...attributes, role: "img" }, text);
  if (model.side) {
    made.addEventListener("click", () => {
      Object.assign(reading, { only: q, cell: made, entering: true });
      rove(made);
    });
  }
  made.style.setProperty("--share", String(Math.round(100 * (found ?? 0))));
  return el("td", {}, made);
}

// Tab reaches one cell of a map; arrows move it.
function rove(cell) {
  for (const one of cell.closest("table").querySelectorAll("a[tabindex='0']")) one.tabIndex = -1;
  cell.tabIndex = 0;
}

function moveInMap(place, event) {
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  const cell = document.activeElement?.closest("td");
  if (!step || !cell || !place.contains(cell)) return;
  event.preventDefault();
  const rows = place.querySelector("tbody").rows;
  const row = rows[cell.parentElement.sectionRowIndex + step[0]];
  const next = row?.cells[cell.cellIndex + step[1]]?.querySelector("a");
  if (!next) return;
  rove(next);
  next.focus();
}
