"""Votes of k attempts over answers, plain or weighed by a score of theirs; the best attempt by it.

Outcomes are answers here, of shape (..., M, N): 1 the right answer, 0 none, and 2, 3, ... the other
answers of that question, one number for all attempts that gave the same. An attempt without an
answer casts no vote, nor is it ever chosen before one that has an answer, so k attempts without any
are wrong. Ties are broken at random. A score is a confidence (the mean probability of a token) or
what a verifier says.

The expectation of Cons@k over all k-subsets is counted. Let every trial be drawn by itself, and ask
what holds where k are: before that answers are independent, and the chance that the right one has m
votes and no other more is a coefficient of a product of polynomials. With t others at m votes the
tie is worth 1 / (1 + t), the integral of y^t over 0 to 1: a polynomial in y, for which a few Gauss
nodes are exact. All that is added is positive and at most 1. Repetitions of the trials are drawn
from the attempts with their scores; of N + 1 draws one is right or wrong by the toss of a coin, so
that the rate is (c + 1/2) / (N + 1).

Cons@k: Wang et al., "Self-consistency improves chain of thought", arXiv 2203.11171. Weighted votes:
Li et al., arXiv 2206.02336. Best of k: Cobbe et al., arXiv 2110.14168.
"""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.credit import BLOCK
from bayes_at_n.scoring.numerics.inputs import (
    Counts,
    Floats,
    Ints,
    Outcomes,
    check_k,
    check_trials,
    check_whole,
    outcome_counts,
    with_masks,
)
from bayes_at_n.scoring.numerics.results import question_sigma, result

REPLICATES = 200  # for a sigma; the questions add their variances, and so their noise
SUBSETS = 1000  # of the trials of a question for a weighted vote, where there are more
INNER = 8  # votes of a repetition, if k is small
NEGLIGIBLE = 1e-17  # a chance that a sum of k of them does not show


def cons_at_k(R: Outcomes, k: int) -> Any:
    """Compute Cons@k: the chance that the vote of k trials is right, averaged over questions.

    R holds answers, 0 to N + 1 as the head of this module says, masked where a trial is missing, or
    :class:`scoring.Counts` of them, (..., M, C + 1). Returns a float, or an array (...) for a
    stack. Raises ValueError: k below 1 or above the trials of a question; other numbers.

    >>> [round(cons_at_k([[1, 1, 2, 2, 3]], k), 6) for k in (1, 3, 5)]
    [0.4, 0.433333, 0.5]
    """
    return result(_subset_votes(_counted(R, check_k(k)), k).mean(axis=-1))


def cons_at_k_sigma(R: Outcomes, k: int, replicates: int = REPLICATES, seed: int = 0) -> Any:
    """Bootstrap the standard deviation of Cons@k over repetitions of every question's trials.

    The right answer is drawn at the rate (c + 1/2) / (N + 1), the others at their shares of the
    rest; where all are right, the rest is one answer more. Else as :func:`cons_at_k`. Raises
    ValueError: as it does; fewer than two replicates.

    >>> round(cons_at_k_sigma([[1, 1, 2, 2, 3]], 1), 1)
    0.2
    """
    counts = _counted(R, check_k(k))
    check_whole(replicates, "replicates", least=2)

    def variances(states: Ints) -> Floats:
        drawn = np.empty((len(states), replicates, states.shape[1] + 1), np.int64)
        for of_state, state in zip(drawn, states, strict=True):
            n, right = int(state.sum()), int(state[1])
            rates = np.append(state, n == right).astype(np.float64)
            rates *= (n - right + 0.5) / (rates.sum() - right)
            rates[1] = right + 0.5
            rng = np.random.default_rng([seed, *state.tolist()])
            of_state[:] = rng.multinomial(n, rates / rates.sum(), replicates)
        return np.asarray(_subset_votes(drawn, k).var(axis=-1, ddof=1))

    return result(question_sigma(_by_state(variances, counts)))


def right(votes: npt.ArrayLike) -> Floats:
    """Check whether votes (..., C + 1) for none, the right answer and others elect the right one.

    With a tie of t it is 1 / t: (...). Weights that are equal but for rounding are tied.

    >>> right([[5, 2, 1], [0, 2, 2], [3, 0, 0]]).tolist()
    [1.0, 0.5, 0.0]
    """
    cast = np.asarray(votes, dtype=np.float64)[..., 1:]
    top = cast.max(axis=-1, keepdims=True)
    first = (cast >= top * (1 - 1e-12)) & (top > 0)
    return np.asarray(first[..., 0] / np.maximum(1, first.sum(axis=-1)))


def _counted(R: Outcomes, least: int = 0) -> Ints:
    """How often each answer was given, of questions with enough trials: (..., M, C + 1)."""
    if isinstance(R, Counts):
        last = np.shape(R.values)[-1] - 1 if np.ndim(R.values) else 1
    else:
        data = with_masks(R)
        top = data.max() if data.size and data.dtype.kind in "iuf" else 1
        last = int(top) if not np.ma.is_masked(top) and top <= data.shape[-1] + 1 else 1
    remedy = "answers are 0 none, 1 the right one, and 2 to N + 1 others"
    counts: Ints = outcome_counts(R, max(1, last) + 1, remedy=remedy)
    check_trials(counts.sum(axis=-1), least, f"Cons@{least}")
    return counts


def _by_state(function: Callable[[Ints], Floats], counts: Ints) -> Floats:
    """A function of states (S, C + 1) for all counts (..., C + 1), each state once.

    Wrong answers come in falling order, as it makes no difference which of them is which.
    """
    rows = counts.reshape(-1, counts.shape[-1]).copy()
    rows[:, 2:] = -np.sort(-rows[:, 2:], axis=-1)
    states, inverse = np.unique(rows, axis=0, return_inverse=True)
    values = function(states[:, : 2 + int(states[:, 2:].any(axis=0).sum())])
    return values[inverse.ravel()].reshape(*counts.shape[:-1], *values.shape[1:])


def _subset_votes(counts: Ints, k: int) -> Floats:
    """Cons@k over the k-subsets of the trials of each question (...)."""

    def scores(states: Ints) -> Floats:
        won, trials = np.empty(len(states)), states.sum(axis=1)
        for n in np.unique(trials).tolist():
            drawn = _binomial(n, k)
            at = np.flatnonzero(trials == n)
            step = max(1, BLOCK // ((k + 1) * (states.shape[1] + k // 2)))
            for block in (at[i : i + step] for i in range(0, at.size, step)):
                won[block] = _won(states[block], k, drawn)
        return won

    return _by_state(scores, counts)


def _binomial(n: int, k: int) -> Floats:
    """P(j of s trials are drawn), s = 0..n and j = 0..k, each with a chance of k / (n + 1).

    Any other chance would do.
    """
    j, s = np.arange(k), np.arange(n + 1)[:, None]
    ratios = np.maximum(0, s - j) * k / ((j + 1) * (n - k + 1))
    with np.errstate(divide="ignore"):
        logs = np.cumsum(np.log(ratios), axis=1)
    chances: Floats = np.exp(s * np.log1p(-k / (n + 1)) + np.insert(logs, 0, 0, axis=1))
    return chances


def _won(sizes: Ints, k: int, chances: Floats) -> Floats:
    """P(the vote of k attempts is right) for states (S, C + 1) of how many gave each answer.

    ``chances`` (N + 1, k + 1): of drawing 0..k of 0..N attempts, each by itself.
    """
    each = chances[sizes]
    total = chances[-1, k]
    won = np.zeros(len(sizes))
    for m in range(1, k + 1):
        # An answer of fewer attempts is no rival, and all such are drawn as one.
        rivals = 2 + int((sizes[:, 2:] >= m).sum(axis=1).max())
        others = each[:, 2:rivals, : m + 1]
        live = each[:, 1, m] * others.sum(axis=-1).prod(axis=-1) > NEGLIGIBLE * total
        if not live.any():
            continue
        alike = sizes[live, 0] + sizes[live, rivals:].sum(axis=1)
        nodes, weights = np.polynomial.legendre.leggauss(min(rivals - 2, k // m - 1) // 2 + 1)
        ways = np.repeat(chances[alike, None, : k - m + 1], nodes.size, axis=1)
        ways = _times(ways, others[live], m, (1 + nodes) / 2)[..., k - m]
        won[live] += each[live, 1, m] * (ways @ weights) / 2
    return np.asarray(np.clip(won / total, 0, 1))


def _times(ways: Floats, factors: Floats, top: int = 0, nodes: Any = None) -> Floats:
    """Polynomials (S, q, d + 1) times those of every answer, (S, C, ...), to the same degree.

    The coefficients of degree ``top`` count by the nodes (q,).
    """
    for factor in np.moveaxis(factors, 1, 0):
        product = ways * factor[:, None, :1]
        for j in range(1, min(factor.shape[1], ways.shape[2])):
            if factor[:, j].any():
                scale = factor[:, j, None] * (nodes if j == top else 1)
                product[..., j:] += ways[..., :-j] * scale[..., None]
        ways = product
    return ways


@dataclass(frozen=True, eq=False)
class Ballots:
    """Answers and scores of attempts, both (..., M, N), answers masked where a trial is missing.

    Scores of attempts with an answer are finite, and for a weighted vote 0 or more.
    """

    answers: npt.ArrayLike
    scores: npt.ArrayLike


def best_at_k(ballots: Ballots, k: int) -> Any:
    """Compute Best@k: the chance that of k trials the one with the highest score is right.

    Exact over all k-subsets, by sorting; equal scores share. Averaged over questions: a float, or
    an array (...). Raises ValueError: k below 1 or above the trials of a question; shapes, answers
    or scores that cannot be.

    >>> round(best_at_k(Ballots([[1, 2, 0, 1]], [[0.9, 0.4, 1.0, 0.2]]), 2), 6)
    0.666667
    """
    return result(_each(ballots, k, _best)[..., 0].mean(axis=-1))


def best_at_k_sigma(ballots: Ballots, k: int, replicates: int = REPLICATES) -> Any:
    """Bootstrap the standard deviation of :func:`best_at_k` over repetitions of the trials.

    R, shapes and what raises a ValueError: :func:`best_at_k`.
    """

    def variance(answers: Ints, scores: Floats, k: int) -> Any:
        rng = np.random.default_rng(answers)
        return _best(*_repeated(answers, scores, replicates, rng), k).var(ddof=1)

    return result(question_sigma(_each(ballots, k, variance)[..., 0]))


def weighted_cons_at_k(ballots: Ballots, k: int, subsets: int = SUBSETS) -> tuple[Any, Any]:
    """Compute Cons@k with scores as weights, and its Monte Carlo error: floats, or arrays (...).

    The answer with the largest sum of scores among k of the trials; a score of 0 casts no vote.
    Over all k-subsets where there are no more than ``subsets``, as for k = N, and the error is 0.
    Else over so many at random, always the same ones, with Cons@k as control variate: only what the
    weights change is estimated. Raises ValueError: as :func:`best_at_k`; a negative score.

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
    """Bootstrap the standard deviation of :func:`weighted_cons_at_k`: of repetitions, and error.

    A few subsets of every repetition vote; what they add to the variance is taken off again. Raises
    ValueError: as it does.
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
