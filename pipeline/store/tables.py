"""Two kinds of tables: sampled ones, which cost GPU time, and those derived from them.

A sampled table (`attempts`, `labels`, imported ones) is a folder of parts, to which parts are only
added. A derived table is a pure function of these and of settings: one file per part, replaced as a
whole, with a record of all inputs in its metadata. If the present settings would give another
record, it is stale; without a file, the part's rows are pending. Two processes that derive at the
same time write the same bytes, so no lease is needed.

Rows are joined by integer keys: (question_id, trial) becomes `question << 32 | trial`, where
`question` is the index of the question in the run.
"""

import contextlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, MEANS
from bayes_at_n.pipeline.store.runfolder import Run

Ints = npt.NDArray[np.int64]
SAMPLED = {"attempts": ATTEMPTS, "means": MEANS}  # sampled tables, by folder in a run
Inputs = Mapping[str, Any]  # JSON values by name: settings, hashes of files, versions
IMPORTED: Inputs = {"imported": True}  # of imported rows, which no settings can make again
_RECORD = b"made_from"
_JOURNAL = re.compile(r"journal (\d{1,18}) 0{8}")  # the mark of a journal
_ROWS_PER_GROUP = 1 << 16  # of derived rows, which are made again in seconds
_Piece = tuple[Ints, pa.Table | None]  # keys, and their rows unless pending
_FOOTER = 1 << 16  # bytes at the end of a Parquet file, with page offsets and statistics


def question_ids(run: Run) -> pa.Array:
    """Return the ids of a run's questions in order."""
    return pa.array([q["question_id"] for q in run.questions], pa.string())


def encode(rows: Any, ids: pa.Array) -> Ints:
    """Return the key of each row of a table or batch, int64; -1 for questions not in `ids`."""
    number = pc.fill_null(pc.index_in(rows[KEY[0]], value_set=ids), -1).to_numpy().astype(np.int64)
    trial = pc.fill_null(rows[KEY[1]], -1).to_numpy().astype(np.int64)
    return np.where((number < 0) | (trial < 0), -1, (number << 32) | trial)


def cells(keys: Ints, trials: int) -> tuple[npt.NDArray[np.bool_], tuple[Ints, Ints]]:
    """Return a mask of known questions' first trials, and question and trial of those.

    >>> kept, (question, trial) = cells(np.array([-1, 7, 2 << 32 | 3]), 5)
    >>> kept.tolist(), question.tolist(), trial.tolist()
    ([False, False, True], [2], [3])
    """
    trial = keys & 0xFFFFFFFF
    kept = (keys >= 0) & (trial < trials)
    return kept, (keys[kept] >> 32, trial[kept])


def placed(rows: Any, ids: pa.Array, values: Any, shape: tuple[int, ...], unknown: Any) -> Any:
    """Return a matrix of questions and trials with the values of a table's rows, else `unknown`.

    >>> rows = pa.table({"question_id": ["b", "a", "c"], "trial": [0, 1, 0]})
    >>> placed(rows, pa.array(["a", "b"]), np.array([7, 8, 9]), (2, 2), -1).tolist()
    [[-1, 8], [7, -1]]
    """
    kept, cell = cells(encode(rows, ids), shape[1])
    matrix = np.full(shape, unknown, values.dtype)
    matrix[cell] = values[kept]
    return matrix


def rows_of(keys: Ints, known: Ints, order: Ints | None = None) -> Ints:
    """Return the index of each key in `known`, whose keys are unique, or -1.

    `order`: ``np.argsort(known)``, for repeated calls with one `known`.

    >>> rows_of(np.array([5, 7, 9]), np.array([9, 5])).tolist()
    [1, -1, 0]
    """
    if not known.size:
        return np.full(keys.shape, -1, np.int64)
    order = np.argsort(known) if order is None else order
    index = order[np.minimum(np.searchsorted(known, keys, sorter=order), known.size - 1)]
    return np.where(known[index] == keys, index, -1)


def in_order(rows: pa.Table, known: Ints, names: Sequence[str], keys: Ints) -> dict[str, pa.Array]:
    """Return columns of a table with the keys `known` in the order of `keys`, else null."""
    index = rows_of(keys, known)
    indices = pa.array(index, mask=index < 0)
    return {name: rows[name].take(indices).combine_chunks() for name in names}


def aligned(run: Run, rows: pa.Table, keys: Ints) -> dict[str, pa.Array]:
    """Return all columns but the key of a run's rows in the order of `keys`, else null."""
    names = [name for name in rows.column_names if name not in KEY]
    return in_order(rows, encode(rows, question_ids(run)), names, keys)


def streamed(run: Run, table: str, names: Sequence[str]) -> pa.Table:
    """Read key and columns of one of `SAMPLED`; warn about damaged rows."""
    columns, names, damage = SAMPLED[table], [*KEY, *names], shards.Damage()
    batches = shards.batches(run.path / table, columns, names, damage)
    rows = pa.Table.from_batches(batches, pa.schema([columns.field(name) for name in names]))
    if damage.lines:
        remedy = f"`{PROGRAM} status --check {run.path}` sets them aside, `run` makes them again"
        warn(f"{run.path}: {table}: {damage}; they do not count; {remedy}")
    return rows.combine_chunks()


def responses(
    run: Run, keys: Ints, damage: shards.Damage, few: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield texts of attempts with their index in `keys`; `few`: skip row groups without any."""
    ids, order = question_ids(run), np.argsort(keys)
    keep = {(ids[key >> 32].as_py(), key & 0xFFFFFFFF) for key in keys.tolist()} if few else None
    for batch in shards.batches(run.attempts, ATTEMPTS, [*KEY, "text"], damage, keep):
        index = rows_of(encode(batch, ids), keys, order)
        texts = batch["text"].filter(pa.array(index >= 0)).fill_null("")
        yield from zip(index[index >= 0].tolist(), texts.to_pylist(), strict=True)


class Stale(UserError):
    """Derived rows were made with other inputs than the present settings give."""


class Part(NamedTuple):
    """One file of a sampled table."""

    path: Path
    stem: str  # common to a journal and the part that it becomes
    mark: str  # identifies its contents: kind, size, checksum of its end

    def holds(self, mark: str) -> bool:
        """Return whether `mark` is its mark, now or before: a journal may have grown."""
        was, now = (_JOURNAL.fullmatch(one) for one in (mark, self.mark))
        return mark == self.mark or bool(was and now and int(was[1]) <= int(now[1]))


class Rows(NamedTuple):
    """Rows of a derived table, each key once, and the number of pending keys of attempts."""

    table: pa.Table
    pending: int


@shards.relisted
def parts(folder: Path, damage: shards.Damage | None = None) -> list[Part]:
    """Return the files of a sampled table in reading order; those of other runs go to `damage`."""
    listed = list[Part]()
    for path in shards.files(folder):
        if reason := shards.of_another_run(path):
            (damage or shards.Damage()).add(path, reason)
            continue
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - _FOOTER))
            end = 0 if path.suffix == ".journal" else zlib.crc32(file.read())
        listed.append(Part(path, shards.stem(path), f"{path.suffix[1:]} {size} {end:08x}"))
    return listed


def marks(run: Path, *names: str) -> dict[str, Any]:
    """Return marks of the contents of files and tables in a run folder, by name."""
    by_name = dict[str, Any]()
    for path in (run / name for name in names):
        if path.is_dir():
            by_name[path.name] = [[part.stem, part.mark] for part in parts(path)]
        elif path.is_file():
            by_name[path.name] = zlib.crc32(path.read_bytes())
    return by_name


def keys_of(run: Run, part: Part) -> Ints:
    """Return the keys (`encode`) of all readable rows of a part of attempts."""
    ids = question_ids(run)
    read = shards.read(part.path, ATTEMPTS, [*KEY], shards.Damage())
    return np.concatenate([np.empty(0, np.int64), *(encode(batch, ids) for batch in read)])


def record(path: Path, quiet: bool = False) -> dict[str, Any]:
    """Return the record of a derived file; empty if there is no file, or it is unreadable."""
    try:
        with shards.opened(path) as file:
            stored = json.loads((file.schema_arrow.metadata or {})[_RECORD])
        inputs, part = dict(stored["inputs"]), str(stored["part"])
        return {"version": stored["version"], "inputs": inputs, "part": part}
    except shards.DAMAGE as error:
        if not quiet and not isinstance(error, FileNotFoundError):
            warn(f"{path}: unreadable, so its rows are pending ({one_line(error)})")
        return {}


def is_imported(path: Path) -> bool:
    """Return whether the rows of a derived file were imported, so they cannot be recomputed."""
    return record(path, quiet=True).get("inputs") == IMPORTED


@dataclass(frozen=True)
class Derived:
    """A table with one file per part of attempts, made by the verb `verb`.

    Raise `version` when the results of the computation change. `inputs` of the methods are the
    settings, hashes of outside files and versions of libraries that the computation uses.
    """

    name: str
    columns: pa.Schema
    verb: str
    version: int | str

    def path(self, folder: Path, stem: str) -> Path:
        """Return the path of the rows of a stem in a run folder."""
        return folder / self.name / f"{stem}.parquet"

    def records(self, run: Run) -> list[dict[str, Any]]:
        """Return what was made of each part of attempts, see `record`."""
        return [record(self.path(run.path, part.stem)) for part in parts(run.attempts)]

    def pending(self, run: Run, inputs: Inputs) -> dict[Part, str]:
        """Return the parts whose rows are pending or stale, with the inputs that differ."""
        made = [(part, record(self.path(run.path, part.stem))) for part in parts(run.attempts)]
        differing = {part: self._differing(made_from, inputs) for part, made_from in made}
        return {p: differing[p] for p, of in made if differing[p] or of.get("part") != p.mark}

    def stale(self, run: Run, inputs: Inputs) -> dict[Path, str]:
        """Return the stale files, with the inputs that differ."""
        pending = self.pending(run, inputs).items()
        stale = {part: names for part, names in pending if names not in ("", "imported")}
        return {self.path(run.path, part.stem): names for part, names in stale.items()}

    def write(
        self, folder: Path, stem: str, table: pa.Table, inputs: Inputs = IMPORTED, mark: str = ""
    ) -> None:
        """Replace the rows of a stem in a run folder; `mark`: of their part of attempts."""
        made_from = {"version": self.version, "inputs": inputs, "part": mark}
        columns = self.columns.with_metadata({_RECORD: json.dumps(made_from, sort_keys=True)})
        shards.write_part(self.path(folder, stem), table.cast(columns), _ROWS_PER_GROUP)

    def sweep(self, run: Run) -> None:
        """Delete rows of parts that no longer exist, such as damaged ones that were set aside."""
        stems = {part.stem for part in parts(run.attempts)}
        for path in (run.path / self.name).glob("*.parquet"):
            if path.stem not in stems and not is_imported(path):
                path.unlink(missing_ok=True)

    def made(self, folder: Path, stem: str, names: Sequence[str]) -> tuple[pa.Table, str]:
        """Read the rows of a stem, whatever made them; set a damaged file aside if not imported."""
        path, damage, columns = self.path(folder, stem), shards.Damage(), self._columns(names)
        table = pa.Table.from_batches(shards.read(path, columns, columns.names, damage), columns)
        if damage.lines and not is_imported(path):
            table = columns.empty_table()
            with contextlib.suppress(OSError):  # the folder may be read-only
                shards.put_aside(path)
        return table, str(damage)

    @shards.relisted
    def read(self, run: Run, names: Sequence[str], inputs: Inputs | None) -> Rows:
        """Read the first row of every key. Raises Stale: made with other `inputs`; None: any."""
        pieces = [*self._pieces(run, names, inputs)]
        keys = np.concatenate([np.empty(0, np.int64), *(keys for keys, _ in pieces)])
        sizes = np.array([keys.size for keys, _ in pieces], int)
        has_row = np.repeat(np.array([rows is not None for _, rows in pieces], bool), sizes)
        unique, first = np.unique(keys, return_index=True)
        first = np.sort(first[unique >= 0])
        rows_of_first = (np.cumsum(has_row) - 1)[first[has_row[first]]]
        whole = [self._columns(names).empty_table(), *(rows for _, rows in pieces if rows)]
        table = pa.concat_tables(whole).take(pa.array(rows_of_first))
        return Rows(table, first.size - len(table))

    def _pieces(self, run: Run, names: Sequence[str], inputs: Inputs | None) -> Iterator[_Piece]:
        ids, sampled = question_ids(run), {part.stem: part for part in parts(run.attempts)}
        without = {path.stem for path in (run.path / self.name).glob("*.parquet")} - {*sampled}
        for stem in [*sampled, *sorted(without)]:
            part, path = sampled.get(stem), self.path(run.path, stem)
            made_from = record(path)
            whole = imported = made_from.get("inputs") == IMPORTED
            if part is None and not imported:
                continue
            if inputs is not None and not imported and (of := self._differing(made_from, inputs)):
                line = f"{run.path}: {self.name} were made from other inputs ({of})"
                raise Stale(f"{line}; run `{PROGRAM} {self.verb} {run.path}`")
            if imported or (part and made_from and part.holds(made_from["part"])):
                table, damage = self.made(run.path, stem, names)
                if damage:
                    warn(f"{path}: {damage}; its rows are pending")
                yield encode(table, ids), table
                whole |= not damage and part is not None and made_from["part"] == part.mark
            if part and not whole:
                yield keys_of(run, part), None

    def _columns(self, names: Sequence[str]) -> pa.Schema:
        return pa.schema([self.columns.field(name) for name in dict.fromkeys([*KEY, *names])])

    def _differing(self, made_from: Mapping[str, Any], inputs: Inputs) -> str:
        """Return the names of inputs that differ; empty if none do, or nothing was made yet."""
        then, now = made_from.get("inputs", {}), json.loads(json.dumps(inputs))
        if not made_from or then == IMPORTED:
            return "imported" if made_from else ""
        if made_from["version"] != self.version:
            return f"version {made_from['version']} of the computation, now {self.version}"
        return ", ".join(sorted(k for k in {*then, *now} if then.get(k) != now.get(k)))
