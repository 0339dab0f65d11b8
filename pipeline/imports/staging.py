"""From the second pass to the disk: rows in parts, folders renamed when all is there.

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
from pipeline.store import runfolder, shards
from pipeline.store.columns import ATTEMPTS, GRADES, MEANS, VERDICTS

TABLES = {"attempts": ATTEMPTS, "grades": GRADES, "verdicts": VERDICTS, "means": MEANS}
MOST_BYTES = 128 << 20  # of rows that wait to be written
DONE = "_imports"  # folder of runs: one file for each import that was completed


@dataclass
class Staging:
    """Rows of all runs of an import, buffered and written in parts."""

    folder: Path
    waiting: dict[tuple[str, str], list[pa.Table]] = field(default_factory=dict)
    sizes: dict[tuple[str, str], int] = field(default_factory=dict)
    parts: dict[tuple[str, str], int] = field(default_factory=dict)


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


def add(staging: Staging, run: str, name: str, rows: pa.Table) -> None:
    """Take rows of one table of one run (DATASET/MODEL); what is large is written."""
    if not rows.num_rows:
        return
    key = (run, name)
    staging.waiting.setdefault(key, []).append(rows)
    staging.sizes[key] = staging.sizes.get(key, 0) + rows.nbytes
    if sum(staging.sizes.values()) <= MOST_BYTES:
        return
    # Half at once, the largest first: few and large parts, whatever the order of the records.
    for largest in sorted(staging.sizes, key=staging.sizes.__getitem__, reverse=True):
        _write(staging, largest)
        if sum(staging.sizes.values()) <= MOST_BYTES // 2:
            return


def flush(staging: Staging) -> None:
    """Write what still waits."""
    for key in list(staging.waiting):
        _write(staging, key)


def place(staging: Staging, targets: dict[str, Path]) -> None:
    """Rename every finished run folder into its place.

    Args:
        staging: holds a folder for each key of `targets`.
        targets: per DATASET/MODEL where it goes.
    """
    for run, target in targets.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        (staging.folder / run).rename(target)
        journal.sync_folder(target.parent)


def finished(runs: Path, fingerprint: str) -> list[Path]:
    """The folders of an import that was completed before, if all of them are still there."""
    told = runfolder.read_json(runs / DONE / f"{fingerprint}.json").get("folders")
    if not isinstance(told, list) or not told:
        return []
    folders = [runs / str(name) for name in told]
    return folders if all(made_by(folder) == fingerprint for folder in folders) else []


def made_by(folder: Path) -> str | None:
    """The fingerprint of the import that made a run folder; None for any other folder."""
    found = runfolder.read_json(folder / "manifest.json").get("imported")
    return str(found.get("fingerprint")) if isinstance(found, dict) else None


def _write(staging: Staging, key: tuple[str, str]) -> None:
    run, name = key
    number = staging.parts.get(key, 0)
    table = pa.concat_tables(staging.waiting.pop(key)).combine_chunks()
    shards.write_part(staging.folder / run / name / f"import-{number:05d}.parquet", table)
    staging.parts[key] = number + 1
    staging.sizes[key] = 0
