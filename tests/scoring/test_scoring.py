"""scoring against exact fractions, enumeration, simulation and the authors' own library."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_at_n import scoring

Rows = list[list[int]]


# Independent computations, in fractions, straight from the printed formulas.


def exact_moments(row: list[int], w: list[Fraction], prior: list[int]) -> tuple[Fraction, Fraction]:
    """Mean and variance of w . pi for one question: first and second Dirichlet moments."""
    nu = [1 + row.count(k) + prior.count(k) for k in range(len(w))]
    total = sum(nu)
    mean = sum((wk * n for wk, n in zip(w, nu, strict=True)), Fraction(0)) / total
    second = Fraction(0)
    for j, k in itertools.product(range(len(w)), repeat=2):
        second += w[j] * w[k] * Fraction(nu[j] * (nu[k] + (j == k)), total * (total + 1))
    return mean, second - mean**2


def exact_bayes(rows: Rows, w: list[Fraction], priors: Rows) -> tuple[float, float]:
    parts = [exact_moments(row, w, prior) for row, prior in zip(rows, priors, strict=True)]
    mu = sum((mean for mean, _ in parts), Fraction(0)) / len(rows)
    variance = sum((var for _, var in parts), Fraction(0)) / len(rows) ** 2
    return float(mu), math.sqrt(variance)


def exact_avg(rows: Rows, w: list[Fraction]) -> tuple[float, float]:
    a, variance = Fraction(0), Fraction(0)
    for row in rows:
        a += sum((w[k] for k in row), Fraction(0)) / len(row)
        scale = Fraction(len(w) + len(row), len(row))
        variance += scale**2 * exact_moments(row, w, [])[1]
    return float(a / len(rows)), math.sqrt(variance / len(rows) ** 2)


@st.composite
def rubrics(draw: st.DrawFn, least: int = 0) -> tuple[Rows, list[Fraction], Rows]:
    """Ragged outcomes of at least ``least`` trials a question, weights, ragged prior outcomes."""
    top = draw(st.integers(0, 4))
    weight = st.integers(-40, 40).map(lambda n: Fraction(n, 8))
    w = draw(st.lists(weight, min_size=top + 1, max_size=top + 1))
    questions = draw(st.integers(1, 5))

    def rows(least: int) -> Rows:
        row = st.lists(st.integers(0, top), min_size=least, max_size=9)
        return draw(st.lists(row, min_size=questions, max_size=questions))

    return rows(least), w, rows(0)


# Bayes@N and avg@N.


@settings(max_examples=200, deadline=None)
@given(rubrics())
def test_bayes_is_exact_for_ragged_trials_and_priors(
    case: tuple[Rows, list[Fraction], Rows],
) -> None:
    rows, w, priors = case
    weights = [float(x) for x in w]
    close(scoring.bayes(ragged(rows), weights, ragged(priors)), exact_bayes(rows, w, priors))
    close(scoring.bayes(ragged(rows), weights), exact_bayes(rows, w, [[]] * len(rows)))


@settings(max_examples=200, deadline=None)
@given(rubrics(least=1))
def test_avg_is_exact_for_ragged_trials(case: tuple[Rows, list[Fraction], Rows]) -> None:
    rows, w, _ = case
    close(scoring.avg(ragged(rows), [float(x) for x in w]), exact_avg(rows, w))


def test_missing_trial_is_not_a_wrong_one() -> None:
    R = np.array([[1, 1, -1], [0, -1, -1]])
    masked = np.ma.masked_equal(R, -1)
    close(scoring.avg(masked)[0], 0.5)
    close(scoring.bayes(masked)[0], (3 / 4 + 1 / 3) / 2)
    assert scoring.bayes(masked)[0] > scoring.bayes(np.where(R < 0, 0, R))[0]
    # A list of masked rows, where np.asarray would drop the masks.
    close(scoring.bayes([masked[0], masked[1]]), scoring.bayes(masked))
    deep = scoring.avg([[masked, masked], (masked, masked)])[0]
    close(deep, np.full((2, 2), scoring.avg(masked)[0]))


# An earlier run as a prior.


def test_down_weighted_prior_keeps_proportions_and_total() -> None:
    R0 = ragged([[1, 1, 1, 0], [2, 0], [], [0] * 9])
    prior = scoring.down_weight(R0, strength=2.5, categories=3)
    totals = np.asarray(prior.values).sum(axis=1)
    close(totals, [2.5, 2.0, 0.0, 2.5])
    close(np.asarray(prior.values)[0], [0.625, 1.875, 0.0])
    # Strong enough, it is the prior run itself.
    R, w = [[1, 2], [0, 1], [1, 1], [2, 2]], [0.0, 0.5, 1.0]
    whole = scoring.down_weight(R0, strength=9, categories=3)
    close(scoring.bayes(R, w, whole), scoring.bayes(R, w, R0))


def test_interval_is_symmetric_until_it_meets_the_bounds() -> None:
    R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    mu, sigma, lo, hi = scoring.bayes_ci(R, confidence=0.9)
    close((lo, hi), (mu - 1.6448536269514722 * sigma, mu + 1.6448536269514722 * sigma))
    assert scoring.bayes_ci(R, bounds=(0.7, 0.8))[2:] == (0.7, 0.8)
    assert scoring.bayes_ci(R, bounds=(2.0, 3.0))[2:] == (2.0, 2.0)
    almost_one = scoring.bayes_ci([[1, 0]], [0.5, 0.5], confidence=math.nextafter(1, 0))
    assert almost_one == (0.5, 0.0, 0.5, 0.5)


# Bad input: one line that says what was found, and where.


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scoring.bayes([[1, 2]]), r"R\[0, 1\].* is 2"),
        (lambda: scoring.bayes([[0, 1], [1, -1]]), r"R\[1, 1\].* is -1: .*masked_less"),
        (lambda: scoring.bayes([[0, np.nan]]), r"R\[0, 1\].* is nan: .*masked_invalid"),
        (lambda: scoring.bayes([[1], [1, 0]]), "not a rectangular"),
        (lambda: scoring.bayes([[1]], [0, np.inf]), "w holds inf"),
        (lambda: scoring.bayes([[1], [0]], None, [[1]]), "R0 has 1 questions, but R has 2"),
        (lambda: scoring.bayes_ci([[1]], confidence=95), "confidence is 95"),
        (lambda: scoring.bayes_ci([[1]], bounds=(1.0, 0.0)), "bounds is"),
        (lambda: scoring.avg(ragged([[1], []])), "question 1 .* has 0 trials"),
        (lambda: scoring.bayes(scoring.Counts([[1, -2]])), r"Counts\[0, 1\] is -2"),
        (lambda: scoring.down_weight([[2]], 1), "R0.* is 2"),
    ],
)
def test_bad_input_is_one_readable_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
