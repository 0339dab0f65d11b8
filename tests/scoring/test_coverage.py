"""The coverage study against exact binomial sums and known failures."""

import itertools

import numpy as np
import pytest
from scipy import stats

from bayes_at_n import scoring
from bayes_at_n.scoring import Counts


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
