"""The temperature that fits labelled attempts best, tried on attempts that it has not seen."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.optimize import minimize_scalar

from verifiers.judge._labels import (
    LABELS,
    LOWEST,
    Bools,
    Floats,
    Ints,
    check_length,
    check_share,
    label_array,
    log_rows,
    log_softmax,
    number_array,
    picked,
    scores_above,
)

LEAST_LABELLED = 10
"""Fewer labelled attempts than these fit nothing."""

TEMPERATURES = (0.05, 20.0)
"""Where a fitted temperature is looked for."""


class Fit(NamedTuple):
    """A fitted temperature, and what it is worth on attempts that it has not seen.

    Attributes:
        temperature: T with the least negative log-likelihood.
        stderr: standard error of T; ``None`` if T stands at an end of `TEMPERATURES`, as it does
            when the verifier is never wrong (the sharper the better) or worse than chance.
        nll_before: mean negative log-likelihood of the held-out attempts at T = 1, same baselines.
        nll_after: the same at the fitted T.
        fitted: number of attempts that T was fitted to.
        held_out: the others, bool, shape (n,); for `verifiers.judge.calibration.report`.
    """

    temperature: float
    stderr: float | None
    nll_before: float
    nll_after: float
    fitted: int
    held_out: Bools


def fit_temperature(
    logprobs: npt.ArrayLike,
    baselines: npt.ArrayLike,
    labels: npt.ArrayLike,
    held_out: float = 0.2,
    seed: int = 0,
    groups: npt.ArrayLike | None = None,
) -> Fit:
    """The temperature of least negative log-likelihood, fitted to a part of labelled attempts.

    With z = s - b and b = 1/T the loss of an attempt with label y is log(sum exp(b z)) - b z_y,
    convex in b, so the search over log T finds the one minimum. Its second derivative in b is
    the variance of z under the calibrated probabilities; the sum H of these is the curvature, and
    stderr = T^2 / sqrt(H). Attempts at one question are alike, which that formula does not know:
    with ``groups`` whole questions are held out, and the standard error is that of scores summed
    within questions (T^2 / H times the root of the sum of squares, with G/(G - 1) for G groups).

    Args:
        logprobs: label log-probs, shape (n, 3).
        baselines: broadcasts to ``logprobs``; zeros fit a temperature without a baseline.
        labels: what the verifier should have said, 0, 1, 2 for A, B, C, shape (n,); at least
            10, of two kinds. Which outcome of a grader is which label is the caller's to say. A
            label that never occurs is no obstacle to the fit of a single number.
        held_out: share of the attempts (with ``groups``: of the groups) that T is not fitted to.
        seed: decides which.
        groups: integers, the question of each attempt, shape (n,); ``None`` for attempts that
            have nothing in common.

    Returns:
        A :class:`Fit`.

    Raises:
        ValueError: too few labels, labels of one kind, a single group, scores that are equal for
            all labels, a share outside (0, 1), or what ``calibrate`` refuses.

    Source: Guo et al. 2017, "On Calibration of Modern Neural Networks", arXiv 1706.04599,
    section 4.2.

    >>> import numpy as np
    >>> s = np.log([[0.98, 0.01, 0.01]] * 60 + [[0.01, 0.98, 0.01]] * 60)
    >>> fit = fit_temperature(s, np.zeros(3), [0] * 50 + [1] * 60 + [0] * 10)
    >>> fit.fitted, fit.nll_after < fit.nll_before, 1.5 < fit.temperature < 3
    (96, True, True)
    """
    scores = scores_above(log_rows(logprobs, "logprobs"), baselines)
    truth = label_array(labels, "labels", len(scores))
    if len(truth) < LEAST_LABELLED:
        raise ValueError(f"labels has {len(truth)} entries: a fit needs {LEAST_LABELLED} at least")
    if len(np.unique(truth)) < 2:
        raise ValueError(f"labels are all {LABELS[truth[0]]}: a fit needs two kinds at least")
    top = scores.max(axis=-1, keepdims=True)
    scores = scores - np.where(np.isneginf(top), 0.0, top)
    if not (scores < -1e-9).any():
        raise ValueError("logprobs and baselines differ by the same for all labels: no T fits best")
    out, cluster = _split(len(truth), held_out, seed, groups)
    kept, own = scores[~out], truth[~out]

    def loss(log_temperature: float, z: Floats = kept, y: Ints = own) -> float:
        return -float(picked(log_softmax(z, float(np.exp(log_temperature))), y).mean())

    ends = np.log(TEMPERATURES)
    found = minimize_scalar(loss, bounds=ends, method="bounded", options={"xatol": 1e-8})
    temperature = float(np.exp(found.x))
    at_end = bool(np.abs(ends - found.x).min() < 1e-4)
    clusters = None if cluster is None else cluster[~out]
    return Fit(
        temperature,
        None if at_end else _stderr(kept, own, temperature, clusters),
        loss(0.0, scores[out], truth[out]),
        loss(found.x, scores[out], truth[out]),
        len(own),
        out,
    )


def _split(
    n: int, held_out: float, seed: int, groups: npt.ArrayLike | None
) -> tuple[Bools, Ints | None]:
    """Which attempts are held out, and the number of each one's group."""
    if not 0 < check_share(held_out, "held_out") < 1:
        raise ValueError(f"held_out is {held_out!r}: pass a share between 0 and 1, as in 0.2")
    units, cluster = n, None
    if groups is not None:
        given = number_array(groups, "groups")
        check_length(given, "groups", n)
        kinds, cluster = np.unique(given, return_inverse=True)
        units = len(kinds)
        if units < 3:
            raise ValueError(f"groups has {units} of them: a split needs 3 at least")
    size = min(max(round(held_out * units), 1), units - (1 if cluster is None else 2))
    chosen = np.zeros(units, dtype=np.bool_)
    chosen[np.random.default_rng(seed).permutation(units)[:size]] = True
    return (chosen, None) if cluster is None else (chosen[cluster], cluster.astype(np.int64))


def _stderr(scores: Floats, truth: Ints, temperature: float, cluster: Ints | None) -> float | None:
    """Standard error of T, see :func:`fit_temperature`; ``None`` without any curvature."""
    logs = log_softmax(scores, temperature)
    p = np.exp(logs)
    z = np.where(p > 0, scores, 0.0)  # 0 times -inf is 0 here
    mean = (p * z).sum(axis=-1)
    # Below LOWEST the loss is cut off and has no slope: such an attempt says nothing of T.
    heard = picked(logs, truth) > LOWEST
    curvature = float(((p * z**2).sum(axis=-1) - mean**2)[heard].sum())
    if not curvature > 0:
        return None
    spread = np.sqrt(curvature)
    if cluster is not None:
        slopes = np.where(heard, mean - z[np.arange(len(truth)), truth], 0.0)
        _, member = np.unique(cluster, return_inverse=True)
        sums = np.bincount(member, weights=slopes)
        spread = np.sqrt(len(sums) / (len(sums) - 1) * (sums**2).sum())
    return float(temperature**2 * spread / curvature)
