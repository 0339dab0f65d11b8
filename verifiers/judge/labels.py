"""Arrays over the three labels: arguments checked, and a softmax that infinities do not break.

The labels are A (correct), B (incorrect) and C (invalid), always in this order, always on the last
axis. A log-prob of -inf is legal, it is a label that the verifier cannot say; NaN and +inf are not.
"""

from collections.abc import Callable, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LABELS = ("A", "B", "C")
LOWEST = float(np.log(np.finfo(np.float64).tiny))  # -708.4: the loss of a label of probability 0
FAR = -1e4  # an infinite baseline, far below every log-prob and still exact to 1e-12


def number_array(values: Any, name: str) -> npt.NDArray[Any]:
    """Return bools, integers or floats as an array, without masked entries."""
    if np.ma.is_masked(values):
        raise ValueError(f"{name} has masked entries: leave them out")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is not an array of numbers ({error})") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}: pass numbers")
    return array


def refuse(bad: Bools, array: npt.NDArray[Any], name: str, remedy: str) -> None:
    """Raise ValueError with the first bad entry, or row, of an array."""
    if bad.any():
        raise ValueError(f"{name} holds {array[bad][0]}: pass {remedy}")


def log_array(values: npt.ArrayLike, name: str) -> Floats:
    """Return log-probs as float64 of shape (..., 3), finite or -inf."""
    array = number_array(values, name).astype(np.float64)
    if array.ndim == 0 or array.shape[-1] != len(LABELS):
        raise ValueError(f"{name} has shape {array.shape}: the last axis must be A, B, C")
    refuse(np.isnan(array) | (array == np.inf), array, name, "log-probs, finite or -inf")
    return array


def _rows(array: Floats, name: str, least: int = 0) -> Floats:
    if array.ndim != 2 or array.shape[1] != len(LABELS) or len(array) < least:
        raise ValueError(f"{name} has shape {array.shape}: pass one row an attempt, (n, 3)")
    return array


def log_rows(values: npt.ArrayLike, name: str) -> Floats:
    """Return log-probs of shape (n, 3)."""
    return _rows(log_array(values, name), name)


def probability_rows(values: npt.ArrayLike, name: str) -> Floats:
    """Return probabilities as float64 of shape (n, 3), n > 0; a row sums to 1 within 0.001."""
    array = _rows(number_array(values, name).astype(np.float64), name, least=1)
    # The comparisons are written so that NaN fails them.
    sound = ((array >= 0) & (array <= 1.001)).all(axis=1) & (np.abs(array.sum(axis=1) - 1) < 1e-3)
    refuse(~sound, array, name, "probabilities that sum to 1")
    return array


def entries(
    values: npt.ArrayLike, name: str, n: int | None = None, known: Sequence[int] | None = None
) -> npt.NDArray[Any]:
    """Return one number an attempt, shape (n,), each of them one of `known`."""
    array = number_array(values, name)
    if array.ndim != 1 or (n is not None and len(array) != n):
        length = "n" if n is None else n
        raise ValueError(f"{name} has shape {array.shape}: pass one entry an attempt, ({length},)")
    if known is not None:
        refuse(~np.isin(array, known), array, name, " or ".join(map(str, known)))
    return array


def label_array(values: npt.ArrayLike, name: str, n: int) -> Ints:
    """Return label indices 0, 1, 2 for A, B, C as int64 of shape (n,)."""
    return entries(values, name, n, (0, 1, 2)).astype(np.int64)


def bool_array(values: npt.ArrayLike, name: str, n: int | None = None) -> Bools:
    """Return True/False or 0/1 as bool, shape (n,)."""
    return entries(values, name, n, (0, 1)).astype(np.bool_)


def check_number(
    value: Any, name: str, sound: Callable[[Any], bool], remedy: str, kind: type = Real
) -> None:
    """Refuse what is no number of this kind, or not sound."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, kind) or not sound(value):
        raise ValueError(f"{name} is {value!r}: pass {remedy}")


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
    base = log_array(baselines, "baselines")
    try:
        base = np.broadcast_to(base, logprobs.shape)
    except ValueError:
        raise ValueError(
            f"baselines have shape {base.shape}, which does not broadcast to that of logprobs, "
            f"{logprobs.shape}"
        ) from None
    return np.asarray(logprobs - np.maximum(log_softmax(base), FAR))


def picked(logs: Floats, labels: Ints) -> Floats:
    """The log-probability of each attempt's own label, shape (n,), never below LOWEST."""
    return np.asarray(np.maximum(logs[np.arange(len(labels)), labels], LOWEST))
