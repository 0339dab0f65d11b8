"""Rows on their way to the disk, as the tables of run folders, which are renamed at the end.

Everything is written under `runs/_import-HASH/`, which no verb takes for a run, and renamed when
the whole source has been read. An import that ends before leaves that folder, with notes how far
it was; the same command goes on from there.
"""

import contextlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache, partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base import atomic, jsonl
from pipeline.base.console import warn
from pipeline.base.environment import commit, version
from pipeline.imports.batches import Batch, derive
from pipeline.imports.plan import SAID, Plan
from pipeline.imports.row import TYPES
from pipeline.imports.source import Troubles
from pipeline.store import lease, parquet
from pipeline.store.columns import ATTEMPTS, DIGEST, GRADES, MEANS, VERDICTS, digests

MOST_BYTES = 32 << 20  # of rows that wait to be written, about
_PIECE = 16 << 20  # of texts that are unfolded together
_WRITERS = 4  # more than there may be cores: they also wait for the disk
_GROUPS = (1024, parquet.ROWS_PER_GROUP)  # rows of tables but attempts, and of attempts
_NO_ROWS = pa.table({"run": pa.array([], pa.int64())})
_ROW_BYTES = 400  # of a row without its texts and lists

# Per table its columns, and those of which a row that belongs there has one.
_TABLES = {
    "attempts": (ATTEMPTS, ("text", "finish_reason", "completion_tokens")),
    "grades": (GRADES, ("outcome",)),
    "verdicts": (VERDICTS, ("label",)),
    "means": (MEANS, ("prompt_mean_logprob", "completion_mean_logprob")),
}


class _Flushed(NamedTuple):
    """Rows that the writers are at."""

    jobs: Sequence[tuple[Future[list[str]], Callable[[], list[str]]]]
    note: dict[str, Any]  # for when they are on the disk; empty within a batch


class Staging:
    """Rows of all runs of an import that wait for the disk."""

    def __init__(self, folder: Path, writers: ThreadPoolExecutor) -> None:
        self.folder, self._writers = folder, writers
        self._waiting: list[pa.Table] = []
        self._bytes = self._number = 0  # of what waits; of times that it was flushed
        self._flushed: deque[_Flushed] = deque()
        self._files: list[str] = []  # on the disk since the last note
        self.notes = folder / "_read.jsonl"
        self.read = 0  # records that need not be read again
        self.troubles: dict[str, Any] = {}  # what was wrong with them

    def resume(self, runs: list[str]) -> None:
        """Keep what the same import left, for the folders of these runs, when it was ended.

        Files that no note names were written after it, and go.
        """
        noted = list[dict[str, Any]]()
        with contextlib.suppress(OSError, ValueError):  # the last line may be torn
            noted.extend(jsonl.value(line or b"") for _, line in jsonl.lines(self.notes))
        named = (Path(name) for note in noted for name in note["files"])
        kept = {self.folder / path for path in named if str(path.parent.parent) in runs}
        same = bool(noted) and noted[-1]["program"] == _program()
        if not same or not all(path.is_file() for path in kept):
            shutil.rmtree(self.folder, ignore_errors=True)
            return
        for path in self.folder.rglob("*"):
            if path.is_file() and path not in kept:
                path.unlink()
        atomic.write_jsonl(self.notes, noted)
        self.read, self.troubles, self._number = (
            noted[-1][key] for key in ("read", "troubles", "number")
        )

    def add(self, batch: Batch, plan: Plan, at: int, troubles: Troubles) -> None:
        """Take the records of a batch, of which the plan holds those from `at` on."""
        rows = np.flatnonzero((plan.run[at : at + batch.sound.size] >= 0) & batch.sound)
        sizes = _sizes(batch)[rows]
        cuts = np.flatnonzero(np.diff(sizes.cumsum() // _PIECE)) + 1
        for these, size in zip(np.split(rows, cuts), np.split(sizes, cuts), strict=True):
            columns = {
                name: _unfolded(column.take(pa.array(these)), TYPES[name])
                for name, column in batch.columns.items()
                if name not in SAID
            }
            runs = [plan.runs[number] for number in plan.run[at + these]]
            asked = zip(runs, plan.question[at + these].tolist(), strict=True)
            ids = [plan.questions[run.dataset][question].id for run, question in asked]
            columns |= {
                "question_id": pa.array(ids, pa.string()),
                "trial": pa.array(plan.trial[at + these]),
            }
            if "category" in columns:
                right = (  # where records say no outcome, the best category is
                    label in plan.best[run.dataset] if label is not None else None
                    for run, label in zip(runs, columns["category"].to_pylist(), strict=True)
                )
                own = pa.array([run.has_outcomes for run in runs])
                judged = pc.if_else(pa.array(right, pa.bool_()), "correct", "wrong")
                judged = pc.if_else(own, pa.scalar(None, pa.string()), judged)
                columns["outcome"] = pc.coalesce(columns.get("outcome", judged), judged)
                label = columns["category"].cast(pa.string())
                why = pc.binary_join_element_wise("category", label, " ")
                said = columns.get("reason", pa.nulls(len(these), pa.string()))
                columns["reason"] = pc.if_else(judged.is_valid(), why, said)
            derive(columns, [batch.place(i) for i in these.tolist()].__getitem__, troubles)
            self._waiting.append(pa.table(columns | {"run": pa.array(plan.run[at + these])}))
            self._bytes += int(size.sum())
            if self._bytes > MOST_BYTES + _PIECE:  # of few bytes of a file: no more than needs be
                self.wait()
                self._flush(plan, {})
        if self._bytes > MOST_BYTES:
            self.flush(plan, at + batch.sound.size, troubles)

    def flush(self, plan: Plan, read: int, troubles: Troubles) -> None:
        """Write what waits, of so many records; the writers may be at it when this returns."""
        noted = {"program": _program(), "read": read, "troubles": troubles.dump()}
        self._flush(plan, noted | {"number": self._number + 1})

    def _flush(self, plan: Plan, note: dict[str, Any]) -> None:
        self.wait(1)
        self._number += 1
        rows = pa.concat_tables([*self._waiting, _NO_ROWS], promote_options="default")
        self._waiting, self._bytes = [], 0
        runs = rows["run"].to_numpy()
        if (np.diff(runs) < 0).any():
            order = np.argsort(runs, kind="stable")
            rows, runs = rows.take(pa.array(order)), runs[order]
        jobs = []
        for start, end in pairwise(np.searchsorted(runs, [*np.unique(runs), len(plan.runs)])):
            path = Path(plan.runs[runs[start]].folder, f"import-{self._number:05d}.parquet")
            job = partial(_write, self.folder, path, rows.slice(start, end - start))
            jobs.append((self._writers.submit(job), job))
        self._flushed.append(_Flushed(jobs, note))

    def wait(self, most: int = 0) -> None:
        """Return when all that was flushed is on the disk, but for the last `most` times."""
        while len(self._flushed) > most:
            jobs, note = self._flushed.popleft()
            for future, job in jobs:
                try:
                    self._files += future.result()
                except Exception:  # memory was short while a foreign file was read: again
                    self._files += job()
            if note:
                self.folder.mkdir(exist_ok=True)
                with self.notes.open("ab") as file:
                    file.write(json.dumps(note | {"files": self._files}).encode() + b"\n")
                    file.flush()
                    os.fsync(file.fileno())
                self.read, self._files = note["read"], []


def _unfolded(column: Any, kind: pa.DataType) -> Any:
    """A column of its type; texts that were folded in vain, since none is equal, are not copied."""
    if pa.types.is_dictionary(column.type) and len(column) and not column.null_count:
        codes = column.indices.to_numpy()
        if np.array_equal(codes, np.arange(codes[0], codes[0] + codes.size)):
            column = column.dictionary.slice(codes[0], codes.size)
    return column.cast(kind)


def _sizes(batch: Batch) -> Any:
    """About how many bytes each record takes."""
    sizes = np.full(batch.sound.size, _ROW_BYTES)
    for name in ("text", "answer", "reason"):
        codes, texts = batch.coded(name)
        sizes += np.append(pc.binary_length(texts).fill_null(0).to_numpy(), 0)[codes]
    for name in {"token_ids", "logprobs"} & batch.columns.keys():
        sizes += 4 * pc.list_value_length(batch.columns[name]).fill_null(0).to_numpy()
    return sizes


@cache
def _program() -> str:
    """Which program makes the files: another one may make others."""
    return f"{version('bayes-at-n')} {commit()}"


def _write(folder: Path, path: Path, rows: pa.Table) -> list[str]:
    """Rows of one run as a file RUN/TABLE/NAME of each table that some of them belong to."""
    files = []
    for table, (schema, marks) in _TABLES.items():
        there = [rows[mark].is_valid() for mark in marks if mark in rows.column_names]
        if not there or not pc.any(belongs := reduce(pc.or_, there)).as_py():
            continue
        part = rows if pc.all(belongs).as_py() else rows.filter(belongs)
        columns = [
            part[column.name].cast(column.type)
            if column.name in part.column_names
            else pa.nulls(part.num_rows, column.type)
            for column in schema
        ]
        made = pa.table(columns, schema=schema)
        if table == "attempts":  # the first: what else is told of them is of these
            told = np.zeros(rows.num_rows, np.int64)
            told[belongs.to_numpy()] = digests(made)
            rows = rows.append_column(DIGEST, pa.array(told, mask=~belongs.to_numpy()))
            made = made.set_column(
                schema.get_field_index(DIGEST.name), DIGEST, rows[DIGEST.name].drop_null()
            )
        file = path.parent / table / path.name
        (folder / path.parent).mkdir(parents=True, exist_ok=True)
        parquet.write_part(folder / file, made, _GROUPS[table == "attempts"])
        files.append(str(file))
    return files


@contextlib.contextmanager
def opened(runs: Path, fingerprint: str) -> Iterator[Staging]:
    """A staging folder that is this process's alone; it goes when the import is complete.

    Those of other imports go when they are a day old. Raises UserError: another process imports the
    same source.
    """
    folder = runs / f"_import-{fingerprint}"
    runs.mkdir(parents=True, exist_ok=True)
    for left in {path.with_suffix("") for path in runs.glob("_import-*")} - {folder}:
        with contextlib.suppress(lease.Taken), lease.held(left.with_suffix(".lease"), "importing"):
            if left.is_dir() and time.time() - left.stat().st_mtime > atomic.OLD_S:
                shutil.rmtree(left, ignore_errors=True)
    with lease.held(folder.with_suffix(".lease"), "importing this source"):
        with ThreadPoolExecutor(_WRITERS) as writers:
            stage = Staging(folder, writers)
            try:
                yield stage
            except BaseException:
                if stage.read:
                    warn(
                        f"import: ended before its time; the same command goes on after"
                        f" {stage.read} records (rm -r {folder} gives them up)"
                    )
                elif not stage.notes.exists():  # of an earlier end, which nobody has resumed yet
                    shutil.rmtree(folder, ignore_errors=True)
                raise
        shutil.rmtree(folder, ignore_errors=True)
