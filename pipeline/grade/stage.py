"""grade: every attempt's boxed answer is compared with the gold answer."""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from pipeline.base.console import Meter, note
from pipeline.base.errors import UserError
from pipeline.grade import changes, review
from pipeline.grade.known import Attempt, KnownGrades, default_folder, extraction, identity
from pipeline.store import lease, records, runfolder, shards, workernames
from pipeline.store.columns import ATTEMPTS, GRADES, KEY
from pipeline.store.runfolder import Run

Key = tuple[str, int]
Rows = list[dict[str, Any]]

_BATCH = 4096  # attempts graded and written together


def grade(run: Run, ask_math_verify: bool = False) -> None:
    """Grade every attempt that has no grade yet, into the grades table.

    Equal answers to one question are compared once, in all runs of a data set. Work is kept batch
    by batch. Grades made with other settings are made anew, and what changed is shown. At the end
    `review.jsonl` lists what a person should look at.

    Args:
        run: the run folder.
        ask_math_verify: list disagreements with plain math_verify, too.

    Raises:
        UserError: when nothing was generated, or the folder was made with other settings.
        DamagedData: when stored attempts cannot be read; they are set aside and owed again.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    golds = {row["question_id"]: row["gold"] for row in run.questions}
    if run.grades.exists() and not run.attempts.exists():
        raise UserError(f"{run.path}: holds outcomes and no attempts; there is nothing to grade")
    with lease.held(run.path / "grade.lease", "grading", wait=True):
        if run.grades.exists() or run.attempts.exists():
            settings = identity(run.cfg) | extraction(run.cfg)
            records.begin(run.grades / "_grader.json", settings, lambda _: changes.before(run))
        damage = shards.Damage()
        graded = shards.keys(run.grades, GRADES, damage)
        shards.set_aside(damage, GRADES)
        damage = shards.Damage()
        attempts = shards.keys(run.attempts, ATTEMPTS, damage)
        if not attempts:
            raise UserError(f"{run.path}: no attempts to grade; run `python -m pipeline generate`")
        if attempts - graded or damage.lines:
            review.path(run).unlink(missing_ok=True)  # it would list grades of before
            _grade_owed(run, golds, graded, attempts, damage)
        else:
            note(f"grade: nothing owed, all {len(attempts)} attempts are graded")
        runfolder.set_aside_attempts(run, damage)
        changes.report(run)
        if ask_math_verify or not review.path(run).exists():
            review.write(run, ask_math_verify)


def _grade_owed(
    run: Run, golds: dict[str, str], graded: set[Key], attempts: set[Key], damage: shards.Damage
) -> None:
    known, worker = KnownGrades(run.cfg, default_folder(run.cfg)), workernames.worker_id()
    with Meter("grade", len(attempts), done=len(attempts & graded)) as meter:
        for number, batch in enumerate(_ungraded(run, graded, damage)):
            table = _grade_batch(batch, golds, known)
            shards.write_part(run.grades / f"{worker}-{number:05d}.parquet", table)
            meter.advance(len(batch), lambda: f"{len(known.used)} distinct answers")
    note(f"grade: {known.summary()}")


def _ungraded(run: Run, graded: set[Key], damage: shards.Damage) -> Iterator[Rows]:
    """Attempts without a grade, in lists of about `_BATCH`."""
    waiting: Rows = []
    columns = [*KEY, "text", "finish_reason"]
    for batch in shards.batches(run.attempts, ATTEMPTS, columns, damage):
        rows = batch.to_pylist()
        waiting += [row for row in rows if (row["question_id"], row["trial"]) not in graded]
        if len(waiting) >= _BATCH:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _grade_batch(rows: Rows, golds: dict[str, str], known: KnownGrades) -> pa.Table:
    rows = [row for row in rows if row["question_id"] in golds]
    attempts = [
        Attempt(golds[row["question_id"]], row["text"] or "", row["finish_reason"] == "length")
        for row in rows
    ]
    grades = [
        {
            "question_id": row["question_id"],
            "trial": row["trial"],
            "has_box": extraction.reason == "boxed",
            "box": extraction.reason,
            "answer": extraction.answer,
            **grade._asdict(),
        }
        for row, (extraction, grade) in zip(rows, known.attempts(attempts), strict=True)
    ]
    return pa.Table.from_pylist(grades, schema=GRADES)
