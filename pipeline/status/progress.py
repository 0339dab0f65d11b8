"""Progress of runs: finished and pending attempts, workers, cost, time left and the score so far.

Finished parts are read once. Scores cover the attempts that `grade` has reached. Memory: a few
dozen bytes per attempt.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n import scoring
from bayes_at_n.pipeline.prepare import sizing
from bayes_at_n.pipeline.score import headline
from bayes_at_n.pipeline.store import outcomes, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, below, cut_off
from bayes_at_n.pipeline.store.outcomes import PENDING, Codes, correct, price
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Stale
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.session import Worker, workers

_NAMES = [*KEY, "finish_reason", "prompt_tokens", "completion_tokens"]
_COLUMNS = pa.schema([ATTEMPTS.field(name) for name in _NAMES])
_HEADLINE = ("value", "low", "high", "prior")  # keys of scores.json
Mask = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int32]


@dataclass(frozen=True)
class RunningScore:
    """The headline score of the attempts graded so far, over questions that have any."""

    value: float
    low: float
    high: float
    prior: str  # as returned by `scoring.score_prior`; "none", "questions": avg@N
    avg: float
    confidence: float
    attempts: int


@dataclass(frozen=True)
class Counts:
    """The state of a prepared run; arrays of shape (M, N) for M questions of N trials."""

    run: Run
    outcomes: Codes  # from `grade` and `verify`; PENDING without one
    matrix: Any  # what is scored, see `Outcomes.matrix`
    stored: Mask
    short: Mask  # stored attempts to be continued because the token limit was raised
    truncated: Mask
    prompt: Ints  # tokens of stored attempts; 0 for others
    tokens: Ints
    stale: str = ""  # why grades do not count; empty if they do
    waiting: bool = False  # verdicts are pending; outcomes known before them are a biased sample

    @property
    def graded(self) -> Mask:
        """Mark the attempts that have an outcome."""
        graded: Mask = self.outcomes != PENDING
        return graded

    @property
    def done(self) -> Mask:
        """Mark finished attempts; in a run imported without attempts, those with an outcome."""
        return self.stored & ~self.short if self.run.attempts.exists() else self.graded


def count(run: Run) -> Counts:
    """Count a run's attempts; of duplicates the first counts, as for all readers.

    Raises OSError: a file cannot be read. UserError: the run is not prepared.
    """
    shape, ids = (len(run.questions), run.cfg.sampling.trials), tables.question_ids(run)
    codes, waiting, stale = np.full(shape, PENDING, np.int8), False, ""
    matrix = correct(codes)
    try:
        graded = outcomes.read(run, quiet=True)
        codes, matrix = graded.codes, graded.matrix
        # Of a judge that writes these may be undecided, and stay so.
        known = run.cfg.verifier.kind == "generate" or graded.ruled == PENDING
        waiting = bool(((codes == PENDING) & ~np.asarray(known)).any())
    except Stale as error:
        stale = str(error)
    limits = np.array([row["max_tokens"] for row in run.questions])
    raised = runfolder.was_raised(run)
    stored, short, truncated = np.zeros((3, *shape), np.bool_)
    prompt, tokens = np.zeros((2, *shape), np.int32)
    for path in shards.files(run.attempts):
        try:
            if shards.of_another_run(path):
                continue
            is_part = path.suffix == ".parquet"  # which never changes
            rows = _part(path, shards.fingerprint(path)) if is_part else _rows(path)
        except FileNotFoundError:
            return count(run)  # sealed or set aside since the listing
        kept, (question, trial) = tables.cells(tables.encode(rows, ids), shape[1])
        cells = question * shape[1] + trial
        _, first = np.unique(cells, return_index=True)
        new = first[~stored.ravel()[cells[first]]]
        rows, at = rows.filter(pa.array(kept)).take(new), (question[new], trial[new])
        ends, n = rows["finish_reason"], rows["completion_tokens"]
        stored[at] = True
        short[at] = below(limits[at[0]], ends, n).to_numpy() & raised
        truncated[at] = cut_off(ends).fill_null(False).to_numpy()
        prompt[at] = rows["prompt_tokens"].fill_null(0).to_numpy()
        tokens[at] = n.fill_null(0).to_numpy()
    return Counts(run, codes, matrix, stored, short, truncated, prompt, tokens, stale, waiting)


@lru_cache(maxsize=1 << 12)
def _part(path: Path, fingerprint: str) -> pa.Table:
    return _rows(path)


def _rows(path: Path) -> pa.Table:
    """Read the columns `_COLUMNS` of one file of attempts."""
    read = shards.read(path, ATTEMPTS, _NAMES, shards.Damage())
    return pa.Table.from_batches(read, _COLUMNS).combine_chunks()


def score(counts: Counts) -> RunningScore | None:
    """Return the running score; None before the first outcome, or while verdicts are pending."""
    has_outcome, level = counts.graded.any(axis=1), counts.run.cfg.scoring.confidence
    if not has_outcome.any() or counts.waiting:
        return None
    matrix = counts.matrix[has_outcome]
    values: list[Any] = [headline.compute(matrix, counts.run.cfg.scoring)[key] for key in _HEADLINE]
    values += [scoring.avg(matrix)[0], level, int(matrix.count())]
    return RunningScore(*values)


_SUMMED = ["done", "total", "pending", "in_flight", "workers_alive", "workers_dead", "tokens"]
_SUMMED += ["tokens_per_s", "gpu_hours", "attempts_per_s", "ungraded"]


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The progress of one run, or the total of several; `--json` prints these fields."""

    run: str = ""  # its folder
    model: str = ""
    dataset: str = ""
    done: int = 0
    total: int = 0
    pending: int = 0
    in_flight: int = 0
    workers_alive: int = 0
    workers_dead: int = 0
    tokens: int = 0  # sampled, in stored attempts
    truncated: float = 0.0  # share of finished attempts
    tokens_per_s: float = 0.0
    # At the current rate; None while no worker finishes anything. For several runs it assumes that
    # the workers of one go on to the next.
    seconds_left: float | None = 0
    gpu_hours: float = 0.0
    gpu_hours_left: float | None = 0.0  # at the GPU time per attempt so far; None: unknown
    price: float | None = None  # of stored attempts; None: no prices set, or tokens unknown
    price_total: float | None = None  # of all, if pending ones are as long; None: unknown
    budget: dict[str, Any] = field(default_factory=dict)  # from `workers.spent.account`
    score: RunningScore | None = None
    workers: list[Worker] = field(default_factory=list)
    fault: str | None = None  # why the run could not be read
    name: str = ""  # unique among the runs listed
    ungraded: int = 0  # finished attempts without an outcome
    stale: str = ""  # why grades do not count
    continues: str = ""  # a remark on truncated attempts to be continued and on suspect ones
    attempts_per_s: float = 0.0  # of live workers

    @property
    def is_finished(self) -> bool:
        """Whether nothing is pending and no worker is alive."""
        return self.fault is None and not (self.pending or self.workers_alive)

    def record(self) -> dict[str, Any]:
        """Return plain JSON values, without price and budget if none is set."""
        absent = {"price", "price_total"} if self.price is None else set()
        absent |= set() if self.budget else {"budget"}
        return {key: value for key, value in asdict(self).items() if key not in absent}


def progress_of(name: str, counts: Counts, score: RunningScore | None = None) -> Progress:
    """Compute the progress of a run from its counts and its workers' records.

    Raises OSError: a folder cannot be read.
    """
    run, done, all_workers = counts.run, counts.done, workers(counts.run.path)
    pending, alive = int((~done).sum()), [worker for worker in all_workers if worker.alive]
    attempts = sum(worker.attempts for worker in all_workers)
    gpu_hours = sum(worker.gpu_s for worker in all_workers) / 3600
    gpu_hours_left = pending * gpu_hours / attempts if attempts and gpu_hours else None
    rate, paid = sum(one.attempts / one.wall_s for one in alive if one.wall_s), None
    prompts, completions = counts.prompt[done], counts.tokens[done]
    if prompts.all() and completions.all():  # known counts are at least 1
        paid = price(run.cfg.engine, int(prompts.sum()), int(completions.sum()))
    continues = sizing.continued_in_words(run.cfg, counts.tokens[counts.short].tolist())
    return Progress(
        name=name,
        run=str(run.path),
        model=run.cfg.model.name,
        dataset=run.cfg.dataset.name,
        done=done.size - pending,
        total=done.size,
        pending=pending,
        in_flight=min(sum(worker.in_flight for worker in alive), pending),
        workers_alive=len(alive),
        workers_dead=sum(worker.state == "dead" for worker in all_workers),
        tokens=int(counts.tokens.sum()),
        truncated=float(counts.truncated[done].mean()) if done.any() else 0.0,
        tokens_per_s=round(sum(worker.tokens_per_s for worker in alive), 1),
        seconds_left=_seconds(pending, rate),
        gpu_hours=round(gpu_hours, 4),
        gpu_hours_left=gpu_hours_left and round(gpu_hours_left, 4) if pending else 0.0,
        price=paid,
        price_total=None if paid is None or not done.any() else paid * done.size / done.sum(),
        budget=spent.account(run.cfg, spent.spent([run])) if run.cfg.budget.given else {},
        score=score,
        workers=all_workers,
        ungraded=int((done & ~counts.graded).sum()),
        stale=counts.stale,
        continues="; ".join(filter(None, (continues, runfolder.suspects(run)))),
        attempts_per_s=rate,
    )


def _seconds(pending: int, rate: float) -> float | None:
    return 0 if not pending else round(pending / rate) if rate else None


def total_of(runs: Sequence[Progress]) -> Progress:
    """Add up several runs, without a score; return a single run unchanged."""
    if len(runs) == 1:
        return runs[0]
    sums = {name: sum(getattr(run, name) for run in runs) for name in _SUMMED}
    for name in ("gpu_hours_left", "price", "price_total"):  # None if unknown for any readable run
        parts = [getattr(run, name) for run in runs if run.fault is None]
        sums[name] = sum(parts) if parts and None not in parts else None
    return Progress(
        name=f"{len(runs)} runs",
        **sums,
        seconds_left=_seconds(sums["pending"], sums["attempts_per_s"]),
        fault=runs[0].fault if all(run.fault is not None for run in runs) else None,
    )
