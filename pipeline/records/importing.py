"""The verb `import`: find a source, plan its runs, write their rows, rename them into place."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, note, plural, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.records import columns, copies, questions, runs
from bayes_at_n.pipeline.records.batches import Batch, answer_is_gold, of_records
from bayes_at_n.pipeline.records.formats import FORMATS, locate
from bayes_at_n.pipeline.records.plan import Plan
from bayes_at_n.pipeline.records.source import Skipped, Source, printable
from bayes_at_n.pipeline.store import runfolder

_DONE = "_imports"  # in the folder of runs: a file for each completed import
_WRITERS = 4  # threads; they also wait for the disk


def import_records(cfg: RecordsConfig) -> None:
    """Import a source into run folders `runs/DATASET/MODEL[-TAG]`; repeating it does nothing.

    Damaged and duplicate records are skipped, counted and named. Folders appear at the end, each
    complete or not at all. Raises UserError: no source, nothing readable, or a run folder of
    something else. OSError: the disk is full, or fails; the same command starts again.
    """
    root, source = Path(cfg.runs).expanduser(), locate(cfg)
    note(f"import: {source.path} read as {source.kind} ({source.why})")
    record = root / _DONE / f"{source.fingerprint}.json"
    done = [root / str(name) for name in runfolder.read_json(record).get("folders", [])]
    ours = source.kind == "runs"  # whose manifests do not record their source
    if done and all(
        folder.is_dir() if ours else _made_by(folder) == source.fingerprint for folder in done
    ):
        note(f"import: nothing pending, {plural(len(done), 'run')} of this source complete")
        print_json({"runs": list(map(str, done))})
        return
    with runs.draft(root) as draft:
        targets = copies.copy(source, root, draft) if ours else _import(source, root, draft)
    names = [str(folder.relative_to(root)) for folder in targets]
    record.parent.mkdir(exist_ok=True)
    runfolder.write_json(record, {"source": source.path, "kind": source.kind, "folders": names})
    for folder in dict.fromkeys(target.parent for target in targets):
        results.print(str(folder))
    print_json({"runs": list(map(str, targets))})


def _import(source: Source, root: Path, draft: Path) -> list[Path]:
    """Create the run folders of a source; return their paths."""
    source = _with_gold(source)
    plan = _make_plan(source)
    questions.match(source.cfg.source.questions, plan)
    tag = f"-{source.cfg.source.tag}" if source.cfg.source.tag else ""
    targets = [root / f"{run.folder}{tag}" for run in plan.runs]
    for path in targets:
        if path.exists() and _made_by(path) != source.fingerprint:
            raise UserError(
                f"{path}: exists and is not from this import; set another name with tag=NAME or"
                " another folder with runs=FOLDER, or remove it"
            )
    missing = [i for i, path in enumerate(targets) if not path.exists()]
    _write_tables(replace(source, first=False), plan, draft)
    left_out = source.skipped.lines()
    for line in left_out:
        warn(f"import: {line}")
    if not any(any(draft.glob(f"*/*/{name}")) for name in ("attempts", "grades")):
        listed = ", ".join(map(printable, sorted(source.skipped.columns)[:30]))
        raise UserError(f"{source.path}: no column has readable outcomes or texts: {listed}")
    for i in missing:
        runs.complete(source, plan, i, draft / plan.runs[i].folder, targets[i], left_out)
    for i in missing:
        targets[i].parent.mkdir(parents=True, exist_ok=True)
        (draft / plan.runs[i].folder).rename(targets[i])
        atomic.sync_folder(targets[i].parent)
    _summarise(plan, targets)
    return targets


def _with_gold(source: Source) -> Source:
    """Return the source with gold=answer if its first records show that `answer` is the gold one.

    Nothing is changed where the user or another column names gold or extracted answers.
    """
    cfg, first = source.cfg, Skipped(source.files)
    if cfg.source.gold or not FORMATS[source.kind].chooses:
        return source
    batch = next(_batches(replace(source, first=False, skipped=first)), None)
    named = columns.present(frozenset(first.columns))
    if batch is None or named.get("answer") != "answer" or not answer_is_gold(batch):
        return source
    note("import: answer is the gold answer: it is one for each question, and boxes differ")
    return replace(source, cfg=replace(cfg, source=replace(cfg.source, gold="answer")))


def _make_plan(source: Source) -> Plan:
    """Run the first pass, which assigns records to attempts and notes what is wrong with others."""
    kind, cfg, skipped = FORMATS[source.kind], source.cfg, source.skipped
    plan = Plan(cfg.dataset, cfg.model) if kind.chooses else Plan([], [])
    damaged = Skipped(source.files)  # counted by the second pass
    size = sum(path.stat().st_size for path in source.files) >> 10
    with Meter("import: first pass, KiB", size) as meter:
        for batch in _batches(replace(source, skipped=damaged)):
            plan.add(batch, skipped)
            meter.reach(min(damaged.read >> 10, size))
        meter.reach(size)
    plan.check_chosen(source.path)
    plan.assign_trials(skipped, kind.positions)
    others = sorted(damaged.columns - damaged.used - columns.KNOWN)
    if others:
        more = f" and {len(others) - 60} more" * (len(others) > 60)
        listed = ", ".join(map(printable, others[:60]))
        note(f"import: columns not imported: {listed}{more}")
    for name, number in damaged.misread.items():
        if number > len(plan.run) - number:
            first = damaged.lines()[0]
            raise UserError(f"{source.path}: column {name} has no outcomes; rename it: {first}")
    if not (plan.run >= 0).any():
        why = ": ".join(("", *damaged.lines(), *skipped.lines()))
        raise UserError(f"{source.path}: has no usable record{why}")
    golds = any(question.gold for known in plan.questions.values() for question in known)
    judged = plan.categories or any(run.has_outcomes for run in plan.runs)
    told = golds or judged or cfg.source.questions
    if kind.chooses and "answer" in damaged.columns and not told:
        raise UserError(
            f"{source.path}: has neither outcomes nor gold answers; if its column answer holds the"
            " gold answers and not the extracted ones, add gold=answer, else questions=FILE"
        )
    return plan


def _write_tables(source: Source, plan: Plan, draft: Path) -> None:
    """Run the second pass, which writes the rows of every run."""
    at = 0
    with Meter("import", plan.run.size) as meter, ThreadPoolExecutor(_WRITERS) as writers:
        tables = runs.Tables(draft, plan, source, writers)
        for batch in _batches(source):
            tables.add(batch, at)
            at += batch.sound.size
            meter.reach(at)
        tables.flush()


def _batches(source: Source) -> Iterator[Batch]:
    kind, cfg = FORMATS[source.kind], source.cfg
    for key, given in (("dataset", cfg.dataset), ("model", cfg.model)):
        if len(given) > 1 and not kind.chooses and (key, source.kind) != ("model", "npz"):
            raise UserError(
                f"{key}={printable(','.join(given))}: {source.kind} takes one name, for records"
                " without one"
            )
    return kind.batches(source) if kind.batches else of_records(source, kind.read(source))


def _made_by(folder: Path) -> str | None:
    """Return the fingerprint of the import that made a run folder; None for any other folder."""
    imported = runfolder.read_json(folder / "manifest.json").get("imported")
    return str(imported.get("fingerprint")) if isinstance(imported, dict) else None


def _summarise(plan: Plan, targets: list[Path]) -> None:
    """Print a line per dataset, and whether it can be or needs to be graded."""
    for dataset, known in plan.questions.items():
        planned = [run for run in plan.runs if run.dataset == dataset]
        texts = [p for p in targets if p.parent.name == dataset and (p / "attempts").is_dir()]
        most = max(run.trials for run in planned)
        note(
            f"import: {dataset}: {plural(len(planned), 'model')},"
            f" {plural(len(known), 'question')}, up to {plural(most, 'trial')}"
        )
        unknown = sum(not (question.own or question).gold for question in known)
        if unknown and texts:
            what = f"{plural(unknown, 'question')} without a gold answer"
            warn(f"import: {dataset}: {what}; do not `grade` (questions=FILE gives them)")
        elif texts and not any((path / "grades").is_dir() for path in texts):
            command = f"{PROGRAM} grade {texts[0].parent}/*"
            note(f"import: {dataset}: no attempt is graded; run `{command}`")
