"""Tables as folders of shards: sealed Parquet parts, and growing journals.

Writers never share a file. A part appears by atomic rename and never changes; a journal is sealed
into a part of the same stem. If a key occurs twice, after a crash or a race, readers keep the first
one in the order of file names. Files under a raised `sampling.max_tokens` (NAME-upto65536) come
first, the highest before others, so that a continued attempt counts and not its beginning.
"""

import os
import re
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pyarrow as pa

from bayes_at_n.pipeline.base import atomic, journal, untrusted
from bayes_at_n.pipeline.store import origin, parquet
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY

Only = Callable[[Path], bool]  # which files of a table to read
ENDINGS = r"(-[a-z]+\d*)*"  # suffixes of a file's name, after worker and number
_TAKEN = "-taken"  # suffix of a journal that another process than its writer seals
_UPTO = re.compile(r"\d{5}-upto(\d+)(-[a-z]+)*$")


def seal(path: Path, columns: pa.Schema) -> list[str]:
    """Turn a journal into a part and remove it; return its damage.

    A part that a crash left beside its journal is merged, since either may be damaged. A damaged
    journal is renamed, not removed, for inspection.
    """
    untrusted.check(path)
    batches, damage = journal.read(path, columns)
    with_origin = columns.with_metadata(journal.metadata(path))
    part = path.with_name(f"{stem(path)}.parquet")
    if part.exists():
        batches = [*parquet.read(part, columns, columns.names, parquet.Damage()), *batches]
    seen: set[tuple[str, int]] = set()
    table = pa.Table.from_batches((_new_rows(batch, seen) for batch in batches), columns)
    if table.num_rows:
        parquet.write_part(part, table.cast(with_origin))
    if damage:
        parquet.put_aside(path)
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
    damage: parquet.Damage,
    keep: parquet.Keep | None = None,
    only: Only = lambda path: True,
) -> Iterator[pa.RecordBatch]:
    """Yield batches of the columns `names` of a table, every key once, in bounded memory.

    Safe while others write: a journal that is sealed meanwhile is read from its part.

    Args:
        folder: of the table.
        columns: all columns of the table.
        names: the columns to read.
        damage: gets what cannot be read, or belongs to another run, which is left out.
        keep: keys of the rows to keep; None: all.
        only: which files to read.

    Raises UserError: see `untrusted.check`.
    """
    names = list(names)
    needed = list(dict.fromkeys([*KEY, *names]))
    seen, done = set[tuple[str, int]](), set[str]()
    while fresh := [path for path in files(folder) if stem(path) not in done and only(path)]:
        for path in fresh:
            try:
                if columns is ATTEMPTS and (reason := origin.of_another_run(path)):
                    damage.add(path, reason)
                else:
                    for batch in parquet.read(path, columns, needed, damage, keep):
                        if (kept := _new_rows(batch, seen)).num_rows:
                            yield kept.select(names)
                done.add(stem(path))
            except OSError as error:
                if error.errno not in atomic.GONE:
                    raise  # otherwise it was sealed or set aside since the listing: list again


def keys(
    folder: Path, columns: pa.Schema, damage: parquet.Damage, only: Only = lambda path: True
) -> set[tuple[str, int]]:
    """Return the (question_id, trial) of all readable rows; see `batches`."""
    read = batches(folder, columns, KEY, damage, only=only)
    return {key for batch in read for key in parquet.keys(batch)}


def _new_rows(batch: pa.RecordBatch, seen: set[tuple[str, int]]) -> pa.RecordBatch:
    """Return the rows whose keys are not in `seen`, and add their keys to it."""
    fresh = []
    for i, key in enumerate(parquet.keys(batch)):
        if key not in seen:
            seen.add(key)
            fresh.append(i)
    return batch if len(fresh) == batch.num_rows else batch.take(pa.array(fresh, pa.int64()))


def set_aside(damage: parquet.Damage, columns: pa.Schema) -> str:
    """Rename damaged parts after copying their sound rows into a new part.

    Returns the damage of parts; empty if only journals are damaged.
    """
    items = damage.lines.items()
    parts = parquet.Damage({path: lines for path, lines in items if path.suffix == ".parquet"})
    for path in (path for path in parts.lines if path.exists()):
        sound = list(parquet.read(path, columns, columns.names, parquet.Damage()))
        if sound and not origin.of_another_run(path):
            table = pa.Table.from_batches(sound, columns.with_metadata(origin.metadata(path)))
            parquet.write_part(path.with_name(f"{path.stem}-sound.parquet"), table)
        parquet.put_aside(path)
    return str(parts)


def stem(path: Path) -> str:
    """Return the common stem of a journal and its part.

    >>> stem(Path("_w-00001.journal")), stem(Path("w-00001.parquet"))
    ('w-00001', 'w-00001')
    """
    return path.stem.removeprefix(parquet.HIDDEN)


def files(folder: Path) -> list[Path]:
    """Return parts, and journals without one, in reading order. Raises: see `untrusted.check`."""
    if folder.is_symlink() and not folder.exists():
        untrusted.check(folder)
    by_stem: dict[str, Path] = {}
    try:
        listed = os.listdir(folder) if folder.is_dir() else []
        for name in sorted(listed, key=lambda name: name.endswith(".parquet")):  # the part wins
            if name.endswith((".journal", ".parquet")) and not name.startswith("."):
                untrusted.check(path := folder / name)
                by_stem[stem(path)] = path
    except FileNotFoundError:  # sealed since the listing
        return files(folder)
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
    named = re.match(rf"[_.]?(\d{{16}}-.+-\d+)-\d{{5}}{ENDINGS}\.[a-z]", path.name)
    return named[1] if named else ""
