"""Write imported rows as run folders: their tables, then questions, settings and manifest.

Everything is written to a draft folder in `runs`, which no verb takes for a run. Runs are renamed
into place once the whole source has been read; an interrupted import starts again.
"""

import contextlib
import json
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from functools import cache, partial, reduce
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.environment import describe
from bayes_at_n.pipeline.config.checks import validated
from bayes_at_n.pipeline.config.folder import dump
from bayes_at_n.pipeline.config.records import ImportConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.prepare.questions import Question as OwnQuestion
from bayes_at_n.pipeline.records import names
from bayes_at_n.pipeline.records.batches import Batch, derive
from bayes_at_n.pipeline.records.plan import FIRST_SEED, NAMING, Plan, PlannedRun, Question
from bayes_at_n.pipeline.records.source import Source
from bayes_at_n.pipeline.rubrics import categories
from bayes_at_n.pipeline.store import origin, parquet, runfolder
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, MEANS, QUESTIONS, VERDICTS
from bayes_at_n.pipeline.store.graded import GRADES_TABLE, VERDICTS_TABLE
from bayes_at_n.pipeline.store.runfolder import Run

MOST_BYTES = 32 << 20  # of buffered rows, about
_GROUPS = (1024, parquet.ROWS_PER_GROUP)  # rows per group of other tables, and of attempts

# Per table its columns, and those of which a row needs one to belong there.
_TABLES = {
    "attempts": (ATTEMPTS, ("text", "finish_reason", "completion_tokens")),
    "grades": (GRADES, ("outcome",)),
    "verdicts": (VERDICTS, ("label",)),
    "means": (MEANS, ("prompt_mean_logprob", "completion_mean_logprob")),
}
_DERIVED = {"grades": GRADES_TABLE, "verdicts": VERDICTS_TABLE}
_environment = cache(describe)  # once for all runs


class Tables:
    """Buffered rows of all runs of an import."""

    def __init__(
        self, folder: Path, plan: Plan, source: Source, writers: ThreadPoolExecutor
    ) -> None:
        self._folder, self._plan, self._writers = folder, plan, writers
        self._skipped = source.skipped
        self._best = dict[str, list[int]]()  # by dataset, the categories that count as correct
        for dataset in plan.categories:
            weights = rubric(plan, dataset, source.cfg.source)[1]
            self._best[dataset] = [i for i, weight in enumerate(weights) if weight == max(weights)]
        self._waiting = list[pa.Table]()
        self._number = 0  # of flushes so far

    def add(self, batch: Batch, at: int) -> None:
        """Buffer the records of a batch, which are those from `at` on in the plan."""
        plan = self._plan
        rows = np.flatnonzero((plan.run[at : at + batch.sound.size] >= 0) & batch.sound)
        if not rows.size:
            return
        columns = {
            name: column if rows.size == len(column) else column.take(pa.array(rows))
            for name, column in batch.columns.items()
            if name not in NAMING
        }
        runs = [plan.runs[number] for number in plan.run[at + rows]]
        places = zip(runs, plan.question[at + rows].tolist(), strict=True)
        ids = [plan.questions[run.dataset][question].id for run, question in places]
        columns["question_id"] = pa.array(ids, pa.string())
        columns["trial"] = pa.array(plan.trial[at + rows])
        if "category" in columns:
            self._judge(columns, runs)
        derive(columns, [batch.place(i) for i in rows.tolist()].__getitem__, self._skipped)
        self._waiting.append(pa.table(columns | {"run": pa.array(plan.run[at + rows])}))
        if sum(table.nbytes for table in self._waiting) > MOST_BYTES:
            self.flush()

    def _judge(self, columns: dict[str, Any], runs: list[PlannedRun]) -> None:
        """Let the best category be correct in runs whose records have no outcomes."""
        right = [
            None if category is None or run.has_outcomes else category in self._best[run.dataset]
            for run, category in zip(runs, columns["category"].to_pylist(), strict=True)
        ]
        judged = pc.if_else(pa.array(right, pa.bool_()), "correct", "wrong")
        why = pc.binary_join_element_wise("category", columns["category"].cast(pa.string()), " ")
        columns["outcome"] = pc.coalesce(columns.get("outcome", judged), judged)
        columns["reason"] = pc.if_else(judged.is_valid(), why, columns["reason"])

    def flush(self) -> None:
        """Write the buffered rows."""
        if not self._waiting:
            return
        self._number += 1
        rows = pa.concat_tables(self._waiting, promote_options="default")
        runs, self._waiting = rows["run"].to_numpy(), []
        if (np.diff(runs) < 0).any():
            order = np.argsort(runs, kind="stable")
            rows, runs = rows.take(pa.array(order)), runs[order]
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        folders = [self._folder / self._plan.runs[run].folder for run in runs[starts]]
        parts = [rows.slice(a, b - a) for a, b in pairwise([*starts, runs.size])]
        [*self._writers.map(partial(_write, self._number), folders, parts)]


def _write(number: int, folder: Path, rows: pa.Table) -> None:
    """Write rows of one run as a file of each table that some of them belong to."""
    for table, (schema, marks) in _TABLES.items():
        valid = [rows[mark].is_valid() for mark in marks if mark in rows.column_names]
        if not valid or not pc.any(belongs := reduce(pc.or_, valid)).as_py():
            continue
        part = rows if pc.all(belongs).as_py() else rows.filter(belongs)
        columns = [
            part[column.name].cast(column.type)
            if column.name in part.column_names
            else pa.nulls(part.num_rows, column.type)
            for column in schema
        ]
        complete_rows = pa.table(columns, schema=schema)
        folder.mkdir(parents=True, exist_ok=True)
        file = folder / table / f"import-{number:05d}.parquet"
        if table in _DERIVED:
            _DERIVED[table].write(folder, file.stem, complete_rows)
        else:
            parquet.write_part(file, complete_rows, _GROUPS[table == "attempts"])


@contextlib.contextmanager
def draft(runs: Path) -> Iterator[Path]:
    """Create a draft folder in `runs` for the block; remove those of killed imports."""
    atomic.sweep(runs)
    folder = atomic.draft(runs / "import")
    folder.mkdir(parents=True)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def rubric(plan: Plan, dataset: str, cfg: ImportConfig) -> tuple[list[str], list[float]]:
    """Return names and weights of the categories of a dataset in the whole source.

    They are the same for models that never reached the best category: scores must be comparable,
    and the prior has one count per category.
    """
    labels, weights = cfg.category_names, cfg.category_weights
    number = len(labels or weights) or plan.categories[dataset]
    labels = labels or [f"category {i}" for i in range(number)]
    return labels, [float(weight) for weight in weights or range(number)]


def complete(
    source: Source, plan: Plan, number: int, folder: Path, target: Path, left_out: list[str]
) -> None:
    """Write everything of run `number` of a plan but its rows, which are already written.

    The run is in `folder` and will be renamed to `target`; `left_out` covers the whole source.
    """
    planned, cfg = plan.runs[number], source.cfg.source
    folder.mkdir(parents=True, exist_ok=True)
    run, questions = Run(_config(planned, cfg, folder)), plan.questions[planned.dataset]
    if any(question.topic for question in questions):
        run.cfg.dataset.fields.category = "category"
    rows: list[dict[str, Any]] = [
        {
            **_identity(planned.dataset, question),
            "question_id": question.id,
            "prompt": question.prompts.get(number, ""),
            "category": [[question.topic]] if question.topic else None,
            "cluster": question.own.cluster if question.own else question.cluster,
            "prompt_token_ids": [],
            "max_tokens": run.cfg.sampling.max_tokens,
        }
        for question in questions
    ]
    parquet.write_part(folder / "questions.parquet", pa.Table.from_pylist(rows, schema=QUESTIONS))
    labelled = pa.table(plan.labels(number), names=categories.CATEGORIES.names)
    if labelled.num_rows:
        _save_labels(run, labelled, *rubric(plan, planned.dataset, cfg), cfg.rubric)
    atomic.write_text(folder / "config.yaml", dump(replace(run.cfg, run_dir=str(target))))
    problems = all(question.own or question.problem for question in questions)
    imported = {
        "fingerprint": source.fingerprint,
        "source": source.path,
        "kind": source.kind,
        "revision": source.revision,
        "files": [path.name for path in source.files[:100]],
        "model": planned.source_model,
        # Records do not include how they were sampled, but for seeds of the paper's protocol.
        "sampling_known": planned.by_seed,
        "attempts": run.attempts.is_dir(),
        "question_hashes": f"{'problem' if problems else 'number'} and gold answer",
        "left_out": left_out,
    }
    identity = {
        **runfolder.identity(run.cfg),
        "model.weights": f"imported: {planned.source_model}",
        "questions": {row["question_id"]: row["question_hash"] for row in rows},
    }
    manifest = {origin.FORMAT: origin.NUMBER, "created_with": _environment()}
    runfolder.write_json(run.manifest, manifest | {"identity": identity, "imported": imported})


def _config(planned: PlannedRun, source: ImportConfig, folder: Path) -> RunConfig:
    cfg = names.run_config(planned.dataset, planned.model, planned.source_model)
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
    """Return problem, gold answer and hash; without a problem, the hash of id and gold answer."""
    gold, own = question.gold or "", question.own
    if own is None and question.problem:
        own = OwnQuestion(question.id, question.problem, gold)
    if own is not None:
        return {"problem": own.problem, "gold": own.gold, "question_hash": own.hash}
    hashed = runfolder.short_hash(json.dumps([dataset, question.id, gold], ensure_ascii=False))
    prompt = next(iter(question.prompts.values()), "")  # any prompt contains the problem
    return {"problem": prompt, "gold": gold, "question_hash": hashed}


def _save_labels(
    run: Run, labelled: pa.Table, labels: list[str], weights: list[float], name: str
) -> None:
    """Save the categories as a rubric of the run."""
    record = {
        "name": name,
        "description": "labels that were imported",
        "order": [],
        "categories": [
            {"index": i, "name": label, "when": "imported", "weight": weight}
            for i, (label, weight) in enumerate(zip(labels, weights, strict=True))
        ],
        "imported": True,  # not computed from conditions and signals
        "thresholds": {},
        "labels": [],
    }
    categories.save(run, names.safe_name(name), labelled, record)
