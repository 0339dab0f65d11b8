"""Checking outcomes, counts, weights and priors; all mathematics is done on counts.

Every estimator of this package first reduces what it is given to counts per question and
category, shape ``(..., M, C + 1)``: leading axes are free (models, datasets, replicates), and a
question's number of trials is the sum of its counts.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import Floats as Floats
from bayes_at_n.scoring.numerics.checks import bounded_array, number_array, with_masks

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

BINARY_WEIGHTS: Floats = np.array([0.0, 1.0])

# The square of twice this is still a float64, so that no variance overflows.
LARGEST_WEIGHT = 1e150


@dataclass(frozen=True, eq=False)
class Counts:
    """How often each category was the outcome of each question, in place of the outcomes.

    Whole numbers, shape (..., M, C + 1), or (C + 1,) for one question, whose totals may differ; as
    a prior (R0) they may be fractional.

    >>> from bayes_at_n.scoring import Counts, bayes, bayes_ci
    >>> bayes(Counts([[2, 3], [1, 4]])) == bayes([[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]])
    True
    """

    values: npt.ArrayLike


class Points(np.ma.MaskedArray[Any, np.dtype[Any]]):
    """Outcomes 0..C that carry their weights, as do slices and selections of them.

    Where a function gets no ``w``, it takes these. Where only right and wrong count (Pass@k and its
    kind), the outcome with the largest weight is right. Raises ValueError: as `check_weights`.

    >>> from bayes_at_n.scoring import Points, avg, pass_at_k
    >>> R = Points([[0, 3, 7], [7, 7, 6]], [n / 7 for n in range(8)])
    >>> round(avg(R)[0], 4), round(avg(R[1:])[0], 4), round(pass_at_k(R, 2), 4)
    (0.7143, 0.9524, 0.8333)
    """

    def __new__(cls, outcomes: Any, weights: npt.ArrayLike) -> "Points":
        made: Points = np.ma.asanyarray(outcomes).view(cls)  # type: ignore[no-untyped-call]
        carried: Any = made._optinfo  # type: ignore[attr-defined]  # NumPy copies it to views
        carried["weights"] = check_weights(weights)
        return made

    @property
    def weights(self) -> Floats:
        return self._optinfo["weights"]  # type: ignore[attr-defined, no-any-return]


Outcomes: TypeAlias = npt.ArrayLike | Counts
Weights: TypeAlias = npt.ArrayLike | None


def check_weights(w: Weights) -> Floats:
    """Return the weights as a float64 vector of length C + 1; ``None`` means (0, 1)."""
    if w is None:
        return BINARY_WEIGHTS
    advice = f"pass finite weights, up to {LARGEST_WEIGHT:g} in size"
    weights = bounded_array(w, "w", -LARGEST_WEIGHT, LARGEST_WEIGHT, advice)
    if weights.ndim != 1 or weights.size == 0:
        raise ValueError(f"w has shape {weights.shape}: pass one weight per category 0..C")
    if 0 < np.ptp(weights) < 1 / LARGEST_WEIGHT:
        raise ValueError(f"w differs by {np.ptp(weights)}: too little for variances, rescale w")
    return weights


def weighted_counts(R: Outcomes, w: Weights) -> tuple[Ints, Floats]:
    """Return the counts (..., M, C + 1) of R and the weights (C + 1,)."""
    w = R.weights if w is None and isinstance(R, Points) else w
    weights = check_weights(w)
    return outcome_counts(R, weights.size, remedy=_category_advice(w, weights)), weights


def counts_and_prior(R: Outcomes, w: Weights, R0: Outcomes | None) -> tuple[Ints, Floats, Any]:
    """Return the counts, the weights, and the counts of a prior run of the same questions, or 0."""
    counts, weights = weighted_counts(R, w)
    if R0 is None:
        return counts, weights, 0
    questions, remedy = counts.shape[-2], _category_advice(w, weights)
    prior = outcome_counts(R0, weights.size, remedy=remedy, name="R0", rows=questions, prior=True)
    if prior.shape[-2] != questions:
        raise ValueError(
            f"R0 has {prior.shape[-2]} questions, but R has {questions}: "
            "pass prior outcomes of the same questions in the same order"
        )
    np.broadcast_to(prior, counts.shape)  # one prior run for all, or one for each
    return counts, weights, prior


def binary_counts(R: Outcomes, what: str) -> tuple[Ints, Ints]:
    """Return how many trials of each question were correct, and how many there were: (..., M).

    R holds outcomes 0 and 1, or counts of wrong and right; ``what`` names the estimator.
    """
    R = right(R) if isinstance(R, Points) else R
    counts = outcome_counts(R, 2, remedy=f"{what} takes outcomes 1 (correct) and 0 (not)")
    return counts[..., 1], counts.sum(axis=-1)


def right(R: Any) -> Any:
    """Return 1 for outcomes of :class:`Points` with the largest weight, else 0; others as is."""
    if not isinstance(R, Points):
        return R
    full = np.isin(R.data, np.flatnonzero(R.weights == R.weights.max()))
    return np.ma.array(full.astype(np.int8), mask=R.mask)  # type: ignore[no-untyped-call]


def values(R: Any) -> Any:
    """Return the weights of outcomes of :class:`Points`, float64, masked as they are; others as is.

    >>> values(Points([[0, 2]], [0.0, 0.5, 1.0])).tolist(), values([[0, 1]])
    ([[0.0, 1.0]], [[0, 1]])
    """
    if not isinstance(R, Points):
        return R
    known = np.where(np.ma.getmaskarray(R), 0, R.data).astype(np.int64)  # type: ignore[no-untyped-call]
    return np.ma.array(R.weights[known], mask=R.mask)  # type: ignore[no-untyped-call]


def _category_advice(w: Weights, weights: Floats) -> str:
    """Say what to do about an outcome that has no weight."""
    if w is None:
        return "without w only 0 and 1 are allowed"
    return f"w has {weights.size} weights, for 0..{weights.size - 1}"


def outcome_counts(
    R: Outcomes, categories: int, remedy: str, name: str = "R", rows: int = 1, prior: bool = False
) -> Any:
    """Count the outcomes 0..C of every question: int64, shape (..., M, C + 1).

    R is what :func:`scoring.bayes` takes, and ``categories`` C + 1. A vector is cut into ``rows``
    questions. A prior may have no trials, and fractional counts, which stay float64. ``name`` of
    the argument and ``remedy``, what to do about an outcome above C, are for messages.

    >>> R = np.ma.masked_equal([[1, 1, 0], [0, -1, 1]], -1)
    >>> outcome_counts(R, 2, "").tolist()
    [[1, 2], [1, 1]]
    """
    if isinstance(R, Counts):
        return _given_counts(R, categories, remedy, name, fractions=prior)
    data, missing = _as_array(R, name, rows, empty_ok=prior)
    _check_outcomes(data, missing, categories, name, remedy)
    if categories == 2 and missing is None:  # one pass for the commonest case
        correct = np.count_nonzero(data, axis=-1)
        return np.stack([data.shape[-1] - correct, correct], axis=-1)
    hits = (data == k if missing is None else (data == k) & ~missing for k in range(categories))
    return np.stack([np.count_nonzero(hit, axis=-1) for hit in hits], axis=-1)


def _given_counts(R: Counts, categories: int, remedy: str, name: str, fractions: bool) -> Any:
    """Check counts that were given in place of outcomes."""
    values = number_array(R.values, f"{name}: Counts")
    if values.dtype.kind == "f":
        values = values.astype(np.float64)
    if values.ndim == 1:
        values = values[None, :]
    if values.ndim < 2 or values.shape[-1] != categories or values.size == 0:
        raise ValueError(
            f"{name}: Counts has shape {values.shape}; "
            f"pass (..., questions, {categories}), one count per category ({remedy})"
        )
    bad = ~((values >= 0) & (values < 2**53))
    if not fractions:
        bad |= values != np.trunc(values)
    if bad.any():
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        kind = "numbers" if fractions else "whole numbers"
        raise ValueError(
            f"{name}: Counts{list(at)} is {values[at].item()}; counts are {kind}, 0 or more"
        )
    return values.astype(np.float64 if fractions else np.int64)


def _as_array(
    R: npt.ArrayLike, name: str, rows: int, empty_ok: bool
) -> tuple[npt.NDArray[Any], Bools | None]:
    """Return the data (..., M, N) and the mask of missing trials, ``None`` if there are none."""
    missing = None
    if type(R) is np.ndarray:
        data = R
    else:
        try:
            # Not np.asarray, which would drop masks and count what lies under them.
            masked = with_masks(R)
        except (TypeError, ValueError):
            raise ValueError(
                f"{name} is not a rectangular matrix: "
                "pass (questions, trials), and mask the trials that are missing (numpy.ma)"
            ) from None
        data = np.asarray(masked.data)
        if masked.mask is not np.ma.nomask and masked.mask.any():
            missing = np.broadcast_to(np.asarray(masked.mask, dtype=bool), data.shape)
    if data.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} has dtype {data.dtype}: "
            "pass whole numbers 0..C, and mask the trials that are missing (numpy.ma)"
        )
    if data.ndim == 1 and data.size % rows == 0:
        data = data.reshape(rows, -1)
        missing = None if missing is None else missing.reshape(rows, -1)
    if data.ndim < 2 or 0 in data.shape[:-1] or (data.shape[-1] == 0 and not empty_ok):
        raise ValueError(
            f"{name} has shape {data.shape}: pass a (questions, trials) matrix of at least one "
            "question and one trial, a stack of them, or a vector of trials for one question"
        )
    return data, missing


def _check_outcomes(
    data: npt.NDArray[Any], missing: Bools | None, categories: int, name: str, remedy: str
) -> None:
    """Raise on the first outcome that is not one of the categories 0..C."""
    whole = missing is None and data.dtype.kind != "f"
    # One pass for the largest and one for the smallest, where that settles it.
    if data.size == 0 or (whole and data.max() < categories and data.min() >= 0):
        return
    bad = ~((data >= 0) & (data < categories)) | (data != np.trunc(data))
    if missing is not None:
        bad &= ~missing
    if not bad.any():
        return
    at = tuple(int(i) for i in np.argwhere(bad)[0])
    raise ValueError(
        f"{name}{list(at)} (..., question, trial) is {data[at].item()}: pass whole numbers 0..C, "
        f"and mask missing trials (np.ma.masked_less, masked_invalid); {remedy}"
    )


def check_trials(trials: Ints, least: int, what: str) -> None:
    """Raise if a question has fewer than ``least`` trials; ``trials`` has shape (..., M)."""
    short = trials < least
    if short.any():
        at = tuple(np.argwhere(short)[0])
        raise ValueError(
            f"question {', '.join(map(str, at))} (from 0) has {trials[at]} trials, but {what} "
            f"needs at least {least} of every question, and {int(short.sum())} of {trials.size} "
            f"have too few: run the missing trials, or leave those questions out"
        )
