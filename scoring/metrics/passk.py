"""Pass@k and Pass^k: the chance that one of k attempts is correct, and that all are.

Formulas from Hariri et al., "Don't Pass@k", arXiv 2510.04265 (equations 21 and 22), after Chen et
al., arXiv 2107.03374, and Yao et al., arXiv 2406.12045.
"""

from typing import Any

from bayes_at_n.scoring.numerics.checks import check_k
from bayes_at_n.scoring.numerics.credit import at_least, power_moments
from bayes_at_n.scoring.numerics.estimate import enough_binary, interval_of, subset_mean
from bayes_at_n.scoring.numerics.inputs import Floats, Outcomes
from bayes_at_n.scoring.numerics.results import result


def pass_at_k(R: Outcomes, k: int) -> Any:
    """Pass@k, the unbiased estimator.

    With c_a correct among the N_a trials of question a, the share of the k-subsets of its
    trials that contain a correct one, averaged over questions::

        1/M sum_a [ 1 - C(N_a - c_a, k) / C(N_a, k) ]

    Args:
        R: outcomes 1 (correct) and 0, else as for :func:`scoring.bayes`: shape (M, N), (N,) or
            (..., M, N), possibly masked, or :class:`scoring.Counts`, shape (..., M, 2).
        k: number of attempts, at least 1 and at most the number of trials of every question.

    Returns a float in [0, 1], or an array of shape (...) for a stack. An outcome other than 0 and
    1, a wrong shape, k below 1 and a question with fewer than k trials are a ValueError. Source:
    arXiv 2510.04265, equation 21.

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


def pass_hat_k(R: Outcomes, k: int) -> Any:
    """Pass^k, the unbiased estimator 1/M sum_a C(c_a, k) / C(N_a, k): all of k are correct.

    Also known as Unanimous@k (``unanimous_at_k``), and as G-Pass@k with threshold 1
    (``g_pass_at_k``, Liu et al., arXiv 2412.13147). All else: :func:`pass_at_k`. Source: arXiv
    2510.04265, equations 22 and 23.

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
    """Plug-in Pass@k, 1/M sum_a [ 1 - (1 - c_a / N_a)^k ]: biased, for comparison only.

    What section 2.7 of the paper calls naive Pass^k. k may be above the number of trials, of which
    every question has one. All else: :func:`pass_at_k`.

    >>> round(naive_pass_at_k([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], 2), 6)
    0.9
    """
    k = check_k(k)
    correct, trials = enough_binary(R, 1, f"naive Pass@{k}")
    return result((1.0 - ((trials - correct) / trials) ** k).mean(axis=-1))
