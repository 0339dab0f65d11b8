"""Stated confidence and answers not attempted: HLE's and SimpleQA's figures, from a run's texts."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import Capsys, add_verdicts, make_run

from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.score.stated import stated_confidence
from bayes_at_n.scoring import attempted_f, confidence_error


@pytest.mark.parametrize("n", [1, 99, 100, 250, 1000])
def test_the_error_is_that_of_bins_of_equal_counts(n: int) -> None:
    rng = np.random.default_rng(n)
    said, right = rng.random(n).round(1), rng.random(n) < 0.6
    order = np.argsort(said, kind="stable")
    edges = [*range(0, max(n // 100, 1) * 100, 100), n]
    total = 0.0
    for a, b in itertools.pairwise(edges):
        part = order[a:b]
        total += len(part) * (said[part].mean() - right[part].mean()) ** 2
    assert confidence_error(said, right.astype(float)) == pytest.approx((total / n) ** 0.5)
    with pytest.raises(ValueError):
        confidence_error(said, right[1:].astype(float))


def test_a_run_whose_prompt_asks_for_confidence(tmp_path: Path, capsys: Capsys) -> None:
    texts = {"q1": [f"x \\boxed{{2}}\nConfidence: {p}" for p in ("90%", "0.5", "no", "100")]}
    asks = "prompt.template='{problem} State your confidence.'"
    run = make_run(tmp_path / "run", {"q1": "1011"}, "verifier=none", asks, texts=texts)
    score(run)
    found = json.loads((run.path / "scores.json").read_text())["stated"]
    assert (found["attempts"], found["without"]) == (
        3,
        1,
    ) and "calibration" in capsys.readouterr().out
    assert found["mean"] == pytest.approx(0.8) and found["error"] == pytest.approx(0.8 - 2 / 3)
    quiet = make_run(tmp_path / "quiet", {"q1": "1011"}, "verifier=none", texts=texts)
    score(quiet)
    assert "stated" not in json.loads((quiet.path / "scores.json").read_text())


def test_not_attempted_is_what_the_judge_says_not_what_was_cut_off(tmp_path: Path) -> None:
    marks = {"q1": "1000~0"}  # the fifth is truncated
    run = make_run(tmp_path / "run", marks, "verifier=judge-facts", "dataset.judge=all")
    labels = dict(zip(range(6), "ABCBCA", strict=True))
    rows = [
        {"question_id": "q1", "trial": t, "a": 0.5, "label": label, "cut": False}
        for t, label in labels.items()
    ]
    add_verdicts(run, rows)
    score(run)
    found = json.loads((run.path / "scores.json").read_text())["attempted"]
    assert found["not_attempted"] == pytest.approx(1 / 6)  # not the truncated one
    assert found["correct_of_attempted"] == pytest.approx(2 / 5)
    by_hand = 2 / (1 / (2 / 6) + 1 / (2 / 5))
    assert found["f_score"] == pytest.approx(by_hand) == pytest.approx(attempted_f(1 / 3, 1 / 6))


def test_confidence_is_read_from_the_end() -> None:
    assert stated_confidence("Confidence: 10%\n...\n**Confidence**: 95.5 %") == pytest.approx(0.955)
    assert stated_confidence("in a 95% confidence interval") is None
