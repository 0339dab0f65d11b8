// One attempt: verdicts, signals, categories, prompt and response.

// Whether all of it is there; what has a fault is tried again.
async function drawAttempt(token) {
  const { row, dataset } = reading;
  const { models, questions } = page.datasets[dataset];
  const [m, q, t, file] = ["m", "q", "t", "file"].map((name) => at(name, row));
  const name = `${dataset}-${m}`;
  const parts = [];
  let [more, sound] = [null, true];
  try {
    more = await side(`${dataset}-d${fileOf(row)}`, soundMore);
    if (reading.token !== token) return false;
    parts.push(attemptHead(models[m].name, questions[q], t), attemptCards(more, row));
    if (file < 0) {
      const reason = models[m].note ?? "No text of this attempt is here: the report was made without it.";
      parts.push(el("section", {}, el("p", { class: "hint" }, reason)));
    } else {
      const [texts, prompts] = await Promise.all([side(`${name}-${file}`, soundTexts),
        side(`${name}-p`, soundTexts), library()]);
      if (reading.token !== token) return false;
      if (!texts.rows[`${q}/${t}`] || !prompts.rows[q]) throw new Error(page.single || `The texts of ${name} are damaged: this attempt is not among them.`);
      parts.push(...textParts(texts.rows[`${q}/${t}`], prompts.rows[q], models[m].reasoning_end, row));
    }
  } catch (error) {
    if (reading.token !== token) return false;
    sound = false;
    parts.push(el("section", {}, el("p", { role: "alert" }, error.message)));
  }
  if (more) parts.push(rubricCard(more, row % page.rows));
  showAttempt(...parts);
  document.title = `${models[m].name}, ${questions[q]}, trial ${t}`;
  return sound;
}

// The focus is never lost: it goes to the heading when an attempt was opened from the map, or what
// held it is made anew.
function showAttempt(...parts) {
  const place = byId("attempt");
  const focused = place.contains(document.activeElement) ? document.activeElement : null;
  place.replaceChildren(...parts);
  if (!focused && !reading.entering) return;
  const same = [...place.querySelectorAll("button")].find((button) => button.title && button.title === focused?.title);
  (same ?? place.querySelector("h3")).focus({ preventScroll: !reading.entering });
  reading.entering = false;
}

const moves = (...buttons) => el("div", { class: "moves" }, ...buttons.map(([label, key, move]) => {
  const button = el("button", { type: "button", title: `key ${key}` }, label);
  button.addEventListener("click", move);
  return button;
}));

function attemptHead(model, question, trial) {
  const link = el("a", { href: addressOf(-1, at("q", reading.row), null, {}), title: "All answers to this question (key q)" }, named(question));
  return el("div", { class: "head" }, el("h3", { tabindex: -1 }, named(model), " · ", link, ` · trial ${trial}`),
    moves(["← Previous", "k", () => step(-1)], ["Next →", "j", () => step(1)]));
}

const card = (label, ...children) => el("section", { "aria-label": label }, el("h3", {}, label), ...children);

function facts(pairs) {
  return el("dl", {}, ...pairs.filter(([, value]) => value !== null && value !== "")
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

const gold = (row) => reading.files[fileOf(row)].gold?.[at("q", row)] ?? null;

function attemptCards(more, row) {
  const place = row % page.rows;
  const outcome = textAt("outcome", row) ?? "not graded";
  const [glyph, kind] = GLYPHS[outcome] ?? ["·", "dim"];
  const box = coded(more.box, place);
  const grader = card("Grader", el("p", { class: `verdict ${kind}` }, `${glyph} ${words(outcome)}`), facts([
    ["answer", textAt("answer", row)], ["gold", gold(row)],
    ["box", box === null ? null : words(box)], ["decided by", coded(more.layer, place)], ["reason", coded(more.reason, place)]]));
  const yes = (known, value) => (known ? (value ? "yes" : "no") : "–");
  const signals = card("Signals", facts([
    ["has box", yes(box !== null, box === "boxed")], ["is correct", yes(outcome !== "not graded", outcome === "correct")],
    ["tokens", fixed(at("tokens", row), 0)], ["token ratio", fixed(more.ratio[place], 4)],
    ["repeated pattern", yes(at("cut", row) !== null, at("cut", row))],
    ["bits per token, prompt", fixed(more.prompt_bits[place], 3)],
    ["bits per token, completion", fixed(at("bits", row), 3)], ["seconds", fixed(more.seconds[place], 1)]]));
  return el("div", { class: "cards" }, grader, verifierCard(more, row), signals);
}

function verifierCard(more, row) {
  const label = verifierSays(row);
  if (label === null) return card("Verifier", el("p", { class: "hint" }, "No verdict of a verifier."));
  const [verdict, kind] = { A: ["✓ correct", "good"], B: ["✗ incorrect", "bad"], C: ["∅ invalid", "dim"] }[label];
  const raw = ["log_a", "log_b", "log_c"].map((name) => more[name][row % page.rows]).map((log) => (log === null ? null : Math.exp(log)));
  const total = raw.includes(null) ? null : sum(raw);
  const heads = ["label", "raw", "direct", "calibrated"].map((head, i) => el("th", { scope: "col", class: i ? null : "text" }, head));
  const lines = ["A correct", "B incorrect", "C invalid"].map((name, i) => el("tr", {}, el("th", { scope: "row" }, name),
    ...[raw[i], total ? raw[i] / total : null, at("abc"[i], row)].map((number) => el("td", {}, fixed(number, 3)))));
  return card("Verifier", el("p", { class: `verdict ${kind}` }, verdict),
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...lines)),
    fits("differ", agreement(row)) ? el("p", { class: "bad" }, "Disagrees with the grader.") : null);
}

function rubricCard({ rubrics = [] }, place) {
  const items = rubrics.map(({ title, names, weights, codes }) => {
    const category = codes[place] < 0 ? "–" : `${words(names[codes[place]])} (${weights[codes[place]]})`;
    return el("div", {}, el("dt", {}, title), el("dd", {}, category));
  });
  const body = items.length ? el("dl", {}, ...items) : el("p", { class: "hint" }, "No categories: run “categorize”.");
  return el("section", { class: "rubrics", "aria-label": "Categories" }, el("h3", {}, "Category under each rubric (weight)"), body);
}

// The final answer, with options as the attempt saw them.
function answerSeen(row, order) {
  const answer = textAt("answer", row);
  const place = answer ? order.split(" ").indexOf(answer) : -1;
  return place < 0 ? answer : String.fromCharCode(65 + place);
}

function textParts(text, prompted, marker, row) {
  const [response, question] = [text, prompted].map(withLengths);
  const answer = answerSpan(response.text, answerSeen(row, response.order), marker);
  const [, kind] = GLYPHS[textAt("outcome", row)] ?? ["·", "dim"];
  const box = el("div", { "data-kind": kind });
  const [readout, promptReadout] = [readoutLine(), readoutLine()];
  const swatches = EDGES.map((edge, i) => el("span", {}, el("span", { class: `swatch h${i + 1}` }), ` ≥ ${edge}`));
  const legend = el("div", { class: "legend" }, "bits:", ...swatches, readout);
  const buttons = ["Text", "Token heat"].map((label) => el("button", { type: "button" }, label));
  reading.redraw = () => {
    const hot = heat && response.lengths !== null;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(hot === Boolean(i))));
    legend.hidden = !hot;
    box.replaceChildren(...(hot ? [heated({ ...response, answer }, readout)] : folded(response, answer, marker)));
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => setHeat(Boolean(i))));
  buttons[1].disabled = response.lengths === null;
  reading.redraw();
  const missing = response.lengths === null && response.levels
    ? el("p", { class: "hint" }, "The model's tokenizer was not at hand, or does not give this text: log-probs are shown by position.") : null;
  const prompt = question.lengths === null ? [prose(question.prompt)]
    : [heated({ ...question, text: question.prompt }, promptReadout), el("div", { class: "legend" }, promptReadout)];
  const summary = response.order
    ? `The prompt, with options as in the data set; this attempt saw them in the order ${response.order}`
    : "The exact prompt";
  return [
    card("Problem", prose(question.problem),
      el("details", {}, el("summary", {}, summary), ...prompt)),
    el("section", { "aria-label": "Response" }, el("div", { class: "head" }, el("h3", {}, "Response"),
      el("div", { class: "moves" }, answer && moves(["↓ Answer", "a", toAnswer]),
        el("div", { class: "switch", role: "group", "aria-label": "How to show the response" }, ...buttons))),
    legend, box, missing, strip(response, box))];
}
