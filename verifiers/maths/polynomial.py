r"""Polynomials with fractions as coefficients, expanded from expression trees.

What is no sum, product or small power (`\sqrt{x}`, `\pi`, a reciprocal) counts as one more
unknown, an atom: two expansions that agree are the same function, two that differ may still be.

>>> from bayes_at_n.verifiers.maths.parser import read_expression
>>> polynomial(read_expression("(x-1)^{2}-x(x-2)"))
{(): Fraction(1, 1)}
"""

from collections import Counter
from collections.abc import Iterable
from fractions import Fraction
from typing import Any

from bayes_at_n.verifiers.maths.parser import Tree, variables
from bayes_at_n.verifiers.maths.rational import Unsure, combined, exact, factorials

Monomial = tuple[tuple[Tree, int], ...]  # (atom, exponent), in a fixed order; () is the constant
Polynomial = dict[Monomial, Fraction]

_MAX_POWER = 12
_MAX_WORK = 4_000  # products of two terms in one expansion
_MAX_BITS = 4_000  # of a coefficient


def polynomial(tree: Tree) -> Polynomial:
    """Expand a tree; a polynomial without terms is zero.

    Raises Unsure or ArithmeticError: it is too large, or divides by zero.
    """
    work = 0

    def times(a: Polynomial, b: Polynomial) -> Polynomial:
        nonlocal work
        work += len(a) * len(b)
        if work > _MAX_WORK:
            raise Unsure
        return _summed(
            (tuple(sorted((Counter(dict(left)) + Counter(dict(right))).items(), key=repr)), x * y)
            for left, x in a.items()
            for right, y in b.items()
        )

    def expand(tree: Tree) -> Polynomial:
        name, *arguments = tree
        if name == "num":
            return _constant(arguments[0])
        if name in ("var", "const"):
            return {((tree, 1),): Fraction(1)}
        if name == "degree":
            tree = ("mul", arguments[0], ("div", ("const", "pi"), ("num", Fraction(180))))
            return expand(tree)
        if name in ("sum", "prod", "int", "lim"):
            raise Unsure
        if factorials(tree) and (value := exact(tree)):
            return _constant(value)
        parts = [expand(argument) for argument in arguments]
        if all(part.keys() <= {()} for part in parts):
            value = combined(name, [part.get((), Fraction(0)) for part in parts])
            if value is not None:
                return _constant(value)
        if name == "percent":
            raise Unsure
        power = parts[1].get(()) if name == "pow" and parts[1].keys() == {()} else None
        if power is not None and power.denominator == 1 and 0 < power <= _MAX_POWER:
            result = parts[0]
            for _ in range(power.numerator - 1):
                result = times(result, parts[0])
            return result
        if name == "neg":
            return scaled(parts[0], -1)
        if name in ("add", "sub"):
            return plus(parts[0], scaled(parts[1], 1 if name == "add" else -1))
        if name == "mul":
            return times(*parts)
        if name == "div":
            if parts[1].keys() <= {()}:
                return scaled(parts[0], 1 / parts[1].get((), Fraction(0)))
            return times(parts[0], {((("div", canonical(parts[1])), 1),): Fraction(1)})
        return {(((name, *map(canonical, parts)), 1),): Fraction(1)}

    return expand(tree)


def _constant(value: Fraction) -> Polynomial:
    return {(): value} if value else {}


def plus(a: Polynomial, b: Polynomial) -> Polynomial:
    """The sum of two."""
    return _summed([*a.items(), *b.items()])


def _summed(terms: Iterable[tuple[Monomial, Fraction]]) -> Polynomial:
    total: Polynomial = {}
    for monomial, value in terms:
        total[monomial] = total.get(monomial, Fraction(0)) + value
        if total[monomial].numerator.bit_length() > _MAX_BITS:
            raise Unsure
    return {monomial: value for monomial, value in total.items() if value}


def scaled(a: Polynomial, factor: Fraction | int) -> Polynomial:
    """Every coefficient times `factor`."""
    return {monomial: value * factor for monomial, value in a.items() if factor}


def canonical(a: Polynomial) -> tuple[Any, ...]:
    """Its terms in a fixed order: equal for equal polynomials, and hashable."""
    return tuple(sorted(a.items(), key=repr))


def linear_in(a: Polynomial, name: str) -> tuple[Polynomial, Polynomial]:
    """(b, c) with a = b times the variable + c, neither of which has the variable.

    Raises Unsure: it is not linear in it.
    """
    factor: Polynomial = {}
    rest: Polynomial = {}
    for monomial, value in a.items():
        others = tuple(pair for pair in monomial if pair != (("var", name), 1))
        if name in variables(others):
            raise Unsure
        (rest if len(others) == len(monomial) else factor)[others] = value
    return factor, rest
