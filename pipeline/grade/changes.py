"""What changed when a run was graded anew: outcomes before and after, attempt by attempt.

Old grades wait in `_grades-before/` until the new ones are complete and compared, so an
interrupted regrade loses neither.
"""

import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.store import parquet, rowkeys
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run

_SHOWN = 40  # characters of an answer in the table


def before(run: Run) -> Path:
    """Where the grades of before are."""
    return run.path / rowkeys.REGRADED


def report(run: Run) -> Sequence[Mapping[str, Any]]:
    """After a regrade: print and write what changed, and drop the grades of before.

    Returns the rows that are printed: how often which outcome became which, with an example.
    """
    if not before(run).exists():
        return []
    damage = parquet.Damage()
    old, keys = rowkeys.keyed(run, rowkeys.REGRADED, ["answer", "outcome"], damage)
    if damage.lines:
        warn(f"grades of before: {damage}; those attempts are not compared")
    changes = _changes(run, old, keys)
    path = run.grades / "_changes.jsonl"
    atomic.write_jsonl(path, changes)
    shutil.rmtree(before(run))
    if not changes:
        note(f"grade: no outcome changed in {len(old)} attempts graded before")
        return []
    table = _table(changes, len(old))
    show(table)
    note(f"grade: every change is in {path}")
    return table.rows


def _changes(run: Run, old: pa.Table, old_keys: Ints) -> list[dict[str, Any]]:
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    names = ["answer", "outcome", "layer", "reason"]
    new, keys = rowkeys.keyed(run, "grades", names, parquet.Damage())
    rows = rowkeys.rows_of(keys, old_keys)
    old = old.take(pa.array(rows, mask=rows < 0))  # null where there was no grade
    changes = pa.table(
        {name: new[name] for name in new.column_names if name != "outcome"}
        | {"from": old["outcome"], "to": new["outcome"], "answer_before": old["answer"]}
    )
    changes = changes.filter(pc.not_equal(old["outcome"], new["outcome"]))
    return [row | {"gold": golds[row["question_id"]]} for row in changes.to_pylist()]


def _table(changes: list[dict[str, Any]], compared: int) -> Table:
    counts = Counter((change["from"], change["to"]) for change in changes)
    examples = {(change["from"], change["to"]): change for change in reversed(changes)}
    rows = []
    for kind, count in counts.most_common():
        example = examples[kind]
        answer = example["answer"] if example["answer"] is not None else example["answer_before"]
        row = {name: _cut(example[name]) for name in ("question_id", "gold", "reason")}
        rows.append(row | {"kind": " → ".join(kind), "count": count, "answer": _cut(answer)})
    heads = [*columns(align="left", kind="from → to"), *columns(count="count")]
    heads += columns(align="left", question_id="for example", gold="gold", answer="answer")
    heads += columns(align="left", reason="why")
    return Table(f"{len(changes)} of {compared} outcomes changed", heads, rows)


def _cut(text: str | None) -> str:
    line = " ".join((text or "").split())
    return line if len(line) <= _SHOWN else f"{line[: _SHOWN - 1]}…"
