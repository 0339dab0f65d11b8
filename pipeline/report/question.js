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
