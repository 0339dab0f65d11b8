"""The verb `import`: source, first pass, plan, second pass, and run folders renamed into place."""

from collections.abc import Iterator
from pathlib import Path

from pipeline.base.console import note, results, warn
from pipeline.base.errors import UserError
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.imports import ImportConfig
from pipeline.imports import arrays, finish, known, labels, lm_eval, records, rows, trace
from pipeline.imports import source as sources
from pipeline.imports import staging as stage
from pipeline.imports.finish import Import
from pipeline.imports.plan import Plan
from pipeline.imports.rows import MOST_CATEGORIES, Row
from pipeline.imports.source import Source
from pipeline.imports.staging import Staging
from pipeline.imports.troubles import Troubles, shown
from pipeline.store import runfolder


def import_records(cfg: AnalysisConfig) -> None:
    """Import a source into run folders `runs/DATASET/MODEL[-TAG]`; the same again does nothing.

    What is damaged or repeated is left out, counted and named. Folders appear complete, at the
    end, or not at all.

    Raises:
        UserError: nothing there, nothing readable, or a run folder that something else made.
    """
    runs = Path(cfg.runs).expanduser()
    _check(cfg.source)
    source = sources.locate(cfg.source, list(cfg.dataset), list(cfg.model))
    note(f"import: {source.path} taken for {source.kind} ({source.why})")
    if done := stage.finished(runs, source.fingerprint):
        note(f"import: nothing owed, all {len(done)} runs of this source are there")
        return
    try:
        with stage.opened(runs, source.fingerprint) as staging:
            folders = _import(cfg, source, runs, staging)
    except OSError as error:
        raise UserError(
            f"{error.filename or runs}: {error.strerror or error}; mend the disk, then run the same"
            " command again"
        ) from error
    for folder in dict.fromkeys(folder.parent for folder in folders):
        results.print(str(folder))


def _import(cfg: AnalysisConfig, source: Source, runs: Path, staging: Staging) -> list[Path]:
    plan, troubles = Plan(), Troubles()
    if source.kind == "trace":
        plan.datasets, plan.models = list(cfg.dataset), list(cfg.model)
        trace.read_keys(source, plan, troubles)
        _check_filters(plan, source)
        plan.settle(troubles)
    else:
        counted = source.kind in ("csv", "jsonl")
        records.read_keys(lambda t: _rows(cfg, source, t), plan, troubles, counted)
    if not (plan.run >= 0).any():
        why = ": ".join(("", *troubles.lines()))
        raise UserError(f"{source.path}: holds no record that can be used{why}")
    finish.check_size(plan)
    exact = known.exact_questions(cfg.source.questions, plan)
    targets = _targets(cfg, source, plan, runs)
    labelled = {}
    if source.kind == "trace":
        later = trace.read_rows(source, plan, staging)
        troubles.counts, troubles.places = _merged(troubles, later)
    else:
        found = records.read_rows(lambda t: _rows(cfg, source, t), plan, staging)
        labelled = labels.shared(cfg.source, found)
    stage.flush(staging)
    troubles.report()
    done = Import(source, cfg.source, plan, exact, troubles.lines())
    for number, run in enumerate(plan.runs):
        name = f"{run.dataset}/{run.model}"
        if name in targets:
            (staging.folder / name).mkdir(parents=True, exist_ok=True)
            finish.write(done, number, staging.folder / name, targets[name], labelled.get(name))
    stage.place(staging, targets)
    folders = [_target(cfg, runs, run.dataset, run.model) for run in plan.runs]
    told = [str(folder.relative_to(runs)) for folder in folders]
    (runs / stage.DONE).mkdir(exist_ok=True)
    path = runs / stage.DONE / f"{source.fingerprint}.json"
    runfolder.write_json(path, {"source": source.path, "kind": source.kind, "folders": told})
    _say(plan)
    return folders


def _rows(cfg: AnalysisConfig, source: Source, troubles: Troubles) -> Iterator[Row]:
    task = cfg.dataset[0] if cfg.dataset else ""
    models = list(cfg.model)
    one = models[0] if models else ""
    for key, given in (("dataset", cfg.dataset), ("model", models)):
        if len(given) > 1 and (key, source.kind) != ("model", "npz"):
            raise UserError(
                f"{key}={shown(','.join(given))}: names one for {source.kind}, what the source does"
                " not name itself; give one name"
            )
    match source.kind:
        case "lm_eval":
            return lm_eval.read(source, cfg.source, task, one, troubles)
        case "npz":
            return arrays.read_npz(source, cfg.source, task, models, troubles)
        case "csv":
            return rows.read_csv(source, cfg.source, task, one, troubles)
        case _:
            return rows.read_jsonl(source, cfg.source, task, one, troubles)


def _check_filters(plan: Plan, source: Source) -> None:
    """`dataset=` and `model=` choose of Parquet records: what is not there is a mistake."""
    for key, wanted, there in zip(
        ("dataset", "model"), (plan.datasets, plan.models), plan.seen, strict=True
    ):
        if lacking := [name for name in wanted if name not in there]:
            said = ", ".join(map(shown, sorted(there)[:20])) or "none"
            raise UserError(f"{key}={shown(lacking[0])}: not in {source.path}; there are {said}")


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


def _target(cfg: AnalysisConfig, runs: Path, dataset: str, model: str) -> Path:
    return runs / dataset / (f"{model}-{cfg.source.tag}" if cfg.source.tag else model)


def _targets(cfg: AnalysisConfig, source: Source, plan: Plan, runs: Path) -> dict[str, Path]:
    """Per DATASET/MODEL its run folder; those that this import already made are left alone.

    Raises:
        UserError: a folder is there and of something else.
    """
    found = {}
    for run in plan.runs:
        target = _target(cfg, runs, run.dataset, run.model)
        if not target.exists():
            found[f"{run.dataset}/{run.model}"] = target
        elif stage.made_by(target) != source.fingerprint:
            raise UserError(
                f"{target}: is there and not of this import; give it another name with tag=NAME,"
                " another place with runs=FOLDER, or remove it"
            )
        else:
            note(f"import: {target} is complete, left as it is")
    return found


def _merged(first: Troubles, later: Troubles) -> tuple[dict[str, int], dict[str, list[str]]]:
    """Both passes meet the same damage: per kind the larger count, with its places."""
    counts, places = dict(first.counts), dict(first.places)
    for kind, number in later.counts.items():
        if number > counts.get(kind, 0):
            counts[kind], places[kind] = number, later.places[kind]
    return counts, places


def _say(plan: Plan) -> None:
    """A line a data set; and whether answers can be compared again."""
    for dataset, questions in plan.questions.items():
        found = [run for run in plan.runs if run.dataset == dataset]
        most, seeded = max(run.trials for run in found), sum(run.by_seed for run in found)
        by_seed = f"; trials of {seeded} models numbered by the paper's seeds" if seeded else ""
        note(
            f"import: {dataset}: {len(found)} models, {len(questions)} questions, up to {most}"
            f" trials{by_seed}"
        )
        unknown = sum(not question.gold for question in questions)
        if unknown and any(question.prompts for question in questions):
            warn(f"import: {dataset}: {unknown} questions have no gold answer; do not `grade` them")
