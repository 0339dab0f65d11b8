"""Giving results their form: means over questions, and intervals."""

from collections.abc import Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.scoring.numerics.checks import Bounds, check_bounds, check_confidence
from bayes_at_n.scoring.numerics.inputs import Floats


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


def question_sigma(variances: Floats) -> Floats:
    """Standard deviation of the mean over independent questions, from their variances (..., M)."""
    return np.asarray(np.sqrt(variances.sum(axis=-1)) / variances.shape[-1])


def mean_and_sigma(moments: Sequence[Floats]) -> tuple[Any, Any]:
    """Both of the mean over questions, from the questions' means and variances (..., M)."""
    means, variances = moments
    return result(means.mean(axis=-1)), result(question_sigma(variances))
