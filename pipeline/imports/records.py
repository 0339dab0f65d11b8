"""Both passes over CSV, JSON Lines, NPZ and sample logs: row by row into the plan, then tables."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from pipeline.base.console import Meter
from pipeline.imports import staging as stage
from pipeline.imports.plan import NO_SEED, Plan
from pipeline.imports.rows import Row
from pipeline.imports.staging import Staging
from pipeline.imports.troubles import Troubles
from pipeline.store.columns import ATTEMPTS, GRADES

Rows = Callable[[Troubles], Iterator[Row]]
_NOTED = 50_000  # rows whose keys are noted together
_WRITTEN = 2000  # rows that become a table together
_BYTES = 16 << 20  # or fewer, when their texts are long


def read_keys(rows: Rows, plan: Plan, troubles: Troubles, counted: bool) -> None:
    """First pass: note run, question, trial or seed, and answer of every row; settle the plan.

    Args:
        rows: called once, gives all rows.
        plan: what is learned goes there.
        troubles: what is damaged or repeated goes there.
        counted: trials are numbers of the source's own, which may begin at 1.
    """
    kept: list[tuple[int, int, int, int, int]] = []
    for row in rows(troubles):
        run = plan.run_of(row.task, row.model)
        question = plan.question_of(plan.runs[run].dataset, row.question)
        known = plan.learn(run, question, row.gold, row.prompt, troubles)
        known.problem = known.problem or row.problem
        seed = NO_SEED if row.seed is None else row.seed
        trial = -1 if row.trial is None else row.trial
        answer = hash((row.outcome, row.category, row.answer)) >> 1
        kept.append((run, question, seed, answer, trial))
        if len(kept) == _NOTED:
            plan.add(*zip(*kept, strict=True))
            kept = []
    if kept:
        plan.add(*zip(*kept, strict=True))
    plan.settle(troubles, counted)


def read_rows(rows: Rows, plan: Plan, staging: Staging) -> dict[str, dict[str, list[Any]]]:
    """Second pass: grades, attempts where there are texts, and categories.

    Returns:
        Per DATASET/MODEL the columns question_id, trial and category of rows that have one.
    """
    waiting: dict[str, list[tuple[dict[str, Any], Row]]] = {}
    sizes: dict[str, int] = {}
    labels: dict[str, dict[str, list[Any]]] = {}
    with Meter("import", int(plan.run.size)) as meter:
        for i, row in enumerate(rows(Troubles())):
            meter.advance(1)
            run = int(plan.run[i])
            if run < 0:
                continue
            one = plan.runs[run]
            folder = f"{one.dataset}/{one.model}"
            key = {
                "question_id": plan.questions[one.dataset][int(plan.question[i])].id,
                "trial": int(plan.trial[i]),
            }
            if row.category is not None:
                found = labels.setdefault(folder, {"question_id": [], "trial": [], "category": []})
                for name, value in {**key, "category": row.category}.items():
                    found[name].append(value)
            waiting.setdefault(folder, []).append((key, row))
            sizes[folder] = sizes.get(folder, 0) + len(row.text or "")
            if len(waiting[folder]) >= _WRITTEN or sizes[folder] >= _BYTES:
                _keep(staging, folder, waiting.pop(folder))
                sizes[folder] = 0
        for folder, rest in waiting.items():
            _keep(staging, folder, rest)
    return labels


def _keep(staging: Staging, folder: str, rows: list[tuple[dict[str, Any], Row]]) -> None:
    grades = [
        {**key, "answer": row.answer, "outcome": row.outcome}
        | {"layer": "imported", "reason": row.metric}
        for key, row in rows
        if row.outcome is not None
    ]
    attempts = [
        {**key, "seed": row.seed, "text": row.text, "finish_reason": row.finish_reason}
        for key, row in rows
        if row.text is not None
    ]
    for name, found, columns in (("grades", grades, GRADES), ("attempts", attempts, ATTEMPTS)):
        stage.add(staging, folder, name, pa.Table.from_pylist(found, schema=columns))
