"""grade: every attempt's answer is compared with the gold answer."""

from itertools import islice

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import Meter, mention, note, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.grade import changes, review, unboxed
from bayes_at_n.pipeline.grade.known import KnownGrades, attempt, extraction, identity
from bayes_at_n.pipeline.store import parquet, records, rowkeys, runfolder, shards, workernames
from bayes_at_n.pipeline.store.columns import CONTINUED, DIGEST, FILTERED, GRADES, KEY, cut_off
from bayes_at_n.pipeline.store.rowkeys import Ints
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import home

_BATCH = 4096  # attempts graded and written together
_OF = (CONTINUED.name, DIGEST.name)  # what an attempt held when it was graded


def grade(run: Run, ask_math_verify: bool = False) -> None:
    """Grade every attempt that has no grade yet, into the grades table.

    Equal answers to one question are compared once, in all runs of a data set. Work is kept batch
    by batch. Grades made with other settings are made anew, and what changed is shown. At the end
    `review.jsonl` lists what a person should look at.

    `ask_math_verify`: list disagreements with plain math_verify, too. Raises UserError: when
    nothing was generated, or the folder was made with other settings. DamagedData: when stored
    attempts cannot be read; they are set aside and owed again.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    if run.questions and run.grades.exists() and not run.attempts.exists():
        raise UserError(f"{run.path}: holds outcomes and no attempts; there is nothing to grade")
    with (
        lease.held(run.path / "grade.lease", "grading", wait=True),
        home.staying(run.path, "attempts were graded") as check,
    ):
        damage = parquet.Damage()
        names = ["finish_reason", *_OF]
        attempts, keys = rowkeys.keyed(run, "attempts", names, damage)
        if not keys.size:
            raise UserError(f"{run.path}: no attempts to grade; run `{PROGRAM} generate`")
        settings = identity(run.cfg) | extraction(run.cfg)
        if strict := [q["question_id"] for q in run.questions if q["form"] == "strict"]:
            settings["strict"] = strict
        records.begin(run.grades / "_grader.json", settings, lambda _: changes.before(run))
        unreadable = parquet.Damage()
        _, graded = rowkeys.keyed(run, "grades", GRADES.names[len(KEY) :], unreadable)
        shards.set_aside(unreadable, GRADES)
        if outdated := unreadable.outdated:
            note(f"grade: {outdated} attempts have changed or are gone since they were graded")
        if filtered := pc.sum(pc.equal(attempts["finish_reason"], FILTERED)).as_py():
            share = f"{filtered} of {keys.size} attempts ({filtered / keys.size:.1%})"
            note(f"grade: a content filter ended {share}: no answer, counted as wrong")
        owed = ~np.isin(keys, graded)
        if owed.any() or damage.lines:
            review.path(run).unlink(missing_ok=True)  # it would list grades of before
            with Meter("grade", keys.size, done=int(np.count_nonzero(~owed))) as meter:
                _grade_owed(run, keys[owed], attempts.filter(pa.array(owed)), damage, meter, check)
        else:
            mention(f"grade: nothing owed, all {keys.size} attempts are graded")
        runfolder.set_aside_attempts(run, damage)
        changed = changes.report(run)
        if ask_math_verify or not review.path(run).exists():
            review.write(run, ask_math_verify)
            unboxed.hint(run)
    answer({"run": run.path, "attempts": keys.size, "changes": changed, "review": review.path(run)})


def _grade_owed(
    run: Run,
    keys: Ints,
    attempts: pa.Table,
    damage: parquet.Damage,
    meter: Meter,
    check: home.Check,
) -> None:
    truncated = cut_off(attempts["finish_reason"]).fill_null(False).to_numpy()
    known, worker = KnownGrades(run.cfg), workernames.worker_id()
    responses, failed = rowkeys.responses(run, keys, damage), list[str]()
    for number, batch in enumerate(iter(lambda: list(islice(responses, _BATCH)), [])):
        questions = [run.questions[keys[i] >> 32] for i, _ in batch]
        texts = [
            attempt(run.cfg, question, int(keys[i] & 0xFFFFFFFF), text, bool(truncated[i]))
            for question, (i, text) in zip(questions, batch, strict=True)
        ]
        rows = [
            {
                "question_id": question["question_id"],
                "trial": int(keys[i] & 0xFFFFFFFF),
                "has_box": extraction.reason == "boxed",
                "box": extraction.reason,
                "answer": extraction.answer,
                **grade._asdict(),
                **{name: attempts[name][i].as_py() for name in _OF},
            }
            for question, (i, _), (extraction, grade) in zip(
                questions, batch, known.attempts(texts), strict=True
            )
        ]
        failed += [
            f"{row['question_id']} trial {row['trial']}: {row['reason']}"
            for row in rows
            if row["outcome"] == "error"
        ]
        part = run.grades / f"{worker}-{number:05d}.parquet"
        check()
        parquet.write_part(part, pa.Table.from_pylist(rows, schema=GRADES))
        meter.advance(len(batch), lambda: f"{len(known.used)} distinct answers")
    if failed:
        warn(f"grade: the grader failed on {len(failed)} attempts, first on {failed[0]}")
    mention(f"grade: {known.summary()}")
