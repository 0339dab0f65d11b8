"""What the convergence functions prepare and return; the functions are in ``convergence.py``."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from scoring.numerics.checks import check_whole
from scoring.numerics.inputs import Counts, Floats, Ints, outcome_counts
from scoring.studies import bootstrap
from scoring.studies.estimators import Estimator

Resample = Literal["columns", "rows"]
Result = TypeVar("Result")

LARGEST_TRIALS = 2**16 - 1  # counts are 16 bits wide at most


@dataclass(frozen=True)
class Convergence:
    """Distribution of convergence@n over bootstrap replicates.

    Shares are of all replicates, so that ``pmf`` sums to the share that converged.
    """

    label: str  # the estimator
    counts: Ints  # replicates whose convergence@n is n = 1..N, shape (N,)
    failed: int  # replicates that did not converge: their ranking from N trials is not gold
    worst: int  # the first replicate with the largest convergence@n; 0 if none converged
    first_failed: int | None  # the first replicate that did not converge

    @classmethod
    def of(cls, label: str, points: Ints, first: int, trials: int) -> Convergence:
        """Summary of replicates from ``first`` on: their convergence@n, N + 1 for none."""
        counts = np.bincount(points, minlength=trials + 2)
        failures = np.flatnonzero(points > trials)
        return cls(
            label,
            counts[1 : trials + 1],
            failures.size,
            first + int(np.argmax(np.where(points > trials, 0, points))),
            first + int(failures[0]) if failures.size else None,
        )

    def __add__(self, later: Convergence) -> Convergence:
        """Summary of two sets of replicates; those of ``later`` come behind."""
        return Convergence(
            self.label,
            self.counts + later.counts,
            self.failed + later.failed,
            self.worst if (self.largest or 0) >= (later.largest or 0) else later.worst,
            later.first_failed if self.first_failed is None else self.first_failed,
        )

    @property
    def replicates(self) -> int:
        """All replicates, converged or not."""
        return int(self.counts.sum()) + self.failed

    @property
    def share_failed(self) -> float:
        """Share of replicates that did not converge."""
        return self.failed / self.replicates

    @property
    def pmf(self) -> Floats:
        """Share of replicates with convergence@n = n, for n = 1..N."""
        return np.asarray(self.counts / self.replicates)

    @property
    def cdf(self) -> Floats:
        """Share of replicates with convergence@n <= n, for n = 1..N."""
        return np.asarray(self.counts.cumsum() / self.replicates)

    @property
    def mean(self) -> float | None:
        """Mean of convergence@n over the replicates that converged; None if none did."""
        converged = int(self.counts.sum())
        if not converged:
            return None
        return int(self.counts @ np.arange(1, self.counts.size + 1)) / converged

    @property
    def largest(self) -> int | None:
        """Largest convergence@n; None if no replicate converged."""
        reached = self.counts.nonzero()[0]
        return int(reached[-1]) + 1 if reached.size else None


class TauCurve(NamedTuple):
    """Mean Kendall's tau_b against the gold ranking after n = 1..N trials; all of shape (N,).

    Values are masked where no replicate (for ``stderr``: fewer than two) has a tau_b; it does
    not exist when one side is all ties, nor below the estimator's first n.
    """

    label: str
    tau: Any  # masked float64
    stderr: Any  # masked float64: standard error of the mean over replicates
    defined: Ints  # replicates in the mean
    undefined: Ints  # replicates without a tau_b


class Study(NamedTuple):
    """What the compiled loops take, with the models in the order of the gold ranking."""

    source: npt.NDArray[Any]
    questions: int
    rank: Ints  # (models,): gold ranks of competition, ascending
    bank: bootstrap.Bank


def checked_stack(stack: npt.ArrayLike, models: Sequence[int] | None) -> npt.NDArray[np.uint8]:
    """Return the outcomes (models, questions, trials) of the models to rank, checked."""
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
    data = np.asarray(stack).astype(np.uint8)
    if models is not None:
        picked = [check_whole(model, "a position in models", least=0) for model in models]
        if len(set(picked)) != len(picked) or max(picked, default=0) >= shape[0]:
            raise ValueError(
                f"models is {list(models)!r}: pass different positions from 0 to {shape[0] - 1}"
            )
        data = data[picked]
    if data.shape[0] < 2:
        raise ValueError(f"there are {data.shape[0]} models to rank: pass at least two")
    return data


def check_estimators(estimators: Sequence[Estimator], trials: int) -> None:
    """Raise unless there are estimators, and all are defined for this many trials."""
    if not estimators:
        raise ValueError("estimators is empty: pass at least one, as in named('bayes')")
    for estimator in estimators:
        if not isinstance(estimator, Estimator):
            raise ValueError(
                f"estimators holds {estimator!r}: pass those of scoring.studies.estimators, as in"
                " named('bayes')"
            )
        if estimator.first > trials:
            raise ValueError(
                f"{estimator.label} needs {estimator.first} trials, but the stack has {trials}"
            )


def drawn_columns(resample: Resample, questions: int) -> int:
    """How many series of trials a replicate draws: one, or one for each question."""
    if resample not in ("columns", "rows"):
        raise ValueError(f'resample is {resample!r}: pass "columns" or "rows"')
    return 1 if resample == "columns" else questions


def best_first(gold: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Positions of the models from the highest gold score to the lowest."""
    return np.argsort(-gold, kind="stable")


def study_of(
    data: npt.NDArray[np.uint8], gold: npt.NDArray[Any], estimators: Sequence[Estimator]
) -> Study:
    """What the compiled loops need, with the models in the order of the gold scores."""
    check_estimators(estimators, data.shape[-1])
    best = best_first(gold)
    scores = gold[best]
    rank = 1 + (scores > scores[:, None]).sum(axis=-1)
    _, questions, trials = data.shape
    bank = bootstrap.bank(estimators, trials, questions)
    return Study(bootstrap.rows(data[best]), questions, rank, bank)


def chunks(
    work: Callable[[int, npt.NDArray[Any]], Result],
    data: npt.NDArray[Any],
    resample: Resample,
    replicates: int,
    seed: int,
    threads: int | None,
) -> Iterator[Result]:
    """Yield work(first replicate, its drawn trials) of every chunk, in order."""
    trials, columns = data.shape[-1], drawn_columns(resample, data.shape[1])
    check_whole(replicates, "replicates", least=1)
    check_whole(seed, "seed", least=0)
    if threads is None:
        affine = hasattr(os, "sched_getaffinity")
        threads = len(os.sched_getaffinity(0)) if affine else os.cpu_count() or 1
    size = bootstrap.chunk_size(trials, columns)

    def run(chunk: int) -> Result:
        count = min(size, replicates - chunk * size)
        return work(chunk * size, bootstrap.draw(seed, chunk, count, trials, columns))

    with ThreadPoolExecutor(check_whole(threads, "threads", least=1)) as pool:
        yield from pool.map(run, range(-(-replicates // size)))


def curves(estimators: Sequence[Estimator], sums: bootstrap.Sums) -> list[TauCurve]:
    """Curves from sums over replicates."""
    defined = sums.defined[:, 1:]
    error = np.sqrt(sums.squares[:, 1:] / np.maximum(defined - 1, 1) / np.maximum(defined, 1))
    tau = np.ma.array(sums.mean[:, 1:], mask=defined == 0)  # type: ignore[no-untyped-call]
    stderr = np.ma.array(error, mask=defined < 2)  # type: ignore[no-untyped-call]
    labels = [estimator.label for estimator in estimators]
    parts = (labels, tau, stderr, defined, sums.undefined[:, 1:])
    return [TauCurve(*curve) for curve in zip(*parts, strict=True)]
