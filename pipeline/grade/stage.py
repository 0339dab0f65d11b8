"""grade: every attempt's answer is compared with the gold answer."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, mention, note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import Table, answer, columns, show
from bayes_at_n.pipeline.grade import attempts, review
from bayes_at_n.pipeline.store import graded, parquet, rowkeys, runfolder, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, FILTERED, GRADES, KEY, cut_off
from bayes_at_n.pipeline.store.graded import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Part
from bayes_at_n.pipeline.workers import home
from bayes_at_n.verifiers import Grade

_READ = [*KEY, "text", "finish_reason"]
_SHOWN = 40  # characters of an answer in a table
_UNBOXED = 0.9  # share of the attempts that ended, from which on a warning says so


def grade(run: Run, ask_math_verify: bool = False) -> None:
    """Grade the parts of attempts whose grades are lacking, or were made with other settings.

    Equal answers to one question are compared once, in all runs of a data set. What a new grade
    changes is shown. At the end `review.jsonl` lists what a person should look at, with
    `ask_math_verify` also disagreements with plain math_verify. Raises UserError: when nothing was
    generated, or the folder was made with other settings. DamagedData: when stored attempts cannot
    be read; they are set aside and owed again.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    damage, wanted = parquet.Damage(), graded.inputs(run)
    if not tables.parts(run.attempts, damage) and not damage.lines:
        remedy = f"`{PROGRAM} generate` samples them, and a matrix of outcomes has none"
        raise UserError(f"{run.path}: no attempts to grade; {remedy}")
    runfolder.save(run, *graded.SETTINGS)
    with home.staying(run.path, "attempts were graded") as check:
        grader = _Grader(run, wanted, damage, check)
        if owed := GRADES_TABLE.owed(run, wanted):
            review.path(run).unlink(missing_ok=True)  # it would list grades of before
            with Meter("grade, parts", len(owed)) as meter:
                for part, why in owed.items():
                    grader.grade(part, why)
                    meter.advance(1)
        GRADES_TABLE.sweep(run)
    changed = grader.report() if owed else []
    box = GRADES_TABLE.read(run, ["box"], wanted).table["box"]
    if not owed:
        mention(f"grade: nothing owed, all {len(box)} attempts are graded")
    runfolder.set_aside_attempts(run, damage)
    if ask_math_verify or not review.path(run).exists():
        review.write(run, ask_math_verify)
        lost, cut = (pc.sum(pc.equal(box, why)).as_py() or 0 for why in ("no_box", "truncated"))
        if lost and lost >= _UNBOXED * (len(box) - cut) and not attempts.whole(run.cfg):
            warn(
                f"{run.path}: {lost} of {len(box)} attempts have no box; another dataset.answer"
                " (number, choice, exact, regex) or dataset.boxes=or_math may read them"
            )
    answer({"run": run.path, "attempts": len(box), "changes": changed, "review": review.path(run)})


class _Grader:
    """Grades parts of a run, one after the other."""

    def __init__(
        self, run: Run, wanted: tables.Inputs, damage: parquet.Damage, check: home.Check
    ) -> None:
        self.run, self.wanted, self.damage, self.check = run, wanted, damage, check
        self.ids = rowkeys.question_ids(run)
        self.layers, self.filtered, self.compared = Counter[str](), 0, 0
        self.changes, self.failed = list[dict[str, Any]](), list[str]()

    def grade(self, part: Part, why: str) -> None:
        """Write the grades of a part; `why`: the inputs that were others when it was graded before.

        Where some rows of a sealed part cannot be read, none are written.
        """
        try:
            read = [*parquet.read(part.path, ATTEMPTS, _READ, self.damage)]
        except OSError as error:
            if error.errno not in atomic.GONE:
                raise
            self.check()  # else the journal was sealed since the listing
            for now in tables.parts(self.run.attempts):
                if now.stem == part.stem:
                    self.grade(now, why)
            return
        if part.path.suffix == ".parquet" and part.path in self.damage.lines:
            return
        table = self._graded(pa.Table.from_batches(read, pa.schema(map(ATTEMPTS.field, _READ))))
        if why:
            if not self.compared:
                note(f"grade: grades so far were made otherwise ({why})")
            before, _ = GRADES_TABLE.made(self.run.path, part.stem, ["answer", "outcome"])
            self._compare(before, table)
        self.check()
        GRADES_TABLE.write(self.run.path, part.stem, table, self.wanted, part.mark)

    def report(self) -> list[Any]:
        """Print what was done, and show what it changed; returns the rows of that table."""
        total = self.layers.total()
        if self.filtered:
            share = f"{self.filtered} of {total} attempts ({self.filtered / total:.1%})"
            note(f"grade: a content filter ended {share}: no answer, counted as wrong")
        if self.failed:
            n, first = len(self.failed), self.failed[0]
            warn(f"grade: the grader failed on {n} attempts, first on {first}")
        shares = [f"{name} {n / total:.1%}" for name, n in self.layers.most_common()]
        mention(f"grade: {total} attempts, decided by: {', '.join(shares)}")
        if not self.compared:
            return []
        path = self.run.grades / "_changes.jsonl"
        atomic.write_jsonl(path, self.changes)
        if not self.changes:
            note(f"grade: no outcome changed in {self.compared} attempts graded before")
            return []
        table = _changes(self.changes, self.compared)
        show(table)
        note(f"grade: every change is in {path}")
        return [*table.rows]

    def _graded(self, rows: pa.Table) -> pa.Table:
        """Return the grades of those attempts whose questions the run has."""
        keys = rowkeys.encode(rows, self.ids)
        rows, keys = rows.filter(pa.array(keys >= 0)), keys[keys >= 0]
        ends, questions = rows["finish_reason"], self.run.questions
        texts, cut = rows["text"].fill_null(""), cut_off(ends).fill_null(False)
        found = attempts.grade(
            self.run.cfg,
            [
                attempts.attempt(
                    self.run.cfg, questions[key >> 32], key & 0xFFFFFFFF, text.as_py(), of.as_py()
                )
                for key, text, of in zip(keys.tolist(), texts, cut, strict=True)
            ],
        )
        made = {name: rows[name] for name in KEY} | {
            "has_box": [one.reason == "boxed" for one, _ in found],
            "box": [one.reason for one, _ in found],
            "answer": [one.answer for one, _ in found],
            **{name: [getattr(of, name) for _, of in found] for name in Grade._fields},
        }
        self.failed += [
            f"{rows[KEY[0]][i]} trial {rows[KEY[1]][i]}: {of.reason}"
            for i, (_, of) in enumerate(found)
            if of.outcome == "error"
        ]
        self.layers.update(of.layer for _, of in found)
        self.filtered += pc.sum(pc.equal(ends, FILTERED)).as_py() or 0
        return pa.table(made, schema=GRADES)

    def _compare(self, there: pa.Table, new: pa.Table) -> None:
        """Note which outcomes of a part new grades change."""
        self.compared += there.num_rows
        old = there.rename_columns([*KEY, "answer_before", "from"])
        both = new.select([*KEY, "answer", "layer", "reason", "outcome"]).join(
            old, [*KEY], join_type="inner"
        )
        both = both.rename_columns(["to" if n == "outcome" else n for n in both.column_names])
        changed = both.filter(pc.not_equal(both["from"], both["to"]))
        golds = {row["question_id"]: row["gold"] for row in self.run.questions}
        self.changes += [
            row | {"gold": golds[row["question_id"]]}
            for row in changed.sort_by([(name, "ascending") for name in KEY]).to_pylist()
        ]


def _changes(changes: Sequence[dict[str, Any]], compared: int) -> Table:
    """Make a table of how often which outcome became which, with an example."""
    counts = Counter((change["from"], change["to"]) for change in changes)
    examples = {(change["from"], change["to"]): change for change in reversed(changes)}
    rows = []
    for kind, count in counts.most_common():
        example = examples[kind] | {"answer": examples[kind]["answer"] or ""}
        names = ("question_id", "gold", "answer", "reason")
        row = {name: " ".join(example[name].split())[:_SHOWN] for name in names}
        rows.append(row | {"kind": " → ".join(kind), "count": count})
    heads = [*columns(align="left", kind="from → to"), *columns(count="count")]
    heads += columns(align="left", question_id="for example", gold="gold", answer="answer")
    heads += columns(align="left", reason="why")
    return Table(f"{len(changes)} of {compared} outcomes changed", heads, rows)
