"""Labels of people: the estimator against enumeration and known truth, and the files around it."""

import itertools
import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import helpers
import numpy as np
import pytest
from helpers import Capsys, again, make_run

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify.stage import verify
from bayes_at_n.scoring import prediction_powered

MARKS = {"q1": "1100", "q2": "11~u", "q3": "0-"}  # 10 graded attempts, of unequal numbers


@pytest.mark.parametrize("m", [1, 3, 6, 7])
def test_the_mean_over_all_samples_is_the_truth_whatever_the_grader_says(m: int) -> None:
    predicted, truth = [1, 1, 0, 0, 1, 0, 1], [0, 1, 1, 0, 1, 0, 0]
    weights = [Fraction(w, 14) for w in (1, 1, 1, 2, 2, 3, 4)]
    samples = list(itertools.combinations(range(7), m))
    found = [
        prediction_powered(predicted, [truth[i] for i in at], np.array(at), [*map(float, weights)])
        for at in samples
    ]
    right = sum(w * t for w, t in zip(weights, truth, strict=True))
    assert np.mean([one.value for one in found]) == pytest.approx(float(right), abs=1e-12)
    for at, one in zip(samples, found, strict=True):
        by_hand = sum(w * f for w, f in zip(weights, predicted, strict=True))
        by_hand += Fraction(7, m) * sum(weights[i] * (truth[i] - predicted[i]) for i in at)
        assert one.value == pytest.approx(float(by_hand), abs=1e-12)
    if m == 7:  # all are labelled: nothing is left to chance
        assert found[0].low == pytest.approx(float(right)) == pytest.approx(found[0].high)


@pytest.mark.parametrize("missed", [0.0, 0.01, 0.2])
@pytest.mark.parametrize("accepted", [0.0, 0.02, 0.1, 0.3])
def test_the_interval_holds_the_truth_and_is_narrow(missed: float, accepted: float) -> None:
    rng, n, m, held, width = np.random.default_rng(7), 2400, 60, [], []
    for _ in range(300):
        predicted = rng.random(n) < 0.5
        truth = np.where(predicted, rng.random(n) >= accepted, rng.random(n) < missed)
        at = rng.permutation(n)[:m]
        found = prediction_powered(predicted, truth[at], at)
        held.append(found.low <= truth.mean() <= found.high)
        width.append(found.high - found.low)
    assert np.mean(held) > 0.925  # of 300: three standard errors below .95 are .91
    assert np.mean(width) < 2 * 1.96 * np.sqrt(0.25 / m) + 0.01


@pytest.mark.parametrize(
    "change",
    [
        {"labels": []},
        *({"at": at} for at in ([0, 0], [0, 9], [-1, 0], [0.0, 1.0])),
        {"labels": [0, 2]},
        {"predicted": [0, np.nan, 1]},
        {"weights": [1, 1, 1]},
    ],
)
def test_what_is_no_sample_is_refused(change: dict[str, Any]) -> None:
    sound = {"predicted": [0, 1, 1], "labels": [0, 1], "at": [0, 1]}
    prediction_powered(**sound)
    with pytest.raises(ValueError):
        prediction_powered(**sound | change)


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


def asked(run: Run, *overrides: str) -> None:
    verify(again(run, *overrides))


def test_a_sample_is_drawn_labelled_and_read_back(tmp_path: Path, capsys: Capsys) -> None:
    run, path = made(tmp_path / "run"), tmp_path / "run" / "labels.jsonl"
    asked(run, "labels.sample=6")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len({(row["question_id"], row["trial"]) for row in rows}) == 6
    assert {row["correct"] for row in rows} == {None}
    assert not {"outcome", "label", "a"} & set(rows[0])  # a person is not told
    assert rows[0]["problem"] and rows[0]["gold"] == "2" and rows[0]["end"]
    with pytest.raises(UserError, match="no row has `correct`"):
        asked(run, f"labels={path}")
    drawn = path.read_text()
    later = again(run, "labels.sample=5")
    verify(later)  # as when `run` is continued
    assert path.read_text() == drawn and "is kept" in capsys.readouterr().err
    runfolder.save_config(later)
    assert load_folder(run.path, []).labels.sample is None  # it was asked once
    for row in rows:  # people find that the grader is wrong about all of q2 that it called wrong
        row["correct"] = (
            row["question_id"] == "q2" or MARKS[row["question_id"]][row["trial"]] == "1"
        )
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    asked(run, f"labels={path}")
    found = json.loads((run.path / "labels.json").read_text())
    said = {**{mark: Fraction(0) for mark in "0~-"}, "1": Fraction(1), "u": Fraction(3, 4)}
    weight = {q: Fraction(1, 3 * len(marks)) for q, marks in MARKS.items()}
    plain = sum(weight[q] * said[mark] for q, marks in MARKS.items() for mark in marks)
    bias = sum(
        weight[row["question_id"]]
        * (int(row["correct"]) - said[MARKS[row["question_id"]][row["trial"]]])
        for row in rows
    )
    assert found["grader"]["value"] == pytest.approx(float(plain))
    assert found["grader"]["corrected"]["value"] == pytest.approx(float(plain + bias * 10 / 6))
    assert found["labels"] == 6 and found["verifier"]["value"] == pytest.approx(
        float(plain) + 1 / 48
    )
    assert "grader, corrected" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ('{"question_id": "q9", "trial": 0, "correct": true}', "of a graded"),
        ('{"question_id": "q1", "trial": 7, "correct": true}', "of a graded"),
        ('{"question_id": "q1", "trial": "0", "correct": true}', "or null"),
        ('{"question_id": "q1", "trial": 0, "correct": "yes"}', "or null"),
        ('{"question_id": "q1", "trial": 0, "correct": true}\n' * 2, "line 2"),
        ("[" * 100_000, "line 1"),
    ],
)
def test_a_file_of_labels_that_cannot_be(tmp_path: Path, line: str, told: str) -> None:
    run, path = made(tmp_path / "run"), tmp_path / "labels.jsonl"
    path.write_text(line + "\n")
    with pytest.raises(UserError, match=f"labels.jsonl.*{told}"):
        asked(run, f"labels={path}")
    with pytest.raises(UserError, match="no such file"):
        asked(run, f"labels={tmp_path / 'none.jsonl'}")
