"""Import run folders of this program from another machine: copied and checked.

Nothing in them is trusted: links and pipes are refused, files of other kinds are not copied, and
every file is checked as by `status --check` before its run appears.
"""

import shutil
import stat
from dataclasses import replace
from pathlib import Path

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.console import Meter, note, plural, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose, trust
from bayes_at_n.pipeline.config.folder import dump
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.source import Source, printable
from bayes_at_n.pipeline.store import runfolder, selection
from bayes_at_n.pipeline.store.check import CHECKED, TORN, faults_of

_OURS = (*CHECKED, ".csv", ".md", ".tex", ".png", ".pdf")
_PASSING = (".lease", ".tmp", ".damaged")  # of running processes, or set aside
_THEIRS = (runfolder.CLAIMS, "_slurm")  # of workers and jobs of the other machine


def within(folder: Path) -> list[Path]:
    """Return the run folders in a folder, or the folder itself."""
    try:
        return [run for run in selection.runs_in(folder) if (run / "questions.parquet").is_file()]
    except (UserError, OSError):
        return []


def copy(source: Source, root: Path, staged: Path) -> list[Path]:
    """Copy run folders to `runs/DATASET/RUN[-TAG]`, each whole or not at all; return their paths.

    Raises UserError: runs are damaged, are being written, or their names are taken; the rest is
    copied nevertheless. OSError: the disk is full, or fails.
    """
    targets, faults, tag = list[Path](), list[str](), source.cfg.source.tag
    if source.cfg.dataset or source.cfg.model:
        raise UserError("dataset=, model=: run folders have names; choose with source=RUN")
    with Meter("import", len(source.files)) as meter:
        for number, folder in enumerate(source.files):
            try:
                dataset, name = runfolder.open_run(folder).cfg.dataset.name, folder.resolve().name
                name = f"{name}-{tag}" if tag else name
                targets.append(root / names.safe_name(dataset) / names.safe_name(name))
                _import_run(folder, staged / str(number), targets[-1])
            except UserError as error:
                faults.append(str(error))
            meter.advance(1)
    if faults:
        head = f"{len(faults)} of {plural(len(source.files), 'run')} not imported:"
        raise UserError("\n  ".join([head, *faults]))
    return targets


def _import_run(folder: Path, staged: Path, target: Path) -> None:
    """Copy a run to `staged`, check it there, and rename it. Raises as `copy`."""
    if folder.is_symlink() or folder.parent.is_symlink():
        raise UserError(f"{folder}: a link, which is not followed; name the folder itself")
    theirs, own = (runfolder.read_json(path / "manifest.json") for path in (folder, target))
    if own and own == theirs:
        return note(f"import: {target} is there, left as it is")
    if target.exists():
        raise UserError(f"{target}: exists; remove it, or import {folder} beside it with tag=NAME")
    _check_idle(folder)
    faults = list[str]()
    for inside in _files(folder):
        path = staged / inside
        path.parent.mkdir(parents=True, exist_ok=True)
        with (folder / inside).open("rb") as there, atomic.replacing(path) as here:
            shutil.copyfileobj(there, here)
    _check_idle(folder)
    for path in sorted(path for path in staged.rglob("*") if path.suffix in CHECKED):
        lines = faults_of(path)
        if lines and path.suffix == ".journal" and all(TORN in line for line in lines):
            warn(f"import: {folder}: {lines[0]}, left by a kill; that attempt is pending")
        elif lines:
            faults.append(f"{path.relative_to(staged)} ({'; '.join(lines)})")
    if faults:
        what = f"{len(faults)} files are damaged: {'; '.join(faults[:3])}"
        raise UserError(f"{folder}: {what}; copy it again, or repair it (`status --check`)")
    cfg = runfolder.open_run(staged).cfg
    if dropped := trust.drop(cfg, compose.trusted):
        what = "dropped settings that execute, connect or name a secret"
        warn(f"import: {folder}: {what}: {', '.join(dropped)}")
        atomic.write_text(staged / "config.yaml", dump(replace(cfg, run_dir=str(target))))
    target.parent.mkdir(parents=True, exist_ok=True)
    staged.rename(target)
    atomic.sync_folder(target.parent)


def _check_idle(folder: Path) -> None:
    """Raise UserError: a process generates, grades, verifies or cleans up in a run folder."""
    for path in (*folder.glob("*.lease"), *folder.glob(f"{runfolder.CLAIMS}/*.lease")):
        linked = path.is_symlink() or path.parent.is_symlink()
        if not linked and not lease.is_dead(path, lease.now_of(path.parent)):
            what = f"is still being written ({path.name}); import when that process has ended"
            raise UserError(f"{folder}: {what}, or two minutes after it was killed")


def _files(folder: Path) -> list[Path]:
    """Return a run's files, relative to its folder; warn of files of other kinds.

    Raises UserError: one is a link, a pipe or a device.
    """
    files, odd = list[Path](), list[str]()
    for path in sorted(folder.rglob("*")):  # which enters no links
        inside, status = path.relative_to(folder), path.lstat()
        if stat.S_ISDIR(status.st_mode) or path.suffix in _PASSING or inside.parts[0] in _THEIRS:
            continue
        name = printable(untrusted.printable(inside))
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{folder}: {name} is a link or a pipe; copy it with cp -rL first")
        if path.suffix in _OURS and len(inside.parts) < 3:
            files.append(inside)
        else:
            odd.append(name)
    if odd:
        warn(f"import: {folder}: {len(odd)} files of other kinds not copied: {', '.join(odd[:3])}")
    return files
