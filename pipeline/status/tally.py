"""What a run holds and how it scores so far, read bit by bit while workers write.

A finished part is read once, of a journal only what is new. Attempts that `grade` has not come to
are graded here, in memory: every distinct answer once, and nothing is written. What stays in memory
is a few dozen bytes an attempt; of texts only the answers.
"""

import re
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.journal import read_on
from bayes_at_n.pipeline.grade import known
from bayes_at_n.pipeline.grade.known import Pair
from bayes_at_n.pipeline.store import (
    origin,
    outcomes,
    parquet,
    rowkeys,
    runfolder,
    shards,
    workernames,
)
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, below, cut_off
from bayes_at_n.pipeline.store.outcomes import OUTCOMES, OWED, Codes, correct
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Stale
from bayes_at_n.scoring.metrics.table import parse

_LIGHT = [*KEY, "finish_reason", "prompt_tokens", "completion_tokens", "finished"]
_FEW, _QUICK_S = 4, 0.5  # answers compared before the first look at the clock; a short time
_LISTINGS = 5  # of a folder in which journals are being sealed
_NOBODY = -1  # no shard holds this attempt
_ROW = np.dtype(  # the outcome is what is found here; times are Unix seconds
    {
        "names": ["key", "truncated", "short", "prompt", "tokens", "finished", "outcome"],
        "formats": ["i8", "?", "?", "i4", "i4", "f8", "i1"],
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
    part: Path | None = None  # while its texts are to be read
    rows: npt.NDArray[np.void] = field(default_factory=lambda: np.empty(0, _ROW))
    pairs: dict[int, Pair] = field(default_factory=dict)  # by row: answers to be compared


class Tally:
    """The state of one run as M×N arrays, brought up to date by `look`, `read_texts`, `judge`.

    The questions of the run must be there.
    """

    def __init__(self, run: Run) -> None:
        self.run = run
        self._ids = rowkeys.question_ids(run)
        self._limits = np.array([row["max_tokens"] for row in run.questions])
        self._raised = False
        self._shape = (len(run.questions), run.cfg.sampling.trials)
        self._shards: dict[str, _Shard] = {}  # by stem
        self._grades: Codes = np.full(self._shape, OWED, np.int8)  # by `grade` and `verify`
        self.stale = ""  # why grades do not count
        self.waiting = False  # for verdicts: what is known without them is no fair sample
        self._grade_versions: list[tuple[str, str]] = []
        self._assemble()

    def _assemble(self) -> None:
        """Lay the shards over each other; the first by name counts, as for all readers."""
        attempts = np.zeros(self._shape, _ROW)
        attempts["outcome"] = OWED
        self._source: rowkeys.Ints = np.full(
            self._shape, _NOBODY
        )  # which shard, in the order of their names
        for number, stem in reversed(list(enumerate(self._stems()))):
            shard = self._shards[stem]
            cells = self._cells(shard.rows["key"])
            attempts[cells], self._source[cells] = shard.rows, number
        self.graded = self._grades != OWED
        self.outcomes: Codes = np.where(self.graded, self._grades, attempts["outcome"])
        self.truncated, self.tokens = attempts["truncated"], attempts["tokens"]
        self.prompt, self.finished = attempts["prompt"], attempts["finished"]
        self.short = attempts["short"] & self._raised  # to be continued, as the cap was raised

    def _stems(self) -> list[str]:
        return sorted(self._shards, key=shards.place)

    def _cells(self, keys: rowkeys.Ints) -> tuple[rowkeys.Ints, rowkeys.Ints]:
        return rowkeys.cells(keys, self._shape[1])[1]

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which attempts are there; imported outcomes count where no attempts came with them."""
        stored: npt.NDArray[np.bool_] = (self._source != _NOBODY) & ~self.short
        return stored if self.run.attempts.exists() else self.graded

    @property
    def unread(self) -> int:
        """Attempts whose outcome is not known yet."""
        return int((self.done & (self.outcomes == OWED)).sum()) if self._judging else 0

    @property
    def _judging(self) -> bool:
        """Whether attempts are graded here: no whole texts, to be kept, nothing for a verifier."""
        return not known.whole(self.run.cfg) and self.run.cfg.dataset.judge is None

    def finish_times(self, worker: str) -> npt.NDArray[np.float64]:
        """When the attempts of one worker were finished, in Unix seconds; unsorted."""
        own = re.compile(rf"{re.escape(worker)}-\d+{workernames.ENDINGS}")
        numbers = [i for i, stem in enumerate(self._stems()) if own.fullmatch(stem)]
        return self.finished[np.isin(self._source, numbers)]

    def look(self) -> None:
        """Read what is new: all but the texts in finished parts.

        Raises OSError: when files are there and cannot be read.
        """
        self._raised = runfolder.was_raised(self.run)
        counted = [self.run.grades]
        counted += [self.run.path / "verdicts"] * bool(self.run.cfg.dataset.judge)
        versions = [_version(path) for folder in counted for path in shards.files(folder)]
        if versions:  # grades of what attempts are now
            versions += map(_version, shards.files(self.run.attempts))
        if versions != self._grade_versions:
            self._grades, self.waiting, self.stale = np.full(self._shape, OWED, np.int8), False, ""
            try:
                found = outcomes.read(self.run, quiet=True)
                self._grades = found.codes
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

    def read_texts(self, stop: Callable[[], bool]) -> bool:
        """Find the answers in parts; False when `stop` said so before all were read.

        Raises OSError: when files are there and cannot be read.
        """
        for shard in self._shards.values():
            if shard.part is None or not self._unknown(shard).any():
                continue
            try:
                for batch in parquet.read(shard.part, ATTEMPTS, [*KEY, "text"], parquet.Damage()):
                    self._extract(shard, batch)
                    if stop():
                        return False
            except FileNotFoundError:
                continue  # set aside: the next look notices
            shard.part = None
        return True

    def judge(self, stop: Callable[[], bool]) -> bool:
        """Compare the answers found so far with their gold answers; False when stopped before.

        Raises UserError: worker processes cannot be started.
        """
        waiting = [(shard, row) for shard in self._shards.values() for row in shard.pairs]
        size = _FEW
        while waiting and not stop():
            began = time.monotonic()
            chunk, waiting = waiting[:size], waiting[size:]
            pairs = [shard.pairs[row] for shard, row in chunk]
            grades = known.KnownGrades(self.run.cfg).pairs(pairs)
            for (shard, row), grade in zip(chunk, grades, strict=True):
                question = self.run.questions[int(shard.rows["key"][row]) >> 32]
                formed = known.in_form(grade, shard.pairs.pop(row), question)
                shard.rows["outcome"][row] = OUTCOMES.index(formed.outcome)
            if time.monotonic() - began < _QUICK_S:  # most are; a hard one takes seconds
                size *= 4
        self._assemble()
        return not waiting

    def _read(self, stem: str, path: Path) -> None:
        """Bring what is known of one file up to date."""
        old, now = self._shards.get(stem, _Shard()), _version(path)
        if now == old.version or origin.foreign(path):
            return
        if path.suffix == ".journal":
            shard = old if path.stat().st_size >= old.end else _Shard()
            batches, shard.end = read_on(path, ATTEMPTS, shard.end)
            table = pa.Table.from_batches(batches, ATTEMPTS)
            shard.rows = np.concatenate([shard.rows, self._rows(table)])
            self._extract(shard, table)
        else:
            shard = _Shard(part=path if self._judging else None)
            parts = parquet.read(path, ATTEMPTS, _LIGHT, parquet.Damage())
            light = pa.schema([ATTEMPTS.field(name) for name in _LIGHT])
            shard.rows = self._rows(pa.Table.from_batches(parts, light))
            rows = rowkeys.rows_of(shard.rows["key"], old.rows["key"])  # of its journal, or -1
            shard.rows["outcome"] = np.append(old.rows["outcome"], np.int8(OWED))[rows]
        shard.version = now
        self._shards[stem] = shard

    def _rows(self, table: pa.Table) -> npt.NDArray[np.void]:
        """The attempts of a table that are of the run, without outcomes."""
        keys = rowkeys.encode(table, self._ids)
        kept = rowkeys.cells(keys, self._shape[1])[0]
        rows = np.empty(kept.sum(), _ROW)
        rows["key"], rows["outcome"] = keys[kept], OWED
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

    def _unknown(self, shard: _Shard) -> npt.NDArray[np.bool_]:
        """Of which attempts of a shard nobody knows the outcome."""
        owed = self._grades[self._cells(shard.rows["key"])] == OWED
        unknown: npt.NDArray[np.bool_] = owed & (shard.rows["outcome"] == OWED)
        return unknown

    def _extract(self, shard: _Shard, table: pa.Table | pa.RecordBatch) -> None:
        """The answers of attempts whose outcome nobody knows."""
        if not self._judging:
            return
        unknown = self._unknown(shard)
        rows = rowkeys.rows_of(rowkeys.encode(table, self._ids), shard.rows["key"])
        for row, text in zip(rows.tolist(), table["text"], strict=True):
            if row < 0 or not unknown[row]:
                continue
            key, truncated = int(shard.rows["key"][row]), bool(shard.rows["truncated"][row])
            question = self.run.questions[key >> 32]
            trial = key & 0xFFFFFFFF
            attempt = known.attempt(self.run.cfg, question, trial, text.as_py() or "", truncated)
            found = known.find(self.run.cfg, attempt)
            if found.answer is None:
                named = found.reason if found.reason in OUTCOMES else "no_answer"
                shard.rows["outcome"][row] = OUTCOMES.index(named)
            else:
                shard.pairs[row] = (attempt.gold, found.answer)


def scores(tallies: Sequence[Tally]) -> list[RunningScore | None]:
    """The running score of each run; None before its first outcome, or while verdicts are owed.

    Runs of one shape are scored in one call.
    """
    alike: dict[Any, list[int]] = defaultdict(list)
    for i, tally in enumerate(tallies):
        begun, asked = (tally.outcomes != OWED).any(axis=1), tally.run.cfg.scoring
        if begun.any() and not tally.waiting:
            key = asked.confidence, asked.headline, tally.outcomes.shape, begun.tobytes()
            alike[key].append(i)
    found: list[RunningScore | None] = [None] * len(tallies)
    for (level, headline, _, begun), places in alike.items():
        matrix = correct(np.stack([tallies[i].outcomes for i in places]))
        bayes = parse("bayes").summary(matrix, level)
        avg = parse("avg").summary(matrix[:, np.frombuffer(begun, bool)], level)
        moved = scoring.shrinkage(bayes.value, bayes.sigma, avg.value)
        parts = avg.value, *avg[2:], bayes.value, *bayes[2:], moved, matrix.count(axis=(1, 2))
        for i, (*ends, attempts) in zip(places, np.transpose(parts).tolist(), strict=True):
            found[i] = RunningScore._make([*ends, level, int(attempts), headline])
    return found


def _version(path: Path) -> tuple[str, str]:
    return path.name, parquet.fingerprint(path)
