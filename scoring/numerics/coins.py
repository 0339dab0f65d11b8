"""The models of the simulations, coins with a known mean, and the random numbers behind them.

The models are public as part of :mod:`scoring.studies.simulation`, which says what they are for.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from scoring.numerics.arrays import number_array
from scoring.numerics.checks import check_whole
from scoring.numerics.inputs import Floats, Ints

QUESTIONS = 30
COIN_MEANS = (
    *(0.2332, 0.2545, 0.3604, 0.3642, 0.3642, 0.4466),
    *(0.5418, 0.5276, 0.608, 0.6213, 0.7327),
)
"""Printed means of LLM1 to LLM11; LLM4 and LLM5 are tied."""
COIN_SHAPES = (4, 5, 6, 7, 7, 8, 9, 10, 11, 12, 13)
"""Mimic by mimic, the i of its Beta(i, 18 - i)."""

ORIGINAL_MEANS = (0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487)
"""Printed means of the eight original models."""
ORIGINAL_SHAPES = tuple((i, 15 - i) for i in range(4, 12))
"""Shapes of the eight original models, our reading: see :func:`original_models`."""

# Separate streams for separate purposes, so that one seed may serve several functions.
COINS, TOSSES, SEPARATION, ORIGINALS, UPDATES, STUDY = range(6)
PROPOSALS = 1024


def coin_models(seed: int, sets: int | None = None) -> Floats:
    """The eleven biased-coin mimics: thirty probabilities each, with the printed means.

    RECONSTRUCTION: only the means are printed. The shapes i = 4..13 of Beta(i, 18 - i) go with
    the printed means in their printed order, i = 7 serving twice::

        LLM     1      2      3      4      5      6      7      8      9     10     11
        mean  .2332  .2545  .3604  .3642  .3642  .4466  .5418  .5276  .6080  .6213  .7327
        i       4      5      6      7      7      8      9     10     11     12     13
        i/18  .222   .278   .333   .389   .389   .444   .500   .556   .611   .667   .722

    Read so, the means of LLM7 and LLM8 came out against the order of their shapes, and no mean is
    more than 2.3 standard deviations (of about 0.02) from i/18. LLM4 and LLM5 have identical
    probabilities; all others, LLM11 included, are independent. Given the printed means, taken as
    exact, the probabilities come from their conditional distribution without approximation.

    Args:
        seed: a whole number, at least 0.
        sets: how many independent sets; ``None`` is one, without the leading axis.

    Returns:
        Probabilities, float64, shape (11, 30), or (sets, 11, 30).

    Raises:
        ValueError: a seed or number of sets that is not a whole number in range.

    Source: arXiv 2510.04265, section 2.7.

    >>> p = coin_models(seed=1)
    >>> p.shape, p.mean(axis=1).round(4).tolist()[-3:], (p[3] == p[4]).all().item()
    ((11, 30), [0.608, 0.6213, 0.7327], True)
    """
    count = 1 if sets is None else check_whole(sets, "sets", least=1)
    p = np.stack(
        [
            beta_given_mean(stream(seed, COINS, i), i, 18 - i, mean, QUESTIONS, count)
            for i, mean in zip(COIN_SHAPES, COIN_MEANS, strict=True)
        ],
        axis=1,
    )
    return p[0] if sets is None else p


def original_models(seed: int) -> Floats:
    """The eight original models of the study of priors.

    RECONSTRUCTION: the printed text has the means but lost the shapes. Assumed is
    Beta(i, 15 - i) for i = 4..11, the best fit to the printed means in the family
    Beta(i, n - i) with consecutive i (chi-square 7.8 on 8; the next best, n = 17 with i = 5..12,
    has 11.2, and n = 18 of the eleven mimics 23). Thirty questions, as for the eleven mimics.

    Args:
        seed: a whole number, at least 0.

    Returns:
        Probabilities, float64, shape (8, 30), each row with its printed mean.

    Raises:
        ValueError: a seed that is not a whole number, at least 0.

    Source: arXiv 2510.04265, the version with twenty models, section 2.8.

    >>> original_models(seed=0).mean(axis=1).round(4).tolist()
    [0.3021, 0.3166, 0.4144, 0.4985, 0.5351, 0.5759, 0.6679, 0.7487]
    """
    rows = [
        beta_given_mean(stream(seed, ORIGINALS, model), a, b, mean, QUESTIONS, 1)
        for model, ((a, b), mean) in enumerate(zip(ORIGINAL_SHAPES, ORIGINAL_MEANS, strict=True))
    ]
    return np.concatenate(rows)


def updated_models(shapes: npt.ArrayLike, replicates: int, seed: int) -> Floats:
    """Updates of models: both Beta shapes moved by one, and new probabilities drawn.

    RECONSTRUCTION: "random integers of unit magnitude" is read as -1 or +1, equally likely,
    independent for the two shapes and for every model. With :data:`ORIGINAL_SHAPES` the mean
    tau_b between the original and the updated ranking is .884, and 86.0 % of updates change the
    ranking (50,000 updates; printed: .88 and about 86 %). Shifts that may be 0 give .91 and 75 %,
    opposite shifts of the two shapes .82 and 96 %: both readings are ruled out.

    Args:
        shapes: Beta shapes of the original models, each above 1, shape (models, 2).
        replicates: independent updates of the whole set.
        seed: a whole number, at least 0.

    Returns:
        Probabilities, float64, shape (replicates, models, 30).

    Raises:
        ValueError: shapes of another form or not above 1; replicates or seed out of range.

    Source: arXiv 2510.04265, the version with twenty models, section 2.8.

    >>> updated_models(ORIGINAL_SHAPES, replicates=2, seed=0).shape
    (2, 8, 30)
    """
    pairs = number_array(shapes, "shapes")
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        raise ValueError(
            f"shapes has shape {pairs.shape} and dtype {pairs.dtype}: pass (models, 2) numbers"
        )
    if not ((pairs > 1) & (pairs < np.inf)).all():
        raise ValueError(f"shapes is {pairs.tolist()}: pass finite numbers above 1")
    count = check_whole(replicates, "replicates", least=1)
    return draw_updates(stream(seed, UPDATES), pairs, count)


def draw_updates(rng: np.random.Generator, shapes: npt.ArrayLike, count: int) -> Floats:
    """Draw updated probabilities, shape (count, models, M)."""
    original = np.asarray(shapes)
    moved = original + rng.choice([-1, 1], (count, *original.shape))
    a, b = moved[..., :1], moved[..., 1:]
    return rng.beta(a, b, (count, len(original), QUESTIONS))


def stream(seed: int, *key: int) -> np.random.Generator:
    """The random numbers of one purpose, which ``key`` names, under one seed.

    Streams with different keys are independent, so a piece of a simulation has the same numbers
    whichever other pieces run, in whatever order or thread.

    >>> a, b = (stream(5, 0).random(), stream(5, 1).random())
    >>> a == stream(5, 0).random(), a == b
    (True, False)
    """
    entropy = check_whole(seed, "seed", least=0)
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=key))


def beta_given_mean(
    rng: np.random.Generator, a: float, b: float, mean: float, questions: int, sets: int
) -> Floats:
    """Independent Beta(a, b) probabilities, conditioned on their mean; exact, not approximate.

    All but the last probability are drawn freely and the last is what the mean leaves over.
    Given the sum, the density of the first ones is proportional to the product of all the Beta
    densities, the last one included, so a proposal is kept with probability
    f(last) / max f, which needs a bounded density: a and b above 1. No chain, nothing to burn in.

    Args:
        rng: random numbers.
        a: first shape, above 1.
        b: second shape, above 1.
        mean: the mean of each set; must be within reach (acceptance falls fast beyond four
            standard deviations of the mean).
        questions: probabilities in a set, M.
        sets: independent sets.

    Returns:
        Probabilities in (0, 1), float64, shape (sets, M), each row with the given mean.

    >>> p = beta_given_mean(stream(0), 7.0, 11.0, 0.3642, questions=30, sets=2)
    >>> p.shape, p.mean(axis=1).round(12).tolist()
    ((2, 30), [0.3642, 0.3642])
    """
    mode = (a - 1) / (a + b - 2)
    kept: list[Floats] = []
    while sum(map(len, kept)) < sets:
        head = rng.beta(a, b, (PROPOSALS, questions - 1))
        last = questions * mean - head.sum(axis=1)
        chance = rng.random(PROPOSALS)
        inside = (last > 0) & (last < 1)
        head, last, chance = head[inside], last[inside], chance[inside]
        log_ratio = (a - 1) * np.log(last / mode) + (b - 1) * np.log((1 - last) / (1 - mode))
        accepted = chance < np.exp(log_ratio)
        kept.append(np.concatenate([head, last[:, None]], axis=1)[accepted])
    return np.concatenate(kept)[:sets]


def add_trials(rng: np.random.Generator, correct: Ints, p: Floats, trials: int) -> None:
    """Toss every coin ``trials`` more times, and add the successes to ``correct`` in place.

    Shapes broadcast: p may lack leading axes of ``correct``.
    """
    if trials == 1:  # five times as fast as a binomial of one
        correct += rng.random(correct.shape) < p
    elif trials > 1:
        correct += rng.binomial(trials, p, correct.shape)


def trial_correct(rng: np.random.Generator, p: Floats, steps: list[int]) -> Ints:
    """Correct trials over all questions after each N of steps, (size, steps, models)."""
    correct = np.zeros(p.shape, dtype=np.int64)
    totals = []
    for n, before in zip(steps, [0, *steps], strict=False):
        add_trials(rng, correct, p, n - before)
        totals.append(correct.sum(axis=-1))
    return np.stack(totals, axis=1)


def prior_correct(
    rng: np.random.Generator, original: Floats, size: int, strengths: list[int], run: int | None
) -> Ints:
    """Correct prior trials of each model times ``run``, (size, 1 + strengths, models); row 0 is 0.

    Times ``run``, so that scaled counts D / run stay whole numbers.
    """
    shape = (size, *original.shape)
    if run is not None:
        correct = rng.binomial(run, original, shape).sum(axis=-1)
        return np.stack([d * correct for d in (0, *strengths)], axis=1)
    correct = trial_correct(rng, np.broadcast_to(original, shape), strengths)
    return np.concatenate([np.zeros_like(correct[:, :1]), correct], axis=1)


def check_steps(values: Sequence[int], name: str) -> list[int]:
    """Return increasing whole numbers, each at least 1, as a list of int."""
    steps = number_array(list(values), name)
    if steps.ndim != 1 or steps.size == 0 or steps.dtype.kind not in "iu":
        raise ValueError(f"{name} is {values!r}: pass a sequence of whole numbers, as in (1, 2, 4)")
    if steps[0] < 1 or (steps[1:] <= steps[:-1]).any():
        raise ValueError(f"{name} is {values!r}: pass increasing numbers, each at least 1")
    return [int(step) for step in steps]
