"""After the passes: what makes a folder of rows a run, its questions, configuration, manifest."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.base import atomic
from pipeline.base.environment import describe
from pipeline.base.errors import UserError
from pipeline.config import compose
from pipeline.config.imports import ImportConfig
from pipeline.imports import labels as label
from pipeline.imports import names
from pipeline.imports.labels import Labels
from pipeline.imports.plan import FIRST_SEED, Plan, Question, RunPlan
from pipeline.imports.source import Source
from pipeline.prepare.questions import Question as Known
from pipeline.rubrics import signals_table
from pipeline.store import rowkeys, runfolder, shards
from pipeline.store.columns import GRADES, QUESTIONS, SIGNALS
from pipeline.store.runfolder import Run

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


def write(
    done: Import, number: int, folder: Path, target: Path, labels: Labels | None = None
) -> None:
    """Write everything of one run but the rows, which are there.

    Args:
        done: the import.
        number: of the run in its plan.
        folder: where the run is made.
        target: where it will be.
        labels: its categories, and their rubric.
    """
    plan = done.plan.runs[number]
    run = Run(_config(done, plan, folder))
    rows = _questions(done, number, run)
    shards.write_part(folder / "questions.parquet", pa.Table.from_pylist(rows, schema=QUESTIONS))
    if labels is not None:
        label.grade(run, labels)
    if run.grades.is_dir():
        told = {"imported": done.source.fingerprint}
        runfolder.write_json(run.grades / "_grader.json", told)
    if (folder / "verdicts").is_dir():
        by = {"settings": {"imported": done.source.fingerprint}}
        runfolder.write_json(folder / "verdicts" / "_verifier.json", by)
    if not run.attempts.is_dir():
        _outcomes_as_signals(run)
    if labels is not None:
        label.save(run, labels)
    identity = {
        **runfolder.identity(run.cfg),
        "model.weights": f"imported: {plan.called}",
        "questions": {row["question_id"]: row["question_hash"] for row in rows},
    }
    atomic.write_text(folder / "config.yaml", compose.dump(replace(run.cfg, run_dir=str(target))))
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
    return compose.check(cfg)


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


def _outcomes_as_signals(run: Run) -> None:
    """Signals of a run that has outcomes and no attempts: only whether they are correct."""
    if not run.grades.is_dir():
        return
    grades = rowkeys.streamed(run.grades, GRADES, ["question_id", "trial", "outcome"], "import")
    order = np.argsort(rowkeys.encode(grades, rowkeys.question_ids(run)))
    grades = grades.take(pa.array(order))
    correct = [outcome == "correct" for outcome in grades["outcome"].to_pylist()]
    columns = {name: grades[name] for name in ("question_id", "trial")}
    columns["is_correct"] = pa.array(correct)
    nulls = {f.name: pa.nulls(len(correct), f.type) for f in SIGNALS if f.name not in columns}
    table = pa.table({name: (columns | nulls)[name] for name in SIGNALS.names}, schema=SIGNALS)
    signals_table.write(run, table, signals_table.sources(run))
