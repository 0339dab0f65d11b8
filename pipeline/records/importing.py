"""The verb `import`: source, first pass, plan, second pass, and run folders renamed into place."""

import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, counted, note, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.records import copies, parquet, questions, runs, staging
from bayes_at_n.pipeline.records.batches import Batch, of_records
from bayes_at_n.pipeline.records.formats import FORMATS, locate
from bayes_at_n.pipeline.records.plan import Plan
from bayes_at_n.pipeline.records.source import Source, Troubles, shown
from bayes_at_n.pipeline.records.staging import Staging
from bayes_at_n.pipeline.store import runfolder

_DONE = "_imports"  # folder of runs: one file for each import that was completed


def import_records(cfg: RecordsConfig) -> None:
    """Import a source into run folders `runs/DATASET/MODEL[-TAG]`; the same again does nothing.

    What is damaged or repeated is left out, counted and named. Folders appear complete, at the end,
    or not at all. Raises UserError: nothing there, nothing readable, or a run folder that something
    else made. OSError: the disk is full, or fails; the same command starts again.
    """
    root, source = Path(cfg.runs).expanduser(), locate(cfg)
    note(f"import: {source.path} taken for {source.kind} ({source.why})")
    record = root / _DONE / f"{source.fingerprint}.json"
    done = [root / str(name) for name in runfolder.read_json(record).get("folders", [])]
    ours = source.kind == "runs"  # which say nothing of where they were copied from
    if done and all(
        folder.is_dir() if ours else _made_by(folder) == source.fingerprint for folder in done
    ):
        note(f"import: nothing owed, {counted(len(done), 'run')} of this source complete")
        answer({"runs": list(map(str, done))})
        return
    with staging.opened(root) as stage:
        targets = copies.copy(source, root, stage.folder) if ours else _import(source, root, stage)
    names = [str(folder.relative_to(root)) for folder in targets]
    record.parent.mkdir(exist_ok=True)
    runfolder.write_json(record, {"source": source.path, "kind": source.kind, "folders": names})
    for folder in dict.fromkeys(target.parent for target in targets):
        results.print(str(folder))
    answer({"runs": list(map(str, targets))})


def _import(source: Source, root: Path, stage: Staging) -> list[Path]:
    """Make the run folders of a source; returns where they are."""
    cfg = source.cfg.source
    plan, troubles = _planned(source)
    questions.match(cfg.questions, plan)
    tag = f"-{cfg.tag}" if cfg.tag else ""
    targets = [root / f"{run.folder}{tag}" for run in plan.runs]
    owed = [number for number, target in enumerate(targets) if _is_owed(target, source.fingerprint)]
    _stage(source, plan, stage, troubles)
    left_out = troubles.lines()
    for line in left_out:
        warn(f"import: {line}")
    if not any(any(stage.folder.glob(f"*/*/{name}")) for name in ("attempts", "grades")):
        there = ", ".join(map(shown, sorted(troubles.columns)[:30]))
        raise UserError(f"{source.path}: no outcome and no text can be read in its columns {there}")
    made = {number: stage.folder / plan.runs[number].folder for number in owed}
    for number, folder in made.items():
        runs.write(source, plan, number, folder, targets[number], left_out)
    for number, folder in made.items():
        target = targets[number]
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            folder.rename(target)
        except OSError:  # the same import, of another process, was faster
            if _is_owed(target, source.fingerprint):
                raise
        atomic.sync_folder(target.parent)
    _summarise(plan, targets)
    return targets


def _planned(source: Source) -> tuple[Plan, Troubles]:
    """First pass: which record becomes which attempt, and what keeps others from becoming one."""
    kind, cfg = FORMATS[source.kind], source.cfg
    plan = Plan(cfg.dataset, cfg.model) if kind.chooses else Plan([], [])
    troubles, damage = (Troubles(source.files) for _ in range(2))  # damage will be met again
    size, number = sum(path.stat().st_size for path in source.files) >> 20, 0
    with Meter("import: which attempts there are, MiB", size) as meter:
        for batch in _batches(source, True, damage):
            plan.note(batch, troubles)
            number += batch.sound.size
            meter.reach(min(damage.read >> 20, size), partial(_rate, number, meter))
        meter.reach(size, meter.detail)
    # What is not there cannot be chosen: a mistake.
    for key, chosen in plan.chosen.items():
        seen = plan.seen[key]  # nothing: that comes first
        if seen and (absent := [n for n in chosen if n not in seen | plan.called[key]]):
            names = ", ".join(map(shown, sorted(seen)[:20]))
            raise UserError(f"{key}={shown(absent[0])}: not in {source.path}; there are {names}")
    plan.settle(troubles, kind.positions)
    if not (plan.run >= 0).any():
        why = ": ".join(("", *damage.lines(), *troubles.lines()))
        raise UserError(f"{source.path}: holds no record that can be used{why}")
    return plan, troubles


def _stage(source: Source, plan: Plan, stage: Staging, troubles: Troubles) -> None:
    """Second pass: the rows of every run, on their way to the disk."""
    for dataset in plan.categories:
        _, weights = runs.rubric(plan, dataset, source.cfg.source)
        plan.best[dataset] = [i for i, weight in enumerate(weights) if weight == max(weights)]
    at = 0
    with Meter("import", plan.run.size) as meter:
        for batch in _batches(source, False, troubles):
            stage.add(batch, plan, at, troubles)
            at += batch.sound.size
            meter.reach(at, partial(_rate, at, meter))
        stage.flush(plan)
        stage.wait()


def _rate(number: int, meter: Meter) -> str:
    return f"{number / max(time.monotonic() - meter.started, 0.01):,.0f} attempts a second"


def _batches(source: Source, first: bool, troubles: Troubles) -> Iterator[Batch]:
    kind, cfg = FORMATS[source.kind], source.cfg
    for key, given in (("dataset", cfg.dataset), ("model", cfg.model)):
        if len(given) > 1 and not kind.chooses and (key, source.kind) != ("model", "npz"):
            raise UserError(
                f"{key}={shown(','.join(given))}: {source.kind} takes one name, for what its"
                " records do not name"
            )
    names = [*cfg.dataset, ""][0], [*cfg.model, ""][0]
    found: Any = kind.read(source, first, troubles)
    columns = kind.read is parquet.read
    return found if columns else of_records(found, cfg.source, names, troubles)


def _is_owed(target: Path, fingerprint: str) -> bool:
    """Whether a run folder is not there; one that this import already made is left alone.

    Raises UserError: a folder is there and of something else.
    """
    if not target.exists():
        return True
    if _made_by(target) != fingerprint:
        raise UserError(
            f"{target}: is there and not of this import; give it another name with tag=NAME,"
            " another place with runs=FOLDER, or remove it"
        )
    note(f"import: {target} is complete, left as it is")
    return False


def _made_by(folder: Path) -> str | None:
    """The fingerprint of the import that made a run folder; None for any other folder."""
    imported = runfolder.read_json(folder / "manifest.json").get("imported")
    return str(imported.get("fingerprint")) if isinstance(imported, dict) else None


def _summarise(plan: Plan, targets: list[Path]) -> None:
    """A line a data set; and whether answers can be compared again."""
    for dataset, asked in plan.questions.items():
        planned = [run for run in plan.runs if run.dataset == dataset]
        texts = [p for p in targets if p.parent.name == dataset and (p / "attempts").is_dir()]
        most, seeded = max(run.trials for run in planned), sum(run.by_seed for run in planned)
        by_seed = f"; trials of {counted(seeded, 'model')} by the paper's seeds" if seeded else ""
        note(
            f"import: {dataset}: {counted(len(planned), 'model')},"
            f" {counted(len(asked), 'question')}, up to {counted(most, 'trial')}{by_seed}"
        )
        unknown = sum(not (question.own or question).gold for question in asked)
        if unknown and texts:
            what = f"{counted(unknown, 'question')} without a gold answer"
            warn(f"import: {dataset}: {what}; do not `grade` (questions=FILE gives them)")
        elif texts and not any((path / "grades").is_dir() for path in texts):
            note(f"import: {dataset}: no attempt is graded; run `grade`")
