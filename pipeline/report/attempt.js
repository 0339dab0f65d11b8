// One attempt: verdicts, signals, categories, prompt and response.

async function drawAttempt(token) {
  const { index, row, dataset, model } = reading;
  const data = page.datasets[dataset];
  const name = `${dataset}-${model}`;
  const parts = [attemptHead(data), attemptCards(index, row)];
  if (index.file[row] < 0) {
    const reason = data.models[model].note ?? "No text of this attempt is here: the report was made without it.";
    parts.push(el("section", {}, el("p", { class: "hint" }, reason)));
  } else {
    try {
      const [texts, prompts] = await Promise.all([side(`${name}-${index.file[row]}`, soundTexts),
        side(`${name}-p`, soundTexts), side("katex", () => Boolean(window.katex?.render))]);
      if (reading.token !== token) return;
      if (!texts.rows[row] || !prompts.rows[index.q[row]]) throw new Error(`The texts of ${name} are damaged: this attempt is not among them.`);
      parts.push(...textParts(texts, prompts, index, row));
    } catch (error) {
      if (reading.token !== token) return;
      parts.push(el("section", {}, el("p", { role: "alert" }, error.message)));
    }
  }
  parts.push(rubricCard(index, row));
  showAttempt(...parts);
  document.title = `${data.models[model].name}, ${data.questions[index.q[row]]}, trial ${index.t[row]}`;
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

function attemptHead(data) {
  const { index, row, model } = reading;
  const move = (label, key, by) => {
    const button = el("button", { type: "button", title: `key ${key}` }, label);
    button.addEventListener("click", () => step(by));
    return button;
  };
  return el("div", { class: "head" },
    el("h3", { tabindex: -1 }, named(data.models[model].name), " · ", named(data.questions[index.q[row]]), ` · trial ${index.t[row]}`),
    el("div", { class: "moves" }, move("← Previous", "k", -1), move("Next →", "j", 1)));
}

const card = (label, ...children) => el("section", { "aria-label": label }, el("h3", {}, label), ...children);

function facts(pairs) {
  return el("dl", {}, ...pairs.filter(([, value]) => value !== null && value !== "")
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function attemptCards(index, row) {
  const outcome = coded(index.outcome, row) ?? "not graded";
  const [glyph, kind] = GLYPHS[outcome] ?? ["·", "dim"];
  const box = coded(index.box, row);
  const grader = card("Grader", el("p", { class: `verdict ${kind}` }, `${glyph} ${words(outcome)}`), facts([
    ["answer", index.answer ? coded(index.answer, row) : null], ["gold", index.gold?.[index.q[row]] ?? null],
    ["box", box === null ? null : words(box)], ["decided by", coded(index.layer, row)], ["reason", coded(index.reason, row)]]));
  const yes = (known, value) => (known ? (value ? "yes" : "no") : "–");
  const signals = card("Signals", facts([
    ["has box", yes(box !== null, box === "boxed")], ["is correct", yes(outcome !== "not graded", outcome === "correct")],
    ["tokens", fixed(index.tokens[row], 0)], ["token ratio", fixed(index.ratio[row], 4)],
    ["repeated pattern", yes(index.cut[row] !== null, index.cut[row])],
    ["bits per token, prompt", fixed(index.prompt_bits[index.q[row]], 3)],
    ["bits per token, completion", fixed(index.bits[row], 3)], ["seconds", fixed(index.seconds[row], 1)]]));
  return el("div", { class: "cards" }, grader, verifierCard(index, row), signals);
}

function verifierCard(index, row) {
  const label = verifierSays(index, row);
  if (label === null) return card("Verifier", el("p", { class: "hint" }, "No verdict of a verifier."));
  const [verdict, kind] = { A: ["✓ correct", "good"], B: ["✗ incorrect", "bad"], C: ["∅ invalid", "dim"] }[label];
  const raw = ["log_a", "log_b", "log_c"].map((name) => (index[name][row] === null ? null : Math.exp(index[name][row])));
  const total = raw.includes(null) ? null : sum(raw);
  const heads = ["label", "raw", "direct", "calibrated"].map((head, i) => el("th", { scope: "col", class: i ? null : "text" }, head));
  const lines = ["A correct", "B incorrect", "C invalid"].map((name, i) => el("tr", {}, el("th", { scope: "row" }, name),
    ...[raw[i], total ? raw[i] / total : null, index["abc"[i]][row]].map((number) => el("td", {}, fixed(number, 3)))));
  const outcome = coded(index.outcome, row);
  const differs = outcome !== null && (outcome === "correct") !== (label === "A");
  return card("Verifier", el("p", { class: `verdict ${kind}` }, verdict),
    el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...lines)),
    differs ? el("p", { class: "bad" }, "Disagrees with the grader.") : null);
}

function rubricCard(index, row) {
  const items = index.rubrics.map(({ title, names, weights, codes }) => {
    const category = codes[row] < 0 ? "–" : `${words(names[codes[row]])} (${weights[codes[row]]})`;
    return el("div", {}, el("dt", {}, title), el("dd", {}, category));
  });
  const body = items.length ? el("dl", {}, ...items) : el("p", { class: "hint" }, "No categories: run “categorize”.");
  return el("section", { class: "rubrics", "aria-label": "Categories" }, el("h3", {}, "Category under each rubric (weight)"), body);
}

// A text with its mathematics drawn, where `spans` says, and its answer marked.
function prose(text, spans, answer = null) {
  const paragraph = el("p", { class: "prose", dir: "auto" });
  const [from, to] = answer ?? [0, 0];
  const add = (start, end, content) => {
    if (start < end) paragraph.append(start < to && end > from ? el("mark", {}, content) : content);
  };
  const addPlain = (start, end) => {
    const cuts = [start, ...[from, to].map((cut) => Math.min(Math.max(cut, start), end)), end];
    for (let i = 0; i < 3; i += 1) add(cuts[i], cuts[i + 1], text.slice(cuts[i], cuts[i + 1]));
  };
  let at = 0;
  for (const [start, end, source, display] of spans) {
    addPlain(at, start);
    add(start, end, math(text.slice(start, end), source, display));
    at = end;
  }
  addPlain(at, text.length);
  return paragraph;
}

// The final answer, with options as the attempt saw them.
function answerSeen(index, row, order) {
  const answer = index.answer && coded(index.answer, row);
  const place = answer ? order.split(" ").indexOf(answer) : -1;
  return place < 0 ? answer : String.fromCharCode(65 + place);
}

function textParts(texts, prompts, index, row) {
  const [response, question] = [texts.rows[row], prompts.rows[index.q[row]]].map(withLengths);
  const [spans, answer] = responseSpans(response.text, answerSeen(index, row, response.order), index.reasoning_end);
  const box = el("div");
  const [readout, promptReadout] = [readoutLine(), readoutLine()];
  const swatches = EDGES.map((edge, i) => el("span", {}, el("span", { class: `swatch h${i + 1}` }), ` ≥ ${edge}`));
  const legend = el("div", { class: "legend" }, "bits:", ...swatches, readout);
  const buttons = ["Text", "Token heat"].map((label) => el("button", { type: "button" }, label));
  reading.redraw = () => {
    const hot = heat && response.lengths !== null;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(hot === Boolean(i))));
    legend.hidden = !hot;
    box.replaceChildren(hot ? heated({ ...response, answer }, readout) : prose(response.text, spans, answer));
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => setHeat(Boolean(i))));
  buttons[1].disabled = response.lengths === null;
  reading.redraw();
  const missing = response.lengths === null && response.levels
    ? el("p", { class: "hint" }, "The model's tokenizer was not at hand, or does not give this text: log-probs are shown by position.") : null;
  const prompt = question.lengths === null ? [prose(question.prompt, [])]
    : [heated({ ...question, text: question.prompt }, promptReadout), el("div", { class: "legend" }, promptReadout)];
  const summary = response.order
    ? `The prompt, with options as in the data set; this attempt saw them in the order ${response.order}`
    : "The exact prompt";
  return [
    card("Problem", prose(question.problem, spansOf(question.problem)),
      el("details", {}, el("summary", {}, summary), ...prompt)),
    el("section", { "aria-label": "Response" }, el("div", { class: "head" }, el("h3", {}, "Response"),
      el("div", { class: "switch", role: "group", "aria-label": "How to show the response" }, ...buttons)),
    legend, box, missing, strip(response, box))];
}
