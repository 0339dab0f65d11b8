"""Scores by category in score and compare, against the functions on the rows of each category."""

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, again, described, run_of
from scipy.stats import false_discovery_control, norm

from bayes_at_n import scoring
from bayes_at_n.pipeline.compare.comparison import compare
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.score import by_category
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store.runfolder import Run

pytestmark = pytest.mark.usefixtures("undrawn")

MARKS = {
    "good": ["11111101", "11011111", "01111111", "11110111", "01001000", "00100000"],
    "poor": ["01000100", "00010100", "00000010", "00000000", "01100000", "00100001"],
}
SUBJECTS = [["sets"], ["sets"], ["sets", "logic"], ["sets"], ["logic"], ["logic"]]
LEVELS = [["10"], ["9"], [], ["10"], ["9"], ["9"]]


def bits(name: str, rows: list[int]) -> Any:
    return np.array([[int(mark) for mark in MARKS[name][row]] for row in rows])


def made(root: Path, category: str = "[subject,level]", clusters: str = "aabbcc") -> list[Run]:
    runs = []
    for name, lines in MARKS.items():
        marks = {f"q{i}": line for i, line in enumerate(lines)}
        runs.append(run_of(root, name, marks, f"dataset.fields.category={category}"))
        parts = zip(SUBJECTS, LEVELS, clusters, strict=True)
        described(runs[-1].path, [{"category": [s, n], "cluster": c} for s, n, c in parts])
    return runs


def test_score_has_each_category_of_each_field(tmp_path: Path, capsys: Capsys) -> None:
    run = again(made(tmp_path)[0])
    score(again(run))
    shown = capsys.readouterr().out
    rows = json.loads((run.path / "scores.json").read_text())["categories"]
    named = [(row["field"], row["category"], row["questions"]) for row in rows]
    assert named == [
        ("", "micro average", 6),
        *[("subject", "macro average", 6), ("subject", "logic", 3), ("subject", "sets", 4)],
        *[("level", "macro average", 5), ("level", "9", 3), ("level", "10", 2)],
    ]
    micro, macro, logic, *_ = rows
    head = json.loads((run.path / "scores.json").read_text())["headline"]
    assert micro["value"] == head["value"] and micro["interval"] == [head["low"], head["high"]]
    alone = scoring.score_ci(bits("good", [2, 4, 5]))
    assert [logic["value"], logic["sigma"], *logic["interval"]] == list(alone)
    assert logic["similar"] == [*scoring.pool_ci(bits("good", [2, 4, 5]), clusters="bcc")[2:]]
    assert macro["value"] == pytest.approx((logic["value"] + rows[3]["value"]) / 2)
    assert rows[6]["similar"] is not None  # level 10: of two clusters
    assert all(word in shown for word in ("macro average", "logic", "level"))


def test_the_terminal_shows_twenty_rows(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = {f"q{i}": "10" for i in range(30)}
    run = run_of(tmp_path, "a", marks, "dataset.fields.category=topic")
    described(run.path, [{"category": [[f"topic-{i:02d}"]]} for i in range(30)])
    score(again(run))
    assert capsys.readouterr().out.count("topic-") == 18  # below the micro and macro average
    assert len(json.loads((run.path / "scores.json").read_text())["categories"]) == 32
    monkeypatch.setenv("BAYES_AT_N_OUTPUT", "verbose")
    score(again(run))
    assert capsys.readouterr().out.count("topic-") == 30


def test_a_column_of_ids_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_category, "MOST", 2)
    run = run_of(tmp_path, "ids", {"a": "1", "b": "0", "c": "1"}, "dataset.fields.category=[id,x]")
    described(run.path, [{"category": [[str(i)], ["y"]]} for i in range(3)])
    assert [field.name for field in by_category.fields(again(run))] == ["x"]


def test_compare_names_what_stands_out_after_correction(tmp_path: Path, capsys: Capsys) -> None:
    made(tmp_path)
    compare(analysis.load([f"runs={tmp_path}", f"out={tmp_path / 'out'}"]))
    shown = " ".join(capsys.readouterr().out.split())
    [record] = json.loads((tmp_path / "out" / "compare.json").read_text())["datasets"]
    rows = {(row["field"], row["category"]): row for row in record["categories"]}
    for name in MARKS:
        alone = scoring.score_ci(bits(name, [0, 1, 2, 3]))
        found = [rows["subject", "sets"][f"{name}_{key}"] for key in ("score", "low", "high")]
        assert found == pytest.approx([alone.value, alone.low, alone.high])
    places = {
        ("subject", "logic"): [2, 4, 5],
        ("subject", "sets"): [0, 1, 2, 3],
        ("level", "9"): [1, 4, 5],
        ("level", "10"): [0, 3],
    }
    gaps = {}
    for place, at in places.items():
        (a, s), (b, u) = (scoring.avg(bits(name, at)) for name in ("good", "poor"))
        gaps[place] = a - b, (a - b) / np.hypot(s, u)
    p = [2 * norm.sf(abs(z)) for _, z in gaps.values()]
    q = dict(zip(gaps, false_discovery_control(p), strict=True))
    apart = {(row["field"], row["category"]): row for row in record["category_differences"]}
    assert apart.keys() == {place for place in gaps if q[place] <= 0.05} and 0 < len(apart) < 4
    for place, row in apart.items():
        assert row["q"] == pytest.approx(q[place]) and row["z"] == pytest.approx(gaps[place][1])
        assert row["difference"] == pytest.approx(gaps[place][0]) and row["above"] == "good"
    assert f"{len(apart)} of 4 differences" in shown and "Benjamini-Hochberg" in shown
    with (tmp_path / "out" / "categories.csv").open() as file:
        assert [row["category"] for row in csv.DictReader(file)][1:3] == ["macro average", "logic"]


def test_a_category_that_the_worse_model_wins_names_it_above(tmp_path: Path) -> None:
    for name, lines in {"a": ["1" * 16] * 3 + ["0" * 16], "b": ["0" * 16] * 3 + ["1" * 16]}.items():
        marks = {f"q{i}": x for i, x in enumerate(lines)}
        run = run_of(tmp_path, name, marks, "dataset.fields.category=s")
        described(run.path, [{"category": [[s]]} for s in "xxxy"])
    compare(analysis.load([f"runs={tmp_path}", f"out={tmp_path / 'out'}"]))
    [record] = json.loads((tmp_path / "out" / "compare.json").read_text())["datasets"]
    rows = {row["category"]: row for row in record["category_differences"]}
    assert [rows[of]["above"] for of in "xy"] == ["a", "b"] and rows["y"]["difference"] > 0
