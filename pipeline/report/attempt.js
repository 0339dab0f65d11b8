// One attempt: verdicts, signals, categories, prompt and response.

const moves = (...buttons) => html`<div class="moves">${buttons.map(([label, key, move]) => (
  html`<button type="button" title=${`key ${key}`} onClick=${move}>${label}</button>`))}</div>`;
const card = (label, ...children) => html`<section aria-label=${label}><h3>${label}</h3>${children}</section>`;
const facts = (pairs) => html`<dl>${pairs.filter(([, value]) => value !== null && value !== "")
  .map(([name, value]) => [html`<dt>${name}</dt>`, html`<dd>${value}</dd>`])}</dl>`;

const VERDICTS = { A: ["✓ correct", "good"], B: ["✗ incorrect", "bad"], C: ["∅ invalid", "dim"] };

// The title of an attempt, and its parts.
function attemptView(attempt) {
  const { q, t } = attempt;
  const [model, question] = [modelOf(attempt), questionOf(attempt)];
  const answers = html`<a href=${addressOf(-1, q, null, {})} title="All answers to this question (key q)">${named(question)}</a>`;
  return [`${model}, ${question}, trial ${t}`,
    html`<div class="head"><h3 tabindex="-1">${named(model)} · ${answers} · trial ${t}</h3>
      ${moves(["← Previous", "k", () => step(-1)], ["Next →", "j", () => step(1)])}</div>`,
    summary(attempt), orFault(() => textCards(attempt)),
    html`<div class="cards">${graderCard(attempt)}${verifierCard(attempt)}${signalsCard(attempt)}</div>`,
    rubricCard(attempt)];
}

// What grader and verifier say, in a line above the texts.
function summary(attempt) {
  const { outcome, answer, gold, a } = attempt;
  const [glyph, kind] = glyphOf(outcome);
  const verdict = VERDICTS[labelOf(attempt)];
  return html`<p class="verdicts"><b class=${kind}>${glyph} ${words(outcome ?? "not graded")}</b>
    ${answer !== null && html`<span>answer <bdi>${visible(answer)}</bdi></span>`}
    ${gold !== null && html`<span>gold <bdi>${visible(gold)}</bdi></span>`}
    ${verdict && html`<span>verifier <b class=${verdict[1]}>${verdict[0]}</b>, P(correct) ${fixed(a, 3)}</span>`}
    ${fits("differ", agreement(attempt)) && html`<span class="bad">they disagree</span>`}</p>`;
}

function textCards(attempt) {
  const { m, q, t, file: number } = attempt;
  const { note, reasoning_end: marker } = dataset().models[m];
  if (number < 0) {
    return html`<section><p class="hint">${note ?? "No text of this attempt is here: the report was made without it."}</p></section>`;
  }
  const name = `${reading.dataset}-${m}`;
  const [texts, prompts] = need(`${name}-${number}`, `${name}-p`, "katex");
  const [response, prompt] = [texts.rows[`${q}/${t}`], prompts.rows[q]].map(withNumbers);
  if (!response || !prompt) throw new Error(page.single || `The texts of ${name} are damaged: this attempt is not among them.`);
  return [problemCard(prompt, response, attempt), responseCard(response, attempt, marker)];
}

// Lengths and surprisal of tokens are numbers between commas.
function withNumbers(text) {
  const numbers = (list) => (list === "" ? [] : list.split(",").map(Number));
  return text && { ...text, lengths: text.lengths && numbers(text.lengths), bits: numbers(text.bits) };
}

function graderCard({ outcome, answer, gold, box, layer, reason }) {
  const [glyph, kind] = glyphOf(outcome);
  return card("Grader", html`<p class=${`verdict ${kind}`}>${glyph} ${words(outcome ?? "not graded")}</p>`, facts([
    ["answer", answer], ["gold", gold], ["box", box === "boxed" ? null : box && words(box)],
    ["compared as", layer], ["reason", reason]]));
}

function verifierCard(attempt) {
  const label = labelOf(attempt);
  if (label === null) return card("Verifier", html`<p class="hint">No verdict of a verifier.</p>`);
  const [verdict, kind] = VERDICTS[label];
  const { a, b, c, log_a: logA, log_b: logB, log_c: logC } = attempt;
  const raw = [logA, logB, logC].map((log) => (log === null ? null : Math.exp(log)));
  const total = raw.includes(null) ? null : sum(raw);
  const row = (name, ...numbers) => html`<tr><th scope="row">${name}</th>
    ${numbers.map((number) => html`<td>${fixed(number, 3)}</td>`)}</tr>`;
  return card("Verifier", html`<p class=${`verdict ${kind}`}>${verdict}</p>`,
    html`<table><thead><tr><th scope="col" class="text">label</th>
      ${["raw", "direct", "calibrated"].map((head) => html`<th scope="col">${head}</th>`)}</tr></thead>
      <tbody>${["A correct", "B incorrect", "C invalid"].map((name, i) => (
        row(name, raw[i], total ? raw[i] / total : null, [a, b, c][i])))}</tbody></table>`,
    fits("differ", agreement(attempt)) && html`<p class="bad">Disagrees with the grader.</p>`);
}

function signalsCard({ cut, tokens, ratio, prompt_bits: promptBits, bits, seconds }) {
  const known = (value, text) => (value === null ? null : text(value));
  const pairs = [["tokens", known(tokens, count)],
    ["of max tokens", known(ratio, (share) => `${(100 * share).toPrecision(2)} %`)],
    ["repeated pattern", known(cut, (value) => (value ? "yes" : "no"))],
    ["bits per token, prompt", known(promptBits, (value) => fixed(value, 3))],
    ["bits per token, completion", known(bits, (value) => fixed(value, 3))],
    ["seconds", known(seconds, (value) => fixed(value, 1))]];
  return pairs.some(([, value]) => value !== null) && card("Signals", facts(pairs));
}

function rubricCard({ categories }) {
  const items = dataset().rubrics.map(({ title, categories: of }, i) => {
    const [name, weight] = of[categories[i]] ?? [null];
    return html`<div><dt>${title}</dt><dd>${name === null ? "–" : `${words(name)} (${weight})`}</dd></div>`;
  });
  return html`<section class="rubrics" aria-label="Categories"><h3>Category under each rubric (weight)</h3>
    ${items.length ? html`<dl>${items}</dl>` : html`<p class="hint">No categories: run “categorize”.</p>`}</section>`;
}

// A name of the text of an attempt, by which what is drawn of another is made anew.
const keyOf = ({ m, q, t }) => `${reading.dataset}/${m}/${q}/${t}`;

function problemCard({ problem, prompt, lengths, bits }, { order }, attempt) {
  const summary = order
    ? `The prompt, with options as in the data set; this attempt saw them in the order ${order}` : "The exact prompt";
  const shown = lengths === null ? prose(prompt)
    : [html`<${Heated} ...${{ text: prompt, lengths, bits }} />`, html`<div class="legend">${READOUT}</div>`];
  return html`<section aria-label="Problem" key=${`problem ${keyOf(attempt)}`}><h3>Problem</h3>${prose(problem)}
    <details><summary>${summary}</summary>${shown}</details></section>`;
}

// The final answer, with options as the attempt saw them.
function answerSeen(answer, order) {
  const option = answer ? order.split(" ").indexOf(answer) : -1;
  return option < 0 ? answer : String.fromCharCode(65 + option);
}

function responseCard({ text, lengths, bits, order }, attempt, marker) {
  const answer = answerSpan(text, answerSeen(attempt.answer, order), marker);
  const hot = heat && lengths !== null;
  const choice = (label, on) => html`<button type="button" aria-pressed=${String(hot === on)}
    disabled=${on && lengths === null} onClick=${() => setHeat(on)}>${label}</button>`;
  const swatch = (edge, i) => html`<span><span class=${`swatch h${i + 1}`}></span> ≥ ${edge}</span>`;
  return html`<section aria-label="Response" key=${`response ${keyOf(attempt)}`}>
    <div class="head"><h3>Response</h3><div class="moves">${answer && moves(["↓ Answer", "a", toAnswer])}
      <div class="switch" role="group" aria-label="How to show the response">
        ${choice("Text", false)}${choice("Token heat", true)}</div></div></div>
    <div class="legend" hidden=${!hot}>bits:${EDGES.map(swatch)}${READOUT}</div>
    <div data-kind=${glyphOf(attempt.outcome)[1]}>
      ${hot ? html`<${Heated} ...${{ text, lengths, bits, answer }} />` : folded(text, lengths, answer, marker)}</div>
    ${lengths === null && bits.length > 0 && html`<p class="hint">The model's tokenizer was not at hand, or does
      not give this text: log-probs are shown by position.</p>`}
    ${bits.length > 0 && html`<${Strip} bits=${bits} lengths=${lengths} />`}</section>`;
}
