// A text to read: in parts that are laid out, and their mathematics drawn, when they come near the
// screen; its reasoning folded; its answer marked.

const PIECE = [2000, 6000]; // characters of a part: at least, if a blank line ends it; at most
const MARKERS = ["</think>", "<|channel|>final<|message|>"]; // beside the one of the model itself
const drawings = new WeakMap();
const near = new IntersectionObserver((changes) => changes.forEach(({ isIntersecting, target }) => {
  if (!isIntersecting) return;
  near.unobserve(target);
  drawings.get(target)();
}), { rootMargin: "600px" });

// Where a part of a text from `at` on ends: at a blank line, which no expression holds, else at the
// end of a line or a word; never inside its answer, or a character.
function partEnd(text, at, to, answer) {
  if (to - at <= PIECE[0]) return to;
  const ahead = text.slice(at, Math.min(at + PIECE[1], to));
  const blank = ahead.indexOf("\n\n", PIECE[0]);
  let end = at + ahead.length;
  if (blank >= 0) end = at + blank + 2;
  else if (end < to) {
    const breaks = ["\n", " "].map((mark) => ahead.lastIndexOf(mark) + 1);
    end = at + (breaks.find((length) => length > PIECE[0]) ?? ahead.length - /[\ud800-\udbff]$/.test(ahead));
  }
  return answer && answer[0] < end && end < answer[1] ? answer[1] : end;
}

// A part with the expressions that `spans` names drawn, and its answer marked.
function fillPart(part, text, spans, answer) {
  const [from, to] = answer ?? [0, 0];
  const add = (start, end, content) => {
    if (start < end) part.append(start < to && end > from ? el("mark", {}, content) : content);
  };
  const addPlain = (start, end) => {
    const cuts = [start, ...[from, to].map((cut) => Math.min(Math.max(cut, start), end)), end];
    for (let i = 0; i < 3; i += 1) add(cuts[i], cuts[i + 1], text.slice(cuts[i], cuts[i + 1]));
  };
  part.replaceChildren();
  let at = 0;
  for (const [start, end, source, display] of spans) {
    addPlain(at, start);
    add(start, end, math(text.slice(start, end), source, display));
    at = end;
  }
  addPlain(at, text.length);
}

function prose(text, answer = null, from = 0, to = text.length) {
  const block = el("div", { class: "prose", dir: "auto" });
  for (let at = from, end; at < to; at = end) {
    end = partEnd(text, at, to, answer);
    const own = text.slice(at, end);
    const start = at;
    const marked = answer && answer[0] >= at && answer[1] <= end ? answer.map((place) => place - start) : null;
    const part = el("div", { class: "part", style: `--lines: ${Math.ceil(own.length / 90) + own.split("\n").length}` });
    fillPart(part, own, [], marked);
    drawings.set(part, () => fillPart(part, own, spansOf(own, marked), marked));
    near.observe(part);
    block.append(part);
  }
  return block;
}

// How many characters of a response are reasoning: up to the last marker of its model, or of others.
function reasoningLength(text, own) {
  for (const marker of [own, ...MARKERS]) {
    const at = marker ? text.lastIndexOf(marker) : -1;
    if (at >= 0) return at + marker.length;
  }
  return /^\s{0,99}(<think>|<\|channel\|>)/.test(text) ? text.length : 0;
}

// A response; its reasoning is closed where something follows it.
function folded({ text, lengths }, answer, own) {
  const end = reasoningLength(text, own);
  if (!end) return [prose(text, answer)];
  let [at, tokens] = [0, 0];
  while (lengths && at < end) at += lengths[tokens++];
  const size = lengths ? `${tokens.toLocaleString("en")} of ${lengths.length.toLocaleString("en")} tokens`
    : `${end.toLocaleString("en")} of ${text.length.toLocaleString("en")} characters`;
  const over = text.slice(end).trim() !== "";
  const fold = el("details", { class: "reasoning", open: over ? null : "" },
    el("summary", {}, `Reasoning${over ? "" : ", without an end"}: ${size}`));
  fold.append(prose(text, answer, 0, end)); // laid out when it is opened
  return [fold, prose(text, answer, end)];
}

// To the answer that was graded, wherever it stands.
function toAnswer() {
  const mark = document.querySelector("[aria-label=Response] :is(mark, .answer)");
  mark?.closest("details")?.setAttribute("open", "");
  mark?.scrollIntoView({ block: "center", behavior: "instant" });
}
