"""Updated models ranked with their originals as a prior: what prior trials are worth.

A RECONSTRUCTION: the paper prints the means of the original models and the family of Beta
distributions, not the probabilities (see ``scoring.studies.simulation``).

Source: arXiv 2510.04265, the version with twenty models, section 2.8. All errors are a ValueError:
numbers out of range, shapes of another form. A seed is a whole number, at least 0.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics import coins
from bayes_at_n.scoring.numerics.checks import check_whole, number_array
from bayes_at_n.scoring.numerics.inputs import Floats, Ints
from bayes_at_n.scoring.ranking.ranks import kendall_tau_b

ORIGINAL_MEANS = (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)
"""Printed means of the eight original models."""
ORIGINAL_SHAPES = tuple((i, 15 - i) for i in range(4, 12))
"""Shapes of the eight original models, our reading: see :func:`original_models`."""

# Fixed, so that results depend on the arguments and not on memory.
CHUNK = 250


class PriorStudy(NamedTuple):
    """What :func:`prior_study` finds; rows are the uniform prior, then each strength."""

    tau: Floats  # mean tau_b between estimated and true ranking, (1 + strengths, trials)
    tau_error: Floats  # its standard error over replicates, same shape
    gain: Floats  # mean of tau_b less that of the uniform prior, same shape; first row 0
    gain_error: Floats  # its standard error, of paired replicates
    undefined: Ints  # replicates left out of tau because all estimates were tied, same shape
    update_tau: float  # mean tau_b between the true rankings of original and updated models
    changed: float  # share of updated sets whose true ranking is not the original one


def original_models(seed: int) -> Floats:
    """Draw the eight original models of the study of priors: probabilities, float64, (8, 30).

    RECONSTRUCTION: the printed text has the means but lost the shapes. Assumed is
    Beta(i, 15 - i) for i = 4..11, the best fit to the printed means in the family
    Beta(i, n - i) with consecutive i (chi-square 7.8 on 8; the next best, n = 17 with i = 5..12,
    has 11.2).

    >>> original_models(seed=0).mean(axis=1).round(4).tolist()
    [0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487]
    """
    rows = [
        coins.beta_given_mean(
            coins.stream(seed, coins.ORIGINALS, model), a, b, mean, coins.QUESTIONS, 1
        )
        for model, ((a, b), mean) in enumerate(zip(ORIGINAL_SHAPES, ORIGINAL_MEANS, strict=True))
    ]
    return np.concatenate(rows)


def updated_models(shapes: npt.ArrayLike, replicates: int, seed: int) -> Floats:
    """Update models: both Beta shapes moved by one, and new probabilities drawn.

    RECONSTRUCTION: "random integers of unit magnitude" is read as -1 or +1, equally likely,
    independent for the two shapes and for every model. With :data:`ORIGINAL_SHAPES` the mean
    tau_b between the original and the updated ranking is .884, and 86.0 % of updates change the
    ranking (50,000 updates; printed: .88 and about 86 %). Shifts that may be 0 give .91 and 75 %,
    opposite shifts of the two shapes .82 and 96 %: both readings are ruled out.

    ``shapes`` are those of the original models, each above 1, shape (models, 2), and the
    probabilities those of independent updates, shape (replicates, models, 30).

    >>> updated_models(ORIGINAL_SHAPES, replicates=2, seed=0).shape
    (2, 8, 30)
    """
    pairs = number_array(shapes, "shapes")
    if pairs.shape[1:] != (2,) or not ((pairs > 1) & (pairs < np.inf)).all():
        raise ValueError(
            f"shapes is {pairs.tolist()}: pass finite numbers above 1, shape (models, 2)"
        )
    count = check_whole(replicates, "replicates", least=1)
    return _updates(coins.stream(seed, coins.UPDATES), pairs, count)


def prior_study(
    replicates: int,
    trials: Sequence[int],
    strengths: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    seed: int,
    run: int | None = None,
) -> PriorStudy:
    """Study what trials of older models, used as a prior, do to the ranking of their updates.

    RECONSTRUCTION: see :func:`original_models` and :func:`updated_models`. The original models
    are drawn once. Each replicate draws updates of all eight, D prior trials per question of the
    originals, which become prior counts, and N trials per question of the updates; Bayes@N then
    ranks the updates, and tau_b compares the ranking with that of the updates' true means.

    A small D helps at small N; a large one turns into a loss, since an update may move against its
    original. Scaling a longer run down to D takes noise out of the prior, not that bias. Gains that
    50,000 replicates show are in ``docs/scoring.md``.

    ``trials`` and ``strengths`` are values of N and of D (in trials per question), increasing.
    There are 2 replicates at least; memory does not grow with them. Updates and their trials are
    the same for every ``run``: ``None`` takes the prior from D trials, a number from so many
    trials, whose counts are scaled by D / run (one run serves all strengths of a replicate).

    So few replicates that some N has less than two with a defined tau_b are an error. Source:
    section 2.8 and Fig. 2; the prior counts are those of appendix A.

    >>> study = prior_study(250, trials=(1, 10), strengths=(2, 16), seed=0)
    >>> study.gain.shape, (study.gain[1:, 0] > 0).tolist(), int(study.undefined.sum())
    ((3, 2), [True, True], 0)
    """
    count = check_whole(replicates, "replicates", least=2)
    steps, weights = coins.check_steps(trials, "trials"), coins.check_steps(strengths, "strengths")
    run = None if run is None else check_whole(run, "run", least=1)
    original = original_models(seed)
    # tau and gain: how many are defined, their sum, their sum of squares.
    sums = np.zeros((2, 3, 1 + len(weights), len(steps)))
    changed, update_tau = 0, 0.0
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        of_updates, of_priors, of_trials = coins.stream(seed, coins.STUDY, first).spawn(3)
        updates = _updates(of_updates, ORIGINAL_SHAPES, size)
        prior = _prior_correct(of_priors, original, size, weights, run)
        truth = updates.mean(axis=-1)
        correct = _trial_correct(of_trials, updates, steps)
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


def _updates(rng: np.random.Generator, shapes: npt.ArrayLike, count: int) -> Floats:
    """Draw updated probabilities, shape (count, models, M)."""
    original = np.asarray(shapes)
    moved = original + rng.choice([-1, 1], (count, *original.shape))
    a, b = moved[..., :1], moved[..., 1:]
    return rng.beta(a, b, (count, len(original), coins.QUESTIONS))


def _trial_correct(rng: np.random.Generator, p: Floats, steps: list[int]) -> Ints:
    """Correct trials over all questions after each N of steps, (size, steps, models)."""
    return np.stack([c.sum(axis=-1) for c in coins.tossed(rng, p, p.shape, steps)], axis=1)


def _prior_correct(
    rng: np.random.Generator, original: Floats, size: int, strengths: list[int], run: int | None
) -> Ints:
    """Correct prior trials times ``run`` of each D, (size, 1 + strengths, models); row 0 is 0."""
    p = np.broadcast_to(original, (size, *original.shape))
    if run is not None:
        correct = rng.binomial(run, p).sum(axis=-1)
        return np.stack([d * correct for d in (0, *strengths)], axis=1)
    correct = _trial_correct(rng, p, strengths)
    return np.concatenate([np.zeros_like(correct[:, :1]), correct], axis=1)


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
