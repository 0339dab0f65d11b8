"""Blends of two scores: Geom@k of Pass@k and Pass^k, GeoSpectrum of Pass@k and a spectrum.

Definitions as documented for the authors' library, of scores in arXiv 2510.04265, equations 21 to
24. Intervals: mu is the blend of the moments of the Beta posterior (equation 9), and sigma follows
from their variances and covariance to first order (delta method).
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.passk import spectrum, upper_half
from bayes_at_n.scoring.numerics.credit import (
    Posterior,
    at_least,
    blend,
    blend_variance,
    check_powers,
    credit_posterior,
    enough_binary,
    interval_of,
    opposite_moments,
    spectrum_moments,
    subset_mean,
    subset_scores,
)
from bayes_at_n.scoring.numerics.inputs import Floats, Outcomes, check_k, check_share
from bayes_at_n.scoring.numerics.results import result


def geom_at_k(R: Outcomes, k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Any:
    """Blend Pass@k^a Pass^k^b of each question, then average: Geom@k.

    a is ``pass_power`` and b ``unanimous_power``. Raises ValueError: both are 0, or one is negative
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
    """Blend Pass@k and Pass^k after averaging over questions: Geom@k of the dataset.

    All else, and what raises a ValueError: :func:`geom_at_k`.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(geom_ds_at_k(R, 2), 6), [round(x, 4) for x in geom_ds_at_k_ci(R, 2)]
    (0.653835, [0.6121, 0.1328, 0.3519, 0.8723])
    """
    credit = at_least(check_k(k), k)
    return _blended_mean(R, f"Geom@{k}", credit, pass_power, unanimous_power)


geom_ds_at_k_ci = interval_of(
    geom_ds_at_k, "Geom@{k}", lambda k, a, b: (opposite_moments, k), lambda a, b: (a, b), False
)


def geo_spectrum_at_k(
    R: Outcomes,
    k: int,
    lam: float = 0.5,
    weights: npt.ArrayLike | None = None,
    lambda_: float | None = None,
) -> Any:
    """Blend Pass@k to the power lambda with S_{w,k} to the power 1 - lambda: GeoSpectrum.

    Both are averaged over questions first. ``lam`` (or ``lambda_``; both are a TypeError) is
    lambda, from 0 (only S) to 1 (only Pass@k, whatever the weights). S is
    :func:`scoring.threshold_spectrum_at_k` with ``weights``, or without them mG-Pass@k, which with
    lambda 1/2 is GeoSpectrum*@k, :func:`geo_spectrum_star_at_k`. All else:
    :func:`scoring.pass_at_k`. Raises ValueError: lambda outside 0 to 1; weights as for S.

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


def _spectrum_posterior(k: int, *more: Any) -> Posterior:
    lam, credit = _lambda_and_credit(k, *more)
    alone = lam in (0.0, 1.0)
    return credit_posterior(credit) if alone else (spectrum_moments, credit.tobytes())


def _lambdas(lam: float = 0.5, weights: Any = None, lambda_: float | None = None) -> Any:
    lam = lam if lambda_ is None else lambda_
    return lam, 1.0 - lam


geo_spectrum_at_k_ci = interval_of(
    geo_spectrum_at_k, "GeoSpectrum@{k}", _spectrum_posterior, _lambdas, False
)


def geo_spectrum_star_at_k(R: Outcomes, k: int) -> Any:
    """Compute GeoSpectrum*@k, the square root of Pass@k times mG-Pass@k.

    All else, and what raises a ValueError: :func:`geo_spectrum_at_k`.

    >>> round(geo_spectrum_star_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 3), 6)
    0.408248
    """
    return geo_spectrum_at_k(R, k)


geo_spectrum_star_at_k_ci = interval_of(
    geo_spectrum_star_at_k, "GeoSpectrum@{k}", _spectrum_posterior, _lambdas, False
)


def _blended_mean(R: Outcomes, what: str, credit: Floats, a: float, b: float) -> Any:
    """The blend of Pass@k and the score of a credit, both averaged over questions first."""
    k = credit.size - 1
    correct, trials = enough_binary(R, k, what)
    scores = (subset_scores(part, correct, trials) for part in (at_least(1, k), credit))
    x, y = (score.mean(axis=-1) for score in scores)
    return result(blend(x, y, a, b))


def _blended_moments(
    k: int, a: float, b: float, alpha: Floats, beta: Floats
) -> tuple[Floats, Floats]:
    x, y, vx, vy, cov = opposite_moments(k, alpha, beta)
    return blend(x, y, a, b), blend_variance(x, y, vx, vy, cov, a, b)


def _lambda_and_credit(
    k: int,
    lam: float = 0.5,
    weights: npt.ArrayLike | None = None,
    lambda_: float | None = None,
) -> tuple[float, Floats]:
    """Lambda, and the credit of S, or where lambda is 1 that of Pass@k."""
    if lambda_ is not None and lam != 0.5:
        raise TypeError(f"lam is {lam!r} and lambda_ is {lambda_!r}: pass one of them")
    lam, k = check_share(lam if lambda_ is None else lambda_, "lam"), check_k(k)
    if lam == 1.0:
        return lam, at_least(1, k)
    return lam, np.array(upper_half(k) if weights is None else spectrum(weights, k), np.float64)
