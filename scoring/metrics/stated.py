"""What a model says of itself: its stated confidence, and whether it attempts an answer."""

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import check_probabilities

BIN = 100  # attempts of a bin, as HLE has them


def confidence_error(confidence: npt.ArrayLike, correct: npt.ArrayLike, size: int = BIN) -> float:
    """Compute the root mean square calibration error of stated confidences, as HLE reports it.

    Attempts in the order of ``confidence``, (n,), 0 to 1, fall into n // size bins of equal counts
    (the last is larger); of each bin the difference of mean confidence and mean ``correct``, (n,),
    is squared. HLE's script forgets the last, surest bin, which is here. Chance alone makes some
    0.5 / sqrt(size). Raises ValueError: no attempts, other numbers. Source: Phan et al. 2025, arXiv
    2501.14249, section 4; Hendrycks et al. 2019, arXiv 1812.04606, for the bins.

    >>> round(confidence_error([0.9, 0.9, 0.5, 0.5], [1, 0, 1, 0], size=2), 4)
    0.2828
    """
    said, right = (
        check_probabilities(confidence, "confidence"),
        check_probabilities(correct, "correct"),
    )
    if said.shape != right.shape or said.ndim != 1:
        raise ValueError("pass a confidence and an outcome of each attempt, (n,)")
    order = np.argsort(said, kind="stable")
    bins = np.minimum(np.arange(said.size) // size, max(said.size // size - 1, 0))
    gap = np.bincount(bins, (said - right)[order])
    return float(np.sqrt((gap**2 / np.bincount(bins)).sum() / said.size))


def attempted_f(correct: float, not_attempted: float) -> float:
    """Compute SimpleQA's F-score from the shares of attempts that are correct and not attempted.

    The harmonic mean of the share correct and the share correct of those attempted: 2 c / (2 - u).
    It rewards a guess that is right with a chance above F / 2, else silence. Source: Wei et al.
    2024, arXiv 2411.04368, section 3.

    >>> round(attempted_f(0.4, 0.2), 4)  # of 0.4 and 0.5
    0.4444
    """
    return 2 * correct / (2 - not_attempted)
