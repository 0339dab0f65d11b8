"""Pass@k: the chance that at least one of k attempts is correct.

Formulas from Hariri et al., "Don't Pass@k", arXiv 2510.04265 (equation 21), after Chen et al.,
"Evaluating Large Language Models Trained on Code", arXiv 2107.03374.

All of it is done with sums of logarithms over the k factors of the binomial or Beta ratios:
no factorial or Gamma function of a large number appears, so that nothing overflows or cancels
at N = 10^4 trials and k = 10^3. Missing trials are masked (``numpy.ma``), as in ``bayes``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from scoring._inputs import (
    Counts,
    Floats,
    check_k,
    check_positive,
    check_trials,
    normal_interval,
    outcome_counts,
)


def pass_at_k(R: npt.ArrayLike, k: int) -> float:
    """Pass@k, the unbiased estimator.

    With c_a correct among the N_a trials of question a, the share of the k-subsets of its
    trials that contain a correct one, averaged over questions::

        1/M sum_a [ 1 - C(N_a - c_a, k) / C(N_a, k) ]

    Args:
        R: outcomes, 1 correct and 0 not, shape (M, N), or (N,) for one question. Masked entries
            are missing trials and count as nothing.
        k: number of attempts, at least 1 and at most the number of trials of every question.

    Returns:
        Pass@k, in [0, 1].

    Raises:
        ValueError: an outcome other than 0 and 1, a wrong shape, nothing to score, k below 1; k
            above a question's number of trials: the question is named.

    Source: arXiv 2510.04265, equation 21.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(pass_at_k(R, 1), 6), round(pass_at_k(R, 2), 6)
    (0.7, 0.95)
    """
    correct, trials, k = _checked(R, k)
    return float(pass_at_k_per_question(correct, trials, k).mean())


def pass_at_k_ci(
    R: npt.ArrayLike,
    k: int,
    confidence: float = 0.95,
    bounds: tuple[float, float] = (0.0, 1.0),
    alpha0: float = 1.0,
    beta0: float = 1.0,
) -> tuple[float, float, float, float]:
    """Posterior mean, standard deviation and credible interval of Pass@k.

    The success rate p_a of question a has the posterior
    Beta(alpha0 + c_a, beta0 + N_a - c_a), and g(p) = 1 - (1 - p)^k is its Pass@k::

        mu      = 1/M   sum_a E g(p_a)
        sigma^2 = 1/M^2 sum_a Var g(p_a)

    mu is not :func:`pass_at_k`: it is a posterior mean, drawn towards the prior, and like
    every Bayes estimate here it treats questions as fixed.

    Args:
        R: as for :func:`pass_at_k`.
        k: as for :func:`pass_at_k`.
        confidence: posterior probability of the interval, in (0, 1).
        bounds: both ends are moved into (lowest, highest).
        alpha0: prior count of correct answers, above 0.
        beta0: prior count of wrong answers, above 0.

    Returns:
        mu, sigma, lo, hi, with lo and hi = mu -/+ z sigma.

    Raises:
        ValueError: as for :func:`pass_at_k`; alpha0, beta0, confidence or bounds out of range.

    Source: moments of the Beta posterior, arXiv 2510.04265, equation 9 with C = 1; for k = 1 and
    the default prior these are the mu and sigma of Bayes@N.

    >>> mu, sigma, lo, hi = pass_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2)
    >>> round(mu, 6), round(sigma, 6), round(lo, 4), round(hi, 4)
    (0.839286, 0.097263, 0.6487, 1.0)
    """
    correct, trials, k = _checked(R, k)
    alpha: Floats = check_positive(alpha0, "alpha0") + correct.astype(np.float64)
    beta: Floats = check_positive(beta0, "beta0") + (trials - correct).astype(np.float64)
    means, variances = _pass_moments(alpha, beta, k)
    mu, sigma = float(means.mean()), float(np.sqrt(variances.sum()) / means.size)
    return mu, sigma, *normal_interval(mu, sigma, confidence, bounds)


def pass_at_k_per_question(correct: Counts, trials: Counts, k: int) -> Floats:
    """Pass@k of each question from its counts; the inputs are taken as checked.

    Args:
        correct: correct trials, any shape.
        trials: trials, same shape, each at least k.
        k: number of attempts.

    Returns:
        Pass@k, float64, same shape.

    Source: arXiv 2510.04265, equation 21, as 1 - prod_{i<k} (1 - c / (N - i)).

    >>> import numpy as np
    >>> pass_at_k_per_question(np.array([0, 1, 9]), np.array([10, 10, 10]), 2).round(4).tolist()
    [0.0, 0.2, 1.0]
    """
    # Fewer than k wrong trials: every k-subset holds a correct one.
    certain = trials - correct < k
    c = np.where(certain, 0, correct)
    log_all_wrong = np.zeros(np.shape(c))
    # One factor at a time: memory stays that of the counts, whatever k is.
    for i in range(k):
        log_all_wrong += np.log1p(-c / (trials - i))
    result: Floats = np.where(certain, 1.0, 0.0 - np.expm1(log_all_wrong))
    return result


def _pass_moments(alpha: Floats, beta: Floats, k: int) -> tuple[Floats, Floats]:
    """Mean and variance of 1 - (1 - p)^k for p ~ Beta(alpha, beta).

    With q = 1 - p, E q^k = prod_{i<k} (beta + i) / (alpha + beta + i), and
    E q^2k / (E q^k)^2 = prod_{i<k} [1 + k alpha / ((alpha + beta + k + i) (beta + i))]. Taking
    the ratio as a product of factors above 1 avoids the difference of two nearly equal moments.
    """
    log_first = np.zeros(alpha.shape)
    log_ratio = np.zeros(alpha.shape)
    for i in range(k):
        log_first += np.log1p(-alpha / (alpha + beta + i))
        log_ratio += np.log1p(k * alpha / ((alpha + beta + k + i) * (beta + i)))
    means: Floats = -np.expm1(log_first)
    # E q^2k - (E q^k)^2, arranged so that the exponents stay at or below 0.
    variances: Floats = np.exp(2 * log_first + log_ratio) * -np.expm1(-log_ratio)
    return means, variances


def _checked(R: npt.ArrayLike, k: int) -> tuple[Counts, Counts, int]:
    """Return correct (M,), trials (M,) and k, or raise."""
    k = check_k(k)
    counts = outcome_counts(R, 2, remedy="Pass@k takes outcomes 1 (correct) and 0 (not)")
    trials: Counts = counts.sum(axis=-1)
    check_trials(trials, k, f"Pass@{k}")
    return counts[:, 1], trials, k
