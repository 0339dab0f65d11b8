// The heat of tokens beneath a text, read by pointer or by keys.

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
