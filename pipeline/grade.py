"""grade: every attempt's boxed answer is compared with the gold answer."""

import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

import verifiers
from pipeline import runfolder, shards
from pipeline.console import Meter, note, warn
from pipeline.errors import DamagedData, UserError
from pipeline.runfolder import Run
from pipeline.tables import ATTEMPTS, GRADES, KEY

_BATCH = 4096  # attempts graded and written together


def grade(run: Run) -> None:
    """Grade every attempt that has no grade yet, into the grades table.

    Equal answers to one question are compared once. Work is kept batch by batch.

    Raises:
        UserError: when nothing was generated, or the folder was made with other settings.
        DamagedData: when stored attempts cannot be read; they are set aside and owed again.
    """
    runfolder.check_same(run, runfolder.settings(run.cfg))
    rows = {row["question_id"]: row for row in run.questions}
    _forget_other_grades(run)
    damage = shards.Damage()
    graded = shards.keys(run.grades, GRADES, damage)
    shards.set_aside(damage, GRADES)
    damage = shards.Damage()
    made = shards.keys(run.attempts, ATTEMPTS, damage)
    owed = len(made - graded)
    if not made:
        raise UserError(f"{run.path}: no attempts to grade yet; run `python -m pipeline generate`")
    if not owed and not damage.lines:
        note(f"grade: nothing owed, all {len(made)} attempts are graded")
        return
    worker, known = shards.worker_id(), dict[tuple[str, str], verifiers.Outcome]()
    try:
        with Meter("grade", len(made), done=len(made) - owed) as meter:
            for number, batch in enumerate(_ungraded(run, graded, damage)):
                table = _grade_batch(run, batch, rows, known)
                shards.write_part(run.grades / f"{worker}-{number:05d}.parquet", table)
                meter.advance(len(batch), lambda: f"{len(known)} distinct answers")
    except OSError as error:
        raise UserError(
            f"{run.grades}: {error.strerror or error}; mend the disk, then the same command"
            " continues"
        ) from error
    _handle(run, damage)


def _forget_other_grades(run: Run) -> None:
    """Grades made with other settings are made anew, never mixed; grading is cheap."""
    settings = {"reasoning_end": run.cfg.model.reasoning_end, "grader": verifiers.VERSION}
    path = run.grades / "_grader.json"
    found = json.loads(path.read_text()) if path.exists() else None
    if found == settings:
        return
    if found is not None:
        note("grade: graded with other settings before, grading everything anew")
        runfolder.forget_grades(run)
    run.grades.mkdir(exist_ok=True)
    runfolder.write_json(path, settings)


def _ungraded(
    run: Run, graded: set[tuple[str, int]], damage: shards.Damage
) -> Iterator[list[dict[str, Any]]]:
    """Attempts without a grade, in lists of about `_BATCH`."""
    waiting: list[dict[str, Any]] = []
    columns = [*KEY, "text", "finish_reason"]
    for batch in shards.batches(run.attempts, ATTEMPTS, columns, damage):
        waiting += [
            row for row in batch.to_pylist() if (row["question_id"], row["trial"]) not in graded
        ]
        if len(waiting) >= _BATCH:
            yield waiting
            waiting = []
    if waiting:
        yield waiting


def _grade_batch(
    run: Run,
    attempts: list[dict[str, Any]],
    questions: dict[str, dict[str, Any]],
    known: dict[tuple[str, str], verifiers.Outcome],
) -> pa.Table:
    """Grades of some attempts; `known` remembers every pair that was ever compared."""
    cfg = run.cfg
    attempts = [row for row in attempts if row["question_id"] in questions]
    found = [
        verifiers.extract(
            row["text"] or "",
            truncated=row["finish_reason"] == "length",
            reasoning_end=cfg.model.reasoning_end,
        )
        for row in attempts
    ]
    pairs = [
        None if f.answer is None else (questions[row["question_id"]]["gold"], f.answer)
        for row, f in zip(attempts, found, strict=True)
    ]
    new = {pair for pair in pairs if pair is not None and pair not in known}
    known |= verifiers.grade(
        sorted(new),
        workers=cfg.grading.workers,
        timeout_s=cfg.grading.timeout_s,
        memory_mb=cfg.grading.memory_mb,
    )
    return pa.Table.from_pylist(
        [
            {
                "question_id": row["question_id"],
                "trial": row["trial"],
                "has_box": f.reason == "boxed",
                "box": f.reason,
                "answer": f.answer,
                "outcome": "no_answer" if pair is None else known[pair],
            }
            for row, f, pair in zip(attempts, found, pairs, strict=True)
        ],
        schema=GRADES,
    )


def _handle(run: Run, damage: shards.Damage) -> None:
    journals = {p: lines for p, lines in damage.lines.items() if p.suffix == ".journal"}
    if journals:
        warn(f"attempts still being written, or torn: {shards.Damage(journals)}")
    parts = shards.Damage({p: v for p, v in damage.lines.items() if p not in journals})
    if parts.lines:
        shards.set_aside(parts, ATTEMPTS)
        runfolder.forget_grades(run)
        raise DamagedData(
            f"attempts: {parts}; set aside, those rows are owed again: run `generate` (or `run`)"
        )
