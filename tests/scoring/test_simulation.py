"""The simulations against exact distributions, plain loops over scoring.bayes, and the papers."""

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from bayes_at_n import scoring
from bayes_at_n.scoring.studies.simulation import (
    ORIGINAL_SHAPES,
    beta_given_mean,
    coin_models,
    original_models,
    prior_study,
    separation_curve,
    stream,
    toss,
    tosses,
    updated_models,
)


def total_distribution(p: np.ndarray, n: int) -> np.ndarray:
    """Probabilities of each number of successes over all questions, by convolution."""
    total = np.array([1.0])
    for chance in p:
        total = np.convolve(total, stats.binom.pmf(np.arange(n + 1), n, chance))
    return total


def exact_order(p_a: np.ndarray, p_b: np.ndarray, n: int) -> tuple[float, float]:
    """Probability that A is above B, and that they are tied, after n trials of each question."""
    a, b = total_distribution(p_a, n), total_distribution(p_b, n)
    return float(a[1:] @ np.cumsum(b)[:-1]), float(a @ b)


def test_conditional_beta_is_the_exact_conditional_distribution() -> None:
    # Two coins: the density of the first given the sum is f(x) f(s - x), by quadrature.
    a, b, mean = 3.0, 5.0, 0.55
    draws = beta_given_mean(stream(0), a, b, mean, questions=2, sets=20_000)
    assert draws.shape == (20_000, 2)
    np.testing.assert_allclose(draws.mean(axis=1), mean, atol=1e-12)

    def density(x: float) -> float:
        return float(stats.beta.pdf(x, a, b) * stats.beta.pdf(2 * mean - x, a, b))

    norm = integrate.quad(density, 2 * mean - 1, 1)[0]
    grid = np.linspace(2 * mean - 1, 1, 400)
    cdf = [integrate.quad(density, grid[0], x)[0] / norm for x in grid]
    for column in draws.T:  # the last coin, which is not drawn freely, included
        assert stats.kstest(column, lambda x: np.interp(x, grid, cdf)).pvalue > 1e-3


def test_tosses_are_independent_reproducible_and_of_the_right_rate() -> None:
    p = np.array([[0.0, 0.2, 0.5], [1.0, 0.9, 0.35]])
    R = toss(p, trials=20_000, seed=4)
    assert R.shape == (2, 3, 20_000) and R.dtype == np.uint8 and set(np.unique(R)) == {0, 1}
    assert (R[0, 0] == 0).all() and (R[1, 0] == 1).all()
    error = np.sqrt(p * (1 - p) / 20_000)
    assert (np.abs(R.mean(axis=2) - p) <= 4.5 * error).all()
    rows = R.reshape(6, -1)[[1, 2, 4, 5]].astype(float)
    assert np.abs(np.corrcoef(rows) - np.eye(4)).max() < 4.5 / math.sqrt(20_000)
    stacks = list(tosses(p, 50, 4, seed=7))
    assert (stacks[0] == toss(p, 50, seed=7)).all()
    # One stack is the same however many are asked for, and no two are alike.
    for a, b in zip(stacks, tosses(p, 50, 3, seed=7), strict=False):
        assert (a == b).all()
    assert all((a != b).any() for a, b in itertools.combinations(stacks, 2))
    assert (toss(p, 50, seed=8) != stacks[0]).any()


def test_separation_probability_agrees_with_the_exact_one() -> None:
    p = coin_models(11)
    steps, replicates = (1, 7, 80), 8000
    curve = separation_curve(p[9], p[8], steps, replicates, seed=2)
    for at, n in enumerate(steps):
        found = (curve.above[at], curve.tied[at])
        for got, exact in zip(found, exact_order(p[9], p[8], n), strict=True):
            assert abs(got - exact) < 4 * math.sqrt(exact * (1 - exact) / replicates)


def plain_prior_study(
    replicates: int, trials: tuple[int, ...], strengths: tuple[int, ...]
) -> np.ndarray:
    """tau of each replicate, (replicates, 1 + strengths, trials), by matrices and scipy."""
    original = original_models(6)
    updates = updated_models(ORIGINAL_SHAPES, replicates, seed=77)
    taus = np.empty((replicates, 1 + len(strengths), len(trials)))
    R0s = tosses(original, max(strengths), replicates, seed=13)
    for r, (p, R0) in enumerate(zip(updates, R0s, strict=True)):
        R = toss(p, max(trials), seed=1000 + r)
        for (i, d), (j, n) in itertools.product(enumerate((0, *strengths)), enumerate(trials)):
            mu, _ = scoring.bayes(R[..., :n], R0=R0[..., :d] if d else None)
            taus[r, i, j] = stats.kendalltau(np.round(mu, 12), p.mean(axis=1)).statistic
    return taus


def test_prior_study_agrees_with_a_plain_loop() -> None:
    trials, strengths = (1, 6), (1, 8)
    plain = plain_prior_study(400, trials, strengths)
    study = prior_study(4000, trials, strengths, seed=6)
    error = np.hypot(plain.std(axis=0, ddof=1) / 20, study.tau_error)
    assert (np.abs(study.tau - plain.mean(axis=0)) < 4 * error).all()
    gains = plain - plain[:, :1]
    error = np.hypot(gains.std(axis=0, ddof=1) / 20, study.gain_error)
    assert (np.abs(study.gain - gains.mean(axis=0)) <= 4 * error).all()
    # The errors themselves: spread over replicates, by the square root of their number.
    ratio = study.tau_error / (plain.std(axis=0, ddof=1) / math.sqrt(4000))
    assert (np.abs(ratio - 1) < 0.2).all()
    ratio = study.gain_error[1:] / (gains[:, 1:].std(axis=0, ddof=1) / math.sqrt(4000))
    assert (np.abs(ratio - 1) < 0.2).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: toss([0.5, 1.2], 3, 0), "p holds 1.2"),
        (lambda: separation_curve([0.5], [0.5], (3, 2), 1, 0), "increasing"),
        (lambda: updated_models([(4, math.inf)], 1, 0), "above 1"),
        (lambda: prior_study(5, (1,), (2, 1), seed=0), "strengths is"),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
