"""Empirical Bayes against dense grids and importance sampling; coverage against exact sums."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

from bayes_at_n import scoring
from bayes_at_n.scoring.metrics.empirical import empirical_bayes_ci, fit_prior
from bayes_at_n.scoring.numerics.inputs import Counts

TINY = [
    ([[0, 1]], "one question, one trial"),
    ([[3, 0], [3, 0]], "all wrong"),
    ([[0, 3], [3, 0], [5, 0]], "different numbers of trials"),
    ([[5, 0], [0, 5], [2, 3], [3, 2]], "spread out"),
    ([[2, 78]] * 5, "all alike"),
    ([[0, 80], [10, 70], [6, 3], [1, 0], [0, 0]], "a question without trials"),
    ([[200, 1000]], "one question, many trials"),
    ([[0, 0]], "nothing at all"),
]


def grid(counts: list[list[int]]) -> dict[str, float]:
    """The posterior of two outcomes on a dense grid of (mean, concentration), Beta functions."""
    ends = np.log([1e-3, 1e6])
    log_s = (ends[0] + (ends[1] - ends[0]) * (np.arange(500) + 0.5) / 500)[:, None]
    s = np.exp(log_s)
    u = np.pi * (np.arange(800) + 0.5) / 800
    q0, q1 = np.cos(u / 2) ** 2, np.sin(u / 2) ** 2  # q1 ~ Beta(1/2, 1/2)
    log_p = log_s - 2 * np.log(100 + s) + np.zeros_like(u)
    mean, variance = np.zeros_like(log_p), np.zeros_like(log_p)
    states, times = np.unique(counts, axis=0, return_counts=True)
    for (wrong, right), same in zip(states, times, strict=True):
        a, b = s * q1 + right, s * q0 + wrong
        log_p += same * (special.betaln(a, b) - special.betaln(s * q1, s * q0))
        mean += same * a / (a + b) / len(counts)
        variance += same * a * b / (a + b) ** 2 / (a + b + 1) / len(counts) ** 2
    weight = special.softmax(log_p)
    mu = (weight * mean).sum()
    middle, q = (weight * log_s).sum(), (weight * q1).sum()
    return {
        "mu": mu,
        "sigma": math.sqrt((weight * (variance + (mean - mu) ** 2)).sum()),
        "q": q,
        "q_sd": math.sqrt((weight * (q1 - q) ** 2).sum()),
        "log_s": middle,
        "log_s_sd": math.sqrt((weight * (log_s - middle) ** 2).sum()),
    }


def sampled(counts: Any, w: Any, draws: int = 300_000) -> tuple[float, float, float, float]:
    """mu, sigma, mean and deviation of log s, any number of outcomes: draws of the hyperprior."""
    rng = np.random.default_rng(7)
    n, weights = np.asarray(counts), np.asarray(w)
    uniform = rng.random(draws)
    s = 100 * uniform / (1 - uniform)
    q = rng.dirichlet(np.full(n.shape[1], 1 / n.shape[1]), draws)
    nu = np.maximum(s[:, None] * q, 1e-300)
    log_p, mean, variance = np.zeros(draws), np.zeros(draws), np.zeros(draws)
    for row in n:
        after = nu + row
        total = after.sum(axis=1)
        log_p += (special.gammaln(after) - special.gammaln(nu)).sum(axis=1)
        log_p += special.gammaln(s) - special.gammaln(total)
        m = after @ weights / total
        mean += m / len(n)
        variance += (after @ weights**2 / total - m**2) / (total + 1) / len(n) ** 2
    p = special.softmax(log_p)
    assert 1 / (p**2).sum() > 500, "too few draws count"
    mu = p @ mean
    log_s = p @ np.log(s)
    spread = math.sqrt(p @ (np.log(s) - log_s) ** 2)
    return float(mu), math.sqrt(p @ (variance + (mean - mu) ** 2)), log_s, spread


@pytest.mark.parametrize(("counts", "what"), TINY, ids=[what for _, what in TINY])
def test_the_integral_is_that_of_a_dense_grid(counts: list[list[int]], what: str) -> None:
    wanted = grid(counts)
    mu, sigma, *ends = empirical_bayes_ci(Counts(counts))
    size = mu * (1 - mu) / sigma**2 - 1
    assert ends == pytest.approx(stats.beta(mu * size, (1 - mu) * size).interval(0.95), rel=0.01)
    prior = fit_prior(Counts(counts))
    assert mu == pytest.approx(wanted["mu"], abs=2e-5)
    assert sigma == pytest.approx(wanted["sigma"], rel=1e-3)
    assert prior.mean == pytest.approx([1 - wanted["q"], wanted["q"]], abs=1e-4)
    assert prior.mean_sd == pytest.approx([wanted["q_sd"]] * 2, rel=2e-3)
    assert math.log(prior.concentration) == pytest.approx(wanted["log_s"], abs=5e-3)
    assert prior.log_concentration_sd == pytest.approx(wanted["log_s_sd"], rel=5e-3)


@pytest.mark.parametrize(
    ("counts", "w"),
    [
        ([[1, 0, 0]], [0, 0.5, 1]),
        ([[2, 1, 0], [0, 3, 1], [1, 1, 1]], [0, 0.5, 1]),
        ([[0, 0, 4], [0, 0, 4], [0, 0, 4]], [0, 0.5, 1]),
        ([[4, 0, 0], [0, 6, 0], [1, 0, 2], [0, 0, 0]], [1, -2, 0.5]),
        ([[3, 1, 0, 0], [1, 0, 2, 0], [0, 5, 0, 0]], [0, 1, 2, 3]),
        ([[2, 3, 0, 0, 0, 0], [3, 2, 0, 0, 0, 0], [1, 4, 0, 0, 0, 0]], [0, 1, 2, 3, 4, 5]),
    ],
)
def test_more_outcomes_against_draws_from_the_hyperprior(counts: Any, w: Any) -> None:
    mu, sigma, log_s, spread = sampled(counts, w)
    found = empirical_bayes_ci(Counts(counts), w)[:2]
    prior = fit_prior(Counts(counts), categories=len(w))
    assert found[0] == pytest.approx(mu, abs=0.05 * sigma)
    assert found[1] == pytest.approx(sigma, rel=0.06)
    assert math.log(prior.concentration) == pytest.approx(log_s, abs=0.03 * spread)
    assert prior.log_concentration_sd == pytest.approx(spread, rel=0.03)


def test_stacks_masks_and_counts_are_one_thing() -> None:
    rng = np.random.default_rng(1)
    R = rng.integers(0, 3, size=(2, 3, 5, 4))
    hidden = rng.random(R.shape) < 0.4
    masked = np.ma.masked_array(R, hidden)
    w = [0.0, 0.3, 1.0]
    counts = np.stack([((k == R) & ~hidden).sum(axis=-1) for k in range(3)], axis=-1)
    whole = empirical_bayes_ci(masked, w)
    assert all(part.shape == (2, 3) for part in whole)
    from_counts = empirical_bayes_ci(Counts(counts), w)
    assert all(np.array_equal(a, b) for a, b in zip(whole, from_counts, strict=True))
    one = empirical_bayes_ci(Counts(counts[1, 2]), w)
    assert one == pytest.approx([part[1, 2] for part in whole], rel=1e-7)


def test_weights_shift_and_scale_and_outcomes_can_be_swapped() -> None:
    counts = np.array([[1, 9], [4, 6], [0, 10], [0, 3]])
    mu, sigma, lo, hi = empirical_bayes_ci(Counts(counts))
    found = empirical_bayes_ci(Counts(counts), [-3.0, 7.0])
    assert found == pytest.approx((10 * mu - 3, 10 * sigma, 10 * lo - 3, 10 * hi - 3))
    found = empirical_bayes_ci(Counts(counts[:, ::-1]))
    assert found == pytest.approx((1 - mu, sigma, 1 - hi, 1 - lo))
    assert empirical_bayes_ci(Counts(counts), [2.0, 2.0]) == (2.0, 0.0, 2.0, 2.0)
    assert empirical_bayes_ci(Counts([[3], [4]]), [2.0]) == (2.0, 0.0, 2.0, 2.0)


@pytest.mark.parametrize(
    "counts",
    [
        [[0, 1]] * 3000,
        [[0, 10_000]] * 30,
        [[10**12, 3]],
        [[5000, 5000]] * 2000,
        [[0, 0, 7]],
        [[10**9, 0, 10**9]],
        [[0, 0, 0, 0, 0, 3]] * 4,
    ],
)
def test_every_result_is_finite_and_in_range(counts: Any) -> None:
    n = np.array(counts)
    w = np.linspace(0, 1, n.shape[1])
    with np.errstate(all="raise", under="ignore"):
        mu, sigma, lo, hi = empirical_bayes_ci(Counts(n), w)
        prior = fit_prior(Counts(n), categories=n.shape[1])
    assert 0 <= lo < mu < hi <= 1
    assert 0 < sigma < 0.5
    assert np.isfinite([*prior.mean, *prior.mean_sd, prior.concentration]).all()
    assert prior.log_concentration_sd > 0


def test_a_score_is_of_one_model_and_as_it_would_be_alone() -> None:
    rng = np.random.default_rng(2)
    for questions, trials in ((1, 1), (2, 2), (5, 4), (7, 1), (3, 30)):
        R = (rng.random((200, questions, trials)) < rng.beta(0.3, 0.3, (200, questions, 1))) * 1
        found, prior = scoring.score_ci(R), scoring.score_prior(R)
        models = scoring.empirical_bayes_ci(R), scoring.avg_ci(R, bounds=(0.0, 1.0))
        for ours, fitted, plain in zip(found, *models, strict=True):
            assert np.array_equal(ours, np.where(prior == "estimated", fitted, plain))
        mixed = (np.ptp(R, axis=2) > 0).sum(axis=1)
        assert np.array_equal(prior == "estimated", mixed >= 3)
        assert (found.high > found.low).all()
        assert (found.low <= found.value).all() and (found.value <= found.high).all()
        alone = [scoring.score_ci(of) for of in R[:5]]
        assert np.allclose(alone, np.stack(found, axis=1)[:5], atol=1e-9)


def test_weights_and_unequal_numbers_of_trials_have_a_prior_too() -> None:
    rng = np.random.default_rng(4)
    labels = rng.integers(0, 3, (8, 6))
    w = [0.0, 0.5, 1.0]
    assert scoring.score_prior(labels, w) == "estimated"
    assert scoring.score_ci(labels, w) == scoring.empirical_bayes_ci(labels, w)
    # Labels of one weight do not make a question's trials differ.
    assert scoring.score_prior(labels % 2, [0.5, 0.5]) == "none"
    assert scoring.score_ci(labels[:2], w) == scoring.avg_ci(labels[:2], w, bounds=(0.0, 1.0))
    ragged = np.ma.masked_array(labels > 0, rng.random((8, 6)) < 0.3)
    assert scoring.score_ci(ragged) == scoring.empirical_bayes_ci(ragged)
    # Easy questions have two trials and hard ones 80: the prior would take them for hard, too.
    hard = Counts([[0, 2]] * 10 + [[1, 1]] * 5 + [[64, 16]] * 15)
    assert scoring.score_prior(hard) == "none"
    assert scoring.score_ci(hard) == scoring.avg_ci(hard, bounds=(0.0, 1.0))
    assert scoring.empirical_bayes_ci(hard).high < scoring.avg(hard)[0]


@pytest.mark.parametrize(("questions", "votes"), [(6, 1), (30, 5)])
def test_points_of_one_trial(questions: int, votes: int) -> None:
    """The interval is over questions, holds for similar ones, and is not 0 to 1."""
    rng, most = np.random.default_rng(6), 7 * votes
    points = rng.binomial(7, rng.beta(0.4, 0.6, (500, questions, 1)))
    given = rng.binomial(most, 0.05 + 0.9 * points / 7)
    w = np.arange(most + 1) / most
    found, prior = scoring.score_and_prior(given, w)
    assert (prior == "questions").all()
    assert np.allclose(found.low, scoring.pool_ci(given, w).low)
    assert ((found.low <= 0.41) & (found.high >= 0.41)).mean() > 0.93
    assert (found.high - found.low).mean() < 2.2 / questions**0.5


@pytest.mark.parametrize(
    ("questions", "trials", "least"), [(1, 4, 0.853), (1, 8, 0.852), (2, 8, 0.9226), (3, 4, 0.9223)]
)
def test_the_least_coverage_is_that_of_the_docs(questions: int, trials: int, least: float) -> None:
    """Exact sums over all outcomes, where the truth is one of a grid."""
    right = np.array([*itertools.product(range(trials + 1), repeat=questions)])
    _, _, low, high = scoring.score_ci((np.arange(trials) < right[..., None]).astype(int))
    grid = [0.1, 0.15, 0.225, 0.25, 0.415, 0.5] if questions > 1 else np.linspace(0, 1, 201)
    covered = []
    for p in itertools.combinations_with_replacement(grid, questions):
        chance = stats.binom.pmf(right, trials, p).prod(axis=1)
        truth = np.mean(p)
        covered.append(chance[(low - 1e-12 <= truth) & (truth <= high + 1e-12)].sum())
    assert min(covered) == pytest.approx(least, abs=6e-4)
