"""Bootstrap replicates in fixed chunks, and what the compiled loops over them take and give.

A replicate is N trials drawn from the N trials of a matrix, in the order drawn. Chunk i has its
own generator, seeded with (seed, i), and a fixed size, so that replicate r is the same whatever
the number of threads and replicates, and can be drawn again alone. Memory is that of one chunk a
thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from scoring.numerics.checks import check_whole
from scoring.numerics.inputs import Bools, Counts, Floats, Ints, outcome_counts
from scoring.studies.estimators import Estimator, scaled

Resample = Literal["columns", "rows"]
Result = TypeVar("Result")
Bits = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[Any]

LARGEST_TRIALS = 2**16 - 1  # counts are 16 bits wide at most
LARGEST_CHUNK = 1024  # replicates
CHUNK_INDICES = 2**22  # and at most so many drawn indices, unless one replicate has more
VECTOR_BYTES = 64


class Bank(NamedTuple):
    """The tables of all estimators for all n up to N; only a blend X^a Y^b has a second one."""

    tables: Ints  # (estimators, 2, N + 1, N + 1): table, n, c
    units: Floats  # (estimators, 2, N + 1)
    powers: Floats  # (estimators, 2)
    blends: Bools  # (estimators,)
    first: Ints  # (estimators,): smallest n
    tolerance: Ints  # (estimators, N + 1)


class Sums(NamedTuple):
    """Kendall's tau over replicates, each of shape (estimators, N + 1)."""

    defined: Ints
    undefined: Ints
    mean: Floats
    squares: Floats  # sum of squared differences from the mean


def bank(estimators: Sequence[Estimator], trials: int, questions: int) -> Bank:
    """Compute the tables of all estimators for n = first..N."""
    tables = np.zeros((len(estimators), 2, trials + 1, trials + 1), dtype=np.int64)
    units = np.zeros(tables.shape[:3])
    tolerance = np.zeros((len(estimators), trials + 1), dtype=np.int64)
    for e, estimator in enumerate(estimators):
        count = len(estimator.powers)
        for n in range(estimator.first, trials + 1):
            integers = scaled(estimator, n, questions)
            tables[e, :count, n, : n + 1] = integers.values
            units[e, :count, n] = integers.units
            tolerance[e, n] = integers.tolerance
    powers = np.array([(*estimator.powers, 1.0)[:2] for estimator in estimators])
    blends = np.array([len(estimator.powers) == 2 for estimator in estimators])
    first = np.array([estimator.first for estimator in estimators])
    return Bank(tables, units, powers, blends, first, tolerance)


def rows(data: Bits) -> Unsigned:
    """Lay out outcomes (models, questions, trials) as (trials, width), in a type that counts N."""
    models, questions, trials = data.shape
    width = -(-models * questions // VECTOR_BYTES) * VECTOR_BYTES
    source = np.zeros((trials, width), dtype=np.min_scalar_type(trials))
    source[:, : models * questions] = data.transpose(2, 1, 0).reshape(trials, -1)
    return source


def checked_stack(stack: npt.ArrayLike) -> Bits:
    """Outcomes as (models, questions, trials)."""
    if isinstance(stack, Counts):
        raise ValueError("stack is Counts: pass outcomes, since trials are drawn one by one")
    counts = outcome_counts(
        stack, 2, remedy="rankings take outcomes 1 (correct) and 0 (not)", name="stack"
    )
    shape = np.shape(stack)
    if len(shape) != 3 or shape[-1] > LARGEST_TRIALS:
        raise ValueError(
            f"stack has shape {shape}: pass (models, questions, trials), "
            f"at most {LARGEST_TRIALS} trials"
        )
    if (counts.sum(axis=-1) != shape[-1]).any():
        raise ValueError("stack has masked trials: a bootstrap of trials needs complete matrices")
    if shape[0] < 2:
        raise ValueError(f"there are {shape[0]} models to rank: pass at least two")
    return np.asarray(stack).astype(np.uint8)


def best_first(gold: npt.NDArray[Any]) -> Ints:
    """Positions of the models from the highest gold score to the lowest."""
    return np.argsort(-gold, kind="stable")


def prepared(
    data: Bits, estimators: Sequence[Estimator], gold: npt.NDArray[Any] | None = None
) -> Any:
    """What :mod:`scoring.studies.loops` take behind the drawn trials; gold scores are Bayes@N's."""
    _, questions, trials = data.shape
    check_estimators(estimators, trials)
    if gold is None:
        gold = data.sum(axis=(1, 2), dtype=np.int64)
    best = best_first(gold)
    rank = 1 + (gold[best] > gold[best, None]).sum(axis=-1)
    tables = bank(estimators, trials, questions)
    return rows(data[best]), questions, rank, tuple(tables)


def check_estimators(estimators: Sequence[Estimator], trials: int) -> None:
    """Raise unless there are estimators, and all are defined for this many trials."""
    if not estimators:
        raise ValueError("estimators is empty: pass at least one, as in named('bayes')")
    for estimator in estimators:
        if not isinstance(estimator, Estimator):
            raise ValueError(
                f"estimators holds {estimator!r}: pass scoring.studies.estimators.named('bayes')"
            )
        if estimator.first > trials:
            raise ValueError(
                f"{estimator.label} needs {estimator.first} trials, but the stack has {trials}"
            )


def columns_of(resample: Resample, questions: int) -> int:
    """How many series of trials a replicate draws: one, or one for each question."""
    if resample not in ("columns", "rows"):
        raise ValueError(f'resample is {resample!r}: pass "columns" or "rows"')
    return 1 if resample == "columns" else questions


def chunk_size(trials: int, columns: int) -> int:
    """Replicates in a chunk; ``columns`` is 1, or M when questions are resampled apart."""
    return max(1, min(LARGEST_CHUNK, CHUNK_INDICES // (trials * columns)))


def draw(seed: int, chunk: int, replicates: int, trials: int, columns: int) -> Unsigned:
    """Draw the trials of the first replicates of a chunk, shape (replicates, N, columns)."""
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(chunk,)))
    kind: Any = np.min_scalar_type(trials - 1)
    return generator.integers(trials, size=(replicates, trials, columns), dtype=kind)


def all_trials(trials: int) -> Unsigned:
    """Every trial once and in order, as one replicate: shape (1, N, 1)."""
    return np.arange(trials, dtype=np.min_scalar_type(trials - 1)).reshape(1, trials, 1)


def chunks(
    work: Callable[[Unsigned], Result],
    shape: tuple[int, ...],
    resample: Resample,
    replicates: int,
    seed: int,
    threads: int | None,
) -> list[Result]:
    """What ``work`` makes of the drawn trials of every chunk, in order.

    ``shape`` is that of the outcomes, (models, questions, trials); the other arguments are those
    of :func:`scoring.studies.convergence.convergence_at`.
    """
    trials, columns = shape[2], columns_of(resample, shape[1])
    check_whole(replicates, "replicates", least=1)
    check_whole(seed, "seed", least=0)
    if threads is None:
        affine = hasattr(os, "sched_getaffinity")
        threads = len(os.sched_getaffinity(0)) if affine else os.cpu_count() or 1
    size = chunk_size(trials, columns)

    def run(chunk: int) -> Result:
        count = min(size, replicates - chunk * size)
        return work(draw(seed, chunk, count, trials, columns))

    with ThreadPoolExecutor(check_whole(threads, "threads", least=1)) as pool:
        return list(pool.map(run, range(-(-replicates // size))))


def no_sums(estimators: int, trials: int) -> Sums:
    """Sums over no replicates."""
    mean = np.zeros((estimators, trials + 1))
    count = mean.astype(np.int64)
    return Sums(count, count.copy(), mean, mean.copy())


def merged(a: Sums, b: Sums) -> Sums:
    """Sums over the replicates of both."""
    defined = a.defined + b.defined
    share = b.defined / np.maximum(defined, 1)
    step = b.mean - a.mean
    return Sums(
        defined,
        a.undefined + b.undefined,
        a.mean + step * share,
        a.squares + b.squares + step**2 * a.defined * share,
    )
