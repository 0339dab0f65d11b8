r"""What stands before or behind an equals sign: a label, which may be left out, or a value.

Only an equals sign outside all brackets counts (in `\sum_{k=1}^{n} k` there is none), and only a
name is a label: never a power, a multiple or a function, for `\ln x=5` does not say that x is 5.
"""

import re

from bayes_at_n.verifiers.maths.latex import SEPARATOR, split_top
from bayes_at_n.verifiers.maths.parser import GREEK
from bayes_at_n.verifiers.maths.units import is_title

_INDEX = r"(?:_\{?(?:\\triangle ?)?[A-Za-z0-9,]{1,8}\}?)?"
_ARGUMENT = r"(?:[A-Za-z]|-?[0-9]+|[A-Z]{2,4})"
_NAME = (
    rf"(?:(?:[A-Za-z]{_INDEX}|{GREEK}(?![A-Za-z]){_INDEX})'{{0,2}}"
    rf"(?:\({_ARGUMENT}(?:,{_ARGUMENT})*\))?)"
)
_POINTS = (
    r"(?:(?:m ?)?(?:\\(?:measured)?angle|\\triangle) ?)?"
    r"(?:[A-Z]{1,4}|\\(?:overline|widehat|overarc|overrightarrow|vec) ?\{[A-Z]{1,2}\})'?"
)
_AREA = r"\[(?:\\triangle ?)?[A-Z]{3,8}\]"
_LENGTH = (
    rf"(?:[A-Z]{{2,4}}|{_AREA}|\|[A-Z]{{1,2}}\||\\overline ?\{{[A-Z]{{2}}\}}|\\angle ?[A-Z]{{1,3}})"
)
_LABEL = re.compile(
    rf"(?:{_NAME}|{_LENGTH})(?: ?: ?(?:{_NAME}|{_LENGTH}))*|[a-z](?:\+[a-z])+"
    rf"|\({_NAME}(?:, ?{_NAME})+\)|{_POINTS}"
    rf"|\\frac\{{{_LENGTH}\}}\{{{_LENGTH}\}}|\\#? ?\|[A-Z]\|"
    r"|[fgh]\^\{-1\}\([a-z]\)"
    r"|(?:[fghPE]|\\Pr|\\mathbb\{[EP]\}) ?(?:\([^()=]{1,40}\)|\[[^][=]{1,40}\])"
)
_WORDS = re.compile(r"\\text ?\{ ?([A-Za-z ]{1,40})\}(?: ?\(?[A-Z]{1,4}\)?)?|([A-Z][a-z]{2,20})")
_CONSTANTS = frozenset([r"\pi", "e", "i", "E", r"\gamma"])
_RELATIONS = re.compile(r"[<>]|\\(?:n?eq|[lg]eq|approx|simeq|to|Rightarrow|implies|not)(?![a-z])")
_EQUALS = r"=|\\equiv(?![A-Za-z])"
_MEMBER = re.compile(r"([A-Za-z]) ?\\in ?(\\\{.*\\\})")
_TITLE = re.compile(r"\\text ?\{ ?([A-Za-z ]{1,40}): ?\} ?(.+)")


def sides(text: str) -> list[str]:
    r"""Split a cleaned text at the equals signs outside brackets.

    >>> sides(r"S=\sum_{k=1}^{3} k=6"), sides("x=")
    (['S', '\\sum_{k=1}^{3} k', '6'], ['x='])
    """
    if "=" not in text and "equiv" not in text:
        return [text]
    parts = split_top(text, _EQUALS)
    if any(len(split_top(part, SEPARATOR)) > 1 for part in parts[:-1]):
        return [text]  # a list of equations
    return parts if parts and all(parts) else [text]


def is_label(text: str) -> bool:
    r"""Whether a cleaned text names something.

    >>> [is_label(text) for text in ("x_{1}", "|AB|", r"\text{Area}", "2x", r"\ln x", "|x|")]
    [True, True, True, False, False, False]
    """
    if _LABEL.fullmatch(text):
        return text not in _CONSTANTS
    words = _WORDS.fullmatch(text)
    return words is not None and is_title((words[1] or words[2]).lower().split())


def split_label(text: str) -> tuple[str, str]:
    r"""Split the label from a cleaned text: from the front or, if there is none, from the end.

    >>> split_label("x=3+2=5"), split_label("5=x"), split_label("x^{2}=5"), split_label("a=1,b=2")
    (('x', '3+2=5'), ('x', '5'), ('', 'x^{2}=5'), ('', 'a=1,b=2'))
    """
    if member := _MEMBER.fullmatch(text):
        return member[1], member[2]
    if (title := _TITLE.fullmatch(text)) and is_title(title[1].lower().split()):
        return "", split_label(title[2])[1]
    first, *others = [text] if _RELATIONS.search(text) else sides(text)
    if others and is_label(first):
        return first, "=".join(others)
    if others and is_label(others[-1]):
        return others[-1], "=".join([first, *others[:-1]])
    return "", text
