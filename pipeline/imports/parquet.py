"""Parquet with a row an attempt, as in `harimo/scorio-trace`; what is damaged in it is named."""

from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base import limits
from pipeline.base.console import warn
from pipeline.base.errors import UserError, one_line
from pipeline.imports import row as rows
from pipeline.imports.plan import MOST_RECORDS
from pipeline.imports.source import Records, Source, Troubles

_NEAR = 32 << 20  # bytes of rows that are read together
_MOST_ROWS = 2048
_TEXTS = (pa.string(), pa.large_string(), pa.string_view(),
          pa.binary(), pa.large_binary(), pa.binary_view())  # fmt: skip


def read(source: Source, first: bool, troubles: Troubles) -> Records:
    """The records of all files, damaged ones as None; in the first pass with the keys only.

    Raises UserError: columns that are indispensable are lacking, or no file can be read.
    """
    files = _sound_files(source, troubles)
    for path, schema, _ in files:
        rows.check_names(str(path), schema.names)
    lacking = rows.lacking(set.intersection(*(set(schema.names) for _, schema, _ in files)))
    if first and lacking:
        warn(f"import: {source.path} has no column {', '.join(lacking)}")
    columns = rows.FIRST_NAMES if first else rows.NAMES
    for path, schema, count in files:
        names = [name for name in schema.names if name in columns]
        for name in [name for name in names if not _readable(schema.field(name).type)]:
            troubles.add("columns left out, neither values nor lists of numbers", f"{path}: {name}")
            names.remove(name)
        seen = 0
        for number, batch in _batches(path, names, schema, troubles):
            number = min(number, count - seen)  # a hostile file may hold more than it says
            for i, record in enumerate(_records(batch, number)):
                yield f"{path.name}, row {seen + i}", record
            seen += number
        if seen < count:
            place = f"{path.name}, rows {seen} to {count}"
            troubles.add("damaged rows skipped", place, count - seen)
            yield from repeat((path.name, None), count - seen)


def _sound_files(source: Source, troubles: Troubles) -> list[tuple[Path, pa.Schema, int]]:
    """The files that can be opened, with their columns and numbers of rows."""
    sound, why = [], ""
    for path in source.files:
        try:
            with limits.room(path.stat().st_size), pq.ParquetFile(path) as file:
                sound.append((path, file.schema_arrow, file.metadata.num_rows))
        except (pa.ArrowException, OSError, ValueError, MemoryError) as error:
            why = f"{path.name} ({one_line(error)})"
            troubles.add("damaged files skipped", why)
    if not sound:
        raise UserError(f"{source.path}: no Parquet file can be read: {why}; fetch it again")
    total = sum(count for _, _, count in sound)
    if total > MOST_RECORDS:
        raise UserError(f"{source.path}: {total} rows; at most {MOST_RECORDS} are read, split it")
    return sound


def _readable(kind: pa.DataType) -> bool:
    """Whether a column may be read: not lists of texts, such as of tokens, nor texts of one length.

    Both could fill the memory: 2 MB of them can say that each of 20,000 rows holds 2 MB.
    """
    inside = getattr(kind, "value_type", pa.null())
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    unfolded = pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_primitive(inside) if lists else not unfolded)


def _batches(
    path: Path, names: list[str], schema: pa.Schema, troubles: Troubles
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    """Rows in their order: how many, and the batch or None where they are damaged.

    Texts stay folded (dictionary-encoded): a small file can say that one long text stands in
    every row.
    """
    folded = [name for name in names if schema.field(name).type in _TEXTS]
    with pq.ParquetFile(path, read_dictionary=folded) as file:
        for group in range(file.num_row_groups):
            about = file.metadata.row_group(group)
            near = _NEAR * about.num_rows // max(about.total_byte_size, 1)
            together, left = max(1, min(_MOST_ROWS, near)), about.num_rows
            batches = file.iter_batches(together, [group], names)
            try:
                while left:
                    with limits.room(path.stat().st_size):  # whatever the file says of itself
                        if (batch := next(batches, None)) is None:
                            break
                    left -= batch.num_rows
                    yield batch.num_rows, batch
            except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # a failing disk is no damage of the file
                why = one_line(error)
                place = f"{path.name}, {left} rows of group {group} ({why})"
                troubles.add("damaged rows skipped", place, left)
                yield left, None


def _records(batch: pa.RecordBatch | None, number: int) -> Iterator[dict[str, Any] | None]:
    if batch is None or not batch.num_columns:
        yield from repeat(None if batch is None else {}, number)
        return
    columns = [_values(column) for column in batch.slice(0, number).columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def _values(column: Any) -> list[Any]:
    """The values of a column; texts are decoded once however many rows share them."""
    if pa.types.is_dictionary(column.type):
        places = column.indices.to_pylist()
        texts = {at: _text(column.dictionary[at]) for at in set(places) - {None}}
        return [texts.get(at) for at in places]
    if pa.types.is_nested(column.type):
        return [row.values for row in column]
    values: list[Any] = column.to_pylist()
    return values


def _text(value: Any) -> Any:
    size = value.as_buffer().size
    if size > 4 * rows.MOST_TEXT:  # in UTF-8; what nobody will read is not made
        return rows.Unread(f"{size} bytes long")
    try:
        return value.as_py()
    except ValueError:
        return rows.Unread("not UTF-8")
