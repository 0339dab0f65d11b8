"""Sigma of Pass@k against all outcomes in fractions, and between runs that are alike; costs."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers import close, ragged
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import Counts, pass_at_k, pass_at_k_sigma, sampling_cost


def variance(c: int, n: int, k: int) -> Fraction:
    """The variance of the estimator over all numbers of correct trials, at the shrunk rate."""
    p, mean, square = Fraction(2 * c + 1, 2 * n + 2), Fraction(0), Fraction(0)
    for s in range(n + 1):
        chance = math.comb(n, s) * p**s * (1 - p) ** (n - s)
        value = 1 - Fraction(math.comb(n - s, k), math.comb(n, k))
        mean, square = mean + chance * value, square + chance * value**2
    return square - mean**2


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0, 1))
def test_to_the_last_digits(k: int, more: int, share: float) -> None:
    """Relative, also where it is tiny: nothing cancels."""
    n = k + more
    c = round(share * n)
    found = pass_at_k_sigma(Counts([[n - c, c]]), k)
    np.testing.assert_allclose(found, math.sqrt(variance(c, n, k)), rtol=1e-11, atol=0)


def test_questions_with_other_numbers_of_trials_and_stacks() -> None:
    rows = [[0, 1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 0], [1, 1, 1]]
    for k in (1, 2, 3):
        total = sum(variance(sum(row), len(row), k) for row in rows)
        close(pass_at_k_sigma(ragged(rows), k), math.sqrt(total) / 4)
    stack = [[[0, 1], [1, 1]], [[0, 1], [0, 1]], [[0, 0], [0, 0]]]
    close(pass_at_k_sigma(stack, 2), [pass_at_k_sigma(matrix, 2) for matrix in stack])
    for k in (1, 10_000):
        assert 0 < pass_at_k_sigma(Counts([[10_000, 0], [5_000, 5_000], [0, 10_000]]), k) < 0.2


@pytest.mark.parametrize(("k", "n", "most"), [(1, 80, 6), (8, 16, 10), (16, 80, 8)])
def test_a_change_that_is_none_is_seldom_found(k: int, n: int, most: float) -> None:
    """The level of a test between two checkpoints, and coverage."""
    rng, runs = np.random.default_rng(0), 4_000
    ends = np.array([0.01] * 15 + [0.98] * 10 + [0.1, 0.3, 0.5, 0.7, 0.85])
    for p in (np.full(30, 0.02), np.full(30, 0.2), np.full(30, 0.9), ends):
        right = rng.binomial(n, p, (2, runs, 30))
        R = Counts(np.stack([n - right, right], axis=-1))
        score, sigma = pass_at_k(R, k), pass_at_k_sigma(R, k)
        change, truth = np.abs(score[0] - score[1]), np.mean(1 - (1 - p) ** k)
        assert 100 * np.mean(change > 1.96 * np.hypot(*sigma) + 1e-12) < most
        assert 100 * np.mean(np.abs(score - truth) > 1.96 * sigma + 1e-12) < most + 1


def test_cost_is_that_of_table_6() -> None:
    """4 tokens in, 1 out; first prompt 4 x 1.25 = 5, each further 4 x 0.125 = 0.5, answers 10."""
    for n, cost in ((1, 15.0), (2, 25.5), (4, 46.5), (8, 88.5), (16, 172.5)):
        assert sampling_cost(4, 1, n) == 5 + 0.5 * (n - 1) + 10 * n == cost
    assert sampling_cost(100, 50, 3, cache_miss=2, cache_hit=1, output=4) == 200 + 200 + 600
    assert sampling_cost([[4.5], [8]], 1, [1, 2, 4]).shape == (2, 3)
    with pytest.raises(ValueError, match="n is 0"):
        sampling_cost(1, 1, 0)
