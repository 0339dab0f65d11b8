"""How steadily scores follow training: taus against pairs counted by hand, and the bootstrap."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pytest
import scipy.stats
from helpers import close
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import (
    Counts,
    avg,
    down_share,
    monotone_tau,
    pass_at_k,
    progress_tau_b,
)
from bayes_at_n.scoring.ranking import trajectory
from bayes_at_n.scoring.ranking.trajectory import resample, resampled_scores, spread

Scores = dict[str, Callable[[Any], Any]]
AVG: Scores = {"avg": lambda R: avg(R)[0]}
PASS: Scores = {f"Pass@{k}": functools.partial(pass_at_k, k=k) for k in (1, 2, 4, 8, 16)}

trajectories = st.lists(st.integers(0, 6), min_size=2, max_size=9)


def tau_by_pairs(scores: list[Any]) -> Fraction:
    """MaP, section 3.1: (P - (n (n - 1) / 2 - P)) / (n (n - 1) / 2)."""
    n = len(scores)
    rising = sum(scores[j] > scores[i] for i in range(n) for j in range(i + 1, n))
    return Fraction(rising - (n * (n - 1) // 2 - rising), n * (n - 1) // 2)


def down_by_steps(scores: list[Any]) -> Fraction:
    return Fraction(sum(b < a for a, b in itertools.pairwise(scores)), len(scores) - 1)


def track(n: int = 6, M: int = 10, N: int = 16, seed: int = 0) -> Counts:
    """Checkpoints that get better, with noise."""
    rng = np.random.default_rng(seed)
    p = np.clip(np.linspace(0.2, 0.6, n)[:, None] + rng.normal(0, 0.2, (n, M)), 0.02, 0.98)
    right = rng.binomial(N, p)
    return Counts(np.stack([N - right, right], axis=-1))


def correlated(runs: int, n: int = 3, M: int = 12, N: int = 16, seed: int = 0) -> Any:
    """Outcomes (runs, n, M, N) whose trials have a luck that questions and checkpoints share."""
    rng = np.random.default_rng(seed)
    level = rng.normal(0, 0.7, (n, M, 1)) + np.linspace(-0.6, 0.6, n)[:, None, None]
    luck = 0.8 * rng.normal(size=(runs, 1, 1, N)) + 0.6 * rng.normal(size=(runs, n, M, N))
    return luck < level


class Stability(NamedTuple):
    """How steadily one score follows training: of the trials, and mean and ends of replicates."""

    tau: float
    tau_mean: float
    tau_low: float
    tau_high: float
    tau_b: float | None
    tau_b_mean: float | None
    tau_b_low: float | None
    tau_b_high: float | None
    tau_b_undefined: float
    down: float
    down_mean: float
    down_low: float
    down_high: float


def stabilities(
    R: Any, scores: Scores, trials: Any = None, confidence: float = 0.95, **how: Any
) -> dict[str, Stability]:
    drawn, found = resampled_scores(R, scores, trials, **how), {}
    for label, score in scores.items():
        own, again = trajectory.scored(score, trajectory.track_counts(R), label), drawn[label]
        tau_b, taus_b = progress_tau_b(own), progress_tau_b(again)
        values: list[Any] = [monotone_tau(own), *spread(monotone_tau(again), confidence)]
        values += [None if tau_b.mask else float(tau_b)]
        values += [*spread(taus_b.compressed(), confidence), float(np.mean(taus_b.mask))]
        values += [down_share(own), *spread(down_share(again), confidence)]
        found[label] = Stability(*values)
    return found


def stability(R: Any, score: Callable[[Any], Any], trials: Any = None, **how: Any) -> Stability:
    return stabilities(R, {"score": score}, trials, **how)["score"]


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
    # The weights are fair, and vary as those of draws with replacement.
    many = np.random.default_rng(5).multinomial(n, [1 / 7] * 7, 20_000)
    close(many.mean(axis=0), n / 7, 0.05 * n / 7)
    close(many.var(axis=0), n / 7 * 6 / 7, 0.05 * n / 7)


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
    # Other types of the same outcomes, also masked arrays without a masked trial.
    for same in (R.astype(int), R.astype(float), np.ma.array(R), np.ma.array(R, mask=False)):
        assert (all_of(same, trials, replicates=40, seed=2) == whole).all()
    as_list = [np.ma.array(part, mask=False) for part in R]
    assert (all_of(as_list, trials, replicates=40, seed=2) == whole).all()


def test_draws_do_not_depend_on_the_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    normal = trajectory.MOST_DRAWS
    for R in (track(), correlated(1, 6, 10)[0]):
        monkeypatch.setattr(trajectory, "MOST_DRAWS", normal)
        whole = all_of(R, 8, replicates=50, seed=1)
        for size in (1, 60, 61, 700):
            monkeypatch.setattr(trajectory, "MOST_DRAWS", size)
            parts = list(resample(R, 8, replicates=50, seed=1))
            assert len(parts) == -(-50 // max(1, size // 60))
            assert (np.concatenate(parts) == whole).all()
        assert (all_of(R, 8, replicates=20, seed=1) == whole[:20]).all()
        assert (all_of(R, 8, replicates=50, seed=2) != whole).any()


@pytest.mark.parametrize("trials", [None, 8])
def test_stability_against_a_slow_loop(trials: int | None) -> None:
    """The same draws, scored one replicate, question and pair at a time."""
    R, k = track(5, 6), 4
    found = stability(R, PASS["Pass@4"], trials, replicates=200, seed=5, confidence=0.9)

    def scores(counts: Any) -> list[Fraction]:
        """Pass@4 of each checkpoint as a sum over questions."""
        return [
            sum(1 - Fraction(math.comb(int(w), k), math.comb(int(w + r), k)) for w, r in questions)
            for questions in counts
        ]

    rows = [scores(part) for part in all_of(R, trials, replicates=200, seed=5)]
    own = scores(R.values)
    for prefix, function in (("tau", tau_by_pairs), ("down", down_by_steps)):
        values = sorted(float(function(row)) for row in rows)
        expected = float(function(own)), sum(values) / 200, values[9], values[189]
        names = (prefix, f"{prefix}_mean", f"{prefix}_low", f"{prefix}_high")
        close([getattr(found, name) for name in names], expected)
    taus_b = sorted(
        scipy.stats.kendalltau(range(5), list(map(float, row))).statistic for row in rows
    )
    expected_b = scipy.stats.kendalltau(range(5), list(map(float, own))).statistic
    assert found.tau_b is not None
    close([found.tau_b, found.tau_b_mean], [expected_b, sum(taus_b) / 200])
    close([found.tau_b_low, found.tau_b_high], [taus_b[9], taus_b[189]])
    assert found.tau_b_undefined == 0


def test_replicates_are_shared_by_the_scores() -> None:
    together = stabilities(track(), {**AVG, **PASS}, replicates=100)
    for label, score in {**AVG, **PASS}.items():
        assert together[label] == stability(track(), score, replicates=100)
    found = resampled_scores(track(), {**AVG, **PASS}, replicates=100)
    close(found["avg"], found["Pass@1"])
    # Draw by draw Pass@k is above the average, which it would not be on other trials.
    assert found["avg"].shape == (100, 6) and (found["Pass@16"] >= found["avg"]).all()
