"""Parquet with a row per attempt, as in `harimo/scorio-trace`; damaged parts are named."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.records.columns import KNOWN, LISTED, SAID, TOKENS
from bayes_at_n.pipeline.records.source import Records, Skipped, Source

_ROWS = 64  # of a batch: few, as a small file can repeat one long text in every row
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file is Parquet."""
    return head[:4] == b"PAR1" or path.suffix == ".parquet"


def read(source: Source) -> Records:
    """Yield the rows of all files, with the columns that are known, also those inside structs."""
    wanted = KNOWN.union(filter(None, (source.cfg.source.gold, source.cfg.source.cluster)))
    for path in source.files:
        places = dict[str, str]()  # of columns, by name

        def convert(rows: pa.Table, places: dict[str, str] = places) -> list[dict[str, Any]]:
            rows = rows.flatten()
            columns = {name: _values(name, rows[place]) for name, place in places.items()}
            return [
                dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)
            ]

        try:
            with untrusted.memory_limit(path.stat().st_size):
                schema = pq.read_schema(path)
        except _DAMAGE as error:
            source.skipped.add("damaged files skipped", f"{path.name} ({one_line(error)})")
            continue
        for field in schema:
            inner = [*field.type] if pa.types.is_struct(field.type) else []
            own = [(one.name, f"{field.name}.{one.name}", one.type) for one in inner]
            for name, place, kind in own or [(field.name, field.name, field.type)]:
                source.skipped.columns.add(place)
                if name in wanted and _readable(name, kind):
                    places[name] = place
                elif name in wanted:
                    what = "columns left out, neither values nor lists of numbers"
                    source.skipped.add(what, f"{path}: {name}")
        yield from rows(path, [*places.values()], source.skipped, convert)


def _readable(name: str, kind: pa.DataType) -> bool:
    """Return whether a column may be read: no lists but of numbers or of samples.

    No fixed-size texts either, which can fill the memory: 1 KB of a file can declare 20,000 rows of
    2 MB each.
    """
    listed = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if listed and name in TOKENS:
        return bool(pa.types.is_primitive(kind.value_type))
    if pa.types.is_nested(kind):
        return listed and name in LISTED | SAID
    return not pa.types.is_fixed_size_binary(kind)


def _values(name: str, column: Any) -> list[Any]:
    """Return the values of a column; the error instead of invalid UTF-8, arrays of tokens."""
    if name in TOKENS:
        return [value.values for value in column]
    try:
        return list(column.to_pylist())
    except UnicodeError:
        return [_value(value) for value in column]


def _value(value: Any) -> Any:
    try:
        return value.as_py()
    except UnicodeError as error:
        return error


def rows(
    path: Path,
    columns: list[str],
    skipped: Skipped,
    convert: Callable[[pa.Table], list[Any]] = pa.Table.to_pylist,
) -> Records:
    """Yield the rows in order, a few at a time, and count damaged ones.

    Within `untrusted.memory_limit`: a list may hold any number of nulls, whatever the file's size.
    """
    size, before = path.stat().st_size, 0
    with pq.ParquetFile(path) as file:
        total = max(file.metadata.num_rows, 1)
        for i in range(file.num_row_groups):
            number, done = file.metadata.row_group(i).num_rows, 0
            parts = file.iter_batches(_ROWS, [i], columns)
            try:
                while True:
                    with untrusted.memory_limit(size):
                        if (batch := next(parts, None)) is None:
                            break
                        part = convert(pa.Table.from_batches([batch]))
                    for at, row in enumerate(part, before + done):
                        yield f"{skipped.file(path)}, row {at}", row
                    done += len(part)
                    skipped.read += size * len(part) // total
            except _DAMAGE as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # the disk fails, not the file
                lost = number - done
                place = f"{path.name}, {lost} rows of group {i} ({one_line(error)})"
                skipped.add("damaged rows skipped", place, lost)
            before += number
