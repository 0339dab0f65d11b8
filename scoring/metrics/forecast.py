"""What a model would score if its attempts might be longer: a forecast with what it cannot know.

An attempt that ended by itself is seen, one that was cut off is censored at its limit. Beyond the
limit two things decide: the hazard of ending, and the odds of being right for one that ends there.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.metrics.bayes import bayes, bayes_ci
from bayes_at_n.scoring.numerics.checks import UNIT, check_confidence, check_whole, finite_array
from bayes_at_n.scoring.numerics.inputs import Bools, Counts, Floats, Ints, Outcomes, binary_counts
from bayes_at_n.scoring.numerics.results import within

WINDOWS = (0.5, 1.0, 2.0)  # doublings of length below the limit that are looked at, a third each
SUPPORT = 0.5  # the least share, of attempts that reached half the limit, that ended before it
_LEVEL, _SLOPE = (np.log(0.5), 1.5), (0.0, 1.0)  # log hazard per doubling, and its change
# How much a question's own hazard counts: logarithms of the shape of a gamma.
_MEMORY = (float(np.log(0.3)), float(np.log(30)))
_STUCK = (0.5, 2.0)  # beta: the share of attempts cut off that turn in circles and never end
_CHANGE = 0.5  # sigma of what changes in both slopes beyond the limit
_GRID = 31
_BINS = 8  # of length in a window
_STEPS = 16  # in which what lies beyond the limit is added up
_ODDS, _TREND = np.linspace(-8, 8, 65), np.linspace(-3, 3, 25)  # log odds, change per doubling
_POOL = np.stack(np.meshgrid(np.linspace(-5, 5, 21), np.geomspace(0.3, 5, 7)), -1).reshape(-1, 2)


class Forecast(NamedTuple):
    """Bayes@N at a limit that was not run."""

    value: float
    sigma: float
    low: float  # of the score of these questions at that limit, as every interval of Bayes@N
    high: float
    low_continued: float  # of what these trials score if the attempts cut off go on
    high_continued: float
    least: float  # they score this if none of those becomes right,
    most: float  # and this if all do
    support: float  # share of attempts that reached half the limit and ended before it
    supported: bool  # False: the interval is from `least` to `most`, and the value a guess


def forecast(
    R: Outcomes,
    tokens: npt.ArrayLike,
    cut: npt.ArrayLike,
    limit: npt.ArrayLike,
    confidence: float = 0.95,
    draws: int = 1200,
    seed: int = 0,
) -> Forecast:
    """Forecast Bayes@N at a higher limit of tokens from attempts under a lower one.

    R are outcomes 0 and 1 of shape (M, N), masked where missing, ``tokens`` lengths of completions,
    ``cut`` which of them ran into their limit, of the same shape, and ``limit`` the higher one, or
    one for each question (M,). With v the doublings of length beyond the largest limit of an
    attempt cut off, those of question q go on to end with the hazard (per doubling), and are right
    if they end there with the odds::

        h_q(v) = theta_q exp(a + b' v)         odds_q(v) = exp(c_q + e' v)

    a and b are fitted to all attempts in the last half, one or two doublings before the limit
    (a third of the draws each), with questions drawn anew (Bayesian bootstrap), theta_q is a gamma
    that knows how often the question's own attempts ended there and has mean 1 over attempts cut
    off, and c_q is normal around a common mean with a common trend e. What data cannot say is
    drawn: how much a question's own past counts; whether trends go on or level off, b' = b U + 0.5
    Z and e' = e U' + 0.5 Z' with U uniform on (0, 1) and Z standard normal; and what share of
    attempts cut off never ends (beta, mean 0.2). Where under half of the attempts that reached half
    the limit ended before it, nothing supports a forecast: its interval then is all that is
    possible, from none of the attempts cut off right to all of them.

    ValueError: shapes that differ, lengths under 1. Sources: censored lengths as piecewise
    exponential survival with gamma frailty (Clayton, Biometrika 1978), the Bayesian bootstrap
    (Rubin, 1981); the mixture is ours, and docs/lengths.md says how often it held.

    >>> R = np.array([[1, 1, 0, 1, 1, 0, 0, 0]] * 6)
    >>> tokens = np.array([[40, 55, 60, 70, 90, 95, 100, 100]] * 6)
    >>> f = forecast(R, tokens, tokens == 100, 200)
    >>> f.supported, round(f.support, 2), f.least < f.value < f.most, f.low < f.value < f.high
    (True, 0.71, True, True)
    """
    level = check_confidence(confidence)
    right, trials = binary_counts(R, "a forecast")
    there, hit, lengths, was_cut = _checked(R, tokens, cut)
    open_, rng = was_cut & ~hit, np.random.default_rng(check_whole(seed, "seed", 0))
    none, every = (
        bayes_ci(_counts(right + more, trials), confidence=level, bounds=UNIT)
        for more in (0, open_.sum(axis=1))
    )
    if not open_.any():
        return Forecast(*none, none[0], none[0], none[0], none[0], 1.0, True)
    top = np.log2(lengths[open_].max())
    # An attempt that ends with token n ended between n - 1 and n.
    at = np.where(there, np.log2(np.where(was_cut, lengths, lengths - 0.5)) - top, -np.inf)
    ended = there & ~was_cut
    near = int((ended & (at > -1)).sum())
    support = near / (near + int(open_.sum()))
    end = np.broadcast_to(np.log2(finite_array(limit, "limit")) - top, len(at))
    parts = [_gained(at, ended, hit, open_, end, w, draws // 3, rng) for w in WINDOWS]
    mu, sigma = bayes(_counts(right + np.concatenate(parts), trials))
    tail = [50 * (1 - level), 50 * (1 + level)]
    low, high = within(np.percentile(mu + sigma * rng.standard_normal(len(mu)), tail), UNIT)
    ends = [float(end) for end in (low, high, *np.percentile(mu, tail))]
    if support < SUPPORT:
        ends = [none[2], every[3], none[0], every[0]]
    value, spread = float(mu.mean()), float(np.sqrt(mu.var() + (sigma**2).mean()))
    known = (none[0], every[0], support, support >= SUPPORT)
    return Forecast(value, spread, ends[0], ends[1], ends[2], ends[3], *known)


def _checked(R: Outcomes, tokens: Any, cut: Any) -> tuple[Bools, Bools, Floats, Bools]:
    """Which trials are there, which are right, their lengths (1 elsewhere), which were cut off."""
    outcomes: Any = np.ma.asarray(R)  # type: ignore[no-untyped-call]
    there = ~np.ma.getmaskarray(outcomes)  # type: ignore[no-untyped-call]
    if not there.ndim == 2 or not there.shape == np.shape(tokens) == np.shape(cut):
        raise ValueError("R, tokens and cut have other shapes: pass (questions, trials) of all")
    lengths = np.where(there, np.ma.filled(tokens, 1), 1.0)
    if finite_array(lengths, "tokens").min() < 1:
        raise ValueError("tokens: pass lengths of at least 1")
    return there, (outcomes.filled(0) == 1) & there, lengths, np.asarray(cut, bool) & there


def _counts(right: Any, trials: Ints) -> Counts:
    return Counts(np.stack([trials - right, right + 0 * trials], axis=-1))


def _gained(
    at: Floats, ended: Bools, hit: Bools, cut: Bools, end: Floats, window: float, draws: int,
    rng: np.random.Generator,
) -> Ints:  # fmt: skip
    """How many attempts of each question become right, (draws, M), by one window."""
    seen = ended & (at > -window)
    level, slope, theta = _hazard(at, seen, cut, window, draws, rng)
    trend, odds = _share(at, seen, hit, window, draws, rng)
    slope = slope * rng.random(draws) + _CHANGE * rng.standard_normal(draws)
    trend = trend * rng.random(draws) + _CHANGE * rng.standard_normal(draws)
    ends = 1 - rng.beta(*_STUCK, draws)
    gained = np.zeros((draws, len(at)), np.int64)
    where = np.nonzero(cut)
    groups, many = np.unique(np.stack([where[0], at[where]]), axis=1, return_counts=True)
    for q, start, number in zip(groups[0].astype(int), groups[1], many, strict=True):
        v = np.linspace(start, max(end[q], start), _STEPS + 1)
        total = (theta[:, q] * np.exp(level))[:, None] * _integral(slope[:, None], start, v)
        alive = np.exp(-total)
        right = scipy.special.expit(odds(q)[:, None] + trend[:, None] * (v[1:] + v[:-1]) / 2)
        chance = ends * ((alive[:, :-1] - alive[:, 1:]) * right).sum(axis=1)
        gained[:, q] += rng.binomial(number, np.clip(chance, 0, 1))
    return gained


def _hazard(
    at: Floats, seen: Bools, cut: Bools, window: float, draws: int, rng: np.random.Generator
) -> tuple[Floats, Floats, Floats]:
    """Draws of a, b (draws,) and theta (draws, M): a Poisson likelihood on two grids."""
    events, first = seen.sum(axis=1), np.where(seen, at, 0).sum(axis=1)
    reached = np.maximum(at, -window)
    weights = rng.dirichlet(np.ones(len(at)), draws) * len(at)
    a, b = np.linspace(-6, 3, _GRID), np.linspace(-4, 4, _GRID)
    for last in (False, True):  # the second grid is where the first found something
        time = np.stack([_integral(x, -window, reached).sum(axis=1) for x in b])  # (grid, M)
        log = a[:, None] * (weights @ events)[:, None, None] + b * (weights @ first)[:, None, None]
        log -= np.exp(a)[:, None] * (weights @ time.T)[:, None, :]
        log -= 0.5 * ((a - _LEVEL[0]) / _LEVEL[1])[:, None] ** 2 + 0.5 * (b / _SLOPE[1]) ** 2
        log = log.reshape(draws, -1)
        if not last:
            p = np.exp(log - log.max(axis=1, keepdims=True))
            p = (p / p.sum(axis=1, keepdims=True)).mean(axis=0).reshape(_GRID, _GRID)
            a, b = _around(a, p.sum(axis=1)), _around(b, p.sum(axis=0))
    i, j = np.unravel_index(_picked(log, rng), (_GRID, _GRID))
    level, slope = (x[k] + (rng.random(draws) - 0.5) * (x[1] - x[0]) for x, k in ((a, i), (b, j)))
    own = np.exp(rng.uniform(*_MEMORY, draws))[:, None]
    theta = rng.gamma(own + events) / (own + np.exp(level)[:, None] * time[j])
    open_ = cut.sum(axis=1)
    return level, slope, theta / np.maximum(theta @ open_ / open_.sum(), 1e-9)[:, None]


def _share(
    at: Floats, seen: Bools, hit: Bools, window: float, draws: int, rng: np.random.Generator
) -> tuple[Floats, Any]:
    """Draws of e (draws,), and a function of q that draws c_q (draws,): logistic, by grids."""
    bins = np.where(seen, np.clip((at + window) / window * _BINS, 0, _BINS - 1), -1).astype(int)
    middle = ((np.arange(_BINS) + 0.5) / _BINS - 1) * window
    right, wrong = (
        np.stack([(part & (bins == j)).sum(axis=1) for j in range(_BINS)], axis=1)
        for part in (seen & hit, seen & ~hit)
    )
    odds = _ODDS[:, None] + _TREND[:, None, None] * middle  # (trends, odds, bins)
    log = np.einsum("qj,ecj->eqc", right, scipy.special.log_expit(odds))
    log += np.einsum("qj,ecj->eqc", wrong, scipy.special.log_expit(-odds))
    pool = np.exp(-0.5 * ((_ODDS[:, None] - _POOL[:, 0]) / _POOL[:, 1]) ** 2)
    pool /= pool.sum(axis=0)
    most = log.max(axis=-1, keepdims=True)
    likely = np.exp(log - most)
    of_all = (np.log(likely @ pool + 1e-300) + most).sum(axis=1)  # (trends, pools)
    of_all -= 0.5 * _TREND[:, None] ** 2 + 0.5 * (_POOL[:, 0] / 2) ** 2
    flat = np.broadcast_to(of_all.ravel(), (draws, of_all.size))
    i, j = np.unravel_index(_picked(flat, rng), of_all.shape)

    def of(q: int) -> Floats:
        k = _picked(np.log(likely[i, q] * pool[:, j].T + 1e-300), rng)
        drawn: Floats = _ODDS[k] + (rng.random(draws) - 0.5) * (_ODDS[1] - _ODDS[0])
        return drawn

    return _TREND[i], of


def _integral(b: Any, start: Any, end: Any) -> Any:
    """Of exp(b v) for v from start to end."""
    b = np.where(np.abs(b) < 1e-6, 1e-6, b)
    return (np.exp(b * end) - np.exp(b * start)) / b


def _picked(log: Floats, rng: np.random.Generator) -> Any:
    """A position for each row, drawn by the weights of which these are logarithms."""
    sums = np.exp(log - log.max(axis=-1, keepdims=True)).cumsum(axis=-1)
    return (sums < rng.random(len(log))[:, None] * sums[:, -1:]).sum(axis=-1)


def _around(x: Floats, p: Floats) -> Floats:
    """A finer grid over where a distribution on the grid x has its mass."""
    mean = float(x @ p)
    half = 4.5 * (np.sqrt((x - mean) ** 2 @ p) + (x[1] - x[0]) / 3)
    return np.linspace(mean - half, mean + half, _GRID)
