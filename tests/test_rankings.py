"""Rankings by scorio's methods beside our own: the same as theirs, in bounds, and what is said."""

import csv
import inspect
import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import run_of
from scorio import rank

from pipeline.base.console import Meter
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import complete, from_arrays
from pipeline.cohorts.compare import compare
from pipeline.cohorts.rankings import bootstrap, replicates, scores
from pipeline.config import analysis
from pipeline.config.rankings import METHODS

MARKS = {
    "good": {"a": "111101", "b": "110110", "c": "0111~1"},
    "near": {"a": "110011", "b": "110111", "c": "010101"},
    "poor": {"a": "1000", "b": "0~~0", "c": "0100"},
}
TENSOR = (np.random.default_rng(3).random((3, 6, 5)) < [[[0.4]], [[0.5]], [[0.7]]]).astype(np.int8)
DEAR = {"rasch_mml", "rasch_mml_credible", "thompson", "bayesian_mcmc"}


OURS = {"avg", "bayes", "pass_at_k", "pass_hat_k", "g_pass_at_k_tau", "mg_pass_at_k"}


def test_every_function_is_listed() -> None:
    functions = {name for name in rank.__all__ if inspect.isfunction(getattr(rank, name))}
    assert functions == {*METHODS, *OURS}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.soak] * (n in DEAR)) for n in METHODS]
)
def test_scores_are_theirs(name: str) -> None:
    given = METHODS[name].parameters
    try:
        theirs = getattr(rank, name)(TENSOR, return_scores=True, **given)[1]
    except Exception as error:
        assert str(scores(name, TENSOR)).startswith(f"{type(error).__name__}: ")
    else:
        np.testing.assert_allclose(scores(name, TENSOR), theirs, rtol=METHODS[name].error)


def test_only_complete_trials_count() -> None:
    """Trials that all models made of all questions; one of them is enough."""
    data = np.full((2, 2, 4), 1)
    data[0, 1, 2] = data[1, 0, 0] = -1
    cohort = from_arrays("gaps", ["a", "b"], ["1", "2"], data)
    kept, notes = complete(cohort)
    assert kept.shape == (2, 2, 2) and "2 of 4 trials" in notes[0]
    assert complete(cohort, least=1)[0].shape == (2, 2, 2)
    data[0, 0, 1] = -1
    with pytest.raises(UserError, match=r"1 of 4 trials .* needs 2 or more: generate"):
        complete(from_arrays("gaps", ["a", "b"], ["1", "2"], data))
    assert scores("borda", np.ma.masked_equal(data, -1)) == "some trials are owed"
    assert "at least 2 models" in str(scores("borda", TENSOR[:1]))


def test_questions_that_say_nothing_are_not_asked() -> None:
    flat = np.repeat(np.array([0, 1], np.int8)[None, :, None], 5, axis=2).repeat(3, axis=0)
    both = np.concatenate([TENSOR, flat], axis=1)
    with pytest.raises(ValueError, match="all-correct or all-wrong question"):
        rank.rasch(both)
    np.testing.assert_array_equal(scores("rasch", both), scores("rasch", TENSOR))
    assert scores("rasch", flat) == "all attempts got every question right, or all wrong"


def drawn(count: int, seconds: float) -> tuple[list[Any], str]:
    return bootstrap("borda", TENSOR, count, seconds, Meter("rankings", count))


def forever(*_: Any, **__: Any) -> Any:
    while True:
        pass


def killed(*_: Any, **__: Any) -> Any:
    os.kill(os.getpid(), signal.SIGKILL)


def nothing(tensor: Any, **_: Any) -> Any:
    return None, np.full(len(tensor), np.nan)


def huge(*_: Any, **__: Any) -> Any:
    return None, np.ones(1 << 40)


def slow(tensor: Any, **_: Any) -> Any:
    sum(range(300_000))
    return None, tensor.mean(axis=(1, 2))


def ended(*_: Any, **__: Any) -> Any:
    raise SystemExit


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (ended, "no ranks: its process ended with status 1"),
        (forever, "no ranks: more than 0.2 s of processor time; that grows as L M N;"),
        (killed, "no ranks: its process ended with status -9"),
        (nothing, "no ranks: ValueError: the result holds nan"),
        (huge, "no ranks: MemoryError|no ranks: _ArrayMemoryError"),
        (slow, "too slow for 99,999 replicates: about .*; ranking.seconds=\\d+ is enough"),
    ],
)
def test_what_cannot_be_done_is_said(what: Any, said: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(rank, "borda", what)
    made, lacking = drawn(99_999, 0.2)
    assert len(made) == (what is slow)
    assert re.match(said, lacking), lacking


def test_a_bootstrap_that_is_cut_off_shows_no_interval(monkeypatch: Any) -> None:
    def late(tensor: Any, **_: Any) -> Any:
        return slow(tensor) if (tensor == TENSOR).all() else calls.pop()(tensor)

    calls = [forever, slow, slow]
    monkeypatch.setattr(rank, "borda", late)
    made, lacking = drawn(4, 0.2)
    assert len(made) == 1 and "no intervals, 2 of 4 replicates" in lacking


def test_failed_replicates_are_counted(monkeypatch: Any) -> None:
    def odd(tensor: Any, **_: Any) -> Any:
        if tensor.sum() % 2 != TENSOR.sum() % 2:
            raise RuntimeError("no\nconvergence")
        return None, tensor.mean(axis=(1, 2))

    monkeypatch.setattr(rank, "borda", odd)
    made, lacking = drawn(20, 9)
    failed = sum(int(t.sum()) % 2 != TENSOR.sum() % 2 for t in replicates(TENSOR, 20))
    assert len(made) == 21 - failed
    assert lacking == f"{failed} of 20 replicates have none: RuntimeError: no convergence"


def compared(root: Path, *arguments: str) -> dict[str, Any]:
    settings = [f"runs={root}", f"out={root / 'out'}", "dataset=sums", *arguments]
    compare(analysis.load(settings))
    found: dict[str, Any] = json.loads((root / "out" / "compare.json").read_text())
    return found["datasets"][0]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("rankings")
    for name, marks in MARKS.items():
        run_of(root, name, marks)
    return root


@pytest.mark.usefixtures("undrawn")
def test_compare_shows_them_beside_the_default(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = compared(
        root, "ranking=copeland,bradley_terry", "ranking.replicates=40", "metrics=bayes,avg"
    )
    shown = " ".join(capsys.readouterr().out.split())
    rows = found["ranking_methods"]
    assert [row["model"] for row in rows] == ["good", "near", "poor"]
    tensor = np.array([[[int(m == "1") for m in line[:4]] for line in marks.values()]
                       for marks in MARKS.values()])  # fmt: skip
    for name in ("copeland", "bradley_terry"):
        try:
            theirs, scores = getattr(rank, name)(tensor, return_scores=True, method="dense")
        except ValueError as error:
            assert f"{name}: no ranks: ValueError: {error}" in shown
            assert f"{name}_score" not in rows[0]
            continue
        assert [row[f"{name}_rank"] for row in rows] == theirs.tolist()
        assert [row[f"{name}_score"] for row in rows] == scores.tolist()
        others = [getattr(rank, name)(t, method="dense") for t in replicates(tensor, 40)]
        for i, row in enumerate(rows):
            of_model = sorted(int(ranks[i]) for ranks in others)
            assert (row[f"{name}_from"], row[f"{name}_to"]) == (of_model[0], of_model[38])
            first = sum((ranks[i] == 1) / (ranks == 1).sum() for ranks in others) / 40
            assert row[f"{name}_first"] == pytest.approx(first)
    assert "sums: 4 of 6 trials are complete" in shown
    assert {row["rank"] for row in rows} <= {1, 2, 3}
    lines = csv.DictReader((root / "out" / "ranking_methods.csv").open())
    assert [line["copeland_rank"] for line in lines] == [str(row["copeland_rank"]) for row in rows]
    again = compared(root, "ranking=copeland,bradley_terry", "replicates=40", "metrics=bayes,avg")
    assert again["ranking_methods"] == rows


@pytest.mark.usefixtures("undrawn")
def test_one_trial_has_ranks_and_no_intervals(tmp_path: Path) -> None:
    """And a question that all got right is not given to a method that would refuse it."""
    for name, marks in {"a": "1101", "b": "1010", "c": "1001"}.items():
        run_of(tmp_path, name, dict(zip("wxyz", marks, strict=True)))
    found = compared(tmp_path, "ranking=borda,rasch_map", "replicates=20")
    assert {"borda_rank", "rasch_map_rank"} <= found["ranking_methods"][0].keys()
    assert "borda_from" not in found["ranking_methods"][0]
    notes = " ".join(found["notes"]["ranking_methods"])
    assert "no intervals: of one trial" in notes and "not used: 1 questions, rasch_map" in notes


@pytest.mark.usefixtures("undrawn")
def test_nothing_of_scorio_without_ranking(root: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "scorio", None)
    assert "ranking_methods" not in compared(root)
    with pytest.raises(UserError, match="of no method; write ranking="):
        compared(root, "ranking.replicates=20")
    with pytest.raises(UserError, match=r'pip install "bayes-at-n\[rank\]"'):
        compared(root, "ranking=borda")


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("ranking=bradly_terry", "ranking.methods=bradly_terry: no such .*mean bradley_terry"),
        ("ranking=borda,xyz", "ranking.methods=xyz: no such method .*majority_judgment"),
        ("ranking.seconds=0", "must be above 0"),
    ],
)
def test_wrong_settings(setting: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        analysis.load([setting])


def test_all_is_every_method_once() -> None:
    chosen = analysis.load(["ranking=borda,all"]).ranking.chosen()
    assert chosen == [*METHODS]
    assert analysis.load(["ranking=borda,rasch,borda"]).ranking.chosen() == ["borda", "rasch"]
