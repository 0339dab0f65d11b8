"""A share that a grader estimates, set right by a few labels of people."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import check_probabilities, number_array
from bayes_at_n.scoring.numerics.results import normal_quantile


class Corrected(NamedTuple):
    """What :func:`prediction_powered` finds."""

    value: float  # unbiased; may lie outside 0..1
    sigma: float  # of it, over draws of the sample
    low: float
    high: float


def prediction_powered(
    predicted: npt.ArrayLike,
    labels: npt.ArrayLike,
    at: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
    confidence: float = 0.95,
) -> Corrected:
    """Estimate the share of right attempts from a grader's word on all and people's on a sample.

    ``predicted``, shape (n,), is what a grader or verifier says of each attempt, 0 to 1;
    ``labels``, shape (m,), what people say of the attempts ``at``, positions 0..n-1, each once;
    ``weights``, shape (n,), what an attempt counts (1/(M N) each by default; their sum is 1)::

        value = sum_i w_i f_i + n/m sum_{i in sample} w_i (y_i - f_i)

    Whatever the grader's errors, the mean of it over all samples of this size is sum_i w_i y_i, if
    the sample was drawn at random, without regard to what anybody said. The interval is of draws
    of the sample (nothing else is left to chance), with one error of each kind added to those that
    were found, so that a sample without any does not claim that there are none (as Agresti and
    Coull 1998 do for a share). Raises ValueError: no label, a position twice, other numbers.

    Sources: Angelopoulos et al. 2023, arXiv 2301.09633 (with lambda = 1); the difference estimator
    of survey sampling, of which it is a case (Cochran 1977, section 7.2).

    >>> found = prediction_powered([1, 1, 1, 0, 0, 0, 1, 1], labels=[1, 0, 0, 0], at=[0, 1, 3, 4])
    >>> round(found.value, 4), found.low < found.value < found.high
    (0.375, True)
    """
    f, y = check_probabilities(predicted, "predicted"), check_probabilities(labels, "labels")
    place = np.asarray(at)
    if f.ndim != 1 or y.ndim != 1 or place.shape != y.shape or not y.size:
        raise ValueError("pass predictions (n,), and labels (m,) at positions (m,), one at least")
    if place.dtype.kind not in "iu" or len(np.unique(place)) < len(place):
        raise ValueError("at: must be positions, each once")
    if place.min() < 0 or place.max() >= f.size:
        raise ValueError(f"at: must be positions 0..{f.size - 1}")
    w = np.full(f.size, 1 / f.size) if weights is None else number_array(weights, "weights")
    if w.shape != f.shape or not (w >= 0).all() or abs(w.sum() - 1) > 1e-9:
        raise ValueError("weights: must be one for each prediction, with sum 1")
    m, left = y.size, 1 - y.size / f.size
    error = f.size * w[place] * (y - f[place])
    mean, drawn = error.mean(), error.sum() / (m + 2)
    sigma = np.sqrt(left * ((error**2).sum() + 2 - (m + 2) * drawn**2) / (m + 1) / (m + 2))
    base, z = float(w @ f), normal_quantile(confidence)
    middle = base + mean + left * (drawn - mean)
    return Corrected(
        float(base + mean), float(sigma), float(middle - z * sigma), float(middle + z * sigma)
    )
