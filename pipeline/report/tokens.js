// The heat of tokens beneath a text, read by pointer or by keys, and surprisal by position.

let heat = stores.get("bayes-report-heat") === "1";
const STEPS = 12; // see tokens.py: level = 12 sqrt(bits), one character from "!" on, no backslash
const ALPHABET = Array.from({ length: 94 }, (_, i) => String.fromCharCode(33 + i)).filter((c) => c !== "\\").join("");
const SURPRISING = 2; // bits
const bitsOf = (letter) => { const level = ALPHABET.indexOf(letter); return level < 0 ? null : (level / STEPS) ** 2; };
const heatClass = (bits) => (bits === null || bits < 0.05 ? null : `h${[0.3, 1, 2, 4, 7].filter((edge) => bits >= edge).length + 1}`);

// The text token by token, the heat beneath each by its surprisal. Parts of it, cut after a line
// end where there is one, are laid out only when they come into sight.
const PART = [400, 3000]; // tokens of a part: at least, if a line ends; at most
function heated(text, lengths, letters, readout, answer = null) {
  const made = el("div", { class: "prose tokens", dir: "auto", role: "group", "aria-label": "Tokens with their surprisal" });
  let at = 0;
  let part = [];
  const close = () => { made.append(el("div", { class: "part" }, ...part)); part = []; };
  lengths.forEach((length, i) => {
    if (!length) return;
    const inside = answer !== null && at < answer[1] && at + length > answer[0];
    const classes = [heatClass(bitsOf(letters[i])), inside ? "answer" : null].filter(Boolean).join(" ");
    part.push(el("span", { "data-i": i, class: classes || null }, text.slice(at, at + length)));
    at += length;
    if (part.length >= PART[1] || (part.length >= PART[0] && text[at - 1] === "\n")) close();
  });
  part.push(text.slice(at));
  close();
  readable(made, letters, readout);
  return made;
}

// Read tokens by pointer; one of them can be reached by Tab, and arrows move from it.
function readable(group, letters, readout) {
  const tell = (event) => {
    const piece = event.target.closest("[data-i]");
    if (piece) tellToken(readout, piece, letters);
  };
  for (const kind of ["pointerover", "click", "focusin"]) group.addEventListener(kind, tell);
  group.querySelector("[data-i]")?.setAttribute("tabindex", "0");
  group.addEventListener("keydown", (event) => {
    const pieces = [...group.querySelectorAll("[data-i]")];
    const at = pieces.indexOf(event.target);
    const high = (piece) => bitsOf(letters[piece.dataset.i]) >= SURPRISING;
    const found = {
      ArrowRight: () => pieces[at + 1],
      ArrowLeft: () => pieces[at - 1],
      ArrowDown: () => pieces.slice(at + 1).find(high),
      ArrowUp: () => pieces.slice(0, Math.max(at, 0)).findLast(high),
      Home: () => pieces[0],
      End: () => pieces.at(-1),
    }[event.key];
    if (!found || at < 0) return;
    event.preventDefault();
    toToken(group, found());
  });
}

function toToken(group, piece) {
  if (!piece) return;
  for (const one of group.querySelectorAll("[tabindex]")) one.removeAttribute("tabindex");
  piece.tabIndex = 0;
  piece.focus();
}

function tellToken(readout, piece, letters) {
  const i = Number(piece.dataset.i);
  const bits = bitsOf(letters[i]);
  const how = bits === null ? "no log-prob" : `log p ≈ −${(bits * Math.LN2).toFixed(2)} (${bits.toFixed(2)} bits)`;
  const said = `token ${i}: ${JSON.stringify(visible(piece.textContent))}, ${how}`;
  if (readout.textContent !== said) readout.textContent = said;
}

function readoutLine() {
  return el("span", { role: "status" }, "Point at a token, or Tab to it, to read its log-probability.");
}

// Surprisal over token positions: the largest of each of at most 400 groups. A click, or Enter
// after moving with arrows, goes to the first token of a group.
function strip(mine, box) {
  if (!mine.levels) return "";
  const bits = Array.from(mine.levels, bitsOf);
  const width = Math.min(400, bits.length);
  const start = (i) => Math.floor((i * bits.length) / width);
  const bars = Array.from({ length: width }, (_, i) =>
    Math.max(0, ...bits.slice(start(i), start(i + 1)).filter((one) => one !== null)));
  const top = Math.max(1, ...bars);
  const svgElement = (tag, attributes) => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    return made;
  };
  const svg = svgElement("svg", { class: "strip", viewBox: `0 0 ${width} 64`, preserveAspectRatio: "none", role: "slider",
    tabindex: 0, "aria-label": `Surprisal of ${bits.length} tokens, at most ${top.toFixed(1)} bits`,
    "aria-valuemin": 0, "aria-valuemax": width - 1 });
  const cursor = svgElement("path", { class: "cursor" });
  svg.append(cursor, svgElement("path", { d: bars.map((bar, i) => `M${i} 64v${(-62 * bar) / top}h1V64z`).join("") }));
  const said = el("span", {}, `bits per token, up to ${top.toFixed(1)}`);
  let at = 0;
  const move = (to) => {
    at = Math.min(Math.max(to, 0), width - 1);
    const [first, last] = [start(at), start(at + 1) - 1];
    const text = `${first === last ? `token ${first}` : `tokens ${first}–${last}, at most`}: ${bars[at].toFixed(2)} bits`;
    svg.setAttribute("aria-valuenow", at);
    svg.setAttribute("aria-valuetext", text);
    return text;
  };
  const select = (to) => {
    said.textContent = move(to);
    cursor.setAttribute("d", `M${at} 0h1V64h-1z`);
  };
  const open = () => {
    if (mine.lengths === null) return;
    if (!heat) setHeat(true);
    const piece = [...box.querySelectorAll("[data-i]")].find((one) => Number(one.dataset.i) >= start(at));
    toToken(box, piece);
    piece?.scrollIntoView({ block: "center" });
  };
  move(0);
  svg.addEventListener("click", (event) => {
    const area = svg.getBoundingClientRect();
    select(Math.floor(((event.clientX - area.left) / area.width) * width));
    open();
  });
  svg.addEventListener("keydown", (event) => {
    const to = { ArrowRight: at + 1, ArrowUp: at + 1, ArrowLeft: at - 1, ArrowDown: at - 1, PageDown: at - 20,
      PageUp: at + 20, Home: 0, End: width - 1 }[event.key];
    if (to === undefined && event.key !== "Enter") return;
    event.preventDefault();
    if (to === undefined) open();
    else select(to);
  });
  return el("div", {}, svg, el("div", { class: "axis" }, el("span", {}, "token 0"), said,
    el("span", {}, `token ${bits.length - 1}`)));
}

function setHeat(on) {
  heat = on;
  stores.set("bayes-report-heat", on ? "1" : "0");
  reading.redraw?.();
}
function toggleHeat() {
  setHeat(!heat);
}
