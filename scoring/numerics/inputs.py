"""Checking what users pass: numbers, arrays, outcomes, counts, weights; never silently cast.

Every estimator of this package first reduces what it is given to counts per question and
category, shape ``(..., M, C + 1)``: leading axes are free (models, datasets, replicates), and a
question's number of trials is the sum of its counts. Masks need care: NumPy drops a mask that it
does not see, as in a list of masked arrays, and what lies under it would count.
"""

from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bounds = tuple[float, float] | None
UNIT = (0.0, 1.0)

# Above every difference of scores with the largest weights; differences of these are finite.
LARGEST_SCORE = 1e151

# More attempts than anyone samples: what depends on k has k numbers in memory.
MOST_ATTEMPTS = 1_000_000


def check_k(k: int) -> int:
    """Return k as a Python int, from 1 to a million."""
    if check_whole(k, "k", least=1) > MOST_ATTEMPTS:
        raise ValueError(f"k is {k}: pass at most {MOST_ATTEMPTS:,}")
    return int(k)


def check_whole(value: Any, name: str, least: int) -> int:
    """Return a whole number of at least ``least`` as int."""
    if isinstance(value, bool | np.bool_) or not isinstance(value, Integral) or value < least:
        raise ValueError(f"{name} is {value!r}: pass a whole number, at least {least}")
    return int(value)


def check_positive(value: float, name: str, least: float = 0.0, most: float = np.inf) -> float:
    """Return a positive finite number as float, strictly between the limits."""
    limits = f"above {least:g}" + (f" and below {most:g}" if most < np.inf else "")
    return _number(value, name, lambda x: least < x < most, f"a finite number {limits}")


def check_finite(value: float, name: str) -> float:
    """Return a finite number as float."""
    return _number(value, name, np.isfinite, "a finite number")


def check_share(value: float, name: str) -> float:
    """Return a number from 0 to 1, both included, as float."""
    return _number(value, name, lambda x: 0 <= x <= 1, "a number from 0 to 1")


def check_bounds(bounds: Any) -> None:
    """Raise unless bounds is ``None``, or two numbers of which the first is not above."""
    pair = isinstance(bounds, tuple | list) and len(bounds) == 2
    numbers = pair and all(isinstance(end, Real) for end in bounds)
    if bounds is not None and not (numbers and bounds[0] <= bounds[1]):  # also for NaN
        raise ValueError(f"bounds is {bounds!r}: pass (lowest, highest), or None for no limits")


def check_confidence(confidence: float) -> float:
    """Return a confidence as float, strictly between 0 and 1."""
    advice = "a number between 0 and 1, as in 0.95"
    return _number(confidence, "confidence", lambda x: 0 < x < 1, advice)


def _number(value: Any, name: str, allowed: Callable[[Any], Any], advice: str) -> float:
    if isinstance(value, bool) or not isinstance(value, Real) or not allowed(value):
        raise ValueError(f"{name} is {value!r}: pass {advice}")
    return float(value)


def holds_mask(values: Any) -> bool:
    """Check whether a masked array, or number, lies anywhere in lists and tuples."""
    if isinstance(values, list | tuple):
        return any(holds_mask(v) for v in values if isinstance(v, list | tuple | np.ma.MaskedArray))
    return isinstance(values, np.ma.MaskedArray) and bool(np.ma.is_masked(values))


def with_masks(values: Any) -> Any:
    """Return a masked array of lists and tuples that hold masked arrays, at any depth."""
    if isinstance(values, list | tuple) and holds_mask(values):
        return np.ma.stack([with_masks(v) for v in values])
    return np.ma.asanyarray(values)  # type: ignore[no-untyped-call]


def number_array(values: npt.ArrayLike, name: str) -> npt.NDArray[Any]:
    """Return real numbers (bool, integer or float) as an array of their own dtype."""
    # Not before masks are looked for: np.asarray drops them and shows what lies under them.
    if holds_mask(values):
        raise ValueError(f"{name} has masked entries: leave them out")
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ValueError(f"{name} is not an array of numbers ({error})") from None
    if array.dtype.kind not in "biuf":
        raise ValueError(f"{name} has dtype {array.dtype}: pass real numbers")
    return array


def bounded_array(values: npt.ArrayLike, name: str, low: float, high: float, advice: str) -> Floats:
    """Return the values as float64, all from low to high."""
    array = number_array(values, name).astype(np.float64)
    bad = ~((array >= low) & (array <= high))
    if bad.any():
        raise ValueError(f"{name} holds {array[bad][0]}: {advice}")
    return array


def finite_array(values: npt.ArrayLike, name: str) -> Floats:
    """Return the values as float64, all finite."""
    advice = f"pass finite numbers up to {LARGEST_SCORE:g} in size"
    return bounded_array(values, name, -LARGEST_SCORE, LARGEST_SCORE, advice)


def nonnegative_array(values: npt.ArrayLike, name: str) -> Floats:
    """Return the values as float64, all finite and at least 0."""
    advice = f"pass numbers of at least 0, up to {LARGEST_SCORE:g}"
    return bounded_array(values, name, 0.0, LARGEST_SCORE, advice)


def check_models(scores: npt.ArrayLike, name: str) -> Floats:
    """Return the scores of K models, float64 of shape (..., K)."""
    array = finite_array(scores, name)
    if array.ndim == 0 or array.shape[-1] == 0:
        raise ValueError(f"{name} has shape {array.shape}: pass one number per model, (..., K)")
    return array


def check_scores(mu: npt.ArrayLike, sigma: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the means and sigmas of K models, both float64 of shape (..., K)."""
    mean, sd = check_models(mu, "mu"), nonnegative_array(sigma, "sigma")
    return mean, np.broadcast_to(sd, mean.shape)


def check_probabilities(p: npt.ArrayLike, name: str) -> Floats:
    """Return probabilities as float64, shape (..., M), each from 0 to 1."""
    array = bounded_array(p, name, 0.0, 1.0, "probabilities lie between 0 and 1")
    if array.ndim == 0 or array.size == 0:
        raise ValueError(f"{name} has shape {array.shape}: pass one probability per question")
    return array


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


def stream(seed: int, *key: int) -> np.random.Generator:
    """Make the random numbers of one purpose, which ``key`` names, under one seed.

    Streams with different keys are independent: a piece of a simulation has the same numbers in
    whatever order or thread the pieces run.

    >>> a, b = (stream(5, 0).random(), stream(5, 1).random())
    >>> a == stream(5, 0).random(), a == b
    (True, False)
    """
    entropy = check_whole(seed, "seed", least=0)
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=key))
