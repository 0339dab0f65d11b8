"""Run folders of this program from another machine: copied whole and checked, or merged by trials.

Nothing in them is followed or trusted: links and files of other kinds stay there, and every file is
read as `status --check` reads it before its run appears.
"""

import os
import shutil
import stat
from pathlib import Path

import numpy as np
import pyarrow as pa

from pipeline.base import atomic, foreign, journal
from pipeline.base.console import Meter, note, warn
from pipeline.base.errors import UserError
from pipeline.imports import names
from pipeline.imports.source import Source, shown
from pipeline.store import find, heartbeat, lease, origin, parquet, rowkeys, runfolder, shards
from pipeline.store.columns import ATTEMPTS
from pipeline.store.runfolder import Run
from pipeline.store.sound import READERS, TORN, found
from pipeline.store.workernames import worker_id
from pipeline.store.workers import write_summary

_OURS = (*READERS, ".csv", ".md", ".tex", ".png", ".pdf")
_PASSING = (".lease", ".tmp", ".sound", ".damaged")  # of processes there, or set aside
_THEIRS = (heartbeat.FOLDER, "_slurm")  # of workers and jobs of that machine


def within(folder: Path) -> list[Path]:
    """The run folders that a folder holds or is."""
    try:
        return [run for run in find.within(folder) if (run / "questions.parquet").exists()]
    except (UserError, OSError):
        return []


def copy(source: Source, root: Path, staged: Path) -> list[Path]:
    """Copy run folders to `runs/DATASET/RUN[-TAG]`, each whole or not at all; returns their places.

    A run that is there, of the same identity, gets the attempts that it lacks. Raises UserError:
    runs are not sound, are being written, or others have their names; the rest is copied all the
    same. OSError: the disk is full, or fails.
    """
    cfg, targets, faults = source.cfg, list[Path](), list[str]()
    with Meter("import", len(source.files)) as meter:
        for number, folder in enumerate(source.files):
            try:
                dataset, name = runfolder.opened(folder).cfg.dataset.name, folder.resolve().name
                if dataset in (cfg.dataset or [dataset]) and name in (cfg.model or [name]):
                    name += f"-{cfg.source.tag}" if cfg.source.tag else ""
                    target = root / names.safe_name(dataset) / names.safe_name(name)
                    _bring(folder, staged / str(number), target)
                    targets.append(target)
            except UserError as error:
                faults.append(str(error))
            meter.advance(1)
    if faults or not targets:
        of = f"{len(faults)} of {len(source.files)} runs are not imported: "
        raise UserError(of + ("; ".join(faults) or "none has the names of dataset= and model="))
    return targets


def _bring(folder: Path, staged: Path, target: Path) -> None:
    """Copy a run to `staged`, check it there, and rename or merge it. Raises as `copy`."""
    if folder.is_symlink() or folder.parent.is_symlink():
        raise UserError(f"{folder}: a link, which is not followed; name the folder itself")
    _check_still(folder)
    for inside in _files(folder, staged.parents[1]):
        (staged / inside).parent.mkdir(parents=True, exist_ok=True)
        with (
            open(folder / inside, "rb", opener=_unfollowed) as there,
            atomic.replacing(staged / inside) as here,
        ):
            shutil.copyfileobj(there, here)
    _check_still(folder)
    faults = []
    for path in sorted(path for path in staged.rglob("*") if path.suffix in READERS):
        lines = found(path)
        if lines and path.suffix == ".journal" and all(TORN in line for line in lines):
            warn(f"import: {folder}: {lines[0]}, as a kill leaves it; that attempt is owed")
        elif lines:
            faults.append(f"{path.relative_to(staged)} ({'; '.join(lines)})")
    if faults:
        what = f"{len(faults)} files are not sound: {'; '.join(faults[:3])}"
        raise UserError(f"{folder}: {what}; copy it again, or mend it there (`status --check`)")
    if target.exists():
        return _merge(folder, runfolder.opened(staged), runfolder.opened(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.rename(target)
    journal.sync_folder(target.parent)


def _unfollowed(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _check_still(folder: Path) -> None:
    """Raises UserError: a process generates, grades, verifies or cleans up in a run folder."""
    for path in (*folder.glob("*.lease"), *folder.glob(f"{heartbeat.FOLDER}/*.lease")):
        linked = path.is_symlink() or path.parent.is_symlink()
        if not linked and not heartbeat.is_dead(path, lease.now_of(path.parent)):
            raise UserError(
                f"{folder}: is still being written ({path.name}); import when that process has"
                " ended, or two minutes after it was killed"
            )


def _files(folder: Path, into: Path) -> list[Path]:
    """The files of a run, as paths in its folder; links, and files of other kinds, are named."""
    files, odd, size = list[Path](), list[Path](), 0
    for path in sorted(folder.rglob("*")):  # which enters no links
        inside, status = path.relative_to(folder), path.lstat()
        if stat.S_ISDIR(status.st_mode) or path.suffix in _PASSING or inside.parts[0] in _THEIRS:
            continue
        size += status.st_size
        ours = stat.S_ISREG(status.st_mode) and path.suffix in _OURS and len(inside.parts) < 3
        (files if ours else odd).append(inside)
    if odd:
        told = ", ".join(shown(foreign.printable(path)) for path in odd[:3])
        warn(f"import: {folder}: {len(odd)} links and files of other kinds are left there: {told}")
    if size > (free := shutil.disk_usage(into).free):
        raise UserError(f"{folder}: has {size:,} bytes, and the disk of runs= {free:,} free")
    return files


def _merge(folder: Path, there: Run, run: Run) -> None:
    """Add to a run the attempts of a checked copy of the same identity that it lacks.

    Raises UserError: another identity or other questions; the run is being written.
    """
    _check_still(run.path)
    mine, its = runfolder.read_manifest(run), runfolder.read_manifest(there)
    ids, imported = rowkeys.question_ids(run), mine.get("imported")
    if imported != its.get("imported") or not ids.equals(rowkeys.question_ids(there)):
        raise UserError(f"{folder}: is of other records than {run.path}, its name; use tag=NAME")
    try:
        runfolder.check_same(run, its[origin.IDENTITY])
    except UserError as error:
        raise UserError(f"{folder} has the name of another run: {error}") from error
    held, theirs = rowkeys.contents(run), rowkeys.contents(there)
    at = rowkeys.rows_of(theirs.keys, held.keys)
    new, both = theirs.keys[at < 0], at >= 0
    if new.size and not imported:
        columns = ATTEMPTS.with_metadata(origin.about(mine))
        _add(run, there, lambda rows: pa.array(np.isin(rowkeys.encode(rows, ids), new)), columns)
    told = f"{new.size} attempts added, which `run` grades" if new.size else "nothing owed"
    note(f"import: {run.path}: {told}; {both.sum()} attempts of {folder} were there")
    if others := int((held.states[at[both]] != theirs.states[both]).sum()):
        warn(f"import: {run.path}: {others} attempts have another text in {folder}; ours stay")


def _add(run: Run, there: Run, keep: parquet.Keep, columns: pa.Schema) -> None:
    """Write a part of some attempts of another run, and what its workers said of themselves."""
    for file in there.path.glob("sessions/*.json"):
        if not (copied := run.path / "sessions" / file.name).exists():
            copied.parent.mkdir(exist_ok=True)
            atomic.write_text(copied, file.read_text())
    path = run.attempts / f"{worker_id()}-00000.parquet"
    path.parent.mkdir(exist_ok=True)
    with atomic.replacing(path) as part, parquet.writer(part, columns) as groups:
        for rows in shards.batches(
            there.attempts, ATTEMPTS, ATTEMPTS.names, parquet.Damage(), keep=keep
        ):
            groups.write_table(pa.Table.from_batches([rows]).cast(columns))
    run.cfg.sampling.trials = max(run.cfg.sampling.trials, there.cfg.sampling.trials)
    runfolder.save_trials(run)
    write_summary(run)
