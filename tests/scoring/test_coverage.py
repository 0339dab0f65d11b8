"""The coverage study against exact binomial sums and known failures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from bayes_at_n import scoring
from bayes_at_n.scoring import Counts
from benchmarks.coverage import coverage


def test_bayes_fails_on_easy_questions_and_avg_does_not() -> None:
    found = coverage(["bayes", "avg", "empirical_bayes"], [0.97] * 30, 80, replicates=4000)
    assert found["bayes"].coverage == pytest.approx(0.13, abs=0.02)
    assert found["avg"].coverage == pytest.approx(0.97, abs=0.012)
    assert 0.9 <= found["empirical_bayes"].coverage <= 0.97
    # With equal N the bias of Bayes@N is known: ((N p + 1) / (N + 2)) - p.
    bayes = found["bayes"]
    assert bayes.bias == pytest.approx((0.97 * 80 + 1) / 82 - 0.97, abs=4 * bayes.bias_se)
    assert abs(found["empirical_bayes"].bias) < 0.1 * abs(bayes.bias)


@pytest.mark.parametrize(
    ("p", "trials"),
    [
        ([0.97] * 30, 1),
        ([1.0] * 29 + [0.1], 16),
        ([1.0, 0.0] * 15 + [0.5], 4),
        ([0.995] * 30, 16),
        ([0.03] * 5, 4),
    ],
    ids=["one trial", "one odd", "one even", "nearly all", "few and hard"],
)
def test_the_interval_shown_covers_where_empirical_bayes_may_not(
    p: list[float], trials: int
) -> None:
    found = coverage(["score", "bayes"], p, trials, replicates=1500, seed=5)["score"]
    assert found.coverage >= 0.93


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
