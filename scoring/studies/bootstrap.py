"""Bootstrap replicates in fixed chunks, and the compiled loops over them.

A replicate is N trials drawn from the N trials of a matrix, in the order drawn. Chunk i has its
own generator, seeded with (seed, i), and a fixed size, so that replicate r is the same whatever
the number of threads and replicates, and can be drawn again alone. Memory is that of one chunk a
thread.

Loops see the trials as a matrix of bytes (N, width): one row holds all models' outcomes of all
questions in one trial, question by question and padded with zeros, and counts of correct trials
grow by adding rows. Models are the innermost axis, so that one question of all of them is looked
up at once, and are in the order of the gold ranking, best first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from scoring.numerics.inputs import Floats, Ints
from scoring.studies.estimators import BLEND_UNITS, Estimator, scaled

Function = TypeVar("Function", bound=Callable[..., Any])
Unsigned = npt.NDArray[Any]
Plain = tuple[npt.NDArray[Any], ...]

LARGEST_CHUNK = 1024  # replicates
CHUNK_INDICES = 2**22  # and at most so many drawn indices, unless one replicate has more
VECTOR_BYTES = 64


def _compiled(function: Function) -> Function:
    """Compile on first use, without the interpreter lock, and keep the result on the disk."""
    try:
        compiled: Function = numba.njit(nogil=True, cache=True)(function)
    except RuntimeError:  # neither the package's folder nor the user's cache can be written
        compiled = numba.njit(nogil=True)(function)
    return compiled


class Bank(NamedTuple):
    """The tables of all estimators for all n up to N.

    The compiled loops take it, and ``Sums``, as a plain tuple: a compilation on the disk that
    names a class cannot be loaded, nor replaced, once that class has another name.
    """

    tables: Ints  # (tables, N + 1, N + 1): table, n, c
    units: Floats  # (tables, N + 1)
    at: Ints  # (estimators,): the first or only table of each
    blends: Ints  # (estimators,): 1 for X^a Y^b, 0 for a single table
    powers: Floats  # (estimators, 2)
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
    counts = [len(estimator.powers) for estimator in estimators]
    at = np.cumsum([0, *counts])
    tables = np.zeros((at[-1], trials + 1, trials + 1), dtype=np.int64)
    units = np.zeros((at[-1], trials + 1))
    tolerance = np.zeros((len(estimators), trials + 1), dtype=np.int64)
    for e, estimator in enumerate(estimators):
        for n in range(estimator.first, trials + 1):
            integers = scaled(estimator, n, questions)
            tables[at[e] : at[e + 1], n, : n + 1] = integers.values
            units[at[e] : at[e + 1], n] = integers.units
            tolerance[e, n] = integers.tolerance
    powers = np.array([(*estimator.powers, 1.0)[:2] for estimator in estimators])
    first = np.array([estimator.first for estimator in estimators])
    return Bank(tables, units, at[:-1], np.array(counts) - 1, powers, first, tolerance)


def rows(data: npt.NDArray[np.uint8]) -> Unsigned:
    """Lay out outcomes (models, questions, trials) as (trials, width), in a type that counts N."""
    models, questions, trials = data.shape
    width = -(-models * questions // VECTOR_BYTES) * VECTOR_BYTES
    source = np.zeros((trials, width), dtype=np.uint8 if trials < 256 else np.uint16)
    source[:, : models * questions] = data.transpose(2, 1, 0).reshape(trials, -1)
    return source


def chunk_size(trials: int, columns: int) -> int:
    """Replicates in a chunk; ``columns`` is 1, or M when questions are resampled apart."""
    return max(1, min(LARGEST_CHUNK, CHUNK_INDICES // (trials * columns)))


def draw(seed: int, chunk: int, replicates: int, trials: int, columns: int) -> Unsigned:
    """Draw the trials of the first replicates of a chunk, shape (replicates, N, columns)."""
    generator = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(chunk,)))
    kind = all_trials(trials).dtype
    return generator.integers(trials, size=(replicates, trials, columns), dtype=kind)


def all_trials(trials: int) -> Unsigned:
    """Every trial once and in order, as one replicate: shape (1, N, 1)."""
    kind = np.uint8 if trials <= 256 else np.uint16
    return np.arange(trials, dtype=kind).reshape(1, trials, 1)


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


@_compiled
def _resample(source: Unsigned, index: Unsigned, models: int, replicate: Unsigned) -> None:
    """Write the trials of one replicate; index (N, 1) is shared by the questions, (N, M) is not.

    Element by element: the compiler makes whole vectors of it, and of assigned slices it does not.
    """
    trials, width = source.shape
    for n in range(trials):
        if index.shape[1] == 1:
            drawn = index[n, 0]
            for i in range(width):
                replicate[n, i] = source[drawn, i]
        else:
            for m in range(index.shape[1]):
                drawn = index[n, m]
                for i in range(m * models, (m + 1) * models):
                    replicate[n, i] = source[drawn, i]


@_compiled
def _look_up(table: Ints, counts: Unsigned, questions: int, sums: Ints) -> None:
    """Sum over questions, for all models."""
    models = sums.size
    sums[:] = 0
    for m in range(questions):
        for k in range(models):
            sums[k] += table[counts[m * models + k]]


@_compiled
def _score(
    bank: Plain, e: int, n: int, counts: Unsigned, questions: int, scores: Ints, other: Ints
) -> None:
    """Write the scores of all models by estimator e; ``other`` is for the second sum of a blend."""
    tables, units, at, blends, powers, _, _ = bank
    i = at[e]
    _look_up(tables[i, n], counts, questions, scores)
    if blends[e]:
        _look_up(tables[i + 1, n], counts, questions, other)
        for k in range(scores.size):
            x, y = scores[k] * units[i, n], other[k] * units[i + 1, n]
            scores[k] = int(x ** powers[e, 0] * y ** powers[e, 1] * BLEND_UNITS)


@_compiled
def _agrees(scores: Ints, rank: Ints, tolerance: int) -> bool:
    """Whether models rank as in gold: neighbours there are tied, or in that order, here, too."""
    for k in range(scores.size - 1):
        gap = scores[k] - scores[k + 1]
        if rank[k] == rank[k + 1]:
            if gap > tolerance or gap < -tolerance:
                return False
        elif gap <= tolerance:
            return False
    return True


@_compiled
def convergence_points(
    source: Unsigned, index: Unsigned, questions: int, rank: Ints, bank: Plain
) -> Ints:
    """convergence@n of each estimator in each replicate; N + 1 where it has not converged.

    From n = N downwards until the ranking first differs.

    ``source`` is :func:`rows` of models in the order of gold, ``index`` the drawn trials
    (replicates, N, 1) or (replicates, N, M), ``rank`` the gold ranks (models,), ascending, and
    ``bank`` a :class:`Bank` as a plain tuple. The points have shape (estimators, replicates).
    """
    trials, width = source.shape
    _, _, _, _, _, first, tolerance = bank
    points = np.empty((first.size, index.shape[0]), np.int64)
    replicate = np.zeros_like(source)
    total, counts = np.empty(width, source.dtype), np.empty(width, source.dtype)
    scores, other = np.empty(rank.size, np.int64), np.empty(rank.size, np.int64)
    for r in range(index.shape[0]):
        _resample(source, index[r], rank.size, replicate)
        total[:] = 0
        for n in range(trials):
            for i in range(width):
                total[i] += replicate[n, i]
        for e in range(first.size):
            counts[:] = total
            n = trials
            while n >= first[e]:
                _score(bank, e, n, counts, questions, scores, other)
                if not _agrees(scores, rank, tolerance[e, n]):
                    break
                n -= 1
                for i in range(width):
                    counts[i] -= replicate[n, i]
            points[e, r] = n + 1
    return points


@_compiled
def add_taus(
    source: Unsigned, index: Unsigned, questions: int, rank: Ints, bank: Plain, sums: Plain
) -> None:
    """Add Kendall's tau_b against the gold ranking, of all estimators and n, to the sums.

    Arguments are those of :func:`convergence_points`, and :class:`Sums` as a plain tuple.
    """
    trials, width = source.shape
    _, _, _, _, _, first, tolerance = bank
    defined, undefined, mean, squares = sums
    replicate = np.zeros_like(source)
    counts = np.empty(width, source.dtype)
    scores, other = np.empty(rank.size, np.int64), np.empty(rank.size, np.int64)
    _, gold_untied = _pairs(-rank, rank, 0)
    for r in range(index.shape[0]):
        _resample(source, index[r], rank.size, replicate)
        counts[:] = 0
        for n in range(1, trials + 1):
            for i in range(width):
                counts[i] += replicate[n - 1, i]
            for e in range(first.size):
                if n < first[e]:
                    continue
                _score(bank, e, n, counts, questions, scores, other)
                agree, untied = _pairs(scores, rank, tolerance[e, n])
                if untied == 0 or gold_untied == 0:
                    undefined[e, n] += 1
                    continue
                tau = agree / np.sqrt(float(untied) * float(gold_untied))
                defined[e, n] += 1
                step = tau - mean[e, n]
                mean[e, n] += step / defined[e, n]
                squares[e, n] += step * (tau - mean[e, n])


@_compiled
def _pairs(scores: Ints, rank: Ints, tolerance: int) -> tuple[int, int]:
    """Concordant minus discordant pairs of models sorted by gold, and pairs not tied in score."""
    agree, untied = 0, 0
    for i in range(scores.size):
        for j in range(i + 1, scores.size):
            gap = scores[i] - scores[j]
            sign = int(gap > tolerance) - int(gap < -tolerance)
            untied += abs(sign)
            agree += sign * int(rank[i] != rank[j])
    return agree, untied
