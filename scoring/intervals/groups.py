"""Scores of groups of questions, such as subjects, and their macro average."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.intervals.uncertainty import pool_ci
from bayes_at_n.scoring.metrics.bayes import avg
from bayes_at_n.scoring.metrics.empirical import score_ci
from bayes_at_n.scoring.numerics.checks import UNIT, check_confidence
from bayes_at_n.scoring.numerics.inputs import Counts, Outcomes, weighted_counts
from bayes_at_n.scoring.numerics.results import (
    Clusters,
    Summary,
    normal_summary,
    observed_means,
    within,
)


class Groups(NamedTuple):
    """Scores of K groups of questions: summaries of arrays (..., K), of the macro averages (...).

    Those of a pool are NaN where a group has a single question or cluster.
    """

    score: Summary  # `score_ci` of each group
    macro: Summary  # mean of the scores, with the interval for these questions
    pool: Summary  # `pool_ci` of each group
    pool_macro: Summary  # mean of the averages, with the interval for a pool


def group_scores(
    R: Outcomes,
    members: npt.ArrayLike,
    confidence: float = 0.95,
    prior: str = "estimated",
    clusters: Clusters = None,
) -> Groups:
    """Score groups of questions, and their macro average, which gives each group the same weight.

    With x_a the mean of question a, v_a its variance (:func:`scoring.avg`), M_k questions in group
    k, s_k the sigma and m_k the average of its score::

        macro:       sigma^2 = 1/K^2 sum_kl s_k s_l c_kl / sqrt(c_kk c_ll),
                     c_kl = sum of v_a over questions in k and l / (M_k M_l)
        pool_macro:  sigma^2 = sum over clusters (sum_k S_k)^2,
                     S_k = sqrt(G_k / (G_k - 1)) sum of x_a - m_k over its questions in k / (K M_k)

    with G_k clusters in group k. So questions may be in several groups, and clusters too; of groups
    that share nothing, scores are independent and the pool's variance is that of a stratified mean.
    Degrees of freedom are Satterthwaite's, and the pool's sigma is at least the macro's.

    R: outcomes 0 and 1, (..., M, N), masked where missing, with a trial of each question; members:
    (K, M), true where a question is in a group; clusters: labels (M,); prior: that of
    :func:`scoring.score_ci`. Raises ValueError: others, and an empty group. Source: Cochran,
    Sampling Techniques (1977), chapter 5; Miller, arXiv 2411.00640, section 2.2, for clusters.

    >>> found = group_scores([[1, 1], [0, 1], [0, 0], [1, 0]], [[1, 1, 0, 0], [1, 0, 1, 1]])
    >>> found.score.value.round(3).tolist(), [round(float(x), 3) for x in found.macro]
    ([0.75, 0.5], [0.625, 0.22, 0.194, 1.0])
    """
    counts, weights = weighted_counts(R, None)
    inside, questions = np.asarray(members, bool), counts.shape[-2]
    if inside.shape[1:] != (questions,) or not inside.any(axis=1).all():
        raise ValueError(f"members: pass groups by {questions} questions, none of them empty")
    drawn = np.arange(questions) if clusters is None else np.asarray([*clusters])
    labels = np.unique(drawn, return_inverse=True)[1]
    sizes = np.array([np.unique(labels[of]).size for of in inside])
    blank = Summary(*np.full((4, *counts.shape[:-2]), np.nan))
    scores, pools = list[Summary](), list[Summary]()
    for of, size in zip(inside, sizes, strict=True):
        part = Counts(counts[..., of, :])
        scores.append(score_ci(part, weights, confidence, prior))
        pools.append(pool_ci(part, weights, confidence, labels[of]) if size > 1 else blank)
    score, pool = (
        Summary(*(np.stack(part, axis=-1) for part in zip(*of, strict=True)))
        for of in (scores, pools)
    )
    share, groups = inside / inside.sum(axis=1, keepdims=True), len(inside)
    variance = np.asarray(avg(Counts(counts[..., None, :]), weights)[1]) ** 2  # (..., M)
    parts = (variance[..., of] @ (share[:, of].T / of.sum()) for of in inside)
    shared = np.stack([*parts], axis=-2)  # (..., K, K)
    scaled = score.sigma / np.sqrt(np.diagonal(shared, axis1=-2, axis2=-1))
    sigma = np.sqrt(np.einsum("...k,...kl,...l", scaled, shared, scaled)) / groups
    macro = normal_summary(score.value.mean(axis=-1), sigma, confidence, UNIT)
    if sizes.min() < 2:
        return Groups(score, macro, pool, blank)
    means = observed_means(counts, weights)
    total, own = np.zeros((*means.shape[:-1], labels.max() + 1)), []
    for of, size in zip(inside, sizes, strict=True):
        of_group = means[..., of] - means[..., of].mean(axis=-1, keepdims=True)
        order = np.argsort(labels[of], kind="stable")
        first, starts = np.unique(labels[of][order], return_index=True)
        sums = np.add.reduceat(of_group[..., order], starts, axis=-1) / (groups * of.sum())
        sums *= np.sqrt(size / (size - 1))
        total[..., first] += sums
        own.append(np.maximum((sums**2).sum(axis=-1), 1e-100))
    spread = np.maximum(np.sqrt((total**2).sum(axis=-1)), sigma)
    freedom = sum(own) ** 2 / sum(v**2 / (size - 1) for v, size in zip(own, sizes, strict=True))
    reach = -scipy.special.stdtrit(freedom, (1 - check_confidence(confidence)) / 2) * spread
    middle = (means @ share.T).mean(axis=-1)
    ends = (within(middle + side * reach, UNIT) for side in (-1, 1))
    return Groups(score, macro, pool, Summary(middle, spread, *ends))


def difference_ci(
    R_a: Outcomes,
    R_b: Outcomes,
    confidence: float = 0.95,
    clusters_a: Clusters = None,
    clusters_b: Clusters = None,
) -> Summary:
    """Compare averages on two independent sets of questions, A minus B, such as of two years.

    sigma^2 is the sum of the squares of both sigmas of :func:`scoring.pool_ci`, and the interval is
    Welch's: Student's, with degrees of freedom sigma^4 / sum_i ( sigma_i^4 / (G_i - 1) ) for G_i
    questions or clusters. R and clusters of each set: :func:`scoring.pool_ci`, one matrix (M, N).
    Raises ValueError: as it does. Source: Welch (1947).

    >>> old, new = [[1, 1], [1, 1], [1, 0], [1, 1]], [[0, 1], [0, 0], [1, 1]]
    >>> [round(x, 3) for x in difference_ci(new, old)]
    [-0.375, 0.352, -1.0, 0.621]
    """
    value, square, left = 0.0, 0.0, 0.0
    for sign, R, clusters in ((1, R_a, clusters_a), (-1, R_b, clusters_b)):
        average, sigma, *_ = pool_ci(R, None, confidence, clusters)
        drawn = weighted_counts(R, None)[0].shape[-2] if clusters is None else len({*clusters})
        value, square = value + sign * average, square + sigma**2
        left += sigma**4 / (drawn - 1)
    reach = -scipy.special.stdtrit(square**2 / left, (1 - check_confidence(confidence)) / 2)
    sigma = square**0.5
    ends = (within(value + side * reach * sigma, (-1.0, 1.0)) for side in (-1, 1))
    return Summary(value, sigma, *ends)
