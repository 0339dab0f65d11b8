"""Bayes@N, avg@N, the standard error over questions, and an earlier run as a prior.

The paper is Hariri et al., "Don't Pass@k: A Bayesian Framework for Large Language Model
Evaluation", arXiv 2510.04265.

The outcomes of question a (of M) are N_a draws from C + 1 categories with unknown
probabilities pi_a. The metric is the mean over questions of w . pi_a (equation 1). Under a uniform
Dirichlet prior the posterior of pi_a is a Dirichlet with parameters
nu_ak = 1 + (prior counts) + (counts), whose sum is T_a = 1 + C + D_a + N_a: the paper prints one T,
here questions may have different numbers of trials.
"""

from typing import Any

import numpy as np

from bayes_at_n.scoring.numerics.inputs import (
    Bounds,
    Counts,
    Floats,
    Outcomes,
    Weights,
    check_positive,
    check_trials,
    check_whole,
    counts_and_prior,
    outcome_counts,
    weighted_counts,
)
from bayes_at_n.scoring.numerics.results import (
    Clusters,
    Summary,
    bayes_from_counts,
    mean_and_sigma,
    normal_summary,
    observed_means,
    posterior_moments,
    result,
    sample_sigma,
)


def bayes(R: Outcomes, w: Weights = None, R0: Outcomes | None = None) -> tuple[Any, Any]:
    """Compute Bayes@N: posterior mean and standard deviation of the weighted metric.

    With nu_ak and T_a as in the module's docstring, and m_a = sum_k nu_ak w_k / T_a::

        mu      = 1/M   sum_a m_a
        sigma^2 = 1/M^2 sum_a ( sum_k nu_ak/T_a (w_k - m_a)^2 ) / (T_a + 1)

    (Algorithm 1 and equation 15.) Questions are fixed and trials are random: sigma shrinks with N,
    whatever M is. See :func:`question_stderr` for questions as a sample.

    Args:
        R: outcomes 0..C, shape (M, N), (N,) for one question or (..., M, N) for a stack of
            models or datasets; bool, integer or integer-valued float. Entries masked by
            ``numpy.ma`` are missing trials and count as nothing; a question without any has its
            prior as posterior. Or :class:`scoring.Counts`, shape (..., M, C + 1).
        w: weights, shape (C + 1,); ``None`` means outcomes 0 and 1 with weights (0, 1).
        R0: outcomes of a prior run, shape (M, D), rows matching R, or one for each matrix of a
            stack, (..., M, D); may be masked. A vector is cut into M rows. Or prior counts,
            :class:`scoring.Counts`, which may be fractional (see :func:`scoring.down_weight`).
            ``None`` is the uniform prior (D = 0).

    Returns mu, sigma: floats for one matrix, arrays of shape (...) for a stack. Raises ValueError:
    an outcome that is not in 0..C, a wrong shape, weights or priors that do not fit.

    >>> R = [[0, 1, 2, 2, 1], [1, 1, 0, 2, 2]]
    >>> mu, sigma = bayes(R, w=[0.0, 0.5, 1.0])
    >>> round(mu, 6), round(sigma, 6)
    (0.5625, 0.091998)

    One correct answer in one trial, and no trial at all: 2/3 and 1/2, on average 7/12.

    >>> import numpy as np
    >>> round(bayes(np.ma.masked_equal([[1], [-1]], -1))[0], 6)
    0.583333
    """
    mu, sigma = bayes_from_counts(*counts_and_prior(R, w, R0))
    return result(mu), result(sigma)


def bayes_ci(
    R: Outcomes,
    w: Weights = None,
    R0: Outcomes | None = None,
    confidence: float = 0.95,
    bounds: Bounds = None,
) -> Summary:
    """Compute Bayes@N with its credible interval mu -/+ z sigma: value, sigma, low, high.

    The interval is central and uses the normal approximation to the posterior, which suits many
    questions (paper, section 2.5). When nearly all questions are easy, or hard, the uniform prior
    pulls mu by more than its sigma and the interval misses: report :func:`scoring.score_ci`.

    ``confidence`` is the posterior probability of the interval, in (0, 1); both ends are moved into
    ``bounds``, (lowest, highest), if any. Raises ValueError: others, and as :func:`bayes`. All
    else: :func:`bayes`.

    >>> [round(x, 4) for x in bayes_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], bounds=(0.0, 1.0))]
    [0.6429, 0.1185, 0.4107, 0.875]
    """
    return normal_summary(*bayes(R, w, R0), confidence, bounds)


def avg(R: Outcomes, w: Weights = None) -> tuple[Any, Any]:
    """Compute avg@N: the weighted average of the outcomes, with the posterior's sigma on its scale.

    With N_a trials of question a, T_a = 1 + C + N_a and Var_a the posterior variance of
    w . pi_a under the uniform prior::

        a       = 1/M   sum_a ( sum_k n_ak w_k ) / N_a
        sigma^2 = 1/M^2 sum_a (T_a / N_a)^2 Var_a

    With the same N everywhere sigma is (1 + C + N) / N times that of :func:`bayes`, and both rank
    models alike (equations 18 to 20).

    Raises ValueError: a question without trials. All else: :func:`bayes`.

    >>> a, sigma = avg([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    >>> round(a, 6), round(sigma, 6)
    (0.7, 0.165831)
    """
    counts, weights = weighted_counts(R, w)
    trials, (_, variances) = counts.sum(axis=-1), posterior_moments(counts + 1, weights)
    check_trials(trials, 1, "avg@N")
    scale = (trials + weights.size) / trials
    return mean_and_sigma((observed_means(counts, weights), scale**2 * variances))


def avg_ci(
    R: Outcomes, w: Weights = None, confidence: float = 0.95, bounds: Bounds = None
) -> Summary:
    """Compute avg@N with the interval a -/+ z sigma.

    All else: :func:`avg` and :func:`bayes_ci`. Raises ValueError: as they do.

    >>> [round(x, 4) for x in avg_ci([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], bounds=(0.0, 1.0))]
    [0.7, 0.1658, 0.375, 1.0]
    """
    return normal_summary(*avg(R, w), confidence, bounds)


def question_stderr(R: Outcomes, w: Weights = None, clusters: Clusters = None) -> Any:
    """Compute the standard error of avg@N with questions as a sample from a larger pool.

    The standard deviation over questions (M - 1 in the denominator) of each question's mean
    weighted outcome, divided by sqrt(M), which most evaluation harnesses print: how other questions
    of this kind would change the score. It shrinks with M and not with N. Questions that were drawn
    together (of one passage, variants of one, one in several languages) have a common label in
    ``clusters``, (M,), and count as one draw: sums over clusters take the place of questions
    (:func:`scoring.numerics.results.sample_sigma`). Raises ValueError: fewer than two questions or
    clusters, or a question without trials. All else: :func:`bayes`. Source: Miller, "Adding Error
    Bars to Evals", arXiv 2411.00640, sections 2.1 and 2.2.

    >>> R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1], [0, 0, 0, 0, 1], [0, 0, 1, 0, 0]]
    >>> round(question_stderr(R), 4), round(question_stderr(R, clusters="aabb"), 4)
    (0.15, 0.25)
    """
    counts, weights = weighted_counts(R, w)
    check_trials(counts.sum(axis=-1), 1, "the standard error over questions")
    return result(sample_sigma(observed_means(counts, weights), clusters)[0])


def down_weight(R0: Outcomes, strength: float, categories: int = 2) -> Counts:
    """Scale the counts of a prior run, in its proportions, to ``strength`` trials at most.

    The counts n_ak of a question with D_a prior trials become n_ak min(1, D / D_a), where D is
    the strength: a run of an older, quantised or base model is worth less than new trials, by the
    paper's study D = 1 to 4 (``docs/scoring.md``).

    R0 is that of :func:`bayes`, but a vector is one question; one without prior trials keeps the
    uniform prior. ``strength`` is D, above 0, and ``categories`` C + 1. Raises ValueError: others.
    The counts (..., M, C + 1) are to be passed as R0. Source: arXiv 2510.04265, equation 6 and, in
    the version with twenty models, section 2.8.

    >>> prior = down_weight([[1, 1, 1, 1, 1, 1, 0, 0], [0] * 8], strength=4)
    >>> prior.values.tolist()
    [[1.0, 3.0], [4.0, 0.0]]
    >>> round(bayes([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]], R0=prior)[0], 6)
    0.545455
    """
    strength = check_positive(strength, "strength")
    categories = check_whole(categories, "categories", least=1)
    remedy = f"categories is {categories}, for outcomes 0..{categories - 1}"
    counts = outcome_counts(R0, categories, remedy=remedy, name="R0", prior=True)
    trials: Floats = counts.sum(axis=-1, keepdims=True).astype(np.float64)
    return Counts(counts * (strength / np.maximum(trials, strength)))
