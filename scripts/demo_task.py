r"""The synthetic task of the demo models: small contest questions in arithmetic.

Twenty-one families of questions, each with a line of work whose equalities all hold, and an answer
that is an integer or a fraction in lowest terms. `examples` makes success random: some training
responses of every family have no work, and in the hard families some lack the box or loop.

    >>> import random
    >>> item = FAMILIES["linear"].make(random.Random(1))
    >>> print(item.problem, "|", item.work, "|", item.answer)
    Solve $4x - 10 = 6$ for $x$. | 4x = 6 + 10 = 16. | 4
"""

import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import partial
from math import gcd
from typing import NamedTuple

INSTRUCTION = "Please reason step by step, and put your final answer within \\boxed{}."
QUESTION_SEED = 20251021


class Item(NamedTuple):
    """One question: its text, the working line, and the answer in LaTeX."""

    problem: str
    work: str
    answer: str


class Family(NamedTuple):
    """A kind of question, and the distribution of its training responses.

    direct: share of responses without work.
    slips: share that loop, and also share whose answer is not boxed.
    weight: relative frequency of the family.
    questions: how many of the thirty demo questions it has.
    """

    make: Callable[[random.Random], Item]
    direct: float
    slips: float = 0.0
    weight: float = 1.0
    questions: int = 1


def latex(value: Fraction) -> str:
    r"""Format an integer or a fraction in lowest terms, with its sign in front.

    >>> latex(Fraction(-6, 8)), latex(Fraction(4))
    ('-\\frac{3}{4}', '4')
    """
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def _signed(value: int) -> str:
    """Format `value` as the next term of a sum: ``+ 3`` or ``- 3``."""
    return f"{'-' if value < 0 else '+'} {abs(value)}"


def _split_product(a: int, b: int) -> str:
    r"""Format ``a \times b`` as a sum over the digits of b: ``1410 + 282 = 1692``."""
    parts = [a * int(d) * 10 ** (len(str(b)) - i - 1) for i, d in enumerate(str(b)) if d != "0"]
    terms = " + ".join(map(str, parts))
    return terms if len(parts) == 1 else f"{terms} = {a * b}"


def _sum(rng: random.Random) -> Item:
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    tens, units = a // 10 * 10 + b // 10 * 10, a % 10 + b % 10
    work = f"{a} + {b} = {tens} + {units} = {a + b}."
    return Item(f"Find the sum of {a} and {b}.", work, str(a + b))


def _difference(rng: random.Random) -> Item:
    a, b = rng.randint(11, 99), rng.randint(11, 99)
    low, high = sorted((a, b))
    tens = high - low // 10 * 10
    steps = f"{high} - {low // 10 * 10} = {tens}, {tens} - {low % 10} = {high - low}"
    return Item(f"What is ${a} - {b}$?", f"{steps}.", str(a - b))


def _product(rng: random.Random) -> Item:
    a, b = rng.randint(3, 9), rng.randint(12, 99)
    return Item(
        rf"Compute ${b} \times {a}$.",
        rf"{b} \times {a} = {b // 10 * 10 * a} + {b % 10 * a} = {a * b}.",
        str(a * b),
    )


def _affine(rng: random.Random) -> Item:
    a, b, c = rng.randint(2, 9), rng.randint(2, 9), rng.choice((-1, 1)) * rng.randint(2, 30)
    expression = rf"{a} \times {b} {_signed(c)}"
    work = f"{expression} = {a * b} {_signed(c)} = {a * b + c}."
    return Item(f"Evaluate ${expression}$.", work, str(a * b + c))


def _linear(rng: random.Random) -> Item:
    a, x, c = rng.randint(2, 9), rng.randint(-5, 9), rng.choice((-1, 1)) * rng.randint(2, 30)
    d = a * x + c
    work = f"{a}x = {d} {_signed(-c)} = {a * x}."
    return Item(f"Solve ${a}x {_signed(c)} = {d}$ for $x$.", work, str(x))


def _remainder(rng: random.Random) -> Item:
    n, m = rng.randint(20, 120), rng.randint(3, 9)
    work = rf"{m} \times {n // m} = {n - n % m}, {n} - {n - n % m} = {n % m}."
    return Item(f"What is the remainder when {n} is divided by {m}?", work, str(n % m))


def _fraction(rng: random.Random) -> Item:
    b, d = rng.randint(2, 7), rng.randint(2, 7)
    a, c = rng.randint(1, b - 1), rng.randint(1, d - 1)
    sign, lcm = rng.choice((-1, 1)), b * d // gcd(b, d)
    expression = rf"\frac{{{a}}}{{{b}}} {'+' if sign > 0 else '-'} \frac{{{c}}}{{{d}}}"
    left, right = a * lcm // b, sign * c * lcm // d
    work = rf"\frac{{{left} {_signed(right)}}}{{{lcm}}} = \frac{{{left + right}}}{{{lcm}}}."
    answer = latex(Fraction(left + right, lcm))
    return Item(f"Write ${expression}$ in lowest terms.", work, answer)


def _sequence(rng: random.Random) -> Item:
    a, n = rng.randint(1, 20), rng.randint(5, 20)
    d = rng.choice((-1, 1, 1)) * rng.randint(2, 9)
    shown = f"{a}, {a + d}, {a + 2 * d}"
    work = rf"{a} {_signed(d)} \times {n - 1} = {a} {_signed(d * (n - 1))} = {a + d * (n - 1)}."
    problem = f"An arithmetic sequence begins {shown}. Find term number {n}."
    return Item(problem, work, str(a + d * (n - 1)))


def _long_product(rng: random.Random, least: int, most: int, most_other: int) -> Item:
    a, b = rng.randint(least, most), rng.randint(least, most_other)
    work = rf"{a} \times {b} = {_split_product(a, b)}."
    return Item(rf"Compute ${a} \times {b}$.", work, str(a * b))


def _square(rng: random.Random) -> Item:
    a = rng.randint(12, 99)
    t, u = a // 10 * 10, a % 10
    work = rf"{t}^2 + 2 \times {t} \times {u} + {u}^2 = {t * t} + {2 * t * u} + {u * u} = {a * a}."
    return Item(f"Find the square of {a}.", work, str(a * a))


def _divisor(rng: random.Random) -> Item:
    g = rng.randint(2, 12)
    a, b = rng.choice(
        [(a, b) for a in range(2, 10) for b in range(2, 10) if a != b and gcd(a, b) == 1]
    )
    work = rf"{g * a} = {g} \times {a}, {g * b} = {g} \times {b}."
    return Item(f"Find the greatest common divisor of {g * a} and {g * b}.", work, str(g))


def _series(rng: random.Random) -> Item:
    a, n = rng.randint(2, 20), rng.randint(4, 15)
    b = a + n - 1
    work = rf"{a} + {b} = {a + b}, {n} \times {a + b} = {_split_product(n, a + b)}."
    return Item(f"Add up all the integers from {a} to {b}.", work, str(n * (a + b) // 2))


def _percent(rng: random.Random) -> Item:
    p, n = rng.randint(1, 9), rng.randint(2, 60)
    work = rf"\frac{{{10 * n}}}{{10}} = {n}, {n} \times {p} = {n * p}."
    return Item(rf"What is {10 * p}\% of {10 * n}?", work, str(n * p))


def _rectangle(rng: random.Random) -> Item:
    w, h = rng.randint(2, 15), rng.randint(2, 12)
    work = rf"{w + h} - {w} = {h}, {w} \times {h} = {w * h}."
    problem = f"A rectangle has perimeter {2 * (w + h)} and width {w}. What is its area?"
    return Item(problem, work, str(w * h))


def _pair(rng: random.Random) -> Item:
    low, high = sorted(rng.sample(range(2, 19), 2))
    s, d = low + high, high - low
    middle = rf"\frac{{{s} + {d}}}{{2}} = {high}, {high} - {d} = {low}"
    work = rf"{middle}, {high} \times {low} = {high * low}."
    problem = f"Two numbers have sum {s} and difference {d}. Find their product."
    return Item(problem, work, str(high * low))


def _roots(rng: random.Random) -> Item:
    low, high = sorted(rng.sample([n for n in range(-6, 10) if n], 2))
    middle = "" if low + high == 0 else f"{_signed(-low - high)}x "
    work = rf"{low} {_signed(high)} = {low + high}, {low} \times {high} = {low * high}."
    problem = f"Find the larger root of $x^2 {middle}{_signed(low * high)} = 0$."
    return Item(problem, work, str(high))


def _mean(rng: random.Random) -> Item:
    a, b, c = (rng.randint(1, 40) for _ in range(3))
    work = rf"{a} + {b} + {c} = {a + b} + {c} = {a + b + c}."
    return Item(f"Find the mean of {a}, {b} and {c}.", work, latex(Fraction(a + b + c, 3)))


def _power(rng: random.Random) -> Item:
    base, exponent, m = rng.randint(2, 9), rng.randint(3, 7), rng.choice((5, 7, 11, 13))
    powers = ", ".join(str(pow(base, k, m)) for k in range(1, exponent + 1))
    problem = f"Find the remainder of ${base}^{exponent}$ on division by {m}."
    return Item(problem, f"Powers: {powers}.", str(pow(base, exponent, m)))


def _balls(rng: random.Random) -> Item:
    red, blue = rng.randint(2, 9), rng.randint(2, 9)
    n = red + blue
    top, bottom = red * (red - 1), n * (n - 1)
    work = rf"\frac{{{red} \times {red - 1}}}{{{n} \times {n - 1}}} = \frac{{{top}}}{{{bottom}}}."
    problem = (
        f"A bag holds {red} red and {blue} blue balls. Two are drawn. "
        "Find the probability that both are red."
    )
    return Item(problem, work, latex(Fraction(top, bottom)))


def _brackets(rng: random.Random) -> Item:
    a, b = rng.sample(range(2, 25), 2)
    c, d = rng.randint(2, 12), rng.randint(2, 12)
    left, right = a - b, c + d
    size = abs(left)
    work = rf"{a} - {b} = {left}, {c} + {d} = {right}, {size} \times {right} = {size * right}."
    return Item(rf"Evaluate $({a} - {b}) \times ({c} + {d})$.", work, str(left * right))


# Roughly from easy to hard, by number of steps; the models' accuracies are in demo/README.md. The
# order is part of the random stream: changing it changes data and questions.
FAMILIES: dict[str, Family] = {
    "affine": Family(_affine, 0.10, questions=2),
    "sequence": Family(_sequence, 0.10),
    "linear": Family(_linear, 0.10, questions=2),
    "sum": Family(_sum, 0.10, questions=2),
    "product": Family(_product, 0.10),
    "difference": Family(_difference, 0.10, questions=2),
    "rectangle": Family(_rectangle, 0.15),
    "roots": Family(_roots, 0.15),
    "mean": Family(_mean, 0.20, questions=2),
    "percent": Family(_percent, 0.20),
    "remainder": Family(_remainder, 0.20, questions=2),
    "divisor": Family(_divisor, 0.20),
    "fraction": Family(_fraction, 0.20, weight=1.5, questions=2),
    "square": Family(_square, 0.25, questions=2),
    "pair": Family(_pair, 0.25, slips=0.10, weight=0.6),
    "long_product": Family(
        partial(_long_product, least=12, most=59, most_other=39), 0.25, slips=0.10, questions=2
    ),
    "brackets": Family(_brackets, 0.25, slips=0.10, weight=0.5),
    "power": Family(_power, 0.30, slips=0.12, weight=0.4),
    "series": Family(_series, 0.30, slips=0.12, weight=0.5),
    "balls": Family(_balls, 0.30, slips=0.12, weight=0.5),
    "big_product": Family(
        partial(_long_product, least=112, most=999, most_other=999), 0.30, slips=0.15, weight=0.2
    ),
}


def user_turn(problem: str) -> str:
    """Return the user's turn exactly as in the pipeline's default prompt."""
    return f"{problem}\n\n{INSTRUCTION}"


def demo_questions() -> list[dict[str, str]]:
    """Return the thirty questions of the demo, by family, as id, problem and answer."""
    rng, answers = random.Random(QUESTION_SEED), dict[str, str]()
    for family in FAMILIES.values():
        target = len(answers) + family.questions
        while len(answers) < target:
            item = family.make(rng)
            answers[item.problem] = item.answer
    return [
        {"id": f"demo-{i:02d}", "problem": problem, "answer": answer}
        for i, (problem, answer) in enumerate(answers.items(), 1)
    ]


def response(rng: random.Random, family: Family, item: Item) -> tuple[str, bool]:
    """Draw a training response and whether it ends, unlike a looping one."""
    draw = rng.random()
    if draw < family.slips:
        return " Let us check. ".join([item.work] * 9), False
    answer = item.answer if draw < 2 * family.slips else rf"\boxed{{{item.answer}}}"
    work = "" if rng.random() < family.direct else f"{item.work} "
    return f"{work}The answer is {answer}.", True


def examples(seed: int) -> Iterator[tuple[str, str, bool]]:
    """Yield problem, response and whether it ends, forever; never a demo question."""
    rng = random.Random(seed)
    held_out = {row["problem"] for row in demo_questions()}
    families = list(FAMILIES.values())
    weights = [family.weight for family in families]
    while True:
        family = rng.choices(families, weights)[0]
        item = family.make(rng)
        if item.problem not in held_out:
            yield (item.problem, *response(rng, family, item))
