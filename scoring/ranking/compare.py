"""Is one model better than another? The paper's answer, and the one for questions as a sample.

The posteriors of two models on the same questions are independent and close to normal, and so is
the difference of their scores (Hariri et al., arXiv 2510.04265, section 2.5): :func:`compare`,
:func:`compare_scores` and :func:`pairwise_z`. Whether it would hold for other questions of the same
kind is another matter (Miller, arXiv 2411.00640): :func:`paired_questions`. How many trials
separate two models: :func:`trials_to_separate`.
"""

from collections.abc import Callable
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.metrics.bayes import avg
from bayes_at_n.scoring.numerics.inputs import (
    Bools,
    Counts,
    Floats,
    Ints,
    Outcomes,
    Weights,
    check_confidence,
    check_positive,
    check_scores,
    check_trials,
    finite_array,
    nonnegative_array,
    weighted_counts,
)
from bayes_at_n.scoring.numerics.results import (
    Clusters,
    normal_summary,
    observed_means,
    posterior_moments,
    result,
    sample_sigma,
)

_SPREAD = 2.0  # of models' differences, in sigmas: simulated, 1 says too little and 4 too much
_ANGLES, _ANGLE_WEIGHTS = np.polynomial.legendre.leggauss(40)  # of tau, on (-1, 1)


class Comparison(NamedTuple):
    """The difference of two scores, A minus B; floats for one pair, arrays (...) for stacks."""

    difference: Any  # mu_a - mu_b, above 0 where A scores higher
    sigma: Any  # standard deviation of the difference
    z: Any  # |difference| / sigma; 0 where the difference is 0, inf where only sigma is 0
    rho: Any  # Phi(z): the confidence that the better score is the better model's, 1/2 to 1
    probability: Any  # that A beats B: rho where A scores higher, 1 - rho where B does
    lo: Any  # ends of the interval of the difference
    hi: Any


def compare(
    R_a: Outcomes, R_b: Outcomes, w: Weights = None, confidence: float = 0.95
) -> Comparison:
    """Compare two models by their outcomes on the same questions.

    With mu and sigma of :func:`scoring.avg`, the average and the posterior's sigma on its scale::

        z   = |mu_a - mu_b| / sqrt(sigma_a^2 + sigma_b^2)
        rho = Phi(z)

    With the same N for both models these are exactly the z and rho of Bayes@N (equations 19 and 20
    of the paper). With different N the uniform prior of Bayes@N pulls the model with fewer trials
    further towards the middle, and equal models would seem to differ; the averages are not pulled.

    The questions are fixed: more trials raise z, whatever the number of questions. To compare
    scores with a prior run, or by another estimator, pass them to :func:`compare_scores`. The
    interval, difference -/+ the normal quantile (1.96 at 0.95) times sigma, is not cut off.

    R_a and R_b are outcomes as for :func:`scoring.bayes`, with a trial of every question, of the
    same M questions in the same order; numbers of trials may differ, and leading axes are
    broadcast. ``confidence`` lies in (0, 1). Raises ValueError: as :func:`scoring.avg`.

    >>> a = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    >>> b = [[0, 1, 0, 0, 0], [1, 0, 0, 1, 1]]
    >>> c = compare(a, b)
    >>> round(c.difference, 4), round(c.sigma, 4), round(c.z, 4)
    (0.3, 0.2345, 1.2792)
    >>> round(c.probability, 4), round(c.lo, 4), round(c.hi, 4)
    (0.8996, -0.1597, 0.7597)
    """
    counts_a, counts_b, weights = counts_of_both(R_a, R_b, w)
    scores_a, scores_b = avg(Counts(counts_a), weights), avg(Counts(counts_b), weights)
    return compare_scores(*scores_a, *scores_b, confidence)


def compare_scores(
    mu_a: npt.ArrayLike,
    sigma_a: npt.ArrayLike,
    mu_b: npt.ArrayLike,
    sigma_b: npt.ArrayLike,
    confidence: float = 0.95,
) -> Comparison:
    """Compare two scores with independent normal posteriors; formulas in :func:`compare`.

    The posterior means and their standard deviations, at least 0, are of any shapes that broadcast.
    Raises ValueError: others, and numbers that are not finite. Where both sigmas are 0, equal
    scores have z = 0 and probability 1/2, and others z = inf and probability 1 or 0.

    >>> c = compare_scores(0.6, 0.03, 0.7, 0.04)
    >>> round(c.z, 4), round(c.rho, 4), round(c.probability, 4)
    (2.0, 0.9772, 0.0228)
    >>> compare_scores([0.5, 0.5], 0.0, [0.5, 0.25], 0.0).z.tolist()
    [0.0, inf]
    """
    mean_a, mean_b = finite_array(mu_a, "mu_a"), finite_array(mu_b, "mu_b")
    sd_a, sd_b = nonnegative_array(sigma_a, "sigma_a"), nonnegative_array(sigma_b, "sigma_b")
    difference, sigma = np.broadcast_arrays(mean_a - mean_b, np.hypot(sd_a, sd_b))
    z = signed_z(difference, sigma)
    _, _, lo, hi = normal_summary(difference, sigma, confidence)
    sure, above = scipy.special.ndtr(np.abs(z)), scipy.special.ndtr(z)
    columns = (difference, sigma, np.abs(z), sure, above, lo, hi)
    return Comparison(*(result(np.array(column)) for column in columns))


def pairwise_z(mu: npt.ArrayLike, sigma: npt.ArrayLike) -> Floats:
    """Compute z-scores of all pairs of K models, z_ij = (mu_i - mu_j) / hypot(sigma_i, sigma_j).

    Its absolute value is the paper's z, and Phi(z_ij) the probability that model i beats j. mu has
    shape (..., K), sigma, at least 0, one that broadcasts to it, and z (..., K, K), -inf or inf
    where only the sigmas are 0. Raises ValueError: as :func:`compare_scores`.

    >>> pairwise_z([0.7, 0.6, 0.6], [0.04, 0.03, 0.0]).round(4).tolist()
    [[0.0, 2.0, 2.5], [-2.0, 0.0, 0.0], [-2.5, 0.0, 0.0]]
    """
    mean, sd = check_scores(mu, sigma)
    return signed_z(
        mean[..., :, None] - mean[..., None, :], np.hypot(sd[..., :, None], sd[..., None, :])
    )


def paired_questions(
    R_a: Outcomes,
    R_b: Outcomes,
    w: Weights = None,
    confidence: float = 0.95,
    clusters: Clusters = None,
) -> Comparison:
    """Compare two models when the questions are a sample from a larger pool.

    Both models answered the same questions, so their difference is taken question by question.
    With x_a and y_a the mean weighted outcomes of the two models on question a::

        d_a        = x_a - y_a
        difference = 1/M sum_a d_a
        sigma^2    = max( sum_a (d_a - difference)^2 / (M - 1) / M,  that of :func:`compare` )

    The first is the clustered standard error of the difference: it holds the noise of the trials
    and the choice of questions, and shrinks with M, hardly with N; with ``clusters`` it is that of
    :func:`scoring.question_stderr`. A claim about more questions is never surer than the one about
    these, hence the larger of the two. That sigma is known from G gaps only (M, or of as many
    clusters), Student's t with G - 1 degrees of freedom says: of it is the interval. For gaps that
    are lopsided (one question in five goes far the other way) it is too short at few questions.

    Models often differ little on all questions, so that a t taken as it is says too much: of pairs
    of which it says .75 and .92, in simulation .67 and .81 were so. Therefore rho and probability
    are those of a true difference from a normal of its own about 0, of spread tau, given the z of
    the same tail as t; then .75 and .93 came true (docs/calibration.md)::

        difference / sigma ~ N(delta, 1),  delta ~ N(0, tau^2),  tau half-Cauchy(2)

    Raises ValueError: fewer than two questions or clusters. All else: :func:`compare`. Source:
    Miller, arXiv 2411.00640, paired differences with questions as clusters; Gelman (2006) for the
    prior of tau.

    >>> a = [[0, 1, 1, 0, 1] * 4, [1, 1, 0, 1, 1] * 4, [1, 1, 1, 1, 1] * 4]
    >>> b = [[0, 1, 0, 0, 0] * 4, [1, 0, 0, 1, 1] * 4, [1, 0, 0, 0, 0] * 4]
    >>> c = paired_questions(a, b)
    >>> round(c.difference, 4), round(c.sigma, 4), round(c.z, 4)
    (0.4667, 0.1764, 2.6458)
    >>> round(c.probability, 4), round(compare_scores(c.z, 1, 0, 0).probability, 4)  # a normal's
    (0.8494, 0.9959)
    """
    counts_a, counts_b, weights = counts_of_both(R_a, R_b, w)
    for counts in (counts_a, counts_b):
        check_trials(counts.sum(axis=-1), 1, "a comparison over questions")
    gaps = observed_means(counts_a, weights) - observed_means(counts_b, weights)
    of_trials = np.hypot(avg(Counts(counts_a), weights)[1], avg(Counts(counts_b), weights)[1])
    return paired_gaps(gaps, of_trials, confidence, clusters)


def paired_gaps(
    gaps: Floats, fixed: Floats, confidence: float = 0.95, clusters: Clusters = None
) -> Comparison:
    """Compare as :func:`paired_questions`, given gaps (..., M), and the sigma of their mean."""
    sampled, count = sample_sigma(gaps, clusters)
    difference, sigma = gaps.mean(axis=-1), np.maximum(sampled, fixed)
    z = signed_z(difference, sigma)
    reach = -scipy.special.stdtrit(count - 1, (1 - check_confidence(confidence)) / 2) * sigma
    rho = _drawn_together(-scipy.special.ndtri(scipy.special.stdtr(count - 1, -np.abs(z))))
    chances = rho, np.where(z < 0, 1 - rho, rho)
    ends = difference - reach, difference + reach
    return Comparison(*map(result, (difference, sigma, np.abs(z), *chances, *ends)))


def _drawn_together(z: Floats) -> Floats:
    """Compute the chance that delta of :func:`paired_questions` is above 0, given z of 0 or more.

    Given tau it is N(k z, k) with k = tau^2 / (1 + tau^2), of which the chance is Phi(z sqrt(k)).
    """
    tau = _SPREAD * np.tan((1 + _ANGLES) * np.pi / 4)  # the prior is uniform in the angle
    kept, at = tau**2 / (1 + tau**2), np.minimum(z, 37.0)[..., None]
    weight = _ANGLE_WEIGHTS * np.sqrt(1 - kept) * np.exp(-(at**2) * (1 - kept) / 2)
    chances = scipy.special.ndtr(at * np.sqrt(kept))
    return np.asarray((weight * chances).sum(axis=-1) / weight.sum(axis=-1))


def signed_z(difference: Floats, sigma: Floats) -> Floats:
    """Return difference / sigma; 0 where the difference is 0, and -/+ inf where only sigma is."""
    # The limit as sigma goes to 0, not 0/0: no uncertainty and no difference is a tie.
    z = np.where(difference == 0, 0.0, np.copysign(np.inf, difference))
    with np.errstate(over="ignore"):
        np.divide(difference, sigma, out=z, where=(sigma > 0) & (difference != 0))
    return z


def counts_of_both(R_a: Outcomes, R_b: Outcomes, w: Weights) -> tuple[Ints, Ints, Floats]:
    """Return the counts of two models on the same questions, and the weights."""
    counts_a, weights = weighted_counts(R_a, w)
    counts_b, _ = weighted_counts(R_b, w)
    if counts_a.shape[-2] != counts_b.shape[-2]:
        raise ValueError(
            f"R_a has {counts_a.shape[-2]} questions, but R_b has {counts_b.shape[-2]}: "
            "pass outcomes of the same questions in the same order"
        )
    return counts_a, counts_b, weights


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
    difference of the true scores, N / T the pull of the uniform prior on it (T = N + C + 1), and
    E sigma^2 the variance that Bayes@N is expected to report, given the pilot. ``trials`` takes for
    d the difference of the pilot's averages; ``fewest`` and ``most`` take the ends of its interval
    (:func:`scoring.compare`, at the same confidence) furthest from 0 and nearest to 0. Where that
    holds 0 ``most`` is inf: no number of trials is known to be enough.

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
    """Return E sigma^2 as a function of N (float64, broadcast against the leading axes).

    Over the posterior of pi_a under the uniform prior and over the outcomes of N new trials, scored
    without the pilot. With K = C + 1 categories, T = N + K, weights shifted so that they add up to
    0, S = sum_k w_k^2, q_a the posterior mean of sum_k pi_ak w_k^2, and W_a that of the variance of
    one outcome, sum_k pi_ak w_k^2 - (w . pi_a)^2::

        sum_a ( W_a N^2 + (S + K q_a - W_a) N + K S ) / (M^2 T^2 (T + 1))

    Source: follows from Hariri et al., arXiv 2510.04265, equation 15, sections 2.5 and 2.7.1.
    """
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
