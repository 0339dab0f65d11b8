"""How many trials separate two models.

The answer looks ahead from a pilot run. Over its posterior of pi_a, under the uniform prior, and
over the outcomes of N new trials, the variance that Bayes@N will report has an expectation in
closed form. With K = C + 1 categories, T = N + K, weights shifted so that they add up to 0,
S = sum_k w_k^2, q_a the posterior mean of sum_k pi_ak w_k^2, and W_a that of the variance of one
outcome, sum_k pi_ak w_k^2 - (w . pi_a)^2::

    E sigma^2(N) = sum_a ( W_a N^2 + (S + K q_a - W_a) N + K S ) / (M^2 T^2 (T + 1))

N counts trials of a run of its own, scored without the pilot. Source: follows from Hariri et al.,
arXiv 2510.04265, equation 15 and sections 2.5 and 2.7.1.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.scoring.numerics.checks import check_confidence, check_positive
from bayes_at_n.scoring.numerics.inputs import Bools, Counts, Floats, Ints, Outcomes, Weights
from bayes_at_n.scoring.numerics.results import posterior_moments, result
from bayes_at_n.scoring.ranking.compare import compare, counts_of_both

MOST_TRIALS = 2**52
"""Plans end here; up to here whole numbers and their halves are exact in float64."""


class TrialPlan(NamedTuple):
    """Trials per question and model; floats for one pair of models, arrays (...) for stacks."""

    trials: Any  # for the difference that the pilot shows; inf where it shows none
    fewest: Any  # for the largest difference in the pilot's interval
    most: Any  # for the smallest difference in the pilot's interval; inf where that holds 0


def trials_to_separate(
    R_a: Outcomes,
    R_b: Outcomes,
    w: Weights = None,
    confidence: float = 0.95,
    power: float = 0.9,
) -> TrialPlan:
    """Plan the trials per question of each model at which most runs reach the confidence.

    The smallest N from which on::

        N / T |d| / sqrt(E sigma_a^2(N) + E sigma_b^2(N)) >= z + z'

    where z and z' are the one-sided normal quantiles of ``confidence`` (1.645 at 0.95) and of
    ``power`` (1.282 at 0.9), the share of runs of N trials whose z reaches the first, d the
    difference of the true scores, N / T the pull of the uniform prior on it, and T and E sigma^2 as
    in the module's docstring. ``trials`` takes for d the difference of the pilot's averages;
    ``fewest`` and ``most`` take the ends of its interval (:func:`scoring.compare`, at the same
    confidence) furthest from 0 and nearest to 0. Where that holds 0 ``most`` is inf: no number of
    trials is known to be enough.

    N is of new runs, planned beforehand. Whoever extends the pilot to N and looks again errs more
    often than 1 - confidence, unless the looks are those of :class:`scoring.sequential.Race`.

    R_a and R_b are outcomes of the two pilots, and w weights, as for :func:`scoring.compare`, with
    its errors; ``confidence`` is that of the order of the two models (rho), in (1/2, 1), and of the
    range, and ``power`` lies in (0, 1). In the :class:`TrialPlan` inf stands for more than 2^52.
    Raises ValueError: a confidence outside (1/2, 1), and as that.

    >>> a = [[1, 1, 1, 0, 1, 1, 1, 1, 1, 1], [1, 1, 0, 1, 1, 1, 1, 1, 1, 1]]
    >>> b = [[0, 1, 1, 0, 1, 0, 0, 0, 0, 1], [0, 0, 0, 0, 1, 1, 0, 1, 1, 0]]
    >>> trials_to_separate(a, b)
    TrialPlan(trials=8.0, fewest=4.0, most=35.0)
    """
    counts_a, counts_b, weights = counts_of_both(R_a, R_b, w)
    if check_confidence(confidence) <= 0.5:
        raise ValueError(f"confidence is {confidence!r}: pass a number between 1/2 and 1")
    check_positive(power, "power", most=1.0)
    z = -NormalDist().inv_cdf(1 - confidence) + NormalDist().inv_cdf(power)
    weights = weights / (np.ptp(weights) or 1.0)
    pilot = compare(Counts(counts_a), Counts(counts_b), weights, confidence)
    low, high = np.minimum(np.abs(pilot.lo), np.abs(pilot.hi)), np.maximum(-pilot.lo, pilot.hi)
    nearest = np.where(np.multiply(pilot.lo, pilot.hi) <= 0, 0.0, low)
    gaps = np.stack([np.abs(pilot.difference), high, nearest])
    variance_a = _expected_variance(counts_a, weights)
    variance_b = _expected_variance(counts_b, weights)

    def reached(N: Floats) -> Bools:
        pulled = gaps * N / (N + weights.size)
        # Written without a quotient, which would be 0/0 for weights that are all equal.
        return (pulled > 0) & (pulled >= z * np.sqrt(variance_a(N) + variance_b(N)))

    return TrialPlan(*(result(part) for part in fewest_trials(reached)))


def _expected_variance(counts: Ints, weights: Floats) -> Callable[[Floats], Floats]:
    """Return E sigma^2 as a function of N (float64, broadcast against the leading axes)."""
    nu = counts + 1
    _, variances = posterior_moments(nu, weights)
    questions, categories = counts.shape[-2:]
    total = nu.sum(axis=-1)
    # Under the posterior the variance of one outcome has the mean T_a times that of w . pi_a.
    within = (total * variances).sum(axis=-1)
    squares = (weights - weights.mean()) ** 2
    spread = categories * (nu @ squares / total).sum(axis=-1)
    prior = questions * squares.sum()

    def at(N: Floats) -> Floats:
        T = N + categories
        # Highest power first divided, so that nothing overflows for large N.
        inner = within + (prior + spread - within) / N + categories * prior / N**2
        expected: Floats = (N / (questions * T)) ** 2 * inner / (T + 1)
        return expected

    return at


def fewest_trials(reached: Callable[[Floats], Bools]) -> Floats:
    """Return the N from which on ``reached`` holds, at least 1; inf above ``MOST_TRIALS``.

    The first trials may widen the interval, where a prior with many categories of one weight is
    sure of its mean: hence the last failure among the powers of two, and the bisection above it.
    """
    low, high = np.array(0.0), np.array(1.0)
    for exponent in range(MOST_TRIALS.bit_length()):
        N = np.array(2.0**exponent)
        enough = reached(N)
        low, high = np.where(enough, low, N), np.where(enough, high, 2 * N)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        # Where low and high are neighbors the middle is low, and at 0 nothing is to be asked.
        enough = reached(np.maximum(middle, 1.0)) & (middle > low)
        low, high = np.where(enough, low, middle), np.where(enough, middle, high)
    return np.where(high > MOST_TRIALS, np.inf, high)
