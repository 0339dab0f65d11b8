"""Tables of two kinds: sampled ones, which cost GPU time, and those derived from them.

A sampled table (`attempts`, `labels`, what an import brought) is a folder of parts that are only
ever added to. A derived table is a pure function of sampled parts and of settings: one file for
each part, replaced as a whole, with a record of all that decided it in its metadata. With another
record than the settings would give now, the file is stale; without a file, the part's rows are
pending. Two processes that derive at once write the same bytes, so no lease is needed.
"""

import contextlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base import atomic, journal
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import origin, parquet, rowkeys, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.store.runfolder import Run

Inputs = Mapping[str, Any]  # JSON values: settings, hashes of files, versions, by name
IMPORTED: Inputs = {"imported": True}  # of rows that came with records: no settings make them
_RECORD = b"made_from"
_JOURNAL = re.compile(r"journal (\d{1,18}) 0{8}")  # the mark of one
_SHAPE: dict[str, Any] = {"version": int | str, "inputs": dict, "part": str}
_ROWS_PER_GROUP = 1 << 16  # of derived rows, which are made again in seconds
_FOOTER = 1 << 16  # bytes; the end of a Parquet file says where its pages are, and their statistics


class Stale(UserError):
    """Derived rows were made with something else than the settings say."""


class Part(NamedTuple):
    """One file of a sampled table."""

    path: Path
    stem: str  # what a journal and the part that it becomes have in common
    mark: str  # what tells its contents from others: kind, size, checksum of its end

    def holds(self, mark: str) -> bool:
        """Return whether it had this mark before: the same file, or a journal that grew."""
        was, now = (_JOURNAL.fullmatch(one) for one in (mark, self.mark))
        return mark == self.mark or bool(was and now and int(was[1]) <= int(now[1]))


class Rows(NamedTuple):
    """Rows of a derived table, a key once, and how many keys of attempts have none yet."""

    table: pa.Table
    pending: int


def parts(folder: Path, damage: parquet.Damage | None = None) -> list[Part]:
    """List the files of a sampled table, in the order in which the first row of a key counts.

    Without those of another run, which are added to `damage`.
    """
    listed, damage = list[Part](), damage or parquet.Damage()
    for path in shards.files(folder):
        try:
            if why := origin.foreign(path):
                damage.add(path, why)
                continue
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(0, size - _FOOTER))
                end = 0 if path.suffix == ".journal" else zlib.crc32(file.read())
        except OSError as error:
            if error.errno not in atomic.GONE:
                raise
            return parts(folder)  # sealed since the listing
        listed.append(Part(path, shards.stem(path), f"{path.suffix[1:]} {size} {end:08x}"))
    return listed


def marks(run: Path, *names: str) -> dict[str, Any]:
    """Return marks of the contents of files and tables in a run folder, by their names."""
    found = dict[str, Any]()
    for path in (run / name for name in names):
        if path.is_dir():
            found[path.name] = [[part.stem, part.mark] for part in parts(path)]
        elif path.is_file():
            found[path.name] = zlib.crc32(path.read_bytes())
    return found


def keys_of(run: Run, part: Part, columns: pa.Schema = ATTEMPTS) -> rowkeys.Ints:
    """Return the keys (`rowkeys.encode`) of all readable rows of a part."""
    ids, damage = rowkeys.question_ids(run), parquet.Damage()
    read = [rowkeys.encode(b, ids) for b in parquet.read(part.path, columns, [*KEY], damage)]
    return np.concatenate(read) if read else np.empty(0, np.int64)


def rows(part: Part) -> int:
    """Count the rows of a part; 0 where it is unreadable."""
    with contextlib.suppress(*parquet.DAMAGE, UserError):
        if part.path.suffix == ".journal":
            return sum(batch.num_rows for batch in journal.read(part.path, ATTEMPTS)[0])
        with parquet.opened(part.path) as file:
            return int(file.metadata.num_rows)
    return 0


@dataclass(frozen=True)
class Derived:
    """A table with one file for each part of attempts, made from it by the verb `verb`.

    The author of a stage raises `version` whenever its results change. `inputs` of the methods are
    the settings, hashes of outside files and versions of libraries that the computation reads.
    """

    name: str
    columns: pa.Schema
    verb: str
    version: int | str

    def owed(self, run: Run, inputs: Inputs, imported: bool = False) -> list[Part]:
        """List the parts whose rows are pending or stale; with `imported` also imported ones."""
        wanted = self._record(inputs)
        made = {part: self.record(run, part) for part in parts(run.attempts)}
        return [
            part
            for part, record in made.items()
            if record != wanted | {"part": part.mark} and (imported or not _imported(record))
        ]

    def record(self, run: Run, part: Part) -> dict[str, Any]:
        """Return what the rows of a part were made from; empty: they are pending or unreadable."""
        return _record_of(self._path(run, part.stem))

    def write(self, run: Run, part: Part, inputs: Inputs, table: pa.Table) -> None:
        """Replace the rows of a part."""
        self.save(run.path, part.stem, table, inputs, part.mark)

    def save(
        self, run: Path, stem: str, table: pa.Table, inputs: Inputs = IMPORTED, mark: str = ""
    ) -> None:
        """Replace the rows of a stem in a run folder; imported ones need no part beside them."""
        record = json.dumps(self._record(inputs) | {"part": mark}, sort_keys=True)
        columns = self.columns.with_metadata({_RECORD: record})
        path = run / self.name / f"{stem}.parquet"
        parquet.write_part(path, table.cast(columns), _ROWS_PER_GROUP)

    def made(self, run: Run, part: Part, names: Sequence[str]) -> pa.Table:
        """Read the rows of a part, whatever they were made from; none where unreadable."""
        columns = self._columns(names)
        record, path = self.record(run, part), self._path(run, part.stem)
        return _readable(path, columns, _imported(record))[0] if record else columns.empty_table()

    def differing(self, run: Run, part: Part, inputs: Inputs) -> str:
        """Name the inputs that were others when the rows of a part were made."""
        record = self.record(run, part)
        return _differing(record, self._record(inputs)) if record else ""

    def damage(self, path: Path) -> str:
        """Set a damaged file aside, to be made anew; return what is wrong with it."""
        return _readable(path, self.columns, _imported(_record_of(path, quiet=True)))[1]

    def stale(self, run: Run, inputs: Inputs) -> dict[Path, str]:
        """Name the inputs that were others, of each file that is stale."""
        listed = parts(run.attempts)
        why = {self._path(run, part.stem): self.differing(run, part, inputs) for part in listed}
        return {path: names for path, names in why.items() if names not in ("", "imported")}

    def imported(self, run: Run) -> bool:
        """Return whether rows are there that came with records."""
        files = (run.path / self.name).glob("*.parquet")
        return any(_imported(_record_of(path, quiet=True)) for path in files)

    def sweep(self, run: Run) -> None:
        """Delete rows of parts that are gone, such as one that was set aside as damaged."""
        stems = {part.stem for part in parts(run.attempts)}
        for path in (run.path / self.name).glob("*.parquet"):
            if path.stem not in stems and not _imported(_record_of(path, quiet=True)):
                path.unlink(missing_ok=True)

    def read(self, run: Run, names: Sequence[str], inputs: Inputs | None) -> Rows:
        """Read columns of the first row of every key; unreadable files are named, and pending.

        Raises Stale: rows were made with other inputs; none are where `inputs` is None.
        """
        try:
            return self._read(run, self._columns(names), inputs)
        except OSError as error:
            if error.errno not in atomic.GONE:
                raise
            return self.read(run, names, inputs)  # a journal was sealed since the listing

    def _read(self, run: Run, columns: pa.Schema, inputs: Inputs | None) -> Rows:
        ids, wanted = rowkeys.question_ids(run), None if inputs is None else self._record(inputs)
        pieces = list[tuple[rowkeys.Ints, pa.Table | None]]()
        sampled = {part.stem: part for part in parts(run.attempts)}
        without = {path.stem for path in (run.path / self.name).glob("*.parquet")} - {*sampled}
        for stem in [*sampled, *sorted(without)]:
            part, path = sampled.get(stem), self._path(run, stem)
            record = _record_of(path)
            imported = _imported(record)
            if part is None and not imported:
                continue
            if record and not imported and wanted and (why := _differing(record, wanted)):
                line = f"{run.path}: {self.name} were made otherwise ({why})"
                raise Stale(f"{line}; run `{PROGRAM} {self.verb} {run.path}`")
            whole = imported
            if record and (imported or (part and part.holds(record["part"]))):
                table, damage = _readable(path, columns, imported)
                if damage:
                    warn(f"{path}: {damage}; its rows are pending")
                pieces.append((rowkeys.encode(table, ids), table))
                whole |= not damage and part is not None and record["part"] == part.mark
            if part is not None and not whole:
                pieces.append((keys_of(run, part), None))
        return _first(pieces, columns)

    def _columns(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in dict.fromkeys([*KEY, *names])])

    def _path(self, run: Run, stem: str) -> Path:
        return run.path / self.name / f"{stem}.parquet"

    def _record(self, inputs: Inputs) -> dict[str, Any]:
        return {"version": self.version, "inputs": json.loads(json.dumps(inputs))}


def _record_of(path: Path, quiet: bool = False) -> dict[str, Any]:
    try:
        with parquet.opened(path) as file:
            record = json.loads((file.schema_arrow.metadata or {})[_RECORD])
        known = record.keys() == _SHAPE.keys()
        return record if known and all(isinstance(record[k], _SHAPE[k]) for k in record) else {}
    except FileNotFoundError:
        return {}
    except (*parquet.DAMAGE, AttributeError) as error:
        if not quiet:
            warn(f"{path}: unreadable, so its rows are pending ({one_line(error)})")
        return {}


def _imported(record: dict[str, Any]) -> bool:
    return record.get("inputs") == IMPORTED


def _differing(record: dict[str, Any], wanted: dict[str, Any]) -> str:
    """Name the inputs that differ; empty where all are the same."""
    if _imported(record):
        return "imported"
    if record["version"] != wanted["version"]:
        return f"version {record['version']} of the computation, now {wanted['version']}"
    then, now = record["inputs"], wanted["inputs"]
    return ", ".join(sorted(k for k in {*then, *now} if then.get(k) != now.get(k)))


def _readable(path: Path, columns: pa.Schema, imported: bool) -> tuple[pa.Table, str]:
    """Read a derived file; return its rows and what is damaged: it is set aside unless imported."""
    damage = parquet.Damage()
    table = pa.Table.from_batches(parquet.read(path, columns, columns.names, damage), columns)
    if damage.lines and not imported:  # imported rows nobody can make again
        table = columns.empty_table()
        with contextlib.suppress(OSError):  # the folder may be read-only
            parquet.put_aside(path)
    return table, str(damage)


def _first(pieces: Sequence[tuple[rowkeys.Ints, pa.Table | None]], columns: pa.Schema) -> Rows:
    """Take the first row of every key; the keys of a piece without rows are pending."""
    table = pa.concat_tables([columns.empty_table(), *(t for _, t in pieces if t is not None)])
    keys, rows, start = [np.empty(0, np.int64)], [np.empty(0, np.int64)], 0
    for of_piece, piece in pieces:
        keys.append(of_piece)
        has = piece is not None
        rows.append(np.arange(start, start + of_piece.size) if has else np.full_like(of_piece, -1))
        start += of_piece.size * has
    every, first = np.unique(np.concatenate(keys), return_index=True)
    at = np.sort(np.concatenate(rows)[first[every >= 0]])
    return Rows(table.take(pa.array(at[at >= 0])), int(np.count_nonzero(at < 0)))
