"""Sequential claims against enumeration in fractions, published boundaries, cases made by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest

from scoring.sequential import wealth
from scoring.sequential.batch import Batch
from scoring.sequential.boundaries import boundaries
from scoring.sequential.decisions import Target

Counts = np.ndarray[Any, Any]
Past = list[tuple[Counts, Counts]]

HALF, NINE = Fraction(1, 2), Fraction(9, 10)


def raced(past: Past) -> Batch:
    """The state after these rounds."""
    batch = Batch((1, *past[0][0].shape), Target("best"), 0.05, 0.01, None)
    for successes, attempts in past:
        batch.add(successes[None], attempts[None])
    return batch


def plain(
    past: Past, bets: list[tuple[int, int, Fraction]], stake: int
) -> tuple[Fraction, Fraction]:
    """Wealth as a product in fractions, and the exponent that belongs to it.

    ``bets`` are (model, side, share of the stake). What was guessed and staked before a round is
    that of the product itself, as exact fractions; the products are Python's.
    """
    product, exponent = Fraction(1), Fraction(0)
    for r, (successes, attempts) in enumerate(past):
        before = [
            np.sum([part[i] for part in past[:r]], axis=0) if r else 0 * attempts for i in (0, 1)
        ]
        guessed = wealth.guess(before[0][None], before[1][None])
        staked = Fraction(float(wealth.stakes(guessed, attempts[None])[0, stake]))
        for model, side, share in bets:
            for q in range(attempts.shape[1]):
                n, c = int(attempts[model, q]), int(successes[model, q])
                a, x = Fraction(float(guessed.mean[0, model, q])), side * share * staked
                product *= (1 + x / n * (1 - a)) ** c * (1 - x / n * a) ** (n - c)
                exponent += x * a
    return product, exponent


def leaves(p: list[list[Fraction]], plan: Callable[[Past], Any]) -> list[tuple[Fraction, Past]]:
    """All outcomes of the planned rounds of models with chances p, and how likely they are."""
    done, going = [], [(Fraction(1), [])]
    while going:
        weight, past = going.pop()
        attempts = plan(past)
        if attempts is None:
            done.append((weight, past))
            continue
        attempts = np.array(attempts)
        for flat in itertools.product(*(range(n + 1) for n in attempts.ravel())):
            odds = weight
            for c, n, x in zip(flat, attempts.ravel(), itertools.chain(*p), strict=True):
                odds *= math.comb(int(n), c) * x**c * (1 - x) ** int(n - c)
            if odds:
                going.append((odds, [*past, (np.reshape(flat, attempts.shape), attempts)]))
    return done


def same_each_round(attempts: list[list[int]], rounds: int) -> Callable[[Past], Any]:
    return lambda past: attempts if len(past) < rounds else None


def more_where_it_failed(past: Past) -> Any:
    """Two rounds; a question has two attempts if the last round had no success there."""
    if not past:
        return [[1, 1], [1, 1]]
    return None if len(past) == 2 else (2 - (past[-1][0] > 0)).tolist()


@pytest.mark.parametrize("stake", [4])
@pytest.mark.parametrize(
    ("p", "plan"),
    [
        ([[HALF, HALF], [HALF, HALF]], same_each_round([[1, 1], [1, 1]], 2)),
        ([[NINE, 1 - NINE], [1 - NINE, NINE]], same_each_round([[1, 1], [1, 1]], 2)),
        ([[NINE, HALF], [HALF, NINE]], same_each_round([[2, 1], [1, 1]], 2)),
        ([[HALF, Fraction(1)], [NINE, NINE]], more_where_it_failed),
    ],
)
def test_expected_wealth_under_the_null(p: list[list[Fraction]], plan: Any, stake: int) -> None:
    """At most 1 for the pair at its true difference, and for each mean, whatever was planned."""
    means = [sum(row) / len(row) for row in p]
    rounds_slope = {"pair": means[0] - means[1], "up": means[0], "down": -means[1]}
    bets = {"pair": [(0, 1, 1), (1, -1, 1)], "up": [(0, 1, 1)], "down": [(1, -1, 1)]}
    for name, shift in rounds_slope.items():
        total = mpmath.mpf(0)
        with mpmath.workdps(40):
            for weight, past in leaves(p, plan):
                product, exponent = plain(past, bets[name], stake)
                batch = raced(past)
                slope = Fraction(float(batch.own_slopes[0, 0, stake]))
                kernel = {
                    "pair": batch.pairs[0, 0, 1],
                    "up": batch.up[0, 0],
                    "down": batch.down[0, 1],
                }
                found = float(mpmath.log(mpmath.mpf(product.numerator) / product.denominator))
                assert kernel[name][stake] == pytest.approx(found + float(exponent), abs=1e-10)
                e = exponent - slope * shift
                total += (
                    mpmath.mpf((weight * product).numerator)
                    / (weight * product).denominator
                    * mpmath.exp(mpmath.mpf(e.numerator) / e.denominator)
                )
        assert 0.1 < total <= 1 + 1e-14


def test_expected_wealth_of_leaving_with_rivals_that_change() -> None:
    """Of three models the first is among the best; its rivals follow the outcomes."""
    p = [[HALF, NINE], [NINE, HALF], [Fraction(1, 4), NINE]]
    total, seen = 0.0, set()
    for weight, past in leaves(p, same_each_round([[1, 1]] * 3, 2)):
        gained = raced(past).leaving[0, 0]
        total += float(weight) * float(np.exp(wealth.log_wealth(gained)))
        seen.add(tuple(gained.round(6)))
    assert 0.1 < total <= 1 + 1e-12
    assert len(seen) > 100


def test_boundaries_are_those_published() -> None:
    """Lan and DeMets' for five looks, two-sided .05."""
    found = boundaries(0.025, (1, 2, 3, 4, 5))
    assert found.tolist() == pytest.approx([4.877, 3.357, 2.680, 2.290, 2.031], abs=6e-4)
