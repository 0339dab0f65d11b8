"""status: one line per question, one character per trial, and what is left."""

import time
from collections import Counter

import numpy as np
import numpy.typing as npt

from pipeline import lease, shards
from pipeline.console import clock, count, results
from pipeline.runfolder import Run
from pipeline.score import MISSING, outcome_matrix
from pipeline.tables import ATTEMPTS

MARKS = {
    "correct": "1",
    "wrong": "0",
    "no_answer": "-",
    "truncated": "~",
    "undecided": "?",
    "generated, not graded": "+",
    "owed": ".",
}
_WINDOW, _RECENT_S = 200, 1800  # the rate is that of the latest attempts, none from days ago


def status(run: Run) -> None:
    """Print where a run stands; reads only, and is safe while others write."""
    marks, finished, tokens = _marks(run)
    ids = [row["question_id"] for row in run.questions]
    width = max(map(len, ids))
    results.print(f"{run.path}: {run.cfg.model.name} on {run.cfg.dataset.name}", markup=False)
    for question_id, line in zip(ids, marks, strict=True):
        done = int((line != MARKS["owed"]).sum())
        right = int((line == MARKS["correct"]).sum())
        results.print(f"{question_id:<{width}} {''.join(line)} {right:>3}/{done}", markup=False)
    counts = Counter(marks.ravel().tolist())
    legend = "  ".join(f"{mark} {name} {counts[mark]}" for name, mark in MARKS.items())
    results.print(legend, markup=False)
    results.print(_outlook(run, marks, finished, tokens), markup=False)


def _marks(run: Run) -> tuple[npt.NDArray[np.str_], list[float], int]:
    """The M×N characters, the finish times of all attempts, and their completion tokens."""
    index = {row["question_id"]: i for i, row in enumerate(run.questions)}
    outcomes = outcome_matrix(run)
    marks = np.full(outcomes.shape, MARKS["owed"], dtype="U1")
    columns = ["question_id", "trial", "finish_reason", "finished", "completion_tokens"]
    finished: list[float] = []
    tokens = 0
    for batch in shards.batches(run.attempts, ATTEMPTS, columns, shards.Damage()):
        for row in batch.to_pylist():
            i, j = index.get(row["question_id"]), row["trial"]
            finished.append(row["finished"] or 0.0)  # imported records may not say either
            tokens += row["completion_tokens"] or 0
            if i is not None and 0 <= j < run.cfg.sampling.trials:
                marks[i, j] = _mark(str(outcomes[i, j]), row["finish_reason"])
    return marks, finished, tokens


def _mark(outcome: str, finish_reason: str) -> str:
    if finish_reason == "length":
        return MARKS["truncated"]
    if outcome == MISSING:
        return MARKS["generated, not graded"]
    return MARKS.get(outcome, MARKS["undecided"])


def _outlook(run: Run, marks: npt.NDArray[np.str_], finished: list[float], tokens: int) -> str:
    left = int((marks == MARKS["owed"]).sum())
    done = marks.size - left
    line = f"{done}/{marks.size} attempts, {count(tokens)} tokens"
    if not left:
        return f"{line}; nothing is owed"
    who = lease.holder(run.path / "generate.lease")
    if who is None:
        return f"{line}; {left} owed, nobody is generating"
    line += f"; {left} owed, generating on {who.get('host')} (pid {who.get('pid')})"
    latest = sorted(t for t in finished if t > time.time() - _RECENT_S)[-_WINDOW:]
    if len(latest) > 1:
        rate = (len(latest) - 1) / max(time.time() - latest[0], 1e-9)
        line += f", about {clock(left / rate)} left"
    return line
