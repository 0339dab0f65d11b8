"""Checking outcome matrices and weights, and turning outcomes into counts.

Every estimator of this package first reduces the outcomes to counts per question and category
(shape ``(M, C + 1)``); all mathematics is done on counts, so that other ways to come by counts
need no new formulas.
"""

from __future__ import annotations

from numbers import Integral, Real
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

BINARY_WEIGHTS: Floats = np.array([0.0, 1.0])

# Squares of larger weights come near to the largest float64, and sigma would overflow.
LARGEST_WEIGHT = 1e100


def check_weights(w: npt.ArrayLike | None) -> Floats:
    """Return the weights as a float64 vector of length C + 1; ``None`` means (0, 1)."""
    if w is None:
        return BINARY_WEIGHTS
    try:
        weights = np.asarray(w)
    except ValueError as error:
        raise ValueError(f"w is not a vector of numbers ({error})") from None
    if weights.ndim != 1 or weights.size == 0:
        raise ValueError(
            f"w has shape {weights.shape}: pass a vector with one weight per category 0..C"
        )
    if weights.dtype.kind not in "biuf":
        raise ValueError(f"w has dtype {weights.dtype}: pass real numbers, one per category 0..C")
    weights = weights.astype(np.float64)
    bad = np.flatnonzero(~(np.abs(weights) <= LARGEST_WEIGHT))
    if bad.size:
        raise ValueError(
            f"w[{bad[0]}] is {weights[bad[0]]}: "
            f"weights must be finite and between -{LARGEST_WEIGHT:g} and {LARGEST_WEIGHT:g}"
        )
    return weights


def outcome_counts(
    R: npt.ArrayLike,
    categories: int,
    *,
    remedy: str,
    name: str = "R",
    rows: int = 1,
    empty_ok: bool = False,
) -> Counts:
    """Count the outcomes of every category for every question.

    Args:
        R: outcomes, shape (M, N), or (N,) for one question; bool, integer or integer-valued
            float; entries that are masked (``numpy.ma``) are missing and are not counted.
        categories: C + 1; every outcome must be in 0..C.
        remedy: what to do about an outcome above C, for messages.
        name: the argument's name, for messages.
        rows: the number of questions that a vector is cut into.
        empty_ok: whether zero trials (N = 0) are allowed.

    Returns:
        Counts, int64, shape (M, C + 1).

    Raises:
        ValueError: not a rectangular matrix of outcomes 0..C.

    >>> import numpy as np
    >>> R = np.ma.masked_equal([[1, 1, 0], [0, -1, 1]], -1)
    >>> outcome_counts(R, 2, remedy="").tolist()
    [[1, 2], [1, 1]]
    """
    data, missing = _as_matrix(R, name, rows, empty_ok)
    _check_outcomes(data, missing, categories, name, remedy)
    questions = data.shape[0]
    row = np.broadcast_to(np.arange(questions)[:, None], data.shape)
    present = ~missing
    cell = row[present] * categories + data[present].astype(np.int64)
    counts = np.bincount(cell, minlength=questions * categories)
    return counts.astype(np.int64).reshape(questions, categories)


def _as_matrix(
    R: npt.ArrayLike, name: str, rows: int, empty_ok: bool
) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
    """Return the data and the mask of missing trials, both (M, N)."""
    try:
        # Not np.asarray, which would drop masks and count what lies under them.
        masked = np.ma.asanyarray(R)  # type: ignore[no-untyped-call]
    except (TypeError, ValueError):
        raise ValueError(
            f"{name} is not a rectangular matrix: "
            "pass (questions, trials), and mask the trials that are missing (numpy.ma)"
        ) from None
    data = np.asarray(masked.data)
    missing = np.broadcast_to(np.asarray(masked.mask, dtype=bool), data.shape)
    if data.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has dtype {data.dtype}: "
            "pass whole numbers 0..C, and mask the trials that are missing (numpy.ma)"
        )
    if data.ndim == 1 and data.size % rows:
        raise ValueError(
            f"{name} is a vector of {data.size} outcomes for {rows} questions: "
            "pass a (questions, trials) matrix"
        )
    if data.ndim == 1:
        data, missing = data.reshape(rows, -1), missing.reshape(rows, -1)
    if data.ndim != 2:
        raise ValueError(
            f"{name} has {data.ndim} dimensions: pass a (questions, trials) matrix, "
            "or a vector of trials for one question"
        )
    if data.shape[0] == 0 or (data.shape[1] == 0 and not empty_ok):
        raise ValueError(
            f"{name} is empty, shape {data.shape}: pass at least one question and one trial"
        )
    return data, missing


def _check_outcomes(
    data: npt.NDArray[Any],
    missing: npt.NDArray[np.bool_],
    categories: int,
    name: str,
    remedy: str,
) -> None:
    """Raise on the first outcome that is not one of the categories 0..C."""
    bad = ~((data >= 0) & (data < categories)) & ~missing
    if data.dtype.kind == "f":
        with np.errstate(invalid="ignore"):
            bad |= (data != np.trunc(data)) & ~missing
    if not bad.any():
        return
    question, trial = np.argwhere(bad)[0]
    value = data[question, trial].item()
    if not np.isfinite(value):
        advice = "mark missing trials with np.ma.masked_invalid"
    elif value != int(value):
        advice = "outcomes are whole numbers 0..C; graded scores belong in the weights w"
    elif value < 0:
        advice = "outcomes are 0..C; mark missing trials with np.ma.masked_less(R, 0)"
    else:
        advice = remedy
    raise ValueError(f"{name}[{question}, {trial}] (question, trial from 0) is {value}: {advice}")


def weighted_counts(R: npt.ArrayLike, w: npt.ArrayLike | None) -> tuple[Counts, Floats]:
    """Return the counts (M, C + 1) of R and the weights (C + 1,)."""
    weights = check_weights(w)
    return outcome_counts(R, weights.size, remedy=category_advice(w, weights)), weights


def category_advice(w: npt.ArrayLike | None, weights: Floats) -> str:
    """Say what to do about an outcome that has no weight."""
    if w is None:
        return "without w only 0 and 1 are allowed; pass w, one weight per category 0..C"
    return f"w has {weights.size} weights, for 0..{weights.size - 1}; pass one per category 0..C"


def check_trials(trials: Counts, least: int, what: str) -> None:
    """Raise if a question has fewer than ``least`` trials; ``trials`` has shape (M,)."""
    short = np.flatnonzero(trials < least)
    if short.size:
        raise ValueError(
            f"question {short[0]} (counted from 0) has {trials[short[0]]} trials, but {what} needs "
            f"at least {least} of every question, and {short.size} of {trials.size} have too few: "
            "run the missing trials or leave those questions out"
        )


def check_k(k: int) -> int:
    """Return k as a Python int, at least 1."""
    if isinstance(k, bool) or not isinstance(k, Integral) or k < 1:
        raise ValueError(f"k is {k!r}: pass a whole number, at least 1")
    return int(k)


def check_positive(value: float, name: str) -> float:
    """Return a finite positive number as float."""
    if isinstance(value, bool) or not isinstance(value, Real) or not 0 < value < np.inf:
        raise ValueError(f"{name} is {value!r}: pass a finite number above 0")
    return float(value)


def normal_interval(
    mu: float, sigma: float, confidence: float, bounds: tuple[float, float] | None
) -> tuple[float, float]:
    """Return mu - z sigma and mu + z sigma, each moved into ``bounds`` (if any).

    z is the two-sided normal quantile of ``confidence``: 1.96 at 0.95.

    >>> lo, hi = normal_interval(0.9, 0.1, 0.95, (0.0, 1.0))
    >>> round(lo, 4), hi
    (0.704, 1.0)
    """
    if not isinstance(confidence, Real) or not 0 < confidence < 1:
        raise ValueError(f"confidence is {confidence!r}: pass a number between 0 and 1, as in 0.95")
    # The lower tail, since 1/2 + confidence/2 would round to 1 for a confidence close to 1.
    z = -NormalDist().inv_cdf((1 - float(confidence)) / 2)
    lo, hi = mu - z * sigma, mu + z * sigma
    if bounds is not None:
        if len(bounds) != 2 or not bounds[0] <= bounds[1]:
            raise ValueError(f"bounds is {bounds!r}: pass (lowest, highest), or None for no limits")
        lo, hi = (min(max(end, bounds[0]), bounds[1]) for end in (lo, hi))
    return float(lo), float(hi)
