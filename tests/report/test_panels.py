"""What the page shows on its first screen."""

from pathlib import Path

import numpy as np
from helpers import make_run

from bayes_at_n.pipeline.compare import cohort, comparison
from bayes_at_n.pipeline.compare.cohort import from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.report import panels


def test_the_first_screen_has_the_headline_in_the_order_of_avg() -> None:
    brief = np.full((6, 20), -1)
    brief[:, :2] = 1
    long = np.where(np.arange(20) < 18, 1, 0) * np.ones((6, 1), int)
    made = from_arrays("d", ["brief", "long"], [*"abcdef"], np.stack([brief, long]))
    cfg = analysis.load([])
    tables = comparison.tables_of(made, cfg)
    drawn = panels.leaderboard(tables["leaderboard"], cfg)
    heads = [column["title"] for column in drawn["columns"]]
    assert heads[:5] == ["model", "rank", "Bayes@N", "95% interval", "avg"]
    assert [row[0][0] for row in drawn["rows"]] == ["brief", "long"]
    assert any("(brief: avg" in line for line in drawn["notes"])
    best, cells = tables["leaderboard"].rows[0], drawn["rows"][0]
    assert [float(cells[i][1]) for i in (2, 4)] == [best["score"], best["avg"]]
    low, middle, high = drawn["forest"]["bars"][0]
    assert 0 <= low < middle <= high <= 100
    assert [c["title"] for c in drawn["columns"] if c["sorted"]] == ["avg"]


def test_common_settings_are_in_the_line_and_others_are_named(tmp_path: Path) -> None:
    for name, settings in {"a": [], "b": ["sampling.temperature=1.0"]}.items():
        make_run(tmp_path / name, {"q1": "1100", "q2": "1111"}, f"model.name={name}", *settings)
    cfg = analysis.load([f"folders=[{tmp_path / 'a'},{tmp_path / 'b'}]"])
    [loaded] = cohort.load(cfg)
    found = panels.made(loaded)
    assert found is not None
    heads, line = [column["title"] for column in found["table"]["columns"]], found["line"]
    rows = [dict(zip(heads, row, strict=True)) for row in found["table"]["rows"]]
    assert [row["temperature"][0] for row in rows] == ["0.6", "1.0"]
    assert "4 trials per question" in line and line.endswith("different: temperature")
    assert not any(row["model id"][0].startswith("/") for row in rows)
    assert panels.made(from_arrays("coins", ["a"], ["q"], [[[1, 0]]])) is None
