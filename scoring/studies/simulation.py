"""Models whose true scores are known, biased coins in place of language models, and their updates.

A mimic of a model is M probabilities, one per question; a trial tosses every coin once. The papers
print the mean of each mimic's probabilities and the Beta family they come from, not the
probabilities. Everything here is therefore a RECONSTRUCTION: probabilities are drawn from that
family given the printed means (``beta_given_mean``). Figures that depend on the probabilities can
be met on average over such sets only, and the spread over sets belongs beside them.

Source: arXiv 2510.04265, section 2.7; of updated models, ranked with their originals as a prior,
the version with twenty models, section 2.8. All errors are a ValueError: numbers out of range,
probabilities outside [0, 1], shapes that do not fit. A seed is a whole number, at least 0.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.inputs import (
    Floats,
    Ints,
    check_probabilities,
    check_whole,
    number_array,
    stream,
)
from bayes_at_n.scoring.ranking.ranks import kendall_tau_b

# Questions of the papers' mimics of models.
QUESTIONS = 30

# Separate streams for separate purposes, so that one seed may serve several functions.
COINS, TOSSES, SEPARATION, ORIGINALS, UPDATES, STUDY = range(6)
PROPOSALS = 1024


def beta_given_mean(
    rng: np.random.Generator, a: float, b: float, mean: float, questions: int, sets: int
) -> Floats:
    """Draw independent Beta(a, b) probabilities given their mean; exact, not approximate.

    All but the last probability are drawn freely and the last is what the mean leaves over. Given
    the sum, the density of the first ones is proportional to the product of all the Beta densities,
    so a proposal is accepted with probability f(last) / max f, which needs a and b above 1. That
    falls fast for a mean beyond four of its standard deviations. Shape (sets, questions).

    >>> p = beta_given_mean(stream(0), 7.0, 11.0, 0.3642, questions=30, sets=2)
    >>> p.shape, p.mean(axis=1).round(12).tolist()
    ((2, 30), [0.3642, 0.3642])
    """
    mode = (a - 1) / (a + b - 2)
    accepted: list[Floats] = []
    while sum(map(len, accepted)) < sets:
        head = rng.beta(a, b, (PROPOSALS, questions - 1))
        last = questions * mean - head.sum(axis=1)
        chance = rng.random(PROPOSALS)
        inside = (last > 0) & (last < 1)
        head, last, chance = head[inside], last[inside], chance[inside]
        log_ratio = (a - 1) * np.log(last / mode) + (b - 1) * np.log((1 - last) / (1 - mode))
        proposals = np.concatenate([head, last[:, None]], axis=1)
        accepted.append(proposals[chance < np.exp(log_ratio)])
    return np.concatenate(accepted)[:sets]


def tossed(
    rng: np.random.Generator, p: Floats, shape: tuple[int, ...], steps: Sequence[int]
) -> Iterator[Ints]:
    """Yield successes of every coin after each number of tosses in ``steps``: one array that grows.

    p broadcasts to the shape.
    """
    correct = np.zeros(shape, dtype=np.int64)
    for n, before in zip(steps, [0, *steps], strict=False):
        if n == before + 1:  # five times as fast as a binomial of one
            correct += rng.random(shape) < p
        else:
            correct += rng.binomial(n - before, p, shape)
        yield correct


def check_steps(values: Sequence[int], name: str) -> list[int]:
    """Return increasing whole numbers, each at least 1, as a list of int."""
    steps = number_array(list(values), name)
    if steps.ndim != 1 or steps.size == 0 or steps.dtype.kind not in "iu":
        raise ValueError(f"{name} is {values!r}: pass a sequence of whole numbers, as in (1, 2, 4)")
    if steps[0] < 1 or (steps[1:] <= steps[:-1]).any():
        raise ValueError(f"{name} is {values!r}: pass increasing numbers, each at least 1")
    return [int(step) for step in steps]


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

# Fixed, so that results depend on the arguments and not on memory.
CHUNK = 250


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
        beta_given_mean(stream(seed, COINS, i), i, 18 - i, mean, QUESTIONS, count)
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
        (stream(seed, TOSSES, i).random(shape) < chances).view(np.uint8)
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
    pair = np.stack(np.broadcast_arrays(a, b))
    steps = check_steps(trials, "trials")
    count = check_whole(replicates, "replicates", least=1)
    # Bounds memory, and depends on nothing but the arguments: results must not either.
    chunk = max(1, 2**19 // pair.size)
    sums = np.zeros((3, *pair.shape[1:-1], len(steps)))
    for first in range(0, count, chunk):
        rng = stream(seed, SEPARATION, first)
        shape = (min(chunk, count - first), *pair.shape)
        for i, correct in enumerate(tossed(rng, pair, shape, steps)):
            sums[..., i] += _separation(correct, steps[i])
    return Separation(*(sums / count))


def _separation(correct: Ints, n: int) -> Floats:
    """Sums over replicates of [A above B], [tied] and abs(z); correct is (R, 2, ..., M)."""
    ahead = correct[:, 0].sum(axis=-1) - correct[:, 1].sum(axis=-1)
    # Posterior means and variances times M: only their ratio is needed.
    variance = ((1 + correct) * (1 + n - correct)).sum(axis=-1) / ((n + 2) ** 2 * (n + 3))
    z = ahead / (n + 2) / np.sqrt(variance.sum(axis=1))
    return np.stack([(ahead > 0).sum(axis=0), (ahead == 0).sum(axis=0), np.abs(z).sum(axis=0)])


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
        beta_given_mean(stream(seed, ORIGINALS, model), a, b, mean, QUESTIONS, 1)
        for model, ((a, b), mean) in enumerate(zip(ORIGINAL_SHAPES, ORIGINAL_MEANS, strict=True))
    ]
    return np.concatenate(rows)


def updated_models(shapes: npt.ArrayLike, replicates: int, seed: int) -> Floats:
    """Update models: both Beta shapes moved by one, and new probabilities drawn.

    RECONSTRUCTION: "random integers of unit magnitude" is read as -1 or +1, equally likely,
    independent for the two shapes and for every model. With :data:`ORIGINAL_SHAPES` the mean
    tau_b between the original and the updated ranking is .884, and 86.0% of updates change the
    ranking (50,000 updates; printed: .88 and about 86%). Shifts that may be 0 give .91 and 75%,
    opposite shifts of the two shapes .82 and 96%: both readings are ruled out.

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
    return _updates(stream(seed, UPDATES), pairs, count)


def prior_study(
    replicates: int,
    trials: Sequence[int],
    strengths: Sequence[int] = (1, 2, 4, 8, 16),
    *,
    seed: int,
) -> PriorStudy:
    """Study what trials of older models, used as a prior, do to the ranking of their updates.

    RECONSTRUCTION: see :func:`original_models` and :func:`updated_models`. The original models
    are drawn once. Each replicate draws updates of all eight, D prior trials per question of the
    originals, which become prior counts, and N trials per question of the updates; Bayes@N then
    ranks the updates, and tau_b compares the ranking with that of the updates' true means.

    A small D helps at small N; a large one turns into a loss, since an update may move against its
    original. Gains that 50,000 replicates show are in ``docs/scoring.md``.

    ``trials`` and ``strengths`` are values of N and of D (in trials per question), increasing.
    There are 2 replicates at least; memory does not grow with them.

    So few replicates that some N has less than two with a defined tau_b are an error. Source:
    section 2.8 and Fig. 2; the prior counts are those of appendix A.

    >>> study = prior_study(250, trials=(1, 10), strengths=(2, 16), seed=0)
    >>> study.gain.shape, (study.gain[1:, 0] > 0).tolist(), int(study.undefined.sum())
    ((3, 2), [True, True], 0)
    """
    count = check_whole(replicates, "replicates", least=2)
    steps, weights = check_steps(trials, "trials"), check_steps(strengths, "strengths")
    original = original_models(seed)
    # tau and gain: how many are defined, their sum, their sum of squares.
    sums = np.zeros((2, 3, 1 + len(weights), len(steps)))
    changed, update_tau = 0, 0.0
    for first in range(0, count, CHUNK):
        size = min(CHUNK, count - first)
        of_updates, of_priors, of_trials = stream(seed, STUDY, first).spawn(3)
        updates = _updates(of_updates, ORIGINAL_SHAPES, size)
        prior = _trial_correct(of_priors, np.broadcast_to(original, updates.shape), weights)
        prior = np.pad(prior, [(0, 0), (1, 0), (0, 0)])  # the uniform prior first
        truth = updates.mean(axis=-1)
        correct = _trial_correct(of_trials, updates, steps)
        # With the same N and D for all, mu increases with prior + correct: ranked as whole
        # numbers, so that equal scores are tied whatever floating point would make of them.
        score = prior[:, :, None] + correct[:, None]
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
    return rng.beta(a, b, (count, len(original), QUESTIONS))


def _trial_correct(rng: np.random.Generator, p: Floats, steps: list[int]) -> Ints:
    """Correct trials over all questions after each N of steps, (size, steps, models)."""
    return np.stack([c.sum(axis=-1) for c in tossed(rng, p, p.shape, steps)], axis=1)


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
