"""Models whose true scores are known: biased coins in place of language models.

A mimic of a model is M probabilities, one per question; a trial tosses every coin once. The papers
print the mean of each mimic's probabilities and the Beta family they come from, not the
probabilities. Everything here is therefore a RECONSTRUCTION: probabilities are drawn from that
family given the printed means (``beta_given_mean``). Figures that depend on the probabilities can
be met on average over such sets only, and the spread over sets belongs beside them.

Source: arXiv 2510.04265, section 2.7. Updated models with non-uniform priors are in
``scoring.studies.updates``. All errors are a ValueError: numbers out of range, probabilities
outside [0, 1], shapes that do not fit. A seed is a whole number, at least 0.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics import coins
from bayes_at_n.scoring.numerics.checks import broadcast, check_probabilities, check_whole
from bayes_at_n.scoring.numerics.inputs import Floats, Ints

COIN_MEANS = (
    *(0.2332, 0.2545, 0.3604, 0.3642, 0.3642, 0.4466),
    *(0.5418, 0.5276, 0.608, 0.6213, 0.7327),
)
"""Printed means of LLM1 to LLM11; LLM4 and LLM5 are tied."""
COIN_SHAPES = (4, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13)
"""Mimic by mimic, the i of its Beta(i, 18 - i)."""


class Separation(NamedTuple):
    """What :func:`separation_curve` finds; arrays of shape (..., len(trials))."""

    above: Floats  # share of replicates with A strictly above B
    tied: Floats  # share of replicates with A and B level, which is neither right nor wrong
    z: Floats  # mean over replicates of abs(z)


def coin_models(seed: int, sets: int | None = None) -> Floats:
    """Draw the eleven biased-coin mimics: thirty probabilities each, with the printed means.

    RECONSTRUCTION: only the means are printed. The shapes i = 4..13 of Beta(i, 18 - i) go with
    the printed means in their printed order, i = 7 serving twice::

        LLM     1      2      3      4      5      6      7      8      9     10     11
        mean  .2332  .2545  .3604  .3642  .3642  .4466  .5418  .5276  .6080  .6213  .7327
        i       4      5      6      7      7      8      9     10     11     12     13
        i/18  .222   .278   .333   .389   .389   .444   .500   .556   .611   .667   .722

    No mean is more than 2.3 standard deviations (of about 0.02) from i/18. LLM4 and LLM5 have
    identical probabilities; all others are independent. The probabilities come from their
    distribution given the printed means, taken as exact. They have shape (11, 30), or
    (sets, 11, 30) for independent sets.

    >>> p = coin_models(seed=1)
    >>> p.shape, p.mean(axis=1).round(4).tolist()[-3:], (p[3] == p[4]).all().item()
    ((11, 30), [0.608, 0.6213, 0.7327], True)
    """
    count = 1 if sets is None else check_whole(sets, "sets", least=1)
    models = [
        coins.beta_given_mean(
            coins.stream(seed, coins.COINS, i), i, 18 - i, mean, coins.QUESTIONS, count
        )
        for i, mean in zip(COIN_SHAPES, COIN_MEANS, strict=True)
    ]
    p = np.stack(models, axis=1)
    return p[0] if sets is None else p


def toss(p: npt.ArrayLike, trials: int, seed: int) -> npt.NDArray[np.uint8]:
    """Toss coins with probabilities p, (..., M): outcomes 0 and 1, uint8, shape (..., M, N).

    >>> toss([0.0, 1.0], trials=3, seed=0).tolist()
    [[0, 0, 0], [1, 1, 1]]
    >>> toss(coin_models(seed=1), trials=80, seed=0).shape
    (11, 30, 80)
    """
    return next(tosses(p, trials, 1, seed))


def tosses(
    p: npt.ArrayLike, trials: int, matrices: int, seed: int
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yield independent stacks of outcomes as of :func:`toss`, so many as ``matrices``.

    One at a time, so that memory holds one; number i depends on the seed and on i alone, and the
    first is that of :func:`toss`. Errors come at once and not when the first stack is drawn.
    Source: arXiv 2510.04265, section 2.7 (Fig. 2, panel a, has 1,000 such matrices).

    >>> sum(int(R.sum()) for R in tosses([0.5] * 10, trials=4, matrices=25, seed=0))
    494
    """
    chances = check_probabilities(p, "p")[..., None]
    shape = (*chances.shape[:-1], check_whole(trials, "trials", least=1))
    check_whole(seed, "seed", least=0)
    return (
        (coins.stream(seed, coins.TOSSES, i).random(shape) < chances).view(np.uint8)
        for i in range(check_whole(matrices, "matrices", least=1))
    )


def separation_curve(
    p_a: npt.ArrayLike, p_b: npt.ArrayLike, trials: Sequence[int], replicates: int, seed: int
) -> Separation:
    """Simulate how often, and by what z, N trials put model A above model B.

    p_a and p_b are probabilities (..., M), broadcast, and ``trials`` values of N that increase.
    Each replicate is a run of both models that grows to the last N; at each N the models have
    Bayes@N with a uniform prior, mu and sigma, and::

        z = (mu_A - mu_B) / sqrt(sigma_A^2 + sigma_B^2)

    The paper's figure is the mean of abs(z), for true scores close together well above z of the
    mean difference. Source: arXiv 2510.04265, section 2.7.1 and Fig. 3.

    >>> curve = separation_curve([0.5] * 30, [0.7] * 30, trials=(1, 10), replicates=2000, seed=0)
    >>> curve.above.round(2).tolist(), curve.tied.round(2).tolist(), curve.z.round(2).tolist()
    ([0.04, 0.0], [0.02, 0.0], [1.14, 4.95])
    """
    a, b = check_probabilities(p_a, "p_a"), check_probabilities(p_b, "p_b")
    if a.shape[-1] != b.shape[-1]:
        raise ValueError(f"p_a has {a.shape[-1]} questions and p_b {b.shape[-1]}: pass the same")
    pair = np.stack(broadcast(p_a=a, p_b=b))
    steps = coins.check_steps(trials, "trials")
    count = check_whole(replicates, "replicates", least=1)
    # Bounds memory, and depends on nothing but the arguments: results must not either.
    chunk = max(1, 2**19 // pair.size)
    sums = np.zeros((3, *pair.shape[1:-1], len(steps)))
    for first in range(0, count, chunk):
        rng = coins.stream(seed, coins.SEPARATION, first)
        shape = (min(chunk, count - first), *pair.shape)
        for i, correct in enumerate(coins.tossed(rng, pair, shape, steps)):
            sums[..., i] += _separation(correct, steps[i])
    return Separation(*(sums / count))


def _separation(correct: Ints, n: int) -> Floats:
    """Sums over replicates of [A above B], [tied] and abs(z); correct is (R, 2, ..., M)."""
    ahead = correct[:, 0].sum(axis=-1) - correct[:, 1].sum(axis=-1)
    # Posterior means and variances times M: only their ratio is needed.
    variance = ((1 + correct) * (1 + n - correct)).sum(axis=-1) / ((n + 2) ** 2 * (n + 3))
    z = ahead / (n + 2) / np.sqrt(variance.sum(axis=1))
    return np.stack([(ahead > 0).sum(axis=0), (ahead == 0).sum(axis=0), np.abs(z).sum(axis=0)])


def coin_study(sets: int, trials: Sequence[int], replicates: int, seed: int) -> Separation:
    """Compare LLM10 with LLM9 over many reconstructions: the spread the printed point lies in.

    RECONSTRUCTION: :func:`separation_curve` of ``coin_models(seed, sets)``, arrays of shape (sets,
    len(trials)): quantiles over the first axis are the spread over sets. The paper, of its one
    unprinted set, gives a probability of .837 at N = 80, .947 at 199 and .969 at 285, and mean
    abs(z) of about 1.14, 1.645 and 1.96. Source: arXiv 2510.04265, section 2.7.1 and Fig. 3.

    >>> study = coin_study(sets=5, trials=(20, 80), replicates=400, seed=0)
    >>> low, high = study.above.min(axis=0), study.above.max(axis=0)
    >>> bool((low < high).all()), study.z.mean(axis=0).round(2).tolist()
    (True, [0.87, 1.15])
    """
    models = coin_models(seed, check_whole(sets, "sets", least=1))
    return separation_curve(models[:, 9], models[:, 8], trials, replicates, seed)
