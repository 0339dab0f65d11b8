"""Max@k: the expected reward of the best of k attempts.

Point estimate after Bagirov et al., arXiv 2510.23393; the posterior uses the Dirichlet posterior
of Bayes@N (Hariri et al., arXiv 2510.04265, equation 9). With weights (0, 1) it is Pass@k.

Let r_1 < ... < r_L be the distinct weights and A_l the probability of an attempt that earns at
most r_l. The best of k attempts earns r_L - sum_{l<L} (r_{l+1} - r_l) A_l^k on average.
"""

from typing import Any

import numpy as np

from bayes_at_n.scoring.numerics.checks import Bounds, check_k
from bayes_at_n.scoring.numerics.credit import at_least, log_power, power_moments, subset_scores
from bayes_at_n.scoring.numerics.inputs import (
    Floats,
    Outcomes,
    Weights,
    check_trials,
    counts_and_prior,
    weighted_counts,
)
from bayes_at_n.scoring.numerics.results import (
    Summary,
    mean_and_sigma,
    merge_equal,
    normal_summary,
    result,
)


def max_at_k(R: Outcomes, k: int, w: Weights = None) -> Any:
    """Average the best reward over k-subsets of the trials: Max@k, the unbiased estimator.

    With rewards g_1 <= ... <= g_N of a question, 1 / C(N, k) sum_{i = k..N} C(i - 1, k - 1) g_i,
    averaged over questions. w holds the reward of each category; R and w: :func:`scoring.bayes`,
    all else: :func:`scoring.pass_at_k`. Raises ValueError: as both. Source: arXiv 2510.23393,
    appendix C.1.

    >>> R = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    >>> round(max_at_k(R, 2, w=[0.0, 0.5, 1.0]), 6)
    0.85
    """
    k = check_k(k)
    counts, weights = weighted_counts(R, w)
    check_trials(counts.sum(axis=-1), k, f"Max@{k}")
    levels, grouped = merge_equal(counts, weights)
    trials = grouped.sum(axis=-1)
    best = np.full(trials.shape, levels[0])
    for level in range(levels.size - 1):
        above = trials - grouped[..., : level + 1].sum(axis=-1)
        chance = subset_scores(at_least(1, k), above, trials)
        best += (levels[level + 1] - levels[level]) * chance
    return result(best.mean(axis=-1))


def max_at_k_ci(
    R: Outcomes,
    k: int,
    w: Weights = None,
    R0: Outcomes | None = None,
    confidence: float = 0.95,
    bounds: Bounds = None,
) -> Summary:
    """Summarise the posterior of Max@k of k new attempts: mean, sigma, credible interval.

    A_l ~ Beta, and for l < m A_l = A_m B with an independent Beta B, so that Cov(A_l^k, A_m^k) = E
    B^k Var A_m^k. Questions may have any number of trials, also none, and k is any number from 1
    up. ``bounds`` of ``None`` are the smallest and the largest weight. All else:
    :func:`scoring.bayes_ci`. Raises ValueError: as :func:`scoring.bayes_ci`; k below 1. Source:
    Dirichlet posterior, arXiv 2510.04265, equation 9.

    >>> [round(x, 4) for x in max_at_k_ci([[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]], 2, w=[0.0, 0.5, 1.0])]
    [0.75, 0.0881, 0.5773, 0.9227]
    """
    k = check_k(k)
    counts, weights, prior = counts_and_prior(R, w, R0)
    nu = 1.0 + counts + prior
    levels, grouped = merge_equal(nu, weights)
    # Every row of nu that occurs is computed once.
    states, inverse = np.unique(grouped.reshape(-1, levels.size), axis=0, return_inverse=True)
    moments = _best_moments(states, levels, k)
    by_question = [moment[inverse.ravel()].reshape(nu.shape[:-1]) for moment in moments]
    bounds = (float(levels[0]), float(levels[-1])) if bounds is None else bounds
    return normal_summary(*mean_and_sigma(by_question), confidence, bounds)


def _best_moments(nu: Floats, levels: Floats, k: int) -> tuple[Floats, Floats]:
    """Mean and variance of the best reward of k attempts, for rows nu (states, L)."""
    below = np.cumsum(nu, axis=-1)
    total = below[:, -1]
    means = np.full(total.shape, levels[0])
    variances = np.zeros(total.shape)
    gaps = np.diff(levels)
    for m in range(gaps.size):
        _, exceeded, variance = power_moments(below[:, m], total - below[:, m], k)
        means += gaps[m] * exceeded
        shared = np.zeros(total.shape)
        for lower in range(m):
            ratio = log_power(below[:, lower], below[:, m] - below[:, lower], k)
            shared += gaps[lower] * np.exp(ratio)
        variances += gaps[m] * (gaps[m] + 2 * shared) * variance
    return means, variances
