// The heat of tokens beneath a text, read by pointer or by keys, and surprisal by position.

let heat = stores.get("bayes-report-heat") === "1";
function setHeat(on) {
  heat = on;
  stores.set("bayes-report-heat", on ? "1" : "0");
  draw();
}

const EDGES = [0.05, 0.3, 1, 2, 4, 7]; // bits, of the colors h1 to h6
const SURPRISING = 200; // hundredths of a bit, as tokens.py writes them
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

// Surprisal over token positions: the largest of each of at most 400 groups. A click, or Enter
// after moving with arrows, goes to the first token of a group.
function Strip({ bits, lengths }) {
  const [at, select] = useState(null);
  const width = Math.min(400, bits.length);
  const start = (i) => Math.floor((i * bits.length) / width);
  const bars = Array.from({ length: width }, (_, i) => Math.max(0, ...bits.slice(start(i), start(i + 1))) / 100);
  const top = Math.max(1, ...bars);
  const [first, last] = [start(at ?? 0), start((at ?? 0) + 1) - 1];
  const tokens = first === last ? `token ${first}` : `tokens ${first}–${last}, at most`;
  const text = `${tokens}: ${bars[at ?? 0].toFixed(2)} bits`;
  const open = ({ target }) => {
    if (lengths === null) return;
    if (!heat) setHeat(true);
    const group = target.closest("section").querySelector(".tokens");
    const piece = [...group.querySelectorAll("[data-i]")].find(({ dataset }) => Number(dataset.i) >= start(Number(target.value)));
    rove(group, piece);
    piece?.scrollIntoView({ block: "center" });
  };
  return html`<div class="chart">
    <svg viewBox=${`0 0 ${width} 64`} preserveAspectRatio="none" aria-hidden="true">
      ${at !== null && html`<path class="cursor" d=${`M${at} 0h1V64h-1z`} />`}
      <path d=${bars.map((bar, i) => `M${i} 64v${(-62 * bar) / top}h1V64z`).join("")} /></svg>
    <input type="range" class="strip" min="0" max=${width - 1} value=${at ?? 0} aria-valuetext=${text}
      aria-label=${`Surprisal of ${bits.length} tokens, at most ${top.toFixed(1)} bits`}
      onInput=${({ target }) => select(Number(target.value))} onClick=${open}
      onKeyDown=${(event) => event.key === "Enter" && open(event)} />
    <div class="axis"><span>token 0</span><span>${at === null ? `negative log-likelihood, up to ${top.toFixed(1)} bits` : text}</span>
      <span>token ${bits.length - 1}</span></div></div>`;
}
