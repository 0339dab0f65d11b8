"""scoring against exact fractions, enumeration, simulation and the authors' own library."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_at_n import scoring

Rows = list[list[int]]
BINARY = [Fraction(0), Fraction(1)]
# The two worked matrices in the documentation of the authors' library.
DOC_BINARY = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
DOC_RUBRIC = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
DOC_WEIGHTS = [0.0, 0.5, 1.0]


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


def test_documented_examples() -> None:
    def rounded(values: tuple[float, ...]) -> tuple[float, ...]:
        return tuple(round(x, 6) for x in values)

    with_prior = scoring.bayes(DOC_RUBRIC, DOC_WEIGHTS, [[0, 2], [1, 2]])
    assert rounded(with_prior) == (0.575, 0.084275)
    assert rounded(scoring.bayes(DOC_RUBRIC, DOC_WEIGHTS)) == (0.5625, 0.091998)
    assert rounded(scoring.avg(DOC_BINARY)) == (0.7, 0.165831)
    assert rounded(scoring.avg(DOC_RUBRIC, DOC_WEIGHTS)) == (0.6, 0.147196)
    mu, sigma, lo, hi = scoring.bayes_ci(DOC_BINARY, bounds=(0.0, 1.0))
    assert rounded((mu, sigma)) == (0.642857, 0.118451)
    assert (round(lo, 4), round(hi, 4)) == (0.4107, 0.875)
    *_, lo, hi = scoring.avg_ci(DOC_RUBRIC, DOC_WEIGHTS)
    assert (round(lo, 4), round(hi, 4)) == (0.3115, 0.8885)
    assert scoring.avg_ci(DOC_BINARY, bounds=(0.0, 1.0))[3] == 1.0
    mu, sigma, lo, hi = scoring.pass_at_k_ci(DOC_BINARY, 2)
    assert rounded((mu, sigma)) == (0.839286, 0.097263)
    assert (round(lo, 4), hi) == (0.6487, 1.0)
    assert round(scoring.pass_at_k(DOC_BINARY, 2), 6) == 0.95


@pytest.mark.parametrize(("top", "N"), [(1, 1), (1, 80), (2, 5), (4, 33)])
def test_equations_19_and_20_for_equal_trials(top: int, N: int) -> None:
    rng = np.random.default_rng(top * 100 + N)
    R, w = rng.integers(0, top + 1, size=(30, N)), rng.normal(size=top + 1)
    mu, sigma = scoring.bayes(R, w)
    a, sigma_a = scoring.avg(R, w)
    T = 1 + top + N
    close(mu, w.sum() / T + N / T * a)
    close(sigma_a, T / N * sigma)


@settings(max_examples=100, deadline=None)
@given(rubrics(least=1), st.randoms(use_true_random=False))
def test_order_of_trials_and_questions_and_affine_weights(
    case: tuple[Rows, list[Fraction], Rows], random: Any
) -> None:
    rows, fractions, _ = case
    w = np.array([float(x) for x in fractions])
    matrix = ragged(rows)
    mu, sigma = scoring.bayes(matrix, w)
    shuffled = [random.sample(row, len(row)) for row in rows]
    random.shuffle(shuffled)
    # Where the missing trials stand in the row must not matter either.
    turned = ragged(shuffled, width=12)[:, ::-1]
    close(scoring.bayes(turned, w), (mu, sigma))
    close(scoring.avg(turned, w), scoring.avg(matrix, w))
    close(scoring.bayes(matrix, 3 - 2 * w), (3 - 2 * mu, 2 * sigma))


def test_prior_matrix_is_the_same_as_more_trials() -> None:
    rng = np.random.default_rng(3)
    R, R0 = rng.integers(0, 2, size=(6, 9)), rng.integers(0, 2, size=(6, 4))
    close(scoring.bayes(R, None, R0), scoring.bayes(np.hstack([R, R0])))
    close(scoring.bayes(R, None, R0.ravel()), scoring.bayes(R, None, R0))
    close(scoring.bayes(R, None, R0[:, :0]), scoring.bayes(R))


def test_missing_trial_is_not_a_wrong_one() -> None:
    R = np.array([[1, 1, -1], [0, -1, -1]])
    masked = np.ma.masked_equal(R, -1)
    close(scoring.avg(masked)[0], 0.5)
    close(scoring.bayes(masked)[0], (3 / 4 + 1 / 3) / 2)
    assert scoring.bayes(masked)[0] > scoring.bayes(np.where(R < 0, 0, R))[0]
    # A list of masked rows, where np.asarray would drop the masks.
    close(scoring.bayes([masked[0], masked[1]]), scoring.bayes(masked))
    close(scoring.bayes(np.ma.masked_invalid(np.where(R < 0, np.nan, R))), scoring.bayes(masked))
    # And deeper: a list of datasets of a list of models.
    deep = scoring.avg([[masked, masked], (masked, masked)])[0]
    close(deep, np.full((2, 2), scoring.avg(masked)[0]))


@pytest.mark.filterwarnings("error")
def test_nothing_is_cast_with_a_warning() -> None:
    missing = np.ma.masked_invalid([[1.0, np.nan], [9, 2]])
    close(scoring.bayes(missing, w=np.arange(10)), scoring.bayes(ragged([[1], [9, 2]]), range(10)))
    half = scoring.Counts(np.array([[2, 3]], dtype=np.float16))
    close(scoring.bayes(half), scoring.bayes([0, 0, 1, 1, 1]))


def test_question_without_trials_has_its_prior() -> None:
    nothing = np.ma.masked_equal([[-1, -1]], -1)
    close(scoring.bayes(nothing), (1 / 2, math.sqrt(1 / 12)))
    close(scoring.bayes(nothing, None, [[1, 1, 1]]), exact_bayes([[1, 1, 1]], BINARY, [[]]))


def test_stacks_of_counts_equal_one_call_each() -> None:
    rng = np.random.default_rng(5)
    counts = rng.integers(0, 9, size=(2, 3, 7, 4))
    w = rng.normal(size=4)
    counts[..., 0] += 1
    prior = rng.random(size=(3, 7, 4)) * 3
    mu, sigma = scoring.bayes(scoring.Counts(counts), w, scoring.Counts(prior))
    a, sigma_a = scoring.avg(scoring.Counts(counts), w)
    assert mu.shape == sigma.shape == a.shape == sigma_a.shape == (2, 3)
    stderr = scoring.question_stderr(scoring.Counts(counts), w)
    for index in np.ndindex(2, 3):
        rows = ragged([np.repeat(np.arange(4), n).tolist() for n in counts[index]])
        one = scoring.bayes(rows, w, scoring.Counts(prior[index[1]]))
        close((mu[index], sigma[index]), one)
        close((a[index], sigma_a[index]), scoring.avg(rows, w))
        close(stderr[index], scoring.question_stderr(rows, w))


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


def test_fractional_prior_counts_are_pseudo_trials() -> None:
    quarter = scoring.Counts([[0.25, 0.75]])
    alpha, beta = 1 + 2 + 0.75, 1 + 1 + 0.25
    total = alpha + beta
    expected = (alpha / total, math.sqrt(alpha * beta / total**2 / (total + 1)))
    close(scoring.bayes([[1, 1, 0]], None, quarter), expected)


# Intervals and the two kinds of uncertainty.


def test_interval_is_symmetric_until_it_meets_the_bounds() -> None:
    mu, sigma, lo, hi = scoring.bayes_ci(DOC_BINARY, confidence=0.9)
    close((lo, hi), (mu - 1.6448536269514722 * sigma, mu + 1.6448536269514722 * sigma))
    assert scoring.bayes_ci(DOC_BINARY, bounds=(0.7, 0.8))[2:] == (0.7, 0.8)
    assert scoring.bayes_ci(DOC_BINARY, bounds=(2.0, 3.0))[2:] == (2.0, 2.0)
    almost_one = scoring.bayes_ci([[1, 0]], [0.5, 0.5], confidence=math.nextafter(1, 0))
    assert almost_one == (0.5, 0.0, 0.5, 0.5)


def test_question_stderr_is_the_sample_formula() -> None:
    rows = [[1, 1, 0], [0, 0], [1], [1, 0, 1, 1]]
    means = [2 / 3, 0.0, 1.0, 0.75]
    centre = sum(means) / 4
    expected = math.sqrt(sum((x - centre) ** 2 for x in means) / 3 / 4)
    close(scoring.question_stderr(ragged(rows)), expected)
    close(scoring.question_stderr(ragged(rows), [1.0, 5.0]), 4 * expected)
    assert scoring.question_stderr([[1, 0], [0, 1]]) == 0.0


# The authors' library, where both apply: equal numbers of trials.


# Bad input: one readable line that says what was found.

MASKED = np.ma.masked_less([[1, 0, 1], [1, -1, -1], [-1, -1, -1]], 0)

BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: scoring.bayes([[1, 2]]), r"R\[0, 1\].* is 2: .*without w"),
    (lambda: scoring.bayes([[0, 1], [1, -1]]), r"R\[1, 1\].* is -1: .*masked_less"),
    (lambda: scoring.bayes([[0, np.nan]]), r"R\[0, 1\].* is nan: .*masked_invalid"),
    (lambda: scoring.bayes([[0, 0.5]]), r"R\[0, 1\].* is 0.5: .*whole numbers"),
    (lambda: scoring.bayes([[0, 3]], [0, 1, 2]), r"is 3: .*w has 3 weights, for 0\.\.2"),
    (lambda: scoring.bayes([[1], [1, 0]]), "not a rectangular matrix"),
    (lambda: scoring.bayes(np.full((2, 3, 4), 2)), r"R\[0, 0, 0\] \(\.\.\., question, trial"),
    (lambda: scoring.bayes([["1"]]), "R has dtype <U1"),
    (lambda: scoring.bayes([[1]], [0, np.inf]), "w holds inf"),
    (lambda: scoring.bayes([[1], [0]], None, [[1]]), "R0 has 1 questions, but R has 2"),
    (lambda: scoring.bayes_ci([[1]], confidence=95), "confidence is 95"),
    (lambda: scoring.bayes_ci([[1]], bounds=(1.0, 0.0)), r"bounds is \(1.0, 0.0\)"),
    (lambda: scoring.avg(MASKED), r"question 2 .* has 0 trials, but avg@N needs at least 1"),
    (lambda: scoring.pass_at_k(MASKED, 2), "question 1 .* has 1 trials, but Pass@2 .* 2 of 3"),
    (lambda: scoring.pass_at_k([[1, 0]], 0), "k is 0"),
    (lambda: scoring.pass_at_k_ci([[1]], 1, alpha0=0.0), "alpha0 is 0.0"),
    (lambda: scoring.bayes([[1]], np.ma.masked_less([0, -1], 0)), "w has masked entries"),
    (lambda: scoring.bayes([[1]], [0, 1e-170]), "w differs by 1e-170: too little"),
    (lambda: scoring.bayes_ci([[1]], bounds=5), "bounds is 5"),  # type: ignore[arg-type]
    (lambda: scoring.bayes(scoring.Counts([MASKED[0], MASKED[2]])), "Counts has masked entries"),
    (lambda: scoring.bayes(scoring.Counts([[1, 2, 3]])), r"shape \(1, 3\); pass .* 2\)"),
    (lambda: scoring.bayes(scoring.Counts([[1, -2]])), r"Counts\[0, 1\] is -2; counts are whole"),
    (lambda: scoring.bayes([[1]], None, scoring.Counts([[-1, 0]])), r"R0: Counts\[0, 0\] is -1"),
    (
        lambda: scoring.bayes(np.zeros((2, 1, 1)), None, np.zeros((3, 1, 1))),
        "broadcast",
    ),
    (lambda: scoring.down_weight([[2]], 1), "R0.* is 2: .*categories is 2"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_one_readable_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
