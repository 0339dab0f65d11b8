"""Runs from Python: what the front returns is what the command line makes of the same folders."""

import asyncio
import json
import os
import random
import runpy
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import ROOT, Capsys, run_of

import bayes_at_n
from bayes_at_n.pipeline.api import verbs
from bayes_at_n.pipeline.api.verbs import compare, evaluate, load_run
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.engines import Request
from bayes_at_n.pipeline.engines.callable import CallableEngine, registered
from bayes_at_n.pipeline.store import runfolder

SUMS = [{"problem": f"What is {n} + {n}?", "answer": 2 * n} for n in range(1, 5)]
EIGHT = {"trials": 8}

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


class Adder:
    """A model that knows sums, and slips now and then; it remembers its calls."""

    def __init__(self, right: float = 0.75) -> None:
        self.right, self.luck, self.calls = right, random.Random(5), list[list[str]]()

    def __call__(self, prompts: list[str]) -> list[str]:
        self.calls.append(prompts)
        found = []
        for prompt in prompts:
            first, second = (int(word.strip("?")) for word in prompt.split()[2:5:2])
            found.append(rf"\boxed{{{first + second + (self.luck.random() > self.right)}}}")
        return found


def test_importing_the_fronts_costs_nothing() -> None:
    program = (
        "import sys, bayes_at_n\n"
        "print(dir(bayes_at_n))\n"
        "print([n for n in ('numpy', 'hydra', 'bayes_at_n.scoring') if n in sys.modules])\n"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    names, loaded = done.stdout.splitlines()
    assert "'load_run'" in names and loaded == "[]"
    assert bayes_at_n.evaluate is evaluate and bayes_at_n.UserError is UserError
    assert bayes_at_n.__version__ == metadata.version("bayes-at-n")
    with pytest.raises(AttributeError, match="evalute"):
        bayes_at_n.evalute  # noqa: B018


def test_a_function_on_a_list_of_questions_is_a_run_like_any_other(capsys: Capsys) -> None:
    adder = Adder()
    run = evaluate(model=adder, name="adder", dataset=SUMS, trials=8)
    assert run.path == Path("runs/questions/adder") and "4 questions, 8 trials" in repr(run)
    assert [len(prompts) for prompts in adder.calls] == [16, 16]
    assert adder.calls[0][0].startswith("What is 1 + 1?") and "boxed" in adder.calls[0][0]
    assert run.matrix.shape == (4, 8) and 0 < run.matrix.mean() < 1
    printed = capsys.readouterr()
    assert not printed.out and "generate: 32/32" in printed.err
    # What it is says which function it was, and that there are no seeds and no log-probs.
    identity = runfolder.read_manifest(run.run)["identity"]
    assert identity["model.weights"] == "served:test_api:Adder"
    assert (identity["model.name"], identity["engine.name"]) == ("adder", "callable")
    assert not identity["sampling.seed"] and not identity["sampling.logprobs"]
    # The command line goes on with its folder, finds nothing pending, and scores alike.
    saved = (run.path / "scores.json").read_text()
    assert main(["run", str(run.path)]) == 0 and len(adder.calls) == 2
    assert "nothing pending" in capsys.readouterr().err
    mine = run.scores()
    without_record = {k: v for k, v in json.loads(saved).items() if k != "made_from"}
    assert json.loads(json.dumps(mine)) == without_record and mine["attempts"] == 32
    # Reading writes nothing.
    there = {file: file.stat().st_mtime_ns for file in run.path.rglob("*")}
    assert "pass@2" in run.scores(metrics=["pass@2"])["metrics"]
    assert there == {file: file.stat().st_mtime_ns for file in run.path.rglob("*")}
    # What a matrix file holds, and everything in Arrow.
    stored = np.load(run.path / "matrix.npz")
    assert (run.matrix.filled(-1) == stored["R"]).all()
    attempts = run.attempts.to_pandas()
    assert (attempts.outcome == "correct").sum() == run.matrix.sum()
    assert attempts.logprobs.isna().all() and set(attempts.finish_reason) == {"stop"}
    assert run.questions.to_pandas().gold.tolist() == ["2", "4", "6", "8"]
    # Tables count and iterate their rows.
    assert (len(run.questions), len(run.attempts), len(run.grades)) == (4, 32, 32)
    assert {row["text"] for row in run.attempts} == {*attempts.text}


def test_attempts_are_arrow_and_only_what_is_asked_for(tmp_path: Path) -> None:
    run = load_run(run_of(tmp_path, "tiny").path)
    columns = ["answer", "trial", "outcome"]
    table = run.attempts.to_arrow(columns)
    assert table.column_names == columns and table.num_rows == run.matrix.size
    assert sum(batch.num_rows for batch in run.attempts.batches(["text"])) == table.num_rows
    whole = pa.table(run.attempts)  # any library that takes Arrow streams takes it so
    assert whole.schema == run.attempts.schema() and whole.num_rows == table.num_rows
    with pytest.raises(UserError, match=r"txt: not a column .*text"):
        run.attempts.to_arrow(["txt"])
    with pytest.raises(UserError, match=r"columns='text': pass a list"):
        run.attempts.to_pandas("text")
    with pytest.raises(UserError, match=r"has no config\.yaml"):
        load_run(tmp_path)
    (tmp_path / "results.csv").touch()
    with pytest.raises(UserError, match=r"is a file; .* runs/DATASET/MODEL"):
        load_run(tmp_path / "results.csv")


def test_a_function_that_fails_is_named_and_what_it_has_made_is_kept() -> None:
    adder = Adder()

    def failing(prompts: list[str]) -> list[str]:
        if len(adder.calls) == 1:
            raise KeyError("quota")
        return adder(prompts)

    arguments: dict[str, Any] = {"name": "adder", "dataset": SUMS, "sampling": EIGHT}
    with pytest.raises(TryAgain, match=r"failing raised KeyError: no 'quota'.*kept") as message:
        evaluate(model=failing, **arguments)
    assert isinstance(message.value.__cause__, KeyError)
    kept = load_run("runs/questions/adder").attempts.to_arrow()
    assert kept.num_rows == 16
    # The command line has no function, and imports none by its name.
    assert main(["run", "runs/questions/adder"]) == 2
    adder.calls.append([])
    run = evaluate(model=failing, **arguments)
    assert [len(prompts) for prompts in adder.calls] == [16, 0, 16]
    assert run.attempts.to_arrow().num_rows == 32
    # Another function under the same name is another model.
    with pytest.raises(UserError, match=r"model\.weights is .*failing.* there and .*Adder"):
        evaluate(model=adder, **arguments)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ("4", "returned str; .*list of 4 prompts.*list of as many texts"),
        ([None] * 4, "text 1 is NoneType"),
        (["4", "4", "4", "\ud800"], "text 4 .*surrogate"),
        (lambda: asyncio.sleep(0), "is async; .*asyncio.run"),
    ],
)
def test_what_is_no_list_of_texts_is_refused(returned: Any, message: str) -> None:
    def odd(prompts: list[str]) -> Any:
        return returned() if callable(returned) else returned

    cfg = compose.load(verbs.of_run(odd, "demo", "odd", {}))
    with registered(odd):
        engine = CallableEngine(cfg, 9)
    requests = [Request(f"q{i}", 0, None, 9, None, [{"content": "1 + 1?"}]) for i in range(4)]
    with pytest.raises(UserError, match=f"test_api:.*odd.*{message}"):
        list(engine.generate(requests))


def test_what_a_function_cannot_do_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    def echo(prompts: list[str]) -> list[str]:
        return prompts

    one: dict[str, Any] = {"model": echo, "name": "echo", "dataset": SUMS}
    refused: list[tuple[dict[str, Any], str]] = [
        (one | {"name": None}, "name: no value"),
        (one | {"sampling": {"logprobs": True}}, "sampling.logprobs=true"),
        (one | {"engine": {"replicas": 2}}, "engine.replicas=2"),
        (one | {"until": "width:0.1"}, "until=width:0.1"),
        (one | {"verifier": {"id": "x/y", "engine": {"name": "callable"}}}, "verifier.engine.name"),
        (one | {"dataset": [{"problem": "1", "answer": {1}}]}, "question 1: set"),
        (one | {"model": 3}, "model: int is neither"),
        (one | {"sampling": {"trails": 8}}, "did you mean sampling.trials"),
    ]
    for arguments, message in refused:
        with pytest.raises(UserError, match=message):
            evaluate(**arguments)
    assert not list(tmp_path.glob("runs/*/echo"))
    with pytest.raises(UserError, match="not in jobs"):
        from bayes_at_n.pipeline.cluster.submit import place_engines

        place_engines(compose.load(verbs.of_run(echo, "demo", "echo", {})), fixed=False)


def test_a_comparison_is_that_of_the_command_line(tmp_path: Path) -> None:
    marks = [{"q1": "1111", "q2": "1101"}, {"q1": "1010", "q2": "0000"}]
    runs = [run_of(tmp_path / "runs", name, of) for name, of in zip("ab", marks, strict=True)]
    found = compare([load_run(runs[0].path), runs[1].path], metrics=["pass@2"])
    assert not list(tmp_path.glob("runs/*/_compare"))
    assert main(["compare", *(str(run.path) for run in runs), "metrics=[pass@2]"]) == 0
    [written] = tmp_path.glob("runs/**/compare.json")
    [board] = [one["models"] for one in json.loads(written.read_text())["datasets"]]
    frame = found.leaderboard.to_pandas()
    assert frame.model.tolist() == [row["model"] for row in board] == ["a", "b"]
    assert frame.pass_at_2.tolist() == [row["pass_at_2"] for row in board]
    assert found.conclusion.models == ["a", "b"] and repr(found) == found.conclusion.sentence()
    assert found.cohort.matrix().shape == (2, 2, 4)
    assert set(found.figures()) == {"forest"}
    assert found.leaderboard._repr_markdown_().startswith("**leaderboard")
    # Of several datasets all questions count together.
    other = run_of(tmp_path / "runs", "a", {"q3": "00", "q4": "10"}, dataset="more")
    both = compare([runs[0].path, other.path])
    assert both.cohort.question_ids == ["sums/q1", "sums/q2", "more/q3", "more/q4"]
    for wrong in ([], [tmp_path], runs[0].path, str(tmp_path), load_run(runs[0].path)):
        with pytest.raises(UserError):
            compare(wrong)


@pytest.mark.parametrize(
    ("script", "printed"),
    [
        ("compare_matrices.py", "on other questions of the same kind with probability"),
        ("function_as_model.py", "3x4  1.00 of 16 trials"),
        ("own_metric.py", "always correct: 0.50 of the questions"),
    ],
)
def test_an_example_runs(script: str, printed: str, capsys: Capsys) -> None:
    runpy.run_path(str(ROOT / "examples" / script), run_name="__main__")
    assert printed in capsys.readouterr().out
