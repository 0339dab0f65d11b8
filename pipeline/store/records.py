"""What a table was made with, kept where the table is, so that no old row is taken for a new one.

A table that is one file says it in its own metadata. A table of shards has a JSON record in its
folder: when other settings are asked for, the whole folder is put aside by one rename, or one
that was put aside before is taken back, so no crash mixes rows of two settings.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import parquet, runfolder

_ROWS_PER_GROUP = 1 << 16  # of tables that are made again in seconds


class Recorded(NamedTuple):
    """A table of one file, and what it was made with."""

    table: pa.Table
    record: dict[str, Any]


def write(path: Path, recorded: Recorded, key: str) -> None:
    """Write a table as one file with its record under `key` of the metadata."""
    metadata = {key.encode(): json.dumps(recorded.record).encode()}
    parquet.write_part(path, recorded.table.replace_schema_metadata(metadata), _ROWS_PER_GROUP)


def read(path: Path, columns: pa.Schema, key: str, verb: str) -> Recorded | None:
    """What `write` wrote; None when missing or damaged: a warning then names the verb to run."""
    try:
        with parquet.opened(path) as file:
            table = file.read()
        record = json.loads((table.schema.metadata or {})[key.encode()])
        return Recorded(parquet.sound(table, columns), dict(record))
    except FileNotFoundError:
        return None
    except (*parquet.DAMAGE, UserError) as error:
        why = one_line(error)
        warn(f"{path}: unreadable, so not there; run `{PROGRAM} {verb}` ({why})")
        return None


def settings(path: Path) -> dict[str, Any]:
    """The settings in the JSON record of a table of shards; empty where there is none."""
    return _settings(runfolder.read_json(path))


def begin(path: Path, record: dict[str, Any], aside: Callable[[dict[str, Any]], Path]) -> None:
    """Make a folder one of rows with these settings, which may be taken back, or are owed.

    `record` are its settings, or a mapping that has them under "settings", and `aside` is the
    folder in which rows of some settings are put aside. Where there is one already, the rows in its
    way are the rest of a change that was interrupted, and dropped.
    """
    folder, asked, stored = path.parent, _settings(record), settings(path)
    if stored == asked:
        return
    if any(folder.glob("*.parquet")) and not aside(stored).exists():
        changed = sorted(k for k in {*stored, *asked} if stored.get(k) != asked.get(k))
        folder.rename(aside(stored))
        note(
            f"{folder.name} so far were made otherwise ({', '.join(changed)}); they are kept in"
            f" {aside(stored).name}"
        )
    shutil.rmtree(folder, ignore_errors=True)
    earlier = aside(asked)
    if settings(earlier / path.name) == asked:
        earlier.rename(folder)
        note(f"{folder.name} made so before are taken back from {earlier.name}")
        return
    folder.mkdir()
    runfolder.write_json(path, record)


def _settings(record: dict[str, Any]) -> dict[str, Any]:
    return dict(record.get("settings", record))
