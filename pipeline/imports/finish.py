"""What makes a folder of imported rows a run: questions, configuration, manifest, and the rest."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline import config, evidence, rubrics, runfolder, shards
from pipeline.console import warn
from pipeline.environment import describe
from pipeline.errors import UserError
from pipeline.imports import names
from pipeline.imports.plan import FIRST_SEED, Plan, Question, RunPlan
from pipeline.imports.settings import ImportConfig
from pipeline.imports.source import Source
from pipeline.questions import Question as Known
from pipeline.rubrics import Mapped
from pipeline.runfolder import Run
from pipeline.tables import GRADES, QUESTIONS, SIGNALS

MOST_CELLS = 50_000_000  # questions x trials of one run


@dataclass(frozen=True)
class Import:
    """Everything about one import that its run folders tell."""

    source: Source
    cfg: ImportConfig
    plan: Plan
    exact: dict[str, list[Known]]  # per data set its own questions, where the user has them
    troubles: list[str]


def check_size(plan: Plan) -> None:
    """Refuse what would make a matrix beyond all measure, such as one trial of number 10^5.

    Raises:
        UserError: naming the run.
    """
    for run in plan.runs:
        cells = len(plan.questions[run.dataset]) * run.trials
        if cells > MOST_CELLS:
            raise UserError(
                f"{run.dataset}/{run.model}: {len(plan.questions[run.dataset])} questions x"
                f" {run.trials} trials are too many; are its trials numbers of something else?"
            )


def exact_questions(where: str | None, plan: Plan) -> dict[str, list[Known]]:
    """The data sets' own questions, per data set, from the user's files.

    Records hold prompts, not problems. With the problems a run has the ids and hashes that a run
    made here has, and can be compared with it.

    Raises:
        UserError: the file is not there, or does not hold questions.
    """
    if where is None:
        return {}
    from pipeline import questions
    from pipeline.schema import DatasetConfig

    found = {}
    path = Path(where).expanduser()
    for dataset, rows in plan.questions.items():
        file = path / f"{dataset}.jsonl" if path.is_dir() else path
        if path.is_dir() and not file.is_file():
            warn(f"import: {path} holds no {dataset}.jsonl; its questions are known by number only")
            continue
        known, _ = questions.load(DatasetConfig(name=dataset, path=str(file)))
        exact = _matched(rows, known)
        if exact is None:
            warn(
                f"import: {file} does not hold the questions of {dataset} in the order of its"
                " records; they are known by number only"
            )
        else:
            found[dataset] = exact
    return found


def write(
    done: Import, number: int, folder: Path, target: Path, labels: dict[str, list[Any]] | None
) -> None:
    """Write everything of one run but the rows, which are there.

    Args:
        done: the import.
        number: of the run in its plan.
        folder: where the run is made.
        target: where it will be.
        labels: its categories: columns question_id, trial, category.
    """
    plan = done.plan.runs[number]
    run = Run(_config(done, plan, folder))
    rows = _questions(done, number, run)
    shards.write_part(folder / "questions.parquet", pa.Table.from_pylist(rows, schema=QUESTIONS))
    if labels:
        _grade_by_category(done.cfg, run, labels)
    if run.grades.is_dir():
        told = {"imported": done.source.fingerprint}
        runfolder.write_json(run.grades / "_grader.json", told)
    if (folder / "verdicts").is_dir():
        by = {"settings": {"imported": done.source.fingerprint}}
        runfolder.write_json(folder / "verdicts" / "_verifier.json", by)
    if not run.attempts.is_dir():
        _outcomes_as_signals(run)
    if labels:
        _save_labels(done.cfg, run, labels)
    identity = {
        **runfolder.settings(run.cfg),
        "model.weights": f"imported: {plan.called}",
        "questions": {row["question_id"]: row["question_hash"] for row in rows},
    }
    shards.write_text(folder / "config.yaml", config.dump(replace(run.cfg, run_dir=str(target))))
    runfolder.write_manifest(
        run,
        {
            "created_with": describe(),
            "identity": identity,
            "imported": _told(done, plan, run),
        },
    )


def _told(done: Import, plan: RunPlan, run: Run) -> dict[str, Any]:
    source = done.source
    return {
        "fingerprint": source.fingerprint,
        "source": source.path,
        "kind": source.kind,
        "revision": source.revision,
        "files": [path.name for path in source.files[:100]],
        "model": plan.called,
        # Records do not say how they were sampled; seeds of the paper's protocol tell it.
        "sampling_known": plan.by_seed,
        "attempts": run.attempts.is_dir(),
        "question_hashes": "problem and gold answer"
        if plan.dataset in done.exact
        else "number and gold answer",
        "left_out": done.troubles,
    }


def _config(done: Import, plan: RunPlan, folder: Path) -> Any:
    cfg = names.run_config(plan.dataset, plan.model, plan.called)
    cfg.run_dir, cfg.tag = str(folder), done.cfg.tag
    cfg.sampling.trials = plan.trials
    cfg.sampling.seed = FIRST_SEED if plan.by_seed else None
    if not plan.by_seed:
        cfg.sampling.name = "imported"
    attempts, grades = (folder / "attempts").is_dir(), (folder / "grades").is_dir()
    if attempts:
        cfg.stages = ["signals", "categorize", "score"] if grades else ["grade", "signals", "score"]
    else:
        cfg.stages = ["score"]
    return config.check(cfg)


def _questions(done: Import, number: int, run: Run) -> list[dict[str, Any]]:
    dataset = done.plan.runs[number].dataset
    rows: list[dict[str, Any]] = []
    for i, question in enumerate(done.plan.questions[dataset]):
        problem, gold, hashed = _identity(done, dataset, i, question)
        rows.append(
            {
                "question_id": question.id,
                "problem": problem,
                "gold": gold,
                "question_hash": hashed,
                "prompt": question.prompts.get(number, ""),
                "prompt_token_ids": [],
                "prompt_logprobs": None,
                "max_tokens": run.cfg.sampling.max_tokens,
            }
        )
    return rows


def _identity(done: Import, dataset: str, i: int, question: Question) -> tuple[str, str, str]:
    """Problem, gold answer and hash; without the problem the hash is of number and gold answer."""
    if dataset in done.exact:
        exact = done.exact[dataset][i]
        return exact.problem, exact.gold, exact.hash
    gold = question.gold or ""
    if question.problem:
        return question.problem, gold, Known(question.id, question.problem, gold).hash
    hashed = runfolder.short_hash(json.dumps([dataset, question.id, gold], ensure_ascii=False))
    prompt = next(iter(question.prompts.values()), "")  # any: it holds the problem
    return prompt, gold, hashed


def _matched(rows: list[Question], known: list[Known]) -> list[Known] | None:
    """For each question of the records the data set's own, by row number or id; None if unsure.

    A prompt that is there must hold the problem, and the gold answers must not be others.
    """
    by_id = {one.id: one for one in known}
    found = []
    for row in rows:
        at = row.number
        one = by_id.get(row.id) if isinstance(at, str) else known[at] if at < len(known) else None
        if one is None or any(one.problem not in p for p in row.prompts.values() if p):
            one = next((k for k in known if any(k.problem in p for p in row.prompts.values())), one)
        if one is None or any(one.problem not in p for p in row.prompts.values() if p):
            return None
        found.append(one)
    if len({one.id for one in found}) < len(found):
        return None
    for row, one in zip(rows, found, strict=True):
        row.id = one.id
    return found


def _grade_by_category(cfg: ImportConfig, run: Run, labels: dict[str, list[Any]]) -> None:
    """Where a source has categories and no outcomes, the category of most weight is correct."""
    if run.grades.is_dir():
        return
    weights = category_weights(cfg, labels)
    best = max(weights)
    rows = [
        {
            "question_id": question,
            "trial": trial,
            "outcome": "correct" if weights[category] == best else "wrong",
            "layer": "imported",
            "reason": f"category {category}",
        }
        for question, trial, category in zip(*labels.values(), strict=True)
    ]
    table = pa.Table.from_pylist(rows, schema=GRADES)
    shards.write_part(run.grades / "import-00000.parquet", table)


def category_weights(cfg: ImportConfig, labels: dict[str, list[Any]]) -> list[float]:
    """The weights of categories 0..C, as given or 0, 1, ..., C."""
    if cfg.category_weights:
        return [float(weight) for weight in cfg.category_weights]
    number = len(cfg.category_names) or max(labels["category"]) + 1
    return [float(i) for i in range(number)]


def _save_labels(cfg: ImportConfig, run: Run, labels: dict[str, list[Any]]) -> None:
    weights = category_weights(cfg, labels)
    called = cfg.category_names or [f"category {i}" for i in range(len(weights))]
    told = {
        "name": cfg.rubric,
        "description": "labels that were imported",
        "order": [],
        "categories": [
            {"index": i, "name": name, "when": "imported", "weight": weight}
            for i, (name, weight) in enumerate(zip(called, weights, strict=True))
        ],
        "imported": True,  # no condition of ours made them: they rest on no signals
        "thresholds": {},
        "signals": "",
        "labels": [],
    }
    table = pa.Table.from_pydict(labels, schema=rubrics.CATEGORIES)
    rubrics.save(run, names.safe_name(cfg.rubric), Mapped(table, told))


def _outcomes_as_signals(run: Run) -> None:
    """Signals of a run that has outcomes and no attempts: only whether they are correct."""
    if not run.grades.is_dir():
        return
    grades = evidence.streamed(run.grades, GRADES, ["question_id", "trial", "outcome"], "import")
    order = np.argsort(evidence.row_keys(grades, evidence.question_ids(run)))
    grades = grades.take(pa.array(order))
    correct = [outcome == "correct" for outcome in grades["outcome"].to_pylist()]
    columns = {name: grades[name] for name in ("question_id", "trial")}
    columns["is_correct"] = pa.array(correct)
    nulls = {f.name: pa.nulls(len(correct), f.type) for f in SIGNALS if f.name not in columns}
    table = pa.table({name: (columns | nulls)[name] for name in SIGNALS.names}, schema=SIGNALS)
    evidence.write(run, table, evidence.sources(run))
