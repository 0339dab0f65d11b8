"""Updated models ranked with their originals as a prior: what prior trials are worth.

A RECONSTRUCTION: the paper prints the means of the original models and the family of Beta
distributions, not the probabilities (see ``scoring.studies.simulation``).

Source: arXiv 2510.04265, the version with twenty models, section 2.8.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from scoring.numerics.checks import check_whole
from scoring.numerics.coins import (
    ORIGINAL_SHAPES,
    STUDY,
    check_steps,
    draw_updates,
    original_models,
    prior_correct,
    stream,
    trial_correct,
    updated_models,
)
from scoring.numerics.inputs import Floats, Ints
from scoring.ranking.kendall import kendall_tau_b

__all__ = ["ORIGINAL_SHAPES", "PriorStudy", "original_models", "prior_study", "updated_models"]

# Fixed, so that results depend on the arguments and not on memory.
CHUNK = 250


class PriorStudy(NamedTuple):
    """What :func:`prior_study` finds; rows are the uniform prior, then each strength."""

    tau: Floats
    """Mean tau_b between estimated and true ranking, shape (1 + strengths, trials)."""
    tau_error: Floats
    """Its standard error over replicates, same shape."""
    gain: Floats
    """Mean over replicates of tau_b less that of the uniform prior, same shape; first row 0."""
    gain_error: Floats
    """Its standard error: smaller than that of a difference of two means, being paired."""
    undefined: Ints
    """Replicates left out of ``tau`` because all estimates were tied, same shape."""
    update_tau: float
    """Mean tau_b between the true rankings of the original and of the updated models."""
    changed: float
    """Share of updated sets whose true ranking is not the original one."""


def prior_study(
    replicates: int,
    trials: Sequence[int],
    strengths: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    seed: int,
    run: int | None = None,
) -> PriorStudy:
    """What trials of older models, used as a prior, do to the ranking of their updates.

    RECONSTRUCTION: see :func:`original_models` and :func:`updated_models`. The original models
    are drawn once. Each replicate draws updates of all eight, D prior trials per question of the
    originals, which become prior counts, and N trials per question of the updates; Bayes@N then
    ranks the updates, and tau_b compares the ranking with that of the updates' true means.

    A small D helps at small N: D = 1 and 2 at no N cost anything that 50,000 replicates can show.
    D = 8 and 16 have turned into a loss by N = 8, since an update may move against its original.
    Scaling a longer run down to strength D keeps D and takes noise out of the prior: it is at
    least as good at every D and N, and clearly better at small ones. It does not mend the loss at
    larger N, which is bias. Gain in tau_b over the uniform prior (50,000 replicates, standard
    errors below .0007)::

                        D = 1       2       4       8      16
        N = 1   raw     .056    .072    .084    .092    .099
                run=80  .096    .111    .113    .113    .112
        N = 4   raw     .011    .013    .010    .002   -.003
                run=80  .018    .025    .021    .010    .003
        N = 16  raw     .002    .002   -.001   -.013   -.031
                run=80  .003    .004    .002   -.010   -.031

    Args:
        replicates: at least 2; streamed, memory does not grow with them.
        trials: values of N, increasing.
        strengths: values of D, increasing, in trials per question.
        seed: a whole number, at least 0. Updates and their trials are the same for every ``run``.
        run: ``None`` takes the prior from D trials; a number takes it from so many trials, whose
            counts are scaled by D / run (one run serves all strengths of a replicate).

    Returns:
        A :class:`PriorStudy`.

    Raises:
        ValueError: numbers out of range; so few replicates that some N has less than two with a
            defined tau_b.

    Source: arXiv 2510.04265, the version with twenty models, section 2.8 and Fig. 2; the prior
    counts are those of appendix A.

    >>> study = prior_study(250, trials=(1, 10), strengths=(2, 16), seed=0)
    >>> study.gain.shape, (study.gain[1:, 0] > 0).tolist(), int(study.undefined.sum())
    ((3, 2), [True, True], 0)
    """
    count = check_whole(replicates, "replicates", least=2)
    steps, weights = check_steps(trials, "trials"), check_steps(strengths, "strengths")
    run = None if run is None else check_whole(run, "run", least=1)
    original = original_models(seed)
    # tau and gain: how many are defined, their sum, their sum of squares.
    sums = np.zeros((2, 3, 1 + len(weights), len(steps)))
    changed, update_tau = 0, 0.0
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        of_updates, of_priors, of_trials = stream(seed, STUDY, first).spawn(3)
        updates = draw_updates(of_updates, ORIGINAL_SHAPES, size)
        prior = prior_correct(of_priors, original, size, weights, run)
        truth = updates.mean(axis=-1)
        correct = trial_correct(of_trials, updates, steps)
        # With the same N and D for all, mu increases with prior + correct: ranked as whole
        # numbers, so that equal scores are tied whatever floating point would make of them.
        score = prior[:, :, None] + (run or 1) * correct[:, None]
        tau = kendall_tau_b(score, truth[:, None, None])
        for total, value in zip(sums, (tau, tau - tau[:, :1]), strict=True):
            defined = ~np.ma.getmaskarray(value)  # type: ignore[no-untyped-call]
            filled = np.ma.filled(value, 0.0)
            total += [part.sum(axis=0) for part in (defined, filled, filled**2)]
        # The originals are in increasing order of their true means.
        update_tau += float(kendall_tau_b(truth, np.arange(truth.shape[1])).sum())
        changed += int((np.diff(truth, axis=1) < 0).any(axis=1).sum())
    (tau_mean, tau_error), (gain, gain_error) = map(_mean_and_error, sums)
    undefined = (count - sums[0, 0]).astype(np.int64)
    return PriorStudy(
        tau_mean, tau_error, gain, gain_error, undefined, update_tau / count, changed / count
    )


def _mean_and_error(sums: Floats) -> tuple[Floats, Floats]:
    """Mean and standard error from number, sum and sum of squares, along the first axis."""
    number, total, squares = sums
    if number.min() < 2:
        raise ValueError(
            f"replicates: tau_b is defined in only {int(number.min())} of them for some N "
            "(all estimates tied in the others): pass more"
        )
    mean = total / number
    variance = np.maximum(squares - number * mean**2, 0.0) / (number - 1)
    return mean, np.sqrt(variance / number)
