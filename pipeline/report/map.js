// The question map of a data set: one cell for each model and question.

function drawMap(panel, dataset) {
  const place = panel.querySelector(".map");
  if (!place || place.firstChild) return;
  const order = panel.querySelector(".map-order");
  const draw = () => place.replaceChildren(mapTable(page.datasets[dataset], order.value === "1"));
  order.addEventListener("change", draw);
  place.addEventListener("keydown", (event) => moveInMap(place, event));
  draw();
}

function share(data, model, question) {
  const graded = data.graded[model][question];
  return graded ? data.correct[model][question] / graded : null;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

function mapTable(data, hardestFirst) {
  const questions = data.questions.map((_, q) => q);
  if (hardestFirst) {
    const totals = questions.map((q) => sum(data.models.map((_, m) => share(data, m, q) ?? 0)));
    questions.sort((a, b) => totals[a] - totals[b]);
  }
  const correct = data.correct.map(sum);
  const models = data.models.map((_, m) => m).sort((a, b) => correct[b] - correct[a]);
  const head = el("tr", {}, el("th", { scope: "col", "aria-label": "model" }),
    ...questions.map((q) => el("th", { scope: "col" }, el("span", {}, named(data.questions[q])))));
  const rows = models.map((m) => el("tr", {},
    el("th", { scope: "row" }, named(data.models[m].name)), ...questions.map((q) => mapCell(data, m, q))));
  const table = el("table", { "aria-label": `Share of correct attempts, ${data.name}` },
    el("thead", {}, head), el("tbody", {}, ...rows));
  table.querySelector("tbody a")?.setAttribute("tabindex", "0");
  return table;
}

function mapCell(data, m, q) {
  const { name, side } = data.models[m];
  const percent = Math.round(100 * share(data, m, q));
  const label = `${name}, ${data.questions[q]}: ${data.correct[m][q]} of ${data.graded[m][q]} correct`;
  const opens = side ? { tabindex: -1, href: address(data.name, name, data.questions[q], 0) } : { role: "img" };
  const cell = el(side ? "a" : "span", { title: label, "aria-label": label, ...opens },
    data.graded[m][q] ? String(percent) : "–");
  if (side) {
    cell.addEventListener("click", () => {
      Object.assign(reading, { cell, entering: true });
      rove(cell.closest(".map"), cell);
    });
  }
  cell.style.setProperty("--share", String(percent));
  return el("td", {}, cell);
}

function moveInMap(place, event) {
  const step = { ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] }[event.key];
  const cell = event.target.closest("td");
  if (!step || !cell) return;
  event.preventDefault();
  const row = place.querySelector("tbody").rows[cell.parentElement.sectionRowIndex + step[0]];
  rove(place, row?.cells[cell.cellIndex + step[1]]?.querySelector("a"));
}
