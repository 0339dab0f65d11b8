"""Rows on their way to the disk, as the tables of run folders, which are renamed at the end.

Everything is written in a draft folder in `runs`, which no verb takes for a run. Whole runs are
renamed into place when the whole source has been read; an import that ends before starts again.
"""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.records.batches import Batch, derive
from bayes_at_n.pipeline.records.plan import SAID, Plan
from bayes_at_n.pipeline.records.row import TYPES
from bayes_at_n.pipeline.records.source import Troubles
from bayes_at_n.pipeline.store import parquet
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, MEANS, VERDICTS
from bayes_at_n.pipeline.store.graded import GRADES_TABLE, VERDICTS_TABLE

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
_DERIVED = {"grades": GRADES_TABLE, "verdicts": VERDICTS_TABLE}


class Staging:
    """Rows of all runs of an import that wait for the disk."""

    def __init__(self, folder: Path, writers: ThreadPoolExecutor) -> None:
        self.folder, self._writers = folder, writers
        self._waiting: list[pa.Table] = []
        self._bytes = self._number = 0  # of what waits; of times that it was flushed
        self._flushed: list[list[tuple[Future[None], Callable[[], None]]]] = []

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
            if self._bytes > MOST_BYTES:
                self.flush(plan)

    def flush(self, plan: Plan) -> None:
        """Write what waits; the writers may be at it when this returns."""
        self.wait(1)
        self._number += 1
        rows = pa.concat_tables([*self._waiting, _NO_ROWS], promote_options="default")
        self._waiting, self._bytes = [], 0
        runs = rows["run"].to_numpy()
        if (np.diff(runs) < 0).any():
            order = np.argsort(runs, kind="stable")
            rows, runs = rows.take(pa.array(order)), runs[order]
        self._flushed.append([])
        for start, end in pairwise(np.searchsorted(runs, [*np.unique(runs), len(plan.runs)])):
            folder = self.folder / plan.runs[runs[start]].folder
            job = partial(_write, folder, self._number, rows.slice(start, end - start))
            self._flushed[-1].append((self._writers.submit(job), job))

    def wait(self, most: int = 0) -> None:
        """Return when all that was flushed is on the disk, but for the last `most` times."""
        while len(self._flushed) > most:
            for future, job in self._flushed.pop(0):
                try:
                    future.result()
                except Exception:  # memory was short while a foreign file was read: again
                    job()


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


def _write(folder: Path, number: int, rows: pa.Table) -> None:
    """Write rows of one run as a file in the folder of each table that some of them belong to."""
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
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / table / f"import-{number:05d}.parquet"
        if table in _DERIVED:
            _DERIVED[table].write(folder, file.stem, made)
            continue
        parquet.write_part(file, made, _GROUPS[table == "attempts"])


@contextlib.contextmanager
def opened(runs: Path) -> Iterator[Staging]:
    """Make a draft folder in `runs` until the block ends; remove those of killed imports."""
    atomic.sweep(runs)
    folder = atomic.draft(runs / "import")
    folder.mkdir(parents=True)
    try:
        with ThreadPoolExecutor(_WRITERS) as writers:
            yield Staging(folder, writers)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
