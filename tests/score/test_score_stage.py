"""score on run folders made by hand: every number against a computation of its own."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, again, described, make_run

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.display.table import decimals
from bayes_at_n.pipeline.score import headline as shown_of
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring.metrics.table import parse

LINES = ["1100", "1110", "0100", "1111", "0001"]
MARKS = {"q1": "1100", "q2": "1111", "q3": "0-~u"}  # 0 to 4 of 4 correct
R = np.array([[1, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 0]])


def scored(run: Run, *overrides: str) -> dict[str, Any]:
    score(again(run, *overrides))
    scores: dict[str, Any] = json.loads((run.path / "scores.json").read_text())
    return scores


def bayes_by_hand(marks: list[str], prior: list[str] | None = None) -> tuple[float, float]:
    """Algorithm 1 for two categories: each question is a Beta posterior."""
    mean = variance = 0.0
    for i, line in enumerate(marks):
        seen = line.replace(".", "").replace("+", "") + (prior[i] if prior else "")
        a = 1 + seen.count("1")
        b = 1 + len(seen) - seen.count("1")
        mean += a / (a + b)
        variance += a * b / (a + b) ** 2 / (a + b + 1)
    return mean / len(marks), math.sqrt(variance) / len(marks)


def test_against_a_hand_computation_and_the_scoring_functions(tmp_path: Path) -> None:
    scores = scored(make_run(tmp_path / "run", MARKS))
    uniform = scores["uniform_prior"]
    mu, sigma = bayes_by_hand(list(MARKS.values()))
    bayes = uniform["bayes"]
    assert (bayes["mu"], bayes["sigma"]) == pytest.approx((mu, sigma))
    ends = mu - 1.96 * sigma, mu + 1.96 * sigma
    assert (bayes["low"], bayes["high"]) == pytest.approx(ends, 1e-4)
    assert uniform["avg"]["mean"] == pytest.approx(6 / 12)
    assert uniform["avg"]["sigma"] == pytest.approx(sigma * 6 / 4)  # rescaled by (N + 2) / N
    assert uniform["avg"]["stderr_over_questions"] == pytest.approx(
        np.std([0.5, 1, 0], ddof=1) / 3**0.5
    )
    assert uniform["avg"]["other_questions"] == scoring.pool_ci(R)._asdict()
    # Pass@2 of 2 in 4: 1 - C(2,2)/C(4,2) = 5/6
    assert uniform["pass_at_k"] == pytest.approx({"1": 0.5, "2": (5 / 6 + 1) / 3, "4": 2 / 3})
    assert (scores["questions"], scores["trials"], scores["attempts"]) == (3, 4, 12)
    assert "prior" not in scores and "with_prior" not in scores


def test_metrics_are_chosen_and_each_has_its_interval(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", MARKS)
    names = ["pass^2", "g-pass@4:0.5", "avg", "mg-pass@4", "max@2", "pass@8"]
    scores = scored(run, f"scoring.metrics=[{','.join(names)}]", "scoring.confidence=0.9")
    shown = capsys.readouterr()
    # The headline comes first, and avg@N and Bayes@N as published always stand beside it.
    always = ["bayes", "avg", "bayes-uniform"]
    assert list(scores["metrics"]) == [*always, *(n for n in names[:-1] if n != "avg")]
    assert "Pass@8: left out" in shown.err and "Pass@4" not in shown.err
    places = decimals(summary["sigma"] for summary in scores["metrics"].values())
    for metric in map(parse, names[:-1]):
        summary = scores["metrics"][metric.name]
        assert summary == pytest.approx(metric.summary(R, 0.9)._asdict())
        assert f"{summary['low']:.{places}f} to {summary['high']:.{places}f}" in shown.out
        assert metric.title(4) in shown.out


def test_missing_trials_are_never_wrong(tmp_path: Path, capsys: Capsys) -> None:
    marks = {"q1": "11", "q2": "1010", "q3": "1.1+"}
    scores = scored(make_run(tmp_path / "run", marks))
    mu, sigma = bayes_by_hand(list(marks.values()))
    uniform = scores["uniform_prior"]
    assert (uniform["bayes"]["mu"], uniform["bayes"]["sigma"]) == pytest.approx((mu, sigma))
    assert uniform["avg"]["mean"] == pytest.approx((1 + 0.5 + 1) / 3)
    assert list(uniform["pass_at_k"]) == ["1", "2"]  # the shortest question has two trials
    assert scores["attempts"] == 8
    assert "4 of 12 attempts" in capsys.readouterr().err


def test_clusters_of_questions_and_what_more_attempts_buy(tmp_path: Path, capsys: Capsys) -> None:
    marks = {"q1": "1101", "q2": "1111", "q3": "0010", "q4": "0000"}
    run = make_run(tmp_path / "run", marks)
    R = np.array([[int(mark) for mark in line] for line in marks.values()])
    assert scored(run)["clusters"] == 4
    assert "4 questions, 16 attempts" in capsys.readouterr().out
    described(run.path, [{"cluster": label} for label in ("a", "a", "b", None)])
    found = scored(Run(run.cfg))
    over, avg = scoring.question_stderr(R, clusters="aabc"), found["uniform_prior"]["avg"]
    assert found["clusters"] == 3 and avg["stderr_over_questions"] == pytest.approx(over)
    assert avg["other_questions"] == scoring.pool_ci(R, clusters="aabc")._asdict()
    more = scoring.next_attempts(R, clusters="aabc")
    assert found["next_attempts"]["elsewhere"] == pytest.approx(more.elsewhere)
    said = " ".join(capsys.readouterr().out.split())
    assert "4 questions in 3 clusters, 16 attempts" in said
    assert found["next_attempts"]["sentence"] in said
    # One trial, as of a greedy run: only more questions help.
    more = scored(make_run(tmp_path / "one", {"q1": "1", "q2": "0"}))["next_attempts"]
    assert more["here"] is None and more["halving"] == 6


def test_the_bound_if_the_undecided_were_correct(tmp_path: Path, capsys: Capsys) -> None:
    marks = {"q1": "1u0t", "q2": "10~.", "q3": "0000"}
    run = make_run(tmp_path / "run", marks)
    best = [line.replace("u", "1").replace("t", "1") for line in marks.values()]
    for prior, score_of in (("uniform", bayes_by_hand(best)[0]), ("estimated", 13 / 36)):
        bound = scored(run, f"scoring.prior={prior}")["headline_if_undecided_were_correct"]
        assert bound["value"] == pytest.approx(score_of)
        assert "all undecided were correct" in capsys.readouterr().out
    scores = scored(make_run(tmp_path / "other", {"q1": "10~-"}))
    assert "headline_if_undecided_were_correct" not in scores


def test_a_prior_is_matched_by_hash(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", MARKS)
    # Other ids' order and one more question; only the first two trials are the prior.
    theirs = {"q3": "110.", "extra": "0000", "q1": "001+", "q2": "101u"}
    other = make_run(tmp_path / "earlier", theirs, "tag=earlier")
    scores = scored(run, f"prior={other.path}", "prior.trials=2")
    assert scores["prior"] == {"run": str(other.path), "trials": 2}
    prior = [theirs[q][:2] for q in MARKS]
    expected = bayes_by_hand(list(MARKS.values()), prior)
    assert (scores["with_prior"]["mu"], scores["with_prior"]["sigma"]) == pytest.approx(expected)
    uniform = scores["uniform_prior"]["bayes"]
    assert uniform["mu"] == pytest.approx(bayes_by_hand(list(MARKS.values()))[0])
    table = capsys.readouterr().out
    assert "Bayes@4 (prior: 2 trials)" in table and f"{expected[0]:.2f}" in table
    later = scored(run)
    assert "with_prior" not in later and later["uniform_prior"]["bayes"] == uniform


def test_a_prior_weighs_what_it_is_told(tmp_path: Path) -> None:
    """Proportions of the same questions, worth 2 trials; a question never above its own."""
    other, worth = {"q1": "1100", "q2": "0000", "q3": "1..."}, [[1, 1], [2, 0], [0, 1]]
    run, earlier = make_run(tmp_path / "run", MARKS), make_run(tmp_path / "earlier", other)
    scores = scored(run, f"prior={earlier.path}", "prior.weight=2")
    assert scores["prior"]["weight"] == 2
    assert scores["with_prior"]["mu"] == pytest.approx(
        scoring.bayes(R, R0=scoring.Counts(worth))[0]
    )


def test_priors_that_do_not_fit(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", MARKS)

    def refused(*overrides: str) -> str:
        with pytest.raises(UserError) as caught:
            scored(run, *overrides)
        assert "\n" not in str(caught.value)
        return str(caught.value)

    fewer = make_run(tmp_path / "fewer", {"q1": "11", "q2": "11"})
    assert "(q3)" in refused(f"prior={fewer.path}")
    golds = make_run(tmp_path / "golds", MARKS, gold={"q2": "3"})
    assert "(q2)" in refused(f"prior={golds.path}")
    ragged = make_run(tmp_path / "ragged", {"q1": "11", "q2": "1.", "q3": "11"})
    assert "only the first 1 trials" in refused(f"prior={ragged.path}", "prior.trials=2")
    assert "with_prior" in scored(run, f"prior={ragged.path}", "prior.trials=1")
    full = make_run(tmp_path / "full", {"q1": "101", "q2": "t10", "q3": "0-1"})
    assert scored(run, f"prior={full.path}")["prior"]["trials"] == 3  # all, unless it is said
    assert "prior.trials=3" in refused(f"prior={ragged.path}", "prior.trials=3")
    assert "not a run folder" in refused(f"prior={tmp_path / 'nowhere'}")
    assert "itself" in refused(f"prior={run.path}/../run", "prior.trials=1")


def test_nothing_graded(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", {"q1": "++", "q2": ".."})
    with pytest.raises(UserError, match=r"pipeline grade"):
        score(run)
    assert not (run.path / "scores.json").exists()


def test_none_of_twenty_correct_misleads_nowhere(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "none", {f"q{i}": "0000" for i in range(5)})
    scores = scored(run)
    avg = scores["metrics"]["avg"]
    assert (avg["value"], avg["low"]) == (0, 0) and 0.15 < avg["high"] < 0.2
    assert scores["headline"] == {"metric": "avg", "prior": "none"} | avg
    assert scores["metrics"]["bayes"] == avg and scores["uniform_prior"]["bayes"]["low"] > 0
    assert main(["status", str(run.path)]) == 0
    assert "0.000 0.000 to 0.185 0.000" in " ".join(capsys.readouterr().out.split())


def test_value_sigma_and_interval_are_of_the_prior_that_is_named(
    tmp_path: Path, capsys: Capsys
) -> None:
    run = make_run(tmp_path / "run", {f"q{i}": line for i, line in enumerate(LINES)})
    R = np.array([[int(mark) for mark in line] for line in LINES])
    ours, published = scoring.empirical_bayes_ci(R), scoring.bayes_ci(R)
    for prior, what, summary in (
        ("estimated", "Bayes@4, prior estimated from these questions", ours),
        ("uniform", "Bayes@4, uniform prior", published),
    ):
        scores = scored(run, f"scoring.prior={prior}")
        assert scores["headline"] == {"metric": "bayes", "prior": prior} | summary._asdict()
        assert scores["metrics"]["bayes"] == summary._asdict()
        assert scores["metrics"]["bayes-uniform"] == published._asdict()
        assert scores["metrics"]["avg"] == scoring.avg_ci(R)._asdict()
        assert what in " ".join(capsys.readouterr().out.split())
        assert what.replace("Bayes@4", "") in shown_of.line(scores)
    one = shown_of.line(scored(make_run(tmp_path / "one", {"q1": "1", "q2": "0", "q3": "1"})))
    assert "avg@1 0.7 " in one and "cannot be estimated from one trial" in one


def test_costs_come_from_attempts_and_sessions(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", MARKS)
    cost = scored(run)["cost"]
    assert cost["completion_tokens"] == 60 and cost["prompt_tokens"] == 36
    assert cost["sessions"] == 0 and cost["tokens_per_s"] is None
    (run.path / "sessions").mkdir()
    for name, seconds in (("a", 2.0), ("b", 4.0)):
        (run.path / "sessions" / f"{name}.json").write_text(
            json.dumps({"wall_s": seconds, "gpu_s": 1800, "completion_tokens": 30})
        )
    (run.path / "sessions" / "torn.json").write_text('{"wall_s": 1')
    cost = scored(run)["cost"]
    assert (cost["sessions"], cost["wall_s"], cost["gpu_hours"]) == (2, 6.0, 1.0)
    assert cost["tokens_per_s"] == 10.0
    both = scored(run, "engine.price_in=1e6", "engine.price_out=5e5")
    assert both["cost"]["price"] == 66 and "price of 66.00" in capsys.readouterr().out
