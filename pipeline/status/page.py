"""status of one run: a line a question, a character a trial, who works on it, and what is left."""

from collections import Counter

import numpy as np
import numpy.typing as npt

from pipeline.base.console import note, results
from pipeline.cluster import jobs
from pipeline.status import board
from pipeline.status.standing import of
from pipeline.status.tally import Tally
from pipeline.store.outcomes import OUTCOMES, OWED
from pipeline.store.runfolder import Run
from pipeline.store.spent import in_words

MARKS = {
    "correct": "1",
    "wrong": "0",
    "no_answer": "-",
    "truncated": "~",
    "undecided": "?",
    "generated, not graded": "+",
    "owed": ".",
}
_MANY = 10_000  # attempts whose answers take a while to read


def status(run: Run) -> None:
    """Print where a run stands; reads only, and is safe while others write.

    Raises UserError: the run is not prepared, or worker processes for grading cannot be started.
    """
    tally = Tally(run, {})
    tally.look()
    standing = of(str(run.path), tally, jobs.of([run.path])[run.path])
    results.print(f"{run.path}: {run.cfg.model.name} on {run.cfg.dataset.name}", markup=False)
    _print_map([row["question_id"] for row in run.questions], _marks(tally))
    results.print(board.sentence(standing), markup=False)
    if standing.budget:
        results.print(in_words(standing.budget), markup=False)
    if standing.workers:
        results.print(board.workers_table(standing.workers, wide=False), soft_wrap=False)
    for job in standing.jobs:
        words = (job.kind, job.id, job.state, job.node, job.time, job.reason)
        results.print(f"Slurm: {' '.join(word for word in words if word)}", markup=False)
    if tally.unread > _MANY:
        note(f"reading the answers of {tally.unread} attempts that are not graded yet ...")
    tally.read_texts(lambda: False)  # last, for it may take a while
    tally.judge(lambda: False)
    if (running := tally.score()) is not None:
        results.print(f"score so far: {board.score(running)}", markup=False)


def _print_map(ids: list[str], marks: npt.NDArray[np.str_]) -> None:
    width = max(map(len, ids), default=0)
    for question_id, line in zip(ids, marks, strict=True):
        done = int((line != MARKS["owed"]).sum())
        right = int((line == MARKS["correct"]).sum())
        results.print(f"{question_id:<{width}} {''.join(line)} {right:>3}/{done}", markup=False)
    counts = Counter(marks.ravel().tolist())
    legend = "  ".join(f"{mark} {name} {counts[mark]}" for name, mark in MARKS.items())
    results.print(legend, markup=False)


def _marks(tally: Tally) -> npt.NDArray[np.str_]:
    """The M×N characters: what `grade` wrote, not what was graded for the running score."""
    marks = np.full(tally.outcomes.shape, MARKS["undecided"], dtype="U1")
    for outcome in ("correct", "wrong", "no_answer"):
        marks[tally.outcomes == OUTCOMES.index(outcome)] = MARKS[outcome]
    marks[~tally.graded | (tally.outcomes == OWED)] = MARKS["generated, not graded"]
    marks[tally.truncated] = MARKS["truncated"]
    marks[~tally.done] = MARKS["owed"]
    return marks
