"""From a verifier's label log-probs to calibrated probabilities.

A verifier reads question, gold answer and response and puts its answer on one token: A (correct),
B (incorrect) or C (invalid). What it says of a response that is no response ("N/A", nothing,
"[MASK]") is its bias for that question. Contextual calibration takes the bias away:

    p(y | x) = softmax((s_y - b_y) / T)

with the label log-probs s, the content-free baseline b and a temperature T. Log-probs serve as
logits, since the two differ by a constant that a softmax does not see.

Sources: Zhao et al. 2021, "Calibrate Before Use", arXiv 2102.09690; Hariri et al., "Don't
Pass@k", arXiv 2510.04265, appendix D. Whether the result *is* calibrated is the question of
`verifiers.judge.quality`.

A log-prob of -inf is a label that the verifier cannot say. It gets probability 0; where all three
are -inf nothing was said, and each label gets 1/3 (`check_verdicts` counts such attempts: their
label mass is 0). A baseline of -inf is taken as the limit of an ever lower one: a label that is
impossible without content and possible with it takes all the probability.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from verifiers.judge._labels import (
    Floats,
    check_positive,
    label_array,
    log_array,
    log_rows,
    log_softmax,
    scores_above,
)
from verifiers.judge.quality import (
    BINS,
    Reliability,
    auroc,
    brier,
    calibration_error,
    ece,
    nll,
    reliability,
)
from verifiers.judge.temperature import Fit, fit_temperature

__all__ = [
    "TEMPERATURE",
    "Fit",
    "Reliability",
    "auroc",
    "baseline",
    "brier",
    "calibrate",
    "direct",
    "ece",
    "fit_temperature",
    "nll",
    "reliability",
    "report",
]

TEMPERATURE = 1.5
"""The fixed temperature of the paper's authors."""


def direct(logprobs: npt.ArrayLike) -> Floats:
    """Probabilities among the three labels alone: softmax of the log-probs, no calibration.

    Args:
        logprobs: log-probs (or logits) of A, B, C at the answer slot, shape (..., 3).

    Returns:
        Probabilities, float64, shape (..., 3).

    Raises:
        ValueError: NaN or +inf, a last axis that is not of length 3.

    >>> import numpy as np
    >>> direct(np.log([0.6, 0.2, 0.0001])).round(4).tolist()
    [0.7499, 0.25, 0.0001]
    """
    return np.asarray(np.exp(log_softmax(log_array(logprobs, "logprobs"))))


def calibrate(
    logprobs: npt.ArrayLike, baselines: npt.ArrayLike, temperature: float = TEMPERATURE
) -> Floats:
    """Contextually calibrated probabilities, softmax((s - b) / T).

    Args:
        logprobs: label log-probs s, shape (..., 3).
        baselines: content-free log-probs b of the attempt's question, as from :func:`baseline`;
            any shape that broadcasts to that of ``logprobs``, such as (3,) or (M, 1, 3) for
            M questions of N trials.
        temperature: T > 0. Above 1 it makes all distributions flatter, below 1 sharper; it never
            changes which label is the largest.

    Returns:
        Probabilities, float64, shape (..., 3).

    Raises:
        ValueError: NaN or +inf, a wrong shape, a temperature that is not positive and finite.

    Source: arXiv 2510.04265, appendix D.

    A verifier that leans towards A even without a response:

    >>> import numpy as np
    >>> calibrate(np.log([0.6, 0.3, 0.1]), np.log([0.8, 0.1, 0.1]), temperature=1).round(4).tolist()
    [0.1579, 0.6316, 0.2105]
    """
    scores = scores_above(log_array(logprobs, "logprobs"), baselines)
    return np.asarray(np.exp(log_softmax(scores, check_positive(temperature, "temperature"))))


def baseline(
    logprobs: npt.ArrayLike, average: Literal["probability", "logit"] = "probability"
) -> Floats:
    """One baseline from the label log-probs of several content-free strings.

    "probability" averages probabilities, as Zhao et al. do, so a string on which the verifier is
    sure of one label cannot push the others without bound. "logit" averages log-probs (a
    geometric mean): each string counts alike for every ratio of two labels, and one string that
    makes a label very unlikely moves it far.

    The three are not normalised before they are averaged. Zhao et al. do not either (their code
    normalises the mean), and it weights a string by its label mass: where the verifier wants to
    say something else than a label, the ratio of three tiny numbers is no evidence of a bias. In
    logits it would only add a constant. Nor is the result normalised: its mass stays to be seen,
    and :func:`calibrate` does not depend on it.

    Args:
        logprobs: log-probs under the full vocabulary, shape (strings, ..., 3).
        average: "probability" or "logit".

    Returns:
        Baselines on the log scale, float64, shape (..., 3).

    Raises:
        ValueError: no string, NaN or +inf, a wrong shape, another word for ``average``.

    Source: arXiv 2102.09690, section 5.

    >>> import numpy as np
    >>> strings = np.log([[0.9, 0.05, 0.05], [0.5, 0.4, 0.1]])
    >>> np.exp(baseline(strings)).round(3).tolist()
    [0.7, 0.225, 0.075]
    >>> np.exp(baseline(strings, average="logit")).round(3).tolist()
    [0.671, 0.141, 0.071]
    """
    array = log_array(logprobs, "logprobs")
    if array.ndim < 2 or not len(array):
        raise ValueError(f"logprobs has shape {array.shape}: pass (strings, ..., 3), 1 at least")
    if average == "logit":
        return np.asarray(array.mean(axis=0))
    if average != "probability":
        raise ValueError(f'average is {average!r}: pass "probability" or "logit"')
    return np.asarray(np.logaddexp.reduce(array, axis=0) - np.log(len(array)))


def report(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike,
    labels: npt.ArrayLike,
    temperature: float = TEMPERATURE,
    bins: int = BINS,
) -> dict[str, Any]:
    """All measures before (softmax over the labels) and after calibration, ready for JSON.

    Where T was fitted, pass the attempts that were held out.

    Args:
        logprobs: label log-probs, shape (n, 3), n > 0.
        baselines: as for :func:`calibrate`.
        labels: true labels, shape (n,).
        temperature: T of the calibrated ones.
        bins: number of bins.

    Returns:
        attempts, temperature, and under before and after: accuracy, nll, brier, ece, auroc (or
        None) and reliability, with one diagram for the largest probability (top) and one for
        P(A) against "is correct" (a), each with predicted, observed (None in empty bins) and
        counts.

    Raises:
        ValueError: as for the functions that it calls.

    >>> import numpy as np
    >>> table = report(np.log([[0.6, 0.3, 0.1], [0.8, 0.1, 0.1]]), np.log([0.8, 0.1, 0.1]), [1, 0])
    >>> table["before"]["accuracy"], table["after"]["accuracy"]
    (0.5, 1.0)
    """
    rows = log_rows(logprobs, "logprobs")
    truth = label_array(labels, "labels", len(rows))
    both = {"before": direct(rows), "after": calibrate(rows, baselines, temperature)}
    table: dict[str, Any] = {"attempts": len(rows), "temperature": float(temperature)}
    for name, prob in both.items():
        said = prob.argmax(axis=1)
        top = reliability(prob.max(axis=1), said == truth, bins)
        table[name] = {
            "accuracy": float((said == truth).mean()),
            "nll": nll(prob, truth),
            "brier": brier(prob, truth),
            "ece": calibration_error(top),
            "auroc": auroc(prob, truth),
            "reliability": {
                "top": _lists(top),
                "a": _lists(reliability(prob[:, 0], truth == 0, bins)),
            },
        }
    return table


def _lists(diagram: Reliability) -> dict[str, list[Any]]:
    """A diagram as lists; None where a bin is empty."""
    return {
        "predicted": diagram.predicted.tolist(),
        "observed": diagram.observed.tolist(),
        "counts": diagram.counts.tolist(),
    }
