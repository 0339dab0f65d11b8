"""How good label probabilities are: proper scores, calibration error, separation, diagrams.

Every function takes probabilities (n, 3) of the labels A, B, C and the true labels 0, 1, 2 of
shape (n,), and refuses n = 0. With p_iy the probability of label y for attempt i and t_i the truth:

    negative log-likelihood   -1/n sum_i log p_i,t_i                   (nats, 0 is best)
    Brier score               1/n sum_i sum_y (p_iy - [y = t_i])^2     (0 best, 2 worst)
    expected calibration      sum_b n_b/n |observed_b - predicted_b|   (top label, equal bins)
    AUROC                     P(p_A of a correct attempt > p_A of another) + 1/2 P(equal)

Log-likelihood and Brier score are proper: only the true probabilities minimise them. Calibration
error is not (base rates for everybody have none), and AUROC looks at order only, so a temperature
hardly moves it. Read them together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from verifiers.judge._labels import (
    LABELS,
    LOWEST,
    bool_array,
    check_length,
    check_whole,
    label_array,
    number_array,
    probability_rows,
)

BINS = 15
"""As many bins as in Guo et al. 2017."""


class Reliability(NamedTuple):
    """A reliability diagram: bin b holds predictions above edges[b] and up to edges[b + 1].

    Attributes:
        edges: float64, shape (bins + 1,), from 0, which is in the first bin, to 1.
        predicted: mean prediction in a bin, masked float64, shape (bins,); an empty bin is masked.
        observed: share of hits in a bin, the same.
        counts: predictions in a bin, int64, shape (bins,).
    """

    edges: npt.NDArray[np.float64]
    predicted: np.ma.MaskedArray[Any, np.dtype[np.float64]]
    observed: np.ma.MaskedArray[Any, np.dtype[np.float64]]
    counts: npt.NDArray[np.int64]


def nll(prob: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Mean negative log-likelihood, in nats.

    A true label of probability 0 counts 708, the loss of the smallest normal float64, so that the
    mean stays a number.

    Args:
        prob: probabilities, shape (n, 3).
        labels: true labels, shape (n,).

    Returns:
        The mean, at least 0; log 3 = 1.0986 for one third everywhere.

    Raises:
        ValueError: a wrong shape, rows that are no distributions, labels other than 0, 1, 2.

    Source: Good 1952, "Rational Decisions" (the logarithmic score).

    >>> round(nll([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [0, 0]), 4)
    1.0397
    """
    p = probability_rows(prob, "prob")
    truth = label_array(labels, "labels", len(p))
    own = p[np.arange(len(p)), truth]
    return float(-np.log(np.clip(own, np.exp(LOWEST), 1.0)).mean())


def brier(prob: npt.ArrayLike, labels: npt.ArrayLike) -> float:
    """Brier score of several classes, from 0 to 2; twice the usual one where there are two.

    Args:
        prob: as for :func:`nll`.
        labels: as for :func:`nll`.

    Returns:
        The mean; 2/3 for one third everywhere.

    Raises:
        ValueError: as for :func:`nll`.

    Source: Brier 1950, "Verification of forecasts expressed in terms of probability".

    >>> brier([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], [0, 0])
    1.1875
    """
    p = probability_rows(prob, "prob")
    truth = label_array(labels, "labels", len(p))
    return float(((p - np.eye(len(LABELS))[truth]) ** 2).sum(axis=1).mean())


def reliability(prob: npt.ArrayLike, hit: npt.ArrayLike, bins: int = BINS) -> Reliability:
    """Predictions against what happened, in bins of equal width.

    Args:
        prob: predicted probability of an event, shape (n,); n = 0 gives empty bins.
        hit: whether it happened, bool, shape (n,).
        bins: number of bins.

    Returns:
        A :class:`Reliability`.

    Raises:
        ValueError: a wrong shape, a probability outside 0..1, fewer than one bin.

    Source: Guo et al. 2017, arXiv 1706.04599, section 2.

    >>> diagram = reliability([0.1, 0.2, 0.9, 1.0], [False, True, True, True], bins=2)
    >>> diagram.predicted.round(3).tolist(), diagram.observed.tolist(), diagram.counts.tolist()
    ([0.15, 0.95], [0.5, 1.0], [2, 2])
    """
    p = number_array(prob, "prob").astype(np.float64)
    check_length(p, "prob", None)
    bad = ~((p >= 0) & (p <= 1.001))  # float32 may exceed 1 by a little
    if bad.any():
        raise ValueError(f"prob holds {p[bad][0]}: pass probabilities")
    happened = bool_array(hit, "hit", len(p))
    edges = np.linspace(0.0, 1.0, check_whole(bins, "bins", 1) + 1)
    place = np.digitize(p, edges[1:-1], right=True)
    count = np.bincount(place, minlength=bins)
    size = np.ma.MaskedArray(count, mask=count == 0)  # type: ignore[no-untyped-call]
    return Reliability(
        edges,
        np.bincount(place, weights=p, minlength=bins) / size,
        np.bincount(place, weights=happened, minlength=bins) / size,
        count.astype(np.int64),
    )


def ece(prob: npt.ArrayLike, labels: npt.ArrayLike, bins: int = BINS) -> float:
    """Expected calibration error of the largest probability, from 0 to 1.

    Of equal probabilities the first label counts as the largest. With few attempts in a bin the
    error is biased upwards: a perfectly calibrated verifier does not get 0.

    Args:
        prob: as for :func:`nll`.
        labels: as for :func:`nll`.
        bins: number of bins of equal width from 0 to 1.

    Returns:
        The mean distance of confidence and accuracy, weighted by attempts in a bin.

    Raises:
        ValueError: as for :func:`nll`; fewer than one bin.

    Source: Guo et al. 2017, arXiv 1706.04599, equation 3; Naeini et al. 2015.

    >>> round(ece([[0.8, 0.1, 0.1]] * 4 + [[0.3, 0.6, 0.1]], [0, 0, 0, 1, 1]), 4)
    0.12
    """
    p = probability_rows(prob, "prob")
    truth = label_array(labels, "labels", len(p))
    return calibration_error(reliability(p.max(axis=1), p.argmax(axis=1) == truth, bins))


def auroc(prob: npt.ArrayLike, labels: npt.ArrayLike) -> float | None:
    """How well P(A) tells correct attempts (label A) from all others.

    The Mann-Whitney statistic from mid-ranks, so ties count one half.

    Args:
        prob: as for :func:`nll`.
        labels: as for :func:`nll`.

    Returns:
        From 0 to 1, 0.5 for chance; ``None`` if all attempts are correct, or none.

    Raises:
        ValueError: as for :func:`nll`.

    Source: Hanley and McNeil 1982, "The meaning and use of the area under a ROC curve".

    >>> auroc([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.4, 0.0, 0.6]], [0, 0, 2])
    0.75
    """
    p = probability_rows(prob, "prob")
    correct = label_array(labels, "labels", len(p)) == 0
    right = int(correct.sum())
    if right in (0, len(p)):
        return None
    _, place, counts = np.unique(p[:, 0], return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]
    above = float(ranks[correct].sum()) - right * (right + 1) / 2
    return above / (right * (len(p) - right))


def calibration_error(diagram: Reliability) -> float:
    """The mean of |observed - predicted| of a diagram, bins weighted by their counts."""
    gap = np.ma.filled(np.abs(diagram.observed - diagram.predicted), 0.0)
    return float((gap * diagram.counts).sum() / diagram.counts.sum())
