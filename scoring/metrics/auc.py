"""AUC@k: the area under the curve of Pass@1, ..., Pass@k."""

from __future__ import annotations

from typing import Any

import numpy as np

from scoring.numerics.checks import UNIT, Short, check_k
from scoring.numerics.estimate import credit_summary, subset_mean
from scoring.numerics.inputs import Floats, Outcomes


def auc_at_k(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """AUC@k: the mean height of the line through Pass@1, ..., Pass@k.

    ::

        1/(k - 1) sum_{j = 1..k-1} (Pass@j + Pass@(j + 1)) / 2,    Pass@1 for k = 1

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The estimate, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`.

    Source: Hu et al., arXiv 2601.08763, with Pass@j of arXiv 2510.04265, equation 21.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> [round(auc_at_k(R, k), 6) for k in (1, 2, 3)]
    [0.7, 0.825, 0.9]
    """
    return subset_mean(R, _credit(check_k(k)), f"AUC@{k}", short)


def auc_at_k_ci(
    R: Outcomes,
    k: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
    short: Short = "raise",
) -> tuple[Any, Any, Any, Any]:
    """Posterior summary of :func:`auc_at_k`, of k new attempts.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        confidence: as for :func:`scoring.pass_at_k_ci`.
        bounds: as for :func:`scoring.pass_at_k_ci`.
        alpha0: as for :func:`scoring.pass_at_k_ci`.
        beta0: as for :func:`scoring.pass_at_k_ci`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        mu, sigma, lo, hi, as for :func:`scoring.pass_at_k_ci`.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k_ci`.

    Source: Beta posterior (arXiv 2510.04265, equation 9) of the same weighted sum of Pass@j.

    >>> mu, sigma, lo, hi = auc_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 3)
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.809524, 0.09506, 0.6232, 0.9958)
    """
    credit, prior = _credit(check_k(k)), (alpha0, beta0)
    return credit_summary(R, credit, f"AUC@{k}", short, confidence, bounds, prior, k)


def _credit(k: int) -> Floats:
    """What j of k correct attempts earn: the area under Pass@1..Pass@k of those k attempts.

    With none of i attempts correct having probability C(k - j, i) / C(k, i), the trapezoids are
    summed from i = 1 to k, one vector over j at a time.
    """
    wrong = k - np.arange(k + 1)
    none_correct = np.ones(k + 1)
    area = np.zeros(k + 1)
    for i in range(k):
        none_correct = none_correct * np.maximum(wrong - i, 0) / (k - i)
        area += (1.0 - none_correct) * (1.0 if 0 < i < k - 1 or k == 1 else 0.5)
    return area / max(1, k - 1)
