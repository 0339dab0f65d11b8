"""What a run holds and how it scores so far, read bit by bit while workers write.

A finished part is read once, of a journal only what is new. Scores are of what `grade` has come
to. What stays in memory is a few dozen bytes an attempt.
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
_HEADLINE = ("value", "low", "high", "prior")  # of scores.json
_LISTINGS = 5  # of a folder in which journals are being sealed


@dataclass(frozen=True)
class RunningScore:
    """The headline of what is graded so far, over the questions that have some."""

    value: float
    low: float
    high: float
    prior: str  # as `scoring.score_prior` has it; "none": the value is avg
    avg: float
    confidence: float
    attempts: int


@dataclass
class _Shard:
    """The attempts of one part or journal, of `_COLUMNS`."""

    version: tuple[str, str] = ("", "")  # name and fingerprint of the file when it was read
    end: int = 0  # of what was read of a journal, in bytes
    rows: pa.Table = field(default_factory=_COLUMNS.empty_table)


class Counts:
    """The state of one run, whose questions are there, brought up to date by `look`.

    Attributes, M questions by N trials where nothing else is said:
        outcomes: by `grade` and `verify`, PENDING without one.
        stored: which attempts are there.
        short: stored ones that are to be continued, as the cap was raised.
        truncated, prompt, tokens: of stored attempts, 0 of others.
        finished: when stored ones were, in Unix seconds, by worker; unsorted.
        stale: why grades do not count; empty where they do.
        waiting: whether verdicts are: what is known without them is no fair sample.
    """

    def __init__(self, run: Run) -> None:
        self.run, self._ids = run, rowkeys.question_ids(run)
        self._shape = (len(run.questions), run.cfg.sampling.trials)
        self._shards: dict[str, _Shard] = {}  # by stem
        self.outcomes: Codes = np.full(self._shape, PENDING, np.int8)
        self.stale, self.waiting = "", False
        self._graded_versions: list[tuple[str, str]] = []
        self._place({})

    @property
    def graded(self) -> npt.NDArray[np.bool_]:
        """Mark the attempts that have an outcome."""
        known: npt.NDArray[np.bool_] = self.outcomes != PENDING
        return known

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Mark the attempts that are there; imported outcomes count where none came with them."""
        return self.stored & ~self.short if self.run.attempts.exists() else self.graded

    def look(self) -> None:
        """Read what is new. Raises OSError: when files are there and cannot be read."""
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
        self._place(files)

    def _read_outcomes(self) -> None:
        counted = [self.run.grades]
        counted += [self.run.path / "verdicts"] * bool(self.run.cfg.dataset.judge)
        versions = [_version(path) for folder in counted for path in shards.files(folder)]
        if versions:  # grades of what attempts are now
            versions += map(_version, shards.files(self.run.attempts))
        if versions == self._graded_versions:
            return
        self.outcomes, self.waiting, self.stale = np.full(self._shape, PENDING, np.int8), False, ""
        try:
            found = outcomes.read(self.run, quiet=True)
            self.outcomes = found.codes
            self.waiting = bool(((found.codes == PENDING) & (found.ruled != PENDING)).any())
        except Stale as error:
            self.stale = str(error)
        self._graded_versions = versions

    def _read(self, stem: str, path: Path) -> None:
        """Bring what is known of one file up to date."""
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

    def _place(self, files: dict[str, Path]) -> None:
        """Lay the shards over each other; the first of `files` counts, as for all readers."""
        limits = np.array([row["max_tokens"] for row in self.run.questions])
        raised = runfolder.was_raised(self.run)
        self.stored, self.short, self.truncated = np.zeros((3, *self._shape), np.bool_)
        self.prompt, self.tokens = np.zeros((2, *self._shape), np.int32)
        times: dict[str, list[Any]] = defaultdict(list)
        for stem in files:
            if stem not in self._shards:  # of another run
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

    `stored`: take what the stage stored where it is of what is there now, which spares SciPy, half
    a second; of many runs hashing their files takes longer than to score them.
    """
    begun, level = counts.graded.any(axis=1), counts.run.cfg.scoring.confidence
    if not begun.any() or counts.waiting:
        return None
    if stored and (found := _stored(counts.run)):
        return found
    matrix = correct(counts.outcomes)[begun]
    values: list[Any] = [headline(matrix, counts.run.cfg.scoring)[key] for key in _HEADLINE]
    values += [scoring.avg(matrix)[0], level, int(matrix.count())]
    return RunningScore(*values)


def _stored(run: Run) -> RunningScore | None:
    """Read the score that the stage stored, where it is of what is there now."""
    try:
        scores = runfolder.read_json(run.path / "scores.json") if current.is_current(run) else {}
    except UserError:  # a pipe or a folder in the place of a table
        return None
    if not (avg := scores.get("uniform_prior", {}).get("avg")):  # a question has no trial
        return None
    values: list[Any] = [scores["headline"][key] for key in _HEADLINE]
    values += [avg["mean"], scores["confidence"], scores["attempts"]]
    return RunningScore(*values)


def _version(path: Path) -> tuple[str, str]:
    return path.name, parquet.fingerprint(path)
