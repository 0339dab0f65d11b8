"""Row by row into tables: what CSV, JSON Lines, NPZ and sample logs have in common."""

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa

from pipeline.console import Meter
from pipeline.imports import staging as stage
from pipeline.imports.plan import NO_SEED, Plan
from pipeline.imports.rows import Row
from pipeline.imports.staging import Staging
from pipeline.imports.troubles import Troubles, shown
from pipeline.tables import ATTEMPTS, GRADES

Rows = Callable[[Troubles], Iterator[Row]]
_NOTED = 50_000  # rows whose keys are noted together
_WRITTEN = 2000  # rows that become a table together
_BYTES = 16 << 20  # or fewer, when their texts are long


def read_keys(rows: Rows, plan: Plan, troubles: Troubles) -> None:
    """First pass: note run, question, trial or seed, and answer of every row; settle the plan."""
    kept: list[tuple[int, int, int, int]] = []
    trials: list[int] = []
    for row in rows(troubles):
        run = plan.run_of(row.task, row.model)
        if run < 0:
            kept.append((-1, -1, -1, -1))
            trials.append(0)
            continue
        question = plan.question_of(plan.runs[run].dataset, row.question)
        _learn(plan, run, question, row, troubles)
        seed = NO_SEED if row.seed is None else row.seed
        kept.append((run, question, seed, hash((row.outcome, row.category, row.answer)) >> 1))
        trials.append(-1 if row.trial is None else row.trial)
    given = bool(trials) and min(trials) >= 0
    for start in range(0, len(kept), _NOTED):
        run_, question_, seed_, answer_ = zip(*kept[start : start + _NOTED], strict=True)
        plan.add(run_, question_, trials[start : start + _NOTED] if given else seed_, answer_)
    plan.settle(troubles, trials_given=given)


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


def _learn(plan: Plan, run: int, question: int, row: Row, troubles: Troubles) -> None:
    known = plan.questions[plan.runs[run].dataset][question]
    known.problem = known.problem or row.problem
    if row.prompt and run not in known.prompts:
        known.prompts[run] = row.prompt
    if row.gold is not None and known.gold is None:
        known.gold = row.gold
    elif row.gold is not None and known.gold != row.gold:
        place = f"{known.id}: {shown(row.gold)[:40]}"
        troubles.add("other gold answers, the first counts", place)


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
    for name, found, schema in (("grades", grades, GRADES), ("attempts", attempts, ATTEMPTS)):
        stage.add(staging, folder, name, pa.Table.from_pylist(found, schema=schema))
