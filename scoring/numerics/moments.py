"""The formulas of Bayes@N and avg@N on stacks of counts (..., M, C + 1), taken as checked.

Leading axes are free (models, data sets, bootstrap replicates). Notation and source: the docstring
of ``scoring.metrics.bayes``.
"""

from typing import Any

import numpy as np

from bayes_at_n.scoring.numerics.inputs import Floats, Ints


def bayes_from_counts(counts: Ints, weights: Floats, prior: Any = 0) -> tuple[Floats, Floats]:
    """mu and sigma (...) of Bayes@N; the 1 of the uniform prior is added to ``prior`` here."""
    means, variances = posterior_moments(counts + prior + 1, weights)
    return means.mean(axis=-1), np.sqrt(variances.sum(axis=-1)) / means.shape[-1]


def posterior_moments(nu: Ints | Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Mean and variance (..., M) of w . pi_a under Dirichlet(nu_a), nu above 0; equation 15."""
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


def merge_equal(counts: Any, weights: Floats) -> tuple[Floats, Any]:
    """Add up categories of equal weight: distinct weights (L,), ascending, and counts (..., L).

    >>> merge_equal(np.array([[1, 2, 3]]), np.array([0.5, 0.0, 0.5]))[1].tolist()
    [[2, 4]]
    """
    levels, level = np.unique(weights, return_inverse=True)
    return levels, counts @ (level[:, None] == np.arange(levels.size)).astype(counts.dtype)
