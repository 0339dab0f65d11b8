"""Parquet with a row per attempt, as in `harimo/scorio-trace`; damaged parts are named."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import columns as spec
from bayes_at_n.pipeline.records.batches import Batch, are_lists, of_arrays, of_records
from bayes_at_n.pipeline.records.plan import MOST_RECORDS
from bayes_at_n.pipeline.records.source import Records, Skipped, Source

_NEAR = 12 << 20  # bytes of rows handled together, about
_MOST_ROWS, _FEW = 2048, 16  # rows of a batch, and if these do not fit into memory
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)


def read(source: Source) -> Iterator[Batch]:
    """Yield the rows of all files in batches; in the first pass only the columns of the keys.

    Raises UserError: a required column is missing, or no file can be read.
    """
    skipped, cfg = source.skipped, source.cfg.source
    files = _sound_files(source)
    paths = [_paths(schema) for _, schema, _ in files]
    for (path, schema, _), inside in zip(files, paths, strict=True):
        every = [*schema.names, *(inside.keys() - set(schema.names))]
        spec.check_names(str(path), every, cfg.gold)
        skipped.columns.update(at for at, kind in inside.values() if not pa.types.is_struct(kind))
    wanted = {*(spec.FIRST_NAMES if source.first else spec.NAMES)}
    wanted |= {name for name in (cfg.gold, cfg.cluster) if name}
    for (path, _, count), inside in zip(files, paths, strict=True):
        # Rows with chats, or with lists of samples, are handled one by one, equally in both passes.
        lists = {name for name, (_, kind) in inside.items() if are_lists(kind)}
        nested = not lists.isdisjoint({*spec.SAMPLED, *spec.SAID})
        names = dict[str, str]()
        for name in ({*wanted, *spec.NAMES} if nested else wanted) & inside.keys():
            if _readable(inside[name][1]) or (
                nested and name in lists & {*spec.LISTED, *spec.SAID}
            ):
                names[name] = inside[name][0]
            else:
                what = "columns left out, neither values nor lists of numbers"
                skipped.add(what, f"{path}: {name}")
        seen = 0
        for number, batch in batches(path, [*names.values()], skipped):
            number = min(number, count - seen)  # a hostile file may hold more than it declares

            def place(i: int, start: int = seen, name: str = path.name) -> str:
                return f"{name}, row {start + i}"

            if batch is None:
                yield Batch({}, np.zeros(number, bool), place)
            elif number:
                batch = batch.slice(0, number).flatten()
                arrays = {name: batch[where].combine_chunks() for name, where in names.items()}
                if nested:
                    yield from of_records(source, _rows(arrays, number, place, skipped))
                else:
                    yield of_arrays(source, arrays, place)
            seen += number
            skipped.read += path.stat().st_size * number // max(count, 1)
        if seen < count:
            skipped.add(
                "damaged rows skipped", f"{path.name}, rows {seen} to {count}", count - seen
            )
            yield Batch({}, np.zeros(count - seen, bool), "".format)


def _rows(
    arrays: dict[str, Any], number: int, place: Callable[[int], str], skipped: Skipped
) -> Records:
    """Yield the rows of arrays; None for all of them if they do not fit into memory."""
    rows: list[Any] = [None] * number
    try:
        with untrusted.memory_limit(sum(array.nbytes for array in arrays.values())):
            rows = pa.table(arrays).to_pylist()
    except _DAMAGE as error:  # a list may hold any number of nulls
        why = f"{place(0)} and {number - 1} more ({one_line(error)})"
        skipped.add("damaged rows skipped", why, number)
    for at, row in enumerate(rows):
        yield place(at), row


def _paths(schema: pa.Schema) -> dict[str, tuple[str, pa.DataType]]:
    """Map names of columns, including those in structs, to their path in the file and type."""
    paths: dict[str, tuple[str, pa.DataType]] = {}
    for field in schema:
        for child in field.type if pa.types.is_struct(field.type) else ():
            paths[child.name] = f"{field.name}.{child.name}", child.type
    return paths | {field.name: (field.name, field.type) for field in schema}


def _sound_files(source: Source) -> list[tuple[Path, pa.Schema, int]]:
    """Return the readable files, with their schemas and numbers of rows."""
    sound, why = [], ""
    for path in source.files:
        try:
            with untrusted.memory_limit(path.stat().st_size), pq.ParquetFile(path) as file:
                sound.append((path, file.schema_arrow, file.metadata.num_rows))
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            why = f"{path.name} ({one_line(error)})"
            source.skipped.add("damaged files skipped", why)
    if not sound:
        raise UserError(f"{source.path}: no Parquet file can be read: {why}; fetch it again")
    total = sum(count for _, _, count in sound)
    if total > MOST_RECORDS:
        raise UserError(f"{source.path}: {total} rows; at most {MOST_RECORDS} are read, split it")
    return sound


def _readable(kind: pa.DataType) -> bool:
    """Return whether a column may be read: no lists but of numbers, no fixed-size texts.

    The latter can fill the memory: 1 KB of a file can declare 20,000 rows of 2 MB each.
    """
    if are_lists(kind):
        return bool(pa.types.is_primitive(kind.value_type))
    return not (pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind))


def batches(
    path: Path, columns: list[str], skipped: Skipped
) -> Iterator[tuple[int, pa.Table | None]]:
    """Yield the rows in order, as their number and a table, None if they are damaged.

    Within `untrusted.memory_limit`: a small file can repeat one long text in every row.
    """
    size = path.stat().st_size
    with pq.ParquetFile(path) as file:
        for i in range(file.num_row_groups):
            group, done = file.metadata.row_group(i), 0
            near = max(1, _NEAR * group.num_rows // max(group.total_byte_size, 1))
            for rows in (min(near, _MOST_ROWS), _FEW):  # few where these do not fit into memory
                parts, at = file.iter_batches(rows, [i], columns), 0
                try:
                    while True:
                        with untrusted.memory_limit(size):  # whatever the file declares
                            if (batch := next(parts, None)) is None:
                                break
                            table = _plain(batch.slice(max(0, done - at)))  # only new rows
                        at += batch.num_rows
                        done += table.num_rows
                        step = max(1, table.num_rows * _NEAR // max(table.nbytes, 1))
                        for start in range(0, table.num_rows, step):
                            piece = table.slice(start, step)
                            yield piece.num_rows, piece
                    break
                except _DAMAGE as error:
                    if isinstance(error, OSError) and error.errno is not None:
                        raise  # the disk fails, not the file
                    why = one_line(error)
            else:
                if (lost := group.num_rows - done) > 0:
                    place = f"{path.name}, {lost} rows of group {i} ({why})"
                    skipped.add("damaged rows skipped", place, lost)
                    yield lost, None


def _plain(batch: pa.RecordBatch) -> pa.Table:
    """Return a table with its dictionaries decoded."""
    table = pa.Table.from_batches([batch])
    for at, field in enumerate(table.schema):
        if pa.types.is_dictionary(field.type):
            table = table.set_column(at, field.name, table[at].cast(field.type.value_type))
    return table
