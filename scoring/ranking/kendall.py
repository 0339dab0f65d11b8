"""Agreement of two rankings: Kendall's tau_b.

Source: Hariri et al., arXiv 2510.04265, section 2.7 and appendix F.1.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from scoring.numerics.arrays import broadcast_shape, finite_array


def kendall_tau_b(x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
    """Kendall's tau_b of two rankings or two vectors of scores of K models.

    With C concordant and D discordant pairs, n_x the pairs not tied in x and n_y those not tied
    in y::

        tau_b = (C - D) / sqrt(n_x n_y)

    The pairs are counted in integers, and numbers are tied only if they are exactly equal: pass
    ``ranks(scores)`` rather than scores that may differ by rounding. Where all models are tied in
    x or in y, tau_b has no value: that element is masked, and ``tau.mean()`` leaves it out.
    ``tau.mask.sum()`` is the number of such rankings, to be reported beside the mean.

    Numbers are finite and shapes (..., K), K at least 2, and are broadcast; else a ValueError.

    Returns:
        A float64 ``numpy.ma.MaskedArray`` of shape (...), without axes for two vectors. What
        lies under the mask is NaN, so that a caller who drops the mask does not get a number.

    >>> float(kendall_tau_b([1, 2, 3, 4], [1, 2, 4, 3]).round(4))
    0.6667
    >>> kendall_tau_b([[1, 2, 3], [1, 1, 1]], [1, 2, 2]).round(4).tolist()
    [0.8165, None]
    """
    finite_array(x, "x"), finite_array(y, "y")
    # The values as they are: as float64 large integers might tie that differ.
    a, b = np.asarray(x), np.asarray(y)
    if not a.ndim or not b.ndim or a.shape[-1] != b.shape[-1] or a.shape[-1] < 2:
        raise ValueError(
            f"x and y have shapes {a.shape} and {b.shape}: "
            "pass the same K models in both, shape (..., K) with K at least 2"
        )
    shape = broadcast_shape(x=a, y=b)[:-1]
    agreement, untied = np.zeros(shape, dtype=np.int64), np.zeros((2, *shape), dtype=np.int64)
    for step in range(1, a.shape[-1]):
        sign_a, sign_b = (
            (v[..., step:] > v[..., :-step]).astype(np.int8) - (v[..., step:] < v[..., :-step])
            for v in (a, b)
        )
        agreement += (sign_a * sign_b).sum(axis=-1, dtype=np.int64)
        untied[0] += np.count_nonzero(sign_a, axis=-1)
        untied[1] += np.count_nonzero(sign_b, axis=-1)
    defined = (untied > 0).all(axis=0)
    # One root of the product, which for equal rankings is exact; in float64 it cannot overflow.
    scale = np.sqrt(untied[0].astype(np.float64) * untied[1])
    tau = np.divide(agreement, scale, out=np.full(shape, np.nan), where=defined)
    return np.ma.masked_array(tau, mask=~defined, fill_value=np.nan)  # type: ignore[no-untyped-call]
