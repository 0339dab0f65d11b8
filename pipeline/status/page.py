"""status of one run: a question a line, a character a trial, who works on it, and what is left."""

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.base.console import results, warn
from bayes_at_n.pipeline.cluster import jobs
from bayes_at_n.pipeline.score.shown import apart
from bayes_at_n.pipeline.status import board
from bayes_at_n.pipeline.status.standing import of
from bayes_at_n.pipeline.status.tally import Tally, scores
from bayes_at_n.pipeline.store.outcomes import OUTCOMES
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.spent import in_words

MARKS = {
    "correct": "1",
    "wrong": "0",
    "no_answer": "-",
    "truncated": "~",
    "undecided": "?",
    "generated, not graded": "+",
    "owed": ".",
}
_MOST_LINES = 20  # of a question; of more trials only the counts are shown


def status(run: Run) -> None:
    """Print where a run stands; reads only, and is safe while others write.

    Raises UserError: the run is not prepared.
    """
    tally = Tally(run)
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
    if tally.stale:
        warn(tally.stale)
    if (running := scores([tally])[0]) is not None:
        results.print(f"score so far: {board.score(running, standing.total)}", markup=False)
        for line in apart({run.cfg.model.name: running.shrinkage}):
            results.print(line, markup=False)


def _print_map(ids: list[str], marks: npt.NDArray[np.str_]) -> None:
    longest = max(map(len, ids), default=0)
    room = results.width if results.is_terminal else None
    for question_id, line in zip(ids, marks, strict=True):
        for text in _lines(question_id, longest, line, room):
            results.print(text, markup=False)
    counts = Counter(marks.ravel().tolist())
    told = "  ".join(f"{m} {name} {counts[m]}" for name, m in MARKS.items() if counts[m])
    results.print(told, markup=False, soft_wrap=room is None)


def _lines(
    question_id: str, longest: int, marks: npt.NDArray[np.str_], room: int | None
) -> Iterator[str]:
    """A question in a line or, where a terminal is too narrow for that, in a block with counts.

    >>> marks = np.array(list("1101" * 4 + "0-.."))
    >>> print(*_lines("q1", 2, marks, None), *_lines("q1", 2, marks, 20), sep="\\n")
    q1 11011101110111010-..  12/18
    q1  12/18: 12 correct, 5 wrong, 1 no_answer, 2 owed
      1101110111
      0111010-..
    >>> [*_lines("q1", 2, np.repeat(marks, 999), 20)]
    ['q1 11988/17982: 11988 correct, 4995 wrong, 999 no_answer, 1998 owed']
    """
    counts = Counter(marks.tolist())
    share = f"{counts[MARKS['correct']]:>3}/{marks.size - counts[MARKS['owed']]}"
    line = f"{question_id:<{longest}} {''.join(marks)} {share}"
    if room is None or len(line) <= room:
        yield line
        return
    told = [f"{counts[mark]} {name}" for name, mark in MARKS.items() if counts[mark]]
    yield f"{question_id:<{longest}} {share}: {', '.join(told)}"
    size = max(10, (room - 2) // 10 * 10)  # in tens, which are easier to count
    if marks.size <= _MOST_LINES * size:
        text = "".join(marks)
        yield from (f"  {text[i : i + size]}" for i in range(0, len(text), size))


def _marks(tally: Tally) -> npt.NDArray[np.str_]:
    """The M×N characters."""
    marks = np.full(tally.outcomes.shape, MARKS["undecided"], dtype="U1")
    for outcome in ("correct", "wrong", "no_answer"):
        marks[tally.outcomes == OUTCOMES.index(outcome)] = MARKS[outcome]
    marks[~tally.graded] = MARKS["generated, not graded"]
    marks[tally.truncated] = MARKS["truncated"]
    marks[~tally.done] = MARKS["owed"]
    return marks
