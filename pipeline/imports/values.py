"""Single foreign values as this project's: whole numbers, names, outcomes, bounded texts."""

import re
from typing import Any

MOST_TEXT = 16 << 20  # bytes of one completion
MOST_PROMPT = 1 << 20
MOST_ANSWER = 100_000
MOST_NUMBER = 1 << 31
MOST_SEED = 1 << 63
_WHOLE = re.compile(r"([0-9]{1,20})(?:\.0{1,20})?")


def whole(value: Any, most: int = MOST_NUMBER) -> int | None:
    """A whole number of at least 0 and below `most`, or None; 1.0 is what pandas makes of 1.

    >>> whole(7), whole("7"), whole(7.0), whole("7.0"), whole(7.5), whole("x"), whole(True)
    (7, 7, 7, 7, None, None, None)
    """
    if isinstance(value, str) and (found := _WHOLE.fullmatch(value.strip())):
        value = int(found[1])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < most:
        return None
    return value


def named(value: Any) -> int | str | None:
    r"""What a record calls a question: a number, or one short printable line.

    >>> named("07"), named("I-3"), named("1.0"), named("a\nb"), named(None)
    (7, 'I-3', '1.0', None, None)
    """
    number = None if isinstance(value, str) and "." in value else whole(value)
    if number is not None or not isinstance(value, str):
        return number
    line = value.strip()
    return line if line and len(line) <= 100 and line.isprintable() else None


def truth(value: Any) -> bool | None:
    """Whether an outcome says correct; None where it says nothing of the kind.

    >>> truth(True), truth(0), truth("1.0"), truth("wrong"), truth(0.4), truth(None)
    (True, False, True, False, None, None)
    """
    if isinstance(value, str):
        words = {"true": 1, "correct": 1, "1": 1, "1.0": 1, "yes": 1}
        words |= {"false": 0, "wrong": 0, "incorrect": 0, "0": 0, "0.0": 0, "no": 0}
        value = words.get(value.strip().lower())
    return bool(value) if isinstance(value, int | float) and value in (0, 1) else None


def text(value: Any, most: int) -> str | None:
    r"""A text or number as text of at most `most` characters; None for anything else.

    Half a surrogate pair, which JSON can hold, cannot be stored.

    >>> text("abc", 4), text("abcde", 4), text(7, 4), text(["abc"], 4), text("\ud800", 4)
    ('abc', None, '7', None, None)
    """
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value != value:
        return None
    try:
        found = str(value)
    except ValueError:  # an integer of thousands of digits
        return None
    storable = found.isascii() or not any("\ud800" <= char <= "\udfff" for char in found)
    return found if len(found) <= most and storable else None
