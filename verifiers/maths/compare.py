r"""Compare a gold answer with an answer by the layers that need no algebra.

In order: the same text, the same text after LaTeX clean-up, exact numbers, words, constant
expressions, lists of such. Each layer claims only what it is sure of; `None` hands the pair to the
symbolic layer.
"""

import re
from typing import NamedTuple

from bayes_at_n.verifiers.maths.boxed import unboxed
from bayes_at_n.verifiers.maths.conventions import STRICT, Conventions
from bayes_at_n.verifiers.maths.exact import read_number
from bayes_at_n.verifiers.maths.expression import read_expression
from bayes_at_n.verifiers.maths.labels import sides, split_label
from bayes_at_n.verifiers.maths.latex import MAX_CHARS, clean, split_top
from bayes_at_n.verifiers.maths.lists import (
    Same,
    compare_chain,
    compare_lists,
    compare_sets,
    expand_list,
)
from bayes_at_n.verifiers.maths.named import without_names
from bayes_at_n.verifiers.maths.numeric import compare_expressions, is_near, rounds_to
from bayes_at_n.verifiers.maths.relations import compare_relations
from bayes_at_n.verifiers.maths.units import agree, split_unit

LONG = 10  # significant digits of a decimal that say which exact value it stands for


class Decision(NamedTuple):
    """What a cheap layer says: a layer of `grading.Grade`, up to "list"."""

    equal: bool
    layer: str


_BETWEEN_DIGITS = re.compile(r"\\[,!;: ]|\{,\}|[\s,$]|\.$")
_LONG_INTEGER = re.compile(r"(-?)0*([0-9]*)")
_INTEGER = re.compile(r"-?[0-9]{1,300}")
_GROUPS = re.compile(r"(?<![0-9,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_TEXT_WORDS = re.compile(r"\\text ?\{ ?\(?([A-Za-z][A-Za-z ]*?)\)? ?\}")
_LETTERS = re.compile(r"[A-Za-z]+")
_LETTER = re.compile(r"\(?[A-E]\)?|\\text ?\{ ?\(?[A-E]\)? ?\}")
_SETS = re.compile(r"\\(?:cup|cap|setminus|times)(?![A-Za-z])")
_APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])|≈|\\simeq(?![A-Za-z])")
_RANGE = re.compile(
    r",? ?(?:\\text ?\{,? ?for (?:all|every|any) ?(?:real )?(?:numbers? )?[a-z]? ?\} ?[a-z]?"
    r"|for (?:all|every|any) (?:real )?(?:numbers? )?[a-z]|\\forall ?[a-z])"
    r"(?: ?\\in ?\\mathbb ?\{[A-Z]\})?$"
)
_CHOICE = re.compile(
    r"(?:\\text ?\{ ?\(([A-E])\) ?\}|\(([A-E])\)) ?((?:[-0-9.]|\\(?:frac|sqrt|text)(?![a-z])).*)"
    r"|\\text ?\{ ?\(([A-E])\) ?([^{}]+)\}"
)


def compare(gold: str, answer: str, conventions: Conventions = STRICT) -> bool | None:
    r"""Decide whether two short LaTeX answers are equal, or return None when algebra is needed.

    Time and memory are bounded whatever the input: texts longer than 1,000 characters are only
    compared letter by letter. For what is a convention see `Conventions`.

    >>> compare("25", "025"), compare(r"\frac{1}{2}", "$x = 0.5$"), compare("2", r"2\%")
    (True, True, False)
    >>> compare(r"2\sqrt{3}", r"\sqrt{12}"), compare("x>1", "1<x"), compare("x^2=4", "x=2")
    (True, True, None)
    """
    decision = decide(gold, answer, conventions)
    return None if decision is None else decision.equal


def decide(gold: str, answer: str, conventions: Conventions = STRICT) -> Decision | None:
    """As `compare`, with the layer that decided."""
    gold, answer = unboxed(gold).strip(), answer.strip()
    if not gold or not answer:
        return None
    if gold == answer:
        return Decision(True, "text")
    if _INTEGER.fullmatch(gold) and _INTEGER.fullmatch(answer):
        return Decision(int(gold) == int(answer), "number")
    if len(gold) > MAX_CHARS or len(answer) > MAX_CHARS:
        return _decide_long_integers(gold, answer)
    related = compare_relations(gold, answer)
    if related is not None:
        return Decision(related, "relation")
    reduced = reduce_pair(gold, answer, conventions)
    if reduced is None:
        return Decision(False, "unit")
    return decide_reduced(*reduced, conventions)


def _decide_long_integers(gold: str, answer: str) -> Decision | None:
    """Digits are compared as text: turning them into numbers takes quadratic time."""
    digits = [_LONG_INTEGER.fullmatch(_BETWEEN_DIGITS.sub("", text)) for text in (gold, answer)]
    if digits[0] is None or digits[1] is None:
        return None
    return Decision(digits[0].groups() == digits[1].groups(), "number")


def reduce_pair(
    gold: str, answer: str, conventions: Conventions = STRICT
) -> tuple[str, str] | None:
    r"""Clean two texts and take off `x =` and units; None when two units contradict.

    >>> reduce_pair("x=5", r"5\text{ cm}"), reduce_pair(r"5\text{ m}", r"5\text{ cm}")
    (('5', '5'), None)
    """
    gold, answer = clean(unboxed(gold)), clean(answer)
    if not _APPROXIMATELY.search(gold):  # an exact value with its decimals behind it
        exact, *decimals = map(str.strip, _APPROXIMATELY.split(answer))
        if exact and len(decimals) == 1 and is_near(exact, decimals[0]) is not False:
            answer = exact
    if not _RANGE.search(gold):  # f(x)=x for all x
        answer = _RANGE.sub("", answer)
    gold, answer = without_names(*_same_part(gold, answer))
    gold, answer = _unlabelled(gold, answer)
    (gold_value, gold_unit), (answer_value, answer_unit) = split_unit(gold), split_unit(answer)
    if {gold_unit, answer_unit} == {("deg",), ("rad",)} and r"\pi" in gold_value + answer_value:
        return gold_value, answer_value  # 60° is \pi/3 radians
    if not agree(gold_unit, answer_unit) or (
        gold_unit != answer_unit and conventions.units == "required"
    ):
        return None
    return gold_value, answer_value


def _unlabelled(gold: str, answer: str) -> tuple[str, str]:
    """Both without their labels, unless these differ or an equation needs one."""
    (gold_label, gold_value), (answer_label, answer_value) = map(split_label, (gold, answer))
    if gold_label and answer_label:
        return (gold_value, answer_value) if gold_label == answer_label else (gold, answer)
    label, other = (gold_label, answer) if gold_label else (answer_label, gold)
    if len(sides(other)) > 1 and label in other:  # y=2x against 2x-y=0
        return gold, answer
    return gold_value, answer_value


def _same_part(gold: str, answer: str) -> tuple[str, str]:
    """Where one side is a choice letter with its value, the part that the other side has."""
    matches = _CHOICE.fullmatch(gold), _CHOICE.fullmatch(answer)
    if not any(matches):
        return gold, answer
    choices = []
    for text, found in zip((gold, answer), matches, strict=True):
        parts = [part for part in found.groups() if part] if found else ["", text]
        choices.append((parts[0], clean(parts[1])))
    (gold_letter, gold_value), (answer_letter, answer_value) = choices
    if gold_letter and answer_letter:
        return (gold_value, answer_value) if gold_letter == answer_letter else (gold, answer)
    for letter, other in ((gold_letter, answer), (answer_letter, gold)):
        if letter and _LETTER.fullmatch(other):
            return (letter, other) if letter == gold_letter else (other, letter)
    return gold_value, answer_value


def decide_reduced(gold: str, answer: str, conventions: Conventions = STRICT) -> Decision | None:
    """Compare two texts that `reduce_pair` has cleaned."""
    scalar = _decide_scalar(gold, answer, conventions)
    if scalar is not None:
        return scalar
    parts = sides(answer)
    if len(parts) > 1 and len(sides(gold)) == 1:
        equal = compare_chain(gold, parts, lambda a, b: _equal(decide_reduced(a, b, conventions)))
        return None if equal is None else Decision(equal, "list")

    def same(a: str, b: str) -> bool | None:
        return _equal(_decide_scalar(a, b, conventions))

    equal = compare_lists(gold, answer, same, conventions)
    if equal is None and _several_against_one(gold, answer, same):
        equal = False
    return None if equal is None else Decision(equal, "list")


def _equal(decision: Decision | None) -> bool | None:
    return None if decision is None else decision.equal


def _several_against_one(gold: str, answer: str, same: Same) -> bool:
    """Whether one side lists several things and the other is an expression unlike one of them."""
    gold_list, answer_list = expand_list(gold), expand_list(answer)
    gold_items = gold_list[1] if gold_list else [gold]
    answer_items = answer_list[1] if answer_list else [answer]
    if (len(gold_items) > 1) == (len(answer_items) > 1):
        return False
    if _GROUPS.search(gold) or _GROUPS.search(answer):
        return False  # 10,000\pi
    if read_expression(answer if gold_list else gold) is None:
        return False
    return compare_sets(gold_items, answer_items, same, repeated=True) is False


def _decide_scalar(gold: str, answer: str, conventions: Conventions) -> Decision | None:
    if gold == answer and gold:
        return Decision(True, "text")
    gold_number, answer_number = read_number(gold), read_number(answer)
    sure = all(number.sure for number in (gold_number, answer_number) if number)
    if gold_number and answer_number:
        if gold_number.value == answer_number.value or (
            conventions.percent == "either" and _same_percent(gold, answer)
        ):
            return Decision(True, "number")
        if not sure:
            return None
        rounded = _rounded(gold, answer, conventions)
        return Decision(rounded, "rounded" if rounded else "number")
    if not sure:
        plain = [_GROUPS.sub(lambda m: m[0].replace(",", ""), text) for text in (gold, answer)]
        return Decision(True, "number") if compare_expressions(*plain) else None
    word = _compare_words(gold, answer)
    if word is not None:
        return Decision(word, "word")
    equal = compare_expressions(gold, answer)
    if equal is not True and _rounded(gold, answer, conventions):
        return Decision(True, "rounded")
    return None if equal is None else Decision(equal, "expression")


def _rounded(gold: str, answer: str, conventions: Conventions) -> bool:
    """Whether one side is a decimal that rounds the other, by convention or with many digits."""
    if conventions.decimals == "rounded":
        return rounds_to(gold, answer) or rounds_to(answer, gold)
    sides = ((gold, answer), (answer, gold))
    return any(rounds_to(*side, LONG) and not _terminates(side[0]) for side in sides)


def _terminates(text: str) -> bool:
    """Whether a cleaned text is a number with an exact decimal, of which a rounding differs."""
    number = read_number(text)
    return number is not None and 10**400 % number.value.denominator == 0


def _same_percent(gold: str, answer: str) -> bool:
    bare = [read_number(text.removesuffix("\\%").strip()) for text in (gold, answer)]
    return bool(bare[0] and bare[1] and bare[0].value == bare[1].value)


def _said(words: str) -> str:
    """Words in one spelling; an option by its letter."""
    words = words.casefold().strip()
    if option := re.fullmatch(r"(?:option|choice) ([a-z])(?: is correct)?", words):
        return option[1]
    return "does not exist" if words == "dne" else re.sub(r"^(no .*n)s$", r"\1", words)


def _compare_words(gold: str, answer: str) -> bool | None:
    """Compare names and choice letters; a product of symbols is not a word."""
    for sign in (r"\\cup(?![A-Za-z])", r"\\cap(?![A-Za-z])"):
        parts = [sorted(split_top(side, sign)) for side in (gold, answer)]
        if len(parts[0]) > 1 and parts[0] == parts[1] and not _SETS.search("".join(parts[0])):
            return True  # A and B in either order
    if gold.isupper() and answer.isupper() and gold.isalpha() and answer.isalpha():
        return gold == answer  # points and labels: ABC is not BAC
    words = [_TEXT_WORDS.fullmatch(side) for side in (gold, answer)]
    if any(words):  # the other side may be a choice letter, or a word without \text
        pairs = zip(words, (gold, answer), strict=True)
        words = [word or re.fullmatch(r"\(?([A-Za-z]+)\)?", side) for word, side in pairs]
        if words[0] and words[1]:
            return _said(words[0][1]) == _said(words[1][1])
        if r"\emptyset" in (gold, answer):
            return any(word and _said(word[1]) == "no solution" for word in words) or None
    choices = [re.fullmatch(r"\(?([A-Za-z])\)?", side) for side in (gold, answer)]
    if choices[0] and choices[1] and choices[0][1] == choices[1][1]:
        return True
    longest = max(len(gold), len(answer)) if gold.isupper() == answer.isupper() else 0
    if longest > 3 and all(map(_LETTERS.fullmatch, (gold, answer))):
        return gold.casefold() == answer.casefold()
    return None
