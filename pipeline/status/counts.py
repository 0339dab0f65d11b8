"""Count the attempts of a run and score it so far, while workers write.

Finished parts are read once. Scores cover the attempts that `grade` has reached. Memory: a few
dozen bytes per attempt.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n import scoring
from bayes_at_n.pipeline.score import headline
from bayes_at_n.pipeline.store import outcomes, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, below, cut_off
from bayes_at_n.pipeline.store.outcomes import PENDING, Codes, correct
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Stale

_NAMES = [*KEY, "finish_reason", "prompt_tokens", "completion_tokens", "finished"]
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
    finished: dict[str, npt.NDArray[np.float64]]  # Unix seconds of attempts, by worker; unsorted
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
    times: dict[str, list[Any]] = defaultdict(list)
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
        times[shards.worker_of(path)].append(rows["finished"].fill_null(0.0).to_numpy())
    finished = {worker: np.concatenate(parts) for worker, parts in times.items()}
    counted = (stored, short, truncated, prompt, tokens)
    return Counts(run, codes, matrix, *counted, finished, stale, waiting)


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
