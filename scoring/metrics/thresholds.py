"""At least so many of k attempts correct: G-Pass@k with a threshold, mG-Pass@k, Maj@k, AUC@k.

Each is a vector of credits (``_credit.py``) for j of k correct attempts, taken over k-subsets of
the observed trials, and, with a credible interval, over k new attempts. Arguments and returns are
those of ``pass_at_k`` and ``pass_at_k_ci`` (``passk.py``). Formulas from Hariri et al., "Don't
Pass@k", arXiv 2510.04265 (equations 23 and 24), after Liu et al., arXiv 2412.13147.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from scoring.metrics.passk import at_least
from scoring.numerics.checks import UNIT, Short, check_k, check_share
from scoring.numerics.estimate import credit_summary, subset_mean
from scoring.numerics.inputs import Floats, Outcomes


def g_pass_at_k_tau(R: Outcomes, k: int, tau: float, short: Short = "raise") -> Any:
    """G-Pass@k: the chance that at least ceil(tau k) of k attempts are correct.

    ::

        1/M sum_a sum_{j = j0..k} C(c_a, j) C(N_a - c_a, k - j) / C(N_a, k),  j0 = ceil(tau k)

    With tau = 0 (j0 = 1, at least one) it is Pass@k and with tau = 1 Pass^k; at tau = 0.5 and
    k = 2 it *is* Pass@2. A tau of j/k, as floats divide, asks for exactly j.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        tau: share of the k attempts that must be correct, from 0 to 1.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The estimate, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`; tau outside [0, 1].

    Source: arXiv 2510.04265, equation 23.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(g_pass_at_k_tau(R, 2, 0.5), 6), round(g_pass_at_k_tau(R, 2, 1.0), 6)
    (0.95, 0.45)
    """
    return subset_mean(R, at_least(needed(tau, k), k), f"G-Pass@{k}", short)


def g_pass_at_k_tau_ci(
    R: Outcomes,
    k: int,
    tau: float,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
    short: Short = "raise",
) -> tuple[Any, Any, Any, Any]:
    """Posterior summary of :func:`g_pass_at_k_tau`, of k new attempts.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        tau: as for :func:`g_pass_at_k_tau`.
        confidence: as for :func:`scoring.pass_at_k_ci`.
        bounds: as for :func:`scoring.pass_at_k_ci`.
        alpha0: as for :func:`scoring.pass_at_k_ci`.
        beta0: as for :func:`scoring.pass_at_k_ci`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        mu, sigma, lo, hi, as for :func:`scoring.pass_at_k_ci`.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k_ci`; tau outside [0, 1].

    Source: Beta posterior (arXiv 2510.04265, equation 9) of the score in equation 23.

    >>> mu, sigma, lo, hi = g_pass_at_k_tau_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2, 0.5)
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.839286, 0.097263, 0.6487, 1.0)
    """
    credit = at_least(needed(tau, k), k)
    prior = (alpha0, beta0)
    return credit_summary(R, credit, f"G-Pass@{k}", short, confidence, bounds, prior, k)


def mg_pass_at_k(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """mG-Pass@k in its published closed form, with credits 2/k max(j - ceil(k/2), 0).

    The closed form is meant as 2 int_{0.5}^{1} G-Pass@k(tau) d tau, and is that for even k. For
    odd k it is lower, and 0 for k = 1: use :func:`mg_pass_at_k_integral` for the integral.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The estimate, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`.

    Source: arXiv 2510.04265, equation 24, as the authors' library sums it.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(mg_pass_at_k(R, 2), 6), round(mg_pass_at_k(R, 3), 6)
    (0.45, 0.166667)
    """
    return subset_mean(R, upper_half(check_k(k)), f"mG-Pass@{k}", short)


def mg_pass_at_k_ci(
    R: Outcomes,
    k: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
    short: Short = "raise",
) -> tuple[Any, Any, Any, Any]:
    """Posterior summary of :func:`mg_pass_at_k`, of k new attempts.

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

    Source: Beta posterior (arXiv 2510.04265, equation 9) of the score in equation 24.

    >>> mu, sigma, lo, hi = mg_pass_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2)
    >>> round(mu, 6), round(sigma, 6)
    (0.446429, 0.146167)
    """
    credit, prior = upper_half(check_k(k)), (alpha0, beta0)
    return credit_summary(R, credit, f"mG-Pass@{k}", short, confidence, bounds, prior, k)


def mg_pass_at_k_integral(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """2 int_{0.5}^{1} G-Pass@k(tau) d tau, exactly: credits max(2 j/k - 1, 0).

    j of k correct attempts pass every threshold up to j/k, which is 2 (j/k - 1/2) of the range.
    Equal to :func:`mg_pass_at_k` for even k only; at k = 1 it is Pass@1.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The estimate, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`.

    Source: the integral in arXiv 2510.04265, equation 24.

    >>> round(mg_pass_at_k_integral([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 3), 6)
    0.45
    """
    k = check_k(k)
    credit = np.maximum(2.0 * np.arange(k + 1) / k - 1.0, 0.0)
    return subset_mean(R, credit, f"mG-Pass@{k}", short)


def maj_at_k(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """Maj@k: the chance that more than half of k attempts are correct.

    This is :func:`g_pass_at_k_tau` with at least floor(k/2) + 1 correct. A vote over answers may
    do better, since wrong answers can disagree; this needs only which attempts were correct.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The estimate, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`.

    Source: arXiv 2510.04265, equation 23, with the threshold of a strict majority.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> [round(maj_at_k(R, k), 6) for k in (1, 2, 3)]
    [0.7, 0.45, 0.85]
    """
    k = check_k(k)
    return subset_mean(R, at_least(k // 2 + 1, k), f"Maj@{k}", short)


def maj_at_k_ci(
    R: Outcomes,
    k: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
    short: Short = "raise",
) -> tuple[Any, Any, Any, Any]:
    """Posterior summary of :func:`maj_at_k`, of k new attempts.

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

    Source: Beta posterior (arXiv 2510.04265, equation 9) of the strict majority.

    >>> mu, sigma, lo, hi = maj_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 3)
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.684524, 0.151958, 0.3867, 0.9824)
    """
    k, prior = check_k(k), (alpha0, beta0)
    credit = at_least(k // 2 + 1, k)
    return credit_summary(R, credit, f"Maj@{k}", short, confidence, bounds, prior, k)


def needed(tau: float, k: int) -> int:
    """Correct attempts of k that threshold tau asks for: max(1, ceil(tau k)).

    Compared with j/k, not by rounding tau k up, which 0.07 * 100 = 7.000000000000001 would spoil.

    >>> needed(0.07, 100), needed(0.5, 3), needed(0.0, 4)
    (7, 2, 1)
    """
    tau, k = check_share(tau, "tau"), check_k(k)
    j = math.floor(tau * k)
    return max(1, j + (tau > j / k))


def upper_half(k: int) -> Floats:
    """Credits of mG-Pass@k, 2/k max(j - ceil(k/2), 0), shape (k + 1,)."""
    credit: Floats = np.maximum(np.arange(k + 1) - (k + 1) // 2, 0) * (2.0 / k)
    return credit
