"""Pass@k and Pass^k: the chance that one of k attempts is correct, and that all are.

Formulas from Hariri et al., "Don't Pass@k", arXiv 2510.04265 (equations 21 and 22), after Chen et
al., arXiv 2107.03374, and Yao et al., arXiv 2406.12045. What the arguments of the whole family are
is said once, at :func:`pass_at_k` and :func:`pass_at_k_ci`.
"""

from __future__ import annotations

from typing import Any

from scoring.numerics.checks import UNIT, Bounds, Short, Summary, check_k, question_mean, result
from scoring.numerics.credit import at_least, power_moments
from scoring.numerics.estimate import beta_summary, enough_binary, interval_of, subset_mean
from scoring.numerics.inputs import Floats, Outcomes


def pass_at_k(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """Pass@k, the unbiased estimator.

    With c_a correct among the N_a trials of question a, the share of the k-subsets of its
    trials that contain a correct one, averaged over questions::

        1/M sum_a [ 1 - C(N_a - c_a, k) / C(N_a, k) ]

    Args:
        R: outcomes 1 (correct) and 0, else as for :func:`scoring.bayes`: shape (M, N), (N,) or
            (..., M, N), possibly masked, or :class:`scoring.Counts`, shape (..., M, 2).
        k: number of attempts, at least 1 and at most the number of trials of every question.
        short: what to do about questions with fewer than k trials: "raise", or "drop", which
            leaves them out of the mean and warns.

    Returns:
        The estimate, in [0, 1]; an array of shape (...) for a stack.

    Raises:
        ValueError: an outcome other than 0 and 1, a wrong shape, nothing to score, k below 1; k
            above a question's number of trials: the question is named.

    Source: arXiv 2510.04265, equation 21.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(pass_at_k(R, 1), 6), round(pass_at_k(R, 2), 6)
    (0.7, 0.95)
    """
    return subset_mean(R, f"Pass@{k}", at_least(1, check_k(k)), short)


def pass_at_k_ci(
    R: Outcomes,
    k: int,
    confidence: float = 0.95,
    bounds: Bounds = UNIT,
    alpha0: float = 1.0,
    beta0: float = 1.0,
    short: Short = "raise",
) -> Summary:
    """Posterior mean, standard deviation and credible interval of Pass@k, of k new attempts.

    The success rate p_a of question a has the posterior
    Beta(alpha0 + c_a, beta0 + N_a - c_a), and g(p) = 1 - (1 - p)^k is its Pass@k::

        mu      = 1/M   sum_a E g(p_a)
        sigma^2 = 1/M^2 sum_a Var g(p_a)

    mu is a posterior mean, drawn towards the prior, and questions are fixed. For k = 1 and the
    default prior mu and sigma are those of Bayes@N. The other functions of the family have another
    g. Those without ``short`` take any number of trials, also none, and any k.

    Args:
        R: as for :func:`pass_at_k`.
        k: as for :func:`pass_at_k`.
        confidence: posterior probability of the interval, in (0, 1).
        bounds: both ends are moved into (lowest, highest); ``None`` leaves them.
        alpha0: prior count of correct answers, above 0.
        beta0: prior count of wrong answers, above 0.
        short: as for :func:`pass_at_k`.

    Returns:
        mu (``value``), sigma, and mu -/+ z sigma (``low``, ``high``), a named tuple; each a float,
        or an array of shape (...) for a stack.

    Raises:
        ValueError: as for :func:`pass_at_k`; alpha0, beta0, confidence or bounds out of range.

    Source: moments of the Beta posterior, arXiv 2510.04265, equation 9 with C = 1.

    >>> [round(x, 4) for x in pass_at_k_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2)]
    [0.8393, 0.0973, 0.6487, 1.0]
    """
    k, posterior, prior = check_k(k), (_any_moments, k), (alpha0, beta0)
    return beta_summary(R, f"Pass@{k}", k, posterior, prior, confidence, bounds, short, k)


def _any_moments(k: int, alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    return power_moments(beta, alpha, k)[1:]


def pass_hat_k(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """Pass^k, the unbiased estimator 1/M sum_a C(c_a, k) / C(N_a, k): all of k are correct.

    Also known as Unanimous@k (``unanimous_at_k``), and as G-Pass@k with threshold 1
    (``g_pass_at_k``, Liu et al., arXiv 2412.13147). ``pass_hat_k_ci`` has g(p) = p^k. Arguments,
    returns and errors: :func:`pass_at_k`. Source: arXiv 2510.04265, equations 22 and 23.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> round(pass_hat_k(R, 2), 6), [round(x, 4) for x in pass_hat_k_ci(R, 2)]
    (0.45, [0.4464, 0.1462, 0.1599, 0.7329])
    """
    return subset_mean(R, f"Pass^{k}", at_least(check_k(k), k), short)


def _all_moments(k: int, alpha: Floats, beta: Floats) -> tuple[Floats, Floats]:
    return power_moments(alpha, beta, k)[::2]


pass_hat_k_ci = interval_of(pass_hat_k, "Pass^{k}", lambda k: (_all_moments, k))
g_pass_at_k = unanimous_at_k = pass_hat_k
g_pass_at_k_ci = unanimous_at_k_ci = pass_hat_k_ci


def naive_pass_at_k(R: Outcomes, k: int, short: Short = "raise") -> Any:
    """Plug-in Pass@k, 1/M sum_a [ 1 - (1 - c_a / N_a)^k ]: biased, for comparison only.

    What section 2.7 of the paper calls the naive variant of Pass^k: Pass@k at the observed rate. k
    may be above the number of trials; ``short`` is about questions without any. All else:
    :func:`pass_at_k`.

    >>> round(naive_pass_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2), 6)
    0.9
    """
    k = check_k(k)
    correct, trials, kept = enough_binary(R, 1, f"naive Pass@{k}", short)
    return result(question_mean(1.0 - ((trials - correct) / trials) ** k, kept))
