r"""LaTeX of untrusted texts as MathML trees that are safe to build in a page.

latex2mathml does not escape what stands in ``\text{…}``, so its output is never used as markup.
It is parsed as XML, copied element by element through an allow-list, and handed to the page as
nested lists, of which the page makes elements one by one. Nothing is ever parsed as HTML. What
cannot be converted stays as it is written.
"""

import itertools
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from latex2mathml.converter import convert

MOST_CHARACTERS = 600  # of an expression; conversion of the worst of them takes milliseconds
MOST_NODES = 2_000  # of a tree: some input grows sixteenfold
MOST_DEPTH = 60
MOST_EXPRESSIONS = 200  # of a text
SCAN = 50_000  # characters at the end of a text that are searched for expressions
_TAGS = """
    math menclose mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow ms
    mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none
"""
_ATTRIBUTES = """
    accent accentunder columnalign columnlines columnspacing depth display displaystyle fence form
    height largeop linethickness lspace mathvariant maxsize minsize movablelimits notation rowlines
    rowspacing rspace scriptlevel separator stretchy symmetric voffset width
"""
TAGS, ATTRIBUTES = frozenset(_TAGS.split()), frozenset(_ATTRIBUTES.split())
# Keywords, or numbers with or without a unit; a length beyond 20 em, or a negative level, which
# enlarges, would let one expression fill the page.
_WORDS = re.compile(r"[A-Za-z-]{1,30}")
_LENGTH = re.compile(r"([+-]?(?:\d{1,9}(?:\.\d{0,9})?|\.\d{1,9}))(em|ex|px|pt|pc|mm|cm|in|mu|%|)")
_EM = {"em": 1.0, "ex": 0.5, "px": 1 / 16, "pt": 1 / 12, "pc": 1.0, "mm": 0.24, "cm": 2.4,
       "in": 6.0, "mu": 1 / 18, "%": 0.01, "": 1.0}  # fmt: skip
LONGEST = 20.0  # em
_NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"
_SPANS = re.compile(
    r"\$\$(?P<a>[^$]{1,600})\$\$"
    r"|\\\[(?P<b>(?:(?!\\\]).){1,600})\\\]"
    r"|\\\((?P<c>(?:(?!\\\)).){1,600})\\\)"
    r"|(?<![\\$])\$(?![\s$])(?P<d>[^$\n]{1,600})(?<![\s\\])\$(?!\d)",
    re.DOTALL,
)


class Span(NamedTuple):
    """An expression in a text: where it stands with its delimiters, and what is between them."""

    start: int
    end: int
    source: str
    display: bool


@lru_cache(maxsize=1 << 14)
def tree(source: str, display: bool = False) -> list[Any] | None:
    r"""An expression as nested lists ``[tag, {attribute: value}, *children]``; None if it fails.

    `source` is LaTeX without delimiters, at most 600 characters, and `display` sets it on a line of
    its own.

    >>> tree("x^2")[2]
    ['mrow', {}, ['msup', {}, ['mi', {}, 'x'], ['mn', {}, '2']]]
    >>> tree(r"\text{<script>alert(1)</script>}") is None
    True
    """
    source = source.strip()
    if not source or len(source) > MOST_CHARACTERS:
        return None
    try:
        element = ET.fromstring(convert(source, display="block" if display else "inline"))
        return _copy(element, itertools.count(1))
    except Exception:  # a foreign parser on hostile text: whatever it raises, the source is shown
        return None


def spans(text: str, start: int = 0) -> Iterator[Span]:
    r"""The expressions of a text between dollar signs or LaTeX brackets, in their order.

    Long texts are searched from `start`, and only near their end; at most 200 are found.

    >>> [(s.source, s.display) for s in spans(r"Let $x<1$ cost $5. \[y\]")]
    [('x<1', False), ('y', True)]
    """
    matches = _SPANS.finditer(text, max(start, len(text) - SCAN))
    for _, match in zip(range(MOST_EXPRESSIONS), matches, strict=False):
        group = str(match.lastgroup)
        yield Span(match.start(), match.end(), match[group], group in "ab")


def answer_span(text: str, answer: str | None, reasoning_end: str | None) -> list[int] | None:
    r"""Where the box with the final answer stands in a response: [start, end).

    >>> answer_span(r"\boxed{1}, no: \boxed{2}.", "2", None)
    [15, 24]
    """
    if not answer or len(answer) > 10_000:
        return None
    shape = r"\\\\?(?:boxed|fbox)\s{0,20}\{?\s{0,20}" + re.escape(answer) + r"\s{0,20}\}?"
    first = final_part(text, reasoning_end)
    boxes = [match.span() for match in re.finditer(shape, text[first:])]
    return [boxes[-1][0] + first, boxes[-1][1] + first] if boxes else None


def final_part(text: str, reasoning_end: str | None) -> int:
    """Where the part after the reasoning starts; 0 if the marker does not occur."""
    at = text.rfind(reasoning_end) if reasoning_end else -1
    return at + len(reasoning_end or "") if at >= 0 else 0


def sound_value(name: str, value: str) -> bool:
    """Whether an attribute's value is a keyword, or lengths of at most 20 em.

    >>> sound_value("width", "2em"), sound_value("width", "9999em"), sound_value("depth", "1e9em")
    (True, False, False)
    """
    for part in value.split():
        length = _LENGTH.fullmatch(part)
        if length:
            if abs(float(length[1]) * _EM[length[2]]) > LONGEST:
                return False
            if name == "scriptlevel" and part.startswith("-"):
                return False
        elif not _WORDS.fullmatch(part):
            return False
    return len(value) <= 60


def _copy(node: ET.Element, nodes: Iterator[int], depth: int = 0) -> list[Any]:
    tag = node.tag.removeprefix(_NAMESPACE)
    if tag not in TAGS or next(nodes) > MOST_NODES or depth > MOST_DEPTH:
        raise ValueError(f"{tag}: not for a page")
    attributes = {
        name: value
        for name, value in node.attrib.items()
        if name in ATTRIBUTES and sound_value(name, value)
    }
    copied: list[Any] = [tag, attributes]
    if node.text:
        copied.append(node.text)
    for child in node:
        copied.append(_copy(child, nodes, depth + 1))
        if child.tail and child.tail.strip():
            copied.append(child.tail)
    return copied
