r"""Compare a gold answer with an answer by the layers that need no algebra.

In order: the same text, the same text after LaTeX clean-up, exact numbers, words, lists of
such. Each layer claims only what it is sure of; `None` hands the pair to the symbolic layer.
"""

import re
from collections.abc import Callable, Sequence

from verifiers.exact import read_number
from verifiers.latex import MAX_CHARS, clean, split_list, split_unit

MAX_ITEMS = 50

Same = Callable[[str, str], bool | None]

_PLUS_MINUS = re.compile(r"\\(?:pm|mp)(?![A-Za-z])")
_ASSIGNED = re.compile(r"^([A-Za-z](?:_\{?[A-Za-z0-9]\}?)?) ?= ?([^=<>]+)$")
_ASSIGNS = re.compile(r"^([^=<>]+?) ?= ?([A-Za-z](?:_\{?[A-Za-z0-9]\}?)?)$")
_TEXT_WORDS = re.compile(r"\\text ?\{ ?\(?([A-Za-z][A-Za-z ]*?)\)? ?\}")
_LETTERS = re.compile(r"[A-Za-z]+")


_MEMBER = re.compile(r"^([A-Za-z]) ?\\in ?(\\\{.*\\\})$")


def compare(gold: str, answer: str) -> bool | None:
    r"""Decide whether two short LaTeX answers are equal, or return None when algebra is needed.

    Time and memory are bounded whatever the input: texts longer than 1,000 characters are only
    compared letter by letter. Conventions: percent means a hundredth (`2\%` is not 2), a
    decimal is its exact value (0.333 is not a third), degree signs and units may be left out
    on one side but two different units differ, bare lists and sets have no order.

    >>> compare("25", "025"), compare(r"\frac{1}{2}", "$x = 0.5$"), compare("2", r"2\%")
    (True, True, False)
    >>> compare(r"2\sqrt{3}", r"\sqrt{12}") is None
    True
    """
    gold, answer = gold.strip(), answer.strip()
    if not gold or not answer:
        return None
    if gold == answer:
        return True
    if len(gold) > MAX_CHARS or len(answer) > MAX_CHARS:
        return None
    reduced = reduce_pair(gold, answer)
    if reduced is None:
        return False
    return compare_reduced(*reduced)


def reduce_pair(gold: str, answer: str) -> tuple[str, str] | None:
    r"""Clean two texts and take off `x =` and units; None when two units contradict.

    >>> reduce_pair("x=5", r"5\text{ cm}"), reduce_pair(r"5\text{ m}", r"5\text{ cm}")
    (('5', '5'), None)
    """
    gold, answer = clean(gold), clean(answer)
    gold_name, gold_value = _split_assignment(gold)
    answer_name, answer_value = _split_assignment(answer)
    if not (gold_name and answer_name and gold_name != answer_name):
        gold, answer = gold_value, answer_value
    (gold, gold_unit), (answer, answer_unit) = split_unit(gold), split_unit(answer)
    if gold_unit and answer_unit and gold_unit != answer_unit:
        return None
    return gold, answer


def _split_assignment(text: str) -> tuple[str, str]:
    if member := _MEMBER.match(text):
        return member[1], member[2]
    for pattern, name, value in ((_ASSIGNED, 1, 2), (_ASSIGNS, 2, 1)):
        found = pattern.match(text)
        if found and found[value] != found[name] and "," not in found[value]:
            return found[name], found[value]
    return "", text


def compare_reduced(gold: str, answer: str) -> bool | None:
    """Compare two texts that `reduce_pair` has cleaned."""
    verdict = _compare_scalar(gold, answer)
    return compare_lists(gold, answer, _compare_scalar) if verdict is None else verdict


def _compare_scalar(gold: str, answer: str) -> bool | None:
    if gold == answer and gold:
        return True
    gold_number, answer_number = read_number(gold), read_number(answer)
    if gold_number and answer_number:
        if gold_number.value == answer_number.value:
            return True
        return False if gold_number.sure and answer_number.sure else None
    return _compare_words(gold, answer)


def _compare_words(gold: str, answer: str) -> bool | None:
    """Compare names and choice letters; a product of symbols is not a word."""
    gold_word, answer_word = _TEXT_WORDS.fullmatch(gold), _TEXT_WORDS.fullmatch(answer)
    if gold_word and answer_word:
        return gold_word[1].casefold() == answer_word[1].casefold()
    if gold_word and (choice := re.fullmatch(r"\(?([A-Za-z]+)\)?", answer)):
        return gold_word[1].casefold() == choice[1].casefold()
    if answer_word and (choice := re.fullmatch(r"\(?([A-Za-z]+)\)?", gold)):
        return answer_word[1].casefold() == choice[1].casefold()
    choices = [re.fullmatch(r"\(?([A-Za-z])\)?", side) for side in (gold, answer)]
    if choices[0] and choices[1] and choices[0][1] == choices[1][1]:
        return True
    if (
        (len(gold) > 3 or len(answer) > 3)
        and _LETTERS.fullmatch(gold)
        and _LETTERS.fullmatch(answer)
    ):
        return gold.casefold() == answer.casefold()
    return None


def compare_lists(gold: str, answer: str, same: Same) -> bool | None:
    r"""Compare two cleaned lists, tuples, intervals or sets, given a test for two items.

    Bare lists and sets have no order, and a plus-minus in them is written out. A bare list
    compared with a tuple must have its order; a set never equals a tuple. Other mixtures of
    brackets, and texts that are no lists, are None.

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
    if brackets <= {"", "{}"}:
        if min(len(gold_items), len(answer_items)) < 2:
            return None
        return compare_sets(gold_items, answer_items, same)
    if "{}" in brackets:
        return False
    if len(brackets) > 1 and brackets != {"", "()"}:
        return None
    if len(gold_items) != len(answer_items):
        return False
    verdicts = [same(g, a) for g, a in zip(gold_items, answer_items, strict=True)]
    return False if False in verdicts else None if None in verdicts else True


def _expand_list(text: str) -> tuple[str, list[str]] | None:
    brackets, items = split_list(text) or ("", [text])
    if brackets in ("", "{}"):
        items = [sign for item in items for sign in _signs(item)]
    return (brackets, items) if len(items) > 1 or brackets else None


def _signs(item: str) -> list[str]:
    # Two signs in one item may or may not go together: not for us to say.
    if len(_PLUS_MINUS.findall(item)) != 1:
        return [item]
    return [_PLUS_MINUS.sub("+", item), _PLUS_MINUS.sub("-", item)]


def compare_sets(gold_items: Sequence[str], answer_items: Sequence[str], same: Same) -> bool | None:
    """Compare two collections without order or repetition, given a test for two items.

    >>> compare_sets(["1", "2"], ["2", "1", "1"], compare)
    True
    """
    table = [[same(g, a) for a in answer_items] for g in gold_items]
    lines = table + [list(column) for column in zip(*table, strict=True)]
    if any(all(cell is False for cell in line) for line in lines):
        return False  # an item that has no partner on the other side
    return True if all(True in line for line in lines) else None
