"""A table as a folder of shards: sealed Parquet parts, and journals that are still growing.

Writers never share a file. A part appears by atomic rename and never changes afterwards; a
journal is sealed into a part of the same stem. If a crash leaves both, or two workers made the
same attempt, readers keep the first in the order of file names, so every key occurs once. Files
of a raised `sampling.max_tokens` say so in their names (-upto65536) and come before all others, the
highest first: so an attempt that was continued is read, and not what was there of it before.
"""

import contextlib
import re
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline.base import atomic, foreign, journal
from pipeline.base.errors import one_line
from pipeline.store import origin, workernames
from pipeline.store.columns import ADDED, ATTEMPTS, CONTINUED, DIGEST, KEY, digest

ROWS_PER_GROUP = 128  # also the most rows that one flipped bit can cost
# What starts with an underscore is skipped by everything that reads a folder of Parquet files.
HIDDEN, DAMAGED = "_", ".damaged"
# Columns that have few values, often.
_FEW = {"question_id", "finish_reason", "box", "outcome", "layer", "reason", "grader"}
_TAKEN = "-taken"  # the name of a journal that somebody else than its writer seals
# What pyarrow raises of a damaged file, or of one that somebody else wrote.
DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError)
SOUND = ".sound"  # a part's size and time of change when all of it was last known to be readable
_UPTO = re.compile(r"\d{5}-upto(\d+)(-[a-z]+)*$")
# Of a batch with the columns `_MARKS`, which rows are wanted: bool of the same length.
Keep = Callable[[pa.RecordBatch | pa.Table], Any]
_MARKS = [*KEY, CONTINUED.name, DIGEST.name]
_HEAVY = {"text", "token_ids", "logprobs"}  # columns of which a group of rows is read at a time
_AT_ONCE = 32  # groups of all others, which are mostly the cost of a call


@dataclass
class Damage:
    """What a reader could not read: file by file, in words."""

    lines: dict[Path, list[str]] = field(default_factory=dict)
    outdated: int = 0  # attempts whose only rows are of what is gone, see `rowkeys.streamed`

    def add(self, path: Path, line: str) -> None:
        """What is damaged is not known to be sound any more: the next `generate` owes its rows."""
        with contextlib.suppress(OSError):
            _mark(path).unlink(missing_ok=True)
        self.lines.setdefault(path, []).append(line)

    def __str__(self) -> str:
        return "; ".join(line for lines in self.lines.values() for line in lines)


def write_part(path: Path, table: pa.Table, rows_per_group: int = ROWS_PER_GROUP) -> None:
    """Write a Parquet file so that it is either there and complete, or not there.

    Larger groups of rows are for numbers that can be made again: much faster, but one flipped bit
    costs a whole group. Raises OSError: when the disk is full; a half-written file is removed.
    """
    path.parent.mkdir(exist_ok=True)  # not the run folder, which may have been renamed
    with atomic.replacing(path) as file, writer(file, table.schema) as groups:
        groups.write_table(table, rows_per_group)


def writer(file: Any, columns: pa.Schema) -> pq.ParquetWriter:
    """What writes groups of rows into an open file, as `write_part` does."""
    return pq.ParquetWriter(
        file,
        columns,
        compression="zstd",
        use_dictionary=sorted(_FEW.intersection(columns.names)),
        column_encoding={
            name: "BYTE_STREAM_SPLIT"
            for name in ("logprobs.list.element", "prompt_logprobs.list.element")
            if name.split(".")[0] in columns.names
        },
        write_page_checksum=True,
    )


def seal(path: Path, columns: pa.Schema) -> list[str]:
    """Turn a journal into a part and remove it; returns what was damaged in it, in words.

    A part that a crash left beside its journal is merged in: either may have been damaged since.
    A damaged journal is renamed, not removed, for whoever wants to look into it.
    """
    foreign.check(path)
    batches, damage = journal.read(path, columns)
    said = columns.with_metadata(journal.metadata(path))
    part = path.with_name(f"{stem(path)}.parquet")
    if part.exists():
        batches = [*read(part, columns, columns.names, Damage()), *batches]
        seen: set[tuple[str, int]] = set()
        batches = [_new_rows(batch, seen) for batch in batches]
    if batches:
        write_part(part, pa.Table.from_batches(batches, said))
        _mark_sound(part, fingerprint(part))
    if damage:
        _set_aside(path)
    else:
        path.unlink()
    return damage


def seal_leftovers(
    folder: Path, columns: pa.Schema, is_dead: Callable[[str], bool] = lambda worker: True
) -> list[str]:
    """Seal every journal that dead workers left, and drop their half-written parts.

    A worker that wakes up after all finds its journal gone, and writes into a new one what it has
    appended since (`AttemptWriter`): the journal gets another name before it is read.

    `is_dead`: whether the worker of that name, as of `workernames`, will write no more.
    """
    for temporary in folder.glob(".*.tmp"):
        if is_dead(workernames.worker_of(temporary)):
            temporary.unlink(missing_ok=True)
    damage = []
    for path in sorted(folder.glob("*.journal")):
        if is_dead(workernames.worker_of(path)):
            if not path.stem.endswith(_TAKEN):
                path = path.rename(path.with_name(f"{path.stem}{_TAKEN}.journal"))
            damage += seal(path, columns)
    return damage


def batches(
    folder: Path,
    columns: pa.Schema,
    names: Iterable[str],
    damage: Damage,
    verify: bool = False,
    of: str | None = None,
    keep: Keep | None = None,
    stems: Container[str] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Stream the columns `names` of all rows of a table, every key once, in bounded memory.

    What cannot be read, or is of another run, is left out and added to `damage`. Safe while other
    processes write: a journal that is sealed meanwhile is read from its part. With `verify` the
    other columns are read and checked, too, of every part that has changed since that was last
    done; with `of` only what that worker wrote is read, with `stems` only files of these stems;
    with `keep` only those rows count, and groups without any of them are passed over. Raises
    UserError: as `foreign.check`.
    """
    names = list(names)
    needed = list(dict.fromkeys([*KEY, *names]))
    seen: set[tuple[str, int]] = set()
    done: set[str] = set()
    while fresh := [path for path in files(folder) if stem(path) not in done]:
        for path in fresh:
            done.add(stem(path))
            if of is not None and workernames.worker_of(path) != of:
                continue
            if stems is not None and stem(path) not in stems:
                continue
            try:
                if columns is ATTEMPTS and (why := origin.foreign(path)):
                    damage.add(path, why)
                    continue
                args = path, columns, needed, damage
                for batch in _verified(*args) if verify else read(*args, keep):
                    kept = _new_rows(batch, seen)
                    if kept.num_rows:
                        yield kept.select(names)
            except OSError as error:
                if error.errno not in atomic.GONE:
                    raise
                done.discard(stem(path))  # sealed or set aside since the listing: list again


def keys(
    folder: Path, columns: pa.Schema, damage: Damage, verify: bool = False, of: str | None = None
) -> set[tuple[str, int]]:
    """The (question_id, trial) of every readable row; for `verify` and `of` see `batches`."""
    readable: set[tuple[str, int]] = set()
    for batch in batches(folder, columns, KEY, damage, verify, of):
        readable.update(_keys(batch))
    return readable


def among(wanted: Container[tuple[str, int]]) -> Keep:
    """Of a batch the rows whose key is among these, for `keep` of `batches`."""
    return lambda batch: pa.array([key in wanted for key in _keys(batch)], pa.bool_())


def _keys(batch: pa.RecordBatch | pa.Table) -> Iterator[tuple[str, int]]:
    return zip(*(batch[name].to_pylist() for name in KEY), strict=True)


def set_aside(damage: Damage, columns: pa.Schema) -> None:
    """Rename damaged parts out of the way, after copying their sound rows into a new part."""
    for path in damage.lines:
        if path.suffix != ".parquet" or not path.exists():
            continue
        sound = list(read(path, columns, columns.names, Damage()))
        if sound and not origin.foreign(path):
            said = columns.with_metadata(origin.metadata(path))
            copy = path.with_name(f"{path.stem}-sound.parquet")
            write_part(copy, pa.Table.from_batches(sound, said))
        _set_aside(path)


def stem(path: Path) -> str:
    """What a journal and the part that it becomes have in common.

    >>> stem(Path("_w-00001.journal")), stem(Path("w-00001.parquet"))
    ('w-00001', 'w-00001')
    """
    return path.stem.removeprefix(HIDDEN)


def _verified(
    path: Path, columns: pa.Schema, names: list[str], damage: Damage
) -> Iterator[pa.RecordBatch]:
    """As `read`, after reading all columns of a part that is not known to be sound."""
    version, before = fingerprint(path), len(damage.lines.get(path, ()))
    known = _known_sound(path, version)
    for batch in read(path, columns, names if known else columns.names, damage):
        yield batch.select(names)
    if path.suffix == ".parquet" and not known and len(damage.lines.get(path, ())) == before:
        _mark_sound(path, version)


def fingerprint(path: Path) -> str:
    """Size and time of change of a file; empty where there is none."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"


def _mark(path: Path) -> Path:
    return path.with_name(f"{HIDDEN}{path.stem}{SOUND}")


def _mark_sound(path: Path, version: str) -> None:
    with contextlib.suppress(OSError):  # without it the part is merely read again
        _mark(path).write_text(version)


def _known_sound(path: Path, version: str) -> bool:
    try:
        return _mark(path).read_text(errors="replace") == version
    except OSError:
        return False


def _set_aside(path: Path) -> None:
    _mark(path).unlink(missing_ok=True)
    path.rename(path.with_name(f"{HIDDEN}{path.name.removeprefix(HIDDEN)}{DAMAGED}"))


def files(folder: Path) -> list[Path]:
    """Parts and journals in reading order; of one stem only the part. UserError: one is no file."""
    by_stem: dict[str, Path] = {}
    if folder.is_symlink() and not folder.exists():
        foreign.check(folder)
    for path in (*folder.glob("*.journal"), *folder.glob("*.parquet")):  # the part wins
        if not path.name.startswith("."):
            with contextlib.suppress(FileNotFoundError):  # sealed since the listing
                foreign.check(path)
                by_stem[stem(path)] = path
    return [by_stem[name] for name in sorted(by_stem, key=place)]


def place(stem: str) -> tuple[int, str]:
    """A sort key: where a part or journal comes in the order in which the first row counts.

    >>> sorted(["w1-00000", "w2-00000-upto64", "w3-00000-upto128-sound"], key=place)
    ['w3-00000-upto128-sound', 'w2-00000-upto64', 'w1-00000']
    """
    limit = _UPTO.search(stem)
    return -int(limit[1]) if limit else 0, stem


def read(
    path: Path, columns: pa.Schema, names: list[str], damage: Damage, keep: Keep | None = None
) -> Iterator[pa.RecordBatch]:
    """Stream columns of one part or journal; what cannot be read is added to `damage`.

    For `keep` see `batches`.
    """
    if path.suffix == ".journal":
        sound, lines = journal.read(path, columns)
        for line in lines:
            damage.add(path, line)
        for batch in sound:
            yield (batch if keep is None else batch.filter(keep(batch))).select(names)
        return
    try:
        file = opened(path)
    except DAMAGE as error:
        _raise_unless_damage(error)
        damage.add(path, f"{path.name}: unreadable ({one_line(error)})")
        return
    size = 1 if _HEAVY.intersection(names) else _AT_ONCE
    with file:
        groups = range(file.num_row_groups)
        spans = [list(groups[start : start + size]) for start in groups[::size]][::-1]
        while spans:
            span = spans.pop()
            try:
                table = _wanted(file, span, columns, names, keep)
            except DAMAGE as error:
                _raise_unless_damage(error)
                if len(span) > 1:
                    spans += [[group] for group in reversed(span)]
                    continue
                rows = file.metadata.row_group(*span).num_rows
                damage.add(path, f"{path.name}: {rows} damaged rows ({one_line(error)})")
                continue
            if columns is ATTEMPTS and len(names) == len(columns):
                table = _held(path, table.combine_chunks(), damage)
            yield from table.combine_chunks().to_batches()


def _held(path: Path, table: pa.Table, damage: Damage) -> pa.Table:
    """Of whole attempts those that hold what their digests say, which no checksum of a file can."""
    if table[DIGEST.name].null_count == table.num_rows:  # of before there were digests
        return table
    words = table.drop_columns(["token_ids", "logprobs"]).to_pylist()
    lists = zip(table["token_ids"], table["logprobs"], strict=True)
    held = [
        row[DIGEST.name] in (None, digest(row | {"token_ids": t.values, "logprobs": p.values}))
        for row, (t, p) in zip(words, lists, strict=True)
    ]
    if wrong := held.count(False):
        damage.add(path, f"{path.name}: {wrong} rows hold another text than was written")
    return table.filter(pa.array(held, pa.bool_()))


def _wanted(
    file: pq.ParquetFile, groups: list[int], columns: pa.Schema, names: list[str], keep: Keep | None
) -> pa.Table:
    """Columns of the rows of some groups that are wanted."""
    if keep is None:
        return _groups(file, groups, columns, names)
    marks = [name for name in _MARKS if name in columns.names]
    if _HEAVY.isdisjoint(names):
        table = _groups(file, groups, columns, list(dict.fromkeys([*names, *marks])))
        return table.filter(keep(table)).select(names)
    wanted = keep(_groups(file, groups, columns, marks))
    if not pc.any(wanted).as_py():
        groups, wanted = [], wanted.slice(0, 0)  # passed over
    return _groups(file, groups, columns, names).filter(wanted)


def opened(path: Path) -> pq.ParquetFile:
    """A Parquet file to be read; raises as `foreign.check`, or what pyarrow makes of damage."""
    foreign.check(path)
    return pq.ParquetFile(path, page_checksum_verification=True)


def whole(path: Path, columns: pa.Schema) -> pa.Table:
    """All of a part. Raises one of `DAMAGE`."""
    with opened(path) as file:  # no pandas import
        return _cast(file, file.read(), columns, columns.names)


def _groups(
    file: pq.ParquetFile, groups: list[int], columns: pa.Schema, names: list[str]
) -> pa.Table:
    """Columns of some groups of rows."""
    return _cast(file, file.read_row_groups(groups, columns=names), columns, names)


def _cast(file: pq.ParquetFile, table: pa.Table, columns: pa.Schema, names: list[str]) -> pa.Table:
    """What was read of a file; one that is older than a column (`ADDED`) has null there."""
    absent = [
        name for name in columns.names if name in ADDED and name not in file.schema_arrow.names
    ]
    if absent and len(file.schema_arrow) == len(columns) - len(absent):
        for name in set(absent) & set(names):
            field = columns.field(name)
            table = table.append_column(field, pa.nulls(table.num_rows, field.type))
    return sound(table.select(names), pa.schema([columns.field(name) for name in names]))


def sound(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """A table that others may have written, with these columns; raises as `whole`."""
    table = table.cast(columns)
    table.validate(full=True)  # texts need not be UTF-8
    if any(table[name].null_count for name in KEY if name in columns.names):
        raise ValueError(f"a row without {' or '.join(KEY)}")
    return table


def _raise_unless_damage(error: BaseException) -> None:
    """An error number comes from the system: the disk or the rights are at fault, not the data."""
    if isinstance(error, OSError) and error.errno is not None:
        raise error


def _new_rows(batch: pa.RecordBatch, seen: set[tuple[str, int]]) -> pa.RecordBatch:
    fresh = []
    for i, key in enumerate(_keys(batch)):
        if key not in seen:
            seen.add(key)
            fresh.append(i)
    return batch if len(fresh) == batch.num_rows else batch.take(pa.array(fresh, pa.int64()))


def read_table(path: Path, columns: pa.Schema) -> list[dict[str, Any]]:
    """A small single-file table as rows."""
    rows: list[dict[str, Any]] = whole(path, columns).to_pylist()
    return rows
