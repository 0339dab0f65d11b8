// One attempt: what grader and verifier say, its texts, and what is known of it.

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
    summary(attempt), programCards(attempt), orFault(() => textCards(attempt)), factsCard(attempt)];
}

// A program, how its tests went, and the tests.
function programCards({ answer, gold, reason }) {
  const block = (label, text) => lines(text) && card(label, html`<pre>${visible(text)}</pre>`);
  return lines(gold) && [html`<p class="verdicts">${reason}</p>`, block("Program", answer), block("Tests", gold)];
}

const lines = (text) => text !== null && text.includes("\n");

// What grader and verifier say, in a line above the texts.
function summary(attempt) {
  const { outcome, answer, gold, a } = attempt;
  const [glyph, kind] = glyphOf(outcome);
  const verdict = VERDICTS[labelOf(attempt)];
  return html`<p class="verdicts"><b class=${kind}>${glyph} ${words(outcome ?? "not graded")}</b>
    ${answer !== null && !lines(answer) && html`<span>answer <bdi>${visible(answer)}</bdi></span>`}
    ${gold !== null && !lines(gold) && html`<span>gold <bdi>${visible(gold)}</bdi></span>`}
    ${verdict && html`<span>verifier <b class=${verdict[1]}>${verdict[0]}</b>, P(correct) ${chance(a)}</span>`}
    ${fits("differ", agreement(attempt)) && html`<span class="bad">they disagree</span>`}</p>`;
}

function textCards(attempt) {
  const { m, q, t, file: number } = attempt;
  const { note, reasoning_end: marker } = dataset().models[m];
  if (number < 0) {
    return html`<section><p class="hint">${note ?? "This report has no text of this attempt."}</p></section>`;
  }
  const name = `${reading.dataset}-${m}`;
  const [texts, prompts] = need(`${name}-${number}`, `${name}-p`, "katex");
  const [response, prompt] = [texts.rows[`${q}/${t}`], prompts.rows[q]];
  if (!response || !prompt) throw new Error(page.single || `The texts of ${name} are damaged: this attempt is not among them.`);
  return [problemCard(prompt, response, attempt), responseCard(response, attempt, marker), judgeCard(response.judged)];
}

// What a judge wrote, vote by vote.
const judgeCard = (votes) => votes?.length > 0 && card("Judge",
  votes.map((text, i) => [votes.length > 1 && html`<h4>Vote ${i + 1}</h4>`, folded(text, null, null, null)]));

// How it was judged, how long it is and how sure, and its categories: what is not known is not there.
function factsCard(attempt) {
  const { outcome, gold, box, layer, reason, cut, tokens, bits, prompt_bits: promptBits, seconds, a, b, c } = attempt;
  const known = (value, text) => (value === null ? null : text(value));
  const raw = [attempt.log_a, attempt.log_b, attempt.log_c];
  const three = (numbers) => (numbers.includes(null) ? null : ["correct", "incorrect", "invalid"]
    .map((name, i) => `${name} ${chance(numbers[i])}`).join(", "));
  const categories = dataset().rubrics.map(({ title, categories: of }, i) => [title, of[attempt.categories[i]]])
    .filter(([, category]) => category).map(([title, [name, weight]]) => [title, `${words(name)} (weight ${weight})`]);
  const grading = layer === "imported" ? "outcome as imported" : reason && `${reason} (layer: ${layer})`;
  return html`<div class="cards">${card("Details", facts([
    ["grader", outcome === null ? "not graded" : grading],
    ["answer", box === "boxed" || box === null || lines(gold) ? null : `in no \\boxed: ${words(box)}`],
    ["verifier", three([a, b, c])], ["before calibration", three(raw.map((log) => known(log, Math.exp)))],
    ["ended", known(cut, (value) => (value ? "truncated at its token limit" : "by itself"))],
    ["tokens", known(tokens, count)], ["NLL per token", known(bits, (value) => `${fixed(value, 2)} bits`)],
    ["NLL of the prompt", known(promptBits, (value) => fixed(value, 2))],
    ["seconds", known(seconds, (value) => fixed(value, 1))]]))}
    ${categories.length > 0 && card("Categories", facts(categories))}</div>`;
}

// A name of the text of an attempt, by which what is drawn of another is made anew.
const keyOf = ({ m, q, t }) => `${reading.dataset}/${m}/${q}/${t}`;

function problemCard({ problem, prompt, choices, lengths, bits }, { order }, attempt) {
  const shown = lengths === null ? prose(prompt)
    : [html`<${Heated} ...${{ text: prompt, lengths, bits }} />`, html`<div class="legend">${READOUT}</div>`];
  return html`<section aria-label="Problem" key=${`problem ${keyOf(attempt)}`}><h3>Problem</h3>${prose(problem)}
    ${choices && optionList(choices, order)}
    <details><summary>The exact prompt${order && ", with options as in the dataset"}</summary>${shown}</details></section>`;
}

// The options as the attempt saw them, with their letters in the dataset, by which answers are called.
function optionList(choices, order) {
  const letters = choices.map((_, i) => String.fromCharCode(65 + i));
  const seen = order ? order.split(" ") : letters;
  return html`${order && html`<p class="hint">Options were shuffled. This attempt saw them in the order ${order}; answers and gold have the letters of the dataset, in brackets.</p>`}
    <ol class="options" type="A">${seen.map((letter) => html`<li>${prose(choices[letters.indexOf(letter)])}${order && html` <span class="dim">(${letter})</span>`}</li>`)}</ol>`;
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
    disabled=${on && lengths === null} title=${on && lengths === null ? "needs log-probs and the model's tokenizer" : null} onClick=${() => setHeat(on)}>${label}</button>`;
  const swatch = (edge, i) => html`<span><span class=${`swatch h${i + 1}`}></span> ≥ ${edge}</span>`;
  return html`<section aria-label="Response" key=${`response ${keyOf(attempt)}`}>
    <div class="head"><h3>Response</h3><div class="moves">${answer && moves(["↓ Answer", "a", toAnswer])}
      <div class="switch" role="group" aria-label="How to show the response">
        ${choice("Text", false)}${choice("Token heat", true)}</div></div></div>
    <div class="legend" hidden=${!hot}>bits:${EDGES.map(swatch)}${READOUT}</div>
    <div data-kind=${glyphOf(attempt.outcome)[1]}>
      ${hot ? html`<${Heated} ...${{ text, lengths, bits, answer }} />` : folded(text, lengths, answer, marker)}</div>
    </section>`;
}

// One question: what all models answered, and which attempts gave what.

const MOST_ANSWERS = 20; // that the histogram shows

// The title of a question, and its parts.
function questionView(question) {
  const data = dataset();
  const attempts = attemptsOf(question);
  const correct = attempts.filter(({ outcome }) => outcome === "correct").length;
  const source = data.models.findIndex(({ note }) => note === null);
  const problem = source >= 0 && orFault(() => {
    const [prompts] = need(`${reading.dataset}-${source}-p`, "katex");
    return prose(prompts.rows[question]?.problem ?? "", `${reading.dataset}/${question}`);
  });
  return [`${data.questions[question]}, all answers`,
    html`<div class="head"><h3 tabindex="-1">${named(data.questions[question])}</h3>
      ${moves(["← Previous", "p", () => stepAside(0, -1)], ["Next →", "n", () => stepAside(0, 1)])}</div>`,
    card("Problem", problem, facts([["gold", attempts[0]?.gold ?? null],
      ["correct", `${count(correct)} of ${count(attempts.length)} attempts`]])),
    card("Answers", ...histogram(attempts, question, data))];
}

// Each answer with its grade: how many gave it, and how many of each model; a number lists them.
function histogram(attempts, question, { models }) {
  const groups = Map.groupBy(attempts, ({ outcome, answer }) => JSON.stringify([outcome, answer]));
  const answers = [...groups.values()].sort((a, b) => b.length - a.length);
  const line = (group) => {
    const [{ outcome, answer }] = group;
    const [glyph, kind] = glyphOf(outcome);
    const wanted = { outcome, text: `=${answer ?? ""}` };
    const link = (number, model) => number > 0
      && html`<a href=${addressOf(model, question, null, wanted)}>${count(number)}</a>`;
    return html`<tr aria-current=${wanted.text === reading.wanted.text ? "true" : null}>
      <th scope="row" class="text" title=${answer}><span class=${kind}>${glyph} </span>
        ${answer === null ? html`<i>${words(outcome ?? "not graded")}</i>` : named(visible(answer))}</th>
      <td class="text"><span class=${`bar ${kind}`} style=${`width: ${(9 * group.length) / answers[0].length}rem`}></span>
        ${" "}${link(group.length, -1)}</td>
      ${models.map((_, model) => html`<td>${link(group.filter(({ m }) => m === model).length, model)}</td>`)}</tr>`;
  };
  const rest = answers.slice(MOST_ANSWERS);
  return [html`<div class="scroll"><table class="answers">
    <thead><tr><th scope="col" class="text">answer</th><th scope="col" class="text">all</th>
      ${models.map(({ name }) => html`<th scope="col" title=${name}>${named(name)}</th>`)}</tr></thead>
    <tbody>${answers.slice(0, MOST_ANSWERS).map(line)}</tbody></table></div>`,
  rest.length > 0 && html`<p class="hint">${count(rest.length)} rarer answers (${count(sum(rest.map(({ length }) => length)))} attempts) are in the list.</p>`];
}

// The heat of tokens beneath a text, read by pointer or by keys.

let heat = stores.get("bayes-report-heat") === "1";
function setHeat(on) {
  heat = on;
  stores.set("bayes-report-heat", on ? "1" : "0");
  draw();
}

const EDGES = [0.05, 0.3, 1, 2, 4, 7]; // bits, of the colors h1 to h6
const SURPRISING = 200; // hundredths of a bit, as attempts.py writes them
const PART = [400, 3000]; // tokens of a part: at least, if a line ends; at most
const READOUT = html`<span role="status">Point at a token, or Tab to it, to read its log-probability.</span>`;

// The text token by token, the heat beneath each by its surprisal. Parts of it, cut after a line
// end where there is one, are laid out only when they come into sight.
class Heated extends Once {
  componentDidMount() {
    const { text, lengths, bits, answer } = this.props;
    let [at, part] = [0, []];
    const close = () => { this.base.append(el("div", { class: "part" }, ...part)); part = []; };
    lengths.forEach((length, i) => {
      if (!length) return;
      const level = EDGES.filter((edge) => bits[i] >= 100 * edge).length;
      const inside = answer && at < answer[1] && at + length > answer[0];
      const look = (level ? `h${level}` : "") + (inside ? " answer" : "");
      part.push(el("span", { "data-i": i, tabindex: at ? null : 0, class: look || null }, text.slice(at, at + length)));
      at += length;
      if (part.length >= PART[1] || (part.length >= PART[0] && text[at - 1] === "\n")) close();
    });
    part.push(text.slice(at));
    close();
  }
  render({ bits }) {
    const tell = (event) => tellToken(event.target.closest("[data-i]"), bits);
    return html`<div class="prose tokens" dir="auto" role="group" aria-label="Tokens with their surprisal"
      onPointerOver=${tell} onClick=${tell} onfocusin=${tell} onKeyDown=${(event) => moveInTokens(event, bits)}></div>`;
  }
}

// One of the tokens can be reached by Tab, and arrows move from it.
function moveInTokens(event, bits) {
  const pieces = [...event.currentTarget.querySelectorAll("[data-i]")];
  const at = pieces.indexOf(event.target);
  const surprising = (piece) => bits[piece.dataset.i] >= SURPRISING;
  const target = {
    ArrowRight: () => pieces[at + 1],
    ArrowLeft: () => pieces[at - 1],
    ArrowDown: () => pieces.slice(at + 1).find(surprising),
    ArrowUp: () => pieces.slice(0, Math.max(at, 0)).findLast(surprising),
    Home: () => pieces[0],
    End: () => pieces.at(-1),
  }[event.key];
  if (!target || at < 0) return;
  event.preventDefault();
  rove(event.currentTarget, target());
}

function tellToken(piece, bits) {
  if (!piece) return;
  const { i } = piece.dataset;
  const known = bits[i] / 100;
  const surprisal = bits[i] < 0 ? "no log-prob" : `log p ≈ −${(known * Math.LN2).toFixed(2)} (${known.toFixed(2)} bits)`;
  const readout = piece.closest("details, section").querySelector("[role=status]");
  const text = `token ${i}: ${JSON.stringify(visible(piece.textContent))}, ${surprisal}`;
  if (readout.textContent !== text) readout.textContent = text;
}
