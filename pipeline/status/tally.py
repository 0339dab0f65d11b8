"""What a run holds and how it scores so far, read bit by bit while workers write.

A finished part is read once, of a journal only what is new. Scores are of what `grade` has come
to. What stays in memory is a few dozen bytes an attempt.
"""

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.journal import read
from bayes_at_n.pipeline.score import current
from bayes_at_n.pipeline.store import (
    origin,
    outcomes,
    parquet,
    rowkeys,
    runfolder,
    shards,
)
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, below, cut_off
from bayes_at_n.pipeline.store.outcomes import OWED, Codes, correct
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Stale

_LIGHT = [*KEY, "finish_reason", "prompt_tokens", "completion_tokens", "finished"]
_LISTINGS = 5  # of a folder in which journals are being sealed
_NOBODY = -1  # no shard holds this attempt
_ROW = np.dtype(  # times are Unix seconds
    {
        "names": ["key", "truncated", "short", "prompt", "tokens", "finished"],
        "formats": ["i8", "?", "?", "i4", "i4", "f8"],
    }
)


class RunningScore(NamedTuple):
    """avg and Bayes@N of what is graded so far; attempts that are owed are masked."""

    avg: float  # over the questions that have some, with the interval that covers
    avg_low: float
    avg_high: float
    mu: float  # Bayes@N
    low: float
    high: float
    shrinkage: float  # (mu - avg) / sigma of mu
    confidence: float
    attempts: int
    headline: str = "avg"  # as `scoring.headline`


@dataclass
class _Shard:
    """The attempts of one part or journal that are of the run."""

    version: tuple[str, str] = ("", "")  # name and fingerprint of the file when it was read
    end: int = 0  # of what was read of a journal, in bytes
    rows: npt.NDArray[np.void] = field(default_factory=lambda: np.empty(0, _ROW))


class Tally:
    """The state of one run as M×N arrays, brought up to date by `look`.

    The questions of the run must be there.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._ids = rowkeys.question_ids(run)
        self._limits = np.array([row["max_tokens"] for row in run.questions])
        self._raised = False
        self._shape = (len(run.questions), run.cfg.sampling.trials)
        self._shards: dict[str, _Shard] = {}  # by stem
        self.outcomes: Codes = np.full(self._shape, OWED, np.int8)  # by `grade` and `verify`
        self.stale = ""  # why grades do not count
        self.waiting = False  # for verdicts: what is known without them is no fair sample
        self._grade_versions: list[tuple[str, str]] = []
        self._assemble()

    def _assemble(self) -> None:
        """Lay the shards over each other; the first by name counts, as for all readers."""
        attempts = np.zeros(self._shape, _ROW)
        self._source = np.full(self._shape, _NOBODY)  # which shard, in the order of their names
        for number, stem in reversed(list(enumerate(self._stems()))):
            shard = self._shards[stem]
            _, cells = rowkeys.cells(shard.rows["key"], self._shape[1])
            attempts[cells], self._source[cells] = shard.rows, number
        self.graded = self.outcomes != OWED
        self.truncated, self.tokens = attempts["truncated"], attempts["tokens"]
        self.prompt, self.finished = attempts["prompt"], attempts["finished"]
        self.short = attempts["short"] & self._raised  # to be continued, as the cap was raised

    def _stems(self) -> list[str]:
        return sorted(self._shards, key=shards.place)

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which attempts are there; imported outcomes count where no attempts came with them."""
        stored: npt.NDArray[np.bool_] = (self._source != _NOBODY) & ~self.short
        return stored if self.run.attempts.exists() else self.graded

    def finish_times(self, worker: str) -> npt.NDArray[np.float64]:
        """When the attempts of one worker were finished, in Unix seconds; unsorted."""
        own = re.compile(rf"{re.escape(worker)}-\d+{shards.ENDINGS}")
        numbers = [i for i, stem in enumerate(self._stems()) if own.fullmatch(stem)]
        return self.finished[np.isin(self._source, numbers)]

    def look(self) -> None:
        """Read what is new. Raises OSError: when files are there and cannot be read."""
        self._raised = runfolder.was_raised(self.run)
        counted = [self.run.grades]
        counted += [self.run.path / "verdicts"] * bool(self.run.cfg.dataset.judge)
        versions = [_version(path) for folder in counted for path in shards.files(folder)]
        if versions:  # grades of what attempts are now
            versions += map(_version, shards.files(self.run.attempts))
        if versions != self._grade_versions:
            self.outcomes, self.waiting, self.stale = np.full(self._shape, OWED, np.int8), False, ""
            try:
                found = outcomes.read(self.run, quiet=True)
                self.outcomes = found.codes
                self.waiting = bool(((found.codes == OWED) & (found.ruled != OWED)).any())
            except Stale as error:
                self.stale = str(error)
            self._grade_versions = versions
        for _ in range(_LISTINGS):
            files = {shards.stem(path): path for path in shards.files(self.run.attempts)}
            self._shards = {stem: s for stem, s in self._shards.items() if stem in files}
            try:
                for stem, path in files.items():
                    self._read(stem, path)
                break
            except FileNotFoundError:
                continue  # sealed or set aside since the listing
        self._assemble()

    def _read(self, stem: str, path: Path) -> None:
        """Bring what is known of one file up to date."""
        old, now = self._shards.get(stem, _Shard()), _version(path)
        if now == old.version or origin.foreign(path):
            return
        if path.suffix == ".journal":
            shard = old if path.stat().st_size >= old.end else _Shard()
            batches, _, shard.end = read(path, ATTEMPTS, shard.end)
            new = self._rows(pa.Table.from_batches(batches, ATTEMPTS))
            shard.rows = np.concatenate([shard.rows, new])
        else:
            parts = parquet.read(path, ATTEMPTS, _LIGHT, parquet.Damage())
            light = pa.schema([ATTEMPTS.field(name) for name in _LIGHT])
            shard = _Shard(rows=self._rows(pa.Table.from_batches(parts, light)))
        shard.version = now
        self._shards[stem] = shard

    def _rows(self, table: pa.Table) -> npt.NDArray[np.void]:
        """The attempts of a table that are of the run."""
        keys = rowkeys.encode(table, self._ids)
        kept = rowkeys.cells(keys, self._shape[1])[0]
        rows = np.empty(kept.sum(), _ROW)
        rows["key"] = keys[kept]
        for name, column, null in (
            ("truncated", cut_off(table["finish_reason"]), False),
            ("prompt", table["prompt_tokens"], 0),
            ("tokens", table["completion_tokens"], 0),
            ("finished", table["finished"], 0.0),
        ):
            rows[name] = column.fill_null(null).to_numpy()[kept]
        limits = self._limits[rows["key"] >> 32]
        ends = (table[name].filter(kept) for name in ("finish_reason", "completion_tokens"))
        rows["short"] = below(limits, *ends).to_numpy()
        return rows


def scores(tallies: Sequence[Tally]) -> list[RunningScore | None]:
    """The running score of each run; None before its first outcome, or while verdicts are owed.

    Runs of one shape are scored in one call.
    """
    alike: dict[Any, list[int]] = defaultdict(list)
    found: list[RunningScore | None] = [None] * len(tallies)
    for i, tally in enumerate(tallies):
        begun, asked = (tally.outcomes != OWED).any(axis=1), tally.run.cfg.scoring
        if not begun.any() or tally.waiting:
            continue
        if len(tallies) == 1:  # of many, hashing their files takes longer than one call for all
            found[i] = _stored(tally.run)
        if found[i] is None:
            key = asked.confidence, asked.headline, tally.outcomes.shape, begun.tobytes()
            alike[key].append(i)
    if alike:
        from bayes_at_n.scoring.metrics.table import parse  # SciPy, which takes half a second
    for (level, headline, _, begun), places in alike.items():
        matrix = correct(np.stack([tallies[i].outcomes for i in places]))
        bayes = parse("bayes").summary(matrix, level)
        avg = parse("avg").summary(matrix[:, np.frombuffer(begun, bool)], level)
        moved = scoring.shrinkage(bayes.value, bayes.sigma, avg.value)
        parts = avg.value, *avg[2:], bayes.value, *bayes[2:], moved, matrix.count(axis=(1, 2))
        for i, (*ends, attempts) in zip(places, np.transpose(parts).tolist(), strict=True):
            found[i] = RunningScore._make([*ends, level, int(attempts), headline])
    return found


def _stored(run: Run) -> RunningScore | None:
    """Read the score that the stage stored, where it is of what is there now."""
    try:
        scores = runfolder.read_json(run.path / "scores.json") if current.is_current(run) else {}
    except UserError:  # a pipe or a folder in the place of a table
        return None
    bayes, avg = (scores.get("uniform_prior", {}).get(name) for name in ("bayes", "avg"))
    if not avg:  # a question has no trial
        return None
    values = [avg["mean"], avg["low"], avg["high"], bayes["mu"], bayes["low"], bayes["high"]]
    values += [bayes["shrinkage"], *(scores[key] for key in ("confidence", "attempts", "headline"))]
    return RunningScore._make(values)


def _version(path: Path) -> tuple[str, str]:
    return path.name, parquet.fingerprint(path)
