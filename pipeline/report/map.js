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
