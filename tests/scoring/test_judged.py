"""Labels of people beside a judge's words: enumeration, special cases, and simulated truth."""

import itertools
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bayes_at_n import scoring
from bayes_at_n.scoring import drawn_sample, label_chances, labeled, prediction_powered

F, Y = [1, 1, 0, 0, 1, 0, 1], [0, 1, 1, 0, 1, 0, 0]


@pytest.mark.parametrize("m", [1, 3, 6, 7])
@pytest.mark.parametrize("rate", [0, Fraction(1, 2), 1])
def test_the_mean_over_all_samples_is_the_truth(m: int, rate: Fraction) -> None:
    samples = list(itertools.combinations(range(7), m))
    found = [
        prediction_powered(labeled(F, [Y[i] for i in at], at), rate=float(rate)) for at in samples
    ]
    assert np.mean([one.value for one in found]) == pytest.approx(3 / 7, abs=1e-12)
    for at, one in zip(samples, found, strict=True):
        by_hand = rate * Fraction(sum(F), 7) + sum(Y[i] - rate * F[i] for i in at) * Fraction(1, m)
        assert one.value == pytest.approx(float(by_hand), abs=1e-12)
    if m == 7:  # nothing is left to chance
        assert found[0].low == pytest.approx(3 / 7) == pytest.approx(found[0].high)


def test_unequal_chances_are_weighed_as_horvitz_and_thompson_do() -> None:
    """Over all Poisson samples the weights are unbiased; the value is Hajek's ratio of two."""
    chances, weights = np.linspace(0.2, 0.8, 7), np.array([1, 1, 1, 2, 2, 3, 4]) / 14
    total = 0.0
    for drawn in itertools.product([0, 1], repeat=7):
        at = np.flatnonzero(drawn)
        likely = np.where(drawn, chances, 1 - chances).prod()
        if not at.size:
            continue
        error = np.array(Y)[at] - 0.5 * np.array(F)[at]
        share = weights[at] / chances[at]
        total += likely * float(share @ error)
        sample = labeled(F, np.array(Y)[at], at, weights, chances[at])
        found = prediction_powered(sample, rate=0.5)
        by_hand = 0.5 * float(weights @ F) + float(share @ error / share.sum())
        assert found.value == pytest.approx(by_hand, abs=1e-12)
    assert total + 0.5 * float(weights @ F) == pytest.approx(float(weights @ Y))


@pytest.mark.parametrize("chosen", [False, True])
@pytest.mark.parametrize("lenient", [False, True])
def test_the_interval_holds_the_truth_and_sigma_is_its_error(lenient: bool, chosen: bool) -> None:
    """30 questions, 40 trials, 60 labels, a bias of 10 points that differs by question."""
    rng, questions, rows = np.random.default_rng(7), np.repeat(np.arange(30), 40), []
    for _ in range(300):
        p, rate = rng.beta(1, 1, (30, 1)), rng.beta(0.2, 0.8, (30, 1))
        y = rng.random((30, 40)) < p
        wrong = ((y != lenient) & (rng.random(y.shape) < rate)).ravel()
        y = y.ravel().astype(float)
        f = np.where(wrong, 1 - y, y)
        hint = rng.random(1200) < np.where(wrong, 0.7, 0.05)
        chances = label_chances(np.where(chosen & hint, 0.5, 0.02), 60)
        at = drawn_sample(chances, rng)
        found = prediction_powered(labeled(f, y[at], at, None, chances[at], questions))
        assert found.pool is not None
        held = found.low <= p.mean() <= found.high, found.pool.low <= 0.5 <= found.pool.high
        rows.append([*held, found.value - p.mean(), found.sigma**2])
    held, pool, error, variance = np.array(rows, float).T
    assert held.mean() > 0.93 and pool.mean() > 0.92  # of 300: two standard errors are .025
    assert abs(error.mean()) < 4 * error.std() / 300**0.5
    assert 0.75 < error.std() / variance.mean() ** 0.5 < 1.05  # padded by two errors of 62


@pytest.mark.parametrize(("trials", "labels"), [(1, 30), (2, 60), (4, 60), (4, 120)])
@pytest.mark.parametrize("spread", [1, 20])
def test_few_trials_are_no_proof_of_fixed_questions(trials: int, labels: int, spread: int) -> None:
    """30 questions, a judge that never errs: what is left is the luck of trials."""
    rng, questions, held = np.random.default_rng(3), np.repeat(np.arange(30), trials), []
    for _ in range(300):
        p = rng.beta(spread, spread, (30, 1))
        y = (rng.random((30, trials)) < p).ravel().astype(float)
        at = rng.permutation(y.size)[:labels]
        sample = labeled(y, y[at], at, questions=questions)
        for found in (prediction_powered(sample), scoring.misclassification(sample).score):
            held.append(found.low <= p.mean() <= found.high)
    assert np.reshape(held, (300, 2)).mean(axis=0).min() > 0.91  # of .95; two errors are .025


def test_misclassification_is_a_stratified_beta_posterior() -> None:
    f = np.repeat([1.0, 0.0], [6000, 4000])
    groups = np.tile([0, 1], 5000)
    at = np.r_[0:40, 6000:6060]
    y = np.r_[np.arange(40) >= 4, np.arange(60) < 3].astype(float)
    found = scoring.misclassification(labeled(f, y, at), groups=groups)
    mean = variance = 0.0
    cells = {}
    for word, group in itertools.product((0, 1), (0, 1)):
        own = (f[at] == word) & (groups[at] == group)
        a, b = 0.5 + y[own].sum(), 0.5 + (1 - y[own]).sum()
        share = 0.3 if word else 0.2
        cells[word, group] = share * a / (a + b)
        mean += share * a / (a + b)
        variance += share**2 * a * b / (a + b) ** 2 / (a + b + 1)
    assert found.score.value == pytest.approx(mean, abs=0.002)
    assert found.score.sigma == pytest.approx(variance**0.5, rel=0.05)
    for group in (0, 1):
        plain = cells[1, group] / (cells[0, group] + cells[1, group])
        assert found.sensitivity.value[group] == pytest.approx(plain, abs=0.01)
        assert found.sensitivity.low[group] < plain < found.sensitivity.high[group]


def test_chances_are_kept_by_the_draw() -> None:
    doubts = np.array([1.0] * 3 + [0.04] * 40 + [0] * 57)
    chances = label_chances(doubts, 20)
    assert chances.sum() == pytest.approx(20) and (chances[:3] == 1).all() and chances[-1] > 0
    rng, times = np.random.default_rng(1), np.zeros(100)
    for _ in range(2000):
        at = drawn_sample(chances, rng)
        assert at.size == 20 == np.unique(at).size
        times[at] += 1
    error = np.sqrt(2000 * chances * (1 - chances)) + 1e-9
    assert (abs(times - 2000 * chances) < 4.5 * error).all()


@pytest.mark.parametrize(
    "change",
    [
        {"labels": []},
        *({"at": at} for at in ([0, 0], [0, 9])),
        {"labels": [0, 2]},
        {"predicted": [0, np.nan, 1]},
        {"weights": [1, 1, 1]},
        {"chances": [0, 1]},
    ],
)
def test_what_is_no_sample_is_refused(change: dict[str, Any]) -> None:
    sound = {"predicted": [0, 1, 1], "labels": [0, 1], "at": [0, 1]}
    labeled(**sound)
    with pytest.raises(ValueError):
        labeled(**sound | change)
