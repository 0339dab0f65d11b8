"""Runs as every export reads them: attempts with all that was made of them, in the order of keys.

Numbers and short texts of a run are one table in memory; responses and their lists are read in
slabs of attempts, at most `SLAB` bytes of them at once. A run that holds more is read once a slab.
"""

import contextlib
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.console import Meter, warn
from pipeline.base.errors import UserError
from pipeline.base.program import PROGRAM
from pipeline.config.exports import ExportConfig
from pipeline.rubrics import categories, signals_table
from pipeline.store import find, judged, parquet, rowkeys, shards
from pipeline.store.columns import ATTEMPTS, KEY
from pipeline.store.records import Recorded
from pipeline.store.rowkeys import Ints
from pipeline.store.runfolder import Run, opened

SLAB = 256 << 20
ROWS = 512  # of a batch with responses
MANY = 1 << 16  # of one without
LISTS = ("token_ids", "logprobs")
_HEAVY = ("text", *LISTS)
_SAMPLED = [name for name in ATTEMPTS.names if name not in (*KEY, *_HEAVY)]
_GRADED = ["outcome", "has_box", "box", "answer", "layer", "reason"]
_LABELS = ["a", "b", "c", "label"]
_MEANS = {"prompt_bpt": "prompt_mean_logprob", "completion_bpt": "completion_mean_logprob"}


@dataclass(frozen=True)
class Source:
    """One run of an export."""

    dataset: str
    name: str  # the run folder's, with folders above where two have the same
    run: Run

    @cached_property
    def table(self) -> pa.Table:
        """A row for each of the K attempts, by question and trial: all but what is long.

        The key; columns of attempts; of grades `outcome` (the verifier's where it decides), `ruled`
        (the rule grader's), `judged`, `has_box`, `box`, `answer`, `layer` and `reason`; of verdicts
        `a`, `b`, `c` and `label`; means of log-probs, natural and per token, where signals are
        current. What is not known is null.
        """
        ids, run = rowkeys.question_ids(self.run), self.run
        grades = judged.graded(run, _GRADED)
        attempts = rowkeys.streamed(run, "attempts", _SAMPLED)
        of_grades, of_attempts = rowkeys.encode(grades, ids), rowkeys.encode(attempts, ids)
        known = np.union1d(of_grades, of_attempts)
        keys = known[rowkeys.cells(known, run.cfg.sampling.trials)[0]]
        columns: dict[str, Any] = {
            "question_id": ids.take(pa.array(keys >> 32)),
            "trial": pa.array(keys & 0xFFFFFFFF, pa.int32()),
            **rowkeys.in_order(attempts, of_attempts, _SAMPLED, keys),
            **rowkeys.in_order(grades, of_grades, [*_GRADED, "ruled", "judged"], keys),
            **rowkeys.aligned(run, "verdicts", _LABELS, keys),
            **_means(run, keys),
        }
        return pa.table(columns)

    @cached_property
    def keys(self) -> Ints:
        """The key of each of the K rows, ascending: see `rowkeys.encode`."""
        return rowkeys.encode(self.table, rowkeys.question_ids(self.run))

    @cached_property
    def rubrics(self) -> Mapping[str, Recorded]:
        """The categories that are current, by rubric."""
        return categories.current(self.run)

    def categories(self, name: str) -> pa.Array:
        """Under a rubric the category of each of the K rows, null without one: int8."""
        if name not in self.rubrics:
            return pa.nulls(self.keys.size, pa.int8())
        rows = self.rubrics[name].table
        of_rows = rowkeys.encode(rows, rowkeys.question_ids(self.run))
        return rowkeys.in_order(rows, of_rows, ["category"], self.keys)["category"]

    def batches(self, *heavy: str, table: pa.Table | None = None) -> Iterator[pa.Table]:
        """The rows in order, a few at a time, with `text`, `token_ids` or `logprobs` added.

        `table` in the place of :attr:`table`. What cannot be read is null, and a warning names it.
        """
        rows = self.table if table is None else table
        if not heavy or not rows.num_rows:
            yield from (rows.slice(at, MANY) for at in range(0, rows.num_rows, MANY))
            return
        damage = parquet.Damage()
        slabs = math.ceil(_bytes(self.run, heavy) / SLAB) or 1
        size = math.ceil(rows.num_rows / slabs)
        for start in range(0, rows.num_rows, size):
            wanted = self.keys[start : start + size]
            slab = _slab(self.run, heavy, wanted, damage)
            for at in range(0, wanted.size, ROWS):
                count = min(ROWS, wanted.size - at)
                batch = rows.slice(start + at, count)
                for name, column in slab(at, at + count).items():
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

    def batches(
        self, source: Source, *heavy: str, table: pa.Table | None = None
    ) -> Iterator[pa.Table]:
        """As :meth:`Source.batches`, counted by the meter."""
        for batch in source.batches(*heavy, table=table):
            yield batch
            self.read += batch.nbytes
            self.meter.advance(batch.num_rows, self._rate)

    def _rate(self) -> str:
        seconds = time.monotonic() - self.meter.started
        return f"{self.read / 1e6 / max(seconds, 1e-3):.0f} MB/s"


def sources(cfg: ExportConfig) -> list[Source]:
    """The runs that settings name; one that is broken is left out, with a warning.

    Raises UserError: as `find.named`, or none is sound.
    """
    found: list[Source] = []
    faults: list[str] = []
    for dataset, folders in find.named(cfg).items():
        for name, folder in zip(find.names(folders), folders, strict=True):
            try:
                run = opened(folder)
                _ = run.questions
            except (UserError, OSError) as error:
                faults.append(f"{name} is left out: {error}")
            else:
                found.append(Source(dataset, name, run))
    if not found:
        raise UserError(faults[0])
    for fault in faults:
        warn(fault)
    return found


def _means(run: Run, keys: Ints) -> dict[str, pa.Array]:
    """Means of log-probs of the signals, which has bits; null where there are no current ones."""
    try:
        signals = signals_table.current(run)
    except UserError:
        return dict.fromkeys(_MEANS.values(), pa.nulls(keys.size, pa.float32()))
    of_rows = rowkeys.encode(signals, rowkeys.question_ids(run))
    bits = rowkeys.in_order(signals, of_rows, [*_MEANS], keys)
    return {mean: pc.multiply(bits[name], -math.log(2)) for name, mean in _MEANS.items()}


def _slab(
    run: Run, names: Sequence[str], wanted: Ints, damage: parquet.Damage
) -> Callable[[int, int], dict[str, pa.Array]]:
    """Read long columns of some attempts, whose keys ascend.

    Returns what gives those from one place in `wanted` to another.
    """
    ids = rowkeys.question_ids(run)

    def keep(batch: Any) -> pa.Array:
        keys = rowkeys.encode(batch, ids)
        return pa.array((keys >= wanted[0]) & (keys <= wanted[-1]))

    columns = pa.schema([ATTEMPTS.field(name) for name in (*KEY, *names)])
    parts = shards.batches(run.attempts, ATTEMPTS, columns.names, damage, keep=keep)
    table = pa.Table.from_batches(parts, columns).combine_chunks()
    at = rowkeys.rows_of(wanted, rowkeys.encode(table, ids))

    def between(start: int, end: int) -> dict[str, pa.Array]:
        places = pa.array(at[start:end], mask=at[start:end] < 0)
        return {name: table[name].take(places).combine_chunks() for name in names}

    return between


def _bytes(run: Run, names: Sequence[str]) -> int:
    """How much some columns of all attempts are when they are read."""
    total = 0
    for path in shards.files(run.attempts):
        with contextlib.suppress(*parquet.DAMAGE, UserError):  # named when it is read
            if path.suffix != ".parquet":
                total += path.stat().st_size
                continue
            with parquet.opened(path) as file:
                groups = map(file.metadata.row_group, range(file.num_row_groups))
                columns = (group.column(i) for group in groups for i in range(group.num_columns))
                total += sum(
                    column.total_uncompressed_size
                    for column in columns
                    if column.path_in_schema.split(".")[0] in names
                )
    return total
