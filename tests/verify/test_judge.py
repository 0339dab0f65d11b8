"""dataset.judge: outcomes that the verifier decides, with the demo's verifier on real attempts."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from forked import Attempts
from helpers import ROOT, Capsys, make_run, settings

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.grade import review
from bayes_at_n.pipeline.report import attempts
from bayes_at_n.pipeline.rubrics import categories, signals
from bayes_at_n.pipeline.status.progress import count, score
from bayes_at_n.pipeline.store import outcomes, shards, tables
from bayes_at_n.pipeline.store.outcomes import CORRECT, NO_ANSWER, PENDING, WRONG
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.verify import prompts, stage

VERIFIER = [
    "verifier.name=demo",
    f"verifier.id={ROOT / 'demo' / 'verifier'}",
    "verifier.prompt=demo",
    "verifier.engine.name=transformers",
    "verifier.engine.device=cpu",
]
OF_LABEL = {"A": "correct", "B": "wrong", "C": "no_answer"}
Table = dict[tuple[str, int], dict[str, Any]]


@pytest.fixture
def folder(reference: tuple[Path, Attempts], tmp_path: Path) -> Path:
    """A real run of 30 questions, not verified, whose rule grader failed on some right answers."""
    path = Path(shutil.copytree(reference[0], tmp_path / "run"))
    for made in ("verdicts", "label_logprobs"):
        shutil.rmtree(path / made, ignore_errors=True)
    [part] = (path / "grades").glob("*.parquet")
    grades = pq.read_table(part)  # with the record of what made them
    rows = grades.to_pylist()
    right = [row for row in rows if row["outcome"] == "correct"]
    right[0]["outcome"], right[1]["outcome"] = "unparsable", "timeout"
    pq.write_table(pa.Table.from_pylist(rows, schema=grades.schema), part)
    return path


def opened(folder: Path, *overrides: str) -> Run:
    return Run(load_folder(folder, [*VERIFIER, *overrides]))


def table(folder: Path, name: str) -> Table:
    rows = pq.read_table(folder / name).to_pylist() if any((folder / name).glob("*.pa*")) else []
    return {(row["question_id"], row["trial"]): row for row in rows}


def resolved(folder: Path, judge: str) -> dict[tuple[str, int], str]:
    """The outcomes by hand: of grades and verdicts as they lie on the disk."""
    verdicts, found = table(folder, "verdicts"), {}
    for key, grade in table(folder, "grades").items():
        found[key] = grade["outcome"]
        if grade["box"] != "truncated" and (judge == "all" or grade["outcome"] != "correct"):
            found[key] = OF_LABEL[verdicts[key]["label"]] if key in verdicts else "pending"
    return found


def read(run: Run, quiet: bool = False) -> dict[tuple[str, int], str]:
    found = outcomes.read(run, quiet)
    words = outcomes.words(found.codes)
    return {
        (qid, trial): str(words[row, trial])
        for row, qid in enumerate(found.question_ids)
        for trial in range(words.shape[1])
    }


def test_what_the_rules_do_not_accept_is_judged(folder: Path, capsys: Capsys) -> None:
    grades = table(folder, "grades")
    asked = {
        key
        for key, grade in grades.items()
        if grade["outcome"] != "correct" and grade["box"] != "truncated"
    }
    assert 0 < len(asked) < len(grades)
    assert main(["verify", str(folder), *VERIFIER, "dataset.judge=unmatched"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert table(folder, "verdicts").keys() == asked and table(folder, "grades") == grades
    run = Run(load_folder(folder, []))  # later stages know what was asked
    assert run.cfg.dataset.judge == "unmatched" and run.cfg.verifier.name == "demo"
    by_hand = resolved(folder, "unmatched")
    assert read(run) == by_hand
    accepted = sum(by_hand[key] == "correct" for key in asked)
    assert accepted >= 2  # the verifier likes some wrong ones, too
    decided = f"rule grader: {len(grades) - len(asked)}, by verifier demo: {len(asked)}"
    assert "judge=unmatched" in out and decided in out

    assert main(["score", str(folder)]) == 0
    captured = capsys.readouterr()
    assert decided in " ".join(captured.out.split()) and "another grader" in captured.err
    judge = json.loads((folder / "scores.json").read_text())["judge"]
    assert judge["accepted"] == accepted and judge["by"]["judge"] == "unmatched"
    matrix = np.load(folder / "matrix.npz")
    assert (matrix["R"] == 1).sum() == sum(word == "correct" for word in by_hand.values())
    review.write(run)
    assert decided in " ".join(capsys.readouterr().err.split())

    signals.make(run)  # only some have a verdict, so rubrics have none
    rows = signals.read(run).to_pylist()
    assert all(row["a"] is None for row in rows)
    known = {(row["question_id"], row["trial"]): row["is_correct"] for row in rows}
    assert known == {key: word == "correct" for key, word in by_hand.items()}
    ids = [question["question_id"] for question in run.questions]
    index = attempts.index(run, ids, texts=True).table
    assert index["layer"].to_pylist().count("verifier") == len(asked)


def test_outcomes_are_labels(folder: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    run = opened(folder, "dataset.judge=unmatched")
    real, parts = shards.write_part, list[Path]()

    def die(path: Path, *more: Any) -> None:
        parts.append(path)
        if len(parts) == 3:
            raise KeyboardInterrupt
        real(path, *more)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(prompts, "ROWS", 8)
        patched.setattr(shards, "write_part", die)
        stage.verify(run)
    assert not table(folder, "verdicts")
    assert read(run, quiet=True) == resolved(folder, "unmatched")  # "pending", never wrong
    assert "pending" in resolved(folder, "unmatched").values()
    for refused in (lambda: outcomes.read(run), lambda: categories.scored(run)):
        with pytest.raises(UserError, match=r"attempts wait for the verifier.*pipeline verify"):
            refused()
    counts = count(run)
    assert score(counts) is None
    stage.verify(run)
    before = table(folder, "verdicts")
    assert "pending" not in read(run).values()

    run = opened(folder, "dataset.judge=all")
    with pytest.raises(tables.Stale, match=r"verdicts .*judge.*verify"):
        read(run)
    assert "pending" in read(run, quiet=True).values()
    capsys.readouterr()
    stage.verify(run)
    assert "kappa" in capsys.readouterr().out
    after = table(folder, "verdicts")
    assert before.items() <= after.items() and after.keys() == table(folder, "grades").keys()
    by_hand = resolved(folder, "all")
    assert read(run) == by_hand
    signals.make(run)
    assert not signals.read(run)["a"].null_count

    with pytest.raises(tables.Stale, match="calibration"):
        read(opened(folder, "verifier.calibration=graded"))
    assert read(opened(folder, "dataset.judge=null")) == {
        key: row["outcome"] for key, row in table(folder, "grades").items()
    }


@pytest.mark.parametrize("judge", ["unmatched", "all"])
def test_what_cannot_work_is_refused(tmp_path: Path, judge: str, capsys: Capsys) -> None:
    one = f"dataset.judge={judge}"
    short = settings("dataset.answer=judge", *[one] * (judge != "all")).dataset
    assert (short.answer, short.judge) == ("math", judge)
    assert main(["settle", "model=demo,qwen3-4b", "dataset=demo", one, "seeds=independent"]) == 2
    assert f"dataset.judge={judge}: `settle`" in capsys.readouterr().err
    assert main(["trajectory", "model=demo", "checkpoints=demo/models", "dataset=demo", one]) == 2
    # A verdict of an attempt decides nothing for another one, and none is no outcome.
    run = make_run(tmp_path / "run", {"a": "10-u~"}, one)
    rule, open_ = [CORRECT, WRONG, NO_ANSWER, 3, NO_ANSWER], [PENDING] * 4 + [NO_ANSWER]
    expected = open_ if judge == "all" else [CORRECT, *open_[1:]]
    found = outcomes.read(run, quiet=True)
    assert found.codes[0].tolist() == expected and found.ruled[0].tolist() == rule
