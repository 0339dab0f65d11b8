"""What changed when a run was graded anew: outcomes before and after, attempt by attempt."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.graded import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Part

_SHOWN = 40  # characters of an answer in the table
_KEPT = ["question_id", "trial", "answer", "layer", "reason", "from", "to", "answer_before"]


def compared(run: Run, part: Part, new: pa.Table) -> tuple[list[dict[str, Any]], int]:
    """What new grades of a part change in those there, a row a change, and how many were there."""
    names, ids = ["answer", "outcome"], rowkeys.question_ids(run)
    there = GRADES_TABLE.made(run, part, names)
    old = rowkeys.in_order(there, rowkeys.encode(there, ids), names, rowkeys.encode(new, ids))
    changes = new.rename_columns({"outcome": "to"}).append_column("from", old["outcome"])
    changes = changes.append_column("answer_before", old["answer"]).select(_KEPT)
    changed = changes.filter(pc.not_equal(changes["from"], changes["to"])).to_pylist()
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    return [row | {"gold": golds[row["question_id"]]} for row in changed], there.num_rows


def table(changes: Sequence[dict[str, Any]], compared: int) -> Table:
    """How often which outcome became which, with an example."""
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
