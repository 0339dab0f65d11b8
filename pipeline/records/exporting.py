"""The verb `export`: write runs to a draft folder, which is renamed once it is complete."""

import json
import pkgutil
import shutil
from dataclasses import asdict
from pathlib import Path

from bayes_at_n.pipeline.base import atomic, lease, untrusted
from bayes_at_n.pipeline.base.console import Meter, note, results, substep, warn, warnings_once
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.records import FORMATS, ExportConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.records import reading
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.store import provenance, runfolder, selection, shards, tables

_TABLES = ("attempts", "grades", "verdicts", "means", "categories")  # read by exports
_FILES = ("questions.parquet", "thresholds.json", "config.yaml", "manifest.json")
_RECORD = "export.json"  # in the folder: fingerprints of its inputs and of its files


def export(cfg: ExportConfig) -> None:
    """Write runs in the format `to` to a folder, which appears complete or not at all.

    Repeating it does nothing while neither runs nor files have changed. Raises UserError: no
    readable run, no attempt, or a folder with other files. OSError: a file cannot be written.
    """
    sources = reading.sources(cfg)
    first = {source.dataset: source.run.path for source in sources}
    out = selection.results_folder(cfg, f"export-{cfg.to}", [*first.values()])
    out = out if out.name.strip(".") else out.resolve()  # . and ..
    _made_of(out)
    out.parent.mkdir(parents=True, exist_ok=True)
    settings = asdict(cfg) | dict.fromkeys(("out", "runs", "folders", "dataset", "model", "push"))
    with lease.held(out.with_name(f".{out.name}.lease"), "exporting these runs", wait=True):
        marks = [tables.marks(source.run.path, *_TABLES, *_FILES) for source in sources]
        states = [[s.dataset, s.name, of] for s, of in zip(sources, marks, strict=True)]
        made_of = provenance.short_hash(json.dumps([settings, states]))
        if _made_of(out) == made_of:
            note(f"export: nothing has changed, {out} is left as it is")
        else:
            with substep(), warnings_once():  # reading a run again repeats no warning
                _write(cfg, sources, out, made_of)
    results.print(str(out))
    pushed = None
    if cfg.push:
        from bayes_at_n.pipeline.records import hub  # it imports `compare`, which takes seconds

        pushed = hub.push(cfg.push, out)
    print_json({"format": cfg.to, "folder": str(out), "files": [*_marks(out)], "pushed": pushed})


def _made_of(out: Path) -> str | None:
    """Return the fingerprint of an export's inputs; None: there is none, or its files have changed.

    Raises UserError: the folder has files of no export.
    """
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return None
    remedy = "name another folder with out=, or move it away"
    try:
        record = untrusted.read_json(out / _RECORD)
        marks, made_of = record["files"], str(record["made_of"])
    except (OSError, ValueError, KeyError):
        raise UserError(f"{out}: exists, but no export made it; {remedy}") from None
    there = _marks(out)
    if added := [name for name in there if name not in marks]:
        raise UserError(f"{out / added[0]}: is not of the export in this folder; {remedy}")
    return made_of if there == marks else None


def _marks(folder: Path) -> dict[str, str]:
    """Map relative paths of an export's files, without its record, to size and time."""
    paths = sorted({*folder.rglob("*")} - {folder / _RECORD})
    files = (path for path in paths if not path.is_dir())
    return {str(path.relative_to(folder)): shards.fingerprint(path) for path in files}


def _write(cfg: ExportConfig, sources: list[RunTable], out: Path, made_of: str) -> None:
    """Write the folder anew, in place of an earlier export."""
    draft, old = drafts = [out.with_name(f".{out.name}.{what}") for what in ("draft", "old")]
    for left in drafts:  # by a command that was killed
        shutil.rmtree(left, ignore_errors=True)
    try:
        draft.mkdir()
        if not (begun := [source for source in sources if source.table.num_rows]):
            raise UserError(f"{sources[0].run.path}: no attempt yet; continue it with `run`")
        for run, outcome in ((source.run, source.table["outcome"]) for source in sources):
            planned, graded = len(run.questions) * run.cfg.sampling.trials, outcome.drop_null()
            if len(graded) < planned:
                finished = f"{len(outcome):,} of {planned:,} attempts"
                warn(f"{run.path}: {finished}, {len(graded):,} graded")
        with Meter("export", sum(len(source.table) for source in begun), keep=True) as meter:
            pkgutil.resolve_name(FORMATS[cfg.to])(Export(cfg, begun, meter, draft), draft)
        runfolder.write_json(draft / _RECORD, {"made_of": made_of, "files": _marks(draft)})
        if out.exists():
            out.rename(old)
        draft.rename(out)
        atomic.sync_folder(out.parent)
    except OSError as error:
        error.filename = error.filename or str(out)  # PyArrow's errors name no file
        raise
    finally:
        for left in drafts:
            shutil.rmtree(left, ignore_errors=True)
