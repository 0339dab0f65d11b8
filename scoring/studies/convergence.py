"""How many trials until a ranking of models is the one that all trials give.

The gold ranking is that of Bayes@N with all N trials of the real matrix, whichever metric is
judged. A bootstrap replicate draws N trials with replacement; convergence@n of a replicate is the
smallest n such that the ranking from its first n trials is the gold ranking, ties included, and
stays so up to N.

>>> import numpy as np
>>> from bayes_at_n.scoring.metrics.table import parse
>>> from bayes_at_n.scoring.studies import convergence
>>> p = np.array([0.9, 0.7, 0.3])[:, None, None]
>>> stack = (np.random.default_rng(1).random((3, 20, 40)) < p).astype(int)
>>> metrics = [parse("bayes"), parse("pass@4")]
>>> for c in convergence.convergence_at(stack, metrics, replicates=2000):
...     print(f"{c.label}: mean {c.mean:.1f}, not converged {c.share_failed:.1%}")
Bayes@N: mean 1.1, not converged 0.0%
Pass@4: mean 5.8, not converged 0.0%

Needs numba, which ``import scoring`` alone does not. Source: Hariri et al., "Don't Pass@k",
arXiv 2510.04265, sections 2.7, 3.1 and 3.3.
"""

import functools
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.metrics.metric import Metric
from bayes_at_n.scoring.numerics.inputs import Floats, Ints, check_whole, finite_array
from bayes_at_n.scoring.sequential.wealth import compiled
from bayes_at_n.scoring.studies import bootstrap
from bayes_at_n.scoring.studies.bootstrap import BLEND_UNITS
from bayes_at_n.scoring.studies.bootstrap import Resample as Resample


@dataclass(frozen=True)
class Convergence:
    """Distribution of convergence@n over bootstrap replicates.

    Shares are of all replicates, so that ``pmf`` sums to the share that converged.
    """

    label: str  # the metric
    counts: Ints  # replicates whose convergence@n is n = 1..N, shape (N,)
    failed: int  # replicates that did not converge: their ranking from N trials is not gold
    worst: int  # the first replicate with the largest convergence@n; 0 if none converged
    first_failed: int | None  # the first replicate that did not converge

    @property
    def replicates(self) -> int:
        """Count all replicates, converged or not."""
        return int(self.counts.sum()) + self.failed

    @property
    def share_failed(self) -> float:
        """Return the share of replicates that did not converge."""
        return self.failed / self.replicates

    @property
    def pmf(self) -> Floats:
        """Return the share of replicates with convergence@n = n, for n = 1..N."""
        return np.asarray(self.counts / self.replicates)

    @property
    def cdf(self) -> Floats:
        """Return the share of replicates with convergence@n <= n, for n = 1..N."""
        return np.asarray(self.counts.cumsum() / self.replicates)

    @property
    def mean(self) -> float | None:
        """Average convergence@n over the replicates that converged; None if none did."""
        converged = int(self.counts.sum())
        return self._total / converged if converged else None

    @property
    def capped_mean(self) -> float:
        """Average convergence@n over all replicates; one that did not converge counts as N.

        >>> Convergence("Bayes@N", np.array([0, 2, 0, 0]), 2, 0, 1).capped_mean  # twice 2, twice 4
        3.0
        """
        return (self._total + self.counts.size * self.failed) / self.replicates

    @property
    def _total(self) -> int:
        return int(self.counts @ np.arange(1, self.counts.size + 1))

    @property
    def largest(self) -> int | None:
        """Return the largest convergence@n; None if no replicate converged."""
        reached = self.counts.nonzero()[0]
        return int(reached[-1]) + 1 if reached.size else None


class TauCurve(NamedTuple):
    """Mean Kendall's tau_b against the gold ranking after n = 1..N trials; all of shape (N,).

    Values are masked where no replicate (for ``stderr``: fewer than two) has a tau_b; it does
    not exist when one side is all ties, nor below the metric's first n.
    """

    label: str
    tau: Any  # masked float64
    stderr: Any  # masked float64: standard error of the mean over replicates
    defined: Ints  # replicates in the mean
    undefined: Ints  # replicates without a tau_b


def convergence_at(
    stack: npt.ArrayLike,
    metrics: Sequence[Metric],
    replicates: int = 100_000,
    resample: Resample = "columns",
    seed: int = 0,
    threads: int | None = None,
) -> list[Convergence]:
    """Count the trials from which on the ranking is the gold ranking, over replicates.

    One for each metric, in their order. Fewer than two models, a metric that needs more than N
    trials, and an argument not as here raise a ValueError.

    `stack` holds outcomes 0 and 1 without missing trials, shape (models, questions, trials), and
    metrics are those of :func:`scoring.metrics.table.parse`, each with a k of at most N. `resample`
    "columns" draws N trials for all questions together, "rows" for each question apart; in both,
    the same trials for all models. With a seed a replicate is the same for any number of replicates
    and threads (``None``: one per processor), and for any metrics and models (``stack[models]``
    ranks some of them).

    Source: arXiv 2510.04265, section 3.3, Figs. 1 and 6 (10^5 replicates).

    >>> from bayes_at_n.scoring.metrics.table import parse
    >>> stack = [[[1, 1, 1, 1], [1, 1, 0, 1]], [[0, 0, 1, 0], [0, 0, 0, 1]]]
    >>> [c] = convergence_at(stack, [parse("bayes")], replicates=1000)
    >>> round(c.mean, 3), c.counts.tolist(), c.failed
    (1.283, [772, 174, 42, 8], 4)
    """
    data = bootstrap.checked_stack(stack)
    prepared = bootstrap.prepared(data, metrics)

    def work(index: npt.NDArray[Any]) -> Ints:
        return convergence_points(index, *prepared)

    points = bootstrap.chunks(work, data.shape, resample, replicates, seed, threads)
    by_metric = zip(metrics, np.concatenate(points, axis=1), strict=True)
    return [_distribution(metric.title(), own, data.shape[-1]) for metric, own in by_metric]


def _distribution(label: str, points: Ints, trials: int) -> Convergence:
    """Summary of the convergence@n of every replicate, N + 1 for none."""
    counts = np.bincount(points, minlength=trials + 2)
    failures = np.flatnonzero(points > trials)
    return Convergence(
        label,
        counts[1 : trials + 1],
        failures.size,
        int(np.argmax(np.where(points > trials, 0, points))),
        int(failures[0]) if failures.size else None,
    )


def tau_curve(
    stack: npt.ArrayLike,
    metrics: Sequence[Metric],
    replicates: int = 10_000,
    resample: Resample = "columns",
    seed: int = 0,
    threads: int | None = None,
) -> list[TauCurve]:
    """Average Kendall's tau_b between the ranking after n trials and the gold ranking.

    tau_b = (concordant - discordant) / sqrt(pairs not tied in one * pairs not tied in the other).
    Replicates in which it does not exist are counted apart, and enter no mean. Arguments, errors,
    order and the replicates are those of :func:`convergence_at`. Source: arXiv 2510.04265, sections
    2.7 and 3.1, Figs. 2b, 2c and 4 (10^4 replicates).

    >>> from bayes_at_n.scoring.metrics.table import parse
    >>> stack = [[[1, 1, 1, 1], [1, 1, 0, 1]], [[0, 0, 1, 0], [0, 0, 0, 1]]]
    >>> [curve] = tau_curve(stack, [parse("pass@2")], replicates=1000)
    >>> curve.tau.round(3).tolist(), curve.undefined.tolist()
    ([None, 1.0, 1.0, 1.0], [0, 171, 58, 13])
    """
    data = bootstrap.checked_stack(stack)
    prepared = bootstrap.prepared(data, metrics)

    def work(index: npt.NDArray[Any]) -> bootstrap.Sums:
        sums = bootstrap.no_sums(len(metrics), data.shape[-1])
        add_taus(tuple(sums), index, *prepared)
        return sums

    parts = bootstrap.chunks(work, data.shape, resample, replicates, seed, threads)
    return _curves(metrics, functools.reduce(bootstrap.merged, parts))


def tau_curve_independent(
    stacks: Iterable[npt.ArrayLike], truth: npt.ArrayLike, metrics: Sequence[Metric]
) -> list[TauCurve]:
    """Average :func:`tau_curve` over matrices that are new each time, against a known ranking.

    ``stacks`` are outcomes 0 and 1, each of the same shape (models, questions, trials), one at a
    time, so that a generator needs the memory of one. ``truth`` holds the true scores, finite,
    shape (models,); equal ones are ties that are meant. Raises ValueError: no stack, or one of
    another shape. Source: arXiv 2510.04265, section 2.7, Fig. 2a (1,000 matrices of 11 models with
    one tie).

    >>> from bayes_at_n.scoring.metrics.table import parse
    >>> rng = np.random.default_rng(0)
    >>> p = np.full((3, 30, 1), [[[0.7]], [[0.4]], [[0.4]]])
    >>> stacks = (rng.random((3, 30, 40)) < p for _ in range(200))
    >>> [curve] = tau_curve_independent(stacks, [0.7, 0.4, 0.4], [parse("bayes")])
    >>> curve.tau[[0, -1]].round(3).tolist()  # sqrt(2/3) = 0.816 where no two scores tie
    [0.828, 0.822]
    """
    checked = (bootstrap.checked_stack(stack) for stack in stacks)
    if (first := next(checked, None)) is None:
        raise ValueError("stacks is empty: pass at least one stack (models, questions, trials)")
    models, _, trials = first.shape
    gold = finite_array(truth, "truth")
    if gold.shape != (models,):
        raise ValueError(f"truth has shape {gold.shape}: pass a number for each of {models} models")
    _, *prepared = bootstrap.prepared(first, metrics, gold)
    sums, best = bootstrap.no_sums(len(metrics), trials), np.argsort(-gold, kind="stable")
    every = np.arange(trials, dtype=np.min_scalar_type(trials - 1)).reshape(1, trials, 1)
    for data in itertools.chain([first], checked):
        if data.shape != first.shape:
            raise ValueError(f"stacks: one has shape {data.shape}, but the first {first.shape}")
        source = bootstrap.rows(data[best])
        add_taus(tuple(sums), every, source, *prepared)
    return _curves(metrics, sums)


def _curves(metrics: Sequence[Metric], sums: bootstrap.Sums) -> list[TauCurve]:
    defined, undefined, mean, squares = (part[:, 1:] for part in sums)
    error = np.sqrt(squares / np.maximum(defined - 1, 1) / np.maximum(defined, 1))
    tau = np.ma.array(mean, mask=defined == 0)  # type: ignore[no-untyped-call]
    stderr = np.ma.array(error, mask=defined < 2)  # type: ignore[no-untyped-call]
    labels = [metric.title() for metric in metrics]
    curves = zip(labels, tau, stderr, defined, undefined, strict=True)
    return [TauCurve(*curve) for curve in curves]


def rank_trajectory(
    stack: npt.ArrayLike,
    metric: Metric,
    replicate: int,
    resample: Resample = "columns",
    seed: int = 0,
) -> Any:
    """Rank every model after each trial of one bootstrap replicate, by its number from 0.

    With the number :attr:`Convergence.worst` of :func:`convergence_at`, and the same other
    arguments, whose errors it has, it is the trajectory that converged last. Competition ranks
    (1, 2, 2, 4) of shape (N, models): row n - 1 is from the first n trials; rows below the
    metric's first n are masked.

    Source: arXiv 2510.04265, section 3.3, Fig. 5.

    >>> from bayes_at_n.scoring.metrics.table import parse
    >>> stack = [[[1, 1, 1, 1], [1, 1, 0, 1]], [[0, 0, 1, 0], [0, 0, 0, 1]]]
    >>> [c] = convergence_at(stack, [parse("bayes")], replicates=1000)
    >>> rank_trajectory(stack, parse("bayes"), c.worst).tolist()
    [[1, 1], [1, 1], [1, 1], [1, 2]]
    """
    data = bootstrap.checked_stack(stack)
    _, questions, trials = data.shape
    bootstrap.check_metrics([metric], trials)
    columns = 1 if resample == "columns" else questions
    size = bootstrap.chunk_size(trials, columns)
    chunk, last = divmod(check_whole(replicate, "replicate", least=0), size)
    seed = check_whole(seed, "seed", least=0)
    index = bootstrap.draw(seed, chunk, last + 1, trials, columns)[last].T  # (columns, N)
    drawn = np.take_along_axis(data, index[None].astype(np.int64), axis=-1)
    correct = drawn.cumsum(axis=-1, dtype=np.int64)
    ranks = np.zeros((trials, data.shape[0]), dtype=np.int64)
    for n in range(max(1, metric.k), trials + 1):
        tables = bootstrap.scaled(metric, n, questions)
        sums = tables.values[:, correct[..., n - 1]].sum(axis=-1)  # (tables, models)
        scores = sums[0]
        if len(sums) == 2:
            parts = (sums * tables.units[:, None]) ** np.array(metric.powers)[:, None]
            scores = (parts.prod(axis=0) * bootstrap.BLEND_UNITS).astype(np.int64)
        ranks[n - 1] = 1 + (scores - scores[:, None] > tables.tolerance).sum(axis=-1)
    return np.ma.array(ranks, mask=ranks == 0)  # type: ignore[no-untyped-call]


# Compiled loops see the trials as a matrix of bytes (N, width): one row holds all models' outcomes
# of all questions in one trial, question by question and padded with zeros, and counts of correct
# trials grow by adding rows. Models are the innermost axis, so that one question of all of them is
# looked up at once, and are in the order of the gold ranking, best first.
Unsigned = npt.NDArray[Any]
# A NamedTuple of `bootstrap.py` as a plain tuple: a compilation on the disk that names a class
# cannot be loaded, nor replaced, once that class has another name.
Plain = tuple[npt.NDArray[Any], ...]


@compiled
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


@compiled
def _look_up(table: Ints, counts: Unsigned, questions: int, sums: Ints) -> None:
    """Sum over questions, for all models."""
    models = sums.size
    sums[:] = 0
    for m in range(questions):
        for k in range(models):
            sums[k] += table[counts[m * models + k]]


@compiled
def _score(
    bank: Plain, e: int, n: int, counts: Unsigned, questions: int, scores: Ints, other: Ints
) -> None:
    """Write the scores of all models by metric e; ``other`` is for the second sum of a blend."""
    tables, units, powers, blends, _, _ = bank
    _look_up(tables[e, 0, n], counts, questions, scores)
    if blends[e]:
        _look_up(tables[e, 1, n], counts, questions, other)
        for k in range(scores.size):
            x, y = scores[k] * units[e, 0, n], other[k] * units[e, 1, n]
            scores[k] = int(x ** powers[e, 0] * y ** powers[e, 1] * BLEND_UNITS)


@compiled
def _agrees(scores: Ints, rank: Ints, tolerance: int) -> bool:
    """Whether models rank as in gold: neighbors there are tied, or in that order, here, too."""
    for k in range(scores.size - 1):
        gap = scores[k] - scores[k + 1]
        if rank[k] == rank[k + 1]:
            if gap > tolerance or gap < -tolerance:
                return False
        elif gap <= tolerance:
            return False
    return True


@compiled
def convergence_points(
    index: Unsigned, source: Unsigned, questions: int, rank: Ints, bank: Plain
) -> Ints:
    """Find convergence@n of each metric in each replicate; N + 1 where it has not converged.

    From n = N downwards until the ranking first differs.

    ``index`` are the drawn trials, (replicates, N, 1) or (replicates, N, M), ``source`` the
    outcomes of the models in the order of gold, as of ``bootstrap.rows``, ``rank`` the gold ranks
    (models,), ascending, and ``bank`` a ``bootstrap.Bank``.

    Returns points, int64, shape (metrics, replicates).
    """
    trials, width = source.shape
    _, _, _, _, first, tolerance = bank
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


@compiled
def add_taus(
    sums: Plain, index: Unsigned, source: Unsigned, questions: int, rank: Ints, bank: Plain
) -> None:
    """Add Kendall's tau_b against the gold ranking, of all metrics and n, to the sums.

    ``sums`` is a ``bootstrap.Sums``; the others are those of :func:`convergence_points`.
    """
    trials, width = source.shape
    _, _, _, _, first, tolerance = bank
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


@compiled
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
