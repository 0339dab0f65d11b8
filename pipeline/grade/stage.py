"""grade: every attempt's answer is compared with the gold answer."""

import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.base.console import Meter, mention, note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import answer, show
from bayes_at_n.pipeline.grade import changes, review, unboxed
from bayes_at_n.pipeline.grade.known import KnownGrades, attempt
from bayes_at_n.pipeline.store import graded, parquet, rowkeys, runfolder, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, FILTERED, GRADES, KEY, cut_off
from bayes_at_n.pipeline.store.graded import GRADES_TABLE
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Part
from bayes_at_n.pipeline.workers import home
from bayes_at_n.verifiers import Grade

_BATCH = 4096  # attempts graded together
_READ = [*KEY, "text", "finish_reason"]


def grade(run: Run, ask_math_verify: bool = False) -> None:
    """Grade the parts of attempts whose grades are lacking, or were made with other settings.

    Equal answers to one question are compared once, in all runs of a data set. What a new grade
    changes is shown. At the end `review.jsonl` lists what a person should look at, with
    `ask_math_verify` also disagreements with plain math_verify. Raises UserError: when nothing was
    generated, or the folder was made with other settings. DamagedData: when stored attempts cannot
    be read; they are set aside and owed again.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    if run.questions and run.grades.exists() and not run.attempts.exists():
        raise UserError(f"{run.path}: holds outcomes and no attempts; there is nothing to grade")
    damage, wanted = parquet.Damage(), graded.inputs(run)
    if not tables.parts(run.attempts, damage) and not damage.lines:
        raise UserError(f"{run.path}: no attempts to grade; run `{PROGRAM} generate`")
    runfolder.save(run, *graded.SETTINGS)
    changed: list[Any] = []
    with home.staying(run.path, "attempts were graded") as check:
        owed = GRADES_TABLE.owed(run, wanted, imported=True)
        if owed:
            review.path(run).unlink(missing_ok=True)  # it would list grades of before
            grader = _Grader(run, wanted, damage, check)
            grader.grade(owed)
            changed = grader.report()
        GRADES_TABLE.sweep(run)
    total = GRADES_TABLE.read(run, [], wanted).table.num_rows
    if not owed:
        mention(f"grade: nothing owed, all {total} attempts are graded")
    runfolder.set_aside_attempts(run, damage)
    if ask_math_verify or not review.path(run).exists():
        review.write(run, ask_math_verify)
        unboxed.hint(run)
    answer({"run": run.path, "attempts": total, "changes": changed, "review": review.path(run)})


class _Grader:
    """Grades parts of a run, one after the other."""

    def __init__(
        self, run: Run, wanted: tables.Inputs, damage: parquet.Damage, check: home.Check
    ) -> None:
        self.run, self.wanted, self.damage, self.check = run, wanted, damage, check
        self.known, self.ids = KnownGrades(run.cfg), rowkeys.question_ids(run)
        self.done = self.filtered = self.compared = 0
        self.changes, self.failed = list[dict[str, Any]](), list[str]()
        self.began = time.monotonic()

    def grade(self, owed: list[Part]) -> None:
        """Grade these parts, and what a journal among them has become meanwhile."""
        gone = set[str]()
        with Meter("grade", sum(map(tables.rows, owed))) as self.meter:
            for part in owed:
                try:
                    self._part(part)
                except OSError as error:
                    if error.errno not in atomic.GONE:
                        raise
                    gone.add(part.stem)  # sealed since the listing, or the folder was renamed
            if gone:
                self.check()
                for part in tables.parts(self.run.attempts):
                    if part.stem in gone:
                        self._part(part)

    def report(self) -> list[Any]:
        """Print what was done, and show what it changed; returns the rows of that table."""
        if self.filtered:
            share = f"{self.filtered} of {self.done} attempts ({self.filtered / self.done:.1%})"
            note(f"grade: a content filter ended {share}: no answer, counted as wrong")
        if self.failed:
            n, first = len(self.failed), self.failed[0]
            warn(f"grade: the grader failed on {n} attempts, first on {first}")
        mention(f"grade: {self.known.summary()}")
        if not self.compared:
            return []
        path = self.run.grades / "_changes.jsonl"
        atomic.write_jsonl(path, self.changes)
        if not self.changes:
            note(f"grade: no outcome changed in {self.compared} attempts graded before")
            return []
        table = changes.table(self.changes, self.compared)
        show(table)
        note(f"grade: every change is in {path}")
        return [*table.rows]

    def _part(self, part: Part) -> None:
        """Write the grades of a part, unless some of its rows cannot be read."""
        read = parquet.read(part.path, ATTEMPTS, _READ, self.damage)
        rows, waiting, size = [GRADES.empty_table()], list[pa.RecordBatch](), 0
        for batch in read:
            waiting.append(batch)
            size += batch.num_rows
            if size >= _BATCH:
                rows.append(self._rows(waiting))
                waiting, size = [], 0
        if waiting:
            rows.append(self._rows(waiting))
        if part.path.suffix == ".parquet" and part.path in self.damage.lines:
            return
        table = pa.concat_tables(rows)
        if why := GRADES_TABLE.differing(self.run, part, self.wanted):
            if not self.compared:
                note(f"grade: grades so far were made otherwise ({why})")
            changed, compared = changes.compared(self.run, part, table)
            self.changes += changed
            self.compared += compared
        self.check()
        GRADES_TABLE.write(self.run, part, self.wanted, table)

    def _rows(self, batches: list[pa.RecordBatch]) -> pa.Table:
        """The grades of some attempts."""
        rows = pa.Table.from_batches(batches)
        keys = rowkeys.encode(rows, self.ids)
        rows, keys = rows.filter(pa.array(keys >= 0)), keys[keys >= 0]
        ends = rows["finish_reason"]
        columns = (keys >> 32, keys & 0xFFFFFFFF, cut_off(ends).fill_null(False).to_numpy())
        texts = (text.as_py() or "" for text in rows["text"])
        attempts = [
            attempt(self.run.cfg, self.run.questions[question], trial, text, cut)
            for (question, trial, cut), text in zip(
                np.stack(columns, axis=1).tolist(), texts, strict=True
            )
        ]
        found = self.known.attempts(attempts)
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
        self.filtered += pc.sum(pc.equal(ends, FILTERED)).as_py() or 0
        self.done += keys.size
        rate = self.done / (time.monotonic() - self.began)
        self.meter.advance(
            keys.size, lambda: f"{rate:.0f}/s, {len(self.known.used)} distinct answers"
        )
        return pa.table(made, schema=GRADES)
