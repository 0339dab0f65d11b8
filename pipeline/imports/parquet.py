"""Parquet files of others, a few rows at a time: damaged files, groups and texts are named."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.errors import UserError
from pipeline.imports.columns import REPEATED
from pipeline.imports.plan import MOST_RECORDS
from pipeline.imports.source import Source
from pipeline.imports.troubles import Troubles, shown
from pipeline.store import shards

_NEAR = 32 << 20  # bytes of rows that are read together
_MOST_ROWS = 2048


def sound_files(source: Source, troubles: Troubles) -> list[tuple[Path, int]]:
    """The files that can be opened, with their numbers of rows."""
    found, why = [], ""
    for path in source.files:
        try:
            with pq.ParquetFile(path) as file:
                found.append((path, file.metadata.num_rows))
        except (pa.ArrowException, OSError, ValueError) as error:
            why = f"{path.name} ({shards.first_line(error)})"
            troubles.add("damaged files skipped", why)
    if not found:
        raise UserError(f"{source.path}: no Parquet file can be read: {why}; fetch it again")
    rows = sum(number for _, number in found)
    if rows > MOST_RECORDS:
        raise UserError(f"{source.path}: {rows} rows; at most {MOST_RECORDS} are read, split it")
    return found


def columns(files: list[tuple[Path, int]], wanted: set[str]) -> set[str]:
    """The names of columns that all files have.

    Raises:
        UserError: a file has one of the `wanted` twice.
    """
    shared: list[set[str]] = []
    for path, _ in files:
        names = pq.read_schema(path).names
        twice = sorted(name for name in wanted if names.count(name) > 1)
        if twice:
            raise UserError(f"{path}: column {shown(twice[0])} is there twice; drop one")
        shared.append(set(names))
    return set.intersection(*shared)


def batches(
    files: list[tuple[Path, int]], wanted: tuple[str, ...], troubles: Troubles
) -> Iterator[tuple[int, pa.RecordBatch | None, str]]:
    """Rows in their order: how many, the batch or None where they are damaged, and their place."""
    for path, rows in files:
        seen = 0
        schema = pq.read_schema(path)
        names = [name for name in wanted if name in schema.names]
        folded = [n for n in names if n in REPEATED and schema.field(n).type == pa.string()]
        with pq.ParquetFile(path, read_dictionary=folded) as file:
            for group in range(file.num_row_groups):
                for number, batch in _group(file, path, group, names, troubles):
                    number = min(number, rows - seen)  # a hostile file may hold more than it says
                    place = f"{path.name}, row {seen}"
                    if batch is not None:
                        batch = _readable(batch.slice(0, number), place, troubles)
                    yield number, batch, place
                    seen += number
        if seen < rows:
            troubles.add("damaged rows skipped", f"{path.name}, rows {seen} to {rows}", rows - seen)
            yield rows - seen, None, path.name


def _group(
    file: pq.ParquetFile, path: Path, group: int, names: list[str], troubles: Troubles
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    told = file.metadata.row_group(group)
    together = max(1, min(_MOST_ROWS, _NEAR * told.num_rows // max(told.total_byte_size, 1)))
    done = 0
    batches = _guarded(lambda: file.iter_batches(together, [group], names))
    for batch, why in batches:
        if batch is None:
            left = told.num_rows - done
            place = f"{path.name}, {left} rows of group {group} ({why})"
            troubles.add("damaged rows skipped", place, left)
            yield left, None
            return
        done += batch.num_rows
        yield batch.num_rows, batch


def _guarded(
    start: Callable[[], Iterator[pa.RecordBatch]],
) -> Iterator[tuple[pa.RecordBatch | None, str]]:
    """Batches until one cannot be read, which is said; a failing disk is an error of its own."""
    try:
        batches = start()
        while (batch := next(batches, None)) is not None:
            yield batch, ""
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        yield None, shards.first_line(error)


def _readable(batch: pa.RecordBatch, place: str, troubles: Troubles) -> pa.RecordBatch:
    """Null what is no UTF-8: reading it would raise."""
    for at, name in enumerate(batch.schema.names):
        column = batch.column(at)
        try:
            column.validate(full=True)
            continue
        except pa.ArrowException:
            folded = pa.types.is_dictionary(column.type)
        values = column.dictionary if folded else column
        found = [_decoded(values, i) for i in range(len(values))]
        # Never unfolded: one long text may stand in every row.
        made = pa.array([value for value, _ in found], values.type)
        made = pa.DictionaryArray.from_arrays(column.indices, made) if folded else made
        bad = {i for i, (_, sound) in enumerate(found) if not sound}
        rows = column.indices.to_pylist() if folded else range(len(column))
        for row in (i for i, value in enumerate(rows) if value in bad):
            troubles.add(f"values of {shown(name)} left out, not UTF-8", f"{place} + {row}")
        batch = batch.set_column(at, name, made)
    return batch


def _decoded(values: pa.Array, row: int) -> tuple[Any, bool]:
    try:
        return values[row].as_py(), True
    except (pa.ArrowException, ValueError):
        return None, False
