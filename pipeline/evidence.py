"""The signals table as its readers need it: whether it is current, and rows found by their key.

`signals/signals.parquet` is one file, replaced as a whole, that says in its own metadata what it
was made from. So it is either complete or not there, and old signals are never taken for new.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from pipeline import runfolder, shards
from pipeline.console import warn
from pipeline.errors import UserError
from pipeline.runfolder import Run
from pipeline.tables import KEY, SIGNALS

Ints = npt.NDArray[np.int64]
ROWS_PER_GROUP = 1 << 16  # of tables that are made again in seconds
_SOURCES = b"sources"
_REMEDY = "run `python -m pipeline signals`"


def path(run: Run) -> Path:
    """The one file of the signals table."""
    return run.path / "signals" / "signals.parquet"


def sources(run: Run) -> dict[str, Any]:
    """What signals are made from, to be compared: the files of a run, by content where small.

    Attempts are never rewritten, so the names and sizes of their files say enough. A copied run
    folder has the same sources.
    """
    return {
        "attempts": [[file.name, file.stat().st_size] for file in _files(run.attempts)],
        "questions": _digest([run.path / "questions.parquet"]),
        "grades": _digest(_files(run.grades)),
        "verdicts": _digest(_files(run.path / "verdicts")),
    }


def write(run: Run, table: pa.Table, made_from: dict[str, Any]) -> None:
    """Replace the signals of a run."""
    told = {_SOURCES: json.dumps(made_from).encode()}
    table = table.cast(SIGNALS).replace_schema_metadata(told)
    shards.write_part(path(run), table, ROWS_PER_GROUP)


def stored(run: Run) -> tuple[pa.Table, dict[str, Any]] | None:
    """The signals and what they were made from; None when missing or damaged."""
    try:
        with pq.ParquetFile(path(run), page_checksum_verification=True) as file:
            table = file.read()
        told = json.loads((table.schema.metadata or {})[_SOURCES])
        return table.cast(SIGNALS), dict(told)
    except FileNotFoundError:
        return None
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        warn(f"{path(run)}: unreadable, so not there; {_REMEDY} ({shards.first_line(error)})")
        return None


def current(run: Run) -> pa.Table:
    """The signals of a run, of what it holds now.

    Raises:
        UserError: there are none, or they are older than the attempts, grades or verdicts.
    """
    found = stored(run)
    if found is None:
        raise UserError(f"{run.path}: no signals yet; {_REMEDY} first")
    table, told = found
    now = sources(run)
    changed = [name for name in now if told.get(name) != now[name]]
    if changed:
        raise UserError(f"{path(run)}: older than the run's {', '.join(changed)}; {_REMEDY} again")
    return table


def identity(run: Run) -> str:
    """A hash of the signals file, for tables that are made from it."""
    return _digest([path(run)]) or ""


def question_set(run: Run) -> str:
    """A hash of the questions (problems and gold answers) of a run, whatever their order."""
    return runfolder.short_hash(" ".join(sorted(q["question_hash"] for q in run.questions)))


def question_ids(run: Run) -> pa.Array:
    """The ids of a run's questions, in their order."""
    return pa.array([q["question_id"] for q in run.questions], pa.string())


def row_keys(rows: Any, ids: pa.Array) -> Ints:
    """One number per row of a table or batch: question (position in `ids`) and trial.

    Unknown questions get -1. `key >> 32` is the question, `key & 0xffffffff` the trial.
    """
    questions = pc.fill_null(pc.index_in(rows[KEY[0]], value_set=ids), -1)
    number = questions.to_numpy().astype(np.int64)
    trial = rows[KEY[1]].to_numpy().astype(np.int64)
    return np.where((number < 0) | (trial < 0), -1, (number << 32) | trial)


def rows_of(keys: Ints, known: Ints, order: Ints | None = None) -> Ints:
    """For each of `keys` its position in `known` (each there once), or -1.

    For many calls with one `known`, pass what ``np.argsort(known)`` gave as `order`.

    >>> rows_of(np.array([5, 7, 9]), np.array([9, 5])).tolist()
    [1, -1, 0]
    """
    if not known.size:
        return np.full(keys.shape, -1, np.int64)
    order = np.argsort(known) if order is None else order
    at = order[np.minimum(np.searchsorted(known, keys, sorter=order), known.size - 1)]
    return np.where(known[at] == keys, at, -1)


def aligned(
    folder: Path, schema: pa.Schema, columns: Sequence[str], keys: Ints, ids: pa.Array, verb: str
) -> dict[str, pa.Array]:
    """Columns of a table of attempts in the order of `keys`; null where it has no row.

    Args:
        folder: where the table's shards are.
        schema: the table's.
        columns: which of them.
        keys: the rows wanted, as from :func:`row_keys`.
        ids: the run's question ids, as for :func:`row_keys`.
        verb: the command that makes damaged rows again.
    """
    table = streamed(folder, schema, [*KEY, *columns], verb)
    rows = rows_of(keys, row_keys(table, ids))
    at = pa.array(rows, mask=rows < 0)
    return {name: table[name].take(at).combine_chunks() for name in columns}


def streamed(folder: Path, schema: pa.Schema, columns: Sequence[str], verb: str) -> pa.Table:
    """Some columns of a table of attempts, in memory, with a warning about damaged rows."""
    damage = shards.Damage()
    batches = list(shards.batches(folder, schema, columns, damage))
    if damage.lines:
        warn(f"{folder.name}: {damage}; run `{verb}` to make them again")
    kept = pa.schema([schema.field(name) for name in columns])
    return pa.Table.from_batches(batches, kept).combine_chunks()


def _files(folder: Path) -> list[Path]:
    found = (*folder.glob("*.parquet"), *folder.glob("*.journal"))
    return sorted(file for file in found if not file.name.startswith("."))


def _digest(files: Sequence[Path]) -> str | None:
    if not files:
        return None
    made = hashlib.sha256()
    for file in files:
        made.update(file.name.encode())
        with file.open("rb") as opened:
            made.update(hashlib.file_digest(opened, "sha256").digest())
    return made.hexdigest()
