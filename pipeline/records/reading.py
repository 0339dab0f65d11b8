"""Read runs for exports: attempts with grades, verdicts and categories, in the order of keys.

Numbers and short texts of a run are one table in memory. Responses and their lists are read once,
part by part, into files beside the export, which are then read in order, about `SLAB` bytes at a
time.
"""

import contextlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base.console import Meter, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.records import ExportConfig
from bayes_at_n.pipeline.rubrics import categories
from bayes_at_n.pipeline.store import outcomes, selection, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.pipeline.store.tables import Ints

SLAB = 64 << 20
LONG = {"text": 4, "token_ids": 4, "logprobs": 4}  # columns, and bytes of a token
_ROWS, _MANY = 512, 1 << 16  # rows of a batch with and without them
_UNKNOWN = 1 << 13  # tokens assumed for an attempt without a count
_SAMPLED = [n for n in ATTEMPTS.names if n not in (*KEY, *LONG, "options")]  # `text` has options
_GRADED = ["outcome", "has_box", "box", "answer", "layer", "reason", "ruled", "judged"]
_LABELS = ["a", "b", "c", "label"]


@dataclass(frozen=True)
class RunTable:
    """One run of an export."""

    dataset: str
    name: str  # the run folder's, with parent folders if two have the same
    run: Run

    @cached_property
    def table(self) -> pa.Table:
        """Return a row per attempt with its key and short columns; null: unknown.

        `key` is that of `tables.encode`, ascending. Columns are those of attempts, grades and
        verdicts (`a`, `b`, `c`, `label`). If the verifier decides (`judged`), `outcome` is its own
        and `ruled` the rule grader's.
        """
        ids, trials = tables.question_ids(self.run), self.run.cfg.sampling.trials
        attempts = tables.streamed(self.run, "attempts", _SAMPLED)
        grades = outcomes.graded(self.run, _GRADED[:-2])
        of_attempts, of_grades = tables.encode(attempts, ids), tables.encode(grades, ids)
        known = np.union1d(of_attempts, of_grades)
        keys = known[tables.cells(known, trials)[0]]
        return pa.table(
            {
                "key": keys,
                "question_id": ids.take(pa.array(keys >> 32)),
                "trial": pa.array(keys & 0xFFFFFFFF, pa.int32()),
                **tables.in_order(attempts, of_attempts, _SAMPLED, keys),
                **tables.in_order(grades, of_grades, _GRADED, keys),
                **tables.aligned(self.run, outcomes.read_verdicts(self.run, _LABELS).table, keys),
            }
        )

    @cached_property
    def categories(self) -> dict[str, pa.Array]:
        """Return each row's category by current rubrics, int8; `category`: imported labels."""
        ids, columns, keys = tables.question_ids(self.run), {}, self.table["key"].to_numpy()
        for name, of in categories.current(self.run).items():
            head = "category" if of.record.get("imported") else f"category_{name}"
            known = tables.encode(of.table, ids)
            columns[head] = tables.in_order(of.table, known, ["category"], keys)["category"]
        return columns


@dataclass
class Export:
    """The runs that a format is to write, and the progress meter."""

    cfg: ExportConfig
    sources: list[RunTable]  # by dataset, in the order named
    meter: Meter
    folder: Path  # for temporary files, in which a run is sorted

    def batches(self, source: RunTable, *long: str, table: Any = None) -> Iterator[pa.Table]:
        """Yield the rows of a run in order, in batches, with columns of `LONG` added.

        `table`: instead of the run's own. Unreadable values are null, and a warning names them.
        """
        rows, keys, run = table or source.table, source.table["key"].to_numpy(), source.run
        ids, damage, size = tables.question_ids(run), shards.Damage(), _ROWS if long else _MANY
        tokens = source.table["completion_tokens"].fill_null(_UNKNOWN).to_numpy().astype(np.int64)
        ends = np.cumsum(tokens * sum(LONG[name] for name in long))
        # At most 500, as each is an open file.
        slabs = np.unique(ends // max(SLAB, ends[-1] // 500), return_inverse=True)[1]
        schema = pa.schema([ATTEMPTS.field(name) for name in (*KEY, *long)])
        parts = shards.batches(run.attempts, ATTEMPTS, schema.names, damage) if long else iter(())
        for number, slab in enumerate(self._slabs(parts, schema, ids, keys, slabs)):
            slab, (first, end) = slab.combine_chunks(), np.searchsorted(slabs, [number, number + 1])
            known = tables.encode(slab, ids)
            for at in range(first, end, size):
                batch = rows.slice(at, min(size, end - at))
                batch_keys = keys[at : at + batch.num_rows]
                for name, column in tables.in_order(slab, known, long, batch_keys).items():
                    batch = batch.append_column(name, column)
                yield batch
                self.meter.advance(batch.num_rows)
        if damage.lines:
            warn(f"{run.path}: attempts: {damage}; run `{PROGRAM} generate` to make them anew")

    def _slabs(
        self,
        parts: Iterator[pa.RecordBatch],
        schema: pa.Schema,
        ids: pa.Array,
        keys: Ints,
        slabs: Ints,
    ) -> Iterator[pa.Table]:
        """Yield the rows of parts by slab; `slabs` has the slab of each of the ascending `keys`."""
        order, read = np.arange(keys.size), 0
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            files = [f"{folder}/{slab}" for slab in range(slabs[-1] + 1)]
            with contextlib.ExitStack() as stack:
                writers = [stack.enter_context(pa.ipc.new_file(file, schema)) for file in files]
                for part in parts:
                    rows = tables.rows_of(tables.encode(part, ids), keys, order)
                    to = np.where(rows < 0, -1, slabs[rows])
                    for slab in np.unique(to[rows >= 0]):
                        writers[slab].write(part.filter(pa.array(to == slab)))
                    read += part.num_rows
                    self.meter.advance(0, f"{read:,} attempts sorted".format)
            for file in files:
                with pa.OSFile(file) as source, pa.ipc.open_file(source) as reader:
                    yield reader.read_all()


def sources(cfg: ExportConfig) -> list[RunTable]:
    """Return the runs that settings name; skip, with a warning, those that cannot be read.

    Raises UserError: as `selection.named`, or none is left.
    """
    readable: list[RunTable] = []
    for dataset, folders in selection.named(cfg).items():
        for name, folder in zip(selection.names(folders), folders, strict=True):
            try:
                run = open_run(folder)
                readable += [RunTable(dataset, name, run)] * bool(run.questions)
            except (UserError, OSError) as error:
                warn(f"{name} is skipped: {error}")
    if not readable:
        raise UserError(f"to={cfg.to}: no run can be read; `{PROGRAM} run` makes one")
    return readable
