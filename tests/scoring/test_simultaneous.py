"""All models at once: against scipy's distributions, exact cases and draws of known truth."""

import math
import statistics
from typing import Any

import numpy as np
import pytest
import scipy.stats
from helpers import close

from bayes_at_n.scoring import (
    best_candidates,
    pairs_quantile,
    probability_best,
    q_values,
    rank_ranges,
)

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
