"""What is read of a run, and how often: real files that are written meanwhile."""

from pathlib import Path

import numpy as np
import pytest
from helpers import add_attempts, make_run
from progressing import FIRST, SECOND, row, writing

from bayes_at_n.pipeline.status.progress import count
from bayes_at_n.pipeline.store.outcomes import words
from bayes_at_n.pipeline.store.runfolder import Run


def read(run: Run) -> list[str]:
    """Everything there is to know, as the outcomes of all trials."""
    counts = count(run)
    short = {"correct": "1", "wrong": "0", "no_answer": "-", "pending": "+"}
    marks = np.vectorize(short.get)(words(counts.outcomes)).astype(object)
    marks[~counts.done] = "."
    return ["".join(line) for line in marks.tolist()]


def test_a_journal_is_followed_and_then_found_sealed(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "", "b": ""}, "sampling.trials=3")
    assert read(run) == ["...", "..."]
    with writing(run, FIRST) as writer:
        for trial, answer in enumerate(("2", "3")):
            writer.append([row("a", trial, answer)])
            assert read(run)[0] == "++."[: trial + 1] + "." * (2 - trial)
        writer.append([row("b", 2, finish_reason="length")])
        writer.append([row("b", 7)])  # more trials than the run has now
        writer.append([row("x", 0)])  # no question of the run
        assert read(run) == ["++.", "..+"]
        assert count(run).tokens.sum() == 15
    assert not list(run.attempts.glob("*.journal"))
    assert read(run) == ["++.", "..+"]


@pytest.mark.parametrize("order", [(FIRST, SECOND), (SECOND, FIRST)])
def test_of_two_equal_attempts_the_first_counts(order: tuple[str, str], tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": ""}, "sampling.trials=2")
    for worker in order:
        with writing(run, worker) as writer:
            writer.append([row("a", 0, "2" if worker == FIRST else "3", completion_tokens=9)])
            read(run)  # as a journal
    assert read(run) == ["+."] and count(run).tokens.sum() == 9


def test_attempts_and_grades_that_go_are_forgotten(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"a": "10"}, texts={"a": [r"\boxed{2}"] * 2})
    add_attempts(run, {"a": "..1"}, part="00001")
    assert read(run) == ["10"]
    for part in run.grades.glob("*.parquet"):
        part.unlink()
    assert read(run) == ["++"]
    (run.attempts / "00000.parquet").rename(run.attempts / "_00000.parquet.damaged")
    assert read(run) == [".."]
