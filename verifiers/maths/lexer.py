r"""Read LaTeX and Unicode as tokens, and write them back in the one spelling that all layers read.

A text goes through four steps: characters, tokens, arguments in braces, phrases. Each keeps the
meaning; when in doubt a spelling is left alone. All take linear time, or quadratic time in a text
that `MAX_CHARS` bounds, and none recurses.

>>> clean(r"$\left( \dfrac\pi4,\; \sqrt 3 \right)$."), clean("90°"), clean("2¹⁰")
('(\\frac{\\pi}{4},\\sqrt{3})', '90^{\\circ}', '2^{10}')
>>> clean(r"\text{The answer is }1\,234"), clean("{ 5 }"), clean("15 apples")
('1 234', '5', '15\\text{apples}')
"""

import functools
import itertools
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from bayes_at_n.verifiers.maths.units import is_title, is_unit

MAX_CHARS = 1_000
MAX_DEPTH = 40

# --- characters. Written as escapes where a sign is easily taken for another.
_SUPERSCRIPTS = dict(zip("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ", "0123456789+-=()ni", strict=True))
_SUBSCRIPTS = dict(zip("₀₁₂₃₄₅₆₇₈₉₊₋₌₍₎ₙₖᵢⱼₘ", "0123456789+-=()nkijm", strict=True))
_SCRIPTS = [
    (re.compile(f"[{''.join(signs)}]+"), mark, str.maketrans(signs))
    for mark, signs in (("^", _SUPERSCRIPTS), ("_", _SUBSCRIPTS))
]
_NAMES = """
α alpha β beta γ gamma δ delta ε epsilon ζ zeta η eta θ theta κ kappa λ lambda μ mu µ mu ν nu ξ xi
ρ rho σ sigma τ tau φ phi ϕ phi χ chi ψ psi ω omega Γ Gamma Δ Delta Θ Theta Λ Lambda Σ Sigma Φ Phi
Ψ Psi Ω Omega π pi ∞ infty × times · cdot ⋅ cdot ± pm ∓ mp ≤ leq ≥ geq ≠ neq ≈ approx ≡ equiv ∪ cup
∩ cap ∈ in ∉ notin ∅ emptyset ∖ setminus √ sqrt ∑ sum ∏ prod ∫ int ⌊ lfloor ⌋ rfloor ⌈ lceil
⌉ rceil ∠ angle △ triangle ∧ wedge ∨ vee → to ⩽ leq ⩾ geq ∀ forall ⟨ langle ⟩ rangle ∴ therefore
"""
_pairs = iter(_NAMES.split())
_UNICODE = str.maketrans({
    **{sign: rf"\{name} " for sign, name in zip(_pairs, _pairs, strict=True)},
    **dict.fromkeys("\u2212\u2013\u2010\u2011\ufe63", "-"),  # minus, en dash, hyphens
    **dict.fromkeys("\u00a0\u2007\u2009\u202f\u2003\u2002\u2005\u200a\u2061\u3000", " "),
    **dict.fromkeys("\u2044\u2215÷∕", "/"), "\u2062": r"\cdot ", "\u2063": ",",
    "\u2064": "+",
    "°": r"^{\circ}", "º": r"^{\circ}", "℃": r"^{\circ}C", "℉": r"^{\circ}F", "Ω": r"\Omega ",
    "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}", "ℕ": r"\mathbb{N}", "ℚ": r"\mathbb{Q}",
    "ℂ": r"\mathbb{C}", "\u2026": r"\dots ", "’": "'", "′": "'", "″": "''", "∶": ":", "∣": "|",
    "½": r"\frac{1}{2}", "⅓": r"\frac{1}{3}", "⅔": r"\frac{2}{3}", "¼": r"\frac{1}{4}",
    "¾": r"\frac{3}{4}", "⅛": r"\frac{1}{8}", "⅕": r"\frac{1}{5}", "⅖": r"\frac{2}{5}",
    "⅗": r"\frac{3}{5}", "⅘": r"\frac{4}{5}", "⅙": r"\frac{1}{6}", "⅚": r"\frac{5}{6}",
    "⅜": r"\frac{3}{8}", "⅝": r"\frac{5}{8}", "⅞": r"\frac{7}{8}",
    "∛": r"\sqrt[3]", "∜": r"\sqrt[4]", "‰": r"\text{permille}", "\u00a2": r"\text{cent}",
    "\uff05": r"\%",
})  # fmt: skip


def _characters(text: str) -> str:
    """Return a text with one character for those that mean the same, and no invisible ones."""
    if not text.isascii():
        for run, mark, plain in _SCRIPTS:
            text = run.sub(lambda m, p=plain, k=mark: f"{k}{{{m[0].translate(p)}}}", text)  # type: ignore[misc]
        text = re.sub(r"√ ?([0-9.]*[0-9]|[A-Za-z])", r"\\sqrt{\1}", text).translate(_UNICODE)
        text = "".join(
            unicodedata.normalize("NFKC", char) if char >= "\uff00" else char
            for char in text
            if unicodedata.category(char) != "Cf"
        )
    return text.strip()


# --- tokens
_DOTTED = r"\\dot(?:\{ ?[0-9] ?\}|[0-9])"
REPEATING = (  # 0.1\overline{6}, 0.1\dot{6}, 0.\dot{1}4285\dot{7}
    r"[0-9]{0,50}\.[0-9]{0,50}(?:\\(?:overline|bar)(?:\{ ?[0-9]{1,50} ?\}|[0-9])"
    rf"|{_DOTTED}(?:[0-9]{{0,50}}{_DOTTED})?)"
)
_FONTS = (
    r"text(?:bf|it|rm|sf|tt|normal|up|sc)?|mbox|hbox|math(?:rm|bf|it|sf|tt|normal)|operatorname\*?"
)
TOKEN = re.compile(
    rf"(?P<repeating>{REPEATING})|(?P<number>[0-9]+(?:\.[0-9]+)?|\.[0-9]+)|(?P<space>\s+)"
    r"|(?P<environment>\\(?:begin|end)\s?\{[a-zA-Z]+\*?\}(?:\{[lcr| ]*\})?)"
    rf"|\\(?:{_FONTS})\s*\{{(?P<words>(?:[^{{}}$\\]|\\[%$&#_ ,]|\\cdot\b|\$[^$]*\$)*)\}}"
    r"|\\[hv]?phantom\s*\{(?P<phantom>[^{}]*)\}|(?P<command>\\[A-Za-z]+|\\.|[<>] ?=|=<|\.{3})"
    r"|(?<![A-Za-z\\])(?P<prose>[A-Za-z]{2,}(?:\.?[ -][A-Za-z]{2,})*)|(?P<other>.)",
    re.DOTALL,
)
_SPELLINGS = r"""
\frac dfrac tfrac cfrac;\binom dbinom tbinom;\leq le leqslant leqq;\geq ge geqslant geqq;\neq ne
< lt;> gt;| lvert rvert vert;\{ lbrace;\} rbrace;[ lbrack;] rbrack;( lparen;) rparen;: colon
\emptyset varnothing;\setminus backslash smallsetminus;\wedge land;\vee lor;\dots ldots cdots dotsc
\dots dotsb dotso;\to rightarrow;\arctan arctg atan;\tan tg;\cot ctg cotg;\arcsin asin;\arccos acos
\phi varphi;\epsilon varepsilon;* ast;\overline bar;' prime;/ slash;\implies Rightarrow
\mod pmod;\equiv cong;\approx simeq thickapprox;\cup bigcup;\cap bigcap
"""
_SAME = {
    rf"\{name}": meant
    for meant, *names in map(str.split, _SPELLINGS.strip().replace("\n", ";").split(";"))
    for name in names
} | {r"\R": r"\mathbb{R}", r"\Z": r"\mathbb{Z}", r"\N": r"\mathbb{N}", r"\degree": r"^{\circ}"}
# What only looks, and what only makes room.
_LOOK_NAMES = """
displaystyle textstyle scriptstyle limits nolimits left right middle big Big bigg Bigg bigl bigr
bigm Bigl Bigr Bigm biggl biggr biggm Biggl Biggr Biggm large Large LARGE huge Huge small tiny
normalsize boldmath mathbin mathrel mathord bf rm it sf tt em bfseries itshape therefore because
hfill strut mathstrut nobreak boldsymbol bm pmb mathbf mathrm mathit mathsf mathnormal text textbf
textit textrm ensuremath mathop operatorname underline boxed fbox mbox noindent
"""
_LOOKS = frozenset(rf"\{name}" for name in _LOOK_NAMES.split())
_ROOM = {r"\ ", r"\,", r"\;", r"\:", r"\>", r"\quad", r"\qquad", r"\enspace", r"\thinspace", "~"}
_SYMBOLS = {r"\(": "", r"\)": "", r"\[": "", r"\]": "", "$": "", r"\&": "&", "%": r"\%", r"\!": "",
            "<=": r"\leq", "< =": r"\leq", "=<": r"\leq", ">=": r"\geq", "> =": r"\geq",
            "...": r"\dots", r"\#": "#", r"\_": "_"}  # fmt: skip
# Names that say a command without its backslash.
_PLAIN_NAMES = """
cis sin cos tan cot sec csc arcsin arccos arctan sinh cosh tanh ln log exp sqrt frac binom pi infty
theta alpha beta gamma lambda gcd lcm max min
"""
_PLAIN = frozenset(_PLAIN_NAMES.split())
_SMALL_NAMES = """
a an the is are of no not to in on for all any if it so we be as at by or and but yes per with
"""
_SMALL = frozenset(_SMALL_NAMES.split())
_SAYS = re.compile(
    r"^(?:(?:so|thus|hence|therefore|then|and),? )?(?:we (?:get|have|find) )?(?:(?:the|our|my) )?"
    r"(?:(?:final|correct|exact) )?(?:answer|result|solution|value)(?:s? (?:is|are)\b| ?[:=])[ :]*"
    r"|^(?:exactly|precisely)\b[ :]*"
    r"|^(?:the |its )?((?:[a-z]+ ){1,4}?)(?:is|are|equals)(?: equal to)?(?![a-z])[ :]*"
    r"(?=$|[^a-z ])",
    re.IGNORECASE,
)
_JOINS = {"and": r"\land", "or": r"\lor", "mod": r"\mod", "infinity": r"\infty", "inf": r"\infty",
          "percent": r"\%", "per cent": r"\%", "pct": r"\%", "percentage": r"\%", "union": r"\cup",
          "for": ",", "where": ",", "with": ",", "and or": r"\lor"}  # fmt: skip


def _tokens(text: str) -> Iterator[str]:
    """Yield the tokens of a text, in one spelling, without what only looks."""
    last = ""
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "words":
            if token.startswith(r"\mathbf") and match["words"] in ("i", "j", "k"):
                yield from (r"\vec", "{", match["words"], "}")  # the unit vector
                continue
            if token == r"\mathbf{I}" and re.search(r"[0-9](\\,)?$", text[: match.start()][-3:]):
                yield "I"  # the matrix 2I
            else:
                yield from _of_words(match["words"], last)
        elif kind == "prose":
            yield from _of_prose(token, text[: match.start()])
        elif kind == "phantom" or kind == "space" or token in _ROOM:
            yield " "
        elif kind == "environment":
            yield re.sub(r"\s|(?<=\})\{.*", "", token)
        elif token in _LOOKS:
            last = token
            continue
        elif token == "." and last in (r"\left", r"\right"):
            pass
        else:
            yield _SYMBOLS.get(token, _SAME.get(token, token))
        last = token


def _unsaid(words: str) -> str:
    """Return words without "the answer is" or "the area of it is" before a value or the end."""
    says = _SAYS.match(words)
    if says is None or not is_title((says[1] or "").lower().split()):
        return words
    return words[says.end() :]


def _of_words(words: str, last: str) -> Iterator[str]:
    r"""Yield the tokens of `\text{words}`, or of letters in a font."""
    if "$" in words:
        for i, piece in enumerate(words.split("$")):
            yield from _tokens(piece) if i % 2 else _of_words(piece, last)
        return
    words, power, exponent = words.partition("^")
    words = re.sub(r"\\([,%$&#_ ])", r"\1", words.replace("~", " "))
    words = _unsaid(" ".join(words.split()))
    plain = words.lower().strip(" ,.:")
    if not re.search("[A-Za-z]", words):
        yield from (" ", *_tokens(words), " ")
    elif plain in _JOINS or plain in _PLAIN - {"sec", "min"}:
        yield _JOINS.get(plain, "\\" + plain)
    elif words in ("i", "e"):
        yield words
    elif number := re.fullmatch(r"([-0-9.,/:]+) ?([A-Za-z][A-Za-z. ]*)", words):
        yield from (number[1], rf"\text{{{number[2].rstrip('.')}}}")
    elif all_but := re.fullmatch(r"[Aa]ll real(?:s| numbers)? except (.*[0-9])", words):
        yield from (r"\mathbb{R}", r"\setminus", r"\{", *_tokens(all_but[1]), r"\}")
    elif re.fullmatch(r"[A-Z](?:, ?[A-Z])+", words):
        yield words
    elif base := re.fullmatch(r"\(?base ?([0-9]+)\)?", words):
        yield from ("_", "{", base[1], "}")
    elif modulus := re.fullmatch(r"(\(?)mod(?:ulo)? ?([0-9]*)(\)?)", words):
        yield from (modulus[1], r"\mod", modulus[2], modulus[3])
    elif re.search("[=+<>]", words) and not re.search("[A-Za-z]{3}", words):
        yield from _tokens(words)
    else:
        yield rf"\text{{{words.rstrip('.!') if len(words) > 3 else words}}}"
    yield from _tokens(power + exponent)


def _of_prose(run: str, before: str) -> Iterator[str]:
    """Yield the tokens of letters side by side: words, a command without a backslash, names."""
    while (first := re.match(r"(and|or)(?: |$)", run)) or (
        first := re.match(r"(sqrt|sin|cos|tan|ln|log|pi|exp)(?: |$)", run)
    ):
        yield _JOINS.get(first[1], "\\" + first[1])
        run = run[first.end() :]
    said = _unsaid(run).strip()
    words = said.split()
    behind_number = re.search(r"[0-9})]\$?\s?\$?$", before) is not None
    if not words:
        return
    if said.lower() in _JOINS or (said in _PLAIN and not (behind_number and said == "min")):
        yield _JOINS.get(said.lower(), "\\" + said)
    elif behind_number and all(map(is_unit, words)):
        yield rf"\text{{{said}}}"
    elif said.isupper() or before[-1:].isdigit():
        yield said
    elif any(len(word) > 3 for word in words) or (
        {*map(str.lower, words)} & _SMALL and (len(words) > 1 or before[-1:].isspace())
    ):
        yield rf"\text{{{said}}}"
    else:
        yield said


# --- arguments in braces
_ONE_ARGUMENT = (
    r"\sqrt ^ _ \mathbb \overline \vec \hat \tilde \widehat \overrightarrow \overarc \dot \ddot"
)
_ARGUMENTS = {r"\frac": 2, r"\binom": 2} | dict.fromkeys(_ONE_ARGUMENT.split(), 1)


class _Frame(NamedTuple):
    """What is open: a command that wants arguments, or a group that ends with a brace or a unit."""

    command: str
    wanted: int


def _braced(given: list[str]) -> list[str]:
    r"""Put braces around every argument: `\frac\pi4`, `\frac12`, `x^2`, `\sqrt[3]2`, `2^(1/2)`.

    As TeX has it an argument is one token or one digit; a power is all of a number, and may have a
    sign. A command as an argument takes its own with it.
    """
    tokens, out, frames = given[::-1], list[str](), list[_Frame]()

    def end_of_unit() -> None:
        while frames and frames[-1].command != "{":
            frame = frames.pop()
            if not frame.wanted:
                out.append("}")
            elif frame.wanted > 1:
                frames.append(_Frame(frame.command, frame.wanted - 1))
                return

    while tokens:
        token = tokens.pop()
        if frames and frames[-1].wanted:
            command = frames[-1].command
            if token == " ":
                continue
            if token == "[" and command == r"\sqrt" and "]" in tokens:
                degree = len(tokens) - tokens[::-1].index("]") - 1
                out += ["[", *tokens[degree:][::-1]]
                del tokens[degree:]
                continue
            if (
                token == "("
                and command in (r"\sqrt", "^")
                and (end := _closing(tokens)) is not None
            ):
                tokens[end], token = "}", "{"
            if token in ("}", "&", ",", ")"):
                frames.pop()  # it has no argument
            elif token != "{":
                out.append("{")
                frames.append(_Frame("", 0))
                if token in ("+", "-") and command == "^":
                    out.append(token)
                    continue
                several = command in ("^", "_") and out[-3:-2] != [r"\log"]
                if token.isdigit() and len(token) > 1 and (not several):
                    tokens.append(token[1:])
                    token = token[0]
        out.append(token)
        if token in _ARGUMENTS:
            frames.append(_Frame(token, _ARGUMENTS[token]))
        elif token == "{":
            frames.append(_Frame("{", 0))
        else:
            if token == "}" and frames and frames[-1].command == "{":
                frames.pop()
            end_of_unit()
    return out + ["}" for frame in frames if not frame.command]


def _closing(tokens: list[str]) -> int | None:
    """Return where, in reversed tokens behind a bracket, its closing one is."""
    depth = 1
    for i in range(len(tokens) - 1, -1, -1):
        depth += (tokens[i] == "(") - (tokens[i] == ")")
        if not depth:
            return i
    return None


# --- phrases
_ONE = r"\{([0-9]{1,6}|[a-z])\}"  # an index of nCk
_CURRENCIES = {"€": "euro", "£": "gbp", "¥": "yen", "₹": "rupee", "EUR": "euro", "GBP": "gbp",
               "INR": "rupee", "Rs": "rupee", "Rs.": "rupee"}  # fmt: skip
_MONEY = r"((?:USD? ?)?\\\$|(?:USD|EUR|GBP|INR|Rs\.?)(?= ?[0-9])|[€£¥₹])"
_POWERS = dict(thousand=3, million=6, billion=9, trillion=12)
_NUMBER_NAMES = """zero one two three four five six seven eight nine ten eleven twelve thirteen
fourteen fifteen sixteen seventeen eighteen nineteen twenty"""
_NUMBERS = {name: str(i) for i, name in enumerate(_NUMBER_NAMES.split())}
_UNITS = r"(?:\\text\{[^{}]*\}|\\cdot ?|\^\{-?[1-9]\})+"
_WHOLE = r",\1\\in\\mathbb{Z}"
_PHRASES = [
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (r"\s+", " "),
        # A space counts only between two letters or digits ("1 1/2" is not "11/2") and after a
        # comma ("1, 234" is not "1,234").
        (r" (?=[^0-9A-Za-z])|(?<=[^0-9A-Za-z,]) |(?<=[^0-9],) |^ | $", ""),
        (r"(?<=[0-9])\{,?\}(?=[0-9]{3}(?![0-9]))|^\{\}(?=[-+]?[0-9])", ""),
        (r"(?<![\^_}])\{([,:.;=+-])\}", r"\1"),
        (r",,+", ","),
        (r"\((\\approx[^()]*)\)$", r"\1"),
        (r"(?<=[A-Za-z]) ?!=", r"\\neq "),
        (r"\\langle([^|]*,[^|]*)\\rangle", r"(\1)"),
        (r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"\{([^{}\\]+)\\choose ?([^{}\\]+)\}", r"{\\binom{\1}{\2}}"),
        (r"^([^{}\\]+)\\choose ?([^{}\\]+)$", r"\\binom{\1}{\2}"),
        # Before it stands nothing that the upper index could be the power of.
        (
            r"(?:\{\}|(?<=\\times)|(?<=\\cdot)|(?<![0-9A-Za-z)}\]!|']))[\^_]"
            rf"{_ONE}(?:C|\\text\{{C\}})_{_ONE}(?![0-9])",
            r"\\binom{\1}{\2}",
        ),
        # Python's power; not with another one behind it, nor the stars of bold text.
        (
            r"(?<=[0-9A-Za-z)}])\*\*(?:(-?[0-9]+(?:\.[0-9]+)?|[A-Za-z])|\(([^()*]*)\))"
            r"(?! ?\*\*|[0-9.])",
            r"^{\1\2}",
        ),
        (r"^\*\*(?=[^*]+\*\*$)|(?<=[^*])\*\*$", ""),
        (r"\^\{\\circ\}(?:\\text\{([CF])\}|([CF])$)", r"\\text{\1\2}"),
        (r"^\{([0-9]+)\}\{([0-9]+)\}$", r"\1\2"),
        (r"^([0-9]+)(?:\^\{)?(?:\\text\{)?(?:st|nd|rd|th)\}{0,2}$", r"\1"),
        (r"\^\{'+\}", "'"),
        (r"(?<=[0-9A-F])\(?\\text\{base\} ?([0-9]+)\)?$|_\{\(([0-9]+)\)\}", r"_{\1\2}"),
        (r"^([0-9A-F]*)\\text\{([0-9A-F]+)\}(?=[0-9A-F]*_\{[0-9]+\}$)", r"\1\2"),
        (  # a time of day
            r"^([0-9]{1,2}(?::[0-5][0-9]|(?= |\\)))(?: ?|\\text\{)([AaPp])\.?[Mm]\.?\}?$",
            lambda m: rf"{m[1].removesuffix(':00')}\text{{{m[2].lower()}m}}",
        ),
        (r"^\\text\{(?:[Oo]ption|[Cc]hoice)\} ?(?=\(?[A-J]\)?$)", ""),
        (r"^\(\\text\{([A-J])\}\)$", r"(\1)"),
        (r"^\\mid ?(.*?)\\mid$", r"|\1|"),
        (rf"\\frac\{{({_UNITS})\}}\{{({_UNITS})\}}", r"\1/(\2)"),
        (r"^([0-9]*\.)\(([0-9]+)\)$", r"\1\\overline{\2}"),
        # Dots behind digits that visibly repeat; behind others they could go on in any way.
        (r"(\.[0-9]*?)(?:([0-9])\2{2,}|([0-9]{2,6})\3+)\\dots$", r"\1\\overline{\2\3}"),
        # A decimal that says that it is rounded; a whole number would be a guess.
        (r"^\\text\{(?:about|approximately|approx\.?)\} ?(?=-?[0-9]*\.[0-9])", r"\\approx "),
        (
            r"^(-?[0-9]+)(?:\\text\{\(([a-z]+)\)\}|\(\\text\{([a-z]+)\}\))$",
            lambda m: m[1] if _NUMBERS.get(m[2] or m[3]) == m[1] else m[0],
        ),
        (r"\\(?:hat|vec)\{(?:\\vec\{([ijk])\}|\\?([ijk])(?:math)?)\}", r"\\vec{\1\2}"),
        (r"^(?:([A-Za-z]):)?([a-z])\\mapsto ?(.+)$", lambda m: f"{m[1] or 'f'}({m[2]})={m[3]}"),
        (r"^\\text\{[Aa]ll real(?:s| numbers)? except\}(.+)$", r"\\mathbb{R}\\setminus\\{\1\\}"),
        (r"^\\text\{[Aa]ll real(?:s| numbers)?(?: [a-z])?\} ?[a-z]?$", r"\\mathbb{R}"),
        (r"^-\\infty<([a-z])<\+?\\infty$", r"\1\\in\\mathbb{R}"),
        # The integers that a family runs over.
        (
            r"\\text\{,? ?(?:for|where)?(?: some| any| all| every)?(?: an)? ?integers?\} ?([a-z])$",
            _WHOLE,
        ),
        (
            r"(?:\\text\{,? ?(?:for|where)\}|,) ?([a-z])\\text\{(?:is )?(?:an(?:y)? )?integer\}$",
            _WHOLE,
        ),
        (r"^\((-?[0-9A-F]+)\)(?=_\{[0-9]+\}$)", r"\1"),
        (r"\\(begin|end)\{bmatrix\}", r"\\\1{pmatrix}"),
        (
            r"[(\[]\\begin\{(array|(?:small)?matrix)\}([^()\[\]]*?)\\end\{\1\}[)\]]",
            r"\\begin{pmatrix}\2\\end{pmatrix}",
        ),
        (r"\\\\(?=\\end\{)", ""),
        (r"(?<![\^_}\]A-Za-z])\{([A-Za-z0-9.]+)\}", r"\1"),
        (r"(?:(?<=\\cup)|(?<=\\cap)|(?<![\^_}\]A-Za-z\\]))\{([^{}\\]*,[^{}\\]*)\}", r"\\{\1\\}"),
        (r",(?=\\l(?:or|and)(?![A-Za-z]))", ""),
        (r"(?<=\\mathbb\{R\})-(?=\\\{)", r"\\setminus"),
        (r"(\\[A-Za-z]+) (?=[^A-Za-z])", r"\1"),
        (r"^\+(?=\\infty$)", ""),
        (r"^\\\{\\\}$", r"\\emptyset"),
        (rf"_\{{\\text\{{({'|'.join(_NUMBERS)})\}}\}}", lambda m: f"_{{{_NUMBERS[m[1]]}}}"),
        (  # 3 million dollars
            rf"(?<![0-9.,])([0-9][0-9.]*)\\text\{{({'|'.join(_POWERS)})(?: ([A-Za-z ]+))?\}}",
            lambda m: rf"{m[1]}\times10^{{{_POWERS[m[2]]}}}" + rf"\text{{{m[3]}}}" * bool(m[3]),
        ),
    )
]
RELATION = re.compile(r"[<>=]|\\(?:[lgn]eq|in|equiv)(?![A-Za-z])")
_STACK = re.compile(
    r"\\begin\{(cases|aligned|align\*?|gathered|split|array|matrix)\}(.*?)\\end\{\1\}", re.DOTALL
)
_NOTHING = re.compile(  # negative space, colors, the height of a row, a backslash at the end
    r"(?<=[0-9]),\\!\s*(?=[0-9]{3})|\\!\s*|\\(?:text)?color\s*\{[A-Za-z]+\}"
    r"|(?<=\\\\)\[[-0-9. ]+[a-z]{2}\]|(?<!\\)\\$"
)
_WRAPPER = re.compile(r"(?:\\text(?=\{[-+]?[0-9.,/]+\}$))?\{")


@functools.lru_cache(maxsize=1024)  # a gold answer stands in many pairs
def clean(text: str) -> str:
    r"""Return one spelling for LaTeX that means the same; single spaces are kept where they count.

    >>> clean(r"\frac{5\sqrt6}3"), clean(r"25\text{\%}"), clean(r"x<1 \text{ or } x>\sqrt[3]2")
    ('\\frac{5\\sqrt{6}}{3}', '25\\%', 'x<1\\lor x>\\sqrt[3]{2}')
    """
    text = _characters(text)
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # escaped twice
    tokens = ["", *filter(None, _braced([*_tokens(_NOTHING.sub("", text))]))]
    text = "".join(  # a letter behind a command stays apart from it
        " " * bool(token[0].isalpha() and re.match(r"\\[A-Za-z]+$", last)) + token
        for last, token in itertools.pairwise(tokens)
    )
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    if RELATION.search(text):  # between relations they are words, between statements signs
        text = re.sub(r"\\wedge(?![A-Za-z])", r"\\land ", text)
        text = re.sub(r"\\vee(?![A-Za-z])", r"\\lor ", text)
        text = re.sub(r"(\\l(?:or|and)) (?=[^A-Za-z])", r"\1", text)
    text = _STACK.sub(_of_stack, text)
    if r"\begin" not in text:
        text = re.sub(r"(?:,?\\\\)+", ",", text)
    text = _in_currency(_unwrapped(text))
    if number := re.fullmatch(r"\\text\{([A-Za-z]+)\}", text):
        text = _NUMBERS.get(number[1].lower(), text)
    return text[:-1].rstrip() if len(text) > 1 and text[-1] in ".,;" else text


def _of_stack(stack: re.Match[str]) -> str:
    """Return equations below each other as a list, the pieces of an expression as one."""
    kind, body = stack[1], stack[2].replace("&=", "=")
    if "&" in body:
        return stack[0]
    if kind == "matrix":  # a column, or the pieces of one expression below each other
        rows = body.split("\\\\")
        if all(
            row and row.count("{") == row.count("}") and row[0] not in "+-^_" for row in rows
        ) and (not all(row.isdigit() for row in rows)):
            return rf"\begin{{pmatrix}}{body}\end{{pmatrix}}"
        return "".join(rows)
    return re.sub(r",?\\\\", ",", body)


def _in_currency(text: str) -> str:
    """Return an amount of money with the name of its currency behind it; other dollar signs go."""
    money = re.fullmatch(rf"(-?){_MONEY} ?([^€£¥₹$]+)|([^€£¥₹$]*[0-9]){_MONEY}", text)
    if money:
        sign, before, amount, other, behind = money.groups("")
        currency = _CURRENCIES.get(before or behind, "dollar")
        amount, words = re.fullmatch(r"(.*?)(?:\\text\{(?:dollars?)? ?(.*)\})?", amount).groups("")  # type: ignore[union-attr]
        return rf"{sign}{amount}{other}\text{{{f'{currency} {words}'.strip()}}}"
    return text.replace(r"\$", "")


def _unwrapped(text: str) -> str:
    """Take off braces that hold the whole text."""
    for _ in range(MAX_DEPTH):
        head = _WRAPPER.match(text)
        if head is None or closing(text, head.end()) != len(text) - 1:
            break
        text = text[head.end() : -1].strip()
    return text


_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)


def closing(text: str, start: int) -> int | None:
    r"""Return where the brace opened before `start` is closed, or None; `\{` does not count."""
    depth = 1
    for brace in _BRACE.finditer(text, start):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if depth == 0:
            return brace.start()
    return None
