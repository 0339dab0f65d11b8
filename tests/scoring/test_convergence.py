"""The convergence studies against a slow reference, enumeration and scipy."""

import functools
import itertools
import math
import subprocess
import sys
from collections import Counter
from typing import Any

import numpy as np
import pytest
import scipy.stats

from bayes_at_n.scoring.metrics.table import Metric
from bayes_at_n.scoring.metrics.table import parse as of
from bayes_at_n.scoring.studies import bootstrap, convergence

Outcomes = np.ndarray[Any, Any]
ALL = [
    of(name)
    for name in (
        "bayes", "pass@2", "pass@4", "pass^2", "naive-pass@2", "g-pass@4:0.5", "mg-pass@3", "maj@3",
        "auc@3", "spectrum@3:0.1:0.3:0.2", "geom@2", "geom-ds@2:0.5:1.5", "geo-spectrum@3:0.25",
    )
]  # fmt: skip


def ranks_of(scores: list[Any]) -> list[int]:
    """Competition ranks; scores that differ by rounding alone are equal."""
    return [1 + sum(bool(other - score > 1e-12) for other in scores) for score in scores]


def gold_of(stack: Outcomes) -> list[int]:
    return ranks_of([int(model.sum()) for model in stack])


def reference_ranks(stack: Outcomes, metric: Metric) -> list[list[int] | None]:
    """Ranks after n = 1..N trials, None below the first n."""
    found: list[list[int] | None] = []
    for n in range(1, stack.shape[-1] + 1):
        counts = tuple(map(tuple, stack[..., :n].sum(axis=-1).tolist()))
        found.append(None if n < max(1, metric.k) else ranks_at(metric, counts, n))
    return found


@functools.cache  # few counts, in many replicates
def ranks_at(metric: Metric, counts: tuple[tuple[int, ...], ...], n: int) -> list[int]:
    """Ranks by the metric's exact tables, which `test_metrics_table.py` checks."""

    def score(cs: tuple[int, ...]) -> float:
        means = (float(sum(part[c] for c in cs)) / len(cs) for part in metric.tables(n))
        return math.prod(m**power for m, power in zip(means, metric.powers, strict=True))

    return ranks_of([score(cs) for cs in counts])


@functools.cache
def tau_b(ranks: tuple[int, ...], gold: tuple[int, ...]) -> float:
    return float(scipy.stats.kendalltau(ranks, gold, variant="b").statistic)


def reference_point(trajectory: list[list[int] | None], gold: list[int]) -> int | None:
    """convergence@n by its definition: equal at n and at every later n."""
    for n in range(1, len(trajectory) + 1):
        if all(ranks == gold for ranks in trajectory[n - 1 :]):
            return n
    return None


def resampled(stack: Outcomes, index: Outcomes) -> Outcomes:
    """The replicate of drawn trials (N, 1), or (N, M) when questions are drawn apart."""
    models, questions, trials = stack.shape
    drawn = np.zeros_like(stack)
    for k, m, n in itertools.product(range(models), range(questions), range(trials)):
        drawn[k, m, n] = stack[k, m, index[n, m if index.shape[1] > 1 else 0]]
    return drawn


def random_stack(shape: tuple[int, int, int], seed: int, low: float = 0.1) -> Outcomes:
    rng = np.random.default_rng(seed)
    p = np.linspace(low, 0.9, shape[0])[:, None, None]
    return (rng.random(shape) < p).astype(np.int64)


def columns_of(stack: Outcomes, resample: str) -> int:
    return 1 if resample == "columns" else stack.shape[1]


@pytest.mark.parametrize("resample", ["columns", "rows"])
def test_every_replicate_as_the_slow_reference(resample: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(bootstrap, "LARGEST_CHUNK", 7)
    stack, replicates = random_stack((4, 3, 6), seed=3, low=0.6), 24  # models close together
    trials, columns = stack.shape[-1], columns_of(stack, resample)
    chunks = [bootstrap.draw(7, chunk, 7, trials, columns) for chunk in range(4)]
    drawn = [resampled(stack, index) for index in np.concatenate(chunks)[:replicates]]
    found = convergence.convergence_at(stack, ALL, replicates, resample, seed=7)
    taus = convergence.tau_curve(stack, ALL, replicates, resample, seed=7)
    gold = gold_of(stack)
    for metric, result, curve in zip(ALL, found, taus, strict=True):
        ranks = [reference_ranks(replicate, metric) for replicate in drawn]
        points = [reference_point(trajectory, gold) for trajectory in ranks]
        reached = Counter(points)
        assert result.counts.tolist() == [reached[n] for n in range(1, stack.shape[-1] + 1)]
        assert result.failed == reached[None]
        converged = [n for n in points if n is not None]
        assert result.mean == (sum(converged) / len(converged) if converged else None)
        assert result.largest == max(converged, default=None)
        assert result.worst == (points.index(max(converged)) if converged else 0)
        assert result.first_failed == (points.index(None) if None in points else None)
        for r in (result.worst, 17):
            path = convergence.rank_trajectory(stack, metric, r, resample, seed=7)
            assert path.tolist() == [row or [None] * len(gold) for row in ranks[r]]
        assert_taus(curve, ranks, gold)


def assert_taus(
    curve: convergence.TauCurve, ranks: list[list[list[int] | None]], gold: list[int]
) -> None:
    """Compare with scipy's tau_b, which is NaN where it does not exist."""
    for n in range(len(ranks[0])):
        taus = []
        for trajectory in ranks:
            at_n = trajectory[n]
            if at_n is not None:
                taus.append(tau_b(tuple(at_n), tuple(gold)))
        known = [tau for tau in taus if not math.isnan(tau)]
        assert curve.defined[n] == len(known)
        assert curve.undefined[n] == len(taus) - len(known)
        assert bool(np.ma.getmaskarray(curve.tau)[n]) == (not known)
        assert bool(np.ma.getmaskarray(curve.stderr)[n]) == (len(known) < 2)
        if known:
            assert curve.tau[n] == pytest.approx(np.mean(known), abs=1e-12)
        if len(known) > 1:
            error = np.std(known, ddof=1) / math.sqrt(len(known))
            assert curve.stderr[n] == pytest.approx(error, abs=1e-12)


@pytest.mark.parametrize("resample", ["columns", "rows"])
def test_distribution_over_all_equally_likely_replicates(resample: Any) -> None:
    """The draws are uniform and independent: frequencies against full enumeration."""
    stack = np.array([[[1, 1, 1], [1, 0, 1]], [[0, 1, 1], [1, 0, 0]], [[0, 0, 1], [0, 0, 0]]])
    if resample == "rows":
        stack = stack[:, :, 1:]
    trials = stack.shape[-1]
    columns = columns_of(stack, resample)
    gold, judged = gold_of(stack), ALL[:2]
    replicates = 40_000
    found = convergence.convergence_at(stack, judged, replicates, resample, seed=2)
    every_index = itertools.product(range(trials), repeat=trials * columns)
    indices = [np.reshape(index, (trials, columns)) for index in every_index]
    for metric, result in zip(judged, found, strict=True):
        points = Counter(
            reference_point(reference_ranks(resampled(stack, i), metric), gold) for i in indices
        )
        assert len(points) > 1
        for n in [None, *range(1, trials + 1)]:
            p = points[n] / len(indices)
            seen = result.failed if n is None else int(result.counts[n - 1])
            assert abs(seen - replicates * p) <= 4.5 * math.sqrt(replicates * p * (1 - p))


def test_threads_change_nothing() -> None:
    stack = random_stack((6, 10, 20), seed=1, low=0.4)
    judged = [of("bayes"), of("geom-ds@2")]
    points = [convergence.convergence_at(stack, judged, 5000, seed=3, threads=t) for t in (1, 5)]
    taus = [convergence.tau_curve(stack, judged, 3000, seed=3, threads=t) for t in (1, 5)]
    for a, b in zip(*points, strict=True):
        assert a.counts.tolist() == b.counts.tolist()
        assert (a.failed, a.worst, a.first_failed) == (b.failed, b.worst, b.first_failed)
    for c, d in zip(*taus, strict=True):
        assert all(np.ma.allequal(x, y) for x, y in zip(c[1:], d[1:], strict=True))


def test_exact_ties_of_different_counts_are_ties() -> None:
    """3 + 0 + 0 pairs of wrong trials are as many as 1 + 1 + 1: the same Pass@2 at n = 7."""
    wrong = np.array([[3, 1, 0], [2, 2, 2]])
    stack = (np.arange(7) >= wrong[..., None]).astype(int)
    [curve] = convergence.tau_curve_independent([stack], [2.0, 1.0], [of("pass@2")])
    assert curve.undefined[-1] == 1 and np.ma.getmaskarray(curve.tau)[-1]
    [curve] = convergence.tau_curve_independent([stack], [2.0, 1.0], [of("bayes")])
    assert curve.defined[-1] == 1 and curve.tau[-1] == 1.0


def test_models_that_tie_in_gold_must_tie() -> None:
    stack = np.tile(random_stack((1, 4, 8), seed=0), (3, 1, 1))
    found = convergence.convergence_at(stack, ALL, 200)
    assert {r.counts[max(1, e.k) - 1] for r, e in zip(found, ALL, strict=True)} == {200}
    for curve in convergence.tau_curve(stack, ALL, 50):
        assert np.ma.getmaskarray(curve.tau).all() and curve.undefined[-1] == 50


@pytest.mark.soak
def test_many_trials_and_tables_beyond_64_bits() -> None:
    """Counts of 16 bits, rounded tables: against exact fractions, where nothing is close."""
    p = np.array([0.01, 0.03, 0.06])[:, None, None]
    stack = (np.random.default_rng(6).random((3, 4, 260)) < p).astype(np.int64)
    judged = [of("bayes"), of("pass@40")]
    assert bootstrap.scaled(judged[0], 260, 4).tolerance == 0
    assert bootstrap.scaled(judged[1], 260, 4).tolerance > 0
    index = bootstrap.draw(0, 0, 4, 260, 1)
    for metric in judged:
        ranks = [reference_ranks(stack[..., one[:, 0]], metric) for one in index]
        points = [reference_point(of_replicate, gold_of(stack)) for of_replicate in ranks]
        [found] = convergence.convergence_at(stack, [metric], 4)
        expected = Counter(points)
        assert found.counts.tolist() == [expected[n] for n in range(1, 261)]


def test_independent_matrices_against_a_known_ranking_with_a_tie() -> None:
    rng = np.random.default_rng(9)
    truth = [0.3, 0.6, 0.6, 0.7]
    stacks = [(rng.random((4, 5, 9)) < np.array(truth)[:, None, None]) for _ in range(25)]
    judged = [ALL[0], ALL[1], ALL[11]]
    curves = convergence.tau_curve_independent(iter(stacks), truth, judged)
    for metric, curve in zip(judged, curves, strict=True):
        ranks = [reference_ranks(stack.astype(int), metric) for stack in stacks]
        assert_taus(curve, ranks, ranks_of(truth))


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ([[[0, 1], [1, 1]]], "1 models"),
        (np.ma.masked_equal([[[0, 1], [1, -1]]] * 2, -1), "masked"),
        (random_stack((2, 2, 3), seed=0), "Pass@4 needs 4"),
    ],
)
def test_bad_input_is_named(stack: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        convergence.convergence_at(stack, [of("pass@4")], replicates=10)


def test_scoring_alone_does_not_load_numba() -> None:
    code = "import sys, bayes_at_n.scoring.metrics.table; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
