"""Forecast the score at a larger limit of tokens, or say why the attempts do not tell it.

Beyond the limit two things decide: how many of the attempts cut off end (the hazard), and how many
of those are right (the odds). Both are known in each halving of length below the limit only.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.metrics.empirical import score_ci
from bayes_at_n.scoring.numerics.inputs import (
    Bools,
    Floats,
    Outcomes,
    check_confidence,
    check_whole,
    finite_array,
    nonnegative_array,
)
from bayes_at_n.scoring.numerics.results import Summary, normal_quantile, result

SUPPORT = 0.5  # the least share of attempts that ended, of those that reached half the limit
FEWEST = 10  # attempts that ended in the last half
FURTHEST = 4.0  # times the limit
STEEPEST, APART = 5.0, 0.1  # of the last two halves, how far odds and shares correct may differ
_STUCK = 0.3, 2.0  # beta: the share of attempts cut off that turn in circles and never end
_CHANGE = 0.7  # sigma of what changes in either trend beyond the limit, per doubling
_TREND = 2.5  # the most that either changes per doubling, in logarithms
_STEPS = 12  # in which what lies beyond the limit is added up


class Forecast(NamedTuple):
    """The score at a limit that was not run, in the unit of the score that was passed."""

    value: float  # NaN, as both ends, where there is no forecast
    low: float  # of the score of these questions at that limit
    high: float
    least: float  # what these trials score if none of those cut off becomes right,
    most: float  # and if all do
    why: str  # there is no forecast; empty where there is one


def forecast(
    R: Outcomes,
    tokens: npt.ArrayLike,
    cut: npt.ArrayLike,
    limit: npt.ArrayLike,
    score: Callable[[Any], Summary] = score_ci,
    confidence: float = 0.95,
    draws: int = 1000,
    seed: int = 0,
) -> Forecast:
    """Forecast the score at a higher limit of tokens from attempts under a lower one.

    With v the doublings of length beyond the old limit, attempts cut off end with a hazard per
    doubling and are right, if they end at v, with odds, ::

        h(v) = h_1 exp(b (v + 1/2)),   b = U log(h_1 / h_2) + 0.7 Z,   |log(h_1 / h_2)| <= 2.5

    where h_1 and h_2 are the mean hazards of the last halving of length below the limit and of the
    one before, U is uniform on (0, 1) and Z standard normal: a trend goes on, levels off, or
    changes. The odds have the same form, with their own U and Z. h and odds are drawn with
    questions drawn anew (Bayesian bootstrap), and a share of the attempts cut off that never ends
    is Beta(0.3, 2), mean 0.13. The share s that becomes right is that of a question by
    Beta(s, 1 - s): all of its attempts may well do alike. With f the share gained of all that could
    be, the score is ``least + f (most - least)`` with the spread of the present one around it.
    Neither it nor its interval is ever below what is there: attempts that ended stay as they are.

    There is no forecast, and ``why`` says so, where under half of the attempts that reached half of
    the limit ended before it, or under ten; where the odds of being right surely change
    fivefold, and their share by ten points, from the half before to the last half (95% of draws);
    beyond four times the limit.

    Args:
        R: outcomes in [0, 1], shape (M, N), masked where missing.
        tokens: lengths of completions, (M, N).
        cut: whether each ran into its limit, (M, N).
        limit: the higher limit, one for all or (M,). Attempts that reach it stay as they are; all
            others that were cut off are taken to have reached the longest of these.
        score: from outcomes to value, sigma, low and high at the same ``confidence``.
        confidence: of the interval.
        draws: random draws, with this ``seed``.

    Raises ValueError: shapes that differ, lengths under 1. Sources: the Bayesian bootstrap (Rubin,
    1981); the rest is ours, and ``benchmarks/forecast.py`` measures how often it holds.

    >>> R = np.array([[1, 0, 0, 1, 1, 0, 0, 0]] * 6)
    >>> tokens = np.array([[30, 40, 50, 70, 90, 95, 100, 100]] * 6)
    >>> f = forecast(R, tokens, tokens == 100, 200)
    >>> f.why, f.least < f.value < f.most, f.low < f.value < f.high
    ('', True, True)
    >>> forecast(R, tokens, tokens == 100, 500).why
    'it is more than 4 times the limit of 100 tokens'
    """
    check_confidence(confidence)
    outcomes: Any = np.ma.asarray(R)  # type: ignore[no-untyped-call]
    there = ~np.ma.getmaskarray(outcomes)  # type: ignore[no-untyped-call]
    if not there.ndim == 2 or not there.shape == np.shape(tokens) == np.shape(cut):
        raise ValueError("R, tokens and cut have other shapes: pass (questions, trials) of all")
    lengths = np.where(there, np.ma.filled(tokens, 1), 1.0)
    if finite_array(lengths, "tokens").min() < 1:
        raise ValueError("tokens: pass lengths of at least 1")
    credit = outcomes.filled(0)
    ends = np.broadcast_to(finite_array(limit, "limit"), len(credit))
    was_cut = np.asarray(cut, bool) & there
    goes_on = was_cut & (credit < 1) & (lengths < ends[:, None])
    now, all_right = score(outcomes), score(np.ma.where(goes_on, 1, outcomes))  # type: ignore[no-untyped-call]
    least, most = float(now.value), float(all_right.value)
    if not goes_on.any():
        return Forecast(least, float(now.low), float(now.high), least, most, "")
    top = lengths[goes_on].max()
    at = np.where(there, np.log2(lengths / top), -np.inf)  # doublings: 0 at the limit
    ended, rng = there & ~was_cut, np.random.default_rng(check_whole(seed, "seed", 0))
    weights = rng.dirichlet(np.ones(len(at)), draws)
    halves = [_half(at, ended, credit, weights, back) for back in (1, 2)]
    near = [int((ended & (at > -1)).sum()), int(goes_on.sum())]
    if why := _why_not(near, float(ends.max() / top), top, halves):
        return Forecast(np.nan, np.nan, np.nan, least, most, why)
    doublings = np.maximum(np.log2(ends / top), 0)
    share = _share(doublings, halves, rng)
    own = rng.beta(np.maximum(share, 1e-9), np.maximum(1 - share, 1e-9))
    gained = rng.binomial(goes_on.sum(axis=1), own).sum(axis=1) / goes_on.sum()
    z, unit = rng.standard_normal(draws), normal_quantile(confidence)
    reach = np.where(z < 0, now.value - now.low, now.high - now.value) / unit
    drawn = least + gained * (most - least) + z * reach
    low, high = np.quantile(drawn, [(1 - confidence) / 2, (1 + confidence) / 2])
    value, low = least + float(gained.mean()) * (most - least), max(float(low), float(now.low))
    return Forecast(value, low, min(float(high), float(all_right.high)), least, most, "")


def _half(
    at: Floats, ended: Bools, credit: Floats, weights: Floats, back: int
) -> tuple[Floats, Floats]:
    """Draw logarithms (draws,) of the hazard in a halving of length, and of the odds there."""
    inside = ended & (at > -back) & (at <= 1 - back)
    sums = ((at > -back).sum(axis=1), inside.sum(axis=1), (inside * credit).sum(axis=1))
    reached, ends, right = (len(at) * weights @ of for of in sums)
    hazard = -np.log1p(-(ends + 0.5) / (reached + 1))
    return np.log(hazard), np.log((right + 0.5) / (ends - right + 0.5))


def _why_not(near: list[int], times: float, top: float, halves: list[tuple[Floats, Floats]]) -> str:
    """Say why there is no forecast; empty where there is one."""
    ended, cut = near
    if times > FURTHEST:
        return f"it is more than {FURTHEST:g} times the limit of {top:,.0f} tokens"
    if ended < max(FEWEST, SUPPORT * (ended + cut)):
        return f"of {ended + cut:,} attempts that reached half of the limit only {ended:,} ended"
    last, before = (scipy.special.expit(np.median(odds)) for _, odds in halves)
    change = halves[0][1] - halves[1][1]
    surely = max(np.quantile(change, 0.025), np.quantile(-change, 0.025))
    if surely > np.log(STEEPEST) and abs(last - before) > APART:
        return (
            f"{last:.0%} of the attempts that ended in the last half of the limit are right, in the"
            f" half before {before:.0%}: longer ones may be anything"
        )
    return ""


def _share(
    doublings: Floats, halves: list[tuple[Floats, Floats]], rng: np.random.Generator
) -> Floats:
    """Draw the share of attempts cut off that are right so many doublings later: (draws, M)."""
    draws = halves[0][0].size
    slopes = [
        np.clip(last - before, -_TREND, _TREND) * rng.random(draws)
        + _CHANGE * rng.standard_normal(draws)
        for last, before in zip(*halves, strict=True)
    ]
    # From the middle of the last half.
    v = (np.arange(_STEPS) + 0.5) / _STEPS * doublings.max()
    hazard, odds = (
        last[:, None] + slope[:, None] * (v + 0.5)
        for last, slope in zip(halves[0], slopes, strict=True)
    )
    alive = np.exp(-np.exp(hazard).cumsum(axis=1) * doublings.max() / _STEPS)
    right = -np.diff(alive, axis=1, prepend=1.0) * scipy.special.expit(odds)
    right *= 1 - rng.beta(*_STUCK, (draws, 1))
    passed = np.round(doublings / doublings.max() * _STEPS).astype(int)
    return np.pad(right.cumsum(axis=1), [(0, 0), (1, 0)])[:, passed]


def sampling_cost(
    input_tokens: npt.ArrayLike,
    output_tokens: npt.ArrayLike,
    n: npt.ArrayLike,
    cache_miss: npt.ArrayLike = 1.25,
    cache_hit: npt.ArrayLike = 0.125,
    output: npt.ArrayLike = 10.0,
) -> Any:
    """Price n trials of a question, of which the first reads the prompt and others reuse it::

        cost = cache_miss input_tokens + cache_hit input_tokens (n - 1) + output output_tokens n

    k is not in it: all scores of the same n trials cost the same, and MaP's cost of Pass@k is that
    of n = k trials.

    ``input_tokens`` are those of the prompt, or their mean over questions, and ``output_tokens``
    those of a completion, or their mean over attempts; ``n``, at least 1, are trials of a question.
    ``cache_miss`` and ``cache_hit`` are prices of an input token that is read for the first time,
    or held by the cache, and ``output`` that of an output token; the defaults are those of MaP's
    Table 6, where a prompt has 4 tokens to each token of its completion. All are 0 or more, and
    broadcast. Raises ValueError: others. The cost is a float, or an array of the broadcast shape.

    >>> sampling_cost(4, 1, [1, 2, 4, 8, 16]).tolist()
    [15.0, 25.5, 46.5, 88.5, 172.5]
    """
    read, written = (
        nonnegative_array(tokens, "tokens") for tokens in (input_tokens, output_tokens)
    )
    trials = nonnegative_array(n, "n")
    miss, hit, price = (nonnegative_array(of, "prices") for of in (cache_miss, cache_hit, output))
    if (trials < 1).any():
        raise ValueError(f"n is {trials.min():g}: pass a number of trials, at least 1")
    return result(miss * read + hit * read * (trials - 1) + price * written * trials)
