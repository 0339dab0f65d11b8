"""How good label probabilities are: proper scores, calibration error, separation, diagrams.

Every function takes probabilities ``prob`` (n, 3) of the labels A, B, C and the true ``labels`` 0,
1, 2 of shape (n,), n > 0. With p_iy the probability of label y for attempt i and t_i the truth:

    negative log-likelihood   -1/n sum_i log p_i,t_i                   (nats, 0 is best)
    Brier score               1/n sum_i sum_y (p_iy - [y = t_i])^2     (0 best, 2 worst)
    expected calibration      sum_b n_b/n |observed_b - predicted_b|   (top label, equal bins)
    AUROC                     P(p_A of a correct attempt > p_A of another) + 1/2 P(equal)

Log-likelihood and Brier score are proper: only the true probabilities minimize them. Calibration
error is not, and AUROC looks at order only, so a temperature hardly moves it. Read them together.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.verifiers.judge.calibration import TEMPERATURE, calibrate, direct
from bayes_at_n.verifiers.judge.labels import LABELS, LOWEST, Ints

BINS = 15  # as in Guo et al. 2017
Labels = Sequence[int] | Ints
Masked = np.ma.MaskedArray[Any, np.dtype[np.float64]]


class Reliability(NamedTuple):
    """A reliability diagram: bin b of B holds predictions above b / B and up to (b + 1) / B."""

    predicted: Masked  # mean prediction in each bin; an empty bin is masked
    observed: Masked  # share of hits in each bin, the same
    counts: npt.NDArray[np.int64]  # predictions in each bin


def nll(prob: npt.ArrayLike, labels: Labels) -> float:
    """Mean negative log-likelihood, in nats: at least 0, and 1.0986 for one third everywhere.

    A true label of probability 0 counts 708, so that the mean stays a number. Source: Good 1952,
    "Rational Decisions" (the logarithmic score).

    >>> round(nll([[0.5, 0.25, 0.25], [0.25, 0.5, 0.25]], [0, 0]), 4)
    1.0397
    """
    own = np.asarray(prob)[np.arange(len(labels)), labels]
    return float(-np.log(np.clip(own, np.exp(LOWEST), 1.0)).mean())


def brier(prob: npt.ArrayLike, labels: Labels) -> float:
    """Brier score, from 0 to 2 (2/3 for one third everywhere); of two classes twice the usual one.

    Source: Brier 1950, "Verification of forecasts expressed in terms of probability".

    >>> brier([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]], [0, 0])
    1.1875
    """
    misses = np.subtract(prob, np.eye(len(LABELS))[labels])
    return float((misses**2).sum(axis=1).mean())


def reliability(prob: npt.ArrayLike, hit: npt.ArrayLike, bins: int = BINS) -> Reliability:
    """Predictions against what happened, in bins of equal width.

    `prob`, shape (n,), is the predicted probability of an event (n = 0 gives empty bins), and
    `hit`, bool, shape (n,), whether it happened. Source: Guo et al. 2017, arXiv 1706.04599, section
    2.

    >>> diagram = reliability([0.1, 0.2, 0.9, 1.0], [False, True, True, True], bins=2)
    >>> diagram.predicted.round(3).tolist(), diagram.observed.tolist(), diagram.counts.tolist()
    ([0.15, 0.95], [0.5, 1.0], [2, 2])
    """
    p = np.asarray(prob, dtype=np.float64)
    place = np.digitize(p, np.linspace(0.0, 1.0, bins + 1)[1:-1], right=True)
    count = np.bincount(place, minlength=bins)
    size = np.ma.MaskedArray(count, mask=count == 0)  # type: ignore[no-untyped-call]
    return Reliability(
        np.bincount(place, weights=p, minlength=bins) / size,
        np.bincount(place, weights=hit, minlength=bins) / size,
        count.astype(np.int64),
    )


def auroc(prob: npt.ArrayLike, labels: Labels) -> float | None:
    """How well P(A) tells correct attempts (label A) from all others, 0.5 for chance.

    Ties count one half; ``None`` if all attempts are correct, or none. Source: Hanley and McNeil
    1982, "The meaning and use of the area under a ROC curve".

    >>> auroc([[0.9, 0.1, 0.0], [0.4, 0.6, 0.0], [0.4, 0.0, 0.6]], [0, 0, 2])
    0.75
    """
    p, correct = np.asarray(prob)[:, 0], np.asarray(labels) == 0
    right = int(correct.sum())
    if right in (0, len(p)):
        return None
    _, place, counts = np.unique(p, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # mid-ranks
    above = float(ranks[correct].sum()) - right * (right + 1) / 2
    return above / (right * (len(p) - right))


def calibration_error(diagram: Reliability) -> float:
    """Expected calibration error of a diagram, 0 to 1: bins weighted by their counts.

    Few attempts in a bin bias it upwards: a perfectly calibrated verifier does not get 0. Source:
    Guo et al. 2017, arXiv 1706.04599, equation 3; Naeini et al. 2015.

    >>> round(calibration_error(reliability([0.8, 0.8, 0.8, 0.8, 0.6], [1, 1, 1, 0, 1])), 4)
    0.12
    """
    gap = np.ma.filled(np.abs(diagram.observed - diagram.predicted), 0.0)
    return float((gap * diagram.counts).sum() / diagram.counts.sum())


def report(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike,
    labels: Labels,
    temperature: float = TEMPERATURE,
) -> dict[str, Any]:
    """All measures before (softmax over the labels) and after calibration, ready for JSON.

    Label log-probs (n, 3), baselines and temperature are as for :func:`.calibration.calibrate`.
    Returns attempts, temperature, and under before and after: accuracy, nll, brier, ece, auroc (or
    None), and reliability: of P(A) against "is correct" (a) predicted, observed (None in empty
    bins), counts.

    >>> import numpy as np
    >>> table = report(np.log([[0.6, 0.3, 0.1], [0.8, 0.1, 0.1]]), np.log([0.8, 0.1, 0.1]), [1, 0])
    >>> table["before"]["accuracy"], table["after"]["accuracy"]
    (0.5, 1.0)
    """
    truth = np.asarray(labels)
    kinds = {"before": direct(logprobs), "after": calibrate(logprobs, baselines, temperature)}
    table: dict[str, Any] = {"attempts": len(truth), "temperature": float(temperature)}
    for kind, prob in kinds.items():
        hit = prob.argmax(axis=1) == truth
        top = reliability(prob.max(axis=1), hit)
        correct = reliability(prob[:, 0], truth == 0)
        table[kind] = {
            "accuracy": float(hit.mean()),
            "nll": nll(prob, truth),
            "brier": brier(prob, truth),
            "ece": calibration_error(top),
            "auroc": auroc(prob, truth),
            "reliability": {"a": {k: of.tolist() for k, of in correct._asdict().items()}},
        }
    return table
