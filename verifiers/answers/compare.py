r"""Compare a gold answer with an answer by the layers that need no algebra.

In order: the same text, the same text after LaTeX clean-up, exact numbers, words, constant
expressions, lists of such. Each layer claims only what it is sure of; `None` hands the pair to the
symbolic layer.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from verifiers.answers.boxed import unboxed
from verifiers.answers.conventions import STRICT, Conventions
from verifiers.answers.exact import read_number
from verifiers.answers.expression import read_expression
from verifiers.answers.latex import KNOWN_UNITS, MAX_CHARS, clean, signs, split_list, split_unit
from verifiers.answers.named import without_names
from verifiers.answers.numeric import compare_expressions, rounds_to
from verifiers.answers.relations import compare_relations

MAX_ITEMS = 30
LONG = 10  # significant digits of a decimal that say which exact value it stands for

Same = Callable[[str, str], bool | None]


class Decision(NamedTuple):
    """What a cheap layer says: a layer of `grading.Grade`, up to "list"."""

    equal: bool
    layer: str


_BETWEEN_DIGITS = re.compile(r"\\[,!;: ]|\{,\}|[\s,$]|\.$")
_LONG_INTEGER = re.compile(r"(-?)0*([0-9]*)")
_GROUPS = re.compile(r"(?<![0-9,])[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])")
_NAME = (
    r"(?:[A-Za-z](?:_\{?[A-Za-z0-9]{1,8}\}?)?'?(?:\([a-z0-9](?:,[a-z0-9])*\))?"
    r"|\\[a-zA-Z]{2,8}(?:_\{?[A-Za-z0-9]\}?)?|\([a-z](?:,[a-z])+\))"
)
_ASSIGNED = re.compile(rf"^({_NAME}(?: ?: ?{_NAME})*) ?(?:=|\\equiv) ?([^=<>]+)$")
_ASSIGNS = re.compile(rf"^([^=<>]+?) ?= ?({_NAME})$")
_CONSTANTS = frozenset([r"\pi", r"\infty", r"\emptyset", "e", "i"])
_TEXT_WORDS = re.compile(r"\\text ?\{ ?\(?([A-Za-z][A-Za-z ]*?)\)? ?\}")
_LETTERS = re.compile(r"[A-Za-z]+")
_APPROXIMATELY = re.compile(r"\\approx(?![A-Za-z])|≈|\\simeq(?![A-Za-z])")
_MEMBER = re.compile(r"^([A-Za-z]) ?\\in ?(\\\{.*\\\})$")


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
        answer = _APPROXIMATELY.split(answer, maxsplit=1)[0].strip() or answer
    gold, answer = without_names(gold, answer)
    gold_name, gold_value = _split_assignment(gold)
    answer_name, answer_value = _split_assignment(answer)
    if not (gold_name and answer_name and gold_name != answer_name):
        gold, answer = gold_value, answer_value
    (gold_value, gold_unit), (answer_value, answer_unit) = split_unit(gold), split_unit(answer)
    if gold_unit != answer_unit and (
        conventions.units == "required" or {gold_unit, answer_unit} <= KNOWN_UNITS
    ):
        return None
    return gold_value, answer_value


def _split_assignment(text: str) -> tuple[str, str]:
    if member := _MEMBER.match(text):
        return member[1], member[2]
    for pattern, name, value in ((_ASSIGNED, 1, 2), (_ASSIGNS, 2, 1)):
        sides = pattern.match(text)
        if not sides or sides[value] == sides[name] or sides[name] in _CONSTANTS:
            continue
        if "," not in sides[value] or (split_list(sides[value]) and sides[value][0] in "([\\"):
            return sides[name], sides[value]
    return "", text


def decide_reduced(gold: str, answer: str, conventions: Conventions = STRICT) -> Decision | None:
    """Compare two texts that `reduce_pair` has cleaned."""
    scalar = _decide_scalar(gold, answer, conventions)
    if scalar is not None:
        return scalar
    if "=" in answer and "=" not in gold and _chain_agrees(gold, answer, conventions):
        return Decision(True, "list")

    def same(a: str, b: str) -> bool | None:
        item = _decide_scalar(a, b, conventions)
        return None if item is None else item.equal

    equal = compare_lists(gold, answer, same, conventions)
    if equal is None and _several_against_one(gold, answer, same):
        equal = False
    return None if equal is None else Decision(equal, "list")


def _several_against_one(gold: str, answer: str, same: Same) -> bool:
    """Whether one side lists several things and the other is an expression unlike one of them."""
    gold_list, answer_list = _expand_list(gold), _expand_list(answer)
    gold_items = gold_list[1] if gold_list else [gold]
    answer_items = answer_list[1] if answer_list else [answer]
    if (len(gold_items) > 1) == (len(answer_items) > 1):
        return False
    if _GROUPS.search(gold) or _GROUPS.search(answer):
        return False  # 10,000\pi
    if read_expression(answer if gold_list else gold) is None:
        return False
    return compare_sets(gold_items, answer_items, same, repeated=True) is False


def _chain_agrees(gold: str, answer: str, conventions: Conventions) -> bool:
    """Whether every part of an answer such as `A = B = C` equals the gold answer."""
    parts = [part.strip() for part in answer.split("=")]
    if not all(parts) or len(parts) > MAX_ITEMS or re.search(r"[<>]|\\n?eq|\\[lg]e", answer):
        return False
    decisions = (decide_reduced(gold, part, conventions) for part in parts)
    return all(decision is not None and decision.equal for decision in decisions)


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


def _compare_words(gold: str, answer: str) -> bool | None:
    """Compare names and choice letters; a product of symbols is not a word."""
    if gold.isupper() and answer.isupper() and gold.isalpha() and answer.isalpha():
        return gold == answer  # points and labels: ABC is not BAC
    words = [_TEXT_WORDS.fullmatch(side) for side in (gold, answer)]
    if any(words):  # the other side may be a choice letter, or a word without \text
        pairs = zip(words, (gold, answer), strict=True)
        words = [word or re.fullmatch(r"\(?([A-Za-z]+)\)?", side) for word, side in pairs]
        if words[0] and words[1]:
            return words[0][1].casefold() == words[1][1].casefold()
    choices = [re.fullmatch(r"\(?([A-Za-z])\)?", side) for side in (gold, answer)]
    if choices[0] and choices[1] and choices[0][1] == choices[1][1]:
        return True
    if max(len(gold), len(answer)) > 3 and all(map(_LETTERS.fullmatch, (gold, answer))):
        return gold.casefold() == answer.casefold()
    return None


def compare_lists(
    gold: str, answer: str, same: Same, conventions: Conventions = STRICT
) -> bool | None:
    r"""Compare two cleaned lists, tuples, intervals or sets, given a test for two items.

    Bare lists (by convention) and sets have no order, and a plus-minus in them is written out. A
    bare list compared with a tuple must have its order; a set never equals a tuple. Other mixtures
    of brackets, and texts that are no lists, are None.

    >>> compare_lists("1,2", r"\{2,1\}", compare), compare_lists("(1,2)", "2,1", compare)
    (True, False)
    """
    gold_list, answer_list = _expand_list(gold), _expand_list(answer)
    if gold_list is None or answer_list is None:
        return None
    (gold_brackets, gold_items), (answer_brackets, answer_items) = gold_list, answer_list
    if len(gold_items) > MAX_ITEMS or len(answer_items) > MAX_ITEMS:
        return None
    brackets = {gold_brackets, answer_brackets}
    if brackets <= {"", "{}"} and (brackets != {""} or conventions.lists == "unordered"):
        if min(len(gold_items), len(answer_items)) < 2:
            return None
        # A double root counts twice; a solution in several unknowns is one however often written.
        roots = brackets != {"{}"} and not all(item[0] == "(" for item in gold_items)
        return compare_sets(gold_items, answer_items, same, repeated=roots)
    if "{}" in brackets:
        return False
    if len(gold_items) != len(answer_items):
        return False
    if len(brackets) > 1 and brackets != {"", "()"}:
        return None
    equal = [same(g, a) for g, a in zip(gold_items, answer_items, strict=True)]
    return False if False in equal else None if None in equal else True


def _expand_list(text: str) -> tuple[str, list[str]] | None:
    brackets, items = split_list(text) or ("", [text])
    if brackets == "()" and len(tuples := signs(text)) > 1:
        brackets, items = "", tuples
    named = [_split_assignment(item) for item in items]
    if len({name for name, _ in named}) == 1:  # x=2, x=3
        brackets = "{}" if named[0][0] and len(items) > 1 else brackets
        items = [value for _, value in named]
    if brackets in ("", "{}"):
        items = [sign for item in items for sign in signs(item)]
    return (brackets, items) if len(items) > 1 or brackets else None


def compare_sets(
    gold_items: Sequence[str], answer_items: Sequence[str], same: Same, *, repeated: bool = False
) -> bool | None:
    """Compare two collections without order, given a test for two items.

    An item that is `repeated` counts as often as it occurs.

    >>> compare_sets(["1", "2"], ["2", "1", "1"], compare)
    True
    """
    table = [[same(g, a) for a in answer_items] for g in gold_items]
    columns = [list(column) for column in zip(*table, strict=True)]
    if any(all(cell is False for cell in line) for line in table + columns):
        return False  # an item that has no partner on the other side
    if repeated and len(gold_items) != len(answer_items):
        return False
    if not all(True in line for line in table + columns):
        return None
    pairs = ((row, column) for row in table for i, column in enumerate(columns) if row[i])
    return not repeated or all(row.count(True) == column.count(True) for row, column in pairs)
