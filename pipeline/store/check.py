"""Check run folders (status --check): read every file, and name what is damaged or stale.

Tables, journals and archives have checksums; of JSON and YAML only the form is known. A damaged
part is set aside, and the next `run` makes its rows anew.
"""

import contextlib
import json
import os
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import Meter, results
from bayes_at_n.pipeline.base.errors import DamagedData, UserError, one_line
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.store import (
    find,
    graded,
    origin,
    parquet,
    rowkeys,
    runfolder,
    sessions,
    shards,
)
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run

TORN = "unfinished last frame"  # of a journal: what a killed worker was about to write
_ERRORS: tuple[type[Exception], ...] = (pa.ArrowException, OSError, ValueError, KeyError)
_ERRORS += (RecursionError, UserError, MemoryError, zipfile.BadZipFile, zlib.error)
_MOST = 1 << 28  # bytes of a line, or of a file of JSON


def check(folders: Iterable[Path]) -> None:
    """Print which files in run folders, or in folders of them, are not sound.

    Raises DamagedData: something is not sound, or a folder holds no run.
    """
    bad = 0
    for folder in folders:
        paths, faults = [], dict[str, list[str]]()
        try:
            paths = _files(folder)
        except UserError as error:
            faults[foreign.printable(folder)] = [str(error)]
        with Meter("check", len(paths)) as meter:
            for path in paths:
                if lines := found(path):
                    faults[foreign.printable(path)] = lines
                meter.advance(1)
            for run in find.within(folder) if paths else ():
                faults |= _stale(run)
        bad += len(faults)
        told = {"folder": str(folder), "files": len(paths), "sound": not faults}
        answer(told | {"faults": faults})
        for name, lines in faults.items():
            results.print(f"{name}: {'; '.join(lines)}")
        results.print(f"{folder}: {len(paths)} files, {len(faults)} not sound")
    if bad:
        raise DamagedData(
            f"{bad} files are not sound; `run` makes rows of tables again; restore other files from"
            " a copy"
        )


def _files(folder: Path) -> list[Path]:
    """List the files that can be checked, once each, also of run folders that are links."""
    places = {
        os.path.realpath(path): path
        for root in (folder, *find.within(folder))
        for path in sorted(root.rglob("*"))
        if path.suffix in READERS and path.name[0] != "."
    }
    return [path for path in places.values() if not path.is_dir()]


def found(path: Path) -> list[str]:
    """List what is wrong with a file; nothing where it is gone by now."""
    try:
        foreign.check(path)
        with foreign.room(path.stat().st_size):
            return READERS[path.suffix](path)
    except _ERRORS as error:
        gone = isinstance(error, FileNotFoundError) and not path.is_symlink()
        return [] if gone else [one_line(error)]


def _table(path: Path) -> list[str]:
    """Check a part or journal of a table of a run, or another Parquet file."""
    folder, damage, name = path.parent.parent, parquet.Damage(), path.parent.name
    if find.is_run(folder) and (columns := rowkeys.TABLES.get(name)) is not None:
        if columns is ATTEMPTS and (why := origin.foreign(path)):
            return [why]
        for _ in parquet.read(path, columns, columns.names, damage):
            pass
        with contextlib.suppress(OSError):  # the folder may be read-only
            shards.set_aside(damage, columns)
        lines = damage.lines.get(path, [])
        growing = path.suffix == ".journal" and bool(sessions.alive(folder))
        return [line for line in lines if not (growing and TORN in line)]
    if name == graded.GRADES_TABLE.name and find.is_run(folder):
        return [said] if (said := graded.GRADES_TABLE.damage(path)) else []
    with parquet.opened(path) as file:
        for group in range(file.num_row_groups):
            file.read_row_group(group)
    return []


def _stale(folder: Path) -> dict[str, list[str]]:
    """List the files of grades that other settings or versions made."""
    with contextlib.suppress(*_ERRORS):  # which are said of the file at fault
        run = runfolder.opened(folder)
        stale = graded.GRADES_TABLE.stale(run, graded.inputs(run))
        line = "stale: made otherwise ({}); `grade` makes it anew"
        return {foreign.printable(path): [line.format(why)] for path, why in stale.items()}
    return {}


def _json(path: Path) -> list[str]:
    with path.open("rb") as file:
        part = file.readline if path.suffix == ".jsonl" else file.read
        for text in iter(lambda: part(_MOST), b""):
            if len(text) == _MOST:
                return [f"more than {_MOST >> 20} MiB of JSON"]
            json.loads(text)
    return []


def _archive(path: Path) -> list[str]:
    with zipfile.ZipFile(path) as file:
        name = file.testzip()
    return [f"{name}: its checksum is another"] if name else []


def _settings(path: Path) -> list[str]:
    """Check a config.yaml: half of one, cut at the end of a line, is YAML, too."""
    if path.name != "config.yaml":
        return []
    run = Run(load_folder(path.parent, []))
    made = runfolder.read_manifest(run).get(origin.IDENTITY, {})
    if others := runfolder.differing(made, runfolder.identity(run.cfg)):
        return [f"not what the manifest says: {'; '.join(others[:3])}"]
    whole = "\nrun_dir:" in path.read_text(encoding="utf-8")
    return [] if whole else ["cut off: run_dir, its last key, is not there"]


READERS = {".parquet": _table, ".journal": _table, ".json": _json, ".jsonl": _json}
READERS |= {".npz": _archive, ".yaml": _settings}
"""How a file is read, by its ending; others are not ours, or nothing tells of them."""
