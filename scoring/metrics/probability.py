"""Scores of probabilities: options by likelihood, stated confidence; and of abstention."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.metrics import By
from bayes_at_n.scoring.metrics.bayes import avg_ci
from bayes_at_n.scoring.numerics.inputs import (
    UNIT,
    Counts,
    Floats,
    Outcomes,
    check_confidence,
    check_probabilities,
    weighted_counts,
)
from bayes_at_n.scoring.numerics.results import Clusters, Summary, sample_sigma, student_summary


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
    return student_summary(values.mean(axis=-1), sigma, count - 1, confidence)


BIN = 100  # attempts of a bin, as HLE has them


def confidence_error(
    confidence: npt.ArrayLike,
    correct: npt.ArrayLike,
    size: int | None = None,
    questions: npt.ArrayLike | None = None,
    level: float = 0.95,
) -> tuple[float, float, float]:
    """Compute the root mean square calibration error of stated confidences, as HLE reports it.

    Attempts in the order of ``confidence``, (n,), 0 to 1, fall into n // size bins of equal counts
    (the last is larger), by default of 100 as for HLE, or of those of ten ``questions``, (n,), each
    attempt having its own by default. Of bin b the difference g_b of mean confidence and mean
    ``correct``, (n,), is squared: Q = sum_b n_b/n g_b^2, and the error is its root. HLE's script
    forgets the last, surest bin. Returns also the ends of an interval on similar questions without
    what chance adds, noise_b = n_b/n Var(g_b), clustered by question; it may lie below the error.
    Q / s is taken as noncentral chi-square with sum_b noise_b / s degrees of freedom, exact where
    all noise_b are s; s is sum noise^2 / sum noise, or Var(Q) / (4 Q) where that is more. Raises
    ValueError: no attempts. Source: Phan et al. 2025, arXiv 2501.14249; 1812.04606 for the bins.

    >>> [round(x, 3) for x in confidence_error([0.9, 0.9, 0.5, 0.5], [1, 0, 1, 0], size=2)]
    [0.283, 0.0, 1.0]
    """
    said = check_probabilities(confidence, "confidence")
    right = check_probabilities(correct, "correct")
    if said.shape != right.shape or said.ndim != 1:
        raise ValueError("pass a confidence and an outcome of each attempt, (n,)")
    n, tail = said.size, (1 - check_confidence(level)) / 2
    _, row = np.unique(np.arange(n) if questions is None else questions, return_inverse=True)
    size, bins = size or max(BIN, 10 * n // (int(row.max()) + 1)), np.empty(n, np.int64)
    bins[np.argsort(said, kind="stable")] = np.minimum(np.arange(n) // size, max(n // size - 1, 0))
    d, many = said - right, np.bincount(bins)
    g = (np.bincount(bins, d) / many)[bins]
    Q = float(g @ g) / n
    drawn, cell = np.unique(bins * n + row, return_inverse=True)  # attempts of a question in a bin
    of = np.bincount(drawn // n)
    sums = np.bincount(drawn // n, np.bincount(cell, d - g) ** 2) * of / np.maximum(of - 1, 1)
    alike = np.bincount(bins, (d - g) ** 2).clip(min=1)  # at least one attempt is otherwise
    noise = np.maximum(sums, alike) / many / n
    total, spread = float(noise.sum()), np.bincount(row, 2 * g * (d - g) + g**2 - Q) / n
    s = max(float(noise @ noise) / total, float(spread @ spread) / max(4 * Q, 1e-12))
    ends = scipy.special.chndtrinc(np.array([Q, max(Q, total)]) / s, total / s, [1 - tail, tail])
    low, high = np.sqrt(np.clip(s * ends, 0, 1)).tolist()
    return Q**0.5, low, high


def attempted_f(outcomes: Outcomes, confidence: float = 0.95) -> tuple[float, float, float]:
    """Compute SimpleQA's F-score of outcomes 0 wrong, 1 correct, 2 not attempted, with an interval.

    The harmonic mean of the share correct and the share correct of those attempted rewards a guess
    that is right with a chance above F / 2, else silence: it is the x that is the mean score where
    silence counts x / 2. So the ends of the interval on these questions are the x that are ends of
    that mean's (:func:`scoring.avg_ci`). Source: Wei et al. 2024, arXiv 2411.04368, section 3.

    >>> [round(x, 3) for x in attempted_f([[1, 1, 2, 0, 0], [1, 1, 2, 0, 0]])]  # 0.4 and 0.5
    [0.444, 0.051, 0.802]
    """
    counts = Counts(weighted_counts(outcomes, [0, 1, 0])[0])

    def end(position: int) -> float:
        x = 0.5
        for _ in range(30):  # a step is half as large as the one before, or smaller
            x = avg_ci(counts, [0, 1, x / 2], confidence, UNIT)[position]
        return x

    return end(0), end(2), end(3)
