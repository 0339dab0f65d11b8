"""Ranks, tau_b, and all models at once: against definitions, exact formulas and scipy."""

import itertools
import math
import statistics
from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import close
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.scoring import (
    best_candidates,
    kendall_tau_b,
    pairs_quantile,
    probability_best,
    q_values,
    rank_ranges,
)
from bayes_at_n.scoring.ranking.ranks import ranks, ranks_with_uncertainty

# LLM11 down to LLM1 of the paper's Table 1, with their printed means.
PRINTED = [0.7327, 0.6213, 0.608, 0.5276, 0.5418, 0.4466, 0.3642, 0.3642, 0.3604, 0.2545, 0.2332]


def by_definition(scores: list[int], method: str) -> list[int]:
    if method == "competition":
        return [1 + sum(other > score for other in scores) for score in scores]
    return [1 + len({other for other in scores if other > score}) for score in scores]


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=8))
def test_ranks_by_definition(scores: list[int]) -> None:
    for method in ("competition", "dense"):
        found = ranks(scores, method=method)  # type: ignore[arg-type]
        assert found.tolist() == by_definition(scores, method)
        assert found.dtype == np.int64


def test_rows_of_table_1() -> None:
    assert ranks(PRINTED, "dense").tolist() == [1, 2, 3, 5, 4, 6, 7, 7, 8, 9, 10]
    # Neighbours in one rank are 1.2 apart, others 1.7; the ends of the chain of three 2.4.
    steps = np.array([1.7, 1.2, 1.7, 1.2, 1.7, 1.7, 1.2, 1.2, 1.7, 1.7])
    sigma = 0.01
    mu = 0.8 - np.concatenate([[0.0], np.cumsum(steps)]) * sigma * math.sqrt(2)
    table = [1, 2, 2, 3, 3, 4, 5, 5, 5, 6, 7]
    assert ranks_with_uncertainty(mu, sigma).tolist() == table
    shuffled = np.random.default_rng(0).permutation(11)
    found = ranks_with_uncertainty(mu[shuffled], sigma)
    assert found.tolist() == [table[i] for i in shuffled]
    competition = [1, 2, 2, 4, 4, 6, 7, 7, 7, 10, 11]
    assert ranks_with_uncertainty(mu, sigma, method="competition").tolist() == competition
    # Intervals overlap up to 2 * 1.645 sigma, which is 2.33 of these steps.
    assert ranks_with_uncertainty(mu, sigma, rule="overlap").tolist() == [1] * 11


@pytest.mark.parametrize("rule", ["consecutive_z", "overlap"])
def test_both_rules_model_by_model(rule: Any) -> None:
    rng = np.random.default_rng(6)
    mu, sigma = rng.normal(size=(300, 7)), rng.uniform(0, 0.5, size=(300, 7))
    found = ranks_with_uncertainty(mu, sigma, rule=rule, z=1.2)
    for row in range(300):
        order = sorted(range(7), key=lambda i: -mu[row, i])
        rank, expected = 1, {order[0]: 1}
        for above, below in itertools.pairwise(order):
            gap = mu[row, above] - mu[row, below]
            s, t = sigma[row, above], sigma[row, below]
            if rule == "overlap":
                shared = mu[row, above] - 1.2 * s <= mu[row, below] + 1.2 * t
            else:
                shared = gap / math.sqrt(s**2 + t**2) < 1.2
            rank += not shared
            expected[below] = rank
        assert found[row].tolist() == [expected[i] for i in range(7)]


def test_ranks_do_not_depend_on_the_order_of_models() -> None:
    """Two equal means, one sure and one not: only the unsure one is near the third."""
    mu, sigma = [0.6, 0.6, 0.5], [0.001, 0.2, 0.001]
    for order in itertools.permutations(range(3)):
        i = list(order)
        found = ranks_with_uncertainty(np.array(mu)[i], np.array(sigma)[i])
        assert found.tolist() == [1, 1, 1]


def test_tau_b_is_that_of_scipy() -> None:
    rng = np.random.default_rng(12)
    for K in (2, 3, 5, 11, 20):
        x, y = rng.integers(0, max(2, K // 2), size=(2, 600, K))
        found = kendall_tau_b(x, y)
        expected = np.array(
            [scipy.stats.kendalltau(*pair).statistic for pair in zip(x, y, strict=True)]
        )
        assert (found.mask == np.isnan(expected)).all()
        close(found.compressed(), expected[~np.isnan(expected)])
        if K == 2:
            assert 200 < found.mask.sum() < 500
        assert abs(found.mean() - np.nanmean(expected)) < 1e-12


def test_tau_b_ends_and_shapes() -> None:
    x = np.arange(30)
    assert kendall_tau_b(x, x) == 1.0 and kendall_tau_b(x, -x) == -1.0
    assert kendall_tau_b(x, x).shape == ()
    undefined = kendall_tau_b([1, 1], [1, 2])
    assert bool(undefined.mask) and math.isnan(undefined.data)
    y = np.random.default_rng(13).integers(0, 9, size=(4, 1, 30))
    z = np.random.default_rng(14).integers(0, 9, size=(5, 30))
    found = kendall_tau_b(y, z)
    assert found.shape == (4, 5)
    close(found[2, 3], scipy.stats.kendalltau(y[2, 0], z[3]).statistic)
    # Unsigned, and too large for float64.
    large = np.array([2**53, 2**53 + 1, 3], dtype=np.uint64)
    assert kendall_tau_b(large, [2, 3, 1]) == 1.0


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ranks([0.1, math.nan]), "scores holds nan"),
        (lambda: ranks([1, 2], method="ordinal"), "method is 'ordinal'"),  # type: ignore[arg-type]
        (lambda: ranks_with_uncertainty([1, 2], [0.1, -0.1]), "sigma holds -0.1"),
        (lambda: ranks_with_uncertainty([1, 2], 0.1, rule="z"), "rule is 'z'"),  # type: ignore[arg-type]
        (lambda: kendall_tau_b([1, 2], [1, 2, 3]), "the same K models"),
        (lambda: kendall_tau_b([1, math.nan], [1, 2]), "x holds nan"),
    ],
)
def test_bad_input_is_named(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


NORMAL = statistics.NormalDist()
DRAWS = 10_000


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
def test_the_quantile_is_that_of_the_studentized_range(confidence: float) -> None:
    close(pairs_quantile(2, confidence), NORMAL.inv_cdf((1 + confidence) / 2))
    for models in (3, 10, 40):
        theirs = scipy.stats.studentized_range.ppf(confidence, models, np.inf)
        close(pairs_quantile(models, confidence), theirs / math.sqrt(2), 1e-8)


def test_ranges_count_the_pairs_that_are_apart() -> None:
    rng = np.random.default_rng(0)
    mu, sigma = rng.normal(size=9), rng.uniform(0.1, 0.6, size=9)
    low, high = rank_ranges(mu, sigma, 0.9)
    limit = pairs_quantile(9, 0.9)
    for i in range(9):
        z = [(mu[i] - mu[j]) / math.hypot(sigma[i], sigma[j]) for j in range(9) if j != i]
        assert low[i] == 1 + sum(x < -limit for x in z)
        assert high[i] == 9 - sum(x > limit for x in z)
    assert [of.tolist() for of in rank_ranges([0.3], 0.1)] == [[1], [1]]
    assert [of.tolist() for of in rank_ranges([3, 1, 3], 0.0)] == [[1, 3, 1], [2, 3, 2]]


@pytest.mark.parametrize(
    ("theta", "spread"), [([0.0] * 8, 1), ([0.0] * 8, 6), ([0, 0, 0, 1, 3, 3, 9, 9], 2)]
)
def test_ranges_and_candidates_hold_together(theta: list[float], spread: float) -> None:
    """With sigmas that differ they may hold more often."""
    rng, truth = np.random.default_rng(1), np.array(theta, float)
    sigma = np.geomspace(1, spread, 8)[[3, 0, 6, 2, 7, 5, 1, 4]]
    least, most = (truth[:, None] < truth).sum(axis=1) + 1, (truth[:, None] <= truth).sum(axis=1)
    best = truth == truth.max()
    x = truth + sigma * rng.normal(size=(DRAWS, 8))
    (low, high), stay = rank_ranges(x, sigma), best_candidates(x, sigma)
    assert (stay <= (low == 1)).all() and (stay.any(axis=1)).all()
    ranges = ((low > least) | (high < most)).any(axis=1).mean()
    missing, alone = 1 - stay[:, best][:, 0].mean(), (stay.sum(axis=1) == 1).mean()
    error = 4 * math.sqrt(0.05 * 0.95 / DRAWS)
    assert ranges < 0.05 + error and missing < 0.025 + error
    assert best.sum() == 1 or alone < 0.05 + error
    if spread == 1:
        assert ranges > 0.05 - error and missing > 0.025 - error


def test_candidates_exactly() -> None:
    for confidence in (0.8, 0.95):
        limit = NORMAL.inv_cdf((1 + confidence) / 2)  # two models: the two-sided z test
        for gap, alone in ((limit - 1e-6, False), (limit + 1e-6, True)):
            found = best_candidates([gap * 0.5, 0.0], [0.3, 0.4], confidence)
            assert found.tolist() == [True, not alone]
    # Equal sigmas: Dunnett's one-sided limit, by the normal in three dimensions.
    rho = np.full((3, 3), 0.5) + np.eye(3) / 2

    def excess(c: float) -> Any:
        return scipy.stats.multivariate_normal.cdf([c] * 3, cov=rho) - 0.975

    limit = scipy.optimize.brentq(excess, 1.5, 3.5, xtol=1e-5)
    for gap, stays in ((limit - 2e-3, True), (limit + 2e-3, False)):
        assert best_candidates([gap * math.sqrt(2), 0, -9, -9], 1.0)[1] == stays
    assert best_candidates([0.4], 0.0).tolist() == [True]
    assert best_candidates([3, 1, 3], 0.0).tolist() == [True, False, True]


def test_q_values_are_those_of_scipy() -> None:
    rng = np.random.default_rng(2)
    for n in (1, 2, 40):
        p = rng.random(n) ** 3
        close(q_values(p), scipy.stats.false_discovery_control(p))
    assert q_values([]).shape == (0,)


def test_chances_to_be_the_best_are_those_of_drawn_posteriors() -> None:
    """Drawn from the model's own definition: tau and m by importance, then theta."""
    x, sigma = np.array([0.3, 0.1, 0.0, -0.2]), np.array([0.1, 0.25, 0.15, 0.3])
    rng, n = np.random.default_rng(3), 400_000
    scale = 1 / math.sqrt(np.mean(1 / sigma**2))
    tau = np.abs(scale * np.tan(np.pi * (rng.random((n, 1)) - 0.5)))
    total = sigma**2 + tau**2
    of_mean = 1 / (1 / total).sum(axis=1)
    mean = (x / total).sum(axis=1) * of_mean
    fit = scipy.stats.norm.pdf(x, mean[:, None], np.sqrt(total)).prod(axis=1) * np.sqrt(of_mean)
    m = (mean + np.sqrt(of_mean) * rng.normal(size=n))[:, None]
    own = 1 / (1 / sigma**2 + 1 / tau**2)
    theta = own * (x / sigma**2 + m / tau**2) + np.sqrt(own) * rng.normal(size=(n, 4))
    share = np.bincount(theta.argmax(axis=1), weights=fit, minlength=4) / fit.sum()
    close(probability_best(x, sigma), share, 0.005)
