"""Giving results their form: means over questions, and intervals."""

import sys
import warnings
from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from scoring.numerics.checks import Bounds, Short, check_bounds, check_confidence
from scoring.numerics.inputs import Bools, Floats, Ints, check_trials


class Summary(NamedTuple):
    """A score with its interval; floats, or arrays of shape (...) for a stack."""

    value: Any
    sigma: Any
    low: Any
    high: Any


def result(values: Any) -> Any:
    """Return a float for one matrix and an array for a stack of them."""
    return float(values) if np.ndim(values) == 0 else np.asarray(values)


def normal_quantile(confidence: float) -> float:
    """Return z such that a standard normal lies in [-z, z] with this probability: 1.96 at 0.95."""
    # The lower tail, since 1/2 + confidence/2 would round to 1 for a confidence close to 1.
    return -NormalDist().inv_cdf((1 - check_confidence(confidence)) / 2)


def normal_summary(mu: Any, sigma: Any, confidence: float, bounds: Bounds = None) -> Summary:
    """Return mu, sigma, and mu -/+ z sigma moved into ``bounds`` (if any).

    mu and sigma are numbers or arrays of one shape; z is :func:`normal_quantile`.

    >>> [round(x, 4) for x in normal_summary(0.9, 0.1, 0.95, (0.0, 1.0))]
    [0.9, 0.1, 0.704, 1.0]
    """
    z = normal_quantile(confidence)
    lo, hi = (within(end, bounds) for end in (mu - z * sigma, mu + z * sigma))
    return Summary(result(mu), result(sigma), lo, hi)


def within(ends: Any, bounds: Bounds) -> Any:
    """Return the ends of intervals moved into bounds (if any)."""
    check_bounds(bounds)
    low, high = bounds or (-np.inf, np.inf)
    return result(np.minimum(np.maximum(ends, low), high))


def enough_trials(trials: Ints, least: int, what: str, short: Short) -> Bools | None:
    """Which questions have ``least`` trials, of ``trials`` (..., M); ``None`` means all of them.

    Questions with fewer are an error that names the estimator, ``what``, and one of them, or with
    ``short="drop"`` a warning, unless nothing is left.
    """
    if short not in ("raise", "drop"):
        raise ValueError(f'short is {short!r}: pass "raise" or "drop"')
    included = trials >= least
    if included.all():
        return None
    if short == "raise":
        check_trials(trials, least, what, ' (short="drop")')
    if not included.any(axis=-1).all():
        raise ValueError(f"{what}: not one question of R has {least} trials, nothing is left")
    left_out = int((~included).sum())
    text = f"{left_out} of {trials.size} questions have fewer than {least} trials and were left out"
    warnings.warn(f"{what}: {text}", stacklevel=_callers_level())
    return included


def _callers_level() -> int:
    """How far up the stack the first function outside this package is, for a warning."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").startswith("scoring."):
        level, frame = level + 1, frame.f_back
    return level


def question_mean(values: Floats, included: Bools | None = None) -> Floats:
    """Mean over questions, the last axis, of those that are included."""
    total, questions = _sum(values, included)
    return np.asarray(total / questions)


def question_sigma(variances: Floats, included: Bools | None = None) -> Floats:
    """Standard deviation of the mean over independent questions, from their variances."""
    total, questions = _sum(variances, included)
    return np.asarray(np.sqrt(total) / questions)


def _sum(values: Floats, included: Bools | None) -> tuple[Any, Any]:
    """The sum over questions that are included, and their number."""
    if included is None:
        return values.sum(axis=-1), values.shape[-1]
    return np.where(included, values, 0.0).sum(axis=-1), included.sum(axis=-1)


def mean_and_sigma(moments: Sequence[Floats], included: Bools | None = None) -> tuple[Any, Any]:
    """Both of the mean over questions, from the questions' means and variances (..., M)."""
    means, variances = moments
    return result(question_mean(means, included)), result(question_sigma(variances, included))
