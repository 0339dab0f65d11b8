"""What a model says of itself: its stated confidence, and whether it attempts an answer."""

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.metrics.bayes import avg_ci
from bayes_at_n.scoring.numerics.checks import UNIT, check_confidence, check_probabilities
from bayes_at_n.scoring.numerics.inputs import Counts, Outcomes, weighted_counts

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
