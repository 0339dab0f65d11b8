"""The signals table as its readers need it: whether it is current.

`signals/signals.parquet` is one file, replaced as a whole, that says in its own metadata what it
was made from. So it is either complete or not there, and old signals are never taken for new.
"""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.store import runfolder, shards
from pipeline.store.columns import SIGNALS
from pipeline.store.runfolder import Run

UNREADABLE = (pa.ArrowException, OSError, ValueError, KeyError, TypeError)  # a damaged table
_ROWS_PER_GROUP = 1 << 16  # of tables that are made again in seconds
_SOURCES = "sources"
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


def write_recorded(path: Path, table: pa.Table, key: str, record: dict[str, Any]) -> None:
    """Write a table as one file that says in its own metadata how it came about."""
    table = table.replace_schema_metadata({key.encode(): json.dumps(record).encode()})
    shards.write_part(path, table, _ROWS_PER_GROUP)


def read_recorded(path: Path, columns: pa.Schema, key: str) -> tuple[pa.Table, dict[str, Any]]:
    """What `write_recorded` wrote; raises one of `UNREADABLE`."""
    with pq.ParquetFile(path, page_checksum_verification=True) as file:
        table = file.read()
    record = json.loads((table.schema.metadata or {})[key.encode()])
    return table.cast(columns), dict(record)


def write(run: Run, table: pa.Table, made_from: dict[str, Any]) -> None:
    """Replace the signals of a run."""
    write_recorded(path(run), table, _SOURCES, made_from)


def stored(run: Run) -> tuple[pa.Table, dict[str, Any]] | None:
    """The signals and what they were made from; None when missing or damaged."""
    try:
        return read_recorded(path(run), SIGNALS, _SOURCES)
    except FileNotFoundError:
        return None
    except UNREADABLE as error:
        warn(f"{path(run)}: unreadable, so not there; {_REMEDY} ({shards.first_line(error)})")
        return None


def current(run: Run) -> pa.Table:
    """The signals of a run, of what it holds now.

    Raises:
        UserError: there are none, or they are older than the attempts, grades or verdicts.
    """
    signals = stored(run)
    if signals is None:
        raise UserError(f"{run.path}: no signals yet; {_REMEDY} first")
    table, made_from = signals
    changed = [name for name, now in sources(run).items() if made_from.get(name) != now]
    if changed:
        raise UserError(f"{path(run)}: older than the run's {', '.join(changed)}; {_REMEDY} again")
    return table


def identity(run: Run) -> str:
    """A hash of the signals file, for tables that are made from it."""
    return _digest([path(run)]) or ""


def question_set(run: Run) -> str:
    """A hash of the questions (problems and gold answers) of a run, whatever their order."""
    return runfolder.short_hash(" ".join(sorted(q["question_hash"] for q in run.questions)))


def _files(folder: Path) -> list[Path]:
    files = (*folder.glob("*.parquet"), *folder.glob("*.journal"))
    return sorted(file for file in files if not file.name.startswith("."))


def _digest(files: Sequence[Path]) -> str | None:
    if not files:
        return None
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode())
        with file.open("rb") as opened:
            total.update(hashlib.file_digest(opened, "sha256").digest())
    return total.hexdigest()
