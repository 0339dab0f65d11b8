"""One command over several models and settings, each a process of its own."""

import json
from pathlib import Path

import pytest
from helpers import make_run

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import sweep


def test_commas_make_combinations_and_lists_and_quotes_do_not() -> None:
    combinations = sweep.expand(["model=a,b", "dataset=x,y", "prior=runs/a"])
    assert [" ".join(settings[:2]) for settings in combinations] == [
        "model=a dataset=x",
        "model=a dataset=y",
        "model=b dataset=x",
        "model=b dataset=y",
    ]
    for setting in ("rubric=a,b", "scoring.metrics=[bayes,avg]", "dataset.path='a,b'", "a folder"):
        assert sweep.expand([setting]) == [[setting]]
    assert sweep.expand(["sampling.trials=range(1,4)"]) == [
        ["sampling.trials=1"],
        ["sampling.trials=2"],
        ["sampling.trials=3"],
    ]
    with pytest.raises(UserError, match="1000 runs"):
        sweep.expand(["sampling.seed=range(0,1000000000)"])


def test_every_combination_runs_and_a_failure_stops_no_other(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    make_run(tmp_path / "b", {"q": "110"}, "tag=b", "verifier=none")
    settings = [
        "model=custom",
        "model.id=/nowhere/tiny",
        "dataset=jsonl",
        "dataset.path=/nowhere/sums.jsonl",
        "sampling.trials=3",
        "verifier=none",
    ]
    assert main(["score", *settings, f"run_dir={tmp_path}/a,{tmp_path}/b"]) == 2
    err = capfd.readouterr().err
    assert f"score 1 of 2: run_dir={tmp_path}/a" in err and "score 2 of 2" in err
    assert f"1 of 2 failed: run_dir={tmp_path}/a" in err
    assert json.loads((tmp_path / "b" / "scores.json").read_text())["attempts"] == 3


def test_a_misspelt_choice_stops_before_the_first_run(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "model=demo,qwen3-30", f"run_dir={tmp_path}/x"]) == 2
    err = capfd.readouterr().err
    assert "model=qwen3-30" in err and err.count("\n") == 1
    assert main(["run", "sampling.seed=range(0,5000)"]) == 2
    assert "1000 runs" in capfd.readouterr().err
    assert main(["run", "budget.tokens=5,000"]) == 2  # of one folder
    assert "have this folder" in capfd.readouterr().err
