"""Scores of multiple choice by likelihood: which option has the largest log-prob, and how sure."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy.special

from bayes_at_n.scoring.metrics import By
from bayes_at_n.scoring.numerics.checks import check_confidence
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.numerics.results import Clusters, Summary, result, sample_sigma


class OptionScores(NamedTuple):
    """What each of M questions scores, (M,)."""

    chosen: npt.NDArray[np.int64]  # index of the option with the largest value, the first of equal
    probability: Floats  # of the right option: the softmax of the values
    brier: Floats  # sum over options of (probability - 1 if right, else 0)^2, from 0 to 2
    log_score: Floats  # -ln probability of the right option


def option_values(
    logprob: npt.ArrayLike,
    tokens: npt.ArrayLike,
    size: npt.ArrayLike,
    unconditional: npt.ArrayLike,
    by: By = "sum",
) -> Floats:
    """Compute the values by which options are compared, in nats; arrays of one shape.

    Args:
        logprob: the sum of the log-probs of an option's tokens after the prompt.
        tokens: the number of its tokens.
        size: the number of its UTF-8 bytes.
        unconditional: the same sum without the prompt.
        by: sum; token or byte, the sum per token or byte; unconditional, the sum minus that without
            the prompt, the pointwise mutual information of prompt and option.

    Source: Brown et al., arXiv 2005.14165, section 2.4 (per token, and the ratio of probabilities);
    per byte as `acc_bytes`, and unconditional as `acc_mutual_info`, of lm-evaluation-harness.

    >>> option_values([-4.0, -6.0], [1, 3], [5, 10], [-5.0, -9.0], "token").tolist()
    [-4.0, -2.0]
    """
    total = np.asarray(logprob, dtype=np.float64)
    if by == "unconditional":
        return total - np.asarray(unconditional, dtype=np.float64)
    if by == "sum":
        return total
    return total / np.asarray(tokens if by == "token" else size, dtype=np.float64)


def option_scores(values: npt.ArrayLike, right: npt.ArrayLike) -> OptionScores:
    """Score options by their values (M, K), -inf where a question has fewer than K options.

    `right` (M,) is the index of the right option. Sources: Brier, "Verification of forecasts
    expressed in terms of probability", 1950; Good, "Rational decisions", 1952 (log score).

    >>> chosen, probability, brier, log_score = option_scores(np.log([[3, 1], [1, 3]]), [0, 0])
    >>> chosen.tolist(), probability.round(2).tolist(), brier.round(3).tolist()
    ([0, 1], [0.75, 0.25], [0.125, 1.125])
    >>> log_score.round(3).tolist()  # -ln 0.75 and -ln 0.25
    [0.288, 1.386]
    """
    values, right = np.asarray(values, dtype=np.float64), np.asarray(right)
    rows, logs = np.arange(len(right)), scipy.special.log_softmax(values, axis=1)
    missed = np.exp(logs)
    probability = missed[rows, right].copy()
    missed[rows, right] -= 1
    brier = (missed**2).sum(axis=1)
    return OptionScores(values.argmax(axis=1), probability, brier, -logs[rows, right])


def question_mean(values: Floats, confidence: float = 0.95, clusters: Clusters = None) -> Summary:
    """Average a measure over M questions, (..., M), with Student's interval for similar questions.

    Questions that were drawn together have a common label in `clusters`, (M,). sigma is that of
    :func:`scoring.numerics.results.sample_sigma`, which raises ValueError for one question.

    >>> [round(float(x), 3) for x in question_mean(np.array([0.2, 0.4, 0.9]))]
    [0.5, 0.208, -0.396, 1.396]
    """
    sigma, count = sample_sigma(values, clusters)
    reach = -scipy.special.stdtrit(count - 1, (1 - check_confidence(confidence)) / 2) * sigma
    mean = values.mean(axis=-1)
    return Summary(*map(result, (mean, sigma, mean - reach, mean + reach)))
