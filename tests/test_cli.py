"""The command line: help that teaches, dry runs that write nothing, errors in one line."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, arithmetic, make_model, make_run, write_questions

from pipeline.cli.main import main
from pipeline.cli.verbs import VERBS
from pipeline.config import compose
from pipeline.config.compose import load
from pipeline.store import parquet
from pipeline.store.runfolder import Run


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture
def settings(tiny: Path, tmp_path: Path) -> list[str]:
    """Settings of a run of three questions in a folder that is not there yet."""
    questions = write_questions(tmp_path / "sums.jsonl", arithmetic(3))
    return [
        "model=custom",
        f"model.id={tiny}",
        "dataset=jsonl",
        f"dataset.path={questions}",
        "sampling.trials=4",
        "sampling.max_tokens=10",
        f"run_dir={tmp_path / 'run'}",
    ]


def one_error(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error; nothing is on standard output."""
    out, err = capsys.readouterr()
    assert not out and err.startswith("error: ") and err.count("\n") == 1, (out, err)
    return err


def check_help(text: str) -> None:
    for group in compose.groups():
        assert f"{group}=" in text
        for choice in compose.choices(group):
            assert choice in text
    assert text.count("  python -m pipeline run") >= 4
    assert "python -m pipeline run model=qwen3-30b dataset=aime25" in text
    keys = ("sampling.trials=80", "tag=NAME", "run_dir=DIR", "verifier.engine.name=transformers")
    for key in keys:
        assert key in text


OF_RUNS = [name for name, verb in VERBS.items() if verb.load is None or name == "status"]


@pytest.mark.parametrize("verb", OF_RUNS)
def test_the_help_of_every_verb_teaches(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main([verb, "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    check_help(text)
    assert f"usage: python -m pipeline {verb}" in text
    assert ("--dry-run" in text) == (verb in ("run", "prepare", "generate"))


def test_no_arguments_and_help_teach(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    text = capsys.readouterr().out
    check_help(text)
    for verb in VERBS:
        assert f"\n    {verb} " in text
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0 and capsys.readouterr().out == text


def test_as_programs() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pipeline"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and not done.stderr
    check_help(done.stdout)
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", "run", "sampling.trails=3"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and not done.stdout
    assert done.stderr.startswith("error: sampling.trails")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "model=qwen3-31b"], ["model=qwen3-31b", "qwen3-30b"]),
        (["status", "no/such/folder"], ["no/such/folder", "KEY=VALUE"]),
        (["score", "tests", "docs"], ["tests docs", "one run folder"]),
        (["status", "tests"], ["tests", "no run folder"]),
        (["run", "~model"], ["~model", "KEY=VALUE"]),
        (["score", "tests", "model=demo"], ["no run folder"]),
        (["prepare", "dataset=jsonl"], ["dataset.path"]),
    ],
)
def test_errors_are_one_line(
    arguments: list[str],
    named: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(arguments) == 2
    line = one_error(capsys)
    for word in named:
        assert word in line


@pytest.mark.parametrize("arguments", [["nope"], ["run", "--nope"], ["score", "--dry-run"]])
def test_unknown_verbs_and_options(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2 and "usage: python -m pipeline" in capsys.readouterr().err


@pytest.mark.parametrize("verb", ["generate", "grade", "score", "status"])
def test_a_run_that_is_not_prepared(
    verb: str, settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, *settings]) == 2
    assert "not prepared yet" in one_error(capsys)


@pytest.mark.parametrize("verb", ["run", "prepare", "generate"])
def test_dry_run_writes_nothing(
    verb: str, settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert main([verb, "--dry-run", *settings]) == 0
    assert sorted(tmp_path.rglob("*")) == before
    out = capsys.readouterr().out
    assert "sums-01, gold answer 2" in out
    assert "  | <|im_start|>user\n  | 1+1?\n  | \n" in out and "\\boxed{}.<|im_end|>" in out
    assert "questions: 3" in out and "owed: 12 of 12 attempts" in out
    # 12 attempts of at most 10 tokens: 8 bytes a token for numbers and about 3 for text
    assert "120 tokens (upper limit, sampling.max_tokens), 1.32kB" in out


def test_dry_run_counts_what_is_there(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from helpers import add_attempts

    assert main(["prepare", *settings]) == 0
    run = Run(load(settings))
    add_attempts(run, {"sums-01": "1100", "sums-02": "1"})
    capsys.readouterr()
    files = {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    assert main(["run", "--dry-run", *settings]) == 0
    assert files == {p: p.stat().st_mtime_ns for p in run.path.rglob("*")}
    out = capsys.readouterr().out
    assert "owed: 7 of 12 attempts" in out
    assert "35 tokens (mean of 5" in out
    assert "price" not in out
    assert main(["run", "--dry-run", str(run.path), "sampling.trials=5"]) == 0
    assert "owed: 10 of 15 attempts" in capsys.readouterr().out


def test_dry_run_shows_the_price_of_what_is_owed(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    from helpers import add_attempts

    assert main(["prepare", *settings]) == 0
    run = Run(load(settings))
    prompts = 4 * sum(len(row["prompt_token_ids"]) for row in run.questions)
    prices = ["engine.price_in=10000", "engine.price_out=20000"]  # a hundredth, two of a token
    assert main(["run", "--dry-run", *settings, *prices]) == 0
    most = (prompts + 2 * 120) / 100
    assert f"price: at most {most:,.2f}, with " in capsys.readouterr().out
    add_attempts(run, {"sums-01": "1100", "sums-02": "1"})  # of 3 and 5 tokens
    assert main(["run", "--dry-run", *settings, *prices]) == 0
    about = (prompts - 5 * 3 + 2 * 35) / 100
    assert f"price: about {about:,.2f}, with " in capsys.readouterr().out
    assert main(["run", "--dry-run", *settings, "engine.price_in=-1"]) == 2
    assert "engine.price_in=-1" in one_error(capsys)


def test_dry_run_refuses_what_prepare_would_refuse(
    settings: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prepare", *settings]) == 0
    capsys.readouterr()
    assert main(["run", "--dry-run", *settings, "sampling.temperature=1"]) == 2
    assert "sampling.temperature" in one_error(capsys)


def test_brackets_and_names_of_emoji_are_printed_as_they_are(
    tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {"id": "q[/b]", "problem": "[red]x[/red] :smile: [/]", "answer": "[/2]"}
    path = write_questions(tmp_path / "a[bold].jsonl", [row])
    settings = ["model=custom", f"model.id={tiny}", "dataset=jsonl", f"dataset.path='{path}'"]
    assert main(["run", "--dry-run", *settings, f"run_dir={tmp_path / 'run'}"]) == 0
    out = capsys.readouterr().out
    assert "q[/b], gold answer [/2]" in out
    assert "  | [red]x[/red] :smile: [/]\n" in out


def test_a_run_folder_by_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path / "run", {"a": "110", "b": "0~."})
    assert main(["score", str(run.path)]) == 0
    assert "Bayes@3" in capsys.readouterr().out
    assert main(["status", str(run.path)]) == 0
    assert "a 110   2/3" in capsys.readouterr().out
    assert main(["score", str(run.path), "model=demo"]) == 2
    assert "model=demo" in one_error(capsys)


def test_prefetch_of_what_is_here_says_where(
    settings: list[str], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prefetch", *settings, "verifier.id=null"]) == 0
    out = capsys.readouterr().out
    assert str(tiny) in out and "3 questions" in out and str(tmp_path / "sums.jsonl") in out
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir(mode=0o500)
    assert main(["prepare", *settings]) == 1
    assert "Permission denied" in one_error(capsys)


def test_a_run_folder_whose_place_is_taken(
    settings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").write_text("a file")
    assert main(["prepare", *settings]) == 1
    assert str(tmp_path / "run") in one_error(capsys)


def test_a_full_disk_while_preparing(
    settings: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(parquet, "writer", full)  # no other way to fill a disk here
    assert main(["prepare", *settings]) == 1
    assert "No space left on device" in one_error(capsys)
