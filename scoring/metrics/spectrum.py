"""Threshold spectra: weighted sums of "at least r of k attempts are correct", r = 1..k.

S_{w,k} = sum_r w_r P(at least r of k correct), and GeoSpectrum, Pass@k^lambda S^(1 - lambda).
Definitions as documented for the authors' library; moments from the Beta posterior of Hariri et
al., "Don't Pass@k", arXiv 2510.04265, equation 9. Arguments and returns are those of ``pass_at_k``
and ``pass_at_k_ci`` (``passk.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scoring.metrics.geom import blend, blend_variance
from scoring.metrics.passk import at_least, pass_at_k
from scoring.metrics.thresholds import upper_half
from scoring.numerics.arrays import number_array
from scoring.numerics.checks import (
    UNIT,
    Short,
    check_k,
    check_share,
    normal_interval,
    question_mean,
    result,
)
from scoring.numerics.credit import beta_binomial, credit_moments, subset_scores
from scoring.numerics.estimate import credit_summary, enough_binary, posterior_states, subset_mean
from scoring.numerics.inputs import Floats, Outcomes
from scoring.numerics.powers import power_moments


def threshold_spectrum_at_k(
    R: Outcomes, k: int, weights: npt.ArrayLike, short: Short = "raise"
) -> Any:
    """S_{w,k}: sum over r = 1..k of w_r times the chance that at least r of k are correct.

    As a credit for exactly j correct attempts this is w_1 + ... + w_j.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        weights: w_1..w_k, not negative, with a sum of at most 1, shape (k,).
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The estimate, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`; weights of another length, negative, or with
            a larger sum.

    Source: threshold spectrum of the authors' library; arXiv 2510.04265, equation 23.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(threshold_spectrum_at_k(R, 2, [0.5, 0.5]), 6)
    0.7
    """
    return subset_mean(R, _credit(weights, check_k(k)), f"the spectrum at k = {k}", short)


def threshold_spectrum_at_k_ci(
    R: Outcomes,
    k: int,
    weights: npt.ArrayLike,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> tuple[Any, Any, Any, Any]:
    """Posterior summary of :func:`threshold_spectrum_at_k`, of k new attempts.

    Args:
        R: as for :func:`scoring.pass_at_k`; questions without trials are allowed.
        k: number of attempts, at least 1; may be above the number of trials.
        weights: as for :func:`threshold_spectrum_at_k`.
        confidence: as for :func:`scoring.pass_at_k_ci`.
        bounds: as for :func:`scoring.pass_at_k_ci`.
        alpha0: as for :func:`scoring.pass_at_k_ci`.
        beta0: as for :func:`scoring.pass_at_k_ci`.

    Returns:
        mu, sigma, lo, hi, as for :func:`scoring.pass_at_k_ci`.

    Raises:
        ValueError: as for :func:`threshold_spectrum_at_k` and :func:`scoring.pass_at_k_ci`.

    Source: Beta posterior (arXiv 2510.04265, equation 9) of the same score.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> mu, sigma, lo, hi = threshold_spectrum_at_k_ci(R, 2, [0.5, 0.5])
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.642857, 0.118451, 0.4107, 0.875)
    """
    credit, prior = _credit(weights, check_k(k)), (alpha0, beta0)
    what = f"the spectrum at k = {k}"
    return credit_summary(R, credit, what, "raise", confidence, bounds, prior, 0)


def geo_spectrum_at_k(
    R: Outcomes,
    k: int,
    lam: float = 0.5,
    weights: npt.ArrayLike | None = None,
    lambda_: float | None = None,
    short: Short = "raise",
) -> Any:
    """GeoSpectrum: Pass@k to the power lambda times S_{w,k} to the power 1 - lambda.

    Both are averaged over questions first. Without weights S is mG-Pass@k, which with lambda 1/2
    is GeoSpectrum*@k, :func:`geo_spectrum_star_at_k`.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        lam: lambda, from 0 (only S) to 1 (only Pass@k).
        weights: as for :func:`threshold_spectrum_at_k`, or ``None``.
        lambda_: another name of lam; pass one of them.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The score, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`threshold_spectrum_at_k`; lambda outside [0, 1].
        TypeError: both lam and lambda_.

    Source: GeoSpectrum of the authors' library.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(geo_spectrum_at_k(R, 3), 6), round(geo_spectrum_at_k(R, 3, lam=1.0), 6)
    (0.408248, 1.0)
    """
    lam, k = _one_lambda(lam, lambda_), check_k(k)
    if lam == 1.0:
        return pass_at_k(R, k, short)
    credit = upper_half(k) if weights is None else _credit(weights, k)
    correct, trials, kept = enough_binary(R, k, f"GeoSpectrum@{k}", short)
    spectrum = question_mean(subset_scores(credit, correct, trials), kept)
    if lam == 0.0:
        return result(spectrum)
    any_ = question_mean(subset_scores(at_least(1, k), correct, trials), kept)
    return result(blend(any_, spectrum, lam, 1.0 - lam))


def geo_spectrum_at_k_ci(
    R: Outcomes,
    k: int,
    lam: float = 0.5,
    weights: npt.ArrayLike | None = None,
    lambda_: float | None = None,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> tuple[Any, Any, Any, Any]:
    """Approximate posterior summary of :func:`geo_spectrum_at_k`, of k new attempts.

    mu is the blend of the posterior means of Pass@k and S, and sigma follows from their variances
    and covariance to first order (delta method).

    Args:
        R: as for :func:`scoring.pass_at_k`; questions without trials are allowed.
        k: number of attempts, at least 1; may be above the number of trials.
        lam: as for :func:`geo_spectrum_at_k`.
        weights: as for :func:`geo_spectrum_at_k`; not looked at with lambda 1.
        lambda_: as for :func:`geo_spectrum_at_k`.
        confidence: as for :func:`scoring.pass_at_k_ci`.
        bounds: as for :func:`scoring.pass_at_k_ci`.
        alpha0: as for :func:`scoring.pass_at_k_ci`.
        beta0: as for :func:`scoring.pass_at_k_ci`.

    Returns:
        mu, sigma, lo, hi, as for :func:`scoring.pass_at_k_ci`.

    Raises:
        ValueError: as for :func:`geo_spectrum_at_k` and :func:`scoring.pass_at_k_ci`.
        TypeError: both lam and lambda_.

    Source: Beta posterior (arXiv 2510.04265, equation 9); delta method.

    >>> mu, sigma, lo, hi = geo_spectrum_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2)
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.612112, 0.132755, 0.3519, 0.8723)
    """
    lam, k = _one_lambda(lam, lambda_), check_k(k)
    what, prior = f"GeoSpectrum@{k}", (alpha0, beta0)
    if lam in (0.0, 1.0):
        upper = upper_half(k) if weights is None or lam == 1.0 else _credit(weights, k)
        credit = at_least(1, k) if lam == 1.0 else upper
        return credit_summary(R, credit, what, "raise", confidence, bounds, prior, 0)
    credit = upper_half(k) if weights is None else _credit(weights, k)
    key = (credit.tobytes(),)
    found, _ = posterior_states(R, k, what, "raise", 0, _pair_moments, key, prior)
    x, y = (question_mean(means, None) for means in found[:2])
    vx, vy, cov = (part.sum(axis=-1) / part.shape[-1] ** 2 for part in found[2:])
    mu = blend(x, y, lam, 1.0 - lam)
    sigma = np.sqrt(blend_variance(mu, x, y, vx, vy, cov, lam, 1.0 - lam))
    return result(mu), result(sigma), *normal_interval(mu, sigma, confidence, bounds)


def _pair_moments(weights: bytes, alpha: Floats, beta: Floats) -> tuple[Floats, ...]:
    """Moments of Pass@k and of the spectrum with these credits, and their covariance."""
    credit = np.frombuffer(weights)
    k = credit.size - 1
    none, any_, any_variance = power_moments(beta, alpha, k)
    mean, variance = credit_moments(credit, alpha, beta)
    # E q^k S(p) is E q^k times the mean of S under Beta(alpha, beta + k).
    covariance = none * (mean - beta_binomial(k, alpha, beta + k) @ credit)
    return any_, mean, any_variance, variance, covariance


def geo_spectrum_star_at_k(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """GeoSpectrum*@k, the square root of Pass@k times mG-Pass@k.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        As for :func:`geo_spectrum_at_k`, of which this is the default.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`.

    Source: GeoSpectrum of the authors' library.

    >>> round(geo_spectrum_star_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 3), 6)
    0.408248
    """
    return geo_spectrum_at_k(R, k, short=short)


def geo_spectrum_star_at_k_ci(
    R: Outcomes,
    k: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> tuple[Any, Any, Any, Any]:
    """Approximate posterior summary of :func:`geo_spectrum_star_at_k`.

    Args:
        R: as for :func:`geo_spectrum_at_k_ci`.
        k: as for :func:`geo_spectrum_at_k_ci`.
        confidence: as for :func:`scoring.pass_at_k_ci`.
        bounds: as for :func:`scoring.pass_at_k_ci`.
        alpha0: as for :func:`scoring.pass_at_k_ci`.
        beta0: as for :func:`scoring.pass_at_k_ci`.

    Returns:
        mu, sigma, lo, hi, as for :func:`geo_spectrum_at_k_ci`, of which this is the default.

    Raises:
        ValueError: as for :func:`geo_spectrum_at_k_ci`.

    Source: as for :func:`geo_spectrum_at_k_ci`.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> geo_spectrum_star_at_k_ci(R, 2) == geo_spectrum_at_k_ci(R, 2)
    True
    """
    return geo_spectrum_at_k_ci(
        R, k, confidence=confidence, bounds=bounds, alpha0=alpha0, beta0=beta0
    )


def _one_lambda(lam: float, lambda_: float | None) -> float:
    if lambda_ is not None and lam != 0.5:
        raise TypeError(f"lam is {lam!r} and lambda_ is {lambda_!r}: pass one of them")
    return check_share(lam if lambda_ is None else lambda_, "lam")


def _credit(weights: npt.ArrayLike, k: int) -> Floats:
    """Credits w_1 + ... + w_j, j = 0..k, of checked weights w_1..w_k."""
    w = number_array(weights, "weights")
    if w.ndim != 1 or w.size != k:
        raise ValueError(f"weights has shape {w.shape}: pass {k} numbers, for k = {k}")
    w = w.astype(np.float64)
    bad = np.flatnonzero(~((w >= 0) & (w <= 1)))
    if bad.size:
        raise ValueError(f"weights[{bad[0]}] is {w[bad[0]]}: weights lie between 0 and 1")
    if w.sum() > 1 + 1e-12:
        raise ValueError(f"weights sum to {w.sum()}: the sum may be at most 1")
    return np.concatenate([[0.0], np.cumsum(w)])
