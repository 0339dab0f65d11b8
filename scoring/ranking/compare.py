"""Is one model better than another? The paper's answer, and the one for questions as a sample.

The posteriors of two models on the same questions are independent and close to normal, and so is
the difference of their scores (Hariri et al., arXiv 2510.04265, section 2.5): :func:`compare`,
:func:`compare_scores` and :func:`pairwise_z`. Whether it would hold for other questions of the same
kind is another matter (Miller, arXiv 2411.00640): :func:`paired_questions`.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.metrics.bayes import avg
from bayes_at_n.scoring.numerics.checks import (
    check_confidence,
    check_scores,
    finite_array,
    nonnegative_array,
)
from bayes_at_n.scoring.numerics.inputs import (
    Counts,
    Floats,
    Ints,
    Outcomes,
    Weights,
    check_trials,
    weighted_counts,
)
from bayes_at_n.scoring.numerics.results import (
    Clusters,
    normal_summary,
    observed_means,
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
