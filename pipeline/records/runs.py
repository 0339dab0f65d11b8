"""What makes a folder of imported rows a run: questions, categories, configuration, manifest."""

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import pyarrow as pa

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.environment import describe
from bayes_at_n.pipeline.config.checks import validated
from bayes_at_n.pipeline.config.folder import dump
from bayes_at_n.pipeline.config.records import ImportConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare.questions import Question as OwnQuestion
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.plan import FIRST_SEED, Plan, Question, RunPlan
from bayes_at_n.pipeline.records.source import Source
from bayes_at_n.pipeline.rubrics import categories
from bayes_at_n.pipeline.store import origin, parquet, runfolder
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run

_described = cache(describe)  # once for all runs


def rubric(plan: Plan, dataset: str, cfg: ImportConfig) -> tuple[list[str], list[float]]:
    """Names and weights of the categories that a data set has in the whole source.

    A model that never reached the best category is still scored by it: names, weights and the
    prior, which has one count a category, must be those of the models beside it.
    """
    labels, weights = cfg.category_names, cfg.category_weights
    number = len(labels or weights) or plan.categories[dataset]
    labels = labels or [f"category {i}" for i in range(number)]
    return labels, [float(weight) for weight in weights or range(number)]


def write(
    source: Source, plan: Plan, number: int, folder: Path, target: Path, left_out: list[str]
) -> None:
    """Write everything of run `number` of a plan but the rows, which are there.

    The run is made in `folder` and will be `target`; `left_out` says what was wrong in the source.
    """
    planned, cfg = plan.runs[number], source.cfg.source
    folder.mkdir(parents=True, exist_ok=True)
    run = Run(_config(planned, cfg, folder))
    asked = plan.questions[planned.dataset]
    rows = [
        {
            **_identity(planned.dataset, question),
            "question_id": question.id,
            "prompt": question.prompts.get(number, ""),
            "prompt_token_ids": [],
            "max_tokens": run.cfg.sampling.max_tokens,
        }
        for question in asked
    ]
    parquet.write_part(folder / "questions.parquet", pa.Table.from_pylist(rows, schema=QUESTIONS))
    if len((labelled := plan.labels(number))[0]):
        _save_labels(run, labelled, *rubric(plan, planned.dataset, cfg), cfg.rubric)
    atomic.write_text(folder / "config.yaml", dump(replace(run.cfg, run_dir=str(target))))
    runfolder.write_json(
        run.manifest,
        {
            origin.FORMAT: origin.NUMBER,
            "created_with": _described(),
            "identity": {
                **runfolder.identity(run.cfg),
                "model.weights": f"imported: {planned.called}",
                "questions": {row["question_id"]: row["question_hash"] for row in rows},
            },
            "imported": {
                "fingerprint": source.fingerprint,
                "source": source.path,
                "kind": source.kind,
                "revision": source.revision,
                "files": [path.name for path in source.files[:100]],
                "model": planned.called,
                # Records do not say how they were sampled; seeds of the paper's protocol tell it.
                "sampling_known": planned.by_seed,
                "attempts": run.attempts.is_dir(),
                "question_hashes": "problem and gold answer"
                if all(question.own or question.problem for question in asked)
                else "number and gold answer",
                "left_out": left_out,
            },
        },
    )


def _config(planned: RunPlan, source: ImportConfig, folder: Path) -> RunConfig:
    cfg = names.run_config(planned.dataset, planned.model, planned.called)
    cfg.run_dir, cfg.tag = str(folder), source.tag
    cfg.sampling.trials = planned.trials
    cfg.sampling.seed = FIRST_SEED if planned.by_seed else None
    if not planned.by_seed:
        cfg.sampling.name = "imported"
    cfg.stages = ["score"]
    if (folder / "attempts").is_dir():
        graded = (folder / "grades").is_dir()
        cfg.stages = [*["grade"] * (not graded), "categorize", "score"]
    return validated(RunConfig, asdict(cfg))


def _identity(dataset: str, question: Question) -> dict[str, str]:
    """Problem, gold answer and hash; without the problem the hash is of number and gold answer."""
    gold, own = question.gold or "", question.own
    if own is None and question.problem:
        own = OwnQuestion(question.id, question.problem, gold)
    if own is not None:
        return {"problem": own.problem, "gold": own.gold, "question_hash": own.hash}
    hashed = runfolder.short_hash(json.dumps([dataset, question.id, gold], ensure_ascii=False))
    prompt = next(iter(question.prompts.values()), "")  # any: it holds the problem
    return {"problem": prompt, "gold": gold, "question_hash": hashed}


def _save_labels(
    run: Run, labelled: list[pa.Array], labels: list[str], weights: list[float], name: str
) -> None:
    """Keep the categories as a rubric of the run."""
    record = {
        "name": name,
        "description": "labels that were imported",
        "order": [],
        "categories": [
            {"index": i, "name": label, "when": "imported", "weight": weight}
            for i, (label, weight) in enumerate(zip(labels, weights, strict=True))
        ],
        "imported": True,  # no condition of ours made them: they rest on no signals
        "thresholds": {},
        "labels": [],
    }
    table = pa.table(labelled, names=categories.CATEGORIES.names)
    categories.save(run, names.safe_name(name), table, record)
