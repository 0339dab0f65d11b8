"""Read and write one file of a table: a sealed Parquet part, or a growing journal."""

import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import atomic, journal, untrusted
from bayes_at_n.pipeline.base.errors import one_line
from bayes_at_n.pipeline.store.columns import KEY, LATER

ROWS_PER_GROUP = 128  # also the most rows that one flipped bit can cost
HIDDEN = "_"  # prefix of files that readers of Parquet folders skip
# Columns with few distinct values.
_FEW = {"question_id", "finish_reason", "box", "outcome", "layer", "reason", "grader"}
# What pyarrow raises for a damaged file, or for one of another writer.
DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError)
Keep = Container[tuple[str, int]]  # keys of the rows to keep
_HEAVY = {"text", "token_ids", "logprobs"}  # columns that are read one row group at a time
_AT_ONCE = 32  # row groups of other columns, where the cost is per call


@dataclass
class Damage:
    """Messages about what could not be read, by file."""

    lines: dict[Path, list[str]] = field(default_factory=dict)

    def add(self, path: Path, line: str, error: BaseException | None = None) -> None:
        """Add a message about a file. Raises `error` if it is the system's (disk, permissions)."""
        if isinstance(error, OSError) and error.errno is not None:
            raise error
        self.lines.setdefault(path, []).append(f"{line} ({one_line(error)})" if error else line)

    def __str__(self) -> str:
        return "; ".join(line for lines in self.lines.values() for line in lines)


def write_part(path: Path, table: pa.Table, rows_per_group: int = ROWS_PER_GROUP) -> None:
    """Write a Parquet file atomically. Raises OSError: the disk is full, say.

    Larger row groups are faster, but a flipped bit costs a group: they are for derived rows.
    """
    path.parent.mkdir(exist_ok=True)  # not the run folder, which may have been renamed
    with atomic.replacing(path) as file, writer(file, table.schema) as groups:
        groups.write_table(table, rows_per_group)


def writer(file: Any, columns: pa.Schema) -> pq.ParquetWriter:
    """Open a Parquet writer with our compression, encodings and checksums."""
    return pq.ParquetWriter(
        file,
        columns,
        compression="zstd",
        use_dictionary=sorted(_FEW.intersection(columns.names)),
        column_encoding={
            f"{name}.list.element": "BYTE_STREAM_SPLIT"
            for name in ("logprobs", "prompt_logprobs")
            if name in columns.names
        },
        write_page_checksum=True,
    )


def without_pandas() -> None:
    """Keep pyarrow from importing pandas for its first array, which takes half a second.

    pyarrow then does not recognize pandas objects as input; `to_pandas` works.
    """

    def hidden(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)

    if "pandas" not in sys.modules:
        finder: Any = SimpleNamespace(find_spec=hidden)
        sys.meta_path.insert(0, finder)
        pa.array([0])
        sys.meta_path.remove(finder)


def fingerprint(path: Path) -> str:
    """Return size and modification time of a file; empty if there is none."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def put_aside(path: Path, suffix: str = ".damaged") -> None:
    """Rename a file so that readers skip it."""
    path.rename(path.with_name(f"{HIDDEN}{path.name.removeprefix(HIDDEN)}{suffix}"))


def keys(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[str, int]]:
    """Return the (question_id, trial) of each row."""
    return zip(*(rows[name].to_pylist() for name in KEY), strict=True)


def _kept(rows: Any, keep: Keep | None) -> Any:
    """Return the rows of a batch or table whose keys are in `keep`; None: all."""
    return (
        rows if keep is None else rows.filter(pa.array([k in keep for k in keys(rows)], pa.bool_()))
    )


def read(
    path: Path, columns: pa.Schema, names: list[str], damage: Damage, keep: Keep | None = None
) -> Iterator[pa.RecordBatch]:
    """Yield batches of columns of a part or journal, of the rows to `keep`; adds to `damage`."""
    if path.suffix == ".journal":
        frames, lines = journal.read(path, columns)
        for line in lines:
            damage.add(path, line)
        for frame in frames:
            yield _kept(frame, keep).select(names)
        return
    try:
        file = opened(path)
    except DAMAGE as error:
        damage.add(path, f"{path.name}: unreadable", error)
        return
    size = 1 if _HEAVY.intersection(names) else _AT_ONCE
    with file:
        groups = range(file.num_row_groups)
        spans = [groups[start : start + size] for start in groups[::size]][::-1]
        while spans:
            span = spans.pop()
            try:
                table = _rows(file, [*span], columns, names, keep)
            except DAMAGE as error:
                if len(span) > 1 and getattr(error, "errno", None) is None:
                    spans += [range(group, group + 1) for group in reversed(span)]
                    continue
                n = file.metadata.row_group(span[0]).num_rows
                damage.add(path, f"{path.name}: {n} damaged rows", error)
                continue
            yield from table.combine_chunks().to_batches()


def _rows(
    file: pq.ParquetFile, groups: list[int], columns: pa.Schema, names: list[str], keep: Keep | None
) -> pa.Table:
    """Read columns, keys included, of the rows to `keep` in some row groups."""
    if keep is not None and not any(
        k in keep for k in keys(_rows(file, groups, columns, [*KEY], None))
    ):
        groups = []  # skipped
    threads = file.metadata.num_rows > _AT_ONCE * ROWS_PER_GROUP  # for few rows they cost more
    table = file.read_row_groups(groups, columns=names, use_threads=threads)
    rows = sound(table, pa.schema([columns.field(name) for name in names]))
    return _kept(rows, keep)


def opened(path: Path) -> pq.ParquetFile:
    """Open a Parquet file. Raises: see `untrusted.check`; one of `DAMAGE`."""
    untrusted.check(path)
    return pq.ParquetFile(path, page_checksum_verification=True)


def read_whole(path: Path, columns: pa.Schema) -> pa.Table:
    """Read all of a part. Raises one of `DAMAGE`."""
    with opened(path) as file:  # `pq.read_table` would import pandas
        table = file.read()
    return sound(table, columns)


def sound(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Cast and validate a table of an untrusted writer. Raises one of `DAMAGE`."""
    for name in LATER.intersection(columns.names).difference(table.column_names):
        table = table.append_column(name, pa.nulls(len(table)))
    table = table.select(columns.names).cast(columns)
    table.validate(full=True)  # strings may not be UTF-8
    if any(table[name].null_count for name in KEY if name in columns.names):
        raise ValueError(f"a row without {' or '.join(KEY)}")
    return table
