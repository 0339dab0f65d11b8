"""Boundaries of planned looks: how large a z-score must be at each, so that all err rarely.

Lan and DeMets, "Discrete sequential boundaries for clinical trials", 1983, with the spending
function that resembles O'Brien and Fleming's; the chance of crossing by the recursive integration
of Armitage, McPherson and Rowe, 1969.
"""

import itertools
from typing import NamedTuple

import numpy as np
import scipy

from bayes_at_n.scoring.numerics.checks import check_whole
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.sequential.decisions import Needed

STEPS = 801  # of the grid on which the density of a z-score that has not crossed is kept
LOWEST = -8.0


class Limits(NamedTuple):
    """The z-scores that claims need at one look."""

    better: float
    tied: float
    differences: float  # of intervals of all of them together
    own: float  # of one model's own interval


def spent(error: float, share: Floats) -> Floats:
    """Compute the error to spend by when this share of all rounds is done, one-sided."""
    found: Floats = 2 * scipy.special.ndtr(scipy.special.ndtri(error / 2) / np.sqrt(share))
    return found


def boundaries(error: float, looks: tuple[int, ...]) -> Floats:
    """Compute one-sided z-scores at each look, crossed at all with a chance of ``error``.

    ``looks`` are rounds, ascending; the last one spends what is left.

    >>> boundaries(0.025, (1, 2, 3, 4, 5)).round(3).tolist()
    [4.877, 3.357, 2.68, 2.29, 2.031]
    """
    times = np.array(looks) / looks[-1]
    spend = np.diff(spent(error, times), prepend=0.0)
    found = np.empty(times.size)
    # Of the score times the root of its time, a Brownian motion, among paths that have not crossed.
    grid = weights = density = np.empty(0)
    for i, time in enumerate(times):
        if i == 0:
            found[0] = -scipy.special.ndtri(spend[0])
        else:
            gap = np.sqrt(time - times[i - 1])
            low, high = 0.0, 12.0 * np.sqrt(time)
            for _ in range(60):
                middle = (low + high) / 2
                crossing = (weights * density * scipy.special.ndtr((grid - middle) / gap)).sum()
                low, high = (middle, high) if crossing > spend[i] else (low, middle)
            found[i] = low / np.sqrt(time)
        top = found[i] * np.sqrt(time)
        old, old_weights, old_density = grid, weights, density
        grid = np.linspace(LOWEST * np.sqrt(time), top, STEPS)
        weights = np.full(STEPS, grid[1] - grid[0]) * (2 + 2 * (np.arange(STEPS) % 2)) / 3
        weights[[0, -1]] /= 2  # Simpson's rule
        if i == 0:
            density = np.exp(-(grid**2) / (2 * time)) / np.sqrt(2 * np.pi * time)
        else:
            step = (grid[:, None] - old) / gap
            kernel = np.exp(-(step**2) / 2) / (np.sqrt(2 * np.pi) * gap)
            density = kernel @ (old_weights * old_density)
    return found


def limits(needed: Needed, error: float, looks: tuple[int, ...]) -> dict[int, Limits]:
    """Compute the limits of every look for a family of claims, each with an error of 1 / needed."""
    levels = (*(1 / wealth for wealth in needed), error / 2)
    found = {level: boundaries(level, looks).tolist() for level in set(levels)}
    columns = [found[level] for level in levels]
    return {look: Limits(*row) for look, *row in zip(looks, *columns, strict=True)}


def planned(method: str, looks: tuple[int, ...]) -> tuple[int, ...] | None:
    """Check the looks of method "looks"; none of method "anytime".

    Raises ValueError: another method; looks that do not ascend.
    """
    if method not in ("anytime", "looks"):
        raise ValueError(f"method is {method!r}: pass 'anytime' or 'looks'")
    if method == "anytime":
        return None
    rounds = tuple(check_whole(look, "looks", least=1) for look in looks)
    if not rounds or any(b <= a for a, b in itertools.pairwise(rounds)):
        raise ValueError(f"looks is {looks!r}: pass rounds, each above the one before")
    return rounds
