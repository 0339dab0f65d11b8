r"""Right and wrong answers by the thousand: right and wrong by construction, seeded.

A shape makes a gold answer, spellings of the same thing, and near misses of it. What makes a
near miss wrong is proved by exact arithmetic where it is made (fractions, integers, the three
numbers of a surd), never by a grader; sympy is asked only to print.

    >>> right, wrong = pairs(3, seed=1)
    >>> len(right), len(wrong)
    (3, 3)
"""

import math
import random
from collections.abc import Callable
from fractions import Fraction
from typing import NamedTuple

import sympy

from benchmarks.made_values import Scalar, fraction, integer, scalar, signed, surd, tex, times


class Made(NamedTuple):
    """A gold answer, some that equal it and some that do not."""

    gold: str
    right: list[str]
    wrong: list[str]


Shape = Callable[[random.Random], Made]


def pairs(count: int, seed: int) -> tuple[list[tuple[str, str, str]], list[tuple[str, str, str]]]:
    """`count` rewritings and `count` near misses, no two alike: (kind, gold, answer)."""
    rng = random.Random(seed)
    right, wrong = dict[tuple[str, str], str](), dict[tuple[str, str], str]()
    turn = 0
    while len(right) < count or len(wrong) < count:
        shape = SHAPES[turn % len(SHAPES)]
        made = shape(rng)
        for found, answers in ((right, made.right), (wrong, made.wrong)):
            answer = rng.choice(answers)
            if answer != made.gold and len(found) < count:
                found[(made.gold, _dressed(rng, answer))] = shape.__name__
        turn += 1
    return (
        [(kind, gold, answer) for (gold, answer), kind in right.items()],
        [(kind, gold, answer) for (gold, answer), kind in wrong.items()],
    )


def _dressed(rng: random.Random, answer: str) -> str:
    """Text around an answer that changes nothing."""
    clothes = [r"\displaystyle {}", r"{}\,", "${}$", r" {} ", r"\,{}", r"{}\;"]
    if rng.random() < 0.8:
        return answer
    return rng.choice(clothes).replace("{}", answer)


def number(rng: random.Random) -> Made:
    """One number, in two spellings."""
    n = scalar(rng)
    plain = n.text(rng)
    label = rng.choice(["", "", "x = ", "S=", r"a_1 = "])
    return Made(plain, [label + n.text(rng)], [label + n.near_text(rng)])


def thousands(rng: random.Random) -> Made:
    """Groups of three digits; powers of ten."""
    n, k = rng.randint(1001, 10**9), rng.randint(3, 8)
    if rng.random() < 0.5:
        others = [f"{n + 1:,}", f"{n:,}0", f"{n:,}".replace(",", ".", 1) + "5", str(n - 1)]
        return Made(str(n), [f"{n:,}", f"{n:,}".replace(",", r"\,")], others)
    m = rng.randint(11, 99)
    here = rf"{m / 10} \times 10^{{{k}}}"
    wrong = [str(m * 10**k), str(m * 10 ** (k - 2)), str((m + 1) * 10 ** (k - 1))]
    return Made(here, [str(m * 10 ** (k - 1)), rf"{m / 10}\cdot 10^{k}"], wrong)


def decimal(rng: random.Random) -> Made:
    """An irrational root to ten digits or more, rounded; cut or off by one in its last digit."""
    n, k = rng.choice([m for m in range(2, 400) if math.isqrt(m) ** 2 != m]), rng.randint(10, 18)
    digits = k + rng.randint(0, 1)
    near = (math.isqrt(4 * n * 10 ** (2 * digits)) + 1) // 2  # sqrt(n) 10^digits, rounded
    gold = rf"\sqrt{{{n}}}"

    def text(scaled: int) -> str:
        whole, rest = divmod(scaled, 10**digits)
        return f"{whole}.{rest:0{digits}d}"

    wrong = [text(near + 1), text(near - 1), text(near)[: rng.randint(3, 7)]]
    return Made(gold, [text(near)], wrong)


def items(rng: random.Random) -> Made:
    """Tuples, sets, and lists in which an item may come twice."""
    made = [scalar(rng) for _ in range(rng.randint(2, 4))]
    while len({repr(one.value) for one in made}) < len(made):
        made = [scalar(rng) for _ in made]
    left, right = rng.choice([("(", ")"), (r"\{", r"\}"), ("", "")])
    texts = [one.text(rng) for one in made]
    if not left and rng.random() < 0.3:
        made.append(made[0])

    def joined(parts: list[str]) -> str:
        if left and rng.random() < 0.3:
            return rf"\left{left}{', '.join(parts)}\right{right}"
        return left + rng.choice([",", ", "]).join(parts) + right

    values = [one.value for one in made]
    order = made if left == "(" else rng.sample(made, len(made))
    spelt = [one.text(rng) for one in order]
    i = rng.randrange(len(order))
    changed = [_another(rng, one, made) if j == i else one.text(rng) for j, one in enumerate(order)]
    more = next(n for n in iter(lambda: integer(rng), None) if n.value not in values)
    wrong = [joined(changed), joined([*spelt, more.text(rng)])]
    if len(spelt) > 2:
        wrong.append(joined(spelt[:i] + spelt[i + 1 :]))
    if left == "(":
        wrong.append(joined([spelt[1], spelt[0], *spelt[2:]]))
    texts = [one.text(rng) for one in made]
    return Made(joined(texts), [joined(spelt)], wrong)


def _another(rng: random.Random, one: Scalar, all_of_them: list[Scalar]) -> str:
    """A near miss of an item that no other item is."""
    taken = {repr(other.value) for other in all_of_them}
    values = [v for v in one.near(rng, one.value) if repr(v) not in taken and v != one.value]
    return one.spell(rng, rng.choice(values))


def interval(rng: random.Random) -> Made:
    """An interval or two, as brackets or as inequalities."""
    a = Fraction(rng.randint(-20, 10), rng.choice([1, 1, 2, 3]))
    b = a + Fraction(rng.randint(1, 20), rng.choice([1, 1, 2, 5]))
    closed = rng.random() < 0.5, rng.random() < 0.5

    def brackets(low: Fraction, high: Fraction, ends: tuple[bool, bool]) -> str:
        signs = "[" if ends[0] else "(", "]" if ends[1] else ")"
        if rng.random() < 0.3:
            signs = r"\left" + signs[0], r"\right" + signs[1]
        return f"{signs[0]}{fraction_text(low)},{fraction_text(high)}{signs[1]}"

    def fraction_text(q: Fraction) -> str:
        return rng.choice(
            [tex(q), f"{q.numerator}/{q.denominator}" if q.denominator > 1 else tex(q)]
        )

    flipped = rng.choice([(not closed[0], closed[1]), (closed[0], not closed[1])])
    signs = [r"\le" if end else "<" for end in closed]
    range_of_x = f"{tex(a)} {signs[0]} x {signs[1]} {tex(b)}"
    right = [brackets(a, b, closed), range_of_x, rf"x\in {brackets(a, b, closed)}"]
    wrong = [brackets(a, b, flipped), brackets(a, b + 1, closed), brackets(a - 1, b, closed)]
    if (-b, -a) != (a, b):
        wrong.append(brackets(-b, -a, closed))
    if rng.random() < 0.4:
        more = brackets(b + 2, b + 3, closed)
        gold = brackets(a, b, closed) + r"\cup " + more
        swapped = [more + r" \cup " + text for text in right if "x" not in text]
        return Made(gold, swapped, [*(text + r"\cup" + more for text in wrong), more])
    return Made(brackets(a, b, closed), right, wrong)


def matrix(rng: random.Random) -> Made:
    """Matrices of numbers."""
    rows, columns = rng.randint(1, 3), rng.randint(1, 3)
    rows += rows * columns == 1
    cells = [[rng.choice([integer, fraction])(rng) for _ in range(columns)] for _ in range(rows)]

    def text(parts: list[list[str]], kind: str = "pmatrix") -> str:
        space = rng.choice(["", " "])
        body = (rf"{space}\\{space}").join(f"{space}&{space}".join(row) for row in parts)
        return rf"\begin{{{kind}}}{body}\end{{{kind}}}"

    def spelt() -> list[list[str]]:
        return [[tex(cell.value) if rng.random() < 0.7 else cell.text(rng) for cell in row]
                for row in cells]  # fmt: skip

    off = spelt()
    i, j = rng.randrange(rows), rng.randrange(columns)
    off[i][j] = cells[i][j].near_text(rng)
    wrong = [text(off), text([*spelt(), ["0"] * columns])]
    values = [[cell.value for cell in row] for row in cells]
    if [list(column) for column in zip(*values, strict=True)] != values:
        wrong.append(text([list(column) for column in zip(*spelt(), strict=True)]))
    return Made(text(spelt()), [text(spelt(), "bmatrix"), text(spelt())], wrong)


def polynomial(rng: random.Random) -> Made:
    """Two products of linear factors, multiplied out or not."""
    x, y = sympy.symbols("x y")
    factors = [rng.choice([x, x, y]) * rng.randint(1, 4) + rng.randint(-6, 6) for _ in range(3)]
    product = sympy.Mul(*factors, evaluate=False)
    spread = sympy.expand(sympy.Mul(*factors))
    other = spread + rng.choice([-1, 1, 2]) * rng.choice([sympy.Integer(1), x, x * y, x**2])
    negative = sympy.expand(-spread)  # never zero: a product of non-zero factors
    label = rng.choice(["", "", "", "f(x,y)="])
    gold = label + _latex(rng, rng.choice([product, spread]))
    right = [label + _latex(rng, form) for form in (product, spread, sympy.factor(spread))]
    return Made(gold, right, [label + _latex(rng, form) for form in (other, negative)])


def _latex(rng: random.Random, form: sympy.Expr) -> str:
    settings = {"order": rng.choice(["lex", "grlex", "rev-lex"])}
    return str(sympy.latex(form, mul_symbol=rng.choice([None, "dot", "times"]), **settings))


def identity(rng: random.Random) -> Made:
    """Functions: identities with numbers in them; a near miss has another number."""
    a, b, k = rng.randint(2, 9), rng.randint(2, 9), rng.randint(2, 5)
    c = b + a * b  # differs from a, b and ab
    return rng.choice([
        Made(rf"\sin^2({k}x)", [rf"1-\cos^2({k}x)", rf"\frac{{1-\cos({2 * k}x)}}{{2}}"],
             [rf"1-\cos^2({k + 1}x)", rf"\frac{{1-\cos({k}x)}}{{2}}", rf"1+\cos^2({k}x)"]),
        Made(rf"\log_{{{a}}} {a * b}",
             [rf"1+\log_{{{a}}} {b}", rf"\frac{{\ln {a * b}}}{{\ln {a}}}"],
             [rf"1+\log_{{{a}}} {c}", rf"1-\log_{{{a}}} {b}", rf"\frac{{\ln {c}}}{{\ln {a}}}"]),
        Made(rf"\ln {a * b}", [rf"\ln {a}+\ln {b}", rf"\ln({b})+\ln({a})"],
             [rf"\ln {a}+\ln {c}", rf"\ln {c}", rf"\ln {a}\cdot\ln {c}"]),
        Made(rf"e^{{{a}x}}", [rf"e^{{{a - 1}x}}\cdot e^x", rf"(e^x)^{{{a}}}"],
             [rf"e^{{{a + 1}x}}", rf"e^{{{a}x+1}}", rf"e^{{{a - 1}x}}+e^x"]),
        Made(rf"{a}^{{{k}}} x", [rf"{a**k}x", rf"x\cdot {a**k}"],
             [rf"{a ** (k + 1)}x", f"{a**k}x+1"]),
    ])  # fmt: skip


def counted(rng: random.Random) -> Made:
    """Sums, products, binomials, factorials, remainders: against their values."""
    n, k = rng.randint(5, 14), rng.randint(2, 4)
    q = rng.randint(2, 9)
    text, value = rng.choice([
        (rf"\sum_{{k=1}}^{{{n}}} k", n * (n + 1) // 2),
        (rf"\sum_{{i=0}}^{{{n}}} i^2", n * (n + 1) * (2 * n + 1) // 6),
        (rf"\sum_{{j=1}}^{{{n}}} (2j-1)", n * n),
        (rf"\prod_{{k=1}}^{{{k + 3}}} k", math.factorial(k + 3)),
        (rf"\sum_{{n=0}}^{{\infty}} \frac{{1}}{{{q}^n}}", Fraction(q, q - 1)),
        (rf"\binom{{{n}}}{{{k}}}", math.comb(n, k)),
        (rf"{{{n} \choose {k}}}", math.comb(n, k)),
        (rf"\frac{{{n}!}}{{{n - k}!}}", math.perm(n, k)),
        (f"{n}!", math.factorial(n)),
        (rf"{n * n + k} \bmod {n}", k),
        (rf"\gcd({n * q}, {(n + 1) * q})", q),
        (rf"\operatorname{{lcm}}({n}, {n + 1})", n * (n + 1)),
        (rf"\lfloor \frac{{{n * q + 1}}}{{{n}}} \rfloor", q),
        (rf"\lceil \frac{{{n * q - 1}}}{{{n}}} \rceil", q),
        (rf"{k}^{{{n}}} - 1", k**n - 1),
    ])  # fmt: skip
    made = Scalar(Fraction(value), fraction(rng).spell, fraction(rng).near)
    plain, near = tex(value), made.near_text(rng)
    if rng.random() < 0.5:
        return Made(
            plain, [text, f"x = {text}", f"{text} = {plain}"], [f"{text} + 1", f"2 \\cdot {text}"]
        )
    return Made(text, [plain, f"{text} = {plain}"], [near, str(int(value) + 1 + (value == 0))])


def line(rng: random.Random) -> Made:
    """The equation of a line, moved and scaled."""
    a, b, c = rng.randint(1, 9), rng.choice([-1, 1]) * rng.randint(1, 9), rng.randint(-9, 9)

    def text(a: int, b: int, c: int) -> str:
        left = times(a, "x") + signed(times(b, "y"))
        return rng.choice([f"{left}={c}", f"{left}{signed(str(-c))}=0" if c else f"{left}=0"])

    def solved(a: int, b: int, c: int) -> str:
        slope = times(Fraction(-a, b), "x")
        return f"y={slope}{signed(tex(Fraction(c, b)))}" if c else f"y={slope}"

    k = rng.choice([-3, -1, 2, 5])
    right = [text(k * a, k * b, k * c), solved(a, b, c), text(a, b, c)]
    others = [(a + 1, b, c), (a, -b, c), (a, b, c + 1), (a, b, -c), (-a, b, c)]
    wrong = [t for t in others if (t[0] * b, t[2] * b, t[2] * a) != (a * t[1], c * t[1], c * t[0])]
    return Made(text(a, b, c), right, [rng.choice([text, solved])(*t) for t in wrong])


def notation(rng: random.Random) -> Made:
    """A residue class, digits in a base, an angle, a unit."""
    m, base, angle = rng.randint(3, 20), rng.randint(3, 9), rng.randint(1, 359)
    r, n = rng.randrange(m), rng.randint(base, 400)

    def in_base(v: int) -> str:
        return (in_base(v // base) if v >= base else "") + str(v % base)

    def of_pi(degrees: int) -> str:
        return times(Fraction(degrees, 180), r"\pi")

    unit, same, other = rng.choice([
        (r"\text{ cm}", r"\,\mathrm{cm}", r"\text{ m}"),
        (r"\text{ kg}", r"\text{ kg}", r"\text{ lb}"),
        (r"\text{ hours}", r" \text{ hours}", r"\text{ minutes}"),
        (r"\text{ cm}^2", r"\ \text{cm}^2", r"\text{ cm}^3"),
    ])  # fmt: skip
    return rng.choice([
        Made(rf"x\equiv {r} \pmod{{{m}}}",
             [rf"x\equiv {r + m} \pmod{{{m}}}", rf"x \equiv {r} \ (\text{{mod }} {m})"],
             [rf"x\equiv {r + 1} \pmod{{{m}}}", rf"x\equiv {r} \pmod{{{m + 1}}}"]),
        Made(f"{in_base(n)}_{base}", [str(n), f"{in_base(n)}_{{{base}}}"],
             [str(n + 1), f"{in_base(n)}_{{{base + 1}}}", f"{in_base(n + 1)}_{{{base}}}"]),
        Made(rf"{angle}^\circ",
             [rf"{angle}\text{{ degrees}}", of_pi(angle), rf"{angle}^{{\circ}}"],
             [rf"{angle + 1}^\circ", of_pi(angle + 1), rf"{angle}\text{{ radians}}"]),
        Made(f"{n}{unit}", [f"{n}{same}", str(n)], [f"{n}{other}", f"{n + 1}{unit}"]),
    ])  # fmt: skip


def plus_minus(rng: random.Random) -> Made:
    """Two roots at once, or one by one."""
    a, b, c = surd(rng).value
    root = times(abs(b), rf"\sqrt{{{c}}}")
    high, low = f"{tex(a)}+{root}", f"{tex(a)}-{root}"
    right = [f"{high}, {low}", f"{low}, {high}", rf"{low} \text{{ and }} {high}"]
    wrong = [high, low, f"{high}, {high}", rf"{tex(a + 1)}\pm {root}", rf"{tex(a)}\pm 2{root}"]
    return Made(rf"{tex(a)}\pm {root}", right, wrong)


SHAPES: list[Shape] = [
    number, number, number, items, items, interval, matrix, polynomial, polynomial, identity,
    counted, counted, line, notation, plus_minus, decimal, thousands,
]  # fmt: skip
