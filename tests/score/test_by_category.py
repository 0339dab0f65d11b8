"""Scores before and since a date, from the column of a file to the sentence of `score`."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import Capsys, again, described, run_of, write_questions

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store.runfolder import Run

OLD, NEW = ["1111", "1110", "1101", "1111"], ["0010", "0000", "0100"]
DATES = ["2025-01-01", "2025-08-31", "2024-05-01", None, "2025-09-01", "2026-01-01", "2025-12-24"]


def made(root: Path) -> Run:
    marks = {f"q{i}": line for i, line in enumerate([*OLD, *NEW])}
    run = run_of(root, "a", marks)
    described(run.path, [{"date": day} for day in DATES])
    return run


def test_score_compares_before_and_since(tmp_path: Path, capsys: Capsys) -> None:
    run = made(tmp_path)
    score(again(run, "dataset.since=2025-09-01"))
    found = json.loads((run.path / "scores.json").read_text())["since"]
    old, new = ([[int(x) for x in line] for line in lines] for lines in (OLD[:3], NEW))
    assert found["before"] == scoring.pool_ci(old)._asdict() | {"questions": 3}
    assert found["since"] == scoring.pool_ci(new)._asdict() | {"questions": 3}
    gap = scoring.difference_ci(new, old)
    assert list(found["difference"].values()) == list(gap)
    assert gap.value == pytest.approx(np.mean(new) - np.mean(old)) and gap.high < 0
    assert found["sentence"] in capsys.readouterr().out and "lower" in found["sentence"]
    score(again(run))
    assert "since" not in json.loads((run.path / "scores.json").read_text())


@pytest.mark.parametrize(("day", "named"), [("2026-01-01", "2024-05-01"), ("2020-01-01", "2024")])
def test_two_questions_are_needed_on_each_side(tmp_path: Path, day: str, named: str) -> None:
    with pytest.raises(UserError, match=f"dataset.since={day}.*{named}"):
        score(again(made(tmp_path), f"dataset.since={day}"))


def test_without_dates_the_column_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset\.fields\.date"):
        score(again(run_of(tmp_path, "plain"), "dataset.since=2025-09-01"))
    with pytest.raises(UserError, match=r"dataset\.since=soon"):
        again(run_of(tmp_path, "other"), "dataset.since=soon")


def test_dates_are_read_from_their_column(tmp_path: Path) -> None:
    cells = ["2025-09-12T10:00:00Z", "2025-09", 2025, None]
    rows = [{"id": i, "problem": f"{i}?", "answer": "1", "day": d} for i, d in enumerate(cells)]
    file = write_questions(tmp_path / "q.jsonl", rows)
    words = [f"dataset={file}", "dataset.fields.date=day"]
    loaded, _ = questions.load(compose.load(words).dataset)
    assert [q.date for q in loaded] == ["2025-09-12", "2025-09-01", "2025-01-01", None]
    write_questions(file, [*rows, {"id": 9, "problem": "?", "answer": "1", "day": "May 2025"}])
    with pytest.raises(UserError, match=r"dataset\.fields\.date.*May 2025"):
        questions.load(compose.load(words).dataset)
