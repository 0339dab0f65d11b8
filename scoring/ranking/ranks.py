"""Ranking K models: by score, by score and uncertainty as the paper does, and all at once.

Tables 1 and 2 of the paper are consecutive z, dense, z = 1.645 (one-sided 95%); its Figures 5 and
7 are competition ranks of plain scores. Source: Hariri et al., arXiv 2510.04265, sections 2.5, 2.7
and 2.7.1, and for the agreement of two rankings, tau_b, appendix F.1.

A z of each pair taken alone is no claim about all of them: of ten equal models some pair has a z
above 1.96 in six of ten cohorts. What :func:`rank_ranges` and :func:`best_candidates` say of all
models is false with a chance of at most 1 - confidence together. Sources: Tukey (1953), Kramer
(1956) and Hayter (1984) for all pairs; Hsu (1981, 1984) for comparisons with the best, with
Slepian's inequality (1962) where sigmas differ; Benjamini and Hochberg (1995) for pairs; Al
Mohamad, Goeman and van Zwet (2022) for ranges of ranks by pairs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.inputs import (
    Bools,
    Floats,
    Ints,
    bounded_array,
    check_confidence,
    check_models,
    check_positive,
    check_scores,
    finite_array,
)
from bayes_at_n.scoring.ranking import Method, Rule
from bayes_at_n.scoring.ranking.compare import pairwise_z, signed_z

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


_NORMAL = np.linspace(-9.0, 9.0, 361)  # a normal has 1e-19 of its mass beyond
_DENSITY = np.exp(-(_NORMAL**2) / 2) * (_NORMAL[1] - _NORMAL[0]) / np.sqrt(2 * np.pi)
_SHARED = np.linspace(0.0, 0.5, 33)  # correlations, between which limits are interpolated
_ANGLES, _ANGLE_WEIGHTS = np.polynomial.legendre.leggauss(24)  # of tau, on (-1, 1)
_NODES, _NODE_WEIGHTS = np.polynomial.hermite_e.hermegauss(3)  # of the mean of all models
_STEPS = 160  # of sums over a score


def pairs_quantile(models: int, confidence: float = 0.95) -> float:
    """Compute the |z| that no pair of so many equal models exceeds with this confidence.

    The quantile of the studentized range with known variance, over sqrt(2), is exact for equal
    sigmas and large enough for others (Hayter). With two models it is the two-sided normal
    quantile. ``models`` is at least 2. Raises ValueError: a confidence that is not in (0, 1).

    >>> [round(pairs_quantile(models), 3) for models in (2, 5, 10, 100)]
    [1.96, 2.728, 3.164, 4.302]
    """
    above = scipy.special.ndtr(_NORMAL)

    def coverage(c: Floats) -> Floats:
        below = scipy.special.ndtr(_NORMAL - np.sqrt(2) * c[:, None])
        return np.asarray(models * (above - below) ** (models - 1) @ _DENSITY)

    return float(_quantile(coverage, check_confidence(confidence), 1)[0])


def rank_ranges(
    mu: npt.ArrayLike, sigma: npt.ArrayLike, confidence: float = 0.95
) -> tuple[Ints, Ints]:
    """Find the ranks that each model may have, low and high, for all models at once.

    A model's best rank is one below those that are better, its worst one above those that are
    worse, by pairs whose |z| exceeds :func:`pairs_quantile`. All true ranks lie in their ranges
    with a chance of at least ``confidence``, whatever the truth.

    mu holds the scores of K models, (..., K), and sigma their standard deviations, at least 0, of
    a shape that broadcasts to it; both results are int64, (..., K), from 1 (the best) to K. Raises
    ValueError: others.

    >>> low, high = rank_ranges([0.70, 0.65, 0.62, 0.50], 0.02)
    >>> low.tolist(), high.tolist()
    ([1, 1, 2, 4], [2, 3, 3, 4])
    """
    mean, sd = check_scores(mu, sigma)
    models = mean.shape[-1]
    apart = pairwise_z(mean, sd) > pairs_quantile(max(models, 2), confidence)
    return 1 + apart.sum(axis=-2), models - apart.sum(axis=-1)


def best_candidates(mu: npt.ArrayLike, sigma: npt.ArrayLike, confidence: float = 0.95) -> Bools:
    """Find the models that cannot be told apart from the best (Hsu's comparisons with the best).

    Model i stays unless some other one is above it by more than c_i standard errors of their
    difference, where c_i is what the largest of the K - 1 differences to a model as good as all
    others exceeds with a chance of (1 - confidence) / 2, if all of these have the smallest of their
    correlations, sigma_i^2 / (sigma_i^2 + max sigma_j^2): exact for equal sigmas, else too large.

    So the best model is missing with a chance of at most (1 - confidence) / 2, and one model stays
    alone although another is as good with at most 1 - confidence: of several that are the best one
    of the first two must be missing. For two models this is the two-sided z test. Fewer models
    stay than have 1 in their :func:`rank_ranges`, since fewer pairs are compared.

    Arguments and errors: :func:`rank_ranges`. A bool for each model, (..., K).

    >>> best_candidates([0.70, 0.65, 0.63, 0.50], 0.02).tolist()
    [True, True, False, False]
    """
    mean, sd = check_scores(mu, sigma)
    others, total = mean.shape[-1] - 1, sd**2 + sd.max(axis=-1, keepdims=True) ** 2
    own, rest = np.sqrt(1 - _SHARED)[:, None], np.sqrt(_SHARED)[:, None]

    def coverage(c: Floats) -> Floats:
        each = scipy.special.ndtr((c[:, None] + rest * _NORMAL) / own)
        return np.asarray(each**others @ _DENSITY)

    limits = _quantile(coverage, (1 + check_confidence(confidence)) / 2, _SHARED.size)
    shared = np.divide(sd**2, total, out=np.full(mean.shape, 0.5), where=total > 0)
    return np.asarray(pairwise_z(mean, sd).max(axis=-2) <= np.interp(shared, _SHARED, limits))


def _quantile(coverage: Callable[[Floats], Floats], confidence: float, size: int) -> Floats:
    """Find where rising functions (size,) of c reach the confidence, by bisection; from 0 to 40."""
    low, high = np.zeros(size), np.full(size, 40.0)
    for _ in range(50):
        middle = (low + high) / 2
        enough = coverage(middle) >= confidence
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return high


def q_values(p: npt.ArrayLike) -> Floats:
    """Compute q-values of n tests: of all with q <= x a share of at most x is expected false.

    With p_(1) <= ... <= p_(n), q_(i) is the least n p_(j) / j of all j >= i (Benjamini and
    Hochberg, who prove it of independent tests; of pairs, which share models, docs/calibration.md
    shows it by simulation). p and q have one axis, (n,). Raises ValueError: no probabilities.

    >>> q_values([0.01, 0.04, 0.03, 0.5]).round(4).tolist()
    [0.04, 0.0533, 0.0533, 0.5]
    """
    values = bounded_array(p, "p", 0.0, 1.0, "probabilities lie between 0 and 1")
    order = np.argsort(-values)
    share = values[order] * values.size / np.arange(values.size, 0, -1)
    found = np.empty(values.size)
    found[order] = np.minimum.accumulate(share)
    return found


def probability_best(mu: npt.ArrayLike, sigma: npt.ArrayLike) -> Floats:
    """Compute the posterior probability of each model to be the best, pooled over models.

    The best of many scores is high by luck, too. So the true scores theta_i come from a normal
    of their own, whose mean and spread the K scores tell::

        x_i ~ N(theta_i, sigma_i^2),  theta_i ~ N(m, tau^2),  m flat,  tau half-Cauchy(s)

    with 1/s^2 the mean of 1/sigma_i^2. Given tau and m, theta_i is N(w_i x_i + (1 - w_i) m,
    w_i sigma_i^2) with w_i = tau^2 / (tau^2 + sigma_i^2), and the chances are integrals over the
    largest one, by sums over equal steps; they are averaged over the posterior of m and tau, by
    quadrature. Where models hardly differ, all have about 1/K; where they differ by many
    sigmas nothing is drawn together.

    Arguments and errors: :func:`rank_ranges`; a sigma under a thousandth of the largest counts as
    that. The probabilities have shape (K,) and add up to 1. Source: Rubin (1981) for the model;
    Gelman (2006) for the prior of tau.

    >>> probability_best([0.70, 0.62, 0.61], [0.03, 0.02, 0.02]).round(3).tolist()
    [0.822, 0.104, 0.075]
    >>> probability_best([0.62, 0.61, 0.60, 0.60, 0.60], 0.02).round(2).tolist()
    [0.28, 0.22, 0.17, 0.17, 0.17]
    """
    x, sd = check_scores(mu, sigma)
    if x.ndim != 1:
        raise ValueError(f"mu has shape {x.shape}: pass a vector, one score per model")
    sd = np.maximum(sd, 1e-3 * sd.max()) if sd.any() else np.full(x.size, 1e-9 * np.ptp(x) or 1.0)
    scale = 1 / np.sqrt(np.mean(1 / sd**2))
    tau = scale * np.tan((1 + _ANGLES[:, None]) * np.pi / 4)  # the prior is uniform in the angle
    total = sd**2 + tau**2
    of_mean = 1 / (1 / total).sum(axis=1)
    mean = (x / total).sum(axis=1) * of_mean
    fit = ((x - mean[:, None]) ** 2 / total + np.log(total)).sum(axis=1) - np.log(of_mean)
    weight = _ANGLE_WEIGHTS * np.exp((fit.min() - fit) / 2)
    chances = np.zeros(x.size)
    for i in np.flatnonzero(weight > 1e-6 * weight.sum()):
        kept = tau[i] ** 2 / total[i]
        means = mean[i] + np.sqrt(of_mean[i]) * _NODES[:, None]
        largest = _largest(kept * x + (1 - kept) * means, np.sqrt(kept) * sd)
        chances += weight[i] * (_NODE_WEIGHTS @ largest)
    return np.asarray(chances / chances.sum())


def _largest(mean: Floats, sd: Floats) -> Floats:
    """Compute the chance of each of K normals to be the largest, of means (T, K) and sds (K,)."""
    low, high = (mean - 9 * sd).max(axis=1), (mean + 9 * sd).max(axis=1)
    able = (mean + 9 * sd > low[:, None]).any(axis=0)  # the others never are
    z = (np.linspace(low, high, _STEPS, axis=1)[:, None] - mean[:, able, None]) / sd[able, None]
    below = scipy.special.ndtr(z)  # above 0, as no z is below -9
    density = below.prod(axis=1, keepdims=True) / below * np.exp(-(z**2) / 2)
    chances = np.zeros(mean.shape)
    chances[:, able] = density.sum(axis=2) / sd[able]
    return np.asarray(chances / chances.sum(axis=1, keepdims=True))
