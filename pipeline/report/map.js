// Models by questions: a cell for each, the hardest question first, in as many lines as fit.

const [WIDE, NARROW] = [26, 3]; // pixels of a cell with a number, and of one without, at least
const TALL = 700; // pixels that cells with numbers may take

function drawMap(panel, dataset) {
  const place = panel.querySelector(".map");
  if (!place || place.firstChild) return;
  const order = panel.querySelector(".map-order");
  const data = page.datasets[dataset];
  let drawn = "";
  const draw = () => {
    const { columns, bare } = mapSize(data, place);
    const size = [columns, bare, order.value].join();
    if (size === drawn || !place.clientWidth) return;
    drawn = size;
    place.classList.toggle("bare", bare);
    place.replaceChildren(...mapTables(data, columns, order.value === "1"));
    place.querySelector("tbody a")?.setAttribute("tabindex", "0");
  };
  order.addEventListener("change", draw);
  place.addEventListener("keydown", (event) => moveInMap(place, event));
  for (const [kind, shown] of [["pointerover", true], ["focusin", true], ["pointerout", false], ["focusout", false]]) {
    place.addEventListener(kind, (event) => tell(data, shown && event.target.closest("[data-q]")));
  }
  // After what stands above it is painted: of 10,000 cells it takes a while.
  new ResizeObserver(() => setTimeout(draw)).observe(place);
}

// How many columns a line has, all lines about as long, and whether cells go without a number.
function mapSize(data, place) {
  const names = parseFloat(getComputedStyle(place).getPropertyValue("--names")) * 16;
  const across = (least) => Math.max(1, Math.floor((place.clientWidth - names) / least));
  const lines = (least) => Math.ceil(data.questions.length / across(least));
  const bare = lines(WIDE) > 1 && lines(WIDE) * (data.models.length + 4) * WIDE > TALL;
  return { bare, columns: Math.ceil(data.questions.length / lines(bare ? NARROW : WIDE)) };
}

function share(data, model, question) {
  const graded = data.graded[model][question];
  return graded ? data.correct[model][question] / graded : null;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const mean = (numbers) => sum(numbers) / Math.max(numbers.length, 1);

function mapTables(data, columns, hardestFirst) {
  const all = (q) => mean(data.models.map((_, m) => share(data, m, q)).filter((one) => one !== null));
  const questions = data.questions.map((_, q) => q);
  const means = questions.map(all);
  if (hardestFirst) questions.sort((a, b) => means[a] - means[b]);
  const scores = data.models.map((_, m) => mean(questions.map((q) => share(data, m, q) ?? 0)));
  const models = data.models.map((_, m) => m).sort((a, b) => scores[b] - scores[a]);
  const tables = [];
  for (let at = 0; at < questions.length; at += columns) {
    const some = questions.slice(at, at + columns);
    const row = (name, cells) => el("tr", {}, el("th", { scope: "row", title: name }, named(name)), ...cells);
    const head = el("tr", {}, el("th", { scope: "col", "aria-label": "model" }),
      ...some.map((q) => el("th", { scope: "col", "data-q": q },
        el("a", { href: address(data.name, "", data.questions[q]), tabindex: -1 }, named(data.questions[q])))));
    const every = row("mean of all", some.map((q) => cellOf(means[q], el("span", { "data-q": q }))));
    const rows = models.map((m) => row(data.models[m].name, some.map((q) => mapCell(data, m, q))));
    const table = el("table", { "aria-label": `Share of correct attempts, ${data.name}` },
      el("thead", {}, head), el("tbody", {}, ...(models.length > 1 ? [every] : []), ...rows));
    table.style.setProperty("--columns", String(columns));
    table.style.setProperty("--own", String(some.length));
    tables.push(table);
  }
  return tables;
}

function cellOf(part, cell) {
  cell.append(part === null ? "–" : String(Math.round(100 * part)));
  cell.style.setProperty("--share", String(Math.round(100 * part)));
  return el("td", {}, cell);
}

function mapCell(data, m, q) {
  const { name, side } = data.models[m];
  const label = `${name}, ${data.questions[q]}: ${data.correct[m][q]} of ${data.graded[m][q]} correct`;
  const opens = side ? { tabindex: -1, href: address(data.name, name, data.questions[q], 0) } : { role: "img" };
  const cell = el(side ? "a" : "span", { "aria-label": label, "data-q": q, ...opens });
  if (side) {
    cell.addEventListener("click", () => {
      reading.cell = cell;
      rove(cell.closest(".map"), cell);
    });
  }
  return cellOf(share(data, m, q), cell);
}

// What a cell is, and how its question begins, beside the cell that is pointed at or has the focus.
function tell(data, cell) {
  const tip = byId("tip");
  tip.hidden = !cell;
  if (!cell) return;
  const q = Number(cell.dataset.q);
  tip.replaceChildren(el("b", {}, cell.getAttribute("aria-label") ?? data.questions[q]), el("span", { dir: "auto" }, data.asked[q] ?? ""));
  const box = cell.getBoundingClientRect();
  const [wide, high] = [tip.offsetWidth, tip.offsetHeight];
  tip.style.left = `${Math.max(4, Math.min(box.left, innerWidth - wide - 12))}px`;
  tip.style.top = `${box.bottom + 6 + high > innerHeight ? box.top - high - 6 : box.bottom + 6}px`;
  cell.setAttribute("aria-describedby", "tip");
}

function moveInMap(place, event) {
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
  rove(place, beside ?? (step[1] && next?.cells[step[1] > 0 ? 1 : next.cells.length - 1].querySelector("a")));
}
