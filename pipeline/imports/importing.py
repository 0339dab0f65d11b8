"""The verb `import`: source, first pass, plan, second pass, and run folders renamed into place."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.base.console import Meter, note, results, warn
from pipeline.base.errors import UserError
from pipeline.config.imports import ImportConfig, RecordsConfig
from pipeline.imports import questions, runs, staging
from pipeline.imports.formats import FORMATS, locate
from pipeline.imports.plan import Plan
from pipeline.imports.row import MOST_CATEGORIES, Row, parse
from pipeline.imports.runs import Import
from pipeline.imports.source import Source, Troubles, shown
from pipeline.imports.staging import Staging
from pipeline.store import runfolder


def import_records(cfg: RecordsConfig) -> None:
    """Import a source into run folders `runs/DATASET/MODEL[-TAG]`; the same again does nothing.

    What is damaged or repeated is left out, counted and named. Folders appear complete, at the
    end, or not at all.

    Raises:
        UserError: nothing there, nothing readable, or a run folder that something else made.
        OSError: the disk is full, or fails; the same command begins again.
    """
    root = Path(cfg.runs).expanduser()
    _check(cfg.source)
    source = locate(cfg)
    note(f"import: {source.path} taken for {source.kind} ({source.why})")
    if done := staging.finished(root, source.fingerprint):
        note(f"import: nothing owed, all {len(done)} runs of this source are there")
        return
    with staging.opened(root, source.fingerprint) as stage:
        folders = _import(cfg, source, root, stage)
    for folder in dict.fromkeys(folder.parent for folder in folders):
        results.print(str(folder))


def _import(cfg: RecordsConfig, source: Source, root: Path, stage: Staging) -> list[Path]:
    plan, troubles = _planned(cfg, source)
    done = Import(source, cfg.source, plan, questions.own_questions(cfg.source.questions, plan))
    tag = f"-{cfg.source.tag}" if cfg.source.tag else ""
    targets = {run.folder: root / f"{run.folder}{tag}" for run in plan.runs}
    owed = _owed(targets, source.fingerprint)
    _stage(cfg, done, stage)
    troubles.merge(stage.troubles)
    done.left_out = troubles.lines()
    for line in done.left_out:
        warn(f"import: {line}")
    for number, run in enumerate(plan.runs):
        if run.folder in owed:
            runs.write(done, number, stage.folder / run.folder, owed[run.folder])
    staging.place(stage, owed)
    folders = [str(folder.relative_to(root)) for folder in targets.values()]
    (root / staging.DONE).mkdir(exist_ok=True)
    record = {"source": source.path, "kind": source.kind, "folders": folders}
    runfolder.write_json(root / staging.DONE / f"{source.fingerprint}.json", record)
    _summarise(plan)
    return list(targets.values())


def _planned(cfg: RecordsConfig, source: Source) -> tuple[Plan, Troubles]:
    """First pass: which record becomes which attempt."""
    kind, troubles = FORMATS[source.kind], Troubles()
    plan = Plan(*((cfg.dataset, cfg.model) if kind.chooses else ([], [])))
    for row in _rows(cfg, source, True, troubles):
        plan.note(row, troubles)
    # What is not there cannot be chosen: a mistake.
    for key, chosen in plan.chosen.items():
        there = plan.seen[key]
        if absent := [name for name in chosen if name not in there]:
            said = ", ".join(map(shown, sorted(there)[:20])) or "none"
            raise UserError(f"{key}={shown(absent[0])}: not in {source.path}; there are {said}")
    plan.settle(troubles, kind.positions)
    if not (plan.run >= 0).any():
        why = ": ".join(("", *troubles.lines()))
        raise UserError(f"{source.path}: holds no record that can be used{why}")
    return plan, troubles


def _stage(cfg: RecordsConfig, done: Import, stage: Staging) -> None:
    """Second pass: the rows of every run, on their way to the disk."""
    plan = done.plan
    with Meter("import", plan.run.size) as meter:
        rows = _rows(cfg, done.source, False, stage.troubles)
        for row, number, question, trial in zip(
            rows, plan.run, plan.question, plan.trial, strict=True
        ):
            meter.advance(1)
            if row is None or number < 0:
                continue
            run = plan.runs[number]
            row["question_id"] = plan.questions[run.dataset][question].id
            row["trial"] = int(trial)
            done.label(run, row)
            stage.add(run.folder, row)
    stage.flush()


def _rows(
    cfg: RecordsConfig, source: Source, first: bool, troubles: Troubles
) -> Iterator[Row | None]:
    kind = FORMATS[source.kind]
    for key, given in (("dataset", cfg.dataset), ("model", cfg.model)):
        if len(given) > 1 and not kind.chooses and (key, source.kind) != ("model", "npz"):
            raise UserError(
                f"{key}={shown(','.join(given))}: names one for {source.kind}, what the source does"
                " not name itself; give one name"
            )
    names = [*cfg.dataset, ""][0], [*cfg.model, ""][0]
    for place, record in kind.read(source, cfg, first, troubles):
        yield None if record is None else parse(record, place, cfg.source, names, troubles)


def _check(cfg: ImportConfig) -> None:
    names, weights = cfg.category_names, cfg.category_weights
    if names and weights and len(names) != len(weights):
        raise UserError(
            f"category_weights: {len(weights)} weights for {len(names)} category_names; one each"
        )
    if len(names) > MOST_CATEGORIES or len(names) == 1 or len(set(names)) < len(names):
        raise UserError(f"category_names: 2 to {MOST_CATEGORIES}, each once")
    if any(not abs(weight) < 1e6 for weight in weights):
        raise UserError("category_weights: every weight must be a finite number")
    if cfg.tag is not None and (not cfg.tag.strip() or {"/", "\0"} & set(cfg.tag)):
        raise UserError(f"tag={shown(cfg.tag)}: becomes part of a folder's name, so it takes no /")


def _owed(targets: dict[str, Path], fingerprint: str) -> dict[str, Path]:
    """The run folders that are not there; those that this import already made are left alone.

    Raises:
        UserError: a folder is there and of something else.
    """
    owed = {}
    for run, target in targets.items():
        if not target.exists():
            owed[run] = target
        elif staging.made_by(target) != fingerprint:
            raise UserError(
                f"{target}: is there and not of this import; give it another name with tag=NAME,"
                " another place with runs=FOLDER, or remove it"
            )
        else:
            note(f"import: {target} is complete, left as it is")
    return owed


def _summarise(plan: Plan) -> None:
    """A line a data set; and whether answers can be compared again."""
    for dataset, asked in plan.questions.items():
        of = [run for run in plan.runs if run.dataset == dataset]
        most, seeded = max(run.trials for run in of), sum(run.by_seed for run in of)
        by_seed = f"; trials of {seeded} models numbered by the paper's seeds" if seeded else ""
        note(
            f"import: {dataset}: {len(of)} models, {len(asked)} questions, up to {most}"
            f" trials{by_seed}"
        )
        unknown = sum(not question.gold for question in asked)
        if unknown and any(question.prompts for question in asked):
            warn(f"import: {dataset}: {unknown} questions have no gold answer; do not `grade` them")
