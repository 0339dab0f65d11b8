"""Ranking K models by score, and by score and uncertainty as the paper does.

Tables 1 and 2 of the paper are consecutive z, dense, z = 1.645 (one-sided 95%); its Figures 5 and
7 are competition ranks of plain scores. Source: Hariri et al., arXiv 2510.04265, sections 2.5, 2.7
and 2.7.1, and for the agreement of two rankings, tau_b, appendix F.1.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import (
    check_models,
    check_positive,
    check_scores,
    finite_array,
)
from bayes_at_n.scoring.numerics.inputs import Bools, Ints
from bayes_at_n.scoring.ranking import Method, Rule
from bayes_at_n.scoring.ranking.compare import signed_z

ROUNDING = 1e-13
"""Scores closer than this share of the largest are equal but for rounding."""


def ranks(scores: npt.ArrayLike, method: Method = "competition") -> Ints:
    """Rank models by their scores: 1 is the best, and the highest score.

    Models with the same score share a rank, and the next is one more (dense: 1, 2, 2, 3), or one
    more than the number of models above (competition: 1, 2, 2, 4). Scores are finite, shape (...,
    K), and ranks int64 of that shape. Consecutive scores at most 1e-13 of the largest score in size
    apart share a rank, in a chain: the same mean summed in another order of the questions is the
    same score. Raises ValueError: other arguments.

    >>> ranks([0.61, 0.73, 0.61, 0.23]).tolist()
    [2, 1, 2, 4]
    """
    values = check_models(scores, "scores")
    gap = ROUNDING * np.abs(values).max(axis=-1, keepdims=True)
    order = np.argsort(-values, axis=-1, kind="stable")
    ordered = np.take_along_axis(values, order, axis=-1)
    return _number(order, ordered[..., :-1] - ordered[..., 1:] > gap, method)


def ranks_with_uncertainty(
    mu: npt.ArrayLike,
    sigma: npt.ArrayLike,
    rule: Rule = "consecutive_z",
    z: float = 1.645,
    method: Method = "dense",
) -> Ints:
    """Rank models by mu, where neighbors that are not separated share a rank.

    In the order of mu, models i and i + 1 share a rank when::

        consecutive_z   (mu_i - mu_i+1) / sqrt(sigma_i^2 + sigma_i+1^2) < z
        overlap         mu_i - z sigma_i <= mu_i+1 + z sigma_i+1

    Only neighbors are compared, so a chain may put models into one rank whose own z is large;
    :func:`rank_ranges` holds for all models at once. At z = 1.645 consecutive_z is one-sided 95%
    confidence in the order of two neighbors; the overlap (the protocol of the paper's
    introduction) asks, with equal sigmas, for sqrt(2) times the difference.

    mu are posterior means, shape (..., K), and sigma their standard deviations, at least 0, of the
    same shape or one that broadcasts to it, all finite; z is above 0. Raises ValueError: others.
    For ``method`` and what is returned see :func:`ranks`.

    >>> mu, sigma = [0.70, 0.62, 0.61, 0.55], 0.02
    >>> ranks_with_uncertainty(mu, sigma).tolist()
    [1, 2, 2, 3]
    >>> ranks_with_uncertainty(mu, sigma, rule="overlap").tolist()
    [1, 2, 2, 2]
    """
    mean, sd = check_scores(mu, sigma)
    threshold = check_positive(z, "z")
    # Equal means in the order of their sigmas, so that ranks do not depend on the models' order.
    order = np.lexsort((sd, -mean), axis=-1)
    mean, sd = np.take_along_axis(mean, order, axis=-1), np.take_along_axis(sd, order, axis=-1)
    gap = mean[..., :-1] - mean[..., 1:]
    if rule == "consecutive_z":
        separated = signed_z(gap, np.hypot(sd[..., :-1], sd[..., 1:])) >= threshold
    elif rule == "overlap":
        separated = gap > threshold * (sd[..., :-1] + sd[..., 1:])
    else:
        raise ValueError(f'rule is {rule!r}: pass "consecutive_z" or "overlap"')
    return _number(order, separated, method)


def kendall_tau_b(x: npt.ArrayLike, y: npt.ArrayLike) -> Any:
    """Compute Kendall's tau_b of two rankings or two vectors of scores of K models.

    With C concordant and D discordant pairs, n_x the pairs not tied in x and n_y those not tied
    in y::

        tau_b = (C - D) / sqrt(n_x n_y)

    Numbers are tied only if they are exactly equal: pass ``ranks(scores)`` rather than scores that
    may differ by rounding. Where all models are tied in x or in y, tau_b has no value: that element
    is masked, NaN under the mask, and ``tau.mean()`` leaves it out.

    Numbers are finite and shapes (..., K), K at least 2, and are broadcast. Raises ValueError:
    others. The masked array has shape (...), without axes for two vectors.

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
    shape = np.broadcast_shapes(a.shape, b.shape)[:-1]
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


def _number(order: npt.NDArray[np.intp], separated: Bools, method: Method) -> Ints:
    """Number models given in the order ``order`` of which neighbors are ``separated`` or share."""
    first = np.concatenate([np.ones((*order.shape[:-1], 1), dtype=bool), separated], axis=-1)
    if method == "dense":
        ordered = np.cumsum(first, axis=-1)
    elif method == "competition":
        places = np.where(first, np.arange(1, order.shape[-1] + 1), 0)
        ordered = np.maximum.accumulate(places, axis=-1)
    else:
        raise ValueError(f'method is {method!r}: pass "competition" or "dense"')
    numbered: Ints = np.empty(order.shape, dtype=np.int64)
    np.put_along_axis(numbered, order, ordered, axis=-1)
    return numbered
