"""The verb `export`: what settings name, written beside its place, and renamed when it is whole."""

import json
import os
import pkgutil
import shutil
import zlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.console import Meter, note, results, substep, warn, warnings_once
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.records import FORMATS, ExportConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.records import reading
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.store import files, parquet, runfolder, tables

_TABLES = ("attempts", "grades", "verdicts", "means", "categories")  # of a run, by an export
_FILES = ("questions.parquet", "thresholds.json", "config.yaml", "manifest.json")
_RECORD = "export.json"  # in the folder: what it was made of, and its files as they were made


def export(cfg: ExportConfig) -> None:
    """Write runs in the format `to` into a folder, which appears whole or not at all.

    The same again does nothing while neither runs nor files have changed. Raises UserError: no
    sound run, no attempt, or a folder that holds something else. OSError: a file cannot be written.
    """
    sources = reading.sources(cfg)
    first = {source.dataset: source.run.path for source in sources}
    out, links = files.folder_of(cfg, f"export-{cfg.to}", [*first.values()])
    out = out if out.name.strip(".") else out.resolve()  # . and ..
    paths = [source.run.path.resolve() for source in sources]
    places = [runfolder.short_hash(os.path.relpath(path, out.resolve())) for path in paths]
    holds = [f"to={cfg.to}", *(f"{path.name} {at}" for path, at in zip(paths, places, strict=True))]
    least = holds if cfg.out else []
    _made_of(out, least)
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = asdict(cfg) | dict.fromkeys(("out", "runs", "folders", "dataset", "model", "push"))
    with lease.held(out.with_name(f".{out.name}.lease"), "exporting these runs", wait=True):
        marks = [tables.marks(source.run.path, *_TABLES, *_FILES) for source in sources]
        states = [[s.dataset, s.name, of] for s, of in zip(sources, marks, strict=True)]
        made_of = runfolder.short_hash(json.dumps([settings, states]))
        if _made_of(out, least) == made_of:
            note(f"export: nothing has changed, {out} is left as it is")
        else:
            with substep(), warnings_once():  # what reads a run again repeats no warning
                _write(cfg, sources, out, {"made_of": made_of, "holds": holds})
    files.publish(out, links)
    results.print(str(out))
    pushed = None
    if cfg.push:
        from bayes_at_n.pipeline.records import hub  # which compares: seconds

        pushed = hub.push(cfg.push, out)
    print_json({"format": cfg.to, "folder": str(out), "files": [*_files(out)], "pushed": pushed})


def _made_of(out: Path, least: Sequence[str]) -> str | None:
    """Return what the export in a folder was made of; None: there is none, or not all of it.

    Raises UserError: it holds what no export left there, or more than is in `least`, if that names
    anything.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    remedy = "name another folder with out=, or move it away"
    try:
        record = untrusted.read_json(out / _RECORD)
        files, made_of = record["files"], str(record["made_of"])
    except (OSError, ValueError, KeyError):
        raise UserError(f"{out}: is there, and no export made it; {remedy}") from None
    if least and (others := [one for one in record.get("holds", []) if one not in least]):
        what = others[0].rsplit(" ", 1)[0]
        raise UserError(f"{out}: holds what this export lacks ({what}); {remedy}")
    there = _files(out)
    for name, path in there.items():
        mark = str(files.get(name, ""))
        # Its content counts where its time is another.
        if not mark.startswith(f"{parquet.fingerprint(path)} ") and (
            _mark(path).split()[::2] != mark.split()[::2]
        ):
            raise UserError(f"{path}: was changed since it was exported; {remedy}")
    return made_of if there.keys() == files.keys() else None


def _files(folder: Path) -> dict[str, Path]:
    """Return every file but the record, by its path in the folder."""
    paths = sorted({*folder.rglob("*")} - {folder / _RECORD})
    return {str(path.relative_to(folder)): path for path in paths if not path.is_dir()}


def _mark(path: Path) -> str:
    """Return size, time of change and checksum of a file, which is then on the disk."""
    total = 0
    with path.open("rb") as file:
        os.fsync(file.fileno())
        while part := file.read(1 << 20):
            total = zlib.crc32(part, total)
    return f"{parquet.fingerprint(path)} {total}"


def _write(
    cfg: ExportConfig, sources: list[RunTable], out: Path, record: dict[str, object]
) -> None:
    """Make the folder anew; what is there is one that an export left."""
    draft, old = drafts = [out.with_name(f".{out.name}.{what}") for what in ("draft", "old")]
    for left in drafts:  # by a command that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        draft.mkdir()
        if not (begun := [source for source in sources if source.table.num_rows]):
            raise UserError(f"{sources[0].run.path}: no attempt yet; run something first")
        for run, outcome in ((source.run, source.table["outcome"]) for source in sources):
            planned, graded = len(run.questions) * run.cfg.sampling.trials, outcome.drop_null()
            if len(graded) < planned:
                made = f"{len(outcome):,} of {planned:,} attempts"
                warn(f"{run.path}: {made}, {len(graded):,} graded")
        with Meter("export", sum(len(source.table) for source in begun), keep=True) as meter:
            pkgutil.resolve_name(FORMATS[cfg.to])(Export(cfg, begun, meter, draft), draft)
        marks = {name: _mark(path) for name, path in _files(draft).items()}
        runfolder.write_json(draft / _RECORD, {**record, "files": marks})
        if out.exists():
            out.rename(old)
        draft.rename(out)
        atomic.sync_folder(out.parent)
    finally:
        for left in drafts:
            shutil.rmtree(left, ignore_errors=True)
