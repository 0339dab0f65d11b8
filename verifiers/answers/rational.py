"""Exact values of constant expressions: integers and fractions of bounded size, nothing else."""

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

from verifiers.answers.expression import Tree

MAX_BITS = 50_000  # of a numerator or denominator: 15,000 digits
MAX_FACTORIAL = 3_000
_MAX_ROOT_BITS = 5_000  # of a number whose exact cube root or higher is tried


class Unsure(ValueError):
    """Too large, undefined, or too close to call."""


class Exact:
    """Exact values of rational subtrees, each computed once; `bits` is the size of the largest.

    Variables have the values of `points`, or none.
    """

    def __init__(self, points: dict[str, Fraction] | None = None) -> None:
        self.points = points or {}
        self.known: dict[int, tuple[Tree, Fraction | None]] = {}
        self.bits = 0

    def value(self, tree: Tree) -> Fraction | None:
        if id(tree) not in self.known:
            found = self._value(tree)
            if found is not None:
                size = max(found.numerator.bit_length(), found.denominator.bit_length())
                if size > MAX_BITS:
                    raise Unsure
                self.bits = max(self.bits, size)
            self.known[id(tree)] = tree, found  # the tree, too, so that its id stays its own
        return self.known[id(tree)][1]

    def _value(self, tree: Tree) -> Fraction | None:
        name, *arguments = tree
        if name == "num":
            found: Fraction = arguments[0]
            return found
        if name == "const":
            return None
        if name == "var":
            return self.points.get(arguments[0])
        if name == "div" and arguments[0][0] == arguments[1][0] == "factorial":
            return _factorial_ratio(*(self.value(argument[1]) for argument in arguments))
        values = [self.value(argument) for argument in arguments]
        if name in _RATIONAL and None not in values:
            return _RATIONAL[name](*values)
        return None


PLAIN: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a: -a,
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
    if None in roots:
        return None
    root = Fraction(roots[0], roots[1]) * (-1 if base < 0 else 1)  # type: ignore[arg-type]
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


def _factorial_ratio(top: Fraction | None, bottom: Fraction | None) -> Fraction | None:
    """n!/m! without either, where they are near each other."""
    if top is None or bottom is None:
        return None
    n, m = _integer(top, 10**30), _integer(bottom, 10**30)
    if abs(n - m) > MAX_FACTORIAL // 5:
        return Fraction(math.factorial(_integer(top, MAX_FACTORIAL))) / math.factorial(
            _integer(bottom, MAX_FACTORIAL)
        )
    product = Fraction(math.prod(range(min(n, m) + 1, max(n, m) + 1)))
    return product if n >= m else 1 / product


def _integers(function: Callable[..., int]) -> Callable[..., Fraction]:
    def apply(*values: Fraction) -> Fraction:
        return Fraction(function(*(_integer(value, 10**30) for value in values)))

    return apply


_RATIONAL: dict[str, Callable[..., Fraction | None]] = {
    **PLAIN,
    "div": lambda a, b: a / b,
    "pow": _rational_power,
    "root": _rational_root,
    "factorial": lambda a: Fraction(math.factorial(_integer(a, MAX_FACTORIAL))),
    "binom": lambda n, k: Fraction(math.comb(_integer(n, MAX_FACTORIAL), _integer(k, 10**30))),
    "floor": lambda a: Fraction(math.floor(a)),
    "ceil": lambda a: Fraction(math.ceil(a)),
    "gcd": _integers(math.gcd),
    "lcm": _integers(math.lcm),
    "max": max,
    "min": min,
}
