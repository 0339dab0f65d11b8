// The heat of tokens beneath a text, read by pointer or by keys, and surprisal by position.

let heat = stores.get("bayes-report-heat") === "1";
function setHeat(on) {
  heat = on;
  stores.set("bayes-report-heat", on ? "1" : "0");
  reading.redraw?.();
}

const STEPS = 12; // see tokens.py: level = 12 sqrt(bits), one character from "!" on, no backslash
const ALPHABET = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i)).filter((c) => c !== "\\").join("");
const TOP = 92; // of lengths: so many characters, and what the next letter says
const EDGES = [0.05, 0.3, 1, 2, 4, 7]; // bits, of the colours h1 to h6
const SURPRISING = 2; // bits
const PART = [400, 3000]; // tokens of a part: at least, if a line ends; at most
function bitsOf(letter) {
  const level = ALPHABET.indexOf(letter);
  return level < 0 ? null : (level / STEPS) ** 2;
}

// What tokens.py packed: a letter a token, and TOPs before those of long ones.
function withLengths(texts) {
  if (texts.lengths === null) return texts;
  const lengths = [];
  let long = 0;
  for (const letter of texts.lengths) {
    const length = ALPHABET.indexOf(letter);
    if (length < TOP) lengths.push(long + length);
    long = length < TOP ? 0 : long + TOP;
  }
  return { ...texts, lengths };
}

// The text token by token, the heat beneath each by its surprisal. Parts of it, cut after a line
// end where there is one, are laid out only when they come into sight.
function heated({ text, lengths, levels, answer }, readout) {
  const group = el("div", { class: "prose tokens", dir: "auto", role: "group", "aria-label": "Tokens with their surprisal" });
  let at = 0;
  let part = [];
  const close = () => { group.append(el("div", { class: "part" }, ...part)); part = []; };
  lengths.forEach((length, i) => {
    if (!length) return;
    const colour = EDGES.filter((edge) => bitsOf(levels[i]) >= edge).length;
    const inside = answer && at < answer[1] && at + length > answer[0];
    const classes = [colour ? `h${colour}` : null, inside ? "answer" : null].filter(Boolean).join(" ");
    part.push(el("span", { "data-i": i, class: classes || null }, text.slice(at, at + length)));
    at += length;
    if (part.length >= PART[1] || (part.length >= PART[0] && text[at - 1] === "\n")) close();
  });
  part.push(text.slice(at));
  close();
  readable(group, levels, readout);
  return group;
}

// Read tokens by pointer; one of them can be reached by Tab, and arrows move from it.
function readable(group, levels, readout) {
  const tell = (event) => tellToken(readout, event.target.closest("[data-i]"), levels);
  for (const kind of ["pointerover", "click", "focusin"]) group.addEventListener(kind, tell);
  group.querySelector("[data-i]")?.setAttribute("tabindex", "0");
  group.addEventListener("keydown", (event) => {
    const pieces = [...group.querySelectorAll("[data-i]")];
    const at = pieces.indexOf(event.target);
    const surprising = (piece) => bitsOf(levels[piece.dataset.i]) >= SURPRISING;
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
    rove(group, target());
  });
}

function tellToken(readout, piece, levels) {
  if (!piece) return;
  const { i } = piece.dataset;
  const bits = bitsOf(levels[i]);
  const surprisal = bits === null ? "no log-prob" : `log p ≈ −${(bits * Math.LN2).toFixed(2)} (${bits.toFixed(2)} bits)`;
  const text = `token ${i}: ${JSON.stringify(visible(piece.textContent))}, ${surprisal}`;
  if (readout.textContent !== text) readout.textContent = text;
}

function readoutLine() {
  return el("span", { role: "status" }, "Point at a token, or Tab to it, to read its log-probability.");
}

// Surprisal over token positions: the largest of each of at most 400 groups. A click, or Enter
// after moving with arrows, goes to the first token of a group.
function strip({ levels, lengths }, box) {
  if (!levels) return null;
  const bits = Array.from(levels, bitsOf);
  const width = Math.min(400, bits.length);
  const start = (i) => Math.floor((i * bits.length) / width);
  const bars = Array.from({ length: width }, (_, i) => Math.max(0, ...bits.slice(start(i), start(i + 1))));
  const top = Math.max(1, ...bars);
  const cursor = svg("path", { class: "cursor" });
  const slider = svg("svg", { class: "strip", viewBox: `0 0 ${width} 64`, preserveAspectRatio: "none", role: "slider",
    tabindex: 0, "aria-label": `Surprisal of ${bits.length} tokens, at most ${top.toFixed(1)} bits`,
    "aria-valuemin": 0, "aria-valuemax": width - 1 },
  cursor, svg("path", { d: bars.map((bar, i) => `M${i} 64v${(-62 * bar) / top}h1V64z`).join("") }));
  const readout = el("span", {}, `bits per token, up to ${top.toFixed(1)}`);
  let at = 0;
  const move = (to) => {
    at = Math.min(Math.max(to, 0), width - 1);
    const [first, last] = [start(at), start(at + 1) - 1];
    const tokens = first === last ? `token ${first}` : `tokens ${first}–${last}, at most`;
    slider.setAttribute("aria-valuenow", at);
    slider.setAttribute("aria-valuetext", `${tokens}: ${bars[at].toFixed(2)} bits`);
  };
  const select = (to) => {
    move(to);
    readout.textContent = slider.getAttribute("aria-valuetext");
    cursor.setAttribute("d", `M${at} 0h1V64h-1z`);
  };
  const open = () => {
    if (lengths === null) return;
    if (!heat) setHeat(true);
    const piece = [...box.querySelectorAll("[data-i]")].find(({ dataset }) => Number(dataset.i) >= start(at));
    rove(box, piece);
    piece?.scrollIntoView({ block: "center" });
  };
  move(0);
  slider.addEventListener("click", (event) => {
    const area = slider.getBoundingClientRect();
    select(Math.floor(((event.clientX - area.left) / area.width) * width));
    open();
  });
  slider.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, PageDown: at - 20,
      PageUp: at + 20, Home: 0, End: width - 1 }[event.key];
    if (to === undefined && event.key !== "Enter") return;
    event.preventDefault();
    if (to === undefined) open();
    else select(to);
  });
  return el("div", {}, slider, el("div", { class: "axis" }, el("span", {}, "token 0"), readout,
    el("span", {}, `token ${bits.length - 1}`)));
}
