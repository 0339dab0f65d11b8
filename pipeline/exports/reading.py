"""Runs as every export reads them: attempts with all that was made of them, in the order of keys.

Numbers and short texts of a run are one table in memory; responses and their lists are read in
slabs of about `SLAB` bytes. A run that holds more is read once a slab.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.base.console import Meter, warn
from pipeline.base.errors import UserError
from pipeline.base.program import PROGRAM
from pipeline.config.exports import ExportConfig
from pipeline.rubrics import categories
from pipeline.store import find, judged, parquet, rowkeys, shards
from pipeline.store.columns import ATTEMPTS, KEY
from pipeline.store.rowkeys import Ints
from pipeline.store.runfolder import Run, opened

SLAB = 256 << 20
LONG = {"text": 4, "token_ids": 4, "logprobs": 4}  # columns, and bytes of a token
_ROWS, _MANY = 512, 1 << 16  # of a batch with and without them
_UNKNOWN = 1 << 13  # tokens of an attempt that does not say them
_SAMPLED = [name for name in ATTEMPTS.names if name not in (*KEY, *LONG)]
_GRADED = ["outcome", "has_box", "box", "answer", "layer", "reason", "ruled", "judged"]
_LABELS = ["a", "b", "c", "label"]


@dataclass(frozen=True)
class Source:
    """One run of an export."""

    dataset: str
    name: str  # the run folder's, with folders above where two have the same
    run: Run

    @cached_property
    def table(self) -> pa.Table:
        """A row for each of the K attempts: the key, and all but what is long, null if not known.

        Columns of attempts, grades and verdicts (`a`, `b`, `c`, `label`). Where the verifier
        decides, `judged`, its `outcome` is there, and the rule grader's is `ruled`.
        """
        ids, trials = rowkeys.question_ids(self.run), self.run.cfg.sampling.trials
        attempts = rowkeys.streamed(self.run, "attempts", _SAMPLED)
        grades = judged.graded(self.run, _GRADED[:-2])
        of_attempts, of_grades = rowkeys.encode(attempts, ids), rowkeys.encode(grades, ids)
        known = np.union1d(of_attempts, of_grades)
        keys = known[rowkeys.cells(known, trials)[0]]
        return pa.table(
            {
                "question_id": ids.take(pa.array(keys >> 32)),
                "trial": pa.array(keys & 0xFFFFFFFF, pa.int32()),
                **rowkeys.in_order(attempts, of_attempts, _SAMPLED, keys),
                **rowkeys.in_order(grades, of_grades, _GRADED, keys),
                **rowkeys.aligned(self.run, "verdicts", _LABELS, keys),
            }
        )

    @cached_property
    def keys(self) -> Ints:
        """The key of each of the K rows, ascending: see `rowkeys.encode`."""
        return rowkeys.encode(self.table, rowkeys.question_ids(self.run))

    @cached_property
    def categories(self) -> dict[str, pa.Array]:
        """Each row's category under the rubrics that are current, int8; `category`: of imports."""
        ids, found = rowkeys.question_ids(self.run), {}
        for name, of in categories.current(self.run).items():
            head = "category" if of.record.get("imported") else f"category_{name}"
            known = rowkeys.encode(of.table, ids)
            found[head] = rowkeys.in_order(of.table, known, ["category"], self.keys)["category"]
        return found

    def batches(self, *long: str, table: pa.Table | None = None) -> Iterator[pa.Table]:
        """The rows in order, some at a time, with columns of `LONG` added.

        `table` in the place of :attr:`table`. What cannot be read is null, and a warning names it.
        """
        rows, ids = self.table if table is None else table, rowkeys.question_ids(self.run)
        tokens = self.table["completion_tokens"].fill_null(_UNKNOWN).to_numpy().astype(np.int64)
        slabs = np.cumsum(tokens * sum(LONG[name] for name in long)) // SLAB
        ends = [*np.flatnonzero(np.diff(slabs)) + 1, slabs.size]
        names, damage, size = [*KEY, *long], parquet.Damage(), _ROWS if long else _MANY
        schema = pa.schema([ATTEMPTS.field(name) for name in names])
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            wanted = self.keys[start:end]
            keep = partial(_within, ids, wanted) if len(ends) > 1 else None
            parts = shards.batches(self.run.attempts, ATTEMPTS, names, damage, keep=keep)
            slab = pa.Table.from_batches(parts if long else [], schema).combine_chunks()
            known = rowkeys.encode(slab, ids)
            for at in range(0, wanted.size, size):
                keys = wanted[at : at + size]
                batch = rows.slice(start + at, keys.size)
                for name, column in rowkeys.in_order(slab, known, long, keys).items():
                    batch = batch.append_column(name, column)
                yield batch
        if damage.lines:
            warn(f"{self.run.path}: attempts: {damage}; run `{PROGRAM} generate` to make them anew")


@dataclass
class Export:
    """What a format is to write, and how far it is."""

    cfg: ExportConfig
    sources: list[Source]  # by data set, in the order named
    meter: Meter
    read: int = 0  # bytes

    def batches(self, source: Source, *long: str, table: Any = None) -> Iterator[pa.Table]:
        """As :meth:`Source.batches`, counted by the meter."""
        for batch in source.batches(*long, table=table):
            yield batch
            self.read += batch.nbytes
            rate = self.read / 1e6 / max(time.monotonic() - self.meter.started, 1e-3)
            self.meter.advance(batch.num_rows, f"{rate:.0f} MB/s".format)


def sources(cfg: ExportConfig) -> list[Source]:
    """The runs that settings name; one that cannot be read is left out, with a warning.

    Raises UserError: as `find.named`, or none is left.
    """
    found: list[Source] = []
    for dataset, folders in find.named(cfg).items():
        for name, folder in zip(find.names(folders), folders, strict=True):
            try:
                run = opened(folder)
                found += [Source(dataset, name, run)] * bool(run.questions)
            except (UserError, OSError) as error:
                warn(f"{name} is left out: {error}")
    if not found:
        raise UserError(f"to={cfg.to}: no run that can be read; run something first")
    return found


def _within(ids: pa.Array, wanted: Ints, batch: pa.RecordBatch) -> pa.Array:
    keys = rowkeys.encode(batch, ids)
    return pa.array((keys >= wanted[0]) & (keys <= wanted[-1]))
