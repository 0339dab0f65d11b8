// What pages share: what a browser remembers, and texts of models, with their mathematics.

const { Component, html, render } = htmPreact;
const count = (number) => number.toLocaleString("en");
const stores = {
  get: (key) => { try { return localStorage.getItem(key); } catch { return null; } },
  set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* not remembered */ } },
};

// Mathematics of a text that is looked at: found, converted by KaTeX, and built anew piece by piece.
// What models wrote is hostile: KaTeX trusts nothing and expands little here, and of what it makes
// only sound elements and attributes get into the page. What fails stays as it was written.

const el = (...parts) => elementOf("http://www.w3.org/1999/xhtml", ...parts);
function elementOf(namespace, tag, attributes, ...children) {
  const element = document.createElementNS(namespace, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null) element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}
const MATHML = "http://www.w3.org/1998/Math/MathML";
const MOST = { expressions: 500, nodes: 2000, depth: 60 }; // of a part of a text; of an expression
const SPANS = new RegExp([
  String.raw`\$\$([^$]{1,600})\$\$`,
  String.raw`\\\[((?:(?!\\\]).){1,600})\\\]`,
  String.raw`\\\(((?:(?!\\\)).){1,600})\\\)`,
  String.raw`(?<![\\$])\$(?![\s$])([^$\n]{1,600})(?<![\s\\])\$(?!\d)`].join("|"), "gs");
// Definitions can grow without end, and links are not for a page of texts.
const REFUSED = /\\(?:[gex]?def|let|futurelet|(?:re)?newcommand|providecommand|href|url|html\w+|includegraphics)(?![A-Za-z])/;
const KATEX = { output: "mathml", trust: false, strict: "ignore", throwOnError: true, maxSize: 20, maxExpand: 300 };
const TAGS = new Set(`menclose mfrac mi mn mo mover mpadded mphantom mroot mrow ms mspace msqrt mstyle msub msubsup
  msup mtable mtd mtext mtr munder munderover`.split(/\s+/));
const ATTRIBUTES = new Set(`accent accentunder columnalign columnlines columnspacing depth display displaystyle fence
  height largeop linethickness lspace mathvariant maxsize minsize movablelimits notation rowlines rowspacing rspace
  scriptlevel separator stretchy symmetric voffset width`.split(/\s+/));
// Keywords, or lengths of at most 20 em; a longer one, or a level that enlarges, would fill the page.
const LENGTH = /^[+-]?(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(em|ex|px|pt|pc|mm|cm|in|mu|%|)$/;
const EM = { em: 1, ex: 0.5, px: 1 / 16, pt: 1 / 12, pc: 1, mm: 0.24, cm: 2.4, in: 6, mu: 1 / 18, "%": 0.01, "": 1 };
function soundValue(name, value) {
  return value.length <= 60 && value.split(/\s+/).every((part) => {
    const [, number, unit] = part.match(LENGTH) ?? [];
    return number === undefined ? /^[A-Za-z-]{0,30}$/.test(part)
      : number * EM[unit] <= 20 && !(name === "scriptlevel" && part.startsWith("-"));
  });
}

// Browsers draw `mathvariant` no more: letters of another alphabet are characters of their own.
const ALPHABETS = { bold: 0x1d400, "bold-italic": 0x1d468, script: 0x1d49c, fraktur: 0x1d504, "double-struck": 0x1d538,
  "sans-serif": 0x1d5a0, monospace: 0x1d670 };
const OLDER = { "double-struck": { C: "ℂ", H: "ℍ", N: "ℕ", P: "ℙ", Q: "ℚ", R: "ℝ", Z: "ℤ" },
  script: { B: "ℬ", E: "ℰ", F: "ℱ", H: "ℋ", I: "ℐ", L: "ℒ", M: "ℳ", R: "ℛ", e: "ℯ", g: "ℊ", o: "ℴ" },
  fraktur: { C: "ℭ", H: "ℌ", I: "ℑ", R: "ℜ", Z: "ℨ" } };
function inAlphabet(text, variant) {
  if (!ALPHABETS[variant]) return text;
  return text.replace(/[A-Za-z]/g, (letter) => OLDER[variant]?.[letter]
    ?? String.fromCodePoint(ALPHABETS[variant] + letter.charCodeAt() - (letter < "a" ? 65 : 71)));
}

function copied(node, count = { nodes: 0 }, depth = 0) {
  count.nodes += 1;
  if (!TAGS.has(node.localName) || count.nodes > MOST.nodes || depth > MOST.depth) throw new Error(node.localName);
  const attributes = [...node.attributes].filter(({ name, value }) => ATTRIBUTES.has(name) && soundValue(name, value));
  const children = [...node.childNodes].map((child) => (child.nodeType === Node.TEXT_NODE
    ? inAlphabet(child.data, node.getAttribute("mathvariant")) : copied(child, count, depth + 1)));
  return elementOf(MATHML, node.localName, Object.fromEntries(attributes.map(({ name, value }) => [name, value])), ...children);
}

// An expression as an element; as it was written if it cannot be drawn.
function math(written, source, display) {
  try {
    if (REFUSED.test(source)) return written;
    const box = document.createElement("span"); // never in the page
    window.katex.render(source, box, { ...KATEX, displayMode: display });
    return elementOf(MATHML, "math", { display: display ? "block" : null }, copied(box.querySelector("semantics").firstChild));
  } catch {
    return written;
  }
}

// Where expressions stand in a part of a text: [start, end, source, display], in order. Its answer, a
// box that may stand in none, is one.
function spansOf(text, answer) {
  const found = [];
  SPANS.lastIndex = 0;
  for (let match; found.length < MOST.expressions && (match = SPANS.exec(text));) {
    const place = match.findIndex((part, i) => i > 0 && part !== undefined);
    found.push([match.index, SPANS.lastIndex, match[place], place < 3]);
  }
  if (answer[1] && !found.some(([from, to]) => from < answer[1] && to > answer[0])) {
    found.push([...answer, text.slice(...answer), false]);
    found.sort((a, b) => a[0] - b[0]);
  }
  return found;
}

// Where the last box with the final answer stands behind the last `marker` of a text, or null.
function answerSpan(text, answer, marker) {
  if (!answer) return null;
  const start = marker ? text.lastIndexOf(marker) + 1 : 0;
  const own = answer.replace(/[\\^$.*+?()[\]{}|]/g, "\\$&");
  const boxes = text.slice(start).matchAll(new RegExp(String.raw`\\\\?(?:boxed|fbox)\s{0,20}\{?\s{0,20}${own}\s{0,20}\}?`, "g"));
  const last = [...boxes].at(-1);
  return last ? [start + last.index, start + last.index + last[0].length] : null;
}

// A text to read: in parts that are laid out, and their mathematics drawn, when they come near the
// screen; its reasoning folded; its answer marked.

const PIECE = [2000, 6000]; // characters of a part: at least, if a blank line ends it; at most
const MARKERS = ["</think>", "<|channel|>final<|message|>"]; // beside the one of the model itself
const drawings = new WeakMap();
const near = new IntersectionObserver((changes) => changes.filter((change) => change.isIntersecting).forEach(({ target }) => {
  near.unobserve(target);
  drawings.get(target)();
}), { rootMargin: "600px" });

// Where a part of a text from `at` on ends: at a blank line, which no expression holds, else at the
// end of a line or a word; never inside its answer, or a character.
function partEnd(text, at, to, answer) {
  if (to - at <= PIECE[0]) return to;
  const ahead = text.slice(at, Math.min(at + PIECE[1], to));
  const breaks = [ahead.indexOf("\n\n", PIECE[0]) + 2, at + ahead.length === to ? ahead.length : 0, ahead.lastIndexOf("\n") + 1, ahead.lastIndexOf(" ") + 1];
  const end = at + (breaks.find((length) => length > PIECE[0]) ?? ahead.length - /[\ud800-\udbff]$/.test(ahead));
  return answer && answer[0] < end && end < answer[1] ? answer[1] : end;
}

// Outside of mathematics LaTeX writes a percent sign, a dollar, a hash or an ampersand behind a backslash.
const unescaped = (text) => text.replace(/\\([%$#&])/g, "$1");

// A part with the expressions that `spans` names drawn, and its answer marked.
function fillPart(part, text, spans, [from, to]) {
  part.replaceChildren();
  const add = (start, end, content) => {
    if (start < end) part.append(start < to && end > from ? el("mark", {}, content) : content);
  };
  let at = 0;
  for (const [start, end, source, display] of [...spans, [text.length, text.length]]) {
    const cuts = [at, ...[from, to].map((cut) => Math.min(Math.max(cut, at), start)), start];
    for (let i = 0; i < 3; i += 1) add(cuts[i], cuts[i + 1], unescaped(text.slice(cuts[i], cuts[i + 1])));
    add(start, end, start < end ? math(text.slice(start, end), source, display) : "");
    at = end;
  }
}

// A text is made once, of thousands of elements: Preact leaves it alone.
class Once extends Component {
  shouldComponentUpdate() { return false; }
}
class Prose extends Once {
  componentDidMount() {
    const { text, answer, from, to } = this.props;
    for (let at = from, end; at < to; at = end) {
      end = partEnd(text, at, to, answer);
      const own = text.slice(at, end);
      const marked = answer && answer[0] >= at && answer[1] <= end ? [answer[0] - at, answer[1] - at] : [0, 0];
      const part = el("div", { class: "part", style: `--lines: ${Math.ceil(own.length / 90) + own.split("\n").length}` });
      fillPart(part, own, [], marked);
      drawings.set(part, () => fillPart(part, own, spansOf(own, marked), marked));
      near.observe(part);
      this.base.append(part);
    }
  }
  render() { return html`<div class="prose" dir="auto"></div>`; }
}
function prose(text, key = null, { answer = null, from = 0, to = text.length } = {}) {
  return html`<${Prose} key=${key} text=${text} answer=${answer} from=${from} to=${to} />`;
}

// A response, its reasoning apart: up to the last marker of its model, or of others. It is closed
// where something follows.
function folded(text, lengths, answer, own) {
  const marker = [own, ...MARKERS].find((one) => one && text.includes(one));
  const end = marker ? text.lastIndexOf(marker) + marker.length : /^\s{0,99}(<think>|<\|channel\|>)/.test(text) ? text.length : 0;
  if (!end) return prose(text, null, { answer });
  let [at, tokens] = [0, 0];
  while (lengths && at < end && tokens < lengths.length) at += lengths[tokens++];
  const size = lengths ? `${count(tokens)} of ${count(lengths.length)} tokens` : `${count(end)} of ${count(text.length)} characters`;
  const over = text.slice(end).trim() !== "";
  return [html`<details class="reasoning" open=${!over}>
    <summary>Reasoning${over ? "" : ", without an end"}: ${size}</summary>${prose(text, null, { answer, to: end })}</details>`,
  prose(text, null, { answer, from: over ? end + text.slice(end).search(/\S/) : end })];
}

// To the answer that was graded, wherever it stands.
function toAnswer() {
  const mark = document.querySelector("[aria-label=Response] :is(mark, .answer)");
  mark?.closest("details")?.setAttribute("open", "");
  // What comes into view above the answer is drawn only then, and moves it: half a second of frames.
  const follow = (frames) => {
    mark?.scrollIntoView({ block: "center", behavior: "instant" });
    if (frames > 0) requestAnimationFrame(() => follow(frames - 1));
  };
  follow(30);
}
