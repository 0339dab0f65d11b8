"""The simulations against exact distributions, plain loops over scoring.bayes, and the papers."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import integrate, stats

from bayes_at_n import scoring
from bayes_at_n.scoring.numerics.coins import beta_given_mean, stream
from bayes_at_n.scoring.numerics.results import bayes_from_counts
from bayes_at_n.scoring.studies import simulation
from bayes_at_n.scoring.studies.simulation import (
    ORIGINAL_SHAPES,
    coin_models,
    original_models,
    prior_study,
    separation_curve,
    toss,
    tosses,
    updated_models,
)

PRINTED = [0.2332, 0.2545, 0.3604, 0.3642, 0.3642, 0.4466, 0.5418, 0.5276, 0.608, 0.6213, 0.7327]
PRINTED_ORIGINALS = [0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487]


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


# Coins with a given mean.


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


def test_conditional_beta_does_not_depend_on_the_place_of_a_coin() -> None:
    # LLM10: 2.3 standard deviations from the mean of its Beta(12, 6), where a start that is
    # merely shifted would leave a trace.
    p = coin_models(3, sets=3000)[:, 9]
    assert abs(p.mean() - 0.6213) < 1e-12
    assert stats.ks_2samp(p[:, 0], p[:, -1]).pvalue > 1e-3
    # Independent check of the spread: keep, of plain draws, those with about that mean.
    plain = np.random.default_rng(5).beta(12, 6, (300_000, 30))
    near = plain[np.abs(plain.mean(axis=1) - 0.6213) < 0.002]
    assert len(near) > 500
    spread = near.std(axis=1).mean()
    error = math.hypot(near.std(axis=1).std() / len(near) ** 0.5, p.std(axis=1).std() / 3000**0.5)
    assert abs(p.std(axis=1).mean() - spread) < 4 * error


def test_coin_models_have_the_printed_means_and_the_printed_tie() -> None:
    p = coin_models(0)
    assert p.shape == (11, 30) and p.dtype == np.float64
    assert ((p > 0) & (p < 1)).all()
    np.testing.assert_allclose(p.mean(axis=1), PRINTED, atol=1e-12)
    assert (p[3] == p[4]).all()
    assert len({tuple(row) for row in p}) == 10
    many = coin_models(0, sets=40)
    np.testing.assert_allclose(many.mean(axis=2), np.broadcast_to(PRINTED, (40, 11)), atol=1e-12)
    assert len(np.unique(many[:, :, 0])) == 400
    # Of each model's shape, not only of its mean: Beta(i, 18 - i) has variance m (1 - m) / 19,
    # and keeps it nearly when its mean is moved by conditioning.
    for model, mean in enumerate(PRINTED):
        variance = many[:, model].var(axis=1, ddof=1).mean()
        assert variance == pytest.approx(mean * (1 - mean) / 19, rel=0.1)


# Tosses.


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


# Separation.


def test_separation_probability_agrees_with_the_exact_one() -> None:
    p = coin_models(11)
    steps, replicates = (1, 7, 80), 8000
    curve = separation_curve(p[9], p[8], steps, replicates, seed=2)
    for at, n in enumerate(steps):
        found = (curve.above[at], curve.tied[at])
        for got, exact in zip(found, exact_order(p[9], p[8], n), strict=True):
            assert abs(got - exact) < 4 * math.sqrt(exact * (1 - exact) / replicates)


def test_separation_z_agrees_with_bayes_on_whole_matrices() -> None:
    p = coin_models(11)[[9, 8]]
    curve = separation_curve(p[0], p[1], (5, 12), 6000, seed=2)
    zs = []
    for R in tosses(p, 12, 500, seed=9):
        row = []
        for n in (5, 12):
            (mu_a, sigma_a), (mu_b, sigma_b) = (scoring.bayes(one[:, :n]) for one in R)
            row.append(abs(mu_a - mu_b) / math.hypot(sigma_a, sigma_b))
        zs.append(row)
    plain = np.array(zs)
    error = plain.std(axis=0, ddof=1) / math.sqrt(len(plain))
    assert (np.abs(curve.z - plain.mean(axis=0)) < 4 * error).all()


def test_separation_sums_are_those_of_bayes() -> None:
    # Three runs of one trial and more, exactly: the same numbers through the posterior itself.
    R = toss(np.full((3, 2, 5), 0.6), 9, seed=1)
    correct = R.sum(axis=-1).astype(np.int64)
    above, tied, z = simulation._separation(correct, 9)
    mu, sigma = bayes_from_counts(
        np.stack([9 - correct, correct], axis=-1), np.array([0.0, 1.0]), 0
    )
    expected = (mu[:, 0] - mu[:, 1]) / np.hypot(sigma[:, 0], sigma[:, 1])
    assert above == sum(expected > 1e-12) and tied == sum(np.abs(expected) <= 1e-12)
    assert z == pytest.approx(np.abs(expected).sum(), abs=1e-12)


def test_separation_is_vectorised_over_leading_axes_and_bounded() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.random((4, 1, 6)), rng.random((3, 6))
    curve = separation_curve(a, b, (2, 3), 3000, seed=1)
    assert curve.above.shape == curve.tied.shape == curve.z.shape == (4, 3, 2)
    for i, j in itertools.product(range(4), range(3)):
        above, _ = exact_order(a[i, 0], b[j], 3)
        assert abs(curve.above[i, j, 1] - above) < 4.5 * math.sqrt(0.25 / 3000)
    again = separation_curve(a, b, (2, 3), 3000, seed=1)
    assert all((one == other).all() for one, other in zip(curve, again, strict=True))


def test_coins_meet_the_paper_over_reconstructed_sets() -> None:
    # Paper: P = .837 at N = 80 and mean |z| about 1.14, 1.645, 1.96 at N = 80, 199, 285.
    models = coin_models(0, sets=25)
    study = separation_curve(models[:, 9], models[:, 8], (80, 199, 285), 1000, seed=0)
    assert study.above.shape == (25, 3)
    assert study.above[:, 0].min() >= 0.79 and study.above[:, 0].max() <= 0.87
    np.testing.assert_allclose(study.above.mean(axis=0), [0.831, 0.936, 0.966], atol=0.007)
    np.testing.assert_allclose(study.z.mean(axis=0), [1.145, 1.59, 1.865], atol=0.015)
    # Without the noise of replicates the sets hardly differ, and .837 is about there.
    exact = np.array([exact_order(p[9], p[8], 80) for p in models])
    assert exact[:, 0].min() > 0.79 and exact[:, 0].max() < 0.86
    assert abs(exact[:, 0].mean() - 0.837) < 0.01
    assert np.abs(study.above[:, 0] - exact[:, 0]).max() < 4.5 * math.sqrt(0.83 * 0.17 / 1000)
    # z of the mean difference is another, smaller number than the mean of |z|.
    mu, sigma = bayes_from_counts(
        np.stack([80 * (1 - models), 80 * models], axis=-1), np.array([0.0, 1.0]), 0
    )
    of_means = (mu[:, 9] - mu[:, 8]) / np.hypot(sigma[:, 9], sigma[:, 8])
    assert (of_means < study.z[:, 0] - 0.1).all()


# Updated models and priors.


def test_original_and_updated_models_are_what_they_say() -> None:
    p = original_models(0)
    assert p.shape == (8, 30)
    np.testing.assert_allclose(p.mean(axis=1), PRINTED_ORIGINALS, atol=1e-12)
    assert ORIGINAL_SHAPES[0] == (4, 11) and ORIGINAL_SHAPES[-1] == (11, 4)
    # The four mixtures of (a +- 1, b +- 1), equally likely, have this mean and this CDF.
    updates = updated_models([(4, 11), (9, 6)], 4000, seed=3)
    assert updates.shape == (4000, 2, 30)
    for model, (a, b) in enumerate(((4, 11), (9, 6))):
        moved = [(a + d, b + e) for d in (-1, 1) for e in (-1, 1)]

        def cdf(x: np.ndarray, moved: list[tuple[int, int]] = moved) -> np.ndarray:
            return np.mean([stats.beta.cdf(x, *shape) for shape in moved], axis=0)

        assert stats.kstest(updates[:, model, 0], cdf).pvalue > 1e-3
        # One pair of shapes for all thirty questions: the variance of the mean shows it.
        within = np.mean([s * t / ((s + t) ** 2 * (s + t + 1)) for s, t in moved]) / 30
        between = np.var([s / (s + t) for s, t in moved])
        assert updates[:, model].mean(axis=1).var() == pytest.approx(within + between, rel=0.1)


def test_updates_meet_the_printed_anchors() -> None:
    # Printed: mean tau .88, about 86% of updates with another ranking. By scipy.
    truth = updated_models(ORIGINAL_SHAPES, 3000, seed=1).mean(axis=2)
    taus = np.array([stats.kendalltau(row, np.arange(8)).statistic for row in truth])
    assert abs(taus.mean() - 0.88) < 0.01
    assert abs((taus < 1 - 1e-9).mean() - 0.86) < 0.02
    study = prior_study(3000, (1,), (1,), seed=1)
    assert abs(study.update_tau - 0.88) < 0.01
    assert abs(study.changed - 0.86) < 0.02


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


def test_priors_help_at_small_n_and_strong_ones_hurt_later() -> None:
    # Fig. 2 of the paper's first version.
    study = prior_study(2000, (1, 2, 4, 8, 16, 32, 64), seed=3)
    assert study.tau.shape == (6, 7)
    assert not study.undefined.any()
    gain, error = study.gain, study.gain_error
    assert (gain[0] == 0).all() and (error[0] == 0).all()
    assert (gain[1:4, :2] > 5 * error[1:4, :2]).all()  # D = 1, 2, 4 at N = 1, 2
    assert (gain[1:3, 2] > 3 * error[1:3, 2]).all()  # D = 1, 2 at N = 4
    assert (gain[1:3] > -3 * error[1:3]).all()  # which do no harm later
    assert (gain[4:, 4:] < -3 * error[4:, 4:]).all()  # D = 8, 16 from N = 16 on
    assert (gain[5, 4:] < gain[4, 4:]).all()
    assert (np.diff(study.tau[0]) > 0).all()
    np.testing.assert_allclose(gain, study.tau - study.tau[0], atol=1e-12)


def test_undefined_taus_are_counted_and_not_averaged(monkeypatch: pytest.MonkeyPatch) -> None:
    # One question and near-certain failure: nearly always all models are level.
    monkeypatch.setattr(simulation.coins, "QUESTIONS", 1)
    monkeypatch.setattr(
        simulation, "original_models", lambda seed: np.full((8, 1), 0.02, dtype=np.float64)
    )
    monkeypatch.setattr(simulation, "ORIGINAL_SHAPES", ((2, 60),) * 8)
    study = prior_study(600, (1, 4), (1,), seed=0)
    truth = updated_models([(2, 60)] * 8, 20_000, seed=5)[..., 0]
    # No model succeeds in any trial, or all in each; the latter never happens here.
    for at, n in enumerate((1, 4)):
        level = ((1 - truth) ** n).prod(axis=1).mean()
        spread = math.sqrt(600 * level * (1 - level))
        assert abs(study.undefined[0, at] - 600 * level) < 4 * spread
    assert (study.undefined[1] < study.undefined[0]).all()
    assert all(np.isfinite(part).all() for part in study)
    # tau of those defined is well above zero; with zeros for the others it would not be.
    assert study.tau[0, 0] > 4 * study.tau_error[0, 0] > 0
    with pytest.raises(ValueError, match="replicates"):
        prior_study(2, (1,), (1,), seed=1)


# Reproducible, and bad input.


def test_same_seed_same_numbers() -> None:
    first, second = (prior_study(300, (1, 3), (2,), seed=5) for _ in range(2))
    other = prior_study(300, (1, 3), (2,), seed=6)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert not np.array_equal(first.tau, other.tau)
    # The pieces that replicates are streamed in are not the same one over and over.
    one, two = (prior_study(n * simulation.CHUNK, (1,), (1,), seed=5) for n in (1, 2))
    assert one.update_tau != two.update_tau and (one.tau != two.tau).all()
    assert (coin_models(2) == coin_models(2)).all()
    assert (coin_models(2) != coin_models(3)).any()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: coin_models(-1), "seed is -1: pass a whole number, at least 0"),
        (lambda: coin_models(1.5), "seed is 1.5"),
        (lambda: coin_models(1, sets=0), "sets is 0"),
        (lambda: toss([0.5, 1.2], 3, 0), r"p holds 1.2: probabilities lie between 0 and 1"),
        (lambda: toss([0.5, math.nan], 3, 0), "p holds nan"),
        (lambda: toss([], 3, 0), "p has shape"),
        (lambda: toss([[0.5], [0.5, 0.5]], 3, 0), "p is not an array"),
        (lambda: toss(["a"], 3, 0), "p has dtype"),
        (lambda: toss([0.5], 0, 0), "trials is 0"),
        (lambda: toss([0.5], True, 0), "trials is True"),
        (lambda: tosses([0.5], 1, 0, 0), "matrices is 0"),
        (lambda: tosses([0.5], 1, 1, -2), "seed is -2"),
        (lambda: separation_curve([0.5], [0.5, 0.5], (1,), 1, 0), "1 questions and p_b 2"),
        (lambda: separation_curve(np.ones((2, 3)), np.ones((4, 3)), (1,), 1, 0), "leading axes"),
        (lambda: separation_curve([0.5], [0.5], (3, 2), 1, 0), "increasing"),
        (lambda: separation_curve([0.5], [0.5], (0, 2), 1, 0), "increasing"),
        (lambda: separation_curve([0.5], [0.5], (), 1, 0), "trials is"),
        (lambda: separation_curve([0.5], [0.5], (1.0,), 1, 0), "trials is"),
        (lambda: separation_curve([0.5], [0.5], (1,), 0, 0), "replicates is 0"),
        (lambda: updated_models([(4, 11, 2)], 1, 0), "shapes is"),
        (lambda: updated_models([(1, 11)], 1, 0), "finite numbers above 1"),
        (lambda: updated_models([(4, math.inf)], 1, 0), "finite numbers above 1"),
        (lambda: prior_study(1, (1,), seed=0), "replicates is 1"),
        (lambda: prior_study(5, (1,), (2, 1), seed=0), "strengths is"),
    ],
)
def test_bad_input_is_named(call, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
