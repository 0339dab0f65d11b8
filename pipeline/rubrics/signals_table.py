"""The signals table as its readers need it: whether it is current.

`signals/signals.parquet` is one file, replaced as a whole, that says in its own metadata what it
was made from. So it is either complete or not there, and old signals are never taken for new.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import records, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import SIGNALS
from bayes_at_n.pipeline.store.records import Recorded
from bayes_at_n.pipeline.store.runfolder import Run

_SOURCES = "sources"
_REMEDY = f"run `{PROGRAM} signals`"


def path(run: Run) -> Path:
    """The one file of the signals table."""
    return run.path / "signals" / "signals.parquet"


def sources(run: Run) -> dict[str, Any]:
    """What signals are made from, to be compared: the files of a run, by content where small.

    Of attempts what they hold; of older ones, which do not say it, the names and sizes of their
    files. A copied run folder has the same sources.
    """
    return {
        "attempts": _attempts(run),
        "questions": _digest([run.path / "questions.parquet"]),
        "grades": _digest(shards.files(run.grades)),
        "verdicts": _digest(shards.files(run.path / "verdicts")),
        "judge": run.cfg.dataset.judge,
    }


def write(run: Run, table: pa.Table, made_from: dict[str, Any]) -> None:
    """Replace the signals of a run."""
    records.write(path(run), Recorded(table, made_from), _SOURCES)


def stored(run: Run) -> Recorded | None:
    """The signals and what they were made from; None when missing or damaged."""
    return records.read(path(run), SIGNALS, _SOURCES, "signals")


def current(run: Run) -> pa.Table:
    """The signals of a run, of what it holds now.

    Raises UserError: there are none, or they are older than the attempts, grades or verdicts.
    """
    signals = stored(run)
    if signals is None:
        raise UserError(f"{run.path}: no signals yet; {_REMEDY} first")
    if names := changed(signals, sources(run)):
        raise UserError(f"{path(run)}: older than the run's {', '.join(names)}; {_REMEDY} again")
    return signals.table


def changed(stored: Recorded, now: dict[str, Any]) -> list[str]:
    """Which sources are others now than those that stored signals were made from."""
    return [name for name, value in now.items() if stored.record.get(name) != value]


def identity(run: Run) -> str:
    """A hash of the signals file, for tables that are made from it."""
    return _digest([path(run)]) or ""


def question_set(run: Run) -> str:
    """A hash of the questions (problems and gold answers) of a run, whatever their order."""
    return runfolder.short_hash(" ".join(sorted(q["question_hash"] for q in run.questions)))


def _attempts(run: Run) -> Any:
    return [[part.stem, part.mark] for part in tables.parts(run.attempts)]


def _digest(files: Sequence[Path]) -> str | None:
    if not files:
        return None
    total = hashlib.sha256()
    for file in files:
        total.update(file.name.encode())
        with file.open("rb") as opened:
            total.update(hashlib.file_digest(opened, "sha256").digest())
    return total.hexdigest()
