"""Formulas of Bayes@N and avg@N on counts, and giving results their form: means and intervals.

Counts are stacks (..., M, C + 1), taken as checked; leading axes are free (models, datasets,
bootstrap replicates). Notation and source: the docstring of ``scoring.metrics.bayes``.
"""

from collections.abc import Iterable, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import scipy

from bayes_at_n.scoring.numerics.inputs import Bounds, Floats, Ints, check_bounds, check_confidence

Clusters: TypeAlias = Iterable[Any] | None


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


def student_summary(
    mean: Any, sigma: Any, freedom: Any, confidence: float, bounds: Bounds = None
) -> Summary:
    """Return mean, sigma, and Student's interval of so many degrees of freedom, within bounds.

    >>> [round(float(x), 3) for x in student_summary(0.5, 0.1, 2, 0.95)]
    [0.5, 0.1, 0.07, 0.93]
    """
    reach = -scipy.special.stdtrit(freedom, (1 - check_confidence(confidence)) / 2) * sigma
    ends = (within(end, bounds) for end in (mean - reach, mean + reach))
    return Summary(result(mean), result(sigma), *ends)


def within(ends: Any, bounds: Bounds) -> Any:
    """Return the ends of intervals moved into bounds (if any)."""
    check_bounds(bounds)
    low, high = bounds or (-np.inf, np.inf)
    return result(np.minimum(np.maximum(ends, low), high))


def question_sigma(variances: Floats) -> Floats:
    """Compute sigma of the mean over independent questions, from their variances (..., M)."""
    return np.asarray(np.sqrt(variances.sum(axis=-1)) / variances.shape[-1])


def mean_and_sigma(moments: Sequence[Floats]) -> tuple[Any, Any]:
    """Compute both of the mean over questions, from their means and variances (..., M)."""
    means, variances = moments
    return result(means.mean(axis=-1)), result(question_sigma(variances))


def bayes_from_counts(counts: Ints, weights: Floats, prior: Any = 0) -> tuple[Floats, Floats]:
    """Compute mu and sigma (...) of Bayes@N; the uniform prior's 1 is added to ``prior`` here."""
    means, variances = posterior_moments(counts + prior + 1, weights)
    return means.mean(axis=-1), question_sigma(variances)


def posterior_moments(nu: Ints | Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Compute mean and variance (..., M) of w . pi_a under Dirichlet(nu_a); equation 15."""
    total = nu.sum(axis=-1)
    probabilities = nu / total[..., None]
    # Relative to w_0, as the paper writes it: weights that are all equal give exactly w_0 and 0.
    offsets = weights - weights[0]
    means = probabilities @ offsets
    spread = (probabilities * (offsets - means[..., None]) ** 2).sum(axis=-1)
    return weights[0] + means, spread / (total + 1)


def observed_means(counts: Ints, weights: Floats) -> Floats:
    """Return each question's mean weighted outcome, shape (..., M)."""
    means: Floats = weights[0] + (counts @ (weights - weights[0])) / counts.sum(axis=-1)
    return means


def sample_sigma(values: Floats, clusters: Clusters = None) -> tuple[Floats, int]:
    """Compute the standard error (...) of the mean of a sample of questions, values (..., M).

    ``clusters`` labels those that were drawn together, (M,); without it each was drawn alone. Of G
    clusters, with S_c the sum over cluster c of x_a - mean::

        sigma^2 = G / (G - 1) sum_c S_c^2 / M^2

    which for G = M is the sample variance over M. Returns also G. Raises ValueError: labels of
    another length, or fewer than two clusters. Source: Miller, arXiv 2411.00640, section 2.2, with
    the factor for few clusters of Cameron and Miller (2015).

    >>> x = np.array([0.0, 1.0, 1.0, 1.0])
    >>> [round(float(sample_sigma(x, labels)[0]), 4) for labels in (None, "aabb")]
    [0.25, 0.25]
    """
    questions = values.shape[-1]
    sums = values - values.mean(axis=-1, keepdims=True)
    if clusters is not None:
        labels = np.asarray([*clusters])
        if labels.shape != (questions,):
            raise ValueError(f"clusters has shape {labels.shape}: pass one label a question")
        order = np.argsort(labels, kind="stable")
        starts = np.unique(labels[order], return_index=True)[1]
        sums = np.add.reduceat(sums[..., order], starts, axis=-1)
    count = sums.shape[-1]
    if count < 2:
        noun = "question" if clusters is None else "cluster"
        raise ValueError(f"R has 1 {noun}: a sample of questions needs at least 2")
    return np.sqrt(count / (count - 1) * (sums**2).sum(axis=-1)) / questions, count


def sample_summary(
    means: Floats, bounds: Any, confidence: float, clusters: Clusters = None, least: Any = 0.0
) -> Summary:
    """Average a sample of questions' means (..., M), with an interval for what they are drawn from.

    A few questions that are alike do not show that all are: for the interval two clusters more are
    drawn, each of mean size, one with the lowest possible mean and one with the highest (as Agresti
    and Coull, 1998, do for a share), and of the G + 2 it is Student's with G + 1 degrees of
    freedom, moved into ``bounds``, which are those means. No sigma is below ``least``. Raises
    ValueError: see :func:`sample_sigma`.
    """
    value, sigma = means.mean(axis=-1), np.maximum(sample_sigma(means, clusters)[0], least)
    labels = np.arange(means.shape[-1])
    if clusters is not None:
        labels = np.unique(np.asarray([*clusters]), return_inverse=True)[1]
    drawn = int(labels.max()) + 1
    extra = np.repeat([0, 1], round(labels.size / drawn))
    two = np.broadcast_to(np.array(bounds)[extra], (*means.shape[:-1], extra.size))
    means = np.concatenate([means, two], axis=-1)
    spread, count = sample_sigma(means, [*labels, *drawn + extra])
    reach = -scipy.special.stdtrit(count - 1, (1 - check_confidence(confidence)) / 2)
    reach, middle = reach * np.maximum(spread, least), means.mean(axis=-1)
    ends = np.minimum(middle - reach, value), np.maximum(middle + reach, value)
    return Summary(result(value), result(sigma), *(within(end, bounds) for end in ends))


def merge_equal(counts: Any, weights: Floats) -> tuple[Floats, Any]:
    """Add up categories of equal weight: distinct weights (L,), ascending, and counts (..., L).

    >>> merge_equal(np.array([[1, 2, 3]]), np.array([0.5, 0.0, 0.5]))[1].tolist()
    [[2, 4]]
    """
    levels, level = np.unique(weights, return_inverse=True)
    return levels, counts @ (level[:, None] == np.arange(levels.size)).astype(counts.dtype)
