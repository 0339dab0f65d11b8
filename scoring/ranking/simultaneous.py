"""All K models at once: ranges of ranks, who may be the best, pairs, and the chance to be the best.

A z of each pair taken alone is no claim about all of them: of ten equal models some pair has a z
above 1.96 in six of ten cohorts. Here what is said of all models is false with a chance of at most
1 - confidence together. Scores are independent normals, as in :func:`scoring.compare`.

Sources: Tukey (1953), Kramer (1956) and Hayter (1984) for all pairs; Hsu (1981, 1984) for
comparisons with the best, with Slepian's inequality (1962) where sigmas differ; Benjamini and
Hochberg (1995) for pairs; Al Mohamad, Goeman and van Zwet (2022) for ranges of ranks by pairs.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.checks import bounded_array, check_confidence, check_scores
from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints
from bayes_at_n.scoring.ranking.compare import pairwise_z

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
