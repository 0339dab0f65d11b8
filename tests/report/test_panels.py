"""What the page shows on its first screen."""

import numpy as np

from bayes_at_n.pipeline.compare import comparison, several
from bayes_at_n.pipeline.compare.cohort import from_arrays
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.report import panels


def test_the_first_screen_has_the_headline_in_the_order_of_avg() -> None:
    brief = np.full((6, 20), -1)
    brief[:, :2] = 1
    long = np.where(np.arange(20) < 18, 1, 0) * np.ones((6, 1), int)
    made = from_arrays("d", ["brief", "long"], [*"abcdef"], np.stack([brief, long]))
    for prior, what in (("estimated", "(brief: avg"), ("uniform", "Bayes@N, uniform prior")):
        cfg = analysis.load([f"scoring.prior={prior}"])
        tables = comparison.tables_of(made, cfg)
        drawn = panels.leaderboard(tables["leaderboard"], cfg)
        heads = [column["title"] for column in drawn["columns"]]
        assert heads[:5] == ["model", "rank", "Bayes@N", "95% interval", "avg"]
        assert [row[0][0] for row in drawn["rows"]] == ["brief", "long"]
        assert any(what in line for line in drawn["notes"])
        best, cells = tables["leaderboard"].rows[0], drawn["rows"][0]
        assert [float(cells[i][1]) for i in (2, 4)] == [best["score"], best["avg"]]
        low, middle, high = drawn["forest"]["bars"][0]
        assert 0 <= low < middle <= high <= 100
        assert [c["title"] for c in drawn["columns"] if c["sorted"]] == ["avg"]


def test_several_datasets_have_a_score_with_its_interval_and_ranks_each() -> None:
    rng = np.random.default_rng(0)
    one, two = (
        from_arrays(name, ["a", "b"], [*"wxyz"], rng.integers(0, 2, (2, 4, 9))) for name in "de"
    )
    cfg = analysis.load([])
    scores = several.scores([one, two], cfg)
    drawn = panels.side_by_side(scores)
    heads = [column["title"] for column in drawn["columns"]]
    assert heads == ["model", "rank", "mean", "d", "rank", "e", "rank"]
    row, cells = scores.rows[0], drawn["rows"][0]
    assert cells[3] == (f"{row['d_score']:.3f} ±{row['d_half']:.3f}", str(row["d_score"]))
    assert cells[4][0] == row["d_ranks"]
    lead, *rest = panels.verdict(one, cfg)
    assert lead[0].isupper() and len(lead.split()) <= 20
    assert any("narrow the interval" in line or "new ones halve" in line for line in rest)
