"""Sigma of Pass@k against all outcomes in fractions, and between runs that are alike; costs."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers import close, ragged
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import Counts, pass_at_k_sigma, sampling_cost


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


def test_cost_is_that_of_table_6() -> None:
    """4 tokens in, 1 out; first prompt 4 x 1.25 = 5, each further 4 x 0.125 = 0.5, answers 10."""
    for n, cost in ((1, 15.0), (2, 25.5), (4, 46.5), (8, 88.5), (16, 172.5)):
        assert sampling_cost(4, 1, n) == 5 + 0.5 * (n - 1) + 10 * n == cost
    assert sampling_cost(100, 50, 3, cache_miss=2, cache_hit=1, output=4) == 200 + 200 + 600
    assert sampling_cost([[4.5], [8]], 1, [1, 2, 4]).shape == (2, 3)
    with pytest.raises(ValueError, match="n is 0"):
        sampling_cost(1, 1, 0)
