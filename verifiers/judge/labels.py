"""Arrays over the three labels, and a softmax that infinities do not break.

The labels are A (correct), B (incorrect) and C (invalid), always in this order, always on the last
axis. A log-prob of -inf is legal, it is a label that the verifier cannot say; NaN and +inf are not.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LABELS = ("A", "B", "C")
LOWEST = float(np.log(np.finfo(np.float64).tiny))  # -708.4: the loss of a label of probability 0
FAR = -1e4  # an infinite baseline, far below every log-prob and still exact to 1e-12


def log_array(values: npt.ArrayLike, name: str) -> Floats:
    """Log-probs as float64 of shape (..., 3), finite or -inf; a damaged table may hold others.

    Raises ValueError: other numbers, or another last axis.
    """
    array = np.asarray(values, dtype=np.float64)
    if array.ndim == 0 or array.shape[-1] != len(LABELS):
        raise ValueError(f"{name} has shape {array.shape}: the last axis must be A, B, C")
    if (bad := np.isnan(array) | (array == np.inf)).any():
        raise ValueError(f"{name} holds {array[bad][0]}: pass log-probs, finite or -inf")
    return array


def log_softmax(scores: Floats, temperature: float = 1.0) -> Floats:
    """Log of softmax(scores / temperature) over the last axis.

    A score of -inf gives -inf; a row of nothing else says nothing, so it gives log(1/3) each.
    """
    silent = np.isneginf(scores).all(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):  # a tiny temperature: -inf is the right answer
        tempered = np.where(silent, 0.0, centred(scores) / temperature)
    return np.asarray(tempered - np.log(np.exp(tempered).sum(axis=-1, keepdims=True)))


def centred(scores: Floats) -> Floats:
    """Scores minus the largest of their row, so that no later inf - inf can arise."""
    top = scores.max(axis=-1, keepdims=True)
    return np.asarray(scores - np.where(np.isneginf(top), 0.0, top))


def scores_above(logprobs: Floats, baselines: npt.ArrayLike) -> Floats:
    """Log-probs minus baselines, which are broadcast to the shape of the log-probs."""
    base = log_softmax(log_array(baselines, "baselines"))
    return np.asarray(logprobs - np.maximum(base, FAR))


def picked(logs: Floats, labels: Ints) -> Floats:
    """The log-probability of each attempt's own label, shape (n,), never below LOWEST."""
    return np.asarray(np.maximum(logs[np.arange(len(labels)), labels], LOWEST))
