"""Stated confidence and answers not attempted: HLE's and SimpleQA's figures, from a run's texts."""

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from helpers import Capsys, add_verdicts, make_run

from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.scoring import attempted_f, avg_ci, confidence_error


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
    assert confidence_error(said, right.astype(float))[0] == pytest.approx((total / n) ** 0.5)
    with pytest.raises(ValueError):
        confidence_error(said, right[1:].astype(float))


def test_a_run_whose_prompt_asks_for_confidence(tmp_path: Path, capsys: Capsys) -> None:
    texts = {"q1": [f"x \\boxed{{2}}\nConfidence: {p}" for p in ("90%", "0.5", "no", "100")]}
    asks = "prompt.template='{problem} State your confidence.'"
    run = make_run(tmp_path / "run", {"q1": "1011"}, "verifier=none", asks, texts=texts)
    score(run)
    found = json.loads((run.path / "scores.json").read_text())["stated"]
    assert (found["attempts"], found["without"]) == (3, 1)
    assert "calibration" in capsys.readouterr().out
    assert found["mean"] == pytest.approx(0.8) and found["error"] == pytest.approx(0.8 - 2 / 3)
    assert 0 <= found["low"] < found["error"] < found["high"] <= 1
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
    assert found["f_score"] == pytest.approx(by_hand)
    assert 0 <= found["f_low"] < by_hand < found["f_high"] <= 1


@pytest.mark.parametrize("trials", [1, 8, 80])
@pytest.mark.parametrize("spread", [0.0, 0.15])
def test_the_interval_holds_the_error_of_endless_questions(trials: int, spread: float) -> None:
    """60 or 240 questions whose chances p are stated with an error of each question."""
    rng, questions = np.random.default_rng(3), 240 if trials == 1 else 60

    def error(many: int, drawn: bool, size: int | None = None) -> tuple[float, float, float]:
        p, row = rng.beta(0.8, 1.2, many), np.repeat(np.arange(many), trials)
        said = (p + spread * rng.normal(0.5, 1, many)).clip(0, 1)[row]
        return confidence_error(said, rng.random(row.size) < p[row] if drawn else p[row], size, row)

    bins = questions * trials // max(100, 10 * trials)
    truth = error(400_000 // trials, False, 400_000 // bins)[0]
    ends = np.array([error(questions, True)[1:] for _ in range(200)])
    held = (ends[:, 0] <= truth + 1e-9) & (truth <= ends[:, 1])
    assert held.mean() > 0.91  # of 200: two standard errors are .03


def test_the_interval_of_f_holds_it_and_is_where_the_mean_ends() -> None:
    rng, held = np.random.default_rng(4), list[bool]()
    for _ in range(150):
        rates = rng.dirichlet([0.6, 0.8, 0.4], 40)  # wrong, correct, not attempted
        R = (rng.random((40, 4, 1)) > rates.cumsum(axis=1)[:, None]).sum(axis=2)
        _, right, silent = rates.mean(axis=0)
        held.append((f := attempted_f(R))[1] <= 2 * right / (2 - silent) <= f[2])
    assert np.mean(held) > 0.91
    for end, x in zip((0, 2, 3), f, strict=True):
        assert avg_ci(R, [0, 1, x / 2])[end] == pytest.approx(x)
