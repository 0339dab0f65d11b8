"""Checking the arguments that are not arrays, and giving results their form."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Sequence
from numbers import Integral, Real
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from scoring.numerics.inputs import Bools, Floats, Ints, check_trials

Short = Literal["raise", "drop"]
Bounds = tuple[float, float] | None
UNIT = (0.0, 1.0)

# More attempts than anyone samples: what depends on k has k numbers in memory.
MOST_ATTEMPTS = 1_000_000


class Summary(NamedTuple):
    """A score with its interval; floats, or arrays of shape (...) for a stack."""

    value: Any
    sigma: Any
    low: Any
    high: Any


def result(values: Any) -> Any:
    """Return a float for one matrix and an array for a stack of them."""
    return float(values) if np.ndim(values) == 0 else np.asarray(values)


def check_k(k: int) -> int:
    """Return k as a Python int, from 1 to a million."""
    if check_whole(k, "k", least=1) > MOST_ATTEMPTS:
        raise ValueError(f"k is {k}: pass at most {MOST_ATTEMPTS:,}")
    return int(k)


def check_whole(value: Any, name: str, least: int) -> int:
    """Return a whole number of at least ``least`` as int."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} is {value!r}: pass a whole number, at least {least}")
    return int(value)


def check_positive(value: float, name: str, least: float = 0.0, most: float = np.inf) -> float:
    """Return a positive finite number as float, strictly between the limits."""
    limits = f"above {least:g}" + (f" and below {most:g}" if most < np.inf else "")
    return _number(value, name, lambda x: least < x < most, f"a finite number {limits}")


def check_finite(value: float, name: str) -> float:
    """Return a finite number as float."""
    return _number(value, name, np.isfinite, "a finite number")


def check_share(value: float, name: str) -> float:
    """Return a number from 0 to 1, both included, as float."""
    return _number(value, name, lambda x: 0 <= x <= 1, "a number from 0 to 1")


def check_confidence(confidence: float) -> float:
    """Return a confidence as float, strictly between 0 and 1."""
    advice = "a number between 0 and 1, as in 0.95"
    return _number(confidence, "confidence", lambda x: 0 < x < 1, advice)


def _number(value: Any, name: str, allowed: Callable[[Any], Any], advice: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not allowed(value):
        raise ValueError(f"{name} is {value!r}: pass {advice}")
    return float(value)


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
    if bounds is None:
        return result(ends)
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2
    numbers = pair and all(isinstance(end, Real) for end in bounds)
    if not numbers or not bounds[0] <= bounds[1]:  # also for NaN
        raise ValueError(f"bounds is {bounds!r}: pass (lowest, highest), or None for no limits")
    # Three times as fast as numpy.clip on numbers.
    return result(np.minimum(np.maximum(ends, bounds[0]), bounds[1]))


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


def mean_summary(
    moments: Sequence[Floats], confidence: float, bounds: Bounds, included: Bools | None = None
) -> Summary:
    """Summary of the mean over questions, of which moments are means and variances (..., M)."""
    mu, sigma = question_mean(moments[0], included), question_sigma(moments[1], included)
    return normal_summary(mu, sigma, confidence, bounds)
