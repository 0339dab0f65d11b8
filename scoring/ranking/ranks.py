"""Ranking K models: by score, by score and uncertainty, and the distribution of every rank.

Tables 1 and 2 of the paper are consecutive z, dense, z = 1.645 (one-sided 95 %); its Figures 5 and
7 are competition ranks of plain scores. Source: Hariri et al., arXiv 2510.04265, sections 2.5, 2.7
and 2.7.1, and for the agreement of two rankings, tau_b, appendix F.1.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.checks import (
    broadcast_shape,
    check_models,
    check_positive,
    check_scores,
    finite_array,
)
from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints
from bayes_at_n.scoring.ranking import Method, Rule
from bayes_at_n.scoring.ranking.compare import pairwise_z, signed_z

ROUNDING = 1e-13
"""Scores closer than this share of the largest are equal but for rounding."""
DRAWN, LEAST_DRAWS = 1 << 22, 20_000  # scores, and draws of all models, for ranks
_CHUNK = 1 << 20  # scores at once
_STEPS, _REACH = 1 << 12, 9.0  # of sums over a score; a normal has 1e-19 of its mass beyond


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
    """Rank models by mu, where neighbours that are not separated share a rank.

    In the order of mu, models i and i + 1 share a rank when::

        consecutive_z   (mu_i - mu_i+1) / sqrt(sigma_i^2 + sigma_i+1^2) < z
        overlap         mu_i - z sigma_i <= mu_i+1 + z sigma_i+1

    Only neighbours are compared, so a chain may put models into one rank whose own z is large;
    :func:`indistinguishable_groups` looks at all pairs. At z = 1.645 consecutive_z is one-sided
    95 % confidence in the order of two neighbours; the overlap (the protocol of the paper's
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


def rank_distribution(mu: npt.ArrayLike, sigma: npt.ArrayLike, seed: int = 0) -> Floats:
    """Draw the posterior distribution of every model's rank.

    The scores x_i are independent normals with means mu and deviations sigma, and P[i, r] is the
    share of draws in which r others lie above model i: of four million over K, and 20,000 at least.
    So its standard error is below .0011 for up to 20 models, and at most .0036; the same arguments
    give the same P. mu and sigma, and their errors, are those of :func:`ranks_with_uncertainty`,
    but with one axis, (K,). P has shape (K, K), and rows and columns that add up to 1. Models tied
    in a score without uncertainty have their places in random order. Raises ValueError: as it does;
    two axes.

    >>> rank_distribution([0.70, 0.62, 0.61], [0.03, 0.02, 0.02]).round(2).tolist()
    [[0.98, 0.02, 0.0], [0.01, 0.63, 0.36], [0.0, 0.36, 0.64]]
    """
    mean, sd = _one_axis(mu, sigma)
    models, rng = mean.size, np.random.default_rng(seed)
    cells, draws = np.arange(models), max(LEAST_DRAWS, DRAWN // models)
    counts = np.zeros(models**2, dtype=np.int64)
    for part in np.array_split(np.empty(draws), 1 + draws * models // _CHUNK):
        drawn = rng.standard_normal((part.size, models)) * sd + mean
        order = np.argsort(-drawn, axis=1)  # who has each place
        counts += np.bincount((order * models + cells).ravel(), minlength=counts.size)
    return counts.reshape(models, models) / draws


def probability_best(mu: npt.ArrayLike, sigma: npt.ArrayLike) -> Floats:
    """Compute the posterior probability of each model to be the best.

    The first column of :func:`rank_distribution`, without draws::

        P_i = integral of phi((x - mu_i)/sigma_i)/sigma_i prod_{j != i} Phi((x - mu_j)/sigma_j) dx

    by sums over equal steps, whose error is below 1e-10 where no sigma is less than a hundredth of
    the largest; smaller ones count as about that much. Arguments and errors are those of
    :func:`rank_distribution`; the probabilities have shape (K,) and add up to 1. Raises ValueError:
    as it does.

    >>> probability_best([0.70, 0.62, 0.61], [0.03, 0.02, 0.02]).round(4).tolist()
    [0.9827, 0.0123, 0.005]
    """
    mean, sd = _one_axis(mu, sigma)
    span = (mean + _REACH * sd).max() - (mean - _REACH * sd).max()
    sd = np.maximum(sd, 2 * span / _STEPS)
    low, high = (mean - _REACH * sd).max(), (mean + _REACH * sd).max()
    able = mean + _REACH * sd > low  # the others are never the best
    width = sd[able][:, None]
    z = (np.linspace(low, high, _STEPS) - mean[able][:, None]) / width
    below = scipy.special.log_ndtr(z)
    chances = np.zeros(mean.size)
    chances[able] = (np.exp(below.sum(axis=0) - below - z**2 / 2) / width).sum(axis=1)
    return np.asarray(chances / chances.sum())


def _one_axis(mu: npt.ArrayLike, sigma: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return means and sigmas of K models, (K,), sigmas above 0 so that no two scores are tied."""
    mean, sd = check_scores(mu, sigma)
    if mean.ndim != 1:
        raise ValueError(f"mu has shape {mean.shape}: pass a vector, one score per model")
    return mean, np.maximum(sd, 1e-10 * (np.abs(mean) + sd).max() or 1.0)


def indistinguishable_groups(
    mu: npt.ArrayLike, sigma: npt.ArrayLike, z: float = 1.645
) -> list[list[int]]:
    """Find the largest groups of models of which no two are separated.

    A group is a set of models of which all pairs have |z_ij| < z, and to which no other model can
    be added. Groups may overlap, as in a compact letter display. They are lists of models' indices,
    in the order of their scores, best first. Arguments and errors are those of
    :func:`ranks_with_uncertainty`, but mu has one axis, (K,). Raises ValueError: as it does.

    >>> indistinguishable_groups([0.55, 0.61, 0.62, 0.70, 0.58], 0.02)
    [[3], [2, 1, 4], [4, 0]]
    """
    mean, sd = check_scores(mu, sigma)
    if mean.ndim != 1:
        raise ValueError(f"mu has shape {mean.shape}: pass a vector, one score per model")
    order = np.lexsort((sd, -mean))
    close: Bools = np.abs(pairwise_z(mean[order], sd[order])) < check_positive(z, "z")
    np.fill_diagonal(close, True)
    # Models that are close to the same models are in the same groups: one stands for all.
    kinds, kind = np.unique(close, axis=0, return_inverse=True)
    members = [np.flatnonzero(kind.ravel() == i) for i in range(len(kinds))]
    first = [group[0] for group in members]
    neighbours = [set(np.flatnonzero(close[i, first]).tolist()) - {k} for k, i in enumerate(first)]
    cliques = _maximal_cliques(neighbours)
    groups = sorted(sorted(int(i) for k in clique for i in members[k]) for clique in cliques)
    return [order[group].tolist() for group in groups]


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


def _number(order: npt.NDArray[np.intp], separated: Bools, method: Method) -> Ints:
    """Number models given in the order ``order`` of which neighbours are ``separated`` or share."""
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


def _maximal_cliques(neighbours: list[set[int]]) -> list[list[int]]:
    """List the maximal cliques of a graph (Bron and Kerbosch 1973, with a pivot)."""
    cliques: list[list[int]] = []
    # Clique so far, what may extend it, and what was tried before; a list, as deep as it may be.
    waiting: list[tuple[list[int], set[int], set[int]]] = [([], set(range(len(neighbours))), set())]
    while waiting:
        clique, candidates, done = waiting.pop()
        if not candidates and not done:
            cliques.append(clique)
            continue
        pivot = max(candidates | done, key=lambda v: len(candidates & neighbours[v]))
        for v in sorted(candidates - neighbours[pivot]):
            waiting.append(([*clique, v], candidates & neighbours[v], done & neighbours[v]))
            candidates, done = candidates - {v}, done | {v}
    return cliques
