// One attempt: verdicts, signals, categories, prompt and response.

async function drawAttempt(token) {
  const { index, row, dataset, model } = reading;
  const data = page.datasets[dataset];
  const name = `${dataset}-${model}`;
  const parts = [attemptHead(data), attemptCards(index, row)];
  if (index.file[row] < 0) {
    const why = data.models[model].note ?? "No text of this attempt is here: the report was made without it.";
    parts.push(el("section", {}, el("p", { class: "hint" }, why)));
  } else {
    try {
      const [texts, prompts] = await Promise.all(
        [`${name}-${index.file[row]}`, `${name}-p`].map((one) => side(one, soundTexts)));
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
  document.title = visible(`${data.models[model].name}, ${data.questions[index.q[row]]}, trial ${index.t[row]}`);
}

// The focus is never lost: it goes to the heading when an attempt was opened from the map, or what
// held it is made anew.
function showAttempt(...parts) {
  const place = byId("attempt");
  const held = place.contains(document.activeElement) ? document.activeElement : null;
  place.replaceChildren(...parts);
  if (!held && !reading.entering) return;
  const same = held?.title ? [...place.querySelectorAll("button")].find((one) => one.title === held.title) : null;
  (same ?? place.querySelector("h3")).focus({ preventScroll: !reading.entering });
  reading.entering = false;
}

function attemptHead(data) {
  const { index, row, model } = reading;
  const move = (label, key, action) => {
    const button = el("button", { type: "button", title: `key ${key}` }, label);
    button.addEventListener("click", action);
    return button;
  };
  return el("div", { class: "head" },
    el("h3", { tabindex: -1 }, named(data.models[model].name), " · ", named(data.questions[index.q[row]]), ` · trial ${index.t[row]}`),
    el("div", { class: "moves" }, move("← Previous", "k", () => step(-1)), move("Next →", "j", () => step(1))));
}

function facts(pairs) {
  return el("dl", {}, ...pairs.filter(([, value]) => value !== null && value !== "")
    .flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
}

function attemptCards(index, row) {
  const outcome = coded(index.outcome, row) ?? "not graded";
  const [glyph, kind] = GLYPHS[outcome] ?? ["·", "dim"];
  const box = coded(index.box, row);
  const grader = el("section", { "aria-label": "Grader" }, el("h3", {}, "Grader"),
    el("p", { class: `verdict ${kind}` }, `${glyph} ${words(outcome)}`),
    facts([["answer", index.answer ? coded(index.answer, row) : null], ["gold", index.gold?.[index.q[row]] ?? null],
      ["box", box === null ? null : words(box)], ["decided by", coded(index.layer, row)], ["reason", coded(index.reason, row)]]));
  const number = (name, digits) => (index[name] ? fixed(index[name][row], digits) : "–");
  const yes = (value) => (value === null ? "–" : value ? "yes" : "no");
  const signals = el("section", { "aria-label": "Signals" }, el("h3", {}, "Signals"), facts([
    ["has box", box === null ? "–" : yes(box === "boxed")], ["is correct", outcome === "not graded" ? "–" : yes(outcome === "correct")],
    ["tokens", index.tokens[row] === null ? "–" : String(index.tokens[row])], ["token ratio", number("ratio", 4)],
    ["repeated pattern", yes(index.cut[row])], ["bits per token, prompt", fixed(index.prompt_bits[index.q[row]], 3)],
    ["bits per token, completion", number("bits", 3)], ["seconds", index.seconds ? number("seconds", 1) : null]]));
  return el("div", { class: "cards" }, grader, verifierCard(index, row), signals);
}

function verifierCard(index, row) {
  const label = verifierSays(index, row);
  const body = [];
  if (label === null) body.push(el("p", { class: "hint" }, "No verdict of a verifier."));
  else {
    const judged = { A: ["✓ correct", "good"], B: ["✗ incorrect", "bad"], C: ["∅ invalid", "dim"] }[label];
    body.push(el("p", { class: `verdict ${judged[1]}` }, judged[0]));
    const logs = ["log_a", "log_b", "log_c"].map((name) => index[name][row]);
    const raw = logs.map((x) => (x === null ? null : Math.exp(x)));
    const total = raw.includes(null) ? null : raw.reduce((sum, x) => sum + x, 0);
    const direct = raw.map((x) => (total ? x / total : null));
    const line = (name, i) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, fixed(raw[i], 3)),
      el("td", {}, fixed(direct[i], 3)), el("td", {}, fixed(index["abc"[i]][row], 3)));
    body.push(el("table", {}, el("thead", {}, el("tr", {}, ...["label", "raw", "direct", "calibrated"].map((one, i) =>
      el("th", { scope: "col", class: i ? null : "text" }, one)))),
    el("tbody", {}, line("A correct", 0), line("B incorrect", 1), line("C invalid", 2))));
    const outcome = coded(index.outcome, row);
    if (outcome !== null && (outcome === "correct") !== (label === "A")) body.push(el("p", { class: "bad" }, "Disagrees with the grader."));
  }
  return el("section", { "aria-label": "Verifier" }, el("h3", {}, "Verifier"), ...body);
}

function rubricCard(index, row) {
  const items = index.rubrics.map((rubric) => {
    const category = rubric.codes[row];
    const found = category < 0 ? "–" : `${words(rubric.names[category])} (${rubric.weights[category]})`;
    return el("div", {}, el("dt", {}, rubric.title), el("dd", {}, found));
  });
  const body = items.length ? el("dl", {}, ...items) : el("p", { class: "hint" }, "No categories: run “categorize”.");
  return el("section", { class: "rubrics", "aria-label": "Categories" }, el("h3", {}, "Category under each rubric (weight)"), body);
}

// A text with its mathematics drawn and its answer marked. Spans are [start, end, tree] in order.
function prose(text, spans, trees, answer = null) {
  const made = el("p", { class: "prose", dir: "auto" });
  const [from, to] = answer ?? [-1, -1];
  const plain = (start, end) => {
    const cuts = [start, Math.min(Math.max(from, start), end), Math.min(Math.max(to, start), end), end];
    const texts = cuts.slice(1).map((cut, i) => text.slice(cuts[i], cut));
    if (from >= 0 && texts[1]) made.append(texts[0], el("mark", {}, texts[1]), texts[2]);
    else made.append(text.slice(start, end));
  };
  let at = 0;
  for (let i = 0; i < spans.length; i += 3) {
    const [start, end, tree] = spans.slice(i, i + 3);
    plain(at, start);
    const drawn = math(trees[tree]);
    made.append(start < to && end > from ? el("mark", {}, drawn) : drawn);
    at = end;
  }
  plain(at, text.length);
  return made;
}

function textParts(texts, prompts, index, row) {
  const mine = texts.rows[row];
  const asked = prompts.rows[index.q[row]];
  const box = el("div");
  const readout = readoutLine();
  const promptReadout = readoutLine();
  const swatches = ["0.05", "0.3", "1", "2", "4", "7"].map((edge, i) =>
    el("span", {}, el("span", { class: `swatch h${i + 1}` }), ` ≥ ${edge}`));
  const legend = el("div", { class: "legend" }, "bits:", ...swatches, readout);
  const buttons = ["Text", "Token heat"].map((label) => el("button", { type: "button" }, label));
  const redraw = () => {
    const hot = heat && mine.lengths !== null;
    buttons.forEach((button, i) => button.setAttribute("aria-pressed", String(hot === Boolean(i))));
    legend.hidden = !hot;
    box.replaceChildren(hot ? heated(mine.text, mine.lengths, mine.levels, readout, mine.answer)
      : prose(mine.text, mine.spans, texts.trees, mine.answer));
  };
  buttons.forEach((button, i) => button.addEventListener("click", () => setHeat(Boolean(i))));
  buttons[1].disabled = mine.lengths === null;
  reading.redraw = redraw;
  redraw();
  const missing = mine.lengths === null && mine.levels
    ? el("p", { class: "hint" }, "The model's tokenizer was not at hand, or does not give this text: log-probs are shown by position.") : null;
  return [
    el("section", { "aria-label": "Problem" }, el("h3", {}, "Problem"), prose(asked.problem, asked.spans, prompts.trees),
      el("details", {}, el("summary", {}, "The exact prompt"), ...(asked.lengths === null ? [prose(asked.prompt, [], [])]
        : [heated(asked.prompt, asked.lengths, asked.levels, promptReadout), el("div", { class: "legend" }, promptReadout)]))),
    el("section", { "aria-label": "Response" }, el("div", { class: "head" }, el("h3", {}, "Response"),
      el("div", { class: "switch", role: "group", "aria-label": "How to show the response" }, ...buttons)),
    legend, box, missing ?? "", strip(mine, box))];
}
