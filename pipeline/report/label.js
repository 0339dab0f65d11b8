// The page of `label`: one attempt at a time, which a person labels with a key.
// Labels stay in the browser, by person and attempt, until they are downloaded.

const rows = JSON.parse(document.getElementById("page-data").textContent);
const nameOf = (row) => JSON.stringify([row.run, row.question_id, row.trial, row.text.length]);
let [person, labels, at] = ["labels", new Map(), 0];
function load(name) {
  person = name.replace(/[^\w-]/g, "_") || "labels";
  stores.set("bayes-labeler", person);
  labels = new Map(JSON.parse(stores.get(`bayes-labels-${person}`) ?? "[]"));
  show(rows.findIndex((row) => labelOf(row) === undefined));
}
const CHOICES = [["y", true, "✓ correct"], ["n", false, "✗ not correct"], ["u", null, "? cannot tell"]];
// Of points the keys are their digits, and the labels their scores.
const choicesOf = ({ scores }) => (scores ? [...scores.map((score, i) => [String(i), score, String(i)]), CHOICES[2]] : CHOICES);
const labelOf = (row) => labels.get(nameOf(row));

function show(place) {
  at = Math.min(Math.max(place, 0), rows.length - 1);
  draw();
  scrollTo(0, 0);
}
function say(label) {
  labels.set(nameOf(rows[at]), label);
  stores.set(`bayes-labels-${person}`, JSON.stringify([...labels]));
  const next = rows.findIndex((row, i) => i > at && labelOf(row) === undefined);
  show(next < 0 ? at + 1 : next);
}
function download() {
  const given = rows.filter((row) => labelOf(row) !== undefined).map((row) => JSON.stringify({ run: row.run,
    question_id: row.question_id, trial: row.trial, chance: row.chance, correct: labelOf(row) }));
  const href = URL.createObjectURL(new Blob([`${given.join("\n")}\n`]));
  el("a", { download: `${person}.jsonl`, href }).click();
}

function draw() {
  const row = rows[at];
  const done = rows.filter((one) => labelOf(one) !== undefined).length;
  const button = ([key, label, text]) => html`<button type="button" aria-pressed=${String(labelOf(row) === label)}
    onClick=${() => say(label)}>${text} <kbd>${key}</kbd></button> `;
  const answer = answerSpan(row.text, row.answer, row.marker);
  render(html`<div id="attempt">
    <section aria-label="Label" key="label"><div class="head"><h3>Attempt ${at + 1} of ${rows.length}, ${done} labeled</h3>
      <div class="moves">${choicesOf(row).map(button)}
        <button type="button" onClick=${() => show(at - 1)}>← <kbd>k</kbd></button>
        <button type="button" onClick=${() => show(at + 1)}>→ <kbd>j</kbd></button>
        ${answer && html`<button type="button" onClick=${toAnswer}>↓ Answer <kbd>a</kbd></button>`}
        <label for="name">Name</label> <input id="name" value=${person} onChange=${(event) => load(event.target.value)} />
        <button type="button" onClick=${download}>Download <kbd>s</kbd></button></div></div></section>
    <section aria-label="Problem" key=${`problem ${at}`}><h3>Problem</h3>${prose(row.problem)}
      ${row.gold && html`<p>Gold answer: <bdi>${row.gold}</bdi></p>`}</section>
    <section aria-label="Response" key=${`response ${at}`}><h3>Response</h3>
      ${folded(row.text, null, answer, row.marker)}</section></div>`, document.getElementById("main"));
}

const keys = { j: () => show(at + 1), k: () => show(at - 1), a: toAnswer, s: download };
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.localName === "input") return;
  const choice = choicesOf(rows[at]).find(([key]) => key === event.key);
  if (choice) say(choice[1]);
  else keys[event.key]?.();
});
addEventListener("load", () => load(stores.get("bayes-labeler") ?? "")); // all scripts are there
