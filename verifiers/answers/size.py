"""How large a constant is, when it is too large to be computed: a sign and bounds of log2 |x|.

A tower of powers, a huge factorial or binomial differs from every answer of another size; that
much can be known without computing it.
"""

import math
from typing import NamedTuple

from verifiers.answers.expression import Tree
from verifiers.answers.rational import Exact, Unsure

_MAX_LOG = 1000.0  # a float's own exponent: beyond it a bound is infinite


class Size(NamedTuple):
    """Sign (-1, 0, 1) and log2 |x| between `low` and `high`."""

    sign: int
    low: float
    high: float


def apart(a: Size | None, b: Size | None) -> bool:
    """Whether two numbers differ for sure."""
    if a is None or b is None:
        return False
    return a.sign != b.sign or a.low > b.high + 1 or b.low > a.high + 1


def size_of(tree: Tree | None) -> Size | None:
    """Bounds for a number, product, quotient, power, factorial or binomial; None for all else.

    >>> from verifiers.answers.expression import read_expression
    >>> size_of(read_expression("2^{10}"))
    Size(sign=1, low=10.0, high=11.0)
    >>> size_of(read_expression("-9^{9^{9^{9}}}")).sign
    -1
    """
    if tree is None:
        return None
    try:
        value = Exact().value(tree)
    except (Unsure, ArithmeticError, ValueError):
        value = None
    if value == 0:
        return Size(0, -math.inf, -math.inf)
    if value is not None:
        bits = abs(value.numerator).bit_length() - value.denominator.bit_length()
        exact = value.denominator == 1
        return Size(1 if value > 0 else -1, bits + 0.0 if exact else bits - 1.0, bits + 1.0)
    name, *arguments = tree
    if name in ("factorial", "binom"):
        return _of_counts(name, arguments)
    sizes = [size_of(argument) for argument in arguments if isinstance(argument, tuple)]
    if not sizes or None in sizes or name not in ("neg", "mul", "div", "pow"):
        return None
    return _combined(name, *sizes)  # type: ignore[arg-type]


def _combined(name: str, a: Size, b: Size | None = None) -> Size | None:
    if name == "neg" or b is None:
        return Size(-a.sign, a.low, a.high)
    if name == "mul":
        return Size(a.sign * b.sign, a.low + b.low, a.high + b.high)
    if name == "div":
        return Size(a.sign * b.sign, a.low - b.high, a.high - b.low) if b.sign else None
    if a.sign != 1 or a.low <= 0 or b.sign == 0:
        return None
    low, high = a.low * _power_of_two(b.low), a.high * _power_of_two(b.high)
    return Size(1, low, high) if b.sign > 0 else Size(1, -high, -low)


def _power_of_two(log: float) -> float:
    return math.inf if log > _MAX_LOG else 2.0 ** max(log, -_MAX_LOG)


def _of_counts(name: str, arguments: list[Tree]) -> Size | None:
    try:
        values = [Exact().value(argument) for argument in arguments]
    except (Unsure, ArithmeticError, ValueError):
        return None
    if any(v is None or v.denominator != 1 or not 2 < v < 2**900 for v in values):
        return None
    n = float(values[0])  # type: ignore[arg-type]
    if name == "factorial":
        return Size(1, n * (math.log2(n) - 1.45), n * math.log2(n))
    k = min(float(values[1]), n - float(values[1]))  # type: ignore[arg-type]
    if k < 2:
        return None
    return Size(1, k * math.log2(n / k), k * (math.log2(n / k) + 1.45))
