"""trajectory watch=FOLDER: which checkpoints are complete, the points, and all of it for real."""

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from forked import stored
from helpers import Capsys, write_questions
from made_windows import DEMO, SUMS, checkpoint, finish, sums

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import multirun as settings
from bayes_at_n.pipeline.training import stability, trajectory
from bayes_at_n.pipeline.training.watch import Watch, signature

OWN = [*SUMS, "watch=t", "merge=2", "dataset.path=sums.jsonl", "sampling.trials=8"]
REAL = [
    "trajectory", "model=demo", "watch=t", "watch.every=0.2", "merge=[]", "dataset=demo",
    "verifier=none", "replicates=50", "sampling.max_tokens=8", "sampling.trials=4", "greedy=false",
]  # fmt: skip


@pytest.fixture(autouse=True)
def asked(place: Path) -> None:
    write_questions(place / "sums.jsonl", sums(3))
    (place / "t").mkdir()


def _cut(folder: Path) -> None:
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-3])


PARTS: list[Callable[[Path], object]] = [
    _cut,
    lambda folder: (folder / "config.json").write_text('{"model_'),
    lambda folder: (folder / "merge.yaml").write_text("sources: []"),  # a mean, not of the training
]


@pytest.mark.parametrize("spoil", PARTS)
def test_a_checkpoint_that_is_still_written_is_not_whole(
    place: Path, spoil: Callable[[Path], object]
) -> None:
    folder = checkpoint(place / "t" / "s-1")
    assert signature(folder)
    spoil(folder)
    assert signature(folder) is None


def test_two_looks_alike_make_a_checkpoint_and_none_is_forgotten(
    place: Path, capsys: Capsys
) -> None:
    request = settings.load_trajectory(OWN)
    seen = Watch(request)
    seen.look()
    assert not seen.known and not seen.next()
    for step in (9, 10):
        checkpoint(place / "t" / f"s-{step}")
    seen.look()
    assert not seen.known
    (place / "t" / "s-10" / "tokenizer.json").write_text("{}")  # the trainer goes on writing
    seen.look()
    assert [one.name for one in seen.known] == ["s-9"]
    seen.look()
    assert [one.step for one in seen.known] == [9, 10]
    first = seen.next()
    assert [e.run.path.name for e in first] == ["t-s-9", "t-s-9-greedy"]
    checkpoint(place / "t" / "s-7")  # of an earlier step: windows do not shift
    seen.look()
    seen.look()
    assert len(seen.known) == 2 and "s-7" in capsys.readouterr().err
    shutil.rmtree(place / "t" / "s-9")
    again = Watch(request)
    again.look()
    assert [one.name for one in again.known] == ["s-9", "s-10"]
    assert again.next()[0].window.name == "s-10"  # without s-9 neither it nor the window is there
    assert "deleted" in capsys.readouterr().err
    trajectory.run([*OWN, "merge=[]"], dry_run=True)
    assert "7 to 10" in capsys.readouterr().out


def test_points_have_the_change_its_z_and_probability_tau_and_cost(place: Path) -> None:
    marks = [["11000000", "10000000"], ["11110000", "11000000"], ["11100000", "11000000"]]
    for step in (1, 2, 3):
        checkpoint(place / "t" / f"s-{step}", float(step))
    request = settings.load_trajectory([*OWN, "greedy=false", "merge=[]"])
    seen = Watch(request)
    write_questions(place / "sums.jsonl", sums(2))
    seen.look()
    seen.look()
    for [e], of in zip(seen.models(), marks, strict=True):
        finish(e, {f"q{i}": text for i, text in enumerate(of)})
    seen = Watch(request)
    seen.look()
    assert not seen.next()
    assert seen.series is not None
    rows = seen.points(stability.read(seen.series, request))
    R = np.array([[[int(mark) for mark in text] for text in of] for of in marks])
    scores = scoring.avg(R)[0]
    for i, row in enumerate(rows):
        assert (row["step"], row["value"]) == (i + 1, pytest.approx(scores[i]))
        assert row["tokens"] == 16 * 5
        # Two questions: prompts of 3 tokens, completions of 5.
        assert row["cost"] == pytest.approx(2 * scoring.sampling_cost(3, 5, 8) / 1e6)
        if i:
            c = scoring.compare(R[i], R[i - 1])
            assert (row["z"], row["probability"]) == pytest.approx(
                (math.copysign(c.z, c.difference), c.probability)
            )
            assert row["real"] == (c.z > 1.96)
    assert [row["tau"] for row in rows] == [None, 1, pytest.approx(1 / 3)]


def test_checkpoints_are_evaluated_as_they_appear(place: Path) -> None:
    """The engine that starts fastest; the second checkpoint comes when the first is evaluated."""
    target = place / "t" / "step-3900"

    def copy_slowly() -> None:
        while not (place / "runs/demo/demo-step-3800/scores.json").exists():
            time.sleep(0.05)
        target.mkdir()
        for path in sorted((DEMO / "step-3900").iterdir(), reverse=True):  # weights before config
            shutil.copy(path, target)
            time.sleep(0.05)

    shutil.copytree(DEMO / "step-3800", place / "t" / "step-3800")
    thread = threading.Thread(target=copy_slowly)
    thread.start()
    own = [*REAL, "watch.last=3900", "dataset.limit=2", "engine=transformers"]
    assert main.main(own) == 0
    thread.join()
    out = place / "runs/demo/_trajectory/demo"
    rows = json.loads((out / "trajectory.json").read_text())["tables"]["points"]
    assert [row["step"] for row in rows] == [3800, 3900] and rows[1]["z"] is not None
    for row in rows:
        scores = json.loads((place / f"runs/demo/demo-{row['name']}/scores.json").read_text())
        assert row["value"] == pytest.approx(scores["uniform_prior"]["avg"]["mean"])
    assert "refresh" not in (out / "index.html").read_text()  # it is over


@pytest.mark.soak
def test_a_watch_that_was_killed_goes_on_and_stops_at_its_budget(place: Path) -> None:
    """vLLM, whose weights are swapped; SIGKILL in the middle of sampling, then a budget."""
    for step in ("step-3700", "step-3800", "step-3900"):
        shutil.copytree(DEMO / step, place / "t" / step)
    own = [*REAL, "merge=2", "merge.keep=false", "watch.last=3900", "sampling.max_tokens=24"]
    command = [sys.executable, "-m", "bayes_at_n", *own]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    child = subprocess.Popen(command, env=environment, start_new_session=True)
    attempts = place / "runs/demo/demo-step-3700/attempts"
    while not (attempts.exists() and any(path.stat().st_size for path in attempts.iterdir())):
        assert child.poll() is None
        time.sleep(0.05)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert main.main([*own, "budget.tokens=6000"]) == 0
    out = place / "runs/demo/_trajectory/demo"
    before = json.loads((out / "trajectory.json").read_text())["tables"]["points"]
    assert main.main(own) == 0
    rows = json.loads((out / "trajectory.json").read_text())["tables"]["points"]
    steps = [(r["step"], r["window"]) for r in rows]
    assert steps == [(3700, 1), (3800, 1), (3800, 2), (3900, 1), (3900, 2)]
    assert 1 <= len(before) < 5 and rows[: len(before)] == before
    for run in (place / "runs/demo").glob("demo-*"):
        assert len(stored(run)) == 30 * 4  # none is lost, none is doubled
    sessions = [path.read_text() for path in (place / "runs/demo").glob("*/sessions/*.json")]
    assert any('"swapped in place"' in text for text in sessions)
    left = sorted(path.name for path in (place / "runs/_merged/demo").iterdir())
    assert left == ["step-3800-merge2.json", "step-3900-merge2.json"]
