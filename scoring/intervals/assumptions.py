"""Tests of what intervals assume: attempts share no luck, and a run that is a prior did not drift.

Every sigma of this package takes attempts as independent given their questions. Questions of one
trial that share a seed, or two models that do, need not be.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.inputs import (
    Counts,
    Floats,
    Outcomes,
    check_confidence,
    check_trials,
    counts_and_prior,
    nonnegative_array,
    outcome_counts,
    values,
    with_masks,
)
from bayes_at_n.scoring.numerics.results import bayes_from_counts, normal_quantile, result

INFLATION_LEVEL = 0.01
"""The p, over the number of tests, under which attempts are said to share luck."""
LUCK_LEVEL = 0.05
"""The p of :func:`shared_luck` under which nothing is called settled."""
_MOST = 1e9  # degrees of freedom, where one question alone varies


class Inflation(NamedTuple):
    """How often as large a variance is as of independent attempts; arrays (...) for stacks."""

    value: Any  # 1 for independent attempts; sigma * max(value, 1)**0.5 allows for what is found
    low: Any  # ends of its interval
    high: Any
    p: Any  # that independent attempts come so far above 1


def inflation(R: Outcomes, other: Outcomes | None = None, confidence: float = 0.95) -> Inflation:
    """Divide the variance of a trial's average by what independent attempts would give it.

    Of a matrix (..., M, N) with y_t the mean over questions of trial t and s_a^2 the variance of
    question a over its N trials::

        value = var_t(y_t) / (1/M^2 sum_a s_a^2)

    With ``other``, outcomes of another model of the same shape, it is that of the difference of
    both, trial by trial: 2 M rows, those of the other one negative. Trials of all models that have
    one seed may go up and down together, and then it is below 1.

    Where attempts are independent, the outcomes of every question may be permuted over the trials.
    Over all these permutations the mean of the value is 1 and its variance, exactly,
    2 (1 - sum s_a^4 / (sum s_a^2)^2) / (N - 1). p is that of a variance with as many degrees of
    freedom, chi-square over 2 / that variance. It is one-sided: equal means of a few trials are no
    sign of shared luck. The interval is to hold where luck is shared, too: its degrees of freedom
    are (N - 1) / (1 + e / 2), e at least 0 the excess kurtosis of the y_t. Luck at easy or hard
    questions is rare and large, and few trials may not have seen it: where the rarer outcome comes
    m times a trial, in bursts of v as a compound Poisson variable does, e is v / m, so that the
    upper end is that of e at least itself / m. It is at most M, of attempts that are all alike. The
    interval begins half a step of the value below, and ends half a step above, for with few trials
    the value takes few values. One question alone has the value 1.

    Only trials count that every question has. Where fewer than two do, or nothing varies, nothing
    is known: 1, from 0 to infinity, p 1. Raises ValueError: counts, which have no trials; outcomes
    outside of 0 to 1; two shapes. Source: Pitman (1937) for tests by permutation; Kish (1965) for
    the ratio, his design effect; Bonett (2006) for the kurtosis.

    >>> rng = np.random.default_rng(0)
    >>> luck, own = rng.random((80,)), rng.random((2, 30, 80))
    >>> [round(x, 3) for x in inflation(own[0] < 0.5)]
    [1.033, 0.773, 1.465, 0.396]
    >>> a, b = 0.7 * own + 0.3 * luck < 0.5
    >>> round(inflation(a).value, 2), round(inflation(a, b).value, 2)
    (2.73, 1.11)
    """
    tail = (1 - check_confidence(confidence)) / 2
    sides = [_numbers(of) for of in (R, other) if of is not None]
    if len({side.shape for side in sides}) > 1:
        raise ValueError(f"R has shape {sides[0].shape} and other {sides[1].shape}: pass one shape")
    x = np.ma.concatenate([sides[0], *(-side for side in sides[1:])], axis=-2)  # type: ignore[no-untyped-call]
    whole = ~np.ma.getmaskarray(x).any(axis=-2, keepdims=True)  # type: ignore[no-untyped-call]
    n = whole.sum(axis=(-2, -1))
    kept = np.where(whole, x.data, 0.0)
    means = kept.sum(axis=-1, keepdims=True) / np.maximum(n, 1)[..., None, None]
    off = np.where(whole, kept - means, 0.0)
    squares = (off**2).sum(axis=-1)  # (..., rows), N - 1 times the variance
    total = squares.sum(axis=-1)
    known = total > 0
    total = np.where(known, total, 1.0)
    value = np.where(known, (off.sum(axis=-2) ** 2).sum(axis=-1) / total, 1.0)
    spread = np.maximum(1 - (squares**2).sum(axis=-1) / total**2, 1 / _MOST)
    half = np.where(known, np.maximum(n - 1, 1) / spread, 1.0) / 2  # of the degrees of freedom
    above = scipy.special.gammaincc(half, half * value)
    step = 1 / total  # half of it: sums of squares go by twos
    low, high = value, value
    if (most := x.shape[-2]) > 1:
        trial = off.sum(axis=-2) ** 2
        excess = n * (trial**2).sum(axis=-1) / np.maximum(trial.sum(axis=-1), 1e-99) ** 2 - 3
        half = np.maximum(n - 1, 1) / (2 + np.maximum(excess, 0))
        low = half * np.maximum(value - step, 0) / scipy.special.gammaincinv(half, 1 - tail)
        high = _upper(half, value + step, tail, most)
        right = np.abs(kept).sum(axis=(-2, -1))
        rarer = np.minimum(right, most * n - right) / np.maximum(n, 1)
        half = np.maximum(n - 1, 1) / (2 + np.maximum(excess, high / np.maximum(rarer, 1e-99)))
        high = _upper(half, value + step, tail, most)
    numbers = value, low, high, above
    unknown = 1.0, 0.0, np.inf, 1.0
    found = (np.where(known, a, b) for a, b in zip(numbers, unknown, strict=True))
    return Inflation(*map(result, found))


class SharedLuck(NamedTuple):
    """Whether K models and their differences show that attempts of a trial share luck."""

    p: float  # that independent attempts vary so much: of all models together, or of some pair
    models: Inflation  # arrays (K,)
    pair: tuple[int, int] | None  # of all pairs the one of the least p; None of one model
    of_pair: Inflation | None

    @property
    def sure(self) -> bool:
        """Whether p is below ``LUCK_LEVEL``."""
        return self.p < LUCK_LEVEL


def shared_luck(R: Outcomes) -> SharedLuck:
    """Test whether attempts of a trial share luck, of K models at once: what settles asks this.

    p is twice the smaller of two (one model: its own): of all models together (Fisher's sum of
    logarithms), and of the K (K - 1) / 2 differences trial by trial, the least p times their number
    (Bonferroni). ``LUCK_LEVEL`` is five times that of a line about one run, as a false claim costs
    more than a needless caution: with it two equal models that share luck are called settled in at
    most 5% (docs/calibration.md). R holds outcomes 0 and 1, (K, M, N), masked where missing.
    Raises ValueError: as :func:`inflation`. Source: Fisher (1925).

    >>> rng = np.random.default_rng(0)
    >>> luck, own = rng.random((2, 1, 40)), rng.random((2, 30, 40))
    >>> round(shared_luck(own < 0.5).p, 2), shared_luck(0.7 * own + 0.3 * luck < 0.5).sure
    (0.28, True)
    """
    outcomes = with_masks(R)
    models, count, pairs = inflation(outcomes), len(outcomes), list[tuple[int, int, Inflation]]()
    for a in range(count - 1):
        rest = outcomes[a + 1 :]
        of_rest = inflation(rest, outcomes[[a] * len(rest)])
        b = int(np.argmin(of_rest.p))
        pairs.append((a, a + 1 + b, Inflation(*(float(x[b]) for x in of_rest))))
    half = -np.log(np.maximum(models.p, 1e-300)).sum()  # of Fisher's chi-square
    together = float(scipy.special.gammaincc(count, half))
    if not pairs:
        return SharedLuck(together, models, None, None)
    first, second, of_pair = min(pairs, key=lambda one: one[2].p)
    p = min(1.0, 2 * min(together, of_pair.p * count * (count - 1) / 2))
    return SharedLuck(p, models, (first, second), of_pair)


def _upper(half: Floats, value: Floats, tail: float, most: int) -> Floats:
    """Compute the upper end of a variance of so many half degrees of freedom, at most ``most``."""
    quantile = scipy.special.gammaincinv(half, tail)  # 0 of hardly any
    return np.asarray(half * value / np.maximum(quantile, half * value / most))


def _numbers(R: Outcomes) -> Any:
    """Outcomes as numbers (..., M, N), masked where they are missing."""
    if isinstance(R, Counts):
        raise ValueError("Counts do not say which trial an outcome is of: pass outcomes")
    data: Any = values(with_masks(R))
    if data.dtype.kind != "f":
        outcome_counts(R, 2, remedy="inflation takes 0 to 1, 1 correct")
    elif not ((data >= 0) & (data <= 1)).all():
        raise ValueError("R has outcomes outside of 0 to 1: mask missing trials (numpy.ma)")
    return (data[None, :] if data.ndim == 1 else data).astype(float)


DRIFT_LEVEL = 0.01
"""The p, over the number of priors, under which a prior run is said to have drifted."""


class Drift(NamedTuple):
    """How far a prior run is from new attempts at the same questions."""

    z: float  # above 0 where the prior run was better; 0 where it has no trials
    p: float  # two-sided, that runs of one model are so far apart
    coverage: float  # estimated, of the interval of Bayes@N with that prior


def prior_drift(
    R: Outcomes, R0: Counts, trials: npt.ArrayLike | None = None, confidence: float = 0.95
) -> Drift:
    """Test whether prior attempts and new ones have the same chances, and what follows if not.

    A prior moves the posterior mean of question a by D_a / T_a of the way to its own share, in the
    terms of :func:`scoring.bayes`. z is the sum of these moves over its standard deviation for
    chances that did not change: both runs are noisy, the prior run with as many ``trials``, (M,)
    and at least D_a, as its counts R0 were made from (None: as R0 has). The coverage is that of
    mu -/+ z' sigma about a truth that mu misses by its distance to the average, of which the moves
    are shrunk by 1 - 1 / z^2 (James and Stein), with the noise of both.

    R has outcomes 0 and 1, (M, N), and a trial of every question; R0 counts (M, 2). Raises
    ValueError: others; a confidence outside (0, 1). Source: Box (1980) for checks of a prior by
    what it predicts.

    >>> old, new = [[1, 1, 1, 0] * 5] * 20, [[1, 0, 0, 0], [1, 1, 1, 0]] * 10
    >>> R0 = Counts(np.array([[1.0, 3.0]] * 20))  # worth four trials of twenty
    >>> [round(x, 3) for x in prior_drift(new, R0, [20] * 20)]
    [4.471, 0.0, 0.196]
    """
    counts, weights, prior = counts_and_prior(R, None, R0)
    tried, worth = counts.sum(axis=-1), np.asarray(prior).sum(axis=-1)
    check_trials(tried, 1, "the drift of a prior")
    total, share = 2 + worth + tried, counts[:, 1] / tried
    quantile = normal_quantile(check_confidence(confidence))
    old = np.maximum(worth if trials is None else nonnegative_array(trials, "trials"), worth)
    old = np.maximum(old, 1e-9)
    before = prior[:, 1] / np.maximum(worth, 1e-9)
    moved = worth / total * (before - share)
    pooled = (counts[:, 1] + before * old + 0.5) / (tried + old + 1)
    spread = ((worth / total) ** 2 * pooled * (1 - pooled) * (1 / tried + 1 / old)).sum()
    z = float(moved.sum() / np.sqrt(spread)) if worth.any() else 0.0
    mu, sigma = bayes_from_counts(counts, weights, prior)
    bias = mu - share.mean() - moved.mean() * min(1.0, 1 / max(z**2, 1e-9))
    rate = (counts[:, 1] + 0.5) / (tried + 1)
    parts = (tried / total) ** 2 + ((2 + worth) / total) ** 2
    noise = np.sqrt((rate * (1 - rate) / tried * parts).sum()) / tried.size
    low, high = ((sign * quantile * sigma - bias) / noise for sign in (-1, 1))
    normal = scipy.special.ndtr
    return Drift(z, float(2 * normal(-abs(z))), float(normal(high) - normal(low)))
