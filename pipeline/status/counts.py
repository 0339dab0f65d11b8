"""Count the attempts of a run and score it so far, incrementally, while workers write.

A finished part is read once, and only the new end of a journal. Scores cover the attempts that
`grade` has reached. Memory: a few dozen bytes per attempt.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n import scoring
from bayes_at_n.pipeline.base import journal
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.score import current
from bayes_at_n.pipeline.score.headline import headline
from bayes_at_n.pipeline.store import origin, outcomes, parquet, rowkeys, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, below, cut_off
from bayes_at_n.pipeline.store.outcomes import PENDING, Codes, correct
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Stale

_NAMES = [*KEY, "finish_reason", "prompt_tokens", "completion_tokens", "finished"]
_COLUMNS = pa.schema([ATTEMPTS.field(name) for name in _NAMES])
_HEADLINE = ("value", "low", "high", "prior")  # keys of scores.json
_LISTINGS = 5  # tries to list a folder in which journals are being sealed


@dataclass(frozen=True)
class RunningScore:
    """The headline score of the attempts graded so far, over questions that have any."""

    value: float
    low: float
    high: float
    prior: str  # as returned by `scoring.score_prior`; "none": the value is avg@N
    avg: float
    confidence: float
    attempts: int


@dataclass
class _Shard:
    """The attempts of one part or journal, with columns `_COLUMNS`."""

    version: tuple[str, str] = ("", "")  # name and fingerprint of the file when it was read
    end: int = 0  # bytes of a journal that were read
    rows: pa.Table = field(default_factory=_COLUMNS.empty_table)


class Counts:
    """The state of one prepared run, brought up to date by `refresh`.

    Attributes, arrays of shape (M, N) for M questions of N trials:
        outcomes: codes from `grade` and `verify`; PENDING without one.
        stored: which attempts are stored.
        short: stored attempts to be continued because the token limit was raised.
        truncated, prompt, tokens: of stored attempts; 0 for others.
        finished: by worker, when its attempts finished, in Unix seconds; unsorted.
        stale: why grades do not count; empty if they do.
        waiting: whether verdicts are pending; outcomes known before them are a biased sample.
    """

    def __init__(self, run: Run) -> None:
        self.run, self._ids = run, rowkeys.question_ids(run)
        self._shape = (len(run.questions), run.cfg.sampling.trials)
        self._shards: dict[str, _Shard] = {}  # by stem
        self.outcomes: Codes = np.full(self._shape, PENDING, np.int8)
        self.matrix: Any = correct(self.outcomes)
        self.stale, self.waiting = "", False
        self._graded_versions: list[tuple[str, str]] = []
        self._merge_shards({})

    @property
    def graded(self) -> npt.NDArray[np.bool_]:
        """Mark the attempts that have an outcome."""
        graded: npt.NDArray[np.bool_] = self.outcomes != PENDING
        return graded

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Mark finished attempts; in a run imported without attempts, those with an outcome."""
        return self.stored & ~self.short if self.run.attempts.exists() else self.graded

    def refresh(self) -> None:
        """Read what is new. Raises OSError: a file cannot be read."""
        self._read_outcomes()
        for _ in range(_LISTINGS):
            files = {shards.stem(path): path for path in shards.files(self.run.attempts)}
            self._shards = {stem: s for stem, s in self._shards.items() if stem in files}
            try:
                for stem, path in files.items():
                    self._read(stem, path)
                break
            except FileNotFoundError:
                continue  # sealed or set aside since the listing
        self._merge_shards(files)

    def _read_outcomes(self) -> None:
        folders = [self.run.grades]
        folders += [self.run.path / "verdicts"] * bool(self.run.cfg.dataset.judge)
        versions = [_version(path) for folder in folders for path in shards.files(folder)]
        if versions:  # new attempts can make grades stale
            versions += map(_version, shards.files(self.run.attempts))
        if versions == self._graded_versions:
            return
        self.outcomes, self.waiting, self.stale = np.full(self._shape, PENDING, np.int8), False, ""
        try:
            graded = outcomes.read(self.run, quiet=True)
            self.outcomes, self.matrix = graded.codes, graded.matrix
            pending = ((graded.codes == PENDING) & (graded.ruled != PENDING)).any()
            # Of a judge that writes these may be undecided, and stay so.
            self.waiting = bool(pending) and self.run.cfg.verifier.kind != "generate"
        except Stale as error:
            self.stale = str(error)
        self._graded_versions = versions

    def _read(self, stem: str, path: Path) -> None:
        """Read what is new in one file."""
        old, now = self._shards.get(stem, _Shard()), _version(path)
        if now == old.version or origin.of_another_run(path):
            return
        if path.suffix == ".journal":
            old = old if path.stat().st_size >= old.end else _Shard()
            batches, _, end = journal.read(path, ATTEMPTS, old.end)
            new = pa.Table.from_batches(batches, ATTEMPTS).select(_NAMES)
            shard = _Shard(now, end, pa.concat_tables([old.rows, new.combine_chunks()]))
        else:
            parts = parquet.read(path, ATTEMPTS, _NAMES, parquet.Damage())
            shard = _Shard(now, rows=pa.Table.from_batches(parts, _COLUMNS))
        self._shards[stem] = shard

    def _merge_shards(self, files: dict[str, Path]) -> None:
        """Merge the shards; of duplicates the first in `files` counts, as for all readers."""
        limits = np.array([row["max_tokens"] for row in self.run.questions])
        raised = runfolder.was_raised(self.run)
        self.stored, self.short, self.truncated = np.zeros((3, *self._shape), np.bool_)
        self.prompt, self.tokens = np.zeros((2, *self._shape), np.int32)
        times: dict[str, list[Any]] = defaultdict(list)
        for stem in files:
            if stem not in self._shards:  # it belongs to another run
                continue
            rows = self._shards[stem].rows
            kept, (question, trial) = rowkeys.cells(rowkeys.encode(rows, self._ids), self._shape[1])
            cells = question * self._shape[1] + trial
            _, first = np.unique(cells, return_index=True)
            new = first[~self.stored.ravel()[cells[first]]]
            rows, at = rows.filter(pa.array(kept)).take(new), (question[new], trial[new])
            ends, tokens = rows["finish_reason"], rows["completion_tokens"]
            self.stored[at] = True
            self.short[at] = below(limits[at[0]], ends, tokens).to_numpy() & raised
            self.truncated[at] = cut_off(ends).fill_null(False).to_numpy()
            self.prompt[at] = rows["prompt_tokens"].fill_null(0).to_numpy()
            self.tokens[at] = tokens.fill_null(0).to_numpy()
            finished = rows["finished"].fill_null(0.0).to_numpy()
            times[shards.worker_of(files[stem])].append(finished)
        self.finished = {worker: np.concatenate(parts) for worker, parts in times.items()}


def score(counts: Counts, stored: bool = False) -> RunningScore | None:
    """Return the running score; None before the first outcome, or while verdicts are pending.

    `stored`: use the score that the `score` stage stored if it is current, which saves importing
    SciPy (half a second); for many runs hashing their files takes longer than scoring them.
    """
    has_outcome, level = counts.graded.any(axis=1), counts.run.cfg.scoring.confidence
    if not has_outcome.any() or counts.waiting:
        return None
    if stored and (running_score := _stored_score(counts.run)):
        return running_score
    matrix = counts.matrix[has_outcome]
    values: list[Any] = [headline(matrix, counts.run.cfg.scoring)[key] for key in _HEADLINE]
    values += [scoring.avg(matrix)[0], level, int(matrix.count())]
    return RunningScore(*values)


def _stored_score(run: Run) -> RunningScore | None:
    """Read the score that the `score` stage stored; None if it is not current."""
    try:
        scores = runfolder.read_json(run.path / "scores.json") if current.is_current(run) else {}
    except UserError:  # a pipe or a folder instead of a table
        return None
    if not (avg := scores.get("uniform_prior", {}).get("avg")):  # a question has no trial
        return None
    values: list[Any] = [scores["headline"][key] for key in _HEADLINE]
    values += [avg["mean"], scores["confidence"], scores["attempts"]]
    return RunningScore(*values)


def _version(path: Path) -> tuple[str, str]:
    return path.name, parquet.fingerprint(path)
