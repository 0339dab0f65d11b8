"""The variance of Pass@k: every sequence of trials, simulation, and moments in fractions; costs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy
from helpers import close, ragged
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import Counts, pass_at_k, pass_at_k_ci, sampling_cost
from bayes_at_n.scoring.metrics.passk_variance import (
    delta_variance,
    pass_at_k_sigma,
    posterior_variance,
    sampling_variance,
)

RATES = [0.01, 0.05, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99]


def estimate(correct: int, n: int, k: int) -> Fraction:
    """MaP, appendix D: 1 - C(n - S, k) / C(n, k)."""
    return 1 - Fraction(math.comb(n - correct, k), math.comb(n, k))


def variance(values: list[tuple[Fraction, Fraction]]) -> Fraction:
    """Of (probability, value)."""
    mean = sum(w * x for w, x in values)
    return Fraction(sum(w * (x - mean) ** 2 for w, x in values))


def by_sequences(p: Fraction, k: int, n: int) -> Fraction:
    """Over all 2^n sequences of trials."""
    return variance(
        [
            (p ** sum(s) * (1 - p) ** (n - sum(s)), estimate(sum(s), n, k))
            for s in itertools.product((0, 1), repeat=n)
        ]
    )


def by_binomial(p: Fraction, k: int, n: int) -> Fraction:
    """Over all numbers of correct trials."""
    return variance(
        [(math.comb(n, s) * p**s * (1 - p) ** (n - s), estimate(s, n, k)) for s in range(n + 1)]
    )


def beta_power(a: int, b: int, m: int) -> Fraction:
    """E q^m for q ~ Beta(a, b)."""
    return Fraction(math.prod(range(a, a + m)), math.prod(range(a + b, a + b + m)))


def test_delta_is_the_papers_formula() -> None:
    """Appendix D, step by step: the squared derivative of 1 - (1 - p)^k, times p (1 - p) / n."""
    p, k, n = sympy.symbols("p k n", positive=True)
    formula = sympy.diff(1 - (1 - p) ** k, p) ** 2 * p * (1 - p) / n
    for rate, attempts, trials in itertools.product(RATES, (1, 2, 4, 16), (16, 80)):
        exact = formula.subs({p: sympy.Rational(str(rate)), k: attempts, n: trials})
        close(delta_variance(rate, attempts, trials), float(exact))


@pytest.mark.parametrize("p", [Fraction(0), Fraction(1, 7), Fraction(1, 2), Fraction(9, 10), 1])
def test_sampling_variance_over_all_sequences(p: Any) -> None:
    p = Fraction(p)
    for n in range(1, 8):
        for k in range(1, n + 1):
            exact = by_sequences(p, k, n)
            assert exact == by_binomial(p, k, n)
            close(sampling_variance(float(p), k, n), float(exact), 1e-14)


@given(st.floats(0.001, 0.999), st.integers(1, 40), st.integers(0, 40))
def test_sampling_variance_to_the_last_digits(p: float, k: int, more: int) -> None:
    """Relative, also where it is tiny: nothing cancels. The estimator's mean is Pass@k."""
    n, rate = k + more, Fraction(p)
    found = sampling_variance(p, k, n)
    np.testing.assert_allclose(found, float(by_binomial(rate, k, n)), rtol=1e-11, atol=0)


def test_posterior_variance_in_fractions() -> None:
    for n, k in itertools.product((0, 1, 5, 16), (1, 2, 7, 16)):
        for c in range(n + 1):
            a, b = 1 + n - c, 1 + c  # of q = 1 - p
            exact = beta_power(a, b, 2 * k) - beta_power(a, b, k) ** 2
            np.testing.assert_allclose(posterior_variance(c, n, k), float(exact), rtol=1e-12)
            if n >= k:
                _, sigma, _, _ = pass_at_k_ci(Counts([[n - c, c]]), k)
                close(sigma**2, float(exact))
    a, b, k = 10_001, 1, 10_000
    exact = beta_power(a, b, 2 * k) - beta_power(a, b, k) ** 2
    np.testing.assert_allclose(posterior_variance(0, 10_000, k), float(exact), rtol=1e-9)
    assert 0 <= posterior_variance(10_000, 10_000, 10_000) < 1e-300


def test_sigma_of_a_run_in_fractions() -> None:
    """Rates shrunk by half a trial, enumerated; also with other trials for every question."""
    rows = [[0, 1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 0], [1, 1, 1]]
    for k in (1, 2, 3):
        total = sum(
            by_binomial(Fraction(2 * sum(row) + 1, 2 * len(row) + 2), k, len(row)) for row in rows
        )
        found = pass_at_k_sigma(ragged(rows), k)
        assert isinstance(found, float)
        close(found, math.sqrt(total) / 4)
    stack = [[[0, 1], [1, 1]], [[0, 1], [0, 1]], [[0, 0], [0, 0]]]
    close(pass_at_k_sigma(stack, 2), [pass_at_k_sigma(matrix, 2) for matrix in stack])
    close(
        pass_at_k_sigma(Counts([[2, 3], [0, 4]]), 3),
        pass_at_k_sigma(ragged([*rows[:1], [1] * 4]), 3),
    )
    with pytest.raises(ValueError, match=r"2 trials.*Pass@3"):
        pass_at_k_sigma([[0, 1]], 3)
    for k in (1, 10_000):
        assert 0 < pass_at_k_sigma(Counts([[10_000, 0], [5_000, 5_000], [0, 10_000]]), k) < 0.2


def mixture(near_0: float, near_1: float) -> Any:
    """Half of 30 questions near 0, a third near 1, the rest between."""
    return np.array([near_0] * 15 + [near_1] * 10 + [0.1, 0.3, 0.5, 0.7, 0.85])


@pytest.mark.parametrize(
    ("k", "n", "most"),
    [(1, 80, 6), (4, 16, 8.5), (8, 16, 10), (16, 16, 12), (4, 80, 6.5), (16, 80, 8)],
)
def test_a_change_that_is_none_is_seldom_found(k: int, n: int, most: float) -> None:
    """The docstring's table: the level of a test between two checkpoints, and coverage."""
    rng, runs = np.random.default_rng(0), 4_000
    alike = [np.full(30, p) for p in (0.02, 0.05, 0.1, 0.2, 0.5, 0.9)]
    plugged, worst_of_plugged = sampling_variance(np.arange(n + 1) / n, k, n), 0.0
    for p in (*alike, mixture(0.01, 0.98), mixture(0.05, 0.95)):
        right = rng.binomial(n, p, (2, runs, 30))
        R = Counts(np.stack([n - right, right], axis=-1))
        score, sigma = pass_at_k(R, k), pass_at_k_sigma(R, k)
        change, truth = np.abs(score[0] - score[1]), np.mean(1 - (1 - p) ** k)
        found = 100 * np.mean(change > 1.96 * np.hypot(*sigma) + 1e-12)
        missed = 100 * np.mean(np.abs(score - truth) > 1.96 * sigma + 1e-12)
        assert found < most and missed < most + 1
        wrong_sigma = np.sqrt(plugged[right].sum(axis=(0, -1))) / 30
        wrong = 100 * np.mean(change > 1.96 * wrong_sigma + 1e-12)
        worst_of_plugged = max(worst_of_plugged, wrong)
    assert k < 8 or worst_of_plugged > 8


def test_cost_is_that_of_table_6() -> None:
    """4 tokens in, 1 out; first prompt 4 x 1.25 = 5, each further 4 x 0.125 = 0.5, answers 10."""
    for n, cost in ((1, 15.0), (2, 25.5), (4, 46.5), (8, 88.5), (16, 172.5)):
        assert sampling_cost(4, 1, n) == 5 + 0.5 * (n - 1) + 10 * n == cost
    assert sampling_cost(100, 50, 3, cache_miss=2, cache_hit=1, output=4) == 200 + 200 + 600
    # Without a cache the prompt is paid n times.
    assert sampling_cost(7, 0, 5, cache_miss=2, cache_hit=2) == 70
    assert sampling_cost([[4.5], [8]], 1, [1, 2, 4]).shape == (2, 3)
    for arguments, text in (
        ((-1, 1, 1), "input_tokens holds -1"),
        ((1, math.nan, 1), "output_tokens holds nan"),
        ((1, 1, 0), "n is 0"),
        ((1, 1, 1, -0.5), "cache_miss"),
        (([1, 2], [1, 2, 3], 1), "broadcast"),
    ):
        with pytest.raises(ValueError, match=text):
            sampling_cost(*arguments)
