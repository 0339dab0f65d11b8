r"""Conservative clean-up of short LaTeX answers: spellings that mean the same become one.

Every rewriting here keeps the meaning; when in doubt a spelling is left alone and the dearer
layers decide. All patterns are linear, or quadratic in a text that `MAX_CHARS` bounds.
"""

import functools
import itertools
import re

from bayes_at_n.verifiers.maths.boxed import closing
from bayes_at_n.verifiers.maths.operations import spelled

MAX_CHARS = 1_000
MAX_DEPTH = 40
MAX_BARS = 16

# Written as escapes where a sign is easily taken for another.
_UNICODE = str.maketrans({
    "\u2212": "-", "\u2013": "-",  # minus, en dash
    "\u00d7": r"\times ", "·": r"\cdot ", "⋅": r"\cdot ", "÷": "/", "±": r"\pm ", "\uff05": r"\%",
    "°": r"^{\circ}", "π": r"\pi ", "∞": r"\infty ",
    "≤": r"\leq ", "≥": r"\geq ", "\u222a": r"\cup ", "∅": r"\emptyset ",
    "≠": r"\neq ", "\u2208": r"\in ", "\u2229": r"\cap ", "ℝ": r"\mathbb{R}", "ℤ": r"\mathbb{Z}",
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u200b": "",  # no-break, thin, narrow, no width
    "\ufeff": "", "\u2061": " ", "\u2062": r"\cdot ", "\u2063": ",", "\u2044": "/", "\u2215": "/",
    "½": r"\frac{1}{2}", "¼": r"\frac{1}{4}", "¾": r"\frac{3}{4}", "⅓": r"\frac{1}{3}",
    **{power: f"^{{{i}}}" for i, power in enumerate("⁰¹²³⁴⁵⁶⁷⁸⁹")},
    **{chr(0x2080 + i): f"_{{{i}}}" for i in range(10)},
    **{chr(0xFF10 + i): str(i) for i in range(10)},
})  # fmt: skip
_REWRITES = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        # What only looks: colours, sizes, bold letters, room for a sign.
        (r"\\[hv]?phantom\s*\{[^{}]*\}", " "),
        (r"\\(?:text)?color\s*\{[a-z]+\}|^\s*\*\*(?=[^*]+\*\*$)|(?<=[^*])\*\*$", ""),
        (r"\\(?:[lL]arge|LARGE|[hH]uge|small|boldmath)(?![A-Za-z])\s*", ""),
        (r"\\(?:boldsymbol|bm|pmb)\s*\{([^{}]*)\}", r"\1"),
        (r"\\!\s*|\\(?:displaystyle|limits|left|right|middle|[bB]igg?[lrm]?)(?![A-Za-z])", ""),
        (r"(?<!\\)\\[,;: ]|\\q?quad(?![A-Za-z])|(?<!\\)~|\\\n", " "),
        (r"\\text\s*\{[\s.,;]*\}", " "),
        (r"(?<=[0-9])\{,\}(?=[0-9]{3}(?![0-9]))", ""),
        (r"\{,\}", ","),
        (r"\\varnothing(?![A-Za-z])", r"\\emptyset"),
        (r"\\[lc]?dots[cbo]?(?![A-Za-z])|\u2026|\.\.\.", r"\\dots "),
        (r"\\langle(?![A-Za-z])([^|]*,[^|]*)\\rangle(?![A-Za-z])", r"(\1)"),
        (r"\{([^{}]*)\\over(?![A-Za-z])([^{}]*)\}", r"\\frac{\1}{\2}"),
        (r"(?<!\\)\\[()\[\]]|\\?\$", ""),
        (r"\\[dtc](frac|binom)(?![A-Za-z])", r"\\\1"),
        (r"\\(?:textbf|textit|textrm|textnormal|textsf|mbox)\s*\{", r"\\text{"),
        (r"\\(?:mathrm|mathit|text)\s*\{\s*([ie])\s*\}", r"\1"),
        (r"\\(?:mathrm|mathbf|mathit|mathsf)\s*\{", r"\\text{"),
        (r"\\text\s*\{\s*infinity\s*\}", r"\\infty "),
        (r"(\\text\s*\{[A-Za-z ]+)[.!]\s*\}$", r"\1}"),
        (r"\\lt(?![A-Za-z])", "<"),
        (r"\\gt(?![A-Za-z])", ">"),
        (r"(?<=[A-Za-z]) ?!=|\\ne(?![A-Za-z])", r"\\neq "),
        (r"\\le(?:qslant)?(?![A-Za-z])|<=", r"\\leq "),
        (r"\\ge(?:qslant)?(?![A-Za-z])|>=", r"\\geq "),
        (
            r"\^\s*(?:\\circ(?![A-Za-z])|\{\s*\\(?:circ|degree)\s*\})|\\degree(?![A-Za-z])",
            r"^{\\circ}",
        ),
        (r"(\^\{\\circ\}) ?([CF])$", r"\1\\text{\2}"),
        (r"^\s*\{([0-9]+)\}\{([0-9]+)\}\s*$", r"\1\2"),
        (r"(?<!\\)%", r"\\%"),
        (r"√\s*\(([^()]*)\)", r"\\sqrt{\1}"),
        (r"√\s*([0-9]+|[A-Za-z])", r"\\sqrt{\1}"),
        (r"\\frac\s*([0-9])\s*([0-9])", r"\\frac{\1}{\2}"),
        (r"\\frac\s*([0-9])\s*\{", r"\\frac{\1}{"),
        (r"(\\frac\s*\{[^{}]*\})\s*([0-9A-Za-z])", r"\1{\2}"),
        (r"\\sqrt\s*([0-9A-Za-z])", r"\\sqrt{\1}"),
        (r"\^\s*([0-9A-Za-z])(?![0-9])", r"^{\1}"),
        (r"^\\text ?\{ ?([-0-9.,/]+) ?([A-Za-z][A-Za-z ]*)\}$", r"\1\\text{\2}"),
        (
            r"^([0-9]+)(?:\^\{?)?(?:\\text\{ ?(?:st|nd|rd|th)\}|(?<=[0-9])(?:st|nd|rd|th))\}?$",
            r"\1",
        ),
        (r"\s+", " "),
        # A space counts only between two letters or digits ("1 1/2" is not "11/2") and after a
        # comma ("1, 234" is not "1,234").
        (r" (?=[^0-9A-Za-z])|(?<=[^0-9A-Za-z,]) |(?<=[^0-9],) ", ""),
        (r"(\\[A-Za-z]+) (?=[^A-Za-z])", r"\1"),
    )
]
# Some models typeset an expression as a column of its pieces. A matrix without brackets and with
# one column is not a vector.
_COLUMN = re.compile(r"\\begin\{matrix\}([^&]*?)\\end\{matrix\}", re.DOTALL)
# A matrix in brackets is one, whatever it is called; in bars it is a determinant.
_MATRICES = [
    (re.compile(pattern, re.DOTALL), replacement)
    for pattern, replacement in (
        (
            r"(?:\\left ?)?[(\[]\s*\\begin\{(array|(?:small)?matrix)\}(?:\{[lcr| ]*\})?"
            r"([^()\[\]]*?)\\end\{\1\}\s*(?:\\right ?)?[)\]]",
            r"\\begin{pmatrix}\2\\end{pmatrix}",
        ),
        (r"\\(begin|end)\{bmatrix\}", r"\\\1{pmatrix}"),
        (r"\\\\\s*(?=\\end\{pmatrix\})", ""),
    )
]
_ROW_BREAK = re.compile(r"\s*(?:\\\\\s*)+")
_AND_OR = re.compile(
    r"(?:,\s*)?(?:\\text\s*\{\s*(and|or)\s*\}|(?:\s|(?<=\)))(and|or)(?:\s|(?=\()))"
)
_RELATION = re.compile(r"[<>=\u2264\u2265\u2260]|\\(?:lt|gt|leq?|geq?|neq?)(?![A-Za-z])")
_CONNECTIVE = re.compile(r"\\(lor|land)(?![A-Za-z])")
_AMOUNT = re.compile(r"\$?(-?)(?:\\\$|([€£¥₹]))\s*(-?[0-9]+(?:[.,][0-9]+)*)\$?\.?")
_CURRENCIES = {"€": "euro", "£": "gbp", "¥": "yen", "₹": "rupee", None: "dollar"}
_MILLIONS = re.compile(
    r"(?<![0-9.,])([0-9]+(?:\.[0-9]+)?) ?\\text ?\{ ?(thousand|million|billion|trillion)"
    r"((?: [A-Za-z]+)*) ?\}"
)
_BASE = re.compile(r"_ ?\{?\\text\{ ?(two|three|four|five|six|seven|eight|nine|ten|twelve) ?\}\}?")
_BASES = dict(two=2, three=3, four=4, five=5, six=6, seven=7, eight=8, nine=9, ten=10, twelve=12)
_WRAPPER = re.compile(r"(?:\\boxed|\\fbox|\\text(?=\{ ?[-+]?[0-9.,/]+ ?\}$))? ?\{")


@functools.lru_cache(maxsize=256)  # a gold answer stands in many pairs
def clean(text: str) -> str:
    r"""Return one spelling for LaTeX that means the same; single spaces are kept where they count.

    >>> clean(r"$\left( \dfrac12,\; \sqrt 3 \right)$.")
    '(\\frac{1}{2},\\sqrt{3})'
    >>> clean(r"1\,234"), clean("{ 5 }"), clean("90°")
    ('1 234', '5', '90^{\\circ}')
    """
    text = text.translate(_UNICODE).strip()
    if r"\begin" not in text:
        text = re.sub(r"\\\\(?=[A-Za-z])", r"\\", text)  # escaped twice
    else:
        for pattern, replacement in _MATRICES:
            text = pattern.sub(replacement, text)
        text = _COLUMN.sub(_joined, text)
    if amount := _AMOUNT.fullmatch(text):
        text = rf"{amount[1]}{amount[3]}\text{{{_CURRENCIES[amount[2]]}}}"
    # Between relations "and" and "or" differ; elsewhere both are how a list ends.
    text = _AND_OR.sub(_connected if _RELATION.search(text) else ", ", text)
    for pattern, replacement in _REWRITES:
        text = pattern.sub(replacement, text)
    text = _BASE.sub(lambda base: f"_{{{_BASES[base[1]]}}}", text)
    text = _unwrap(spelled(_MILLIONS.sub(_scaled, text).strip()))
    return text[:-1].rstrip() if len(text) > 1 and text[-1] in ".,;" else text


def _connected(word: re.Match[str]) -> str:
    return r"\lor " if word[1] == "or" or word[2] == "or" else r"\land "


def _scaled(amount: re.Match[str]) -> str:
    power = {"thousand": 3, "million": 6, "billion": 9, "trillion": 12}[amount[2]]
    words = rf"\text{{{amount[3]}}}" if amount[3] else ""
    return rf"{amount[1]}\times10^{{{power}}}{words}"


def _joined(column: re.Match[str]) -> str:
    text = ""
    for piece in filter(None, _ROW_BREAK.split(column[1].strip())):
        glue = " " if re.search(r"\\[A-Za-z]+$", text) and piece[0].isalpha() else ""
        text += glue + piece
    return text


def _unwrap(text: str) -> str:
    """Take off braces or a box that hold the whole text."""
    for _ in range(MAX_DEPTH):
        head = _WRAPPER.match(text)
        if head is None or closing(text, head.end()) != len(text) - 1:
            break
        text = text[head.end() : -1].strip()
    return text


SEPARATOR = r"[,;]|\\l(?:or|and)(?![A-Za-z])"


def connective(text: str) -> str:
    """The word between the relations of a cleaned text: "lor", "land" or "" (a comma, or both)."""
    words = set(_CONNECTIVE.findall(text))
    return words.pop() if len(words) == 1 else ""


def split_list(text: str) -> tuple[str, list[str]] | None:
    r"""Split a cleaned list, tuple, set or interval at its top-level commas.

    Returns the pair of brackets ("()", "[]", "[)", "(]", "{}" or "" for a bare list) and the
    items, or None for anything else. A comma between digits is left to the number reader.

    >>> split_list(r"\{1,\frac{2}{3}\}"), split_list("(1, 2]"), split_list("1 + 2")
    (('{}', ['1', '\\frac{2}{3}']), ('(]', ['1', '2']), None)
    """
    brackets = ""
    if text.startswith("\\{") and text.endswith("\\}"):
        brackets, inner = "{}", text[2:-2]
    elif text[:1] in "([" and text[-1:] in ")]" and len(text) > 1:
        brackets, inner = text[0] + text[-1], text[1:-1]
    items = split_top(inner, SEPARATOR) if brackets else []
    if not items:  # no brackets, or two pairs of them: (1,2),(3,4)
        brackets, inner, items = "", text, split_top(text, SEPARATOR)
    if ";" in inner and len(by_semicolon := split_top(inner, ";")) > 1:
        items = by_semicolon
    return (brackets, items) if all(items) and len(items) > (brackets != "{}") else None


def split_top(text: str, separator: str) -> list[str]:
    r"""The stripped parts of a text between separators (a pattern) outside all brackets.

    Nothing where the brackets do not pair. The kinds of brackets are not told apart: [1,2).

    >>> split_top(r"f(1,2),\frac{a}{b,c}", ","), split_top("1),(2", ",")
    (['f(1,2)', '\\frac{a}{b,c}'], [])
    """
    parts, depth, last = [], 0, 0
    for match in re.finditer(rf"[(\[{{)\]}}]|{separator}", text):
        depth += (match[0] in "([{") - (match[0] in ")]}")
        if depth < 0:
            return []
        if depth == 0 and match[0] not in "([{)]}":
            parts.append(text[last : match.start()].strip())
            last = match.end()
    return [] if depth else [*parts, text[last:].strip()]


_PLUS_MINUS, _MINUS_PLUS = (re.compile(rf"\\{word}(?![A-Za-z])") for word in ("pm", "mp"))


def signs(text: str) -> list[str]:
    r"""Write out a plus-minus; two of them may or may not go together, but with `\mp` they do.

    >>> signs(r"1\pm x"), signs(r"(\pm 1,\mp 2)"), signs(r"\pm1\pm2")
    (['1+ x', '1- x'], ['(+ 1,- 2)', '(- 1,+ 2)'], ['\\pm1\\pm2'])
    """
    minuses = len(_MINUS_PLUS.findall(text))
    if not minuses and len(_PLUS_MINUS.findall(text)) != 1:
        return [text]
    return [_PLUS_MINUS.sub(a, _MINUS_PLUS.sub(b, text)) for a, b in ("+-", "-+")]


_MISREAD = [
    (re.compile(pattern, re.DOTALL), reason)
    for pattern, reason in (
        (r"[0-9)\]] ?_", "a subscript on a number"),
        (r"[0-9] [0-9]", "numbers side by side"),
        (
            r"\\(?:sum|prod)(?:\^(?:\{[^{}]*\}|.))?_\{([A-Za-z])=.*_(?:\{[^{}=]*)?\1",
            "a sum over a subscript",
        ),
        (
            r"__|\\(def|let|newcommand|input|operatorname)(?![A-Za-z])",
            "it defines or names commands",
        ),
        (r"\\%.", "a percent sign inside an expression"),
    )
]
_WORD_OK = frozenset(["sqrt", "sinh", "cosh", "tanh", "infty", "infinity", "frac", "binom"])
_WORD = re.compile(r"\\?[A-Za-z]{4,}")
_MATRIX = re.compile(r"\\(?:begin|end)\{[a-z]{0,2}matrix\}")
_TEXT = re.compile(r"\\text ?\{[^{}]*\}")


def refusal(text: str) -> str | None:
    r"""Say why a cleaned answer is not handed to the symbolic layer, or None if it may be.

    These are the texts that the symbolic parser is known to misread as something else, or that
    are too large for it.

    >>> refusal("204_7"), refusal(r"\sqrt{2}")
    ('a subscript on a number', None)
    """
    if not text:
        return "it is empty"
    if len(text) > MAX_CHARS:
        return f"it has more than {MAX_CHARS} characters"
    if re.search(r"[\x00-\x1f]", text):
        return "it has control characters"
    depths = itertools.accumulate((char in "([{") - (char in ")]}") for char in text)
    if max(depths) > MAX_DEPTH or text.count("|") > MAX_BARS:
        return f"it is nested more than {MAX_DEPTH} deep"
    for pattern, reason in _MISREAD:
        if pattern.search(text):
            return reason
    for word in _WORD.findall(_TEXT.sub(" ", _MATRIX.sub(" ", text))):
        if not word.startswith("\\") and word not in _WORD_OK:
            return f"prose ({word[:20]!r})"
    return None
