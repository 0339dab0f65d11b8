"""Relations, sets, residue classes, matrices and named solutions in different forms."""

import operator
import random
from fractions import Fraction
from typing import Any

import pytest

from bayes_at_n.verifiers import compare


def pieces_of(rng: random.Random) -> list[tuple[int, bool, int, bool]]:
    """Disjoint pieces (low, closed, high, closed) with whole ends; -9 and 9 are infinite."""
    ends = sorted(rng.sample(range(-8, 9), 4))[rng.choice([0, 2]) :]
    first = rng.choice([-9, ends[0]])
    last = rng.choice([9, ends[-1]]) if first > -9 else ends[-1]
    ends = [first, *ends[1:-1], last]
    return [
        (low, low > -9 and rng.random() < 0.5, high, high < 9 and rng.random() < 0.5)
        for low, high in zip(ends[::2], ends[1::2], strict=True)
    ]


def notation(pieces: list[tuple[int, bool, int, bool]], rng: random.Random) -> str:
    pieces = rng.sample(pieces, len(pieces))
    style = rng.choice(["intervals", "brackets", "relations", "builder", "turned"])
    texts = []
    for low, with_low, high, with_high in pieces:
        k = rng.randint(1, 3)
        ends = r"-\infty" if low == -9 else str(low), r"\infty" if high == 9 else str(high)
        if style in ("intervals", "brackets"):
            opens, closes = ("[" if with_low else "("), ("]" if with_high else ")")
            if style == "brackets":
                opens, closes = opens.replace("(", "]"), closes.replace(")", "[")
            texts.append(f"{opens}{ends[0]}{';' if style == 'brackets' else ','}{ends[1]}{closes}")
            continue
        less, more = r"\leq" if with_high else "<", r"\le" if with_low else "<"
        if style == "turned":
            above, below = f"{-k * high} {less} -{k}x", f"{k * low}+1 {more} {k}x+1"
            texts.append(r" \text{ and } ".join([below] * (low > -9) + [above] * (high < 9)))
        else:
            texts.append(f"{low} {more} " * (low > -9) + "x" + f" {less} {high}" * (high < 9))
    if style in ("intervals", "brackets"):
        return rng.choice(["", r"x\in "]) + r" \cup ".join(texts)
    joined = r" \text{ or } ".join(texts)
    return rf"\{{x \mid {joined}\}}" if style == "builder" else joined


def members(pieces: list[tuple[int, bool, int, bool]]) -> list[bool]:
    def inside(x: float) -> bool:
        return any(
            (low < x or (low == x and with_low)) and (x < high or (x == high and with_high))
            for low, with_low, high, with_high in pieces
        )

    return [inside(x / 2) for x in range(-17, 18)]


def set_pair(rng: random.Random) -> tuple[str, str, bool]:
    pieces = pieces_of(rng)
    low, with_low, high, with_high = pieces[0]
    changed = (low, with_low != (low > -9), high, with_high == (low > -9))
    other = rng.choice([pieces, pieces_of(rng), [changed, *pieces[1:]]])
    return notation(pieces, rng), notation(other, rng), members(pieces) == members(other)


def residue_pair(rng: random.Random) -> tuple[str, str, bool]:
    texts, sets = [], []
    for _ in range(2):
        modulus = rng.choice([2, 3, 4, 6, 8, 12])
        residues = {rng.randint(-9, 9) for _ in range(rng.randint(1, 3))}
        forms = [
            rf"x \equiv {', '.join(map(str, residues))} \pmod{{{modulus}}}",
            r" \text{ or } ".join(rf"x\equiv {r} \pmod {modulus}" for r in residues),
            r", ".join(f"x = {modulus}k{r:+d}" for r in residues) + r", k \in \mathbb{Z}",
        ]
        texts.append(rng.choice(forms))
        sets.append({n for n in range(24) if any((n - r) % modulus == 0 for r in residues)})
    return texts[0], texts[1], sets[0] == sets[1]


HOLDS = {"<": operator.lt, ">": operator.gt, "=": operator.eq, r"\le": operator.le}


def half_plane_pair(rng: random.Random) -> tuple[str, str, bool]:
    k, signs = rng.choice([-2, -1, 2, 3]), rng.choices([*HOLDS], k=2)
    line = [rng.randint(1, 4), rng.choice([-3, -2, 1, 3]), rng.randint(-5, 5)]
    other = [k * x + rng.choice([0, 0, 0, 1]) for x in line]
    other[1] = other[1] or 1
    on = [(x, Fraction(c - a * x, b)) for a, b, c in (line, other) for x in range(3)]
    near = [(x, y + d) for x, y in on for d in (0, Fraction(1, 99), Fraction(-1, 99))]
    sides = [
        [HOLDS[sign](a * x + b * y, c) for x, y in near]
        for sign, (a, b, c) in zip(signs, (line, other), strict=True)
    ]
    (a, b, c), (d, e, f) = line, other
    answer = f"{d}x {signs[1]} {f}-({e})y"
    return f"{a}x+({b})y {signs[0]} {c}", answer, sides[0] == sides[1]


@pytest.mark.parametrize("make", [set_pair, residue_pair, half_plane_pair])
@pytest.mark.parametrize("count", [120, pytest.param(4_000, marks=pytest.mark.soak)])
def test_relations_agree_with_their_members(make: Any, count: int) -> None:
    for seed in range(count):
        gold, answer, same = make(random.Random(seed))
        assert (compare(gold, answer) or False) is same, (gold, answer)
