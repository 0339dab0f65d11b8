"""Checking what users pass: numbers and arrays of them, apart from outcomes; never silently cast.

Masks need care: NumPy drops a mask that it does not see, as in a list of masked arrays, and what
lies under it would count.
"""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

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
