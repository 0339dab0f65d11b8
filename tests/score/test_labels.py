"""Labels of people: their files, what they make of a score, and what to label first."""

import json
from pathlib import Path
from typing import Any

import helpers
import numpy as np
import pytest
from helpers import Capsys, again, make_run

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.score import headline, labels
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring import labeled, prediction_powered

MARKS = {"q1": "1100", "q2": "11~u", "q3": "0-"}  # 10 graded attempts, of unequal numbers


def made(folder: Path) -> Run:
    """A run with verdicts: A for all that is correct, and of q2's unreadable trial .75."""
    run = make_run(folder, MARKS, "verifier=none")
    keys = [(q, t, mark) for q, marks in MARKS.items() for t, mark in enumerate(marks)]
    a = [0.75 if mark == "u" else 0.9 if mark == "1" else 0.1 for _, _, mark in keys]
    add_verdicts(run, [(q, t) for q, t, _ in keys], np.array(a))
    return run


def add_verdicts(run: Run, keys: list[tuple[str, int]], a: Any) -> None:
    """Write P(A) of attempts; what is written later replaces what was."""
    helpers.add_verdicts(
        run,
        [
            {"question_id": q, "trial": t, "a": p, "label": "A" if p > 0.5 else "B", "cut": False}
            for (q, t), p in zip(keys, a.tolist(), strict=True)
        ],
    )


def test_labels_correct_the_score_by_the_people_who_gave_them(
    tmp_path: Path, capsys: Capsys
) -> None:
    run, path = made(tmp_path / "run"), tmp_path / "ana.jsonl"
    keys = [(q, t, mark) for q, marks in MARKS.items() for t, mark in enumerate(marks)][:9]
    truth = {(q, t): q == "q2" or mark == "1" for q, t, mark in keys[::2]}  # q2 is all correct
    rows = [{"question_id": q, "trial": t, "correct": is_so} for (q, t), is_so in truth.items()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    score(again(run, f"labels={path}"))
    out, found = capsys.readouterr().out, json.loads((run.path / "scores.json").read_text())
    people = found["people"]
    said = [
        0.75 if mark == "u" else float(mark == "1") for marks in MARKS.values() for mark in marks
    ]
    weights = [1 / 3 / len(marks) for marks in MARKS.values() for _ in marks]
    at = [*range(0, 9, 2)]
    questions = [q for q, marks in MARKS.items() for _ in marks]
    sample = labeled(said, [*truth.values()], at, weights, questions=questions)
    own = prediction_powered(sample)
    assert people["outcomes"]["value"] == pytest.approx(np.dot(said, weights))
    assert people["outcomes"]["corrected"]["value"] == pytest.approx(own.value)
    assert people["outcomes"]["corrected"]["high"] == pytest.approx(own.high)
    assert people["labels"] == 5 and "verifier" in people and "corrected" in out
    assert "headline" in found  # beside it
    assert headline.is_current(Run(load_folder(run.path, [])))  # they are the folder's now
    path.write_text(json.dumps(rows[0] | {"correct": not rows[0]["correct"]}) + "\n")
    score(again(run, f"labels={path.rename(tmp_path / 'ben.jsonl')}"))
    agreed = json.loads((run.path / "scores.json").read_text())["people"]["agreement"]
    assert agreed["people"] == ["ana", "ben"] and agreed["same"] == 0.0 and agreed["units"] == 1


def test_compare_shows_the_judge_of_outcomes_alone(tmp_path: Path) -> None:
    run = made(tmp_path / "run")  # all attempts are as long, and the verifier says otherwise
    (run.path / "labels").mkdir()
    line = json.dumps({"question_id": "q1", "trial": 0, "correct": True})
    (run.path / "labels" / "ana.jsonl").write_text(line)
    table = labels.table([("run", run, of := outcomes.read(run), labels.samples(run, of))])
    assert table and [row["who"].strip() for row in table.rows] == ["outcomes", "corrected"]


def test_points_are_corrected_as_shares_of_all_points(tmp_path: Path) -> None:
    judge = ("verifier=judge-proof", "verifier.judgement.points=4", "dataset.judge=all")
    run = make_run(tmp_path / "run", {"q1": "0000", "q2": "1111"}, *judge)
    points = {("q1", t): t for t in range(4)} | {("q2", t): 4 for t in range(4)}
    rows = [{"question_id": q, "trial": t, "points": n} for (q, t), n in points.items()]
    helpers.add_verdicts(run, [row | {"label": "A" if row["points"] == 4 else "B"} for row in rows])
    path = tmp_path / "ana.jsonl"
    rows = [{"question_id": q, "trial": t, "correct": n / 8} for (q, t), n in points.items()]
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    score(again(run, f"labels={path}"))
    found = json.loads((run.path / "scores.json").read_text())["people"]["outcomes"]
    assert found["value"] == pytest.approx(22 / 32)
    assert found["corrected"]["value"] == pytest.approx(11 / 32)  # people give half of the points


@pytest.mark.parametrize(
    "line",
    [
        '{"question_id": "q9", "trial": 0, "correct": true}',
        '{"question_id": "q1", "trial": "0", "correct": true}',
        '{"question_id": "q1", "trial": 0, "correct": "yes"}',
        '{"question_id": "q1", "trial": 0, "correct": true}\n' * 2,
        "[" * 100_000,
    ],
)
def test_a_file_of_labels_that_cannot_be(tmp_path: Path, line: str) -> None:
    run, path = made(tmp_path / "run"), tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match=r"labels\.jsonl"):
        score(again(run, f"labels={path}"))
    with pytest.raises(UserError, match="no such file"):
        score(again(run, f"labels={tmp_path / 'none.jsonl'}"))
