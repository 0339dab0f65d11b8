"""Models whose true scores are known: biased coins in place of language models.

A mimic of a model is M probabilities, one per question; a trial tosses every coin once. Whatever
an estimator or a ranking rule says about the tosses can be held against the truth.

The papers print the mean of each mimic's probabilities and the Beta family they come from, not
the probabilities. Everything here is therefore a RECONSTRUCTION: probabilities are drawn from
that family, conditioned on the printed means (exactly: see ``beta_given_mean``).
Figures that depend on the probabilities themselves can be met on average over such sets only,
and the spread over sets belongs beside them.

Source: arXiv 2510.04265, section 2.7. Updated models with non-uniform priors are in
``scoring.studies.updates``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from scoring.numerics.arrays import check_probabilities
from scoring.numerics.checks import check_whole
from scoring.numerics.coins import SEPARATION, TOSSES, add_trials, check_steps, coin_models, stream
from scoring.numerics.inputs import Floats, Ints

__all__ = [
    "Separation",
    "coin_models",
    "coin_study",
    "separation_curve",
    "toss",
    "tosses",
]


class Separation(NamedTuple):
    """What :func:`separation_curve` finds; arrays of shape (..., len(trials))."""

    above: Floats
    """Share of replicates with A strictly above B."""
    tied: Floats
    """Share of replicates with A and B level, which is neither right nor wrong."""
    z: Floats
    """Mean over replicates of abs(z)."""


def toss(p: npt.ArrayLike, trials: int, seed: int) -> npt.NDArray[np.uint8]:
    """Outcomes of coins with known probabilities.

    Args:
        p: probabilities of success, shape (..., M).
        trials: N, trials per question.
        seed: a whole number, at least 0.

    Returns:
        Outcomes 0 and 1, uint8, shape (..., M, N).

    Raises:
        ValueError: a probability outside [0, 1]; trials or seed out of range.

    Source: arXiv 2510.04265, section 2.7.

    >>> toss([0.0, 1.0], trials=3, seed=0).tolist()
    [[0, 0, 0], [1, 1, 1]]
    >>> toss(coin_models(seed=1), trials=80, seed=0).shape
    (11, 30, 80)
    """
    return next(tosses(p, trials, 1, seed))


def tosses(
    p: npt.ArrayLike, trials: int, matrices: int, seed: int
) -> Iterator[npt.NDArray[np.uint8]]:
    """Independent stacks of outcomes, one at a time, so that memory holds one.

    The stack number i depends on the seed and on i alone, whatever else is drawn.

    Args:
        p: as for :func:`toss`.
        trials: as for :func:`toss`.
        matrices: how many stacks.
        seed: as for :func:`toss`, whose result is the first stack.

    Yields:
        Outcomes as of :func:`toss`.

    Raises:
        ValueError: as for :func:`toss`, at once and not when the first stack is drawn.

    Source: arXiv 2510.04265, section 2.7 (Fig. 2, panel a, has 1,000 such matrices).

    >>> sum(int(R.sum()) for R in tosses([0.5] * 10, trials=4, matrices=25, seed=0))
    494
    """
    chances = check_probabilities(p, "p")[..., None]
    shape = (*chances.shape[:-1], check_whole(trials, "trials", least=1))
    check_whole(seed, "seed", least=0)
    return (
        (stream(seed, TOSSES, i).random(shape) < chances).view(np.uint8)
        for i in range(check_whole(matrices, "matrices", least=1))
    )


def separation_curve(
    p_a: npt.ArrayLike, p_b: npt.ArrayLike, trials: Sequence[int], replicates: int, seed: int
) -> Separation:
    """How often, and by what z, N trials put model A above model B.

    Each replicate is a run of both models that grows to the last N of ``trials``; at each N the
    models have Bayes@N with a uniform prior, mu and sigma, and::

        z = (mu_A - mu_B) / sqrt(sigma_A^2 + sigma_B^2)

    The paper's figure is the mean of abs(z). That is not z of the mean difference: for true
    scores close together it is well above it (noise makes abs(z) positive even at equality).

    Args:
        p_a: probabilities of model A, shape (..., M).
        p_b: probabilities of model B, shape (..., M); leading axes broadcast against A's.
        trials: values of N, increasing.
        replicates: independent runs.
        seed: a whole number, at least 0.

    Returns:
        A :class:`Separation`, arrays of shape (..., len(trials)). Replicates are streamed.

    Raises:
        ValueError: probabilities outside [0, 1] or of shapes that do not fit; trials that do not
            increase; replicates or seed out of range.

    Source: arXiv 2510.04265, section 2.7.1 and Fig. 3.

    >>> curve = separation_curve([0.5] * 30, [0.7] * 30, trials=(1, 10), replicates=2000, seed=0)
    >>> curve.above.round(2).tolist(), curve.tied.round(2).tolist(), curve.z.round(2).tolist()
    ([0.04, 0.0], [0.02, 0.0], [1.14, 4.95])
    """
    a, b = check_probabilities(p_a, "p_a"), check_probabilities(p_b, "p_b")
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"p_a has {a.shape[-1]} questions and p_b {b.shape[-1]}: pass the same")
    try:
        pair = np.stack(np.broadcast_arrays(a, b))
    except ValueError:
        raise ValueError(
            f"p_a has shape {a.shape} and p_b {b.shape}: leading axes must fit each other"
        ) from None
    steps = check_steps(trials, "trials")
    count = check_whole(replicates, "replicates", least=1)
    # Bounds memory, and depends on nothing but the arguments: results must not either.
    chunk = max(1, 2**19 // pair.size)
    sums = np.zeros((3, *pair.shape[1:-1], len(steps)))
    for first in range(0, count, chunk):
        rng = stream(seed, SEPARATION, first)
        correct = np.zeros((min(chunk, count - first), *pair.shape), dtype=np.int64)
        for at, (n, before) in enumerate(zip(steps, [0, *steps], strict=False)):
            add_trials(rng, correct, pair, n - before)
            sums[..., at] += _separation(correct, n)
    return Separation(*(sums / count))


def _separation(correct: Ints, n: int) -> Floats:
    """Sums over replicates of [A above B], [tied] and abs(z); correct is (R, 2, ..., M)."""
    ahead = correct[:, 0].sum(axis=-1) - correct[:, 1].sum(axis=-1)
    # Posterior means and variances times M: only their ratio is needed.
    variance = ((1 + correct) * (1 + n - correct)).sum(axis=-1) / ((n + 2) ** 2 * (n + 3))
    z = ahead / (n + 2) / np.sqrt(variance.sum(axis=1))
    return np.stack([(ahead > 0).sum(axis=0), (ahead == 0).sum(axis=0), np.abs(z).sum(axis=0)])


def coin_study(sets: int, trials: Sequence[int], replicates: int, seed: int) -> Separation:
    """LLM10 against LLM9 over many reconstructions: the spread that the printed point lies in.

    RECONSTRUCTION: see :func:`coin_models`; the sets are ``coin_models(seed, sets)``. The paper,
    from simulations of its one unprinted set, gives a probability of .837 at N = 80, .947 at 199
    and .969 at 285, and mean abs(z) of about 1.14, 1.645 and 1.96.

    Most of the spread of ``above`` is the noise of the replicates, about .012 for 1,000. Without
    it, by exact convolution over 200 sets, the probability at N = 80 is .831 on average, between
    .828 and .835, with a further .008 of ties. Over the same sets it averages .832, .936 and .966
    in simulation, and mean abs(z) 1.15, 1.59 and 1.86.

    Args:
        sets: independent reconstructions.
        trials: values of N, increasing.
        replicates: independent runs of each set.
        seed: a whole number, at least 0.

    Returns:
        A :class:`Separation`, arrays of shape (sets, len(trials)): quantiles over the first axis
        are the spread over sets.

    Raises:
        ValueError: as for :func:`separation_curve`.

    Source: arXiv 2510.04265, section 2.7.1 and Fig. 3.

    >>> study = coin_study(sets=5, trials=(20, 80), replicates=400, seed=0)
    >>> low, high = study.above.min(axis=0), study.above.max(axis=0)
    >>> bool((low < high).all()), study.z.mean(axis=0).round(2).tolist()
    (True, [0.87, 1.15])
    """
    models = coin_models(seed, check_whole(sets, "sets", least=1))
    return separation_curve(models[:, 9], models[:, 8], trials, replicates, seed)
