"""What changed when a run was graded anew: outcomes before and after, attempt by attempt."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.display.table import Table, columns, show
from bayes_at_n.pipeline.store import rowkeys
from bayes_at_n.pipeline.store.graded import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Inputs, Part

_SHOWN = 40  # characters of an answer in the table


class Changes:
    """Outcomes that differ from those of before, part by part before these are replaced."""

    def __init__(self, run: Run) -> None:
        self.run, self.compared = run, 0
        self.rows = list[dict[str, Any]]()

    def add(self, part: Part, new: pa.Table, wanted: Inputs) -> None:
        """Compare new grades of a part with those there, if other settings made them."""
        if not (why := GRADES_TABLE.differing(self.run, part, wanted)):
            return
        if not self.compared:
            note(f"grade: grades so far were made otherwise ({why})")
        names, ids = ["answer", "outcome"], rowkeys.question_ids(self.run)
        there = GRADES_TABLE.made(self.run, part, names)
        old = rowkeys.in_order(there, rowkeys.encode(there, ids), names, rowkeys.encode(new, ids))
        self.compared += there.num_rows
        changes = new.drop_columns("outcome").append_column("from", old["outcome"])
        changes = changes.append_column("to", new["outcome"])
        changes = changes.append_column("answer_before", old["answer"])
        kept = ["question_id", "trial", "answer", "layer", "reason", "from", "to", "answer_before"]
        changed = changes.select(kept).filter(pc.not_equal(old["outcome"], new["outcome"]))
        golds = {row["question_id"]: row["gold"] for row in self.run.questions}
        self.rows += [row | {"gold": golds[row["question_id"]]} for row in changed.to_pylist()]

    def report(self) -> Sequence[Mapping[str, Any]]:
        """Print and write what changed, if something was compared.

        Returns the rows that are printed: how often which outcome became which, with an example.
        """
        if not self.compared:
            return []
        path = self.run.grades / "_changes.jsonl"
        atomic.write_jsonl(path, self.rows)
        if not self.rows:
            note(f"grade: no outcome changed in {self.compared} attempts graded before")
            return []
        table = _table(self.rows, self.compared)
        show(table)
        note(f"grade: every change is in {path}")
        return table.rows


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
