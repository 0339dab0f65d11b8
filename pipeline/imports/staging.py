"""Rows on their way to the disk, as the tables of run folders, which are renamed at the end.

Everything is written under `runs/_import-HASH/`, which no verb takes for a run, and renamed when
the whole source has been read. A killed import leaves that folder; the same command clears it and
begins again.
"""

import contextlib
import fcntl
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from pipeline.base import journal
from pipeline.base.errors import UserError
from pipeline.imports.row import Row, derive
from pipeline.imports.source import Troubles
from pipeline.store import runfolder, shards
from pipeline.store.columns import ATTEMPTS, GRADES, MEANS, VERDICTS

MOST_BYTES = 96 << 20  # of rows that wait to be written, about
DONE = "_imports"  # folder of runs: one file for each import that was completed
_ROW_BYTES = 4000  # of a row without its texts and lists


# Per table its columns, and those of which a row that belongs there has one.
_TABLES = {
    "attempts": (ATTEMPTS, ("text", "finish_reason", "completion_tokens")),
    "grades": (GRADES, ("outcome",)),
    "verdicts": (VERDICTS, ("label",)),
    "means": (MEANS, ("prompt_mean_logprob", "completion_mean_logprob")),
}


@dataclass
class Staging:
    """Rows of all runs of an import that wait for the disk, and how many parts each run has."""

    folder: Path
    troubles: Troubles = field(default_factory=Troubles)
    waiting: dict[str, list[Row]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)

    def add(self, run: str, row: Row) -> None:
        """Take a row of a run (DATASET/MODEL) under its question's id; much is written at once."""
        derive(row, self.troubles)
        row["prompt"] = row["problem"] = row["gold"] = None  # the plan has them
        size = sum(len(row[name]) for name in ("text", "answer", "reason") if row[name])
        size += sum(row[name].nbytes for name in ("token_ids", "logprobs") if row[name] is not None)
        self.waiting.setdefault(run, []).append(row)
        self.sizes[run] = self.sizes.get(run, 0) + _ROW_BYTES + size
        if sum(self.sizes.values()) > MOST_BYTES:
            # Half at once, the largest first: few and large parts, whatever the records' order.
            for largest in sorted(self.sizes, key=self.sizes.__getitem__, reverse=True):
                self._write(largest)
                if sum(self.sizes.values()) <= MOST_BYTES // 2:
                    return

    def flush(self) -> None:
        """Write what still waits."""
        for run in list(self.waiting):
            self._write(run)

    def _write(self, run: str) -> None:
        rows, part = self.waiting.pop(run), self.parts.get(run, 0)
        self.parts[run] = part + 1
        del self.sizes[run]
        for name, (schema, marks) in _TABLES.items():
            own = [row for row in rows if any(row.get(mark) is not None for mark in marks)]
            if own:
                path = self.folder / run / name / f"import-{part:05d}.parquet"
                shards.write_part(path, pa.Table.from_pylist(own, schema=schema))


@contextlib.contextmanager
def opened(runs: Path, fingerprint: str) -> Iterator[Staging]:
    """An empty staging folder that is this process's alone; it goes when the import ends.

    Raises:
        UserError: another process imports the same source.
    """
    folder = runs / f"_import-{fingerprint}"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UserError(f"{folder}: another process is importing this source") from error
        try:
            for old in folder.iterdir():
                if old.is_dir():
                    shutil.rmtree(old)
            yield Staging(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def place(staging: Staging, targets: dict[str, Path]) -> None:
    """Rename every finished run folder, by DATASET/MODEL, into its place."""
    for run, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        (staging.folder / run).rename(target)
        journal.sync_folder(target.parent)


def finished(runs: Path, fingerprint: str) -> list[Path]:
    """The folders of an import that was completed before, if all of them are still there."""
    names = runfolder.read_json(runs / DONE / f"{fingerprint}.json").get("folders", [])
    folders = [runs / str(name) for name in names]
    return folders if all(made_by(folder) == fingerprint for folder in folders) else []


def made_by(folder: Path) -> str | None:
    """The fingerprint of the import that made a run folder; None for any other folder."""
    imported = runfolder.read_json(folder / "manifest.json").get("imported")
    return str(imported.get("fingerprint")) if isinstance(imported, dict) else None
