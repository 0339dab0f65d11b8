"""How often the order of models reverses: pairs by hand, integrals, and known truth."""

from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from helpers import close
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import Counts, pass_at_k
from bayes_at_n.scoring.ranking.trajectory import reversal_rate, reversal_rate_ci

pairs_of_scores = st.integers(2, 7).flatmap(
    lambda L: st.tuples(*[st.lists(st.integers(0, 5), min_size=L, max_size=L)] * 2)
)


def rate_by_pairs(before: Any, after: Any) -> float:
    """MaP, section 3.1, with the scores in place of the ranks."""
    L = len(before)
    reversed_pairs = [
        (before[i] - before[j]) * (after[i] - after[j]) < 0 for i in range(L) for j in range(i)
    ]
    return sum(reversed_pairs) / len(reversed_pairs)


def counts_of(right: Any, trials: Any) -> Counts:
    right = np.asarray(right)
    return Counts(np.stack([trials - right, right], axis=-1))


@given(pairs_of_scores)
def test_rate_is_that_counted_by_hand(pair: tuple[list[int], list[int]]) -> None:
    before, after = pair
    found = reversal_rate(before, after)
    assert isinstance(found, float)
    close(found, rate_by_pairs(before, after))
    close(found, reversal_rate(after, before))
    if len(set(before)) == len(before) and len(set(after)) == len(after):
        tau = scipy.stats.kendalltau(before, after).statistic
        close(found, (1 - tau) / 2)


def test_ties_are_no_reversal_even_but_for_rounding() -> None:
    same = [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]
    assert same[0] > same[1] and reversal_rate(same, [0.1, 0.2]) == 0
    assert reversal_rate([0.1, 0.2], same) == reversal_rate([0.5, 0.5], [0.1, 0.2]) == 0
    assert reversal_rate([0.2, 0.1], [0.1, 0.2]) == 1


@pytest.mark.parametrize("k", [1, 3, 16])
def test_posterior_against_plain_draws(k: int) -> None:
    """Three models, four questions, trials that differ: other draws, in a plain loop."""
    rng = np.random.default_rng(7)
    trials = rng.integers(16, 30, (2, 3, 4))
    right = rng.binomial(trials, np.array([0.1, 0.3, 0.5, 0.7]))
    found = reversal_rate_ci(*(counts_of(c, n) for c, n in zip(right, trials, strict=True)), k)
    rates = []
    for _ in range(4_000):
        p = rng.beta(right + 1, trials - right + 1)
        scores = (1 - (1 - p) ** k).mean(axis=-1)
        rates.append(rate_by_pairs(*scores))
    assert abs(found.mean - np.mean(rates)) < 0.02
    close([found.lo, found.hi], np.quantile(rates, [0.025, 0.975], method="inverted_cdf"))
    points = [pass_at_k(counts_of(c, n), k) for c, n in zip(right, trials, strict=True)]
    close(found.rate, rate_by_pairs(*points))
    assert all(isinstance(x, float) for x in found)


def test_models_that_differ_are_refused() -> None:
    good = counts_of([[3, 4], [5, 6]], 8)
    for arguments in ((good, counts_of([[3, 4]], 8)), (good, good, 9)):
        with pytest.raises(ValueError, match="before"):
            reversal_rate_ci(*arguments)
