"""Moments of p^k and (1 - p)^k for p ~ Beta(alpha, beta), without a Gamma function.

E p^k = prod_{i<k} (alpha + i) / (T + i) with T = alpha + beta. Variances and covariances are a
product of factors times one minus a product of factors, so that two nearly equal numbers are
never subtracted. All functions take vectors of one shape and return that shape.
"""

from __future__ import annotations

import numpy as np

from scoring.numerics.inputs import Floats

# Bounds the memory of one block of factors or probabilities, 8 bytes each.
BLOCK = 2_000_000


def log_power(alpha: Floats, beta: Floats, k: int) -> Floats:
    """log E p^k = sum_{i<k} log(1 - beta / (alpha + beta + i)).

    >>> import numpy as np
    >>> np.exp(log_power(np.array([4.0]), np.array([3.0]), 2)).round(6).tolist()
    [0.357143]
    """
    return _sum_log1p(lambda i, a, b: -b / (a + b + i), alpha, beta, k)


def power_moments(alpha: Floats, beta: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """E p^k, 1 - E p^k and Var p^k.

    E p^2k / (E p^k)^2 = prod_{i<k} (1 + k beta / ((T + k + i)(alpha + i))).

    >>> import numpy as np
    >>> mean, rest, variance = power_moments(np.array([4.0]), np.array([3.0]), 1)
    >>> mean.round(6).tolist(), rest.round(6).tolist(), variance.round(6).tolist()
    ([0.571429], [0.428571], [0.030612])
    """
    log_mean = log_power(alpha, beta, k)

    def factor(i: Floats, a: Floats, b: Floats) -> Floats:
        return k * b / ((a + b + k + i) * (a + i))

    log_ratio = _sum_log1p(factor, alpha, beta, k)
    # E p^2k - (E p^k)^2, arranged so that the exponents stay at or below 0.
    variance = np.exp(2 * log_mean + log_ratio) * -np.expm1(-log_ratio)
    return np.exp(log_mean), -np.expm1(log_mean), variance


def opposite_covariance(alpha: Floats, beta: Floats, k: int) -> Floats:
    """Cov(1 - (1 - p)^k, p^k), which is E p^k E q^k (1 - prod_{i<k} (T + i) / (T + k + i)).

    >>> import numpy as np
    >>> opposite_covariance(np.array([4.0]), np.array([3.0]), 1).round(6).tolist()
    [0.030612]
    """
    both = np.exp(log_power(alpha, beta, k) + log_power(beta, alpha, k))
    shared = _sum_log1p(lambda i, a, b: -k / (a + b + k + i), alpha, beta, k)
    return np.asarray(both * -np.expm1(shared))


def _sum_log1p(factor, alpha: Floats, beta: Floats, k: int) -> Floats:  # type: ignore[no-untyped-def]
    """Sum of log(1 + factor(i)) over i < k, in blocks of i so that memory stays bounded."""
    total = np.zeros(alpha.shape)
    step = max(1, BLOCK // max(1, alpha.size))
    a, b = alpha[..., None], beta[..., None]
    for start in range(0, k, step):
        i = np.arange(start, min(start + step, k))
        total += np.log1p(factor(i, a, b)).sum(axis=-1)
    return total
