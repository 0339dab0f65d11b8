"""Numbers and their near misses, spelt at random: what `made_answers.py` puts together.

A kind is a value (fractions, a surd by its three numbers, ...) whose text `spell` chooses among
spellings and whose `near` gives values next to it. Values are compared exactly: a near miss is
another value, whatever its text.
"""

import math
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

SQUAREFREE = (2, 3, 5, 6, 7, 10, 11, 13, 15)


class Scalar(NamedTuple):
    """An exact value, how it is spelt, and what is next to it (texts, by `near_texts`)."""

    value: Any
    spell: Callable[[random.Random, Any], str]
    near: Callable[[random.Random, Any], Iterator[Any]]

    def text(self, rng: random.Random) -> str:
        """One spelling."""
        return self.spell(rng, self.value)

    def near_text(self, rng: random.Random) -> str:
        """One spelling of another value."""
        others = [value for value in self.near(rng, self.value) if value != self.value]
        return self.spell(rng, rng.choice(others))


def scalar(rng: random.Random) -> Scalar:
    """A number of some kind."""
    return rng.choice([integer, fraction, fraction, surd, surd, of_pi, complex_number])(rng)


def integer(rng: random.Random) -> Scalar:
    """An integer; most are small."""
    size = rng.choice([30, 30, 1000, 1000, 10**6, 10**12])
    return Scalar(rng.choice([1, 1, 1, -1]) * rng.randint(2, size), _integer, _near_integer)


def fraction(rng: random.Random) -> Scalar:
    """A fraction that is no integer."""
    bottom = rng.randint(2, 30)
    top = rng.choice([n for n in range(1, 4 * bottom) if n % bottom])
    return Scalar(rng.choice([1, 1, -1]) * Fraction(top, bottom), _fraction, _near_fraction)


def surd(rng: random.Random) -> Scalar:
    """a + b sqrt(c), c squarefree: equal only if all three are."""
    a = Fraction(rng.choice([0, 0, *range(-9, 10)]), rng.choice([1, 1, 2, 3]))
    b = Fraction(rng.choice([-1, 1]) * rng.randint(1, 9), rng.choice([1, 1, 2, 5]))
    return Scalar((a, b, rng.choice(SQUAREFREE)), _surd, _near_surd)


def of_pi(rng: random.Random) -> Scalar:
    """A multiple of pi."""
    return Scalar(fraction(rng).value, _pi, _near_fraction)


def complex_number(rng: random.Random) -> Scalar:
    """a + b i."""
    return Scalar((_part(rng), _part(rng)), _complex, _near_complex)


def tex(q: Fraction | int) -> str:
    r"""The plainest text of a fraction: `-\frac{1}{2}`."""
    q = Fraction(q)
    if q.denominator == 1:
        return str(q.numerator)
    return rf"{'-' if q < 0 else ''}\frac{{{abs(q.numerator)}}}{{{q.denominator}}}"


def signed(text: str) -> str:
    """A term that goes on a sum."""
    return text if text.startswith("-") else "+" + text


def times(q: Fraction | int, what: str) -> str:
    """q times a symbol, without a 1 in front."""
    if abs(q) == 1:
        return what if q > 0 else "-" + what
    return tex(q) + what


def repeating(q: Fraction) -> str:
    r"""The decimal of a fraction, its period under a bar: `0.1\overline{6}`."""
    whole, rest = divmod(abs(q.numerator), q.denominator)
    digits, seen = "", dict[int, int]()
    while rest and rest not in seen:
        seen[rest] = len(digits)
        digit, rest = divmod(10 * rest, q.denominator)
        digits += str(digit)
    sign = "-" if q < 0 else ""
    if not rest:
        return f"{sign}{whole}.{digits}" if digits else f"{sign}{whole}"
    start = seen[rest]
    return rf"{sign}{whole}.{digits[:start]}\overline{{{digits[start:]}}}"


def _part(rng: random.Random) -> Fraction:
    return Fraction(rng.choice([-1, 1]) * rng.randint(1, 12), rng.choice([1, 1, 1, 2, 3]))


def _integer(rng: random.Random, n: int) -> str:
    a = rng.randint(1, 50)
    made = [str(n), str(n), f"{n:,}".replace(",", "{,}"), rf"{n - a}+{a}", f"({n})"]
    made += [rf"\frac{{{n * a}}}{{{a}}}", f"{n}.0"]
    for p in (2, 3, 7):
        if n > 0 and n % p == 0:
            made += [rf"{p}\cdot {n // p}", rf"{n // p} \times {p}"]
    return rng.choice(made)


def _near_integer(rng: random.Random, n: int) -> Iterator[int]:
    yield from (n + 1, n - 1, -n, 10 * n, n + 10, n * n)
    if abs(n) > 99:
        digits = list(str(abs(n)))
        i = rng.randrange(len(digits) - 1)
        digits[i : i + 2] = digits[i + 1], digits[i]
        yield int("".join(digits))


def _fraction(rng: random.Random, q: Fraction) -> str:
    top, bottom, k = q.numerator, q.denominator, rng.randint(2, 9)
    part = Fraction(rng.randint(1, 9), rng.randint(2, 9))
    made = [tex(q), tex(q).replace("frac", "dfrac"), f"{top}/{bottom}"]
    made += [rf"\frac{{{k * top}}}{{{k * bottom}}}", rf"\tfrac{{{top}}}{{{bottom}}}"]
    made += [tex(q - part) + "+" + tex(part), rf"\left({tex(q)}\right)"]
    if bottom != 1 and len(repeating(q)) < 30:
        made.append(repeating(q))
    if abs(q) > 1 and bottom != 1:
        whole, rest = divmod(abs(q), 1)
        made.append(f"{'-' if q < 0 else ''}{whole}{tex(rest)}")
    if q > 0 and 100 * q == int(100 * q):
        made.append(rf"{int(100 * q)}\%")
    return rng.choice(made)


def _near_fraction(rng: random.Random, q: Fraction) -> Iterator[Fraction]:
    top, bottom = q.numerator, q.denominator
    yield from (-q, q + 1, q - 1, 1 / q, Fraction(top + 1, bottom), Fraction(top, bottom + 1))
    yield from (10 * q, q / 10, q + Fraction(1, 1000), q + Fraction(1, 10**9), q * q)
    yield Fraction(round(1000 * q), 1000)


def _surd(rng: random.Random, surd: tuple[Fraction, Fraction, int]) -> str:
    a, b, c = surd
    root = rf"\sqrt{{{c}}}"
    inside = b * b * c
    under = rf"\sqrt{{{tex(inside)}}}"
    terms = [times(b, root), ("-" if b < 0 else "") + under]
    terms.append(times(b, f"{c}^{{1/2}}") if abs(b) == 1 else f"{tex(b)} \\cdot {root}")
    if inside.denominator == 1:  # b sqrt(c) = bc / sqrt(c)
        terms.append(rf"{'-' if b < 0 else ''}\frac{{{abs(b) * c}}}{{{root}}}")
    term = rng.choice(terms)
    if a == 0:
        return term
    d = math.lcm(a.denominator, b.denominator)
    over = f"{a * d}{signed(times(b * d, root))}"
    made = [tex(a) + signed(term), term + signed(tex(a))]
    made.append(rf"\frac{{{over}}}{{{d}}}" if d > 1 else f"({over})")
    if rng.random() < 0.2 and c * b * b > a * a and b > 0:  # the root of its square, when positive
        square = f"{tex(a * a + b * b * c)}{signed(times(2 * a * b, root))}"
        made.append(rf"\sqrt{{{square}}}")
    return rng.choice(made)


def _near_surd(
    rng: random.Random, surd: tuple[Fraction, Fraction, int]
) -> Iterator[tuple[Fraction, Fraction, int]]:
    a, b, c = surd
    other = rng.choice([n for n in SQUAREFREE if n != c])
    yield from ((a + 1, b, c), (a, b + 1 or b + 2, c), (a, -b, c), (a, b, other), (a, 2 * b, c))
    yield from ((-a, -b, c), (a, b + Fraction(1, 2) or b + 1, c), (a + Fraction(1, 10**7), b, c))


def _pi(rng: random.Random, q: Fraction) -> str:
    top, bottom = q.numerator, q.denominator
    made = [times(q, r"\pi"), rf"\pi \cdot {tex(abs(q))}" if q > 0 else times(q, r"\pi ")]
    if bottom > 1:
        made += [rf"\frac{{{times(top, chr(92) + 'pi')}}}{{{bottom}}}", rf"{top}\pi/{bottom}"]
        made.append(rf"\pi\left({tex(q)}\right)")
    if 180 % bottom == 0 and abs(q) < 4:
        made.append(rf"{180 * q}^\circ")
    return rng.choice(made)


def _complex(rng: random.Random, number: tuple[Fraction, Fraction]) -> str:
    a, b = number
    d = math.lcm(a.denominator, b.denominator)
    made = [tex(a) + signed(times(b, "i")), times(b, "i") + signed(tex(a))]
    made.append(rf"i\left({tex(b)}{signed(times(-a, 'i'))}\right)")
    if d > 1:
        made.append(rf"\frac{{{a * d}{signed(times(b * d, 'i'))}}}{{{d}}}")
    return rng.choice(made)


def _near_complex(
    rng: random.Random, number: tuple[Fraction, Fraction]
) -> Iterator[tuple[Fraction, Fraction]]:
    a, b = number
    yield from ((a, -b), (-a, b), (b, a), (a + 1, b), (a, 2 * b), (-a, -b), (a + b, b), (2 * a, b))
