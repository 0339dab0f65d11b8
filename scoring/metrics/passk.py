"""Scores of k attempts: Pass@k, Pass^k, G-Pass@k, Maj@k, AUC@k, spectra, and Max@k of rewards.

Each is a vector of credits (``scoring.numerics.credit``) for j of k correct attempts, taken over
k-subsets of the observed trials, and in its ``_ci`` over k new attempts: the moments of the Beta
posterior, equation 9. Equations are those of Hariri et al., "Don't Pass@k", arXiv 2510.04265; 21
after Chen et al., arXiv 2107.03374, 22 after Yao et al., arXiv 2406.12045, and 23 and 24 after Liu
et al., arXiv 2412.13147.

Max@k is after Bagirov et al., arXiv 2510.23393. With r_1 < ... < r_L the distinct weights and A_l
the probability of an attempt that earns at most r_l, the best of k attempts earns on average
r_L - sum_{l<L} (r_{l+1} - r_l) A_l^k.
"""

import math
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.credit import (
    Credit,
    at_least,
    by_state,
    credit_posterior,
    enough_binary,
    hypergeometric,
    interval_of,
    log_power,
    power_moments,
    subset_mean,
    subset_scores,
)
from bayes_at_n.scoring.numerics.inputs import (
    Bounds,
    Floats,
    Ints,
    Outcomes,
    Weights,
    bounded_array,
    check_k,
    check_share,
    check_trials,
    counts_and_prior,
    weighted_counts,
)
from bayes_at_n.scoring.numerics.results import (
    Summary,
    mean_and_sigma,
    merge_equal,
    normal_summary,
    question_sigma,
    result,
)


def pass_at_k(R: Outcomes, k: int) -> Any:
    """Estimate Pass@k without bias: one of k attempts is correct.

    With c_a correct among the N_a trials of question a, the share of the k-subsets of its
    trials that contain a correct one, averaged over questions::

        1/M sum_a [ 1 - C(N_a - c_a, k) / C(N_a, k) ]

    Args:
        R: outcomes 1 (correct) and 0, else as for :func:`scoring.bayes`: shape (M, N), (N,) or
            (..., M, N), possibly masked, or :class:`scoring.Counts`, shape (..., M, 2).
        k: number of attempts, at least 1 and at most the number of trials of every question.

    Returns a float in [0, 1], or an array of shape (...) for a stack. Raises ValueError: an outcome
    other than 0 and 1, a wrong shape, k below 1, a question with fewer than k trials. Source: arXiv
    2510.04265, equation 21.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(pass_at_k(R, 1), 6), round(pass_at_k(R, 2), 6)
    (0.7, 0.95)
    >>> [round(x, 4) for x in pass_at_k_ci(R, 2)]
    [0.8393, 0.0973, 0.6487, 1.0]
    """
    return subset_mean(R, f"Pass@{k}", at_least(1, check_k(k)))


def _any_moments(k: int, alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    return power_moments(beta, alpha, k)[1:]


pass_at_k_ci = interval_of(pass_at_k, "Pass@{k}", lambda k: (_any_moments, k))


def pass_at_k_sigma(R: Outcomes, k: int) -> Any:
    """Compute the standard deviation of the unbiased Pass@k over repetitions of the trials.

    It is a mean over the k-subsets of the N_a trials. Two subsets that share J trials are both
    without a correct one with probability q^(2k - J), q = 1 - p, and J is hypergeometric, so that
    the variance of question a is::

        sum_j P(J = j) ( q^(2k - j) - q^2k ),    P(J = j) = C(k, j) C(N - k, k - j) / C(N, k)

    p is shrunk by half a trial of each kind, (c_a + 1/2) / (N_a + 1), the posterior mean of
    Jeffreys' prior, so that questions never or always solved count, too. It is for "did it change":
    the difference of two checkpoints over the root of the sum of both sigma^2. Where k attempts
    hardly ever miss it is small, but many times the true one. R, k and what raises a ValueError:
    :func:`pass_at_k`. Source: Hoeffding, "A class of statistics with asymptotically normal
    distribution", Ann. Math. Statist. 19 (1948), section 5.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(pass_at_k_sigma(R, 1), 6), round(pass_at_k_sigma(R, 2), 6)
    (0.146723, 0.114625)
    """
    correct, trials = enough_binary(R, check_k(k), f"Pass@{k}")
    (variances,) = by_state(_subset_variance, (k,), correct, trials, k + 1)
    return result(question_sigma(variances))


def _subset_variance(k: int, correct: Ints, trials: Ints) -> tuple[Floats]:
    shared, variances = np.arange(1, k + 1), np.empty(correct.shape)
    logs = np.log1p(-(correct + 0.5) / (trials + 1))[:, None]
    for n in np.unique(trials).tolist():
        at = trials == n
        terms = np.exp((2 * k - shared) * logs[at]) * -np.expm1(shared * logs[at])
        variances[at] = terms @ hypergeometric(np.array([n]), np.array([k]), k)[0, 1:]
    return (variances,)


def pass_hat_k(R: Outcomes, k: int) -> Any:
    """Estimate Pass^k, 1/M sum_a C(c_a, k) / C(N_a, k), without bias: all of k are correct.

    Also known as Unanimous@k (``unanimous_at_k``), and as G-Pass@k with threshold 1
    (``g_pass_at_k``, Liu et al., arXiv 2412.13147). All else: :func:`pass_at_k`. Raises ValueError:
    as it does. Source: arXiv 2510.04265, equations 22 and 23.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(pass_hat_k(R, 2), 6), [round(x, 4) for x in pass_hat_k_ci(R, 2)]
    (0.45, [0.4464, 0.1462, 0.1599, 0.7329])
    """
    return subset_mean(R, f"Pass^{k}", at_least(check_k(k), k))


def _all_moments(k: int, alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    return power_moments(alpha, beta, k)[::2]


pass_hat_k_ci = interval_of(pass_hat_k, "Pass^{k}", lambda k: (_all_moments, k))
g_pass_at_k = unanimous_at_k = pass_hat_k
g_pass_at_k_ci = unanimous_at_k_ci = pass_hat_k_ci


def naive_pass_at_k(R: Outcomes, k: int) -> Any:
    """Plug the rates into Pass@k, 1/M sum_a [ 1 - (1 - c_a / N_a)^k ]: biased, to compare with.

    What section 2.7 of the paper calls naive Pass^k. k may be above the number of trials, of which
    every question has one. All else: :func:`pass_at_k`. Raises ValueError: as it does; a question
    without trials.

    >>> round(naive_pass_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2), 6)
    0.9
    """
    k = check_k(k)
    correct, trials = enough_binary(R, 1, f"naive Pass@{k}")
    return result((1.0 - ((trials - correct) / trials) ** k).mean(axis=-1))


def g_pass_at_k_tau(R: Outcomes, k: int, tau: float) -> Any:
    """Estimate G-Pass@k: the chance that at least ceil(tau k) of k attempts are correct::

        1/M sum_a sum_{j = j0..k} C(c_a, j) C(N_a - c_a, k - j) / C(N_a, k),  j0 = ceil(tau k)

    tau is a share, from 0 to 1: 0 is Pass@k (j0 = 1) and 1 Pass^k, and 0.5 at k = 2 *is* Pass@2. A
    tau of j/k, as floats divide, asks for exactly j. All else: :func:`scoring.pass_at_k`. Raises
    ValueError: as it does; a tau outside 0 to 1. Source: equation 23.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(g_pass_at_k_tau(R, 2, 0.5), 6), round(g_pass_at_k_tau(R, 2, 1.0), 6)
    (0.95, 0.45)
    >>> [round(x, 4) for x in g_pass_at_k_tau_ci(R, 2, 0.5)]
    [0.8393, 0.0973, 0.6487, 1.0]
    """
    return subset_mean(R, f"G-Pass@{k}", at_least(needed(tau, k), k))


g_pass_at_k_tau_ci = interval_of(
    g_pass_at_k_tau, "G-Pass@{k}", lambda k, tau: credit_posterior(at_least(needed(tau, k), k))
)


def mg_pass_at_k(R: Outcomes, k: int) -> Any:
    """Estimate mG-Pass@k in its published closed form, with credits 2/k max(j - ceil(k/2), 0).

    The closed form is meant as 2 int_{0.5}^{1} G-Pass@k(tau) d tau, and is that for even k. For odd
    k it is lower, and 0 for k = 1. All else: :func:`scoring.pass_at_k`. Raises ValueError: as it
    does. Source: equation 24, as the authors' library sums it.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(mg_pass_at_k(R, 2), 6), round(mg_pass_at_k(R, 3), 6)
    (0.45, 0.166667)
    >>> [round(x, 4) for x in mg_pass_at_k_ci(R, 2)]
    [0.4464, 0.1462, 0.1599, 0.7329]
    """
    return subset_mean(R, f"mG-Pass@{k}", upper_half(check_k(k)))


mg_pass_at_k_ci = interval_of(
    mg_pass_at_k, "mG-Pass@{k}", lambda k: credit_posterior(upper_half(k))
)


def maj_at_k(R: Outcomes, k: int) -> Any:
    """Estimate Maj@k: the chance that more than half of k attempts are correct.

    This is :func:`g_pass_at_k_tau` with at least floor(k/2) + 1 correct, and not a vote over
    answers (majority vote, cons@k), which needs the answers and may do better, since wrong ones can
    disagree. All else: :func:`scoring.pass_at_k`. Raises ValueError: as it does. Source: equation
    23, with the threshold of a strict majority.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> [round(maj_at_k(R, k), 6) for k in (1, 2, 3)]
    [0.7, 0.45, 0.85]
    >>> [round(x, 4) for x in maj_at_k_ci(R, 3)]
    [0.6845, 0.152, 0.3867, 0.9824]
    """
    return subset_mean(R, f"Maj@{k}", at_least(check_k(k) // 2 + 1, k))


maj_at_k_ci = interval_of(maj_at_k, "Maj@{k}", lambda k: credit_posterior(at_least(k // 2 + 1, k)))


def auc_at_k(R: Outcomes, k: int) -> Any:
    """Average the height of the line through Pass@1, ..., Pass@k, for k = 1 Pass@1: AUC@k::

        1/(k - 1) sum_{j = 1..k-1} (Pass@j + Pass@(j + 1)) / 2

    All else: :func:`scoring.pass_at_k`. Raises ValueError: as it does. Source: Hu et al., arXiv
    2601.08763, with equation 21.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> [round(auc_at_k(R, k), 6) for k in (1, 2, 3)]
    [0.7, 0.825, 0.9]
    >>> [round(x, 4) for x in auc_at_k_ci(R, 3)]
    [0.8095, 0.0951, 0.6232, 0.9958]
    """
    return subset_mean(R, f"AUC@{k}", area(check_k(k)))


auc_at_k_ci = interval_of(auc_at_k, "AUC@{k}", lambda k: credit_posterior(area(k)))


def threshold_spectrum_at_k(R: Outcomes, k: int, weights: npt.ArrayLike) -> Any:
    """Sum w_r times the chance that at least r of k are correct, over r = 1..k: S_{w,k}.

    As a credit for exactly j correct attempts this is w_1 + ... + w_j. ``weights`` are w_1..w_k,
    not negative, with a sum of at most 1, shape (k,). Raises ValueError: others. All else:
    :func:`scoring.pass_at_k`. Source: the authors' library; equation 23.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(threshold_spectrum_at_k(R, 2, [0.5, 0.5]), 6)
    0.7
    >>> [round(x, 4) for x in threshold_spectrum_at_k_ci(R, 2, [0.5, 0.5])]
    [0.6429, 0.1185, 0.4107, 0.875]
    """
    return subset_mean(R, f"the spectrum at k = {k}", spectrum(weights, check_k(k)))


threshold_spectrum_at_k_ci = interval_of(
    threshold_spectrum_at_k,
    "the spectrum at k = {k}",
    lambda k, weights: credit_posterior(spectrum(weights, k)),
    least=False,
)


def needed(tau: float, k: int) -> int:
    """Count the correct attempts of k that threshold tau asks for: max(1, ceil(tau k)).

    Compared with j/k, not by rounding tau k up, which 0.07 * 100 = 7.000000000000001 would spoil.

    >>> needed(0.07, 100), needed(0.5, 3), needed(0.0, 4)
    (7, 2, 1)
    """
    tau, k = check_share(tau, "tau"), check_k(k)
    j = math.floor(tau * k)
    return max(1, j + (tau > j / k))


def upper_half(k: int) -> Credit:
    """Make the credits of mG-Pass@k as published, 2/k max(j - ceil(k/2), 0); equation 24."""
    return [Fraction(2 * max(j - (k + 1) // 2, 0), k) for j in range(k + 1)]


def spectrum(weights: npt.ArrayLike, k: int) -> Credit:
    """Add up weights to credits w_1 + ... + w_j, each as the shortest decimal that prints so."""
    exact = [Fraction(repr(weight)) for weight in check_spectrum(weights, k).tolist()]
    return [*accumulate(exact, initial=Fraction(0))]


def check_spectrum(weights: npt.ArrayLike, k: int) -> Floats:
    """Check w_1..w_k, of sum at most 1; the slack is for ten times 0.1, thirds and the like."""
    w = bounded_array(weights, "weights", 0.0, 1.0, "weights lie between 0 and 1")
    if w.shape != (k,):
        raise ValueError(f"weights has shape {w.shape}: pass {k} numbers, for k = {k}")
    if w.sum() > 1 + 1e-12:
        raise ValueError(f"weights sum to {w.sum()}: the sum may be at most 1")
    return w


def area(k: int) -> Credit:
    """Make the credits of AUC@k: Pass@i, i = 1..k, by the trapezoidal rule; Pass@1 for k = 1.

    Pass@i is 1 - C(k - j, i) / C(k, i), and these add up to k - (k - j) / (j + 1).

    >>> [str(value) for value in area(2)]
    ['0', '3/4', '1']
    """
    sums = [k - Fraction(k - j, j + 1) for j in range(k + 1)]
    ends = [Fraction(j, k) + (j > 0) for j in range(k + 1)]
    return [(sums[j] - ends[j] / 2) / (k - 1) if k > 1 else sums[j] for j in range(k + 1)]


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
    """Summarize the posterior of Max@k of k new attempts: mean, sigma, credible interval.

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
