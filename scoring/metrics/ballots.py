"""Votes that attempts weigh by a score of theirs, and the best attempt by it.

The score may be a confidence (the mean probability of a token) or what a verifier says. Answers are
as in :mod:`scoring.metrics.votes`; an attempt without one neither votes nor is ever chosen before
one that has an answer. Repetitions of the trials are drawn from the attempts with their scores; of
N + 1 draws one is right or wrong by the toss of a coin, so that the rate is (c + 1/2) / (N + 1).

Weighted votes: Li et al., "Making Large Language Models Better Reasoners with Step-Aware Verifier",
arXiv 2206.02336. Best of k: Cobbe et al., "Training Verifiers to Solve Math Word Problems", arXiv
2110.14168.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.votes import REPLICATES, cons_at_k, right
from bayes_at_n.scoring.numerics.arrays import with_masks
from bayes_at_n.scoring.numerics.checks import check_k
from bayes_at_n.scoring.numerics.inputs import Floats, Ints, check_trials
from bayes_at_n.scoring.numerics.results import question_sigma, result

SUBSETS = 1000  # of the trials of a question, where there are more
INNER = 8  # votes of a repetition, if k is small


@dataclass(frozen=True, eq=False)
class Ballots:
    """Answers and scores of attempts, both (..., M, N), answers masked where a trial is missing.

    Scores of attempts with an answer are finite, and for a weighted vote 0 or more.
    """

    answers: npt.ArrayLike
    scores: npt.ArrayLike


def best_at_k(ballots: Ballots, k: int) -> Any:
    """Best@k: the chance that of k of the trials the one with the highest score is right.

    Exact over all k-subsets, by sorting; equal scores share. Averaged over questions: a float, or
    an array (...). Raises ValueError: k below 1 or above the trials of a question; shapes, answers
    or scores that cannot be.

    >>> round(best_at_k(Ballots([[1, 2, 0, 1]], [[0.9, 0.4, 1.0, 0.2]]), 2), 6)
    0.666667
    """
    return result(_each(ballots, k, _best)[..., 0].mean(axis=-1))


def best_at_k_sigma(ballots: Ballots, k: int, replicates: int = REPLICATES) -> Any:
    """Standard deviation of :func:`best_at_k` over repetitions of the trials, by bootstrap."""

    def variance(answers: Ints, scores: Floats, k: int) -> Any:
        rng = np.random.default_rng(answers)
        return _best(*_repeated(answers, scores, replicates, rng), k).var(ddof=1)

    return result(question_sigma(_each(ballots, k, variance)[..., 0]))


def weighted_cons_at_k(ballots: Ballots, k: int, subsets: int = SUBSETS) -> tuple[Any, Any]:
    """Cons@k with the scores as weights, and its Monte Carlo error: floats, or arrays (...).

    The answer with the largest sum of scores among k of the trials; a score of 0 casts no vote.
    Over all k-subsets where there are no more than ``subsets``, as for k = N, and the error is 0.
    Else over so many at random, always the same ones, with Cons@k as control variate: only what the
    weights change is estimated. Errors: :func:`best_at_k`, or a negative score.

    >>> weighted_cons_at_k(Ballots([[1, 2, 2]], [[0.9, 0.3, 0.4]]), 3)
    (1.0, 0.0)
    """

    def sample(answers: Ints, scores: Floats, k: int) -> Any:
        if math.comb(answers.size, k) <= subsets:
            chosen = np.array([*itertools.combinations(range(answers.size), k)])
            return _votes(answers[chosen], scores[chosen]).mean(), 0.0
        chosen = _subsets(np.random.default_rng(answers), subsets, answers.size, k)
        plain = _votes(answers[chosen], np.ones(chosen.shape))
        gain = _votes(answers[chosen], scores[chosen]) - plain
        return cons_at_k(answers[None], k) + gain.mean(), gain.var(ddof=1) / subsets

    moments = _each(ballots, k, sample, 2, least=0.0)
    value = np.clip(moments[..., 0].mean(axis=-1), 0, 1)
    return result(value), result(question_sigma(moments[..., 1]))


def weighted_cons_at_k_sigma(ballots: Ballots, k: int, replicates: int = REPLICATES) -> Any:
    """Standard deviation of :func:`weighted_cons_at_k`: over repetitions of the trials, and error.

    A few subsets of every repetition vote; what they add to the variance is taken off again.
    """

    def variance(answers: Ints, scores: Floats, k: int) -> Any:
        rng = np.random.default_rng(answers)
        again: Any = _repeated(answers, scores, replicates, rng)
        votes = np.empty((max(2, min(INNER, 2 * answers.size // k)), replicates))
        for of_subset in votes:
            chosen = _subsets(rng, replicates, answers.size, k)
            given, weights = (np.take_along_axis(of, chosen, axis=1) for of in again)
            of_subset[:] = _votes(given, weights)
        added = votes.var(axis=0, ddof=1).mean() / len(votes)
        return votes.mean(axis=0).var(ddof=1) - added

    variances = _each(ballots, k, variance, least=0.0)[..., 0]
    sigma = np.sqrt(np.maximum(0, variances.sum(axis=-1))) / variances.shape[-1]
    return result(np.hypot(sigma, weighted_cons_at_k(ballots, k)[1]))


def _each(
    ballots: Ballots, k: int, value: Callable[..., Any], parts: int = 1, least: float = -np.inf
) -> Floats:
    """What a function of answers and scores (N,) and k gives of each question: (..., M, parts)."""
    answers = np.ma.atleast_2d(with_masks(ballots.answers))
    scores = np.ma.atleast_2d(with_masks(ballots.scores)).astype(np.float64).filled(np.nan)
    if answers.shape != scores.shape:
        raise ValueError(f"answers have shape {answers.shape} and scores {scores.shape}")
    there = np.logical_not(np.ma.getmaskarray(answers))  # type: ignore[no-untyped-call]
    given = answers.filled(0)
    if given.dtype.kind not in "iu" or (given < 0).any() or (given > given.shape[-1] + 1).any():
        raise ValueError("answers are 0 none, 1 the right one, and 2 to N + 1 others")
    bad = (given > 0) & ~(np.isfinite(scores) & (scores >= least))
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        raise ValueError(f"the score of attempt {list(at)} (..., question, trial) is {scores[at]}")
    check_trials(there.sum(axis=-1), check_k(k), f"k = {k}")
    found = np.empty((*answers.shape[:-1], parts))
    for at in np.ndindex(answers.shape[:-1]):
        own = given[at][there[at]]
        found[at] = value(own, np.where(own > 0, scores[at][there[at]], 0.0), k)
    return found


def _best(answers: Ints, scores: Floats, k: int) -> Any:
    """Best@k of answers and scores (..., N)."""
    ranked = np.where(answers > 0, scores, -np.inf)
    order = np.argsort(-ranked, axis=-1)
    ranked = np.take_along_axis(ranked, order, axis=-1)
    n = ranked.shape[-1]
    place, other = np.arange(n), ranked[..., 1:] != ranked[..., :-1]
    edge = np.ones((*other.shape[:-1], 1), bool)
    first = np.concatenate([edge, other], axis=-1)
    above = np.maximum.accumulate(np.where(first, place, 0), axis=-1)
    last = np.concatenate([other, edge], axis=-1)
    upto = np.minimum.accumulate(np.where(last, place + 1, n)[..., ::-1], axis=-1)[..., ::-1]
    # The chance that none of the a highest is among the k, a = 0..N.
    missed = np.append(1.0, np.cumprod(np.maximum(0, n - place - k) / (n - place)))
    chance = (missed[above] - missed[upto]) / (upto - above)
    return np.where(np.take_along_axis(answers, order, axis=-1) == 1, chance, 0).sum(axis=-1)


def _votes(answers: Ints, weights: Floats) -> Floats:
    """What the votes of answers with weights, both (S, k), are worth: (S,)."""
    rows, width = len(answers), int(answers.max()) + 2
    cells = (np.arange(rows)[:, None] * width + answers).ravel()
    return right(np.bincount(cells, weights.ravel(), rows * width).reshape(rows, width))


def _subsets(rng: np.random.Generator, number: int, n: int, k: int) -> Ints:
    """Random k-subsets of n trials, (number, k)."""
    return np.argsort(rng.random((number, n)), axis=1)[:, :k]


def _repeated(
    answers: Ints, scores: Floats, replicates: int, rng: np.random.Generator
) -> tuple[Ints, Floats]:
    """Repetitions of N trials with their scores, (replicates, N); an answer made wrong is new."""
    n = answers.size
    drawn = rng.integers(n, size=(replicates, n))
    tossed, heads = rng.random(drawn.shape) < 1 / (n + 1), rng.random(drawn.shape) < 0.5
    again = np.where(tossed & heads, 1, answers[drawn])
    return np.where(tossed & ~heads & (again == 1), n + 2, again), scores[drawn]
