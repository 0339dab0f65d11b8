"""Bootstrap replicates in fixed chunks, and what the compiled loops over them take and give.

A replicate is N trials drawn from the N trials of a matrix, in the order drawn. Chunk i has its
own generator, seeded with (seed, i), and a fixed size, so that replicate r is the same whatever
the number of threads and replicates, and can be drawn again alone. Memory is that of one chunk a
thread.
"""

import math
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.metric import Metric, Value
from bayes_at_n.scoring.numerics.inputs import (
    Bools,
    Counts,
    Floats,
    Ints,
    check_whole,
    outcome_counts,
)

Resample = Literal["columns", "rows"]
Result = TypeVar("Result")
Bits = npt.NDArray[np.uint8]
Unsigned = npt.NDArray[Any]

LARGEST_TRIALS = 2**16 - 1  # counts are 16 bits wide at most
LARGEST_CHUNK = 1024  # replicates
CHUNK_INDICES = 2**22  # and at most so many drawn indices, unless one replicate has more
VECTOR_BYTES = 64

# Sums over questions stay below this in size, so that the difference of two is an int64.
LARGEST_SUM = 2**62
# Blends X^a Y^b, from 0 to 1, in these units.
BLEND_UNITS = 2**60
# Scores from floats are tied when they differ by less than this share of their range.
TOLERANCE = 1e-12


class Bank(NamedTuple):
    """The tables of all metrics for all n up to N; only a blend X^a Y^b has a second one."""

    tables: Ints  # (metrics, 2, N + 1, N + 1): table, n, c
    units: Floats  # (metrics, 2, N + 1)
    powers: Floats  # (metrics, 2)
    blends: Bools  # (metrics,)
    first: Ints  # (metrics,): smallest n
    tolerance: Ints  # (metrics, N + 1)


class Sums(NamedTuple):
    """Kendall's tau over replicates, each of shape (metrics, N + 1)."""

    defined: Ints
    undefined: Ints
    mean: Floats
    squares: Floats  # sum of squared differences from the mean


class Scaled(NamedTuple):
    """The tables of a metric at one n as integers.

    A single table may have lost a constant and a factor, which no ranking sees; of a blend, values
    times units sum over questions to the means.
    """

    values: Ints  # (tables, n + 1)
    units: Floats  # (tables,)
    tolerance: int  # scores are tied if they differ by this or less; 0: they are exact


def scaled(metric: Metric, n: int, questions: int) -> Scaled:
    """Return the tables of a metric for n trials as integers whose sums fit int64.

    Fractions are brought to their common denominator, and scores are exact, if the sum over
    questions fits. Otherwise they are rounded to the finest units that fit, and scores are tied
    that differ by no more than rounding may have added, M units (for M = 30 questions 2e-16 of
    the range of scores). With floats and in blends the tolerance is ``TOLERANCE`` of the range.

    >>> from bayes_at_n.scoring.metrics.table import parse
    >>> scaled(parse("pass@2"), 4, questions=30).values.tolist()
    [[0, 3, 5, 6, 6]]
    """
    tables, limit, tolerance = metric.tables(n), LARGEST_SUM // questions, 0
    if len(tables) == 1:
        low = min(tables[0])
        tables = ([value - low for value in tables[0]],)
    values, units, exact = zip(*(_integers(table, limit) for table in tables), strict=True)
    if len(tables) == 2:
        tolerance = int(TOLERANCE * BLEND_UNITS)
    elif not exact[0]:
        whole = all(isinstance(value, Fraction) for value in tables[0])
        tolerance = questions if whole else int(TOLERANCE * limit * questions)
    return Scaled(np.array(values), np.array(units) / questions, tolerance)


def _integers(values: Sequence[Value], limit: int) -> tuple[list[int], float, bool]:
    """Integers and a unit, values = integers * unit, and whether that is exact."""
    exact = [value for value in values if isinstance(value, Fraction)]
    if len(exact) == len(values):
        below = math.lcm(*(value.denominator for value in exact))
        whole = [value.numerator * (below // value.denominator) for value in exact]
        factor = math.gcd(*whole) or 1
        if max(whole) // factor <= limit:
            return [value // factor for value in whole], factor / below, True
    top = max(values) or 1.0
    return [round(value / top * limit) for value in values], float(top / limit), False


def bank(metrics: Sequence[Metric], trials: int, questions: int) -> Bank:
    """Compute the tables of all metrics, each from its first n to N."""
    tables = np.zeros((len(metrics), 2, trials + 1, trials + 1), dtype=np.int64)
    units = np.zeros(tables.shape[:3])
    tolerance = np.zeros((len(metrics), trials + 1), dtype=np.int64)
    first = np.array([max(1, metric.k) for metric in metrics])
    for e, metric in enumerate(metrics):
        count = len(metric.powers)
        for n in range(first[e], trials + 1):
            integers = scaled(metric, n, questions)
            tables[e, :count, n, : n + 1] = integers.values
            units[e, :count, n] = integers.units
            tolerance[e, n] = integers.tolerance
    powers = np.array([(*metric.powers, 1.0)[:2] for metric in metrics])
    blends = np.array([len(metric.powers) == 2 for metric in metrics])
    return Bank(tables, units, powers, blends, first, tolerance)


def rows(data: Bits) -> Unsigned:
    """Lay out outcomes (models, questions, trials) as (trials, width), in a type that counts N."""
    models, questions, trials = data.shape
    width = -(-models * questions // VECTOR_BYTES) * VECTOR_BYTES
    source = np.zeros((trials, width), dtype=np.min_scalar_type(trials))
    source[:, : models * questions] = data.transpose(2, 1, 0).reshape(trials, -1)
    return source


def checked_stack(stack: npt.ArrayLike) -> Bits:
    """Check outcomes and return them as (models, questions, trials).

    Raises ValueError: counts, masked trials, one model.
    """
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


def prepared(data: Bits, metrics: Sequence[Metric], gold: npt.NDArray[Any] | None = None) -> Any:
    """Prepare what the loops of ``convergence.py`` take behind drawn trials; gold is Bayes@N's."""
    _, questions, trials = data.shape
    check_metrics(metrics, trials)
    if gold is None:
        gold = data.sum(axis=(1, 2), dtype=np.int64)
    best = np.argsort(-gold, kind="stable")
    rank = 1 + (gold[best] > gold[best, None]).sum(axis=-1)
    tables = bank(metrics, trials, questions)
    return rows(data[best]), questions, rank, tuple(tables)


def check_metrics(metrics: Sequence[Metric], trials: int) -> None:
    """Raise unless there are metrics, and all are defined for this many trials."""
    if not metrics or max(metric.k for metric in metrics) > trials:
        needed = ", ".join(f"{metric.title()} needs {metric.k}" for metric in metrics)
        raise ValueError(f"metrics: pass at least one; the stack has {trials} trials, {needed}")


def chunk_size(trials: int, columns: int) -> int:
    """Count the replicates in a chunk; ``columns`` is 1, or M if questions are resampled apart."""
    return max(1, min(LARGEST_CHUNK, CHUNK_INDICES // (trials * columns)))


def draw(seed: int, chunk: int, replicates: int, trials: int, columns: int) -> Unsigned:
    """Draw the trials of the first replicates of a chunk, shape (replicates, N, columns)."""
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(chunk,)))
    kind: Any = np.min_scalar_type(trials - 1)
    return generator.integers(trials, size=(replicates, trials, columns), dtype=kind)


def chunks(
    work: Callable[[Unsigned], Result],
    shape: tuple[int, ...],
    resample: Resample,
    replicates: int,
    seed: int,
    threads: int | None,
) -> list[Result]:
    """Apply ``work`` to the drawn trials of every chunk, in order.

    ``shape`` is that of the outcomes, (models, questions, trials); the other arguments are those
    of :func:`scoring.studies.convergence.convergence_at`.
    """
    trials, columns = shape[2], 1 if resample == "columns" else shape[1]
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


def no_sums(metrics: int, trials: int) -> Sums:
    """Make sums over no replicates."""
    mean = np.zeros((metrics, trials + 1))
    count = mean.astype(np.int64)
    return Sums(count, count.copy(), mean, mean.copy())


def merged(a: Sums, b: Sums) -> Sums:
    """Merge the sums over the replicates of both."""
    defined = a.defined + b.defined
    share = b.defined / np.maximum(defined, 1)
    step = b.mean - a.mean
    return Sums(
        defined,
        a.undefined + b.undefined,
        a.mean + step * share,
        a.squares + b.squares + step**2 * a.defined * share,
    )
