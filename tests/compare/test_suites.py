"""Suites: datasets with weights, from a YAML file to the mean of `compare`."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers import run_of

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import command
from bayes_at_n.pipeline.compare.comparison import compare
from bayes_at_n.pipeline.config import analysis, compose

pytestmark = pytest.mark.usefixtures("undrawn")

ONE = {"q1": "1101", "q2": "0100", "q3": "1111"}
TWO = {"r1": "0001", "r2": "0110"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs of two models on two datasets, and a suite of these in ./configs."""
    for name in ("a", "b"):
        run_of(tmp_path / "runs", name, ONE, dataset="one")
        run_of(tmp_path / "runs", name, TWO, dataset="two", gold=dict.fromkeys(TWO, "3"))
    write(tmp_path, "datasets: {two: 1, one: 3}\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def write(root: Path, text: str) -> None:
    (root / "configs/dataset/suite").mkdir(parents=True, exist_ok=True)
    (root / "configs/dataset/suite/mine.yaml").write_text(text)


def test_the_mean_of_a_suite_is_weighted_and_so_is_its_interval(folder: Path) -> None:
    compare(analysis.load(["dataset=suite/mine", "out=out"]))
    record = json.loads((folder / "out" / "compare.json").read_text())
    row = record["scores"][0]
    parts = [
        scoring.score_ci(np.array([[int(x) for x in line] for line in marks.values()]))
        for marks in (ONE, TWO)
    ]
    sigma = ((3 * parts[0].sigma) ** 2 + parts[1].sigma ** 2) ** 0.5 / 4
    assert row["_mean"] == pytest.approx((3 * parts[0].value + parts[1].value) / 4)
    assert row["_mean_sigma"] == pytest.approx(sigma)
    assert row["_mean_half"] == pytest.approx(1.959964 * sigma)
    assert [one["dataset"] for one in record["datasets"]] == ["two", "one"]
    compare(analysis.load(["dataset=suite/mine", "dataset_weights.one=1", "out=alike"]))
    alike = json.loads((folder / "alike" / "compare.json").read_text())["scores"][0]
    assert alike["_mean"] == pytest.approx((parts[0].value + parts[1].value) / 2)


def test_every_verb_takes_the_datasets_of_a_suite(folder: Path) -> None:
    parsed = command.parse(["score", "dataset=suite/mine"])
    assert parsed.folders == [f"runs/{name}" for name in ("two/a", "two/b", "one/a", "one/b")]
    assert compose.expand(["dataset=suite/paper", "trials=2"]) == [
        [f"dataset={name}", "sampling.trials=2"]
        for name in ("aime25", "aime24", "hmmt25", "brumo25")
    ]
    for name in compose.files("dataset/suite", {"": compose.CONFIGS}):
        assert compose.suite(f"suite/{name}").keys() <= compose.files("dataset").keys()


@pytest.mark.parametrize("text", ["one: 1\n", "datasets: [one]\n", "datasets: {one: 0}\n", "x: ["])
def test_a_suite_that_is_none_is_named_with_its_file(folder: Path, text: str) -> None:
    write(folder, text)
    with pytest.raises(UserError, match=r"mine\.yaml") as caught:
        analysis.load(["dataset=suite/mine"])
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (["dataset=suite/min"], "suite/min"),
        (["dataset=one", "dataset_weights.two=1"], "dataset_weights.two"),
        (["dataset=one", "dataset_weights.one=-1"], "dataset_weights.one"),
    ],
)
def test_a_wrong_suite_or_weight_names_its_key(
    folder: Path, settings: list[str], named: str
) -> None:
    with pytest.raises(UserError, match=named):
        analysis.load(settings)
