"""What a run holds and how it scores so far, read bit by bit while workers write.

A finished part is read once, of a journal only what is new. Attempts that `grade` has not come to
are graded here, in memory: every distinct answer once, and nothing is written. What stays in memory
is a few dozen bytes an attempt; of texts only the answers.
"""

import itertools
import json
import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import scoring
import verifiers
from pipeline.base.journal import read_on
from pipeline.config.settings import RunConfig
from pipeline.grade import known
from pipeline.grade.known import KnownGrades, Pair
from pipeline.store import rowkeys, shards
from pipeline.store.columns import ATTEMPTS, GRADES, KEY
from pipeline.store.outcomes import NO_ANSWER, OUTCOMES, OWED, Codes, coded, correct
from pipeline.store.runfolder import Run

_LIGHT = [*KEY, "finish_reason", "completion_tokens", "finished"]
_TEXTS = [*KEY, "finish_reason", "text"]
_FEW, _QUICK_S = 4, 0.5  # answers compared before the first look at the clock; a short time
_LISTINGS = 5  # of a folder in which journals are being sealed
_NOBODY = -1  # no shard holds this attempt

Judges = dict[str, KnownGrades]
Cells = tuple[rowkeys.Ints, rowkeys.Ints]


class RunningScore(NamedTuple):
    """Bayes@N of what is graded so far; attempts that are owed are masked."""

    mu: float
    low: float
    high: float
    confidence: float
    attempts: int


class Tally:
    """The state of one run as M×N arrays, brought up to date by `look`, `read_texts`, `judge`.

    Args:
        run: the run; its questions must be there.
        judges: grades known in memory, shared by all runs that are looked at.
    """

    def __init__(self, run: Run, judges: Judges) -> None:
        self.run, self._judges = run, judges
        self.ids = rowkeys.question_ids(run)
        self._golds = [row["gold"] for row in run.questions]
        self._forget()

    def _forget(self) -> None:
        shape = (len(self._golds), self.run.cfg.sampling.trials)
        self.outcomes: Codes = np.full(shape, OWED, np.int8)
        self.graded = np.zeros(shape, bool)  # by `grade`
        self.truncated = np.zeros(shape, bool)
        self.tokens = np.zeros(shape, np.int64)
        self.finished = np.zeros(shape)  # Unix seconds
        self._source = np.full(shape, _NOBODY, np.int32)  # which shard, in the list below
        self._shards: list[str] = []  # stems
        self._seen: dict[str, tuple[str, int, int]] = {}  # file -> kind, size, change or offset
        self._texts: dict[str, Path] = {}  # parts some of whose texts are to be read, by stem
        self._pairs: dict[tuple[int, int], Pair] = {}  # (gold, answer) that wait to be compared

    @property
    def done(self) -> npt.NDArray[np.bool_]:
        """Which attempts are there; imported outcomes count where no attempts came with them."""
        return self._source != _NOBODY if self.run.attempts.exists() else self.graded

    @property
    def unread(self) -> int:
        """Attempts whose outcome is not known yet."""
        return int((self.done & (self.outcomes == OWED)).sum()) if self.judging else 0

    @property
    def judging(self) -> bool:
        """Whether attempts are graded here: not by whole texts, which would have to be kept."""
        return self.run.cfg.grading.compat is None

    def score(self) -> RunningScore | None:
        """The running score, or None before the first outcome."""
        attempts = int((self.outcomes != OWED).sum())
        if not attempts:
            return None
        confidence = self.run.cfg.scoring.confidence
        mu, _, low, high = scoring.bayes_ci(
            correct(self.outcomes), confidence=confidence, bounds=(0.0, 1.0)
        )
        return RunningScore(float(mu), float(low), float(high), confidence, attempts)

    def finish_times(self, worker: str) -> npt.NDArray[np.float64]:
        """When the attempts of one worker were finished, in Unix seconds; unsorted."""
        own = re.compile(rf"{re.escape(worker)}-\d+(-sound)*")
        numbers = [i for i, stem in enumerate(self._shards) if own.fullmatch(stem)]
        return self.finished[np.isin(self._source, numbers)]

    def look(self) -> None:
        """Read what is new: all but the texts in finished parts.

        Raises:
            OSError: when files are there and cannot be read.
        """
        grades, attempts = shards.files(self.run.grades), shards.files(self.run.attempts)
        stems = {shards.stem(path) for path in attempts}
        gone = {name for name in self._seen if name.startswith("grades/")}
        gone -= {f"grades/{path.name}" for path in grades}
        if gone or not stems.issuperset(self._shards):
            self._forget()  # grades for other settings, or attempts set aside as damaged
        for path in grades:
            if (mark := self._changed(f"grades/{path.name}", path)) is not None:
                self._read_grades(path)
                self._seen[f"grades/{path.name}"] = mark
        for _ in range(_LISTINGS):
            if all([self._read_attempts(path) for path in attempts]):
                break
            attempts = shards.files(self.run.attempts)

    def read_texts(self, stop: Callable[[], bool]) -> bool:
        """Find the answers in parts; False when `stop` said so before all were read.

        Raises:
            OSError: when files are there and cannot be read.
        """
        for stem, path in list(self._texts.items()):
            if not ((self._source == self._shards.index(stem)) & (self.outcomes == OWED)).any():
                del self._texts[stem]  # graded by now
                continue
            try:
                for batch in shards.read(path, ATTEMPTS, _TEXTS, shards.Damage()):
                    self._extract(batch, self._shards.index(stem))
                    if stop():
                        return False
            except FileNotFoundError:
                pass  # set aside: the next look notices
            del self._texts[stem]
        return True

    def judge(self, stop: Callable[[], bool]) -> bool:
        """Compare the answers found so far with their gold answers; False when stopped before.

        Raises:
            UserError: worker processes cannot be started.
        """
        size = _FEW
        while self._pairs:
            if stop():
                return False
            began = time.monotonic()
            pairs = dict(itertools.islice(self._pairs.items(), size))
            grades = _judge(self.run.cfg, self._judges).pairs(list(pairs.values()))
            for cell, grade in zip(pairs, grades, strict=True):
                self.outcomes[cell] = OUTCOMES.index(grade.outcome)
                del self._pairs[cell]
            if time.monotonic() - began < _QUICK_S:  # most are; a hard one takes seconds
                size *= 4
        return True

    def _changed(self, name: str, path: Path) -> tuple[str, int, int] | None:
        """What a part is known by, or None for one that was read."""
        status = path.stat()
        mark = ("part", status.st_size, status.st_mtime_ns)
        return None if self._seen.get(name) == mark else mark

    def _read_grades(self, path: Path) -> None:
        for batch in shards.read(path, GRADES, [*KEY, "outcome"], shards.Damage()):
            rows, cells = self._cells(batch)
            self.outcomes[cells] = coded(batch["outcome"], OUTCOMES)[rows]
            self.graded[cells] = True

    def _read_attempts(self, path: Path) -> bool:
        """Read what is new in one file; False when it was sealed since the listing."""
        stem = shards.stem(path)
        try:
            if path.suffix == ".journal":
                self._read_journal(path, stem)
            elif (mark := self._changed(stem, path)) is not None:
                shard = self._number(stem)  # also where no row can be read
                for batch in shards.read(path, ATTEMPTS, _LIGHT, shards.Damage()):
                    self._take(batch, shard)
                if self.judging:
                    self._texts[stem] = path
                self._seen[stem] = mark
        except FileNotFoundError:
            return False
        return True

    def _read_journal(self, path: Path, stem: str) -> None:
        size = path.stat().st_size
        _, before, start = self._seen.get(stem, ("journal", -1, 0))
        if size == before:
            return
        batches, end = read_on(path, ATTEMPTS, start if size >= start else 0)
        shard = self._number(stem)
        for batch in batches:
            self._take(batch, shard)
            if self.judging:
                self._extract(batch, shard)
        self._seen[stem] = ("journal", size, end)

    def _cells(self, batch: pa.RecordBatch) -> tuple[rowkeys.Ints, Cells]:
        """Which rows are of the run's questions and trials, and where those are."""
        kept, cells = rowkeys.cells(rowkeys.encode(batch, self.ids), self.outcomes.shape[1])
        return np.flatnonzero(kept), cells

    def _number(self, stem: str) -> int:
        if stem not in self._shards:
            self._shards.append(stem)
        return self._shards.index(stem)

    def _take(self, batch: pa.RecordBatch, shard: int) -> None:
        """Count rows; of two with one key that of the first shard by name, as all readers do."""
        rows, (questions, trials) = self._cells(batch)
        yields = np.array([stem >= self._shards[shard] for stem in self._shards])
        holder = self._source[questions, trials]
        wins = (holder == _NOBODY) | yields[holder]
        rows, cells = rows[wins], (questions[wins], trials[wins])
        for question, trial, other in zip(*cells, holder[wins], strict=True):
            if other not in (_NOBODY, shard) and not self.graded[question, trial]:
                self.outcomes[question, trial] = OWED  # it was another worker's attempt
                self._pairs.pop((int(question), int(trial)), None)
        self._source[cells] = shard
        self.truncated[cells] = _values(batch["finish_reason"], rows, "") == "length"
        self.tokens[cells] = _values(batch["completion_tokens"], rows, 0)
        self.finished[cells] = _values(batch["finished"], rows, 0.0)

    def _extract(self, batch: pa.RecordBatch, shard: int) -> None:
        """The answers of attempts whose outcome nobody knows."""
        rows, cells = self._cells(batch)
        unknown = (self.outcomes[cells] == OWED) & (self._source[cells] == shard)
        policy = known.extraction(self.run.cfg)
        for row, i, j in np.column_stack([rows, *cells])[unknown].tolist():
            text = batch["text"][row].as_py() or ""
            answer = verifiers.extract(text, truncated=bool(self.truncated[i, j]), **policy).answer
            if answer is None:
                self.outcomes[i, j] = NO_ANSWER
            else:
                self._pairs[i, j] = (self._golds[i], answer)


def _values(column: pa.Array, rows: rowkeys.Ints, instead_of_null: Any) -> Any:
    values = column.take(pa.array(rows, pa.int64())).fill_null(instead_of_null)
    return values.to_numpy(zero_copy_only=False)


def _judge(cfg: RunConfig, judges: Judges) -> KnownGrades:
    """The known grades of a cache folder and its settings; runs of a data set share them."""
    folder = known.default_folder(cfg)
    key = json.dumps([str(folder), known.identity(cfg)], sort_keys=True)
    if key not in judges:
        judges[key] = KnownGrades(cfg, folder, keep=False)
    return judges[key]
