"""Geom@k: Pass@k and Pass^k in one number, as a geometric blend.

Definitions as documented for the authors' library; moments from the Beta posterior of Hariri et
al., "Don't Pass@k", arXiv 2510.04265, equation 9. Arguments and returns are those of ``pass_at_k``
and ``pass_at_k_ci`` (``passk.py``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scoring.metrics.passk import at_least
from scoring.numerics.checks import (
    UNIT,
    Short,
    check_finite,
    check_k,
    normal_interval,
    question_mean,
    result,
)
from scoring.numerics.credit import subset_scores
from scoring.numerics.estimate import enough_binary, posterior_states, summary
from scoring.numerics.inputs import Bools, Floats, Outcomes
from scoring.numerics.powers import opposite_covariance, power_moments


def geom_at_k(
    R: Outcomes,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    short: Short = "raise",
) -> Any:
    """Geom@k of each question, averaged: Pass@k^a Pass^k^b, blended before averaging.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        pass_power: a, the exponent of Pass@k.
        unanimous_power: b, the exponent of Pass^k; not both 0.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The score; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`scoring.pass_at_k`; both powers 0, or a negative one of a score
            that is 0.

    Source: Geom@k of the authors' library; arXiv 2510.04265, equations 21 and 22.

    >>> round(geom_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2), 6)
    0.647106
    """
    k = check_k(k)
    correct, trials, kept = enough_binary(R, k, f"Geom@{k}", short)
    any_ = subset_scores(at_least(1, k), correct, trials)
    all_ = subset_scores(at_least(k, k), correct, trials)
    return result(question_mean(blend(any_, all_, pass_power, unanimous_power, kept), kept))


def geom_at_k_ci(
    R: Outcomes,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> tuple[Any, Any, Any, Any]:
    """Approximate posterior summary of :func:`geom_at_k`, of k new attempts.

    mu is the mean over questions of the blend of the posterior means; sigma follows from the
    variances and the covariance of each question to first order (delta method).

    Args:
        R: as for :func:`scoring.pass_at_k`; questions without trials are allowed.
        k: number of attempts, at least 1; may be above the number of trials.
        pass_power: as for :func:`geom_at_k`.
        unanimous_power: as for :func:`geom_at_k`.
        confidence: as for :func:`scoring.pass_at_k_ci`.
        bounds: as for :func:`scoring.pass_at_k_ci`; with a negative power a blend may be above
            1, pass ``None``.
        alpha0: as for :func:`scoring.pass_at_k_ci`.
        beta0: as for :func:`scoring.pass_at_k_ci`.

    Returns:
        mu, sigma, lo, hi, as for :func:`scoring.pass_at_k_ci`.

    Raises:
        ValueError: as for :func:`geom_at_k` and :func:`scoring.pass_at_k_ci`.

    Source: Beta posterior (arXiv 2510.04265, equation 9); delta method.

    >>> mu, sigma, lo, hi = geom_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2)
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.610666, 0.133107, 0.3498, 0.8716)
    """
    k, prior = check_k(k), (alpha0, beta0)
    arguments = (k, *check_powers(pass_power, unanimous_power))
    what = f"Geom@{k}"
    found, _ = posterior_states(R, k, what, "raise", 0, _blended_moments, arguments, prior)
    return summary(found, None, confidence, bounds)


def geom_ds_at_k(
    R: Outcomes,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    short: Short = "raise",
) -> Any:
    """Geom@k of the data set: Pass@k^a Pass^k^b, blended after averaging over questions.

    Args:
        R: as for :func:`scoring.pass_at_k`.
        k: as for :func:`scoring.pass_at_k`.
        pass_power: as for :func:`geom_at_k`.
        unanimous_power: as for :func:`geom_at_k`.
        short: as for :func:`scoring.pass_at_k`.

    Returns:
        The score; an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`geom_at_k`.

    Source: Geom@k of the authors' library; arXiv 2510.04265, equations 21 and 22.

    >>> round(geom_ds_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2), 6)
    0.653835
    """
    k = check_k(k)
    correct, trials, kept = enough_binary(R, k, f"Geom@{k}", short)
    any_ = question_mean(subset_scores(at_least(1, k), correct, trials), kept)
    all_ = question_mean(subset_scores(at_least(k, k), correct, trials), kept)
    return result(blend(any_, all_, pass_power, unanimous_power))


def geom_ds_at_k_ci(
    R: Outcomes,
    k: int,
    pass_power: float = 0.5,
    unanimous_power: float = 0.5,
    confidence: float = 0.95,
    bounds: tuple[float, float] = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> tuple[Any, Any, Any, Any]:
    """Approximate posterior summary of :func:`geom_ds_at_k`, of k new attempts.

    Args:
        R: as for :func:`geom_at_k_ci`.
        k: as for :func:`geom_at_k_ci`.
        pass_power: as for :func:`geom_at_k`.
        unanimous_power: as for :func:`geom_at_k`.
        confidence: as for :func:`scoring.pass_at_k_ci`.
        bounds: as for :func:`scoring.pass_at_k_ci`; with a negative power a blend may be above
            1, pass ``None``.
        alpha0: as for :func:`scoring.pass_at_k_ci`.
        beta0: as for :func:`scoring.pass_at_k_ci`.

    Returns:
        mu, sigma, lo, hi, as for :func:`scoring.pass_at_k_ci`.

    Raises:
        ValueError: as for :func:`geom_at_k_ci`.

    Source: Beta posterior (arXiv 2510.04265, equation 9); delta method.

    >>> mu, sigma, lo, hi = geom_ds_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2)
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.612112, 0.132755, 0.3519, 0.8723)
    """
    a, b, k, prior = pass_power, unanimous_power, check_k(k), (alpha0, beta0)
    found, _ = posterior_states(R, k, f"Geom@{k}", "raise", 0, _both_moments, (k,), prior)
    x, y = (question_mean(means, None) for means in found[:2])
    vx, vy, cov = (part.sum(axis=-1) / part.shape[-1] ** 2 for part in found[2:])
    mu = blend(x, y, a, b)
    sigma = np.sqrt(blend_variance(mu, x, y, vx, vy, cov, a, b))
    return result(mu), result(sigma), *normal_interval(mu, sigma, confidence, bounds)


def blend(x: Any, y: Any, a: float, b: float, kept: Bools | None = None) -> Floats:
    """x^a y^b for scores from 0 up; arrays of one shape.

    A score that is 0 allows a negative power only where the other score makes the blend 0.

    >>> import numpy as np
    >>> blend(np.array([0.25, 0.0]), np.array([1.0, 0.0]), 0.5, 0.5).tolist()
    [0.5, 0.0]
    """
    a, b = check_powers(a, b)
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if a >= 0 and b >= 0:
        return np.asarray(x**a * y**b)
    zero = ((x == 0) & (a > 0)) | ((y == 0) & (b > 0))
    undefined = (((x == 0) & (a < 0)) | ((y == 0) & (b < 0))) & ~zero
    if kept is not None:
        undefined &= kept
    if undefined.any():
        raise ValueError(
            f"a score is 0 and its power negative (pass_power = {a}, unanimous_power = {b}): "
            "pass powers of 0 or more"
        )
    with np.errstate(all="ignore"):
        blended = np.where(zero, 0.0, x**a * y**b)
    if not np.isfinite(blended if kept is None else blended[kept]).all():
        raise ValueError(
            f"pass_power = {a} and unanimous_power = {b} overflow: pass powers nearer to 0"
        )
    return blended


def check_powers(a: float, b: float) -> tuple[float, float]:
    """Return the exponents of a blend as finite floats, not both 0."""
    a, b = check_finite(a, "pass_power"), check_finite(b, "unanimous_power")
    if a == 0 and b == 0:
        raise ValueError("pass_power and unanimous_power are both 0: at least one must not be")
    return a, b


def blend_variance(
    mean: Floats, x: Floats, y: Floats, vx: Floats, vy: Floats, cov: Floats, a: float, b: float
) -> Floats:
    """Variance of x^a y^b, which is ``mean``, to first order; 0 where the blend is 0.

    >>> import numpy as np
    >>> one, half = np.array(1.0), np.array(0.5)
    >>> float(blend_variance(half, one, half, 0 * one, half**2, 0 * one, 1.0, 1.0))
    0.25
    """
    dx = a * mean / np.where(x > 0, x, 1.0)
    dy = b * mean / np.where(y > 0, y, 1.0)
    # A slope may be as large as a score is small; times the spread it is below the blend's own.
    with np.errstate(all="ignore"):
        parts = (dx * np.sqrt(vx)) ** 2 + (dy * np.sqrt(vy)) ** 2 + 2 * (dx * cov * dy)
    if not np.isfinite(parts).all():
        raise ValueError(f"powers {a} and {b} overflow: pass powers nearer to 0")
    variance: Floats = np.maximum(parts, 0.0)
    return variance


def _blended_moments(
    k: int, a: float, b: float, alpha: Floats, beta: Floats
) -> tuple[Floats, Floats]:
    x, y, vx, vy, cov = _both_moments(k, alpha, beta)
    means = blend(x, y, a, b)
    return means, blend_variance(means, x, y, vx, vy, cov, a, b)


def _both_moments(k: int, alpha: Floats, beta: Floats) -> tuple[Floats, ...]:
    """Posterior means, variances and covariance of Pass@k and Pass^k."""
    _, any_, any_variance = power_moments(beta, alpha, k)
    all_, _, all_variance = power_moments(alpha, beta, k)
    return any_, all_, any_variance, all_variance, opposite_covariance(alpha, beta, k)
