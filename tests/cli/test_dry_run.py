"""Verbs through the command line: dry runs that write nothing, disks and folders that fail."""

import json
import re
from pathlib import Path

import pytest
from helpers import Capsys, Setup, add_attempts, make_model, make_run, one_error, run_of

from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config.compose import load
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store.runfolder import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def settings(tiny: Path, tmp_path: Path) -> list[str]:
    """Settings of a run of three questions in a folder that is not there yet."""
    return Setup(tiny, tmp_path, 3).settings()


def test_dry_run_writes_nothing(settings: list[str], tmp_path: Path, capsys: Capsys) -> None:
    assert main(["grade", *settings]) == 2 and "not prepared yet" in one_error(capsys)
    before, prices = sorted(tmp_path.rglob("*")), ["engine.price_out=20000"]
    assert main(["run", "--dry-run", *settings, "verifier=compass-3b", *prices]) == 0
    assert sorted(tmp_path.rglob("*")) == before
    out = capsys.readouterr().out
    assert "sums-01, gold answer 2" in out
    assert "  | <|im_start|>user\n  | 1+1?\n  | \n" in out and "\\boxed{}.<|im_end|>" in out
    assert "questions: 3" in out and "pending: 12 of 12 attempts" in out
    # 12 attempts of at most 10 tokens, the paper's mean of their limit, 7.6 bytes of each
    assert "tokens: about 55 (a guess); at most 120" in out
    assert "disk: about 420B" in out and re.search(r"time: about .* on \d+ cores? here", out)
    assert "price: at most 2.40" in out


def test_dry_run_counts_what_is_there(settings: list[str], capsys: Capsys) -> None:
    assert main(["prepare", *settings]) == 0
    run = Run(load(settings))
    add_attempts(run, {"sums-01": "1100", "sums-02": "1"})
    capsys.readouterr()
    files = {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    assert main(["run", "--dry-run", *settings]) == 0
    assert files == {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    out = capsys.readouterr().out
    assert "pending: 7 of 12 attempts" in out
    assert "tokens: about 35 (the mean of those so far); prompts" in out
    judge = ["verifier=demo-judge", "dataset.judge=all", "verifier.sampling.trials=2"]
    judge += ["verifier.budget.tokens=9000", "verifier.engine.price_out=1000"]
    assert main(["run", "--dry-run", str(run.path), "sampling.trials=5", *judge]) == 0
    out = capsys.readouterr().out
    assert "pending: 10 of 15 attempts" in out
    # Two votes on each of two texts, of five attempts, and on four that ten more will bring.
    assert "pending for demo-judge: about 12 of 12 judgements" in out
    assert "at most 768" in out and "0 of 9,000 tokens" in out and "price: at most 0.77" in out
    assert files == {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}


def test_a_dry_run_estimates_what_is_not_here(
    monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)  # read at import
    asked = ["run", "--dry-run", "dataset=demo", "verifier=none", "model=custom"]
    assert main([*asked, "model.id=no/body-4B"]) == 0
    out = capsys.readouterr().out
    assert "prefetch" in out and "tokens: about 36.2M" in out and "the model's name" in out


def test_fewer_trials_than_are_there_see_a_changed_data_set(
    settings: list[str], tmp_path: Path, capsys: Capsys
) -> None:
    settings = [*settings, "verifier=none"]
    assert main(["prepare", *settings]) == 0
    run = Run(load_folder(tmp_path / "run", []))
    add_attempts(run, {row["question_id"]: "1101" for row in run.questions})
    assert main(["score", str(run.path)]) == 0
    capsys.readouterr()
    assert main(["run", *settings, "sampling.trials=2"]) == 0
    assert "4 trials exist" in capsys.readouterr().err
    path = tmp_path / "sums.jsonl"
    path.write_text(path.read_text().replace('"4"', '"5"'))
    assert main(["run", *settings, "sampling.trials=2"]) == 2
    assert "question sums-02 has changed" in one_error(capsys)


def test_a_verifier_that_cannot_be_had_does_not_keep_the_score(
    tmp_path: Path, capsys: Capsys
) -> None:
    run = make_run(tmp_path / "x", {"a": "1100", "b": "10-1"})
    later = "stages=[grade,verify,categorize,score]"
    settings = [str(run.path), later, "verifier.id=/nowhere/judge", "verifier.name=judge"]
    assert main(["run", *settings]) == 2
    out, err = capsys.readouterr()
    assert out.count("avg@4") == 1 and (run.path / "scores.json").is_file()
    last = err.splitlines()[-1]
    assert last.startswith("error: verify: verifier.id=/nowhere/judge") and "verifier=none" in last
    assert main(["run", *settings, "dataset.judge=all"]) == 2  # which decides the outcomes
    assert "avg@4" not in capsys.readouterr()[0]


@pytest.mark.parametrize(
    "setting",
    ["rubric=typo", "thresholds.file=none.json", "prior=none", "rubric.weights.typo=[1,2]"],
)
def test_what_later_stages_read_is_checked_before_sampling(
    setting: str, tmp_path: Path, capsys: Capsys
) -> None:
    folder = tmp_path / "run"
    assert main(["run", setting, f"run_dir={folder}"]) == 2
    assert setting.partition("=")[0] in capsys.readouterr().err and not folder.exists()


def test_runs_names_a_folder_of_runs(tmp_path: Path, capsys: Capsys) -> None:
    run_of(tmp_path / "all", "a")
    assert main(["status", f"runs={tmp_path / 'all'}", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["model"] == "a"
    assert main(["status", f"runs={tmp_path / 'none'}"]) == 2
    assert str(tmp_path / "none") in capsys.readouterr().err
