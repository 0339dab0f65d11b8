"""Arrays over the three labels: arguments checked, and a softmax that infinities do not break.

The labels are A (correct), B (incorrect) and C (invalid), always in this order, always on the last
axis. A log-prob of -inf is legal, it is a label that the verifier cannot say; NaN and +inf are not.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

LABELS = ("A", "B", "C")
LOWEST = float(
    np.log(np.finfo(np.float64).tiny)
)  # -708.4: the loss of a label given no probability
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


def log_array(values: npt.ArrayLike, name: str) -> Floats:
    """Return log-probs as float64 of shape (..., 3), finite or -inf."""
    array = number_array(values, name).astype(np.float64)
    if array.ndim == 0 or array.shape[-1] != len(LABELS):
        raise ValueError(f"{name} has shape {array.shape}: the last axis must be A, B, C")
    bad = np.isnan(array) | (array == np.inf)
    if bad.any():
        raise ValueError(f"{name} holds {array[bad][0]}: pass log-probs, finite or -inf")
    return array


def log_rows(values: npt.ArrayLike, name: str) -> Floats:
    """Return log-probs of shape (n, 3)."""
    array = log_array(values, name)
    if array.ndim != 2:
        raise ValueError(f"{name} has shape {array.shape}: pass one row an attempt, (n, 3)")
    return array


def probability_rows(values: npt.ArrayLike, name: str) -> Floats:
    """Return probabilities as float64 of shape (n, 3), n > 0; a row sums to 1 within 0.001."""
    array = number_array(values, name).astype(np.float64)
    if array.ndim != 2 or array.shape[1] != len(LABELS) or not len(array):
        raise ValueError(f"{name} has shape {array.shape}: pass one row an attempt, (n, 3), n > 0")
    # The comparisons are written so that NaN fails them.
    bad = ~(((array >= 0) & (array <= 1.001)).all(axis=1) & (np.abs(array.sum(axis=1) - 1) < 1e-3))
    if bad.any():
        raise ValueError(f"{name} holds {array[bad][0]}: pass probabilities that sum to 1")
    return array


def label_array(values: npt.ArrayLike, name: str, n: int) -> Ints:
    """Return label indices 0, 1, 2 as int64 of shape (n,)."""
    array = number_array(values, name)
    check_length(array, name, n)
    bad = ~np.isin(array, (0, 1, 2))
    if bad.any():
        raise ValueError(f"{name} holds {array[bad][0]}: pass 0, 1 or 2, for A, B or C")
    return array.astype(np.int64)


def bool_array(values: npt.ArrayLike, name: str, n: int | None = None) -> Bools:
    """Return True/False or 0/1 as bool, shape (n,)."""
    array = number_array(values, name)
    check_length(array, name, n)
    bad = ~np.isin(array, (0, 1))
    if bad.any():
        raise ValueError(f"{name} holds {array[bad][0]}: pass True or False")
    return array.astype(np.bool_)


def check_length(array: npt.NDArray[Any], name: str, n: int | None) -> None:
    """One number an attempt."""
    if array.ndim != 1 or (n is not None and len(array) != n):
        length = "n" if n is None else n
        raise ValueError(f"{name} has shape {array.shape}: pass one entry an attempt, ({length},)")


def check_positive(value: Any, name: str) -> float:
    """Return a positive finite number as float."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < float(value) < np.inf:
        raise ValueError(f"{name} is {value!r}: pass a finite number above 0")
    return float(value)


def check_share(value: Any, name: str) -> float:
    """Return a number from 0 to 1, both included, as float."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= float(value) <= 1:
        raise ValueError(f"{name} is {value!r}: pass a number from 0 to 1")
    return float(value)


def check_whole(value: Any, name: str, least: int) -> int:
    """Return a whole number of at least ``least`` as int."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} is {value!r}: pass a whole number, at least {least}")
    return int(value)


def log_softmax(scores: Floats, temperature: float = 1.0) -> Floats:
    """Log of softmax(scores / temperature) over the last axis.

    A score of -inf gives -inf; a row of nothing else says nothing, so it gives log(1/3) each.
    """
    top = scores.max(axis=-1, keepdims=True)
    with np.errstate(over="ignore"):  # a tiny temperature: -inf is the right answer
        # Centred before the division, so that no inf - inf can arise.
        tempered = (scores - np.where(np.isneginf(top), 0.0, top)) / temperature
    tempered = np.where(np.isneginf(top), 0.0, tempered)
    return np.asarray(tempered - np.log(np.exp(tempered).sum(axis=-1, keepdims=True)))


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
