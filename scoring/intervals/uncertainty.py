"""Two kinds of uncertainty of a score, side by side: the trials, and the choice of questions.

A score moves when the same questions are answered again, and when other questions of the same kind
are asked. The standard error over questions that most harnesses print holds both, since the
questions' means in it are noisy: the questions' own part is what is left without the trials' part.
"""

from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.scoring.metrics.bayes import avg, question_stderr
from bayes_at_n.scoring.numerics.inputs import (
    Counts,
    Floats,
    Ints,
    Outcomes,
    Weights,
    weighted_counts,
)
from bayes_at_n.scoring.numerics.results import Clusters, observed_means, posterior_moments, result


class Uncertainty(NamedTuple):
    """The standard deviations of one average; floats for one matrix, arrays (...) for stacks."""

    average: Any  # avg@N, the mean over questions of each question's mean outcome
    sigma: Any  # the paper's, on the average's scale, from the posterior: `scoring.avg`
    trials: Any  # standard error if only the trials of these questions are drawn again
    questions: Any  # standard error if only the questions are drawn again, with N endless
    clustered: Any  # standard error over questions as harnesses print it: `question_stderr`
    total: Any  # standard error if questions and trials are drawn again


def uncertainty(R: Outcomes, w: Weights = None, clusters: Clusters = None) -> Uncertainty:
    """Split the uncertainty of avg@N: from the trials, from the questions, and from both.

    With x_a the mean weighted outcome of question a over its N_a trials, and n_ak how often the
    outcome was k::

        average     = 1/M sum_a x_a
        v_a         = sum_k n_ak (w_k - x_a)^2 / (N_a (N_a - 1))         where N_a > 1
        trials^2    = 1/M^2 sum_a v_a
        clustered^2 = 1/M sum_a (x_a - average)^2 / (M - 1)
        questions^2 = max(0, clustered^2 - trials^2)
        total^2     = questions^2 + trials^2  =  max(clustered^2, trials^2)

    v_a is the unbiased estimate of the variance of x_a given the question, and clustered^2 that
    of the variance of the average over both draws, which holds the trials already. Where N_a = 1,
    v_a is the mean of that variance under the posterior with the uniform prior, T_a / N_a times the
    posterior variance of w . pi_a (T_a = 1 + C + N_a): if most questions have one trial, trust
    clustered and do not split it. With ``clusters``, clustered is that of
    :func:`scoring.question_stderr`.

    Raises ValueError: fewer than two questions or clusters, or a question without trials. R and w:
    :func:`scoring.avg`. Source: arXiv 2510.04265, equation 20; Miller, arXiv 2411.00640; analysis
    of variance.

    >>> u = uncertainty([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    >>> round(u.average, 4), round(u.sigma, 4)
    (0.65, 0.109)
    >>> round(u.trials, 4), round(u.questions, 4), round(u.clustered, 4), round(u.total, 4)
    (0.0935, 0.1429, 0.1708, 0.1708)
    """
    counts, weights = weighted_counts(R, w)
    average, sigma = avg(Counts(counts), weights)
    clustered = question_stderr(Counts(counts), weights, clusters)
    within = _variance_of_means(counts, weights)
    trials = np.sqrt(within.sum(axis=-1)) / within.shape[-1]
    questions = np.sqrt(np.maximum(clustered**2 - trials**2, 0.0))
    total = np.maximum(clustered, trials)
    return Uncertainty(*map(result, (average, sigma, trials, questions, clustered, total)))


def _variance_of_means(counts: Ints, weights: Floats) -> Floats:
    """Variance of each question's mean outcome given the question, v_a, shape (..., M)."""
    trials = counts.sum(axis=-1)
    offsets = weights - observed_means(counts, weights)[..., None]
    # Shares, not counts, of squares that may be close to the largest float64.
    spread = (counts / trials[..., None] * offsets**2).sum(axis=-1)
    sampled = spread / np.maximum(trials - 1, 1)
    _, posterior = posterior_moments(counts + 1, weights)
    return np.where(trials > 1, sampled, (trials + weights.size) / trials * posterior)
