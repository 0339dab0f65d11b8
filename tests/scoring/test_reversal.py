"""How often the order of models reverses: pairs by hand, integrals, and known truth."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from helpers import close, ragged
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import Counts, avg, pass_at_k
from bayes_at_n.scoring.ranking import reversal
from bayes_at_n.scoring.ranking.reversal import reversal_rate, reversal_rate_ci

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


def above(right: list[int], trials: list[int]) -> float:
    """P(1 - (1 - p_0)^k > 1 - (1 - p_1)^k) for one question: P(p_0 > p_1), whatever k."""
    one, other = (scipy.stats.beta(1 + c, 1 + n - c) for c, n in zip(right, trials, strict=True))
    found, _ = scipy.integrate.quad(lambda x: one.pdf(x) * other.cdf(x), 0, 1)
    return float(found)


@pytest.mark.parametrize("k", [1, 4, 8])
def test_posterior_of_two_models_is_the_integral(k: int) -> None:
    before, after, trials = [12, 9], [14, 16], [20, 20]
    p, r = above(before, trials), above(after, trials)
    found = reversal_rate_ci(
        counts_of([[c] for c in before], 20), counts_of([[c] for c in after], 20), k, 40_000
    )
    exact = p * (1 - r) + (1 - p) * r
    assert 0.3 < exact < 0.7
    assert abs(found.mean - exact) < 4 * math.sqrt(0.25 / 40_000)
    # With 14 and 16 of 20 correct, no 8 trials are all wrong: tied in points, not in the draws.
    assert found.rate == (k < 8) and (found.lo, found.hi) == (0, 1)
    # And where hardly a draw reverses.
    sure = reversal_rate_ci(Counts([[[19, 1]], [[1, 19]]]), Counts([[[19, 1]], [[1, 19]]]), k)
    assert sure.mean < 1e-3 and sure[0] == sure.lo == sure.hi == 0


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


def test_outcomes_and_counts_are_the_same() -> None:
    """Masked trials are no trials; before and after need not have the same questions."""
    rows = [[[1, 0, 1], [1]], [[1, 1], [0, 1, 1, 1]], [[0, 0, 0, 1], [0, 1]]]
    before = np.ma.stack([ragged(row, 4) for row in rows])
    after = [[[1, 0]], [[0, 0]], [[1, 1]]]
    counts = Counts([[[1, 2], [0, 1]], [[0, 2], [1, 3]], [[3, 1], [1, 1]]])
    found = reversal_rate_ci(before, after, draws=500)
    assert found == reversal_rate_ci(counts, Counts([[[1, 1]], [[2, 0]], [[0, 2]]]), draws=500)
    assert found.rate == rate_by_pairs(avg(counts)[0], avg(after)[0])


def test_draws_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    before, after = (
        counts_of(rng.integers(0, 9, (4, 6)), 8),
        counts_of(rng.integers(0, 9, (4, 2)), 8),
    )
    whole = reversal_rate_ci(before, after, 2, 300, seed=4)
    for size in (1, 24, 100):
        monkeypatch.setattr(reversal, "MOST_DRAWS", size)
        assert reversal_rate_ci(before, after, 2, 300, seed=4) == whole
    assert reversal_rate_ci(before, after, 2, 300, seed=5) != whole


def test_bad_arguments() -> None:
    good = counts_of([[3, 4], [5, 6]], 8)
    for arguments, text in (
        ((good, counts_of([[3, 4]], 8)), "before has 2 models"),
        ((Counts([[1, 2], [3, 4]]), good), "before has questions of shape"),
        ((good, good, 9), "has 8 trials, but before: Pass@9"),
    ):
        with pytest.raises(ValueError, match=text):
            reversal_rate_ci(*arguments)  # type: ignore[arg-type]
