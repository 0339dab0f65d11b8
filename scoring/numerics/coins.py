"""Biased coins with a known mean, and the random numbers behind every simulation."""

from collections.abc import Iterator, Sequence

import numpy as np

from bayes_at_n.scoring.numerics.checks import check_whole, number_array
from bayes_at_n.scoring.numerics.inputs import Floats, Ints

# Questions of the papers' mimics of models.
QUESTIONS = 30

# Separate streams for separate purposes, so that one seed may serve several functions.
COINS, TOSSES, SEPARATION, ORIGINALS, UPDATES, STUDY = range(6)
PROPOSALS = 1024


def stream(seed: int, *key: int) -> np.random.Generator:
    """Make the random numbers of one purpose, which ``key`` names, under one seed.

    Streams with different keys are independent: a piece of a simulation has the same numbers in
    whatever order or thread the pieces run.

    >>> a, b = (stream(5, 0).random(), stream(5, 1).random())
    >>> a == stream(5, 0).random(), a == b
    (True, False)
    """
    entropy = check_whole(seed, "seed", least=0)
    return np.random.default_rng(np.random.SeedSequence(entropy, spawn_key=key))


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
