"""The verb `import`: read a source once, then write its runs and rename them into place."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, note, plural, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.records import columns, copies, folders, logs
from bayes_at_n.pipeline.records.formats import locate
from bayes_at_n.pipeline.records.runs import Runs, match
from bayes_at_n.pipeline.records.source import ONE_VALUE, LeftOut, Source, printable
from bayes_at_n.pipeline.store import runfolder

_DONE = "_imports"  # in the folder of runs: a file for each completed import


def import_records(cfg: RecordsConfig) -> None:
    """Import a source into run folders `runs/DATASET/MODEL[-TAG]`; repeating it does nothing.

    Damaged and duplicate records are skipped, counted and named. Folders appear at the end, each
    complete or not at all. Raises UserError: no source, nothing readable, or a run folder of
    something else. OSError: the disk is full, or fails; the same command starts again.
    """
    root, source = Path(cfg.runs).expanduser(), locate(cfg)
    record = root / _DONE / f"{source.fingerprint}.json"
    done = [root / str(name) for name in runfolder.read_json(record).get("folders", [])]
    ours = source.kind == "runs"  # whose manifests do not record their source
    if done and all(
        folder.is_dir() if ours else _made_by(folder) == source.fingerprint for folder in done
    ):
        note(f"import: nothing pending, {plural(len(done), 'run')} of this source complete")
        print_json({"runs": list(map(str, done))})
        return
    atomic.sweep(root)  # drafts of killed imports
    draft = atomic.draft(root / "import")
    draft.mkdir(parents=True)
    try:
        targets = copies.copy(source, root, draft) if ours else _import(source, root, draft)
    except OSError as error:
        error.filename = error.filename or str(root)  # PyArrow's errors name no file
        raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    names = [str(folder.relative_to(root)) for folder in targets]
    record.parent.mkdir(exist_ok=True)
    runfolder.write_json(record, {"source": source.path, "kind": source.kind, "folders": names})
    for folder in dict.fromkeys(target.parent for target in targets):
        results.print(str(folder))
    print_json({"runs": list(map(str, targets))})


def _import(source: Source, root: Path, draft: Path) -> list[Path]:
    """Create the run folders of a source; return their paths."""
    for key, given in (("dataset", source.cfg.dataset), ("model", source.cfg.model)):
        if len(given) > 1 and not source.form.chooses:
            what = f"{key}={printable(','.join(given))}: {source.kind} takes one name"
            raise UserError(f"{what}, for records without one")
    runs, skipped = Runs(source, draft), source.skipped
    size = sum(path.stat().st_size for path in source.files) >> 10
    with Meter("import, KiB", size) as meter:
        for place, attempt in _attempts(source):
            try:
                runs.add(attempt, place)
            except LeftOut as error:
                skipped.add(str(error), place)
            meter.reach(min(skipped.read >> 10, size))
        meter.reach(size)
    runs.close()
    _check(source, runs)
    match(source.cfg.source.questions, runs)
    tag = f"-{source.cfg.source.tag}" if source.cfg.source.tag else ""
    targets = [root / f"{run.folder}{tag}" for run in runs.runs]
    for path in targets:
        if path.exists() and _made_by(path) != source.fingerprint:
            raise UserError(
                f"{path}: exists and is not from this import; set another name with tag=NAME or"
                " another folder with runs=FOLDER, or remove it"
            )
    missing = [pair for pair in zip(runs.runs, targets, strict=True) if not pair[1].exists()]
    for run, _ in missing:
        folders.write(runs, run)
    left_out = skipped.lines()
    for line in left_out:
        warn(f"import: {line}")
    if missing and not any(any(draft.glob(f"*/*/{name}")) for name in ("attempts", "grades")):
        _refuse(source, f"no record has an outcome or text ({columns.NEEDED}, ...)")
    for run, target in missing:
        folders.complete(runs, run, target, left_out)
    _summarise(runs, targets)
    return targets


def _attempts(source: Source) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the attempts of a source as checked values, with their locations."""
    for place, record in (source.form.read or logs.read)(source):
        listed = list[Any]()
        try:
            listed = columns.samples(record)
        except ValueError as error:
            source.skipped.damaged(place, str(error))
        if listed and columns.OUTCOMES & (record.keys() - listed[0].keys()):
            source.skipped.add(ONE_VALUE, place)
        for one in listed:
            try:
                attempt = columns.attempt_of(one, source, place)
            except ValueError as error:
                source.skipped.damaged(place, str(error))
            else:
                yield place, attempt


def _check(source: Source, runs: Runs) -> None:
    """Name the columns that are not imported. Raises UserError: what was read cannot be a run."""
    cfg, skipped = source.cfg.source, source.skipped
    others = sorted(skipped.columns - skipped.used - columns.KNOWN)
    if others:
        more = f" and {len(others) - 60} more" * (len(others) > 60)
        listed = ", ".join(map(printable, others[:60]))
        note(f"import: columns not imported: {listed}{more}")
    for name, number in skipped.misread.items():
        if number > runs.records:
            raise UserError(
                f"{source.path}: column {name} has no outcomes; rename it: {skipped.lines()[0]}"
            )
    if not runs.runs:
        _refuse(source, ": ".join(("has no usable record", *skipped.lines())))
    for key, column in (("gold", cfg.gold), ("cluster", cfg.cluster)):
        if column and column not in skipped.used:
            _refuse(source, f"{key}={column}: no column that {source.kind} reads")
    golds = any(question.gold for known in runs.questions.values() for question in known)
    judged = runs.categories or any(run.has_outcomes for run in runs.runs)
    unclear = source.form.chooses and "answer" in skipped.columns
    if unclear and not (golds or judged or cfg.questions):
        raise UserError(
            f"{source.path}: has neither outcomes nor gold answers; if its column answer holds the"
            " gold answers and not the extracted ones, add gold=answer, else questions=FILE"
        )


def _refuse(source: Source, why: str) -> None:
    listed = ", ".join(map(printable, sorted(source.skipped.columns)[:30])) or "none"
    raise UserError(f"{source.path}: {why}; its columns are {listed}")


def _made_by(folder: Path) -> str | None:
    """Return the fingerprint of the import that made a run folder; None for any other folder."""
    imported = runfolder.read_json(folder / "manifest.json").get("imported")
    return str(imported.get("fingerprint")) if isinstance(imported, dict) else None


def _summarise(runs: Runs, targets: list[Path]) -> None:
    """Print a line per dataset, and whether it can be or needs to be graded."""
    for dataset, known in runs.questions.items():
        planned = [run for run in runs.runs if run.dataset == dataset]
        numbers = plural(len(planned), "model"), plural(len(known), "question")
        most = plural(max(run.trials for run in planned), "trial")
        note(f"import: {dataset}: {', '.join(numbers)}, up to {most}")
        texts = [p for p in targets if p.parent.name == dataset and (p / "attempts").is_dir()]
        unknown = sum(not (question.own or question).gold for question in known)
        if unknown and texts:
            what = f"{plural(unknown, 'question')} without a gold answer"
            warn(f"import: {dataset}: {what}; do not `grade` (questions=FILE gives them)")
        elif texts and not any((path / "grades").is_dir() for path in texts):
            command = f"{PROGRAM} grade {texts[0].parent}/*"
            note(f"import: {dataset}: no attempt is graded; run `{command}`")
