"""What makes a folder of imported rows a run: questions, categories, configuration, manifest."""

import json
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.base import atomic
from pipeline.base.environment import describe
from pipeline.config import compose
from pipeline.config.checks import check
from pipeline.config.imports import ImportConfig
from pipeline.imports import names
from pipeline.imports.plan import FIRST_SEED, Plan, Question, RunPlan
from pipeline.imports.row import Row
from pipeline.imports.source import Source
from pipeline.prepare.questions import Question as Own
from pipeline.rubrics import categories, signals_table
from pipeline.rubrics.categories import Mapped
from pipeline.store import rowkeys, runfolder, shards
from pipeline.store.columns import GRADES, QUESTIONS, SIGNALS
from pipeline.store.runfolder import Run


@dataclass
class Import:
    """Everything about one import that its run folders say."""

    source: Source
    cfg: ImportConfig
    plan: Plan
    own: dict[str, list[Own]]  # per data set its own questions, where the user has them
    labels: dict[str, list[tuple[str, int, int]]] = field(default_factory=dict)  # by run folder
    left_out: list[str] = field(default_factory=list)

    def label(self, run: RunPlan, row: Row) -> None:
        """Keep the category of a planned row; without any outcomes the best one is correct."""
        if row["category"] is None:
            return
        key = (row["question_id"], row["trial"], row["category"])
        self.labels.setdefault(run.folder, []).append(key)
        if not run.has_outcomes:
            _, weights = self.rubric(run)
            best = weights[row["category"]] == max(weights)
            row["outcome"] = "correct" if best else "wrong"
            row["reason"] = f"category {row['category']}"

    def rubric(self, run: RunPlan) -> tuple[list[str], list[float]]:
        """Names and weights of the categories that a run's data set has in the whole source.

        A model that never reached the best category is still scored by it: names, weights and the
        prior, which has one count a category, must be those of the models beside it.
        """
        called, given = self.cfg.category_names, self.cfg.category_weights
        number = len(called or given) or self.plan.categories[run.dataset]
        weights = [float(weight) for weight in given or range(number)]
        return called or [f"category {i}" for i in range(number)], weights


def write(done: Import, number: int, folder: Path, target: Path) -> None:
    """Write everything of one run but the rows, which are there.

    Args:
        done: the import.
        number: of the run in its plan.
        folder: where the run is made.
        target: where it will be.
    """
    plan = done.plan.runs[number]
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(_config(done, plan, folder))
    rows = _questions(done, number, run)
    shards.write_part(folder / "questions.parquet", pa.Table.from_pylist(rows, schema=QUESTIONS))
    by = {"imported": done.source.fingerprint}
    if run.grades.is_dir():
        runfolder.write_json(run.grades / "_grader.json", by)
    if (folder / "verdicts").is_dir():
        runfolder.write_json(folder / "verdicts" / "_verifier.json", {"settings": by})
    if run.grades.is_dir() and not run.attempts.is_dir():
        _outcomes_as_signals(run)
    if plan.folder in done.labels:
        _save_labels(done, plan, run)
    atomic.write_text(folder / "config.yaml", compose.dump(replace(run.cfg, run_dir=str(target))))
    runfolder.write_manifest(
        run,
        {
            "created_with": describe(),
            "identity": {
                **runfolder.identity(run.cfg),
                "model.weights": f"imported: {plan.called}",
                "questions": {row["question_id"]: row["question_hash"] for row in rows},
            },
            "imported": {
                "fingerprint": done.source.fingerprint,
                "source": done.source.path,
                "kind": done.source.kind,
                "revision": done.source.revision,
                "files": [path.name for path in done.source.files[:100]],
                "model": plan.called,
                # Records do not say how they were sampled; seeds of the paper's protocol tell it.
                "sampling_known": plan.by_seed,
                "attempts": run.attempts.is_dir(),
                "question_hashes": "problem and gold answer"
                if plan.dataset in done.own
                else "number and gold answer",
                "left_out": done.left_out,
            },
        },
    )


def _config(done: Import, plan: RunPlan, folder: Path) -> Any:
    cfg = names.run_config(plan.dataset, plan.model, plan.called)
    cfg.run_dir, cfg.tag = str(folder), done.cfg.tag
    cfg.sampling.trials = plan.trials
    cfg.sampling.seed = FIRST_SEED if plan.by_seed else None
    if not plan.by_seed:
        cfg.sampling.name = "imported"
    cfg.stages = ["score"]
    if (folder / "attempts").is_dir():
        graded = (folder / "grades").is_dir()
        cfg.stages = ["signals", "categorize", "score"] if graded else ["grade", "signals", "score"]
    return check(cfg)


def _questions(done: Import, number: int, run: Run) -> list[dict[str, Any]]:
    dataset = done.plan.runs[number].dataset
    asked = done.plan.questions[dataset]
    own = done.own.get(dataset, [None] * len(asked))
    return [
        {
            **_identity(dataset, question, exact),
            "question_id": question.id,
            "prompt": question.prompts.get(number, ""),
            "prompt_token_ids": [],
            "max_tokens": run.cfg.sampling.max_tokens,
        }
        for question, exact in zip(asked, own, strict=True)
    ]


def _identity(dataset: str, question: Question, own: Own | None) -> dict[str, str]:
    """Problem, gold answer and hash; without the problem the hash is of number and gold answer."""
    gold = question.gold or ""
    if own is None and question.problem:
        own = Own(question.id, question.problem, gold)
    if own is not None:
        return {"problem": own.problem, "gold": own.gold, "question_hash": own.hash}
    hashed = runfolder.short_hash(json.dumps([dataset, question.id, gold], ensure_ascii=False))
    prompt = next(iter(question.prompts.values()), "")  # any: it holds the problem
    return {"problem": prompt, "gold": gold, "question_hash": hashed}


def _outcomes_as_signals(run: Run) -> None:
    """Signals of a run that has outcomes and no attempts: only whether they are correct."""
    grades = rowkeys.streamed(run.grades, GRADES, ["question_id", "trial", "outcome"], "import")
    order = np.argsort(rowkeys.encode(grades, rowkeys.question_ids(run)))
    rows = grades.take(pa.array(order)).to_pylist()
    signals = [{**row, "is_correct": row["outcome"] == "correct"} for row in rows]
    table = pa.Table.from_pylist(signals, schema=SIGNALS)
    signals_table.write(run, table, signals_table.sources(run))


def _save_labels(done: Import, plan: RunPlan, run: Run) -> None:
    """Keep the categories as a rubric of the run."""
    called, weights = done.rubric(plan)
    rubric = {
        "name": done.cfg.rubric,
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
    columns = [pa.array(column) for column in zip(*done.labels[plan.folder], strict=True)]
    table = pa.table(columns, names=categories.CATEGORIES.names).cast(categories.CATEGORIES)
    categories.save(run, names.safe_name(done.cfg.rubric), Mapped(table, rubric))
