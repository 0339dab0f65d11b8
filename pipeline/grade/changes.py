"""What changed when a run was graded anew: outcomes before and after, attempt by attempt.

Old grades wait in `_grades-before/` until the new ones are complete and compared, so an
interrupted regrade loses neither.
"""

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

from pipeline.base import atomic
from pipeline.base.console import note, warn
from pipeline.display.table import Column, Table, show
from pipeline.store import runfolder, shards
from pipeline.store.columns import GRADES, KEY
from pipeline.store.runfolder import Run

Key = tuple[str, int]
_SHOWN = 40  # characters of an answer in the table


def _before(run: Run) -> Path:
    return run.path / "_grades-before"


def put_aside(run: Run, identity: dict[str, Any]) -> None:
    """Make room for grades with these settings: others are put aside, never mixed, never lost."""
    path, before = run.grades / "_grader.json", _before(run)
    if runfolder.read_json(path) == identity:
        return
    if before.exists():  # an interrupted regrade: what it made is of no use now
        runfolder.forget_grades(run)
    elif any(run.grades.glob("*.parquet")):
        run.grades.rename(before)
    if before.exists():
        made_by = runfolder.read_json(before / path.name)
        if made_by == identity:
            shutil.rmtree(run.grades, ignore_errors=True)
            before.rename(run.grades)
            return
        changed = {k for k in {*made_by, *identity} if made_by.get(k) != identity.get(k)}
        what = ", ".join(sorted(changed)) if made_by else "settings unknown"
        note(f"grade: graded with other settings before ({what}), grading everything anew")
    run.grades.mkdir(exist_ok=True)
    runfolder.write_json(path, identity)


def report(run: Run) -> None:
    """After a regrade: print and write what changed, and drop the grades of before."""
    before = _before(run)
    if not before.exists():
        return
    damage = shards.Damage()
    old: dict[Key, tuple[str | None, str]] = {
        (row["question_id"], row["trial"]): (row["answer"], row["outcome"])
        for batch in shards.batches(before, GRADES, [*KEY, "answer", "outcome"], damage)
        for row in batch.to_pylist()
    }
    if damage.lines:
        warn(f"grades of before: {damage}; those attempts are not compared")
    changes = _changes(run, old)
    path = run.grades / "_changes.jsonl"
    atomic.write_jsonl(path, changes)
    shutil.rmtree(before)
    if not changes:
        note(f"grade: no outcome changed in {len(old)} attempts graded before")
        return
    show(_table(changes, len(old)))
    note(f"grade: every change is in {path}")


def _changes(run: Run, old: dict[Key, tuple[str | None, str]]) -> list[dict[str, Any]]:
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    columns = [*KEY, "answer", "outcome", "layer", "reason"]
    changes = []
    for batch in shards.batches(run.grades, GRADES, columns, shards.Damage()):
        for row in batch.to_pylist():
            answer, outcome = old.get((row["question_id"], row["trial"]), (None, row["outcome"]))
            if outcome == row["outcome"]:
                continue
            before_and_after = {"from": outcome, "to": row.pop("outcome"), "answer_before": answer}
            changes.append({**row, **before_and_after, "gold": golds.get(row["question_id"])})
    return changes


def _table(changes: list[dict[str, Any]], compared: int) -> Table:
    counts = Counter((change["from"], change["to"]) for change in changes)
    examples = {(change["from"], change["to"]): change for change in reversed(changes)}
    rows = []
    for kind, count in counts.most_common():
        example = examples[kind]
        answer = example["answer"] if example["answer"] is not None else example["answer_before"]
        row = {name: _cut(example[name]) for name in ("question_id", "gold", "reason")}
        rows.append(row | {"kind": " → ".join(kind), "count": count, "answer": _cut(answer)})
    columns = [
        Column("kind", "from → to", align="left"),
        Column("count", "count"),
        Column("question_id", "for example", align="left"),
        Column("gold", "gold", align="left"),
        Column("answer", "answer", align="left"),
        Column("reason", "why", align="left"),
    ]
    return Table(f"{len(changes)} of {compared} outcomes changed", columns, rows)


def _cut(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
