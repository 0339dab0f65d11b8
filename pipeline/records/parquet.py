"""Parquet with a row an attempt, as in `harimo/scorio-trace`; what is damaged in it is named."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.records import row as rows
from bayes_at_n.pipeline.records.batches import Batch, of_arrays
from bayes_at_n.pipeline.records.plan import MOST_RECORDS
from bayes_at_n.pipeline.records.source import Source, Troubles, shown

_NEAR = 32 << 20  # bytes of rows that are read together
_MOST_ROWS = 2048
_LONG = 256  # bytes of a text, about, from which equal ones are not looked for
_TEXTS = (pa.string(), pa.large_string(), pa.string_view(),
          pa.binary(), pa.large_binary(), pa.binary_view())  # fmt: skip
_DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, MemoryError)


def read(source: Source, first: bool, troubles: Troubles) -> Iterator[Batch]:
    """The rows of all files, a batch after the other; in the first pass with the keys only.

    Raises UserError: columns that are indispensable are lacking, or no file can be read.
    """
    cfg = source.cfg
    run = [*cfg.dataset, ""][0], [*cfg.model, ""][0]
    files = _sound_files(source, troubles)
    paths = [_paths(schema) for _, schema, _ in files]
    for (path, schema, _), inside in zip(files, paths, strict=True):
        rows.check_names(str(path), [*schema.names, *(inside.keys() - set(schema.names))])
    if first:
        _note_left_out(source, paths)
    columns = rows.FIRST_NAMES if first else rows.NAMES
    for (path, _, count), inside in zip(files, paths, strict=True):
        names = {name: where for name, where in inside.items() if name in columns}
        for name, (where, kind) in list(names.items()):
            if not _readable(kind, "." in where):
                troubles.add(
                    "columns left out, neither values nor lists of numbers", f"{path}: {name}"
                )
                del names[name]
        seen = 0
        for number, batch in batches(path, names, troubles):
            number = min(number, count - seen)  # a hostile file may hold more than it says

            def place(i: int, start: int = seen, name: str = path.name) -> str:
                return f"{name}, row {start + i}"

            if batch is None:
                yield Batch({}, np.zeros(number, bool), place)
            elif number:
                batch = batch.slice(0, number).flatten()
                arrays = {name: _joined(batch[where]) for name, (where, _) in names.items()}
                yield of_arrays(arrays, place, cfg.source, run, troubles)
            seen += number
            troubles.read += path.stat().st_size * number // max(count, 1)
        if seen < count:
            what = f"{path.name}, rows {seen} to {count}"
            troubles.add("damaged rows skipped", what, count - seen)
            yield Batch({}, np.zeros(count - seen, bool), place)


def _joined(column: pa.ChunkedArray) -> pa.Array:
    """A column in one piece; where folded texts are long, equal ones are not looked for."""
    if column.num_chunks > 1 and pa.types.is_dictionary(column.type):
        texts = [chunk.dictionary for chunk in column.chunks]
        if sum(one.nbytes for one in texts) > _LONG * len(column):
            starts = map(pa.scalar, np.cumsum([0, *map(len, texts[:-1])], dtype=np.int32))
            codes = map(pc.add, (chunk.indices for chunk in column.chunks), starts)
            return pa.DictionaryArray.from_arrays(
                pa.concat_arrays(list(codes)), pa.concat_arrays(texts)
            )
    return column.combine_chunks()


def _paths(schema: pa.Schema) -> dict[str, tuple[str, pa.DataType]]:
    """By name where each column is in a file, and of which type; columns of structs have theirs."""
    paths: dict[str, tuple[str, pa.DataType]] = {}
    for field in schema:
        if pa.types.is_struct(field.type):
            paths |= {
                child.name: (f"{field.name}.{child.name}", child.type) for child in field.type
            }
    return paths | {field.name: (field.name, field.type) for field in schema}


def _note_left_out(source: Source, paths: list[dict[str, tuple[str, pa.DataType]]]) -> None:
    """Say which columns are lacking, with what that costs, and which there is no place for."""
    if lacking := rows.lacking(set.intersection(*map(set, paths))):
        warn(f"import: {source.path} has no column {', '.join(lacking)}")
    every = {name: inside[name] for inside in paths for name in inside if name not in rows.NAMES}
    if others := [shown(where) for where, kind in every.values() if not pa.types.is_struct(kind)]:
        more = f" and {len(others) - 60} more" * (len(others) > 60)
        note(f"import: has no place for the columns {', '.join(others[:60])}{more}")


def _sound_files(source: Source, troubles: Troubles) -> list[tuple[Path, pa.Schema, int]]:
    """The files that can be opened, with their columns and numbers of rows."""
    sound, why = [], ""
    for path in source.files:
        try:
            with foreign.room(path.stat().st_size), pq.ParquetFile(path) as file:
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


def _readable(kind: pa.DataType, nested: bool) -> bool:
    """Whether a column may be read: not lists of texts, such as of tokens, nor texts of one length.

    Both could fill the memory: 2 MB of them can say that each of 20,000 rows holds 2 MB. So could
    texts in a struct, which do not stay folded.
    """
    inside = getattr(kind, "value_type", pa.null())
    lists = pa.types.is_list(kind) or pa.types.is_large_list(kind)
    if nested and not lists:
        return bool(pa.types.is_primitive(kind))
    unfolded = pa.types.is_nested(kind) or pa.types.is_fixed_size_binary(kind)
    return bool(pa.types.is_primitive(inside) if lists else not unfolded)


def batches(
    path: Path, names: dict[str, tuple[str, pa.DataType]], troubles: Troubles
) -> Iterator[tuple[int, pa.Table | None]]:
    """Rows in their order: how many, and the batch or None where they are damaged.

    Texts stay folded (dictionary-encoded): a small file can say that one long text stands in
    every row.
    """
    wanted = [where for where, _ in names.values()]
    folded = [name for name, (_, kind) in names.items() if kind in _TEXTS]
    size = path.stat().st_size
    with pq.ParquetFile(path, read_dictionary=folded) as file:
        for span in _spans(file.metadata):
            found, rows = None, [file.metadata.row_group(group).num_rows for group in span]
            with contextlib.suppress(*_DAMAGE), foreign.room(size):  # else a group at a time
                found = file.read_row_groups(span, wanted) if span[1:] else None
            if found is not None and found.num_rows == sum(rows) and found.nbytes < 4 * _NEAR:
                yield found.num_rows, found
                continue
            del found
            for group, left in zip(span, rows, strict=True):
                near = _NEAR * left // max(file.metadata.row_group(group).total_byte_size, 1)
                parts = file.iter_batches(max(1, min(_MOST_ROWS, near)), [group], wanted)
                try:
                    while left:
                        with foreign.room(size):  # whatever the file says of itself
                            if (batch := next(parts, None)) is None:
                                break
                        left -= batch.num_rows
                        yield batch.num_rows, pa.Table.from_batches([batch])
                except _DAMAGE as error:
                    if isinstance(error, OSError) and error.errno is not None:
                        raise  # a failing disk is no damage of the file
                    why = one_line(error)
                    place = f"{path.name}, {left} rows of group {group} ({why})"
                    troubles.add("damaged rows skipped", place, left)
                    yield left, None


def _spans(about: pq.FileMetaData) -> list[list[int]]:
    """Groups of rows that are read together: of small ones the call would take most of the time."""
    spans, rows, size = list[list[int]](), 0, 0
    for number in range(about.num_row_groups):
        group = about.row_group(number)
        rows, size = rows + group.num_rows, size + group.total_byte_size
        if not spans or rows > _MOST_ROWS or size > _NEAR // 2:
            spans.append([])
            rows, size = group.num_rows, group.total_byte_size
        spans[-1].append(number)
    return spans
