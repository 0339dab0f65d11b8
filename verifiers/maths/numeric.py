r"""Compare two expressions: exactly where both are rational, else to very many digits.

Every value is computed with a precision that exceeds the size of every number on the way (so that
$\sqrt 2 + 10^{-300}$ is not $\sqrt 2$), and errors are judged against the largest of them. Two
values are the same if nothing but rounding separates them, different if far more does; anything
between, or a step at which rounding could matter (a division by what may be zero), is left open.
A number too large to be computed, such as a tower of powers, is only compared by its size.
"""

import contextlib
import functools
import hashlib
import math
import operator
import re
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

from bayes_at_n.verifiers.maths.parser import (
    HYPERBOLIC,
    INFINITE,
    INVERSE,
    TRIGONOMETRIC,
    Tree,
    Unsure,
    read_expression,
    read_number,
    refuse_if,
    variables,
)

MAX_BITS = 50_000  # of a numerator or denominator: 15,000 digits
MAX_FACTORIAL = 3_000
_MAX_ROOT_BITS = 5_000  # of a number whose exact cube root or higher is tried


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
    refuse_if(value is not None and max(map(int.bit_length, value.as_integer_ratio())) > MAX_BITS)
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
    refuse_if(value.denominator != 1 or not 0 <= value <= most)
    return value.numerator


def _rational_power(base: Fraction, exponent: Fraction) -> Fraction | None:
    if exponent.denominator != 1:
        refuse_if(base < 0)  # (-8)^{1/3}: real or principal?
        if exponent.denominator > 999 and base != 1:
            return None
        return _rational_root(base, Fraction(exponent.denominator), exponent.numerator)
    size = max(base.numerator.bit_length(), base.denominator.bit_length())
    refuse_if((base == 0 and exponent <= 0) or (size > 1 and abs(exponent) * size > MAX_BITS))
    if size <= 1:  # 1 and -1 to any power
        return base if exponent % 2 else base * base
    return Fraction(base**exponent.numerator)


def _rational_root(base: Fraction, degree: Fraction, power: int = 1) -> Fraction | None:
    """The exact root where it is rational; None where it is not."""
    refuse_if(degree.denominator != 1 or not 1 < degree < 1000)
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
    refuse_if(value.bit_length() > _MAX_ROOT_BITS)
    with _context().workprec(value.bit_length() + 8):
        root = int(_context().nint(_context().root(value, degree)))
    return root if root**degree == value else None


def _factorials(top: Fraction, bottom: Fraction) -> Fraction:
    """n!/m! without either, where they are near each other."""
    n, m = _integer(top, 10**30), _integer(bottom, 10**30)
    refuse_if(abs(n - m) > MAX_FACTORIAL // 5 and max(n, m) > MAX_FACTORIAL)
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
    except (ArithmeticError, ValueError):
        return False
    n = values[0]
    whole = n is None or (n >= 2 and n.denominator == 1)
    if name == "factorial" or not whole:
        return whole and (n is None or n > 10 * MAX_FACTORIAL)
    k = values[1]
    if name == "binom":
        return n is not None and k is not None and min(k, n - k) > 2 * MAX_BITS
    return k is None or k > 2 * MAX_BITS


# Where expressions with variables are compared: the sign and the size of the points.
_POINTS = ((1, 1), (-1, 8), (1, 1), (-1, 8), (1, 300), (-1, 300), (1, Fraction(1, 300)))
_PRECISION = 256  # bits, beyond the size of the numbers
_FIRST_PRECISION = 1_024
_MAX_PRECISION = 8_000
_MAX_DENOMINATOR = 10_000
_GUARD = 64  # bits that rounding may cost


def compare_expressions(gold: str, answer: str) -> bool | None:
    r"""Decide whether two cleaned texts are the same expression; None if either is not one.

    With variables both are evaluated at points that depend on the texts, so that none can be made
    to agree at them: at positive points they must agree, and at others they must not disagree.

    >>> compare_expressions(r"\sqrt{5+2\sqrt{6}}", r"\sqrt{2}+\sqrt{3}")
    True
    >>> compare_expressions(r"\frac{1}{2004!}", r"\frac{1}{2006!}")
    False
    >>> compare_expressions("9", "9^{9^{9^{9}}}"), compare_expressions("1/2x", "x")
    (False, None)
    >>> compare_expressions(r"\frac{n(n-1)}{2}", r"\frac{n^{2}-n}{2}")
    True
    """
    left, right = read_expression(gold), read_expression(answer)
    return None if left is None or right is None else same_function(*_angles(left, right))


def same_function(left: Tree, right: Tree) -> bool | None:
    """Decide whether two trees have the same value, whatever their variables are."""
    names = sorted(variables(left) | variables(right))
    if not names:
        return _same(left, right, {})
    seed = "\0".join(sorted(map(repr, (left, right))))
    equal = []  # at each point
    for i in range(len(_POINTS)):
        equal.append(_same(left, right, _points(names, seed, i)))
        if equal[i] is False:
            return False if i % 2 == 0 and i < 4 else None  # there may be another branch
    # With a corner they may agree on one side of a point and not on the other.
    corners = any(map(_has_corner, (*parts_of(left), *parts_of(right))))
    surely = equal[0] and equal[2] and (equal[4] or equal[6])  # numbers may be too large at one
    return True if surely and not corners else None


def _has_corner(part: Tree) -> bool:
    """Whether a function may be one expression here and another there, as an absolute value is."""
    if part[0] in ("abs", "floor", "ceil", "max", "min"):
        return bool(variables(part))
    if part[0] != "root" or part[2] == ("num", Fraction(3)) or not variables(part[1]):
        return False
    inside = ("mul", *part[1][1:]) if part[1][0] == "div" else part[1]
    if inside[0] == "pow" and inside[2][0] == "num" and inside[2][1] % 2 == 1:
        inside = inside[1]
    if any(inner[0] == "root" for inner in parts_of(inside)):
        return True
    try:  # the root of what may be a square
        return not all(linear(inside, name) for name in variables(inside))
    except Unsure:
        return True


def linear(tree: Tree, name: str) -> tuple[Tree, Tree]:
    """a and b of a tree that is ax + b in one of its variables.

    Raises Unsure: it is not, or nobody can tell.
    """
    if tree == ("var", name):
        return ("num", Fraction(1)), ("num", Fraction(0))
    start, end = (_at(tree, {name: Fraction(x)}) for x in (0, 1))
    slope = ("sub", end, start)
    line = ("add", start, ("mul", slope, ("var", name)))
    refuse_if(name not in variables(tree) or same_function(tree, line) is not True)
    return slope, start


def factor(left: Tree, right: Tree) -> int:
    """The sign of the constant that times one tree is another.

    Raises Unsure: there is none, or nobody can tell.
    """
    if left == right:
        return 1
    points = _points(sorted(variables(left) | variables(right)), "factor", 0)
    times: Tree = ("div", _at(left, points), _at(right, points))
    sign = order(times, ("num", Fraction(0)))
    refuse_if(not sign or same_function(left, ("mul", times, right)) is not True)
    return sign


def fraction_of(part: Tree, whole: Tree) -> Fraction:
    """The quotient of two constants where it is a fraction with a small denominator.

    Raises Unsure or ArithmeticError: it is not.
    """
    quotient: Tree = ("div", part, whole)
    value = exact(quotient)
    if value is None:
        number = _constant(quotient, _FIRST_PRECISION)[0]
        refuse_if(not _is_real(number) or abs(number) > 1e9)
        value = Fraction(int(number * 2**99), 2**99).limit_denominator(_MAX_DENOMINATOR)
        refuse_if(_same(quotient, ("num", value), {}) is not True)
    return value


def _at(tree: Tree, points: dict[str, Fraction]) -> Tree:
    """A tree with numbers for variables."""
    if tree[0] == "var":
        return ("num", points[tree[1]]) if tree[1] in points else tree
    return tuple(_at(part, points) if isinstance(part, tuple) else part for part in tree)


def _angles(left: Tree, right: Tree) -> tuple[Tree, Tree]:
    """An angle in degrees against one with pi in radians; without pi the sign means nothing."""
    pair = left, right
    if (left[0] == "degree") != (right[0] == "degree"):
        other = right if left[0] == "degree" else left
        if ("const", "pi") in parts_of(other):
            return in_radians(left), in_radians(right)
    left, right = (tree[1] if tree[0] == "degree" else tree for tree in pair)
    return left, right


def in_radians(tree: Tree) -> Tree:
    """A tree with a number for every angle in degrees."""
    if tree[0] == "degree":
        return ("mul", in_radians(tree[1]), ("div", ("const", "pi"), ("num", Fraction(180))))
    return tuple(in_radians(part) if isinstance(part, tuple) else part for part in tree)


def parts_of(tree: Tree) -> Iterator[Tree]:
    """A tree and all trees in it."""
    yield tree
    for part in tree[1:]:
        if isinstance(part, tuple):
            yield from parts_of(part)


def _points(names: list[str], seed: str, number: int) -> dict[str, Fraction]:
    """Fractions with 61 binary places: 1/2 to 5/2 times the size, some of them negative."""
    points = {}
    sign, size = _POINTS[number]
    for i, name in enumerate(names):
        digest = hashlib.sha256(f"{seed}\0{number}\0{name}".encode()).digest()
        value = Fraction(1, 2) + Fraction(int.from_bytes(digest[:8], "big") >> 2, 1 << 61)
        negative = sign < 0 and (number == 1 or i == 0 or digest[8] % 2)
        points[name] = (-size if negative else size) * value
    return points


def printed(gold: str, answer: str) -> bool:
    r"""Whether an answer is a plain number as a computer prints it: 17 digits, the last off by two.

    >>> printed("0.3", "0.30000000000000004"), printed("0.3", "0.3000000000000001")
    (True, False)
    """
    digits, number = answer.lstrip("-0.").replace(".", ""), read_number(gold)
    if number is None or len(digits) != 17 or not re.fullmatch(r"-?[0-9]+\.[0-9]+", answer):
        return False
    off = abs(Fraction(answer) - number.value) <= 2 * Fraction(math.ulp(float(answer)))
    return off and len(gold) < 16 and repr(float(answer)) == answer


_DECIMAL = re.compile(
    r"(-?[0-9]*)(?:\.([0-9]{1,50}))?(?:(?:\\times|\\cdot)10\^\{(-?[0-9]{1,3})\})?(?<=[0-9}])"
)


def rounds_to(text: str, decimal: str, digits: int = 3, half: int = 1) -> bool | None:
    r"""Whether a cleaned constant, rounded to the places of a cleaned decimal, is that decimal.

    The decimal must have so many significant `digits` or more, of which the last two may be zeros,
    or it is False; None: one of them is no such number. Half away from zero and half to even both
    count; `half` is how many halves of the last place it may be off.

    >>> rounds_to(r"\sqrt{2}", "1.414"), rounds_to(r"\frac{1}{3}", "0.3"), rounds_to("x", "0.333")
    (True, False, None)
    """
    tree, parts = read_expression(text), _DECIMAL.fullmatch(decimal)
    if tree is None or parts is None:
        return None
    whole, places, power = parts.groups("")
    significant = (whole + places).lstrip("-0")
    if min(len(significant), len(significant.rstrip("0")) + 2) < digits or (
        half == 1 > len(places)
    ):
        return False
    scale = Fraction(10) ** int(power or 0)
    value, off = Fraction(f"{whole}.{places or 0}"), Fraction(half, 2 * 10 ** len(places))
    try:
        low, high = (order(tree, ("num", end * scale)) for end in (value - off, value + off))
    except (ArithmeticError, ValueError):
        return None
    return low >= 0 >= high if half == 1 else low > 0 > high


def order(left: Tree, right: Tree) -> int:
    """-1, 0 or 1 for a real constant below, equal to or above another.

    Raises Unsure, ArithmeticError or ValueError: too close to call, or no such constant.
    """
    a, b, numeric = _values(left, right, {})
    equal = numeric.equal(a, b)
    refuse_if(equal is None or not (_is_real(a) and _is_real(b)))
    a, b = map(numeric.number, (a, b))
    return 0 if equal else (a > b) - (a < b)


def _same(left: Tree, right: Tree, points: dict[str, Fraction]) -> bool | None:
    try:
        a, b, numeric = _values(left, right, points)
        equal = numeric.equal(a, b)
        real = not points or (_is_real(a) and _is_real(b))
        sure = equal or real or ("const", "i") in (*parts_of(left), *parts_of(right))
        return equal if sure else None
    except (ArithmeticError, ValueError, RecursionError):
        sizes = [*map(is_enormous, (left, right))]
        if sizes[0] == sizes[1]:
            return None
        with contextlib.suppress(ArithmeticError, ValueError):
            small = _constant(right if sizes[0] else left, _PRECISION)[2] < _PRECISION
            return False if small else None
        return None


def _values(left: Tree, right: Tree, points: dict[str, Fraction]) -> "tuple[Any, Any, _Numeric]":
    """Both values, to a precision that exceeds the size of every number on the way."""
    precision = _FIRST_PRECISION
    for _ in range(3):
        numeric = _Numeric(points, precision)
        if points:
            a, b = numeric.value(left), numeric.value(right)
        else:
            (a, *sizes), (b, *others) = (_constant(tree, precision) for tree in (left, right))
            numeric.bits, numeric.largest = map(max, sizes, others)
        needed = _PRECISION + 2 * (numeric.bits + numeric.largest)
        if needed <= precision or (isinstance(a, Fraction) and isinstance(b, Fraction)):
            return a, b, numeric
        precision = needed
    raise Unsure


@functools.lru_cache(maxsize=128)  # an item of a list is compared with all of the other
def _constant(tree: Tree, precision: int) -> tuple[Any, int, int]:
    numeric = _Numeric({}, precision)
    return numeric.value(tree), numeric.bits, numeric.largest


@functools.cache
def _context() -> Any:
    """An mpmath context of our own: nobody else's precision is touched."""
    import mpmath

    return mpmath.mp.clone()


def _is_real(x: Any) -> bool:
    return not hasattr(x, "_mpc_")


class _Numeric:
    """Values of trees at `points`: fractions where they are, else numbers of `precision` bits.

    `bits` is the size of the largest fraction, `largest` the widest exponent of the other numbers.
    """

    def __init__(self, points: dict[str, Fraction], precision: int) -> None:
        refuse_if(precision > _MAX_PRECISION)
        self.points, self.precision, self.bits, self.largest = points, precision, 0, 0
        self.mp = _context()
        self.mp.prec = precision

    def value(self, tree: Tree, in_angle: bool = False) -> Any:
        name, *arguments = tree
        if name in ("num", "var"):
            value = exact(tree, self.points)
        elif name == "const" and tree != INFINITE:
            return {"pi": self.mp.pi, "e": self.mp.e, "i": self.mp.mpc(0, 1)}[arguments[0]] * 1
        elif name in ("const", "int", "lim", "sum", "prod") or (name == "degree" and not in_angle):
            raise Unsure
        else:
            angle = name in TRIGONOMETRIC or (
                in_angle and name in ("add", "sub", "neg", "mul", "div")
            )
            values = [self.value(argument, angle) for argument in arguments]
            rational = all(isinstance(value, Fraction) for value in values)
            value = combined(name, values) if rational else None
            if value is None:
                # What is left when two numbers cancel is no size that counts.
                cancels = name in ("add", "sub")
                return self._finite(self._apply(name, [*map(self.number, values)]), cancels)
        if value is None:
            raise Unsure
        self.bits = max(self.bits, *map(int.bit_length, value.as_integer_ratio()))
        return value

    def number(self, value: Any) -> Any:
        if isinstance(value, Fraction):
            return self._finite(self.mp.mpf(value.numerator) / value.denominator)
        return value

    def _apply(self, name: str, values: list[Any]) -> Any:
        x = values[0]
        if name in PLAIN:
            return PLAIN[name](*values)
        if name == "degree":
            return x * self.mp.pi / 180
        if name in ("floor", "ceil") and _is_real(x):
            self._nonzero(x - self.mp.nint(x))
            return getattr(self.mp, name)(x)
        if name == "div":
            return x / self._nonzero(values[1])
        if name == "root":
            return self._root(x, values[1])
        if name == "pow":
            return self._power(x, values[1])
        if name == "ln":
            return self.mp.log(self._nonzero(x))
        if name == "exp":
            return self._power(self.mp.e * 1, x)
        if name in TRIGONOMETRIC and self.mp.mag(x) < 60:
            return self.mp.expj(x) if name == "cis" else getattr(self.mp, name)(x)
        widest = 1 if name in ("arcsin", "arccos") else 1e6
        refuse_if(name not in INVERSE | HYPERBOLIC or not _is_real(x) or abs(x) > widest)
        if name == "arccot":  # which jumps at 0
            self._nonzero(x)
        value = getattr(self.mp, name.replace("arc", "a"))(x)
        refuse_if(not _is_real(value))
        return value

    def _root(self, base: Any, degree: Any) -> Any:
        """The root of a real degree; of a negative number the real one where there is one."""
        refuse_if(not _is_real(degree) or degree != int(degree) or not 1 < degree < 1000)
        if _is_real(base) and base < 0 and degree % 2:
            return -self.mp.root(self._nonzero(-base), int(degree))
        return self.mp.root(self._nonzero(base), int(degree))

    def _power(self, base: Any, exponent: Any) -> Any:
        base = self._nonzero(base)
        integer = _is_real(exponent) and exponent == self.mp.nint(exponent)
        # (-8)^{1/3}: real or principal?
        refuse_if(not integer and not (_is_real(base) and base > 0))
        refuse_if(self.mp.mag(exponent) + max(0, self.mp.mag(self.mp.log(abs(base)) or 1)) > 17)
        return base ** (int(exponent) if integer else exponent)

    def _nonzero(self, x: Any) -> Any:
        refuse_if(x == 0 or self.mp.mag(x) < self.largest - self.precision // 2)
        return x

    def _finite(self, x: Any, cancels: bool = False) -> Any:
        """A value on the way; its exponent may be the widest."""
        refuse_if(not self.mp.isfinite(x))
        if x != 0 and not (cancels and self.mp.mag(x) < 0):
            self.largest = max(self.largest, min(abs(int(self.mp.mag(x))), self.precision))
        return x

    def equal(self, x: Any, y: Any) -> bool | None:
        """Whether two values are the same; None where rounding could have made the difference."""
        if isinstance(x, Fraction) and isinstance(y, Fraction):
            return x == y
        difference = self.number(x) - self.number(y)
        if difference == 0:
            return True
        size = int(self.mp.mag(difference))
        if size < self.largest + _GUARD - self.precision:
            return True
        return False if size > self.largest - self.precision // 2 else None
