"""Labels of people: their files, what they make of a score, and what to label first."""

import json
from pathlib import Path
from typing import Any

import helpers
import numpy as np
import pytest
from helpers import Capsys, again, make_run, run_of
from scipy.special import ndtr

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare.pairwise import to_review
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.score import current
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring import avg, prediction_powered

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
    own = prediction_powered(said, [*truth.values()], at, weights, questions=questions)
    assert people["grader"]["value"] == pytest.approx(np.dot(said, weights))
    assert people["grader"]["corrected"]["value"] == pytest.approx(own.value)
    assert people["grader"]["corrected"]["high"] == pytest.approx(own.high)
    assert people["labels"] == 5 and "verifier" in people and "corrected by people" in out
    assert "headline" in found  # beside it
    assert current.is_current(Run(load_folder(run.path, [])))  # they are the folder's now
    path.write_text(json.dumps(rows[0] | {"correct": not rows[0]["correct"]}) + "\n")
    score(again(run, f"labels={path.rename(tmp_path / 'ben.jsonl')}"))
    agreed = json.loads((run.path / "scores.json").read_text())["people"]["agreement"]
    assert agreed["people"] == ["ana", "ben"] and agreed["observed"] == 0.0


def test_attempts_to_look_at_are_those_that_would_change_the_order_most(tmp_path: Path) -> None:
    rng, runs = np.random.default_rng(0), {}
    for name, p in (("first", 0.9), ("second", 0.62), ("third", 0.6)):
        marks = {q: "".join("01"[int(x)] for x in (rng.random(40) < p)) for q in ("q1", "q2")}
        run = runs[name] = run_of(tmp_path, name, marks)
        keys = [(q, t) for q in marks for t in range(40)]
        add_verdicts(run, keys, np.array([0.1 + 0.8 * (marks[q][t] == "1") for q, t in keys]))
    sure = [("third", "q2", 7, 0.99), ("first", "q1", 3, 0.999), ("second", "q2", 0, 0.5)]
    for name, q, t, doubt in sure:  # there the verifier parts with the grader
        was = outcomes.read(runs[name]).codes[int(q[1]) - 1, t] == 0
        add_verdicts(runs[name], [(q, t)], np.array([1 - doubt if was else doubt]))
    cfg = analysis.load([f"runs={tmp_path}"])
    [cohort] = cohorts.load(cfg)
    rows = to_review(cohort, cfg).rows
    assert len(rows) == 50
    found = {(row["model"], row["question_id"], row["trial"]): row for row in rows}
    order = [cohort.names.index(name) for name in ("first", "second", "third")]

    def chances(matrix: Any) -> Any:
        mean, sigma = (part[order] for part in avg(matrix))
        return ndtr((mean[:-1] - mean[1:]) / np.hypot(sigma[1:], sigma[:-1]))

    before = chances(cohort.matrix())
    for name, q, t, doubt in (sure[0], sure[2]):
        at = cohort.names.index(name), cohort.question_ids.index(q), t
        changed = cohort.matrix().copy()
        changed[at] = 1 - changed[at]
        moved = doubt * np.abs(chances(changed) - before).sum()
        assert found[name, q, t]["doubt"] == pytest.approx(doubt)
        assert found[name, q, t]["change"] == pytest.approx(moved, rel=0.1)
    assert tuple(rows[0].values())[:3] == sure[0][:3]  # though the first model's is doubted more
    assert sure[1][:3] not in found


@pytest.mark.parametrize(
    "line",
    [
        '{"question_id": "q9", "trial": 0, "correct": true}',
        '{"question_id": "q1", "trial": "0", "correct": true}',
        '{"question_id": "q1", "trial": 0, "correct": "yes"}',
        '{"question_id": "q1", "trial": 0, "correct": 1.5}',
        '{"question_id": "q1", "trial": 0, "correct": true}\n' * 2,
        '{"question_id": "q1", "trial": 0, "correct": null}',
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
