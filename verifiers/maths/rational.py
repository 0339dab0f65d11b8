"""Constant expressions: exact values of bounded size, and which numbers are far larger."""

import math
import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from bayes_at_n.verifiers.maths.parser import Tree

MAX_BITS = 50_000  # of a numerator or denominator: 15,000 digits
MAX_FACTORIAL = 3_000
_MAX_ROOT_BITS = 5_000  # of a number whose exact cube root or higher is tried


class Unsure(ValueError):
    """Too large, undefined, or too close to call."""


def exact(tree: Tree, points: dict[str, Fraction] | None = None) -> Fraction | None:
    """The exact value of a tree at `points` of its variables; None where it is no rational number.

    Raises Unsure or ArithmeticError: it is too large or not defined.
    """
    name, *arguments = tree
    if name in ("num", "const", "var"):
        return {"num": arguments[0], "var": (points or {}).get(arguments[0])}.get(name)
    values = [exact(argument, points) for argument in arguments if isinstance(argument, tuple)]
    return None if None in values else combined(name, values)


def combined(name: str, values: list[Any]) -> Fraction | None:
    """An operation on fractions; None where its result is none."""
    value = _RATIONAL[name](*values) if name in _RATIONAL else None
    if value is not None and max(map(int.bit_length, value.as_integer_ratio())) > MAX_BITS:
        raise Unsure
    return value


PLAIN: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "mixed": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "neg": operator.neg,
    "abs": abs,
    "percent": lambda a: a / 100,
}


def _integer(value: Fraction, most: int) -> int:
    if value.denominator != 1 or not 0 <= value <= most:
        raise Unsure
    return value.numerator


def _rational_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        if base < 0:
            raise Unsure  # (-8)^{1/3}: real or principal?
        if exponent.denominator > 999 and base != 1:
            return None
        return _rational_root(base, Fraction(exponent.denominator), exponent.numerator)
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    if (base == 0 and exponent <= 0) or (size > 1 and abs(exponent) * size > MAX_BITS):
        raise Unsure
    if size <= 1:  # 1 and -1 to any power
        return base if exponent % 2 else base * base
    return Fraction(base**exponent.numerator)


def _rational_root(base: Fraction, degree: Fraction, power: int = 1) -> Fraction | None:
    """The exact root where it is rational; None where it is not."""
    if degree.denominator != 1 or not 1 < degree < 1000:
        raise Unsure
    n = degree.numerator
    if base < 0 and n % 2 == 0:
        return None
    roots = [_integer_root(abs(part), n) for part in (base.numerator, base.denominator)]
    if roots[0] is None or roots[1] is None:
        return None
    root = Fraction(roots[0], roots[1]) * (-1 if base < 0 else 1)
    return _rational_power(root, Fraction(power))


def _integer_root(value: int, degree: int) -> int | None:
    if degree == 2:
        root = math.isqrt(value)
        return root if root * root == value else None
    if value.bit_length() > _MAX_ROOT_BITS:
        raise Unsure
    if value == 0:
        return 0
    root = 1 << -(-value.bit_length() // degree)
    while True:  # Newton's method from above
        better = ((degree - 1) * root + value // root ** (degree - 1)) // degree
        if better >= root:
            return root if root**degree == value else None
        root = better


def _factorials(top: Fraction, bottom: Fraction) -> Fraction:
    """n!/m! without either, where they are near each other."""
    n, m = _integer(top, 10**30), _integer(bottom, 10**30)
    if abs(n - m) > MAX_FACTORIAL // 5 and max(n, m) > MAX_FACTORIAL:
        raise Unsure
    return Fraction(math.perm(max(n, m), abs(n - m))) ** (1 if n >= m else -1)


def _integers(function: Callable[..., int]) -> Callable[..., Fraction]:
    return lambda *values: Fraction(function(*(_integer(value, 10**30) for value in values)))


_RATIONAL: dict[str, Callable[..., Fraction | None]] = {
    **PLAIN,
    "div": operator.truediv,
    "pow": _rational_power,
    "root": _rational_root,
    "factorial": lambda a: Fraction(math.factorial(_integer(a, MAX_FACTORIAL))),
    "factorials": _factorials,
    "double_factorial": lambda a: Fraction(math.prod(range(_integer(a, MAX_FACTORIAL), 0, -2))),
    "binom": lambda n, k: Fraction(math.comb(_integer(n, MAX_FACTORIAL), _integer(k, 10**30))),
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "mod": _integers(operator.mod),
    "max": max,
    "min": min,
}


def is_enormous(tree: Tree) -> bool:
    r"""Whether a number is far larger than what is computed: a tower of powers, a huge factorial.

    >>> from bayes_at_n.verifiers.maths.parser import read_expression
    >>> [is_enormous(read_expression(text)) for text in ("9^{9^{9^{9}}}", "(10^{6})!", "2^{10}")]
    [True, True, False]
    """
    name, *parts = tree
    if name == "neg":
        return is_enormous(parts[0])
    if name not in ("pow", "factorial", "binom"):
        return False
    try:
        values = [None if is_enormous(part) else exact(part) for part in parts]
    except (Unsure, ArithmeticError, ValueError):
        return False
    n = values[0]
    whole = n is None or (n >= 2 and n.denominator == 1)
    if name == "factorial" or not whole:
        return whole and (n is None or n > 10 * MAX_FACTORIAL)
    k = values[1]
    if name == "binom":
        return n is not None and k is not None and min(k, n - k) > 2 * MAX_BITS
    return k is None or k > 2 * MAX_BITS
