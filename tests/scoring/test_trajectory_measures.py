"""Trajectories and reversals: pairs counted by hand, integrals, the bootstrap, known truth."""

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.integrate
import scipy.stats
from helpers import close
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import Counts, avg, down_share, monotone_tau, pass_at_k, progress_tau_b
from bayes_at_n.scoring.ranking.trajectory import (
    resample,
    resampled_scores,
    reversal_rate,
    reversal_rate_ci,
)

Scores = dict[str, Callable[[Any], Any]]
AVG: Scores = {"avg": lambda R: avg(R)[0]}

trajectories = st.lists(st.integers(0, 6), min_size=2, max_size=9)


def tau_by_pairs(scores: list[Any]) -> Fraction:
    """MaP, section 3.1: (P - (n (n - 1) / 2 - P)) / (n (n - 1) / 2)."""
    n = len(scores)
    rising = sum(scores[j] > scores[i] for i in range(n) for j in range(i + 1, n))
    return Fraction(rising - (n * (n - 1) // 2 - rising), n * (n - 1) // 2)


def down_by_steps(scores: list[Any]) -> Fraction:
    return Fraction(sum(b < a for a, b in itertools.pairwise(scores)), len(scores) - 1)


def correlated(runs: int, n: int = 3, M: int = 12, N: int = 16, seed: int = 0) -> Any:
    """Outcomes (runs, n, M, N) whose trials have a luck that questions and checkpoints share."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 0.7, (n, M, 1)) + np.linspace(-0.6, 0.6, n)[:, None, None]
    luck = 0.8 * rng.normal(size=(runs, 1, 1, N)) + 0.6 * rng.normal(size=(runs, n, M, N))
    return luck < level


@given(trajectories)
def test_taus_and_steps_are_those_counted_by_hand(scores: list[int]) -> None:
    tau = monotone_tau(scores)
    assert isinstance(tau, float)
    close(tau, float(tau_by_pairs(scores)))
    close(down_share(scores), float(down_by_steps(scores)))
    tau_b = progress_tau_b(scores)
    expected = scipy.stats.kendalltau(range(len(scores)), scores).statistic
    assert bool(tau_b.mask) == math.isnan(expected) == (len(set(scores)) == 1)
    if not tau_b.mask:
        close(float(tau_b), expected)


def test_scores_equal_but_for_rounding_are_tied() -> None:
    """The same three questions in another order: 0.6 and 0.6000000000000001."""
    same = [0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1]
    assert same[0] != same[1]
    for scores in (same, same[::-1]):
        assert monotone_tau(scores) == -1 and down_share(scores) == 0
        assert bool(progress_tau_b(scores).mask)
        assert reversal_rate(scores, [0.1, 0.2]) == reversal_rate([0.1, 0.2], scores) == 0


def all_of(*arguments: Any, **options: Any) -> Any:
    return np.concatenate(list(resample(*arguments, **options)))


@pytest.mark.parametrize("trials", [None, 3, 40])
def test_replicates_are_binomial(trials: int | None) -> None:
    """Moments, and the whole distribution of one question, against the exact binomial's."""
    right, had = np.array([[0, 1, 3, 5], [7, 4, 9, 2]]), np.array([[4, 4, 12, 5], [20, 6, 9, 3]])
    counts = np.stack([had - right, right], axis=-1)
    drawn = all_of(Counts(counts), trials, replicates=20_000, seed=3)
    assert drawn.shape == (20_000, 2, 4, 2) and drawn.dtype == np.int64
    n, p = (had if trials is None else np.full_like(had, trials)), right / had
    assert (drawn.sum(axis=-1) == n).all() and (drawn >= 0).all()
    mean, variance = n * p, n * p * (1 - p)
    sure = variance == 0
    assert (drawn[..., 1][:, sure] == mean[sure]).all()
    slack = 5 * np.sqrt(variance / 20_000)
    assert (np.abs(drawn[..., 1].mean(axis=0) - mean) <= slack).all()
    close(drawn[..., 1].var(axis=0)[~sure] / variance[~sure], 1, 0.06)
    size = int(n[0, 2])
    seen = np.bincount(drawn[:, 0, 2, 1], minlength=size + 1) / 20_000
    exact = scipy.stats.binom.pmf(np.arange(size + 1), size, p[0, 2])
    assert np.abs(seen - exact).max() < 0.015
    # Questions are drawn independently of each other.
    pair = np.corrcoef(drawn[:, 0, 1, 1], drawn[:, 1, 1, 1])[0, 1]
    assert abs(pair) < 0.04


@pytest.mark.parametrize("trials", [None, 3, 40])
def test_columns_against_a_slow_bootstrap(trials: int | None) -> None:
    """The same weights as lists of drawn trials, looked up one question at a time."""
    R = correlated(1, 3, 4, 7)[0]
    n = trials or 7
    weights = np.random.default_rng(5).multinomial(n, [1 / 7] * 7, 60)
    drawn = all_of(R, trials, replicates=60, seed=5)
    assert drawn.shape == (60, 3, 4, 2) and drawn.dtype == np.int64
    for r, i, a in np.ndindex(60, 3, 4):
        index = [t for t in range(7) for _ in range(weights[r, t])]
        right = sum(bool(R[i, a, t]) for t in index)
        assert len(index) == n and drawn[r, i, a].tolist() == [n - right, right]


@pytest.mark.parametrize("trials", [None, 6])
def test_stacks_are_drawn_together(trials: int | None) -> None:
    """Of one seed, N and n every question of every stack has the same columns."""
    R = correlated(1, 5, 6, 9)[0]
    whole = all_of(R, trials, replicates=40, seed=2)
    assert (all_of(R[3:], trials, replicates=40, seed=2) == whole[:, 3:]).all()
    assert (all_of(R[1, 2], trials, replicates=40, seed=2) == whole[:, 1, 2:3]).all()
    assert (all_of(R[None, :, 2:4], trials, replicates=40, seed=2) == whole[:, None, :, 2:4]).all()
    taus = [
        monotone_tau(resampled_scores(part, AVG, trials, replicates=40, seed=2)["avg"])
        for part in (R, R, R[::-1])
    ]
    assert (taus[0] == taus[1]).all() and (taus[0] <= -taus[2]).all()  # equal but for ties
    assert len({tuple(row) for row in whole[..., 1].reshape(40, -1).tolist()}) > 30
    assert (all_of(np.ma.array(R, mask=False), trials, replicates=40, seed=2) == whole).all()


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
