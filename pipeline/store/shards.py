"""Tables as folders of shards: sealed Parquet parts, and growing journals.

Writers never share a file. A part appears by atomic rename and never changes; a journal is sealed
into a part of the same stem. If a key occurs twice, after a crash or a race, readers keep the first
one in the order of file names. Files under a raised `sampling.max_tokens` (NAME-upto65536) come
first, the highest before others, so that a continued attempt counts and not its beginning. A file
whose `identity_hash` differs from the manifest's belongs to another run and is not read.
"""

import contextlib
import functools
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import atomic, journal, untrusted
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, LATER
from bayes_at_n.pipeline.store.provenance import HASH

ROWS_PER_GROUP = 128  # also the most rows that one flipped bit can cost
HIDDEN = "_"  # prefix of files that readers of Parquet folders skip
# Columns with few distinct values.
_FEW = {"question_id", "finish_reason", "box", "outcome", "layer", "reason", "grader"}
# What pyarrow raises for a damaged file, or for one of another writer.
DAMAGE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError, RecursionError)
Keep = Container[tuple[str, int]] | None  # keys of the rows to read; None: all
_HEAVY = {"text", "token_ids", "logprobs"}  # columns that are read one row group at a time
_AT_ONCE = 32  # row groups of other columns, where the cost is per call
_TAKEN = "-taken"  # suffix of a journal that another process than its writer seals
Listing = TypeVar("Listing", bound=Callable[..., Any])
_UPTO = re.compile(r"\d{5}-upto(\d+)(-[a-z]+)*$")


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


def relisted(function: Listing) -> Listing:
    """Call a function again if a journal was sealed since it had listed the files of a table."""

    @functools.wraps(function)
    def again(*args: Any, **kwargs: Any) -> Any:
        while True:
            try:
                return function(*args, **kwargs)
            except OSError as error:
                if error.errno not in atomic.GONE:
                    raise

    return again  # type: ignore[return-value]


def write_part(path: Path, table: pa.Table, rows_per_group: int = ROWS_PER_GROUP) -> None:
    """Write a Parquet file atomically. A flipped bit costs a row group of sampled rows."""
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
    """Keep pyarrow from importing pandas for its first array, which takes half a second."""

    def hidden(name: str, *_: object) -> None:
        if name == "pandas":
            raise ImportError(name)

    if "pandas" not in sys.modules:  # pyarrow then takes no data frames; `to_pandas` works
        finder: Any = SimpleNamespace(find_spec=hidden)
        sys.meta_path.insert(0, finder)
        pa.array([0])
        sys.meta_path.remove(finder)


def fingerprint(path: Path) -> str:
    """Return size and modification time of a file; empty if there is none."""
    with contextlib.suppress(OSError):
        status = path.stat()
        return f"{status.st_size} {status.st_mtime_ns}"
    return ""


def put_aside(path: Path, suffix: str = ".damaged") -> None:
    """Rename a file so that readers skip it."""
    path.rename(path.with_name(f"{HIDDEN}{path.name.removeprefix(HIDDEN)}{suffix}"))


def keys_in(rows: pa.RecordBatch | pa.Table) -> Iterator[tuple[str, int]]:
    """Return the (question_id, trial) of each row."""
    return zip(*(rows[name].to_pylist() for name in KEY), strict=True)


def _kept(rows: Any, keep: Keep) -> Any:
    if keep is None:
        return rows
    return rows.filter(pa.array([key in keep for key in keys_in(rows)], pa.bool_()))


def read(
    path: Path, columns: pa.Schema, names: list[str], damage: Damage, keep: Keep = None
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
    file: pq.ParquetFile, groups: list[int], columns: pa.Schema, names: list[str], keep: Keep
) -> pa.Table:
    """Read columns, keys included, of the rows to `keep` in some row groups."""
    if keep is not None:
        keys = keys_in(_rows(file, groups, columns, [*KEY], None))
        groups = groups if any(key in keep for key in keys) else []
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
        return sound(file.read(), columns)


def sound(table: pa.Table, columns: pa.Schema) -> pa.Table:
    """Cast and validate a table of an untrusted writer. Raises one of `DAMAGE`."""
    for name in LATER.intersection(columns.names).difference(table.column_names):
        table = table.append_column(name, pa.nulls(len(table)))
    table = table.select(columns.names).cast(columns)
    table.validate(full=True)  # strings may not be UTF-8
    if any(table[name].null_count for name in KEY if name in columns.names):
        raise ValueError(f"a row without {' or '.join(KEY)}")
    return table


def metadata(path: Path) -> dict[bytes, bytes]:
    """Return the metadata of a part or a journal, empty if it is damaged. Raises OSError."""
    if path.suffix == ".journal":
        return journal.metadata(path)
    try:
        return dict(pq.read_schema(path).metadata or {})
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:
            raise
        return {}


def of_another_run(path: Path) -> str:
    """Return why a file of attempts belongs to another run than its folder's; empty if not."""
    manifest = path.parent.parent / "manifest.json"
    own = _hash_in(manifest, fingerprint(manifest))
    other = metadata(path).get(HASH.encode(), b"").decode(errors="replace")
    if not own or not other or own == other:
        return ""
    return f"{path.name}: made by another run ({other[:16]}, not {own[:16]}), so not read"


@functools.lru_cache(maxsize=1 << 12)
def _hash_in(manifest: Path, fingerprint: str) -> str:
    with contextlib.suppress(OSError, ValueError, UserError):
        return str(untrusted.read_json(manifest).get(HASH, ""))
    return ""


def seal(path: Path, columns: pa.Schema) -> list[str]:
    """Turn a journal into a part and remove it, or rename it if damaged; return its damage.

    A part that a crash left beside its journal is merged, since either may be damaged.
    """
    untrusted.check(path)
    batches, damage = journal.read(path, columns)
    part, seen = path.with_name(f"{stem(path)}.parquet"), set[tuple[str, int]]()
    if part.exists():
        batches = [*read(part, columns, columns.names, Damage()), *batches]
    table = pa.Table.from_batches((_new_rows(batch, seen) for batch in batches), columns)
    if table.num_rows:
        write_part(part, table.replace_schema_metadata(journal.metadata(path)))
    if damage:
        put_aside(path)
    else:
        path.unlink()
    return damage


def seal_leftovers(
    folder: Path, columns: pa.Schema, is_dead: Callable[[str], bool] = lambda worker: True
) -> list[str]:
    """Seal the journals of dead workers, by `is_dead` of their names, and delete their drafts.

    A journal is renamed before it is read, unless its writer had made a part of it: a worker that
    wakes up after all finds its journal gone and starts a new one (`AttemptWriter`).
    """
    for temporary in folder.glob(".*.tmp"):
        if is_dead(worker_of(temporary)):
            temporary.unlink(missing_ok=True)
    damage = []
    for path in sorted(folder.glob("*.journal")):
        if is_dead(worker_of(path)):
            if _TAKEN not in path.stem and not path.with_name(f"{stem(path)}.parquet").exists():
                path = path.rename(path.with_name(f"{path.stem}{_TAKEN}.journal"))
            damage += seal(path, columns)
    return damage


def batches(
    folder: Path,
    columns: pa.Schema,
    names: Iterable[str],
    damage: Damage,
    keep: Keep = None,
    only: Callable[[Path], bool] = lambda path: True,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the columns `names` of a table, every key once, in bounded memory.

    Safe while others write: a journal that is sealed meanwhile is read from its part. `damage` gets
    what cannot be read, or belongs to another run. `only`: which files to read.
    """
    names = list(names)
    needed = list(dict.fromkeys([*KEY, *names]))
    seen, done = set[tuple[str, int]](), set[str]()
    while fresh := [path for path in files(folder) if stem(path) not in done and only(path)]:
        for path in fresh:
            try:
                if columns is ATTEMPTS and (reason := of_another_run(path)):
                    damage.add(path, reason)
                else:
                    for batch in read(path, columns, needed, damage, keep):
                        if (kept := _new_rows(batch, seen)).num_rows:
                            yield kept.select(names)
                done.add(stem(path))
            except OSError as error:
                if error.errno not in atomic.GONE:
                    raise  # otherwise it was sealed or set aside since the listing: list again


def keys(folder: Path, columns: pa.Schema, damage: Damage) -> set[tuple[str, int]]:
    """Return the (question_id, trial) of all readable rows; see `batches`."""
    read = batches(folder, columns, KEY, damage)
    return {key for batch in read for key in keys_in(batch)}


def _new_rows(batch: pa.RecordBatch, seen: set[tuple[str, int]]) -> pa.RecordBatch:
    """Return the rows whose keys are not in `seen`, and add their keys to it."""
    fresh = []
    for i, key in enumerate(keys_in(batch)):
        if key not in seen:
            seen.add(key)
            fresh.append(i)
    return batch if len(fresh) == batch.num_rows else batch.take(pa.array(fresh, pa.int64()))


def set_aside(damage: Damage, columns: pa.Schema) -> str:
    """Rename damaged parts after copying their sound rows into a new part; return their damage."""
    items = damage.lines.items()
    parts = Damage({path: lines for path, lines in items if path.suffix == ".parquet"})
    for path in filter(Path.exists, parts.lines):
        sound = list(read(path, columns, columns.names, Damage()))
        if sound and not of_another_run(path):
            table = pa.Table.from_batches(sound, columns.with_metadata(metadata(path)))
            write_part(path.with_name(f"{path.stem}-sound.parquet"), table)
        put_aside(path)
    return str(parts)


def stem(path: Path) -> str:
    """Return the common stem of a journal and its part.

    >>> stem(Path("_w-00001.journal")), stem(Path("w-00001.parquet"))
    ('w-00001', 'w-00001')
    """
    return path.stem.removeprefix(HIDDEN)


@relisted
def files(folder: Path) -> list[Path]:
    """Return parts, and journals without one, in reading order. Raises: see `untrusted.check`."""
    if folder.is_symlink() and not folder.exists():
        untrusted.check(folder)
    by_stem: dict[str, Path] = {}
    listed = os.listdir(folder) if folder.is_dir() else []
    for name in sorted(listed, key=lambda name: name.endswith(".parquet")):  # the part wins
        if name.endswith((".journal", ".parquet")) and not name.startswith("."):
            untrusted.check(path := folder / name)
            by_stem[stem(path)] = path
    return [by_stem[name] for name in sorted(by_stem, key=reading_order)]


def reading_order(stem: str) -> tuple[int, str]:
    """Return the sort key of stems in reading order, in which the first row of a key counts.

    >>> sorted(["w1-00000", "w2-00000-upto64", "w3-00000-upto128-sound"], key=reading_order)
    ['w3-00000-upto128-sound', 'w2-00000-upto64', 'w1-00000']
    """
    limit = _UPTO.search(stem)
    return -int(limit[1]) if limit else 0, stem


def worker_id() -> str:
    """Return a name that is unique over all nodes, and that sorts by its time."""
    return f"{time.time_ns() // 1000:016d}-{node()}-{os.getpid()}"


def node() -> str:
    """Return this machine's short name, Slurm's if it has one."""
    return (os.environ.get("SLURMD_NODENAME") or socket.gethostname()).split(".")[0]


def worker_of(path: Path) -> str:
    """Return the worker that wrote a file of a table; empty if its name has none.

    >>> worker_of(Path("_0000000000000007-gpu-01-12345-00003.journal"))
    '0000000000000007-gpu-01-12345'
    >>> worker_of(Path(".0000000000000007-n1-42-00003-taken.parquet.0a1b.tmp"))
    '0000000000000007-n1-42'
    >>> worker_of(Path("0000000000000007-n1-42-00003-upto65536-sound.parquet"))
    '0000000000000007-n1-42'
    """
    named = re.match(r"[_.]?(\d{16}-.+-\d+)-\d{5}(-[a-z]+\d*)*\.[a-z]", path.name)
    return named[1] if named else ""
