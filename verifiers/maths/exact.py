r"""Read plain numbers exactly: integers, decimals, fractions, mixed numbers, percents, bases.

A repeating decimal is the fraction that it stands for.

Nothing is evaluated: a number is read when the whole text is one number and refused otherwise.
Binary floating point is never used.
"""

import re
from fractions import Fraction
from typing import NamedTuple

MAX_EXPONENT = 1_000

_DEC = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_GROUPED = re.compile(r"[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?: [0-9]{3})+)(?:\.[0-9]+)?")
_DOTTED = r"\\dot(?:\{ ?[0-9] ?\}|[0-9])"
REPEATING = (  # 0.1\overline{6}, 0.1\dot{6}, 0.\dot{1}4285\dot{7}
    r"[0-9]{0,50}\.[0-9]{0,50}(?:\\(?:overline|bar)(?:\{ ?[0-9]{1,50} ?\}|[0-9])"
    rf"|{_DOTTED}(?:[0-9]{{0,50}}{_DOTTED})?)"
)
_PLAIN = re.compile(rf"{_DEC}|{REPEATING}")
_RATIO = re.compile(
    rf"\\frac ?\{{ ?([-+]?{_DEC}) ?\}} ?\{{ ?([-+]?{_DEC}) ?\}}|({_DEC}) ?[/:] ?({_DEC})"
)
_MIXED = re.compile(
    r"([0-9]+) ?\\frac ?\{ ?([0-9]+) ?\} ?\{ ?([0-9]+) ?\}|([0-9]+) ([0-9]+)/([0-9]+)"
)
_POWER = re.compile(
    rf"({_DEC}) ?(?:\\times|\\cdot|\*) ?10 ?\^ ?(?:\{{ ?([-+]?[0-9]{{1,4}}) ?\}}|([0-9]))"
)
# An E that could be a variable is none: 2E+3.
_E = re.compile(
    r"([0-9]+(?:\.[0-9]+)?)E([0-9]{1,3})|(1|[0-9]\.[0-9]+)E([+-][0-9]{2,3})|(1)E([+-][0-9])"
)
_BASE = re.compile(r"([0-9][0-9A-F]*) ?_ ?(?:\{ ?([0-9]{1,2}) ?\}|([0-9]))")
_SIGN = re.compile(r"^([-+]?) ?(.*)$", re.DOTALL)
_PERCENT = re.compile(r" ?(?:\\%|\\text ?\{ ?(?:percent|pct) ?\}|percent(?:age)?|pct)$")


class Number(NamedTuple):
    """An exact value; `sure` is False where the text could also be read another way."""

    value: Fraction
    sure: bool


def read_number(text: str) -> Number | None:
    r"""Read a cleaned text (see `latex.clean`) that is one plain number, or return None.

    A trailing degree sign is dropped and a trailing percent sign divides by 100. Grouped digits
    ("1,234", "1 234") are read but not `sure`, for they could be a list.

    >>> read_number("025").value == read_number("25").value == 25
    True
    >>> read_number(r"1\frac{1}{2}").value, read_number(r"33.5\%").value
    (Fraction(3, 2), Fraction(67, 200))
    >>> read_number("204_{7}").value, read_number(r"\frac{1}{0}"), read_number("2x")
    (Fraction(102, 1), None, None)
    """
    percent = _PERCENT.search(text)
    text = text[: percent.start()] if percent else text.removesuffix("^{\\circ}")
    sign, body = _SIGN.match(text.strip()).groups()  # type: ignore[union-attr]
    if body.startswith("(") and body.endswith(")") and body.count("(") == 1:
        return None  # "(5)" may be a label
    number = _read_unsigned(body.strip())
    if number is None:
        return None
    value = -number.value if sign == "-" else number.value
    return Number(value / 100 if percent else value, number.sure)


def _read_unsigned(body: str) -> Number | None:
    if _PLAIN.fullmatch(body):
        return Number(decimal(body), True)
    if _GROUPED.fullmatch(body):
        return Number(decimal(body.replace(",", "").replace(" ", "")), False)
    if match := _RATIO.fullmatch(body):
        if re.search(r": ?[0-5][0-9]$", body):
            return None  # a time of day
        top, bottom = (decimal(part) for part in match.groups() if part is not None)
        return Number(top / bottom, True) if bottom else None
    if match := _MIXED.fullmatch(body):
        whole, part, parts = (int(group) for group in match.groups() if group is not None)
        # With an improper part ("3\frac{5}{2}") it is as likely a product.
        return Number(whole + Fraction(part, parts), True) if 0 < part < parts else None
    if match := _POWER.fullmatch(body):
        exponent = int(match[2] or match[3])
        if abs(exponent) > MAX_EXPONENT:
            return None
        return Number(decimal(match[1]) * Fraction(10) ** exponent, True)
    if match := _E.fullmatch(body):
        mantissa, power = (group for group in match.groups() if group is not None)
        return Number(decimal(mantissa) * Fraction(10) ** int(power), True)
    if match := _BASE.fullmatch(body):
        try:
            base = int(match[2] or match[3])
            return Number(Fraction(int(match[1], base)), True) if base > 1 else None
        except ValueError:  # a digit that the base does not have
            return None
    return None


def decimal(text: str) -> Fraction:
    r"""The value of digits with or without a sign and a point, or of a repeating decimal.

    >>> decimal("-0.25"), decimal(r"0.1\overline{6}")
    (Fraction(-1, 4), Fraction(1, 6))
    """
    text, command, period = text.partition("\\")
    if command:
        nines = re.sub("[^0-9]", "", period)
        places = 10 ** len(text.partition(".")[2])
        return decimal(text) + Fraction(int(nines), places * (10 ** len(nines) - 1))
    whole, _, part = text.lstrip("+-").partition(".")
    value = Fraction(int((whole + part) or "0"), 10 ** len(part))
    return -value if text.startswith("-") else value
