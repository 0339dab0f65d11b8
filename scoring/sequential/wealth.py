"""Wealth of bets on outcomes, from which every claim of this room is made.

One bet says of a model that its mean over M questions, m, is above (or below) what somebody
claims. A round brings n_q attempts at question q, their outcomes A in [0, 1]; before the round
anybody may fix a guess a_q in [0, 1] and a stake 0 < l < 1. Then

    up   = sum over q and attempts of log(1 + l / n_q * (A - a_q)) + l * sum of a_q
    down = sum over q and attempts of log(1 - l / n_q * (A - a_q)) - l * sum of a_q

are such that exp(up - l M m) and exp(down + l M m) have an expectation of at most 1, whatever the
guesses, because 1 + x <= exp(x). So have their products over rounds (each given its past), their
products over models that are sampled independently, and their averages over stakes. A product
is the wealth of somebody who began with 1, and by Ville's inequality it ever reaches c with a
chance of at most 1 / c. Of two models, up of A and down of B bet on m_A - m_B > D with the slope
l M for every D at once: log wealth falls linearly in D, so the sequence of intervals for the
difference costs no more than a test.

That takes attempts as independent. Where those of a trial share luck, :func:`trial_gains` bets on
x, the mean of a whole round, instead: E[1 + l (x - a)] <= exp(l (m - a)), whatever hangs together
within the round, in one model or between two, whose difference is one outcome in [-1, 1].

(The products are Waudby-Smith and Ramdas, "Estimating means of bounded random variables by
betting", 2024, with a guess for each question, so that differences between questions cost nothing.)
All arrays have leading axes of runs: (R, K, M) for K models; a stake's index comes last.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np

from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints

Function = TypeVar("Function", bound=Callable[..., Any])


def compiled(function: Function) -> Function:
    """Compile on first use, without the interpreter lock, and keep the result on the disk."""
    try:
        made: Function = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        made = numba.njit(nogil=True)(function)
    return made


# Stakes are sizes of an effect: a difference of means over its standard deviation in one round.
# Most weight is where 8 to 80 rounds decide; the small ones are for intervals after hundreds.
EFFECTS: Floats = np.array([0.05, 0.1, 0.2, 0.35, 0.55, 0.85, 1.3])
WEIGHTS: Floats = np.array([1, 2, 4, 12, 15, 10, 5]) / 49
# Of "not the best", where most rivals are far away and a few rounds decide.
RIVAL_EFFECTS: Floats = np.array([0.1, 0.2, 0.35, 0.55, 0.85, 1.3, 2.0])
RIVAL_WEIGHTS: Floats = np.array([4, 12, 40, 60, 60, 50, 30]) / 256
# Of whole rounds, as they are: even the largest wins little, so it has most of the weight.
TRIAL_STAKES: Floats = np.array([0.1, 0.25, 0.5, 0.95])
TRIAL_WEIGHTS: Floats = np.array([1, 1, 2, 6]) / 10
LARGEST_STAKE = 0.95
# Before there are data: share of the variance of outcomes that lies between questions, and how
# many pairs of attempts, weighted by their variance, that opinion is worth.
BETWEEN, OPINION = 0.5, 5.0
TINY, HUGE = 1e-200, 1e200


class Guess(NamedTuple):
    """What :func:`guess` finds; arrays (R, K, M)."""

    mean: Floats  # of the next outcome
    within: Floats  # expected p (1 - p): what remains when p is known; never 0


def guess(successes: Floats, attempts: Ints) -> Guess:
    """Guess the outcomes of the next round from sums and counts of those of the past (R, K, M).

    A question's share of successes is drawn to what its difficulty among all models and the
    model's mean make likely, the more so the less questions were found to differ from that. Any
    guess would be valid; a good one makes claims come sooner.
    """
    tried = attempts.sum(axis=-1, keepdims=True)
    own = (successes.sum(axis=-1, keepdims=True) + 1) / (tried + 2)
    everyone = attempts.sum(axis=-2, keepdims=True)
    overall = (successes.sum(axis=(-1, -2), keepdims=True) + 1) / (
        tried.sum(axis=-2, keepdims=True) + 2
    )
    shared = (successes.sum(axis=-2, keepdims=True) + overall) / (everyone + 1)
    harder = shared * (own / overall)
    easier = 1 - (1 - shared) * ((1 - own) / (1 - overall))
    prior = np.where(own > overall, easier, harder)
    prior = np.clip(prior, 0.01, 0.99)
    noise = prior * (1 - prior)
    pairs = attempts * (attempts - 1)
    excess = ((successes - attempts * prior) ** 2 - attempts * noise).sum(axis=-1, keepdims=True)
    weight = (pairs * noise).sum(axis=-1, keepdims=True) + OPINION
    between = np.clip((excess + OPINION * BETWEEN) / weight, 0.02, 0.9)
    strength = 1 / between - 1
    total = attempts + strength
    mean = (successes + strength * prior) / total
    return Guess(mean, mean * (1 - mean) * total / (total + 1))


def stakes(guessed: Guess, attempts: Ints) -> Floats:
    """Choose stakes (R, L) of a round with these attempts (R, K, M): one ladder for a run's models.

    The best stake on a difference of d questions is d / variance. Steps of the ladder are d in
    standard deviations of one attempt each, so that one ladder serves easy and hard, few and many
    questions. A question with few attempts among many limits all: each must bear the whole bet.
    """
    sampled = attempts > 0
    share = np.where(sampled, 1 / np.maximum(attempts, 1), 0.0)
    models = np.maximum(sampled[..., 0].sum(axis=-1), 1)
    coming = 2 * (guessed.mean * (1 - guessed.mean) * share).sum(axis=(-1, -2)) / models
    known = 2 * (guessed.within * share).sum(axis=(-1, -2)) / models
    each = attempts.sum(axis=(-1, -2)) / (models * attempts.shape[-1])
    scale = np.sqrt(known * each) / np.maximum(coming, 1e-12)
    fewest = np.where(sampled, attempts, attempts.max()).min(axis=(-1, -2))
    return np.asarray(np.minimum(EFFECTS * scale[:, None], LARGEST_STAKE * fewest[:, None]))


def rival_stakes(guessed: Guess, attempts: Ints, rivals: Floats) -> Floats:
    """Choose stakes (R, K, L) of each model's game against its rivals, by the game's own noise.

    ``rivals`` (R, K, K): each row's rivals, by their share of its stake.
    """
    share = np.where(attempts > 0, 1 / np.maximum(attempts, 1), 0.0)
    noise = (guessed.mean * (1 - guessed.mean) * share).sum(axis=-1)
    both = noise + (rivals**2 * noise[:, None]).sum(axis=-1)
    scale = 1 / np.sqrt(np.maximum(both, 1e-12))
    return np.asarray(np.minimum(RIVAL_EFFECTS * scale[..., None], LARGEST_STAKE))


@compiled
def _gain(successes: Floats, attempts: Ints, mean: Floats, stake: float) -> float:
    """Log wealth of one bet on one model's round (M,): up, or down where the stake is negative.

    Factors are multiplied, and a logarithm taken only where the product leaves the range. Of n
    outcomes with this sum those that are 0 or 1, but for one, win least, so they stand for all.
    """
    gained, product, level = 0.0, 1.0, 0.0
    for q in range(mean.size):
        n, a = attempts[q], mean[q]
        if n == 0:
            continue
        level += a
        for t in range(n):
            product *= 1.0 + stake / n * (min(max(successes[q] - t, 0.0), 1.0) - a)
        if not TINY < product < HUGE:
            gained += np.log(product)
            product = 1.0
    return float(gained + np.log(product) + stake * level)


@compiled
def gains(
    successes: Floats, attempts: Ints, mean: Floats, stake: Floats, up: Floats, down: Floats
) -> None:
    """Write a round's log wealth, ``up`` and ``down`` of this module's head, (R, K, L).

    Sums of outcomes, counts and guesses are (R, K, M), ``stake`` (R, L). A model without attempts
    gains nothing.
    """
    runs, models, _ = mean.shape
    for r in range(runs):
        for k in range(models):
            of = successes[r, k], attempts[r, k], mean[r, k]
            for i in range(stake.shape[1]):
                up[r, k, i] = _gain(*of, stake[r, i])
                down[r, k, i] = _gain(*of, -stake[r, i])


@compiled
def rival_gains(
    successes: Floats,
    attempts: Ints,
    mean: Floats,
    rivals: Floats,
    stake: Floats,
    gained: Floats,
) -> None:
    """Add to ``gained`` (R, K, L) what a round wins in each model's game against its rivals.

    As :func:`gains`, with ``rivals`` and ``stake`` of :func:`rival_stakes`.
    """
    runs, models, _ = mean.shape
    for r in range(runs):
        for j in range(models):
            for k in range(models):
                share = -rivals[r, j].sum() if k == j else rivals[r, j, k]
                if share != 0.0:
                    for i in range(stake.shape[2]):
                        gained[r, j, i] += _gain(
                            successes[r, k], attempts[r, k], mean[r, k], share * stake[r, j, i]
                        )


def trial_gains(outcome: Floats, guessed: Floats) -> tuple[Floats, Floats]:
    """Compute log wealth and slopes (..., L) of bets that whole rounds' outcomes have a mean above.

    Outcomes, of one model (or minus it) or of a difference, and guesses of them: (...) in [-1, 1].
    """
    stake = TRIAL_STAKES / (1 + np.abs(guessed))[..., None]
    return np.log1p(stake * (outcome - guessed)[..., None]) + stake * guessed[..., None], stake


@compiled
def _average(
    gained: Floats, slope: Floats, at: Floats, weights: Floats, least: float, found: Floats
) -> None:
    for i in range(found.size):
        most = -np.inf
        for j in range(weights.size):
            most = max(most, gained[i, j] - slope[i, j] * at[i])
        found[i] = most  # no average is above the largest
        if most < least:
            continue
        total = 0.0
        for j in range(weights.size):
            total += weights[j] * np.exp(gained[i, j] - slope[i, j] * at[i] - most)
        found[i] += np.log(total)


def log_wealth(
    gained: Floats,
    weights: Floats,
    slope: Floats | None = None,
    at: Floats | float = 0.0,
    least: float = -np.inf,
) -> Floats:
    """Compute the log of the average over stakes of exp(gained - slope * at): (...,) of (..., L).

    Where that is below ``least``, anything below it.
    """
    shape, stakes = gained.shape[:-1], gained.shape[-1]
    flat = np.ascontiguousarray(gained).reshape(-1, stakes)
    flat_slope = flat if slope is None else np.ascontiguousarray(slope).reshape(-1, stakes)
    found = np.empty(flat.shape[0])
    where = np.ascontiguousarray(np.broadcast_to(at, shape), dtype=np.float64).ravel()
    _average(flat, flat_slope, where, weights, least, found)
    return found.reshape(shape)


def reached(
    gained: Floats, weights: Floats, slope: Floats | None, at: Floats | float, needed: float
) -> Bools:
    """Check whether :func:`log_wealth` is at least ``needed``."""
    return np.asarray(log_wealth(gained, weights, slope, at, needed) >= needed)


def bound(
    gained: Floats, weights: Floats, slope: Floats, needed: float, low: float, high: float
) -> Floats:
    """Find the largest D from ``low`` to ``high`` that wealth has refuted, or ``low``: (...,).

    Refuted is where :func:`log_wealth` at D is at least ``needed``.
    """
    left = np.full(gained.shape[:-1], low)
    right = np.full(gained.shape[:-1], high)
    for _ in range(30):
        middle = (left + right) / 2
        beyond = reached(gained, weights, slope, middle, needed)
        left, right = np.where(beyond, middle, left), np.where(beyond, right, middle)
    return left
