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
