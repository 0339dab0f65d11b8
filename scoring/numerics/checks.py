"""Checking the arguments that are not arrays."""

from collections.abc import Callable
from numbers import Integral, Real
from typing import Any

import numpy as np

Bounds = tuple[float, float] | None
UNIT = (0.0, 1.0)

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
