"""Blends of two scores: Geom@k of Pass@k and Pass^k, GeoSpectrum of Pass@k and a spectrum.

Definitions as documented for the authors' library, of scores in arXiv 2510.04265, equations 21 to
24. Intervals: mu is the blend of the moments of the Beta posterior (equation 9), and sigma follows
from their variances and covariance to first order (delta method).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.passk import spectrum, upper_half
from bayes_at_n.scoring.numerics.checks import Bounds, check_finite, check_k, check_share
from bayes_at_n.scoring.numerics.credit import (
    at_least,
    opposite_moments,
    spectrum_moments,
    subset_scores,
)
from bayes_at_n.scoring.numerics.estimate import (
    beta_moments,
    beta_summary,
    credit_posterior,
    enough_binary,
    interval_of,
    subset_mean,
)
from bayes_at_n.scoring.numerics.inputs import Floats, Outcomes
from bayes_at_n.scoring.numerics.results import Summary, normal_summary, result


def geom_at_k(R: Outcomes, k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Any:
    """Geom@k of each question, averaged: Pass@k^a Pass^k^b, blended before averaging.

    a is ``pass_power`` and b ``unanimous_power``. A ValueError if both are 0, or one is negative
    and its score 0. All else: :func:`scoring.pass_at_k`.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(geom_at_k(R, 2), 6), [round(x, 4) for x in geom_at_k_ci(R, 2)]
    (0.647106, [0.6107, 0.1331, 0.3498, 0.8716])
    """
    correct, trials = enough_binary(R, check_k(k), f"Geom@{k}")
    any_, all_ = (subset_scores(at_least(least, k), correct, trials) for least in (1, k))
    return result(blend(any_, all_, pass_power, unanimous_power).mean(axis=-1))


geom_at_k_ci = interval_of(
    geom_at_k,
    "Geom@{k}",
    lambda k, a, b: (_blended_moments, k, *check_powers(a, b)),
    least=False,
)


def geom_ds_at_k(R: Outcomes, k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Any:
    """Geom@k of the data set, blended after averaging over questions; all else: :func:`geom_at_k`.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(geom_ds_at_k(R, 2), 6), [round(x, 4) for x in geom_ds_at_k_ci(R, 2)]
    (0.653835, [0.6121, 0.1328, 0.3519, 0.8723])
    """
    credit = at_least(check_k(k), k)
    return _blended_mean(R, f"Geom@{k}", credit, pass_power, unanimous_power)


def _geom_ds_summary(
    R: Outcomes,
    what: str,
    prior: Any,
    confidence: float,
    bounds: Bounds,
    k: int,
    a: float,
    b: float,
) -> Summary:
    moments = beta_moments(R, what, k, (opposite_moments, k), prior)
    return _blended_summary(moments, a, b, confidence, bounds)


geom_ds_at_k_ci = interval_of(geom_ds_at_k, "Geom@{k}", summary=_geom_ds_summary)


def geo_spectrum_at_k(
    R: Outcomes,
    k: int,
    lam: float = 0.5,
    weights: npt.ArrayLike | None = None,
    lambda_: float | None = None,
) -> Any:
    """GeoSpectrum: Pass@k to the power lambda times S_{w,k} to the power 1 - lambda.

    Both are averaged over questions first. ``lam`` (or ``lambda_``; both are a TypeError) is
    lambda, from 0 (only S) to 1 (only Pass@k, whatever the weights). S is
    :func:`scoring.threshold_spectrum_at_k` with ``weights``, or without them mG-Pass@k, which with
    lambda 1/2 is GeoSpectrum*@k, :func:`geo_spectrum_star_at_k`. All else:
    :func:`scoring.pass_at_k`.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(geo_spectrum_at_k(R, 3), 6), round(geo_spectrum_at_k(R, 3, lam=1.0), 6)
    (0.408248, 1.0)
    >>> [round(x, 4) for x in geo_spectrum_at_k_ci(R, 2)]
    [0.6121, 0.1328, 0.3519, 0.8723]
    """
    lam, credit = _lambda_and_credit(k, lam, weights, lambda_)
    if lam in (0.0, 1.0):
        return subset_mean(R, f"GeoSpectrum@{k}", credit)
    return _blended_mean(R, f"GeoSpectrum@{k}", credit, lam, 1.0 - lam)


def _geo_spectrum_summary(
    R: Outcomes, what: str, prior: Any, confidence: float, bounds: Bounds, k: int, *more: Any
) -> Summary:
    lam, credit = _lambda_and_credit(k, *(more or (0.5, None, None)))
    if lam in (0.0, 1.0):
        return beta_summary(R, what, k, credit_posterior(credit), prior, confidence, bounds)
    moments = beta_moments(R, what, k, (spectrum_moments, credit.tobytes()), prior)
    return _blended_summary(moments, lam, 1.0 - lam, confidence, bounds)


geo_spectrum_at_k_ci = interval_of(
    geo_spectrum_at_k, "GeoSpectrum@{k}", summary=_geo_spectrum_summary
)


def geo_spectrum_star_at_k(R: Outcomes, k: int) -> Any:
    """GeoSpectrum*@k, the square root of Pass@k times mG-Pass@k: :func:`geo_spectrum_at_k`.

    >>> round(geo_spectrum_star_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 3), 6)
    0.408248
    """
    return geo_spectrum_at_k(R, k)


geo_spectrum_star_at_k_ci = interval_of(
    geo_spectrum_star_at_k, "GeoSpectrum@{k}", summary=_geo_spectrum_summary
)


def blend(x: Any, y: Any, a: float, b: float) -> Floats:
    """x^a y^b for scores from 0 up; arrays of one shape.

    A score that is 0 allows a negative power only where the other score makes the blend 0.

    >>> blend(np.array([0.25, 0.0]), np.array([1.0, 0.0]), 0.5, 0.5).tolist()
    [0.5, 0.0]
    """
    a, b = check_powers(a, b)
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a >= 0 and b >= 0:
        return np.asarray(x**a * y**b)
    zero = ((x == 0) & (a > 0)) | ((y == 0) & (b > 0))
    with np.errstate(all="ignore"):
        blended = np.where(zero, 0.0, x**a * y**b)
    if not np.isfinite(blended).all():
        raise ValueError(
            f"a score is 0 and its power negative, or the powers overflow (pass_power = {a}, "
            f"unanimous_power = {b}): pass powers of 0 or more, or nearer to 0"
        )
    return blended


def check_powers(a: float, b: float) -> tuple[float, float]:
    """Return the exponents of a blend as finite floats, not both 0."""
    a, b = check_finite(a, "pass_power"), check_finite(b, "unanimous_power")
    if a == 0 and b == 0:
        raise ValueError("pass_power and unanimous_power are both 0: at least one must not be")
    return a, b


def blend_variance(
    x: Floats, y: Floats, vx: Floats, vy: Floats, cov: Floats, a: float, b: float
) -> Floats:
    """Variance of x^a y^b to first order; 0 where the blend is 0."""
    mean = blend(x, y, a, b)
    dx = a * mean / np.where(x > 0, x, 1.0)
    dy = b * mean / np.where(y > 0, y, 1.0)
    # A slope may be as large as a score is small; times the spread it is below the blend's own.
    with np.errstate(all="ignore"):
        parts = (dx * np.sqrt(vx)) ** 2 + (dy * np.sqrt(vy)) ** 2 + 2 * (dx * cov * dy)
    if not np.isfinite(parts).all():
        raise ValueError(f"powers {a} and {b} overflow: pass powers nearer to 0")
    return np.asarray(np.maximum(parts, 0.0))


def blend_sigma(x: Floats, y: Floats, spread: Sequence[Floats], a: float, b: float) -> Floats:
    """Sigma of a blend of two means over questions, of variances and covariance (..., M)."""
    vx, vy, cov = (part.sum(axis=-1) / part.shape[-1] ** 2 for part in spread)
    return np.sqrt(blend_variance(x, y, vx, vy, cov, a, b))


def _blended_mean(R: Outcomes, what: str, credit: Floats, a: float, b: float) -> Any:
    """The blend of Pass@k and the score of a credit, both averaged over questions first."""
    k = credit.size - 1
    correct, trials = enough_binary(R, k, what)
    scores = (subset_scores(part, correct, trials) for part in (at_least(1, k), credit))
    x, y = (score.mean(axis=-1) for score in scores)
    return result(blend(x, y, a, b))


def _blended_summary(
    moments: tuple[Floats, ...], a: float, b: float, confidence: float, bounds: Bounds
) -> Summary:
    """Summary of a blend of two means over questions: their means, variances and covariance."""
    x, y = (means.mean(axis=-1) for means in moments[:2])
    sigma = blend_sigma(x, y, moments[2:], a, b)
    return normal_summary(blend(x, y, a, b), sigma, confidence, bounds)


def _blended_moments(
    k: int, a: float, b: float, alpha: Floats, beta: Floats
) -> tuple[Floats, Floats]:
    x, y, vx, vy, cov = opposite_moments(k, alpha, beta)
    return blend(x, y, a, b), blend_variance(x, y, vx, vy, cov, a, b)


def _lambda_and_credit(
    k: int, lam: float, weights: npt.ArrayLike | None, lambda_: float | None
) -> tuple[float, Floats]:
    """Lambda, and the credit of S, or where lambda is 1 that of Pass@k."""
    if lambda_ is not None and lam != 0.5:
        raise TypeError(f"lam is {lam!r} and lambda_ is {lambda_!r}: pass one of them")
    lam, k = check_share(lam if lambda_ is None else lambda_, "lam"), check_k(k)
    if lam == 1.0:
        return lam, at_least(1, k)
    return lam, np.array(upper_half(k) if weights is None else spectrum(weights, k), np.float64)
