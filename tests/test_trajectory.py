"""trajectory: which models are evaluated, how their curves are judged, and all of it for real."""

import itertools
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from forked import stored
from helpers import Capsys, make_run, write_questions
from safetensors.numpy import save_file

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config import trajectory as settings
from bayes_at_n.pipeline.config.trajectory import MergeConfig, TrajectoryConfig
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.store import parquet, runfolder
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.training import merge
from bayes_at_n.pipeline.training.checkpoints import fingerprint
from bayes_at_n.pipeline.training.protocols import Tokens
from bayes_at_n.pipeline.training.trajectory import (
    beside,
    evaluate,
    figures,
    forms,
    plan,
    preview,
    samples,
    stability,
    summary,
    tracks,
    variance,
    verb,
    windows,
)
from bayes_at_n.pipeline.training.trajectory.plan import Evaluation, TrajectoryPlan
from bayes_at_n.pipeline.training.trajectory.tracks import Track
from bayes_at_n.pipeline.workers import resident
from bayes_at_n.pipeline.workers.resident import Order, Residents
from bayes_at_n.scoring.metrics import table

ROOT = Path(__file__).resolve().parent.parent
DEMO = ROOT / "demo" / "models"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs are made below the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def checkpoint(folder: Path, value: float = 0.0) -> Path:
    """Weights that can be merged, though no engine would load them."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text('{"model_type": "qwen3", "architectures": ["Tiny"]}')
    save_file({"w": np.full((2, 2), value, np.float32)}, folder / "model.safetensors")
    return folder


def sums(count: int) -> list[dict[str, Any]]:
    return [{"id": f"q{n}", "problem": f"{n}+{n}?", "answer": str(2 * n)} for n in range(count)]


def ckpts(root: Path, *names: str) -> Path:
    for i, name in enumerate(names):
        checkpoint(root / name, float(i))
    return root


def planned(*arguments: str) -> tuple[settings.Asked[TrajectoryConfig], TrajectoryPlan]:
    asked = settings.load(arguments)
    return asked, plan.make(asked)


# --- settings, checkpoints, plans -------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model=demo"], "checkpoints=FOLDER"),
        (["checkpoints=", "model=demo"], "checkpoints: "),
        (["checkpoints=a", "checkpoints.b=b"], "give every training run a name, or none"),
        (["checkpoints=a", "merge=1"], "merge.windows=1: "),
        (["checkpoints=a", "merge=x"], "merge.windows"),
        (["checkpoints=a", "merges=4"], "did you mean merge"),
        (["checkpoints=a", "samplng.trials=4"], "did you mean sampl"),
        (["checkpoints=a", "merge.keeps=false"], "did you mean merge.keep"),
        (["checkpoints=a", "model=demo,custom"], "model: "),
        (["checkpoints=a", "run_dir=x"], "run_dir=x: leave it out"),
        (["checkpoints=a", "stages=[grade]"], "stages=[grade]: leave it out"),
        (["checkpoints=a", "model.id=x"], "model.id=x: leave it out"),
        (["checkpoints=a", "sampling.trials=4,8"], "sampling.trials: takes one value"),
        (["checkpoints=a", "pass_k=1,4"], "pass_k: no such key"),
        (["checkpoints=a", "metrics=pas@4"], "did you mean pass@4"),
        (["checkpoints=a", "metrics=pass@0"], "pass@0: "),
        (["checkpoints=a", "confidence=95"], "confidence=95.0: "),
        (["checkpoints=a", "replicates=1"], "replicates=1: "),
        (["checkpoints=a", "prices.output=-1"], "prices.output=-1.0: "),
        (["checkpoints=a", "runs/x"], "runs/x: "),
        (["checkpoints=a", "out="], "out="),
    ],
)
def test_wrong_settings_give_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(UserError) as error:
        planned(*arguments)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_own_settings_and_those_of_runs_are_told_apart() -> None:
    found = settings.load(
        ["model=demo", "dataset=demo,aime25", "checkpoints=[a, b]", "merge=8,4,4", "tag=t",
         "merge.keep=false", "output=2", "sampling.trials=4", "metrics=pass@16,maj@4"]
    )  # fmt: skip
    assert found.cfg.checkpoints == {"": ["a", "b"]} and found.cfg.merge.windows == [4, 8]
    assert not found.cfg.merge.keep and found.cfg.metrics == ["pass@16", "maj@4"]
    assert found.cfg.prices.output == 2 and found.cfg.prices.cache_miss == 1.25
    assert found.models == [["model=demo", "tag=t", "sampling.trials=4"]]
    assert found.datasets == [["dataset=demo"], ["dataset=aime25"]]
    assert settings.load(["checkpoints=a"]).cfg.merge.windows == [4]
    assert settings.load(["checkpoints=a", "merge=[]"]).cfg.merge.windows == []
    two = settings.load(["checkpoints.x=a", "checkpoints.y=b,c"]).cfg.checkpoints
    assert two == {"x": ["a"], "y": ["b", "c"]}
    globs = settings.load(["checkpoints=t/step-[0-9]*,u/step-3[0-9]"]).cfg.checkpoints
    assert globs == {"": ["t/step-[0-9]*", "u/step-3[0-9]"]}


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([4], "merge=4: "),
        ([3], "merge=3: "),
    ],
)
def test_windows_that_cannot_be_are_refused(tmp_path: Path, sizes: list[int], message: str) -> None:
    ckpts(tmp_path, "s-1", "s-2", "s-3")
    with pytest.raises(UserError) as error:
        plan.find({"": [str(tmp_path)]}, sizes)
    assert message in str(error.value) and "\n" not in str(error.value)
    assert plan.find({"": [str(tmp_path)]}, [2])[0].steps == [1, 2, 3]


def test_a_trajectory_needs_two_checkpoints_of_different_names(tmp_path: Path) -> None:
    ckpts(tmp_path / "a", "s-1", "s-2")
    ckpts(tmp_path / "b", "s-1")
    with pytest.raises(UserError, match="holds 1 checkpoint"):
        plan.find({"": [str(tmp_path / "b")]}, [])
    with pytest.raises(UserError, match=r"are both called s-1; .*checkpoints\.NAME"):
        plan.find({"": [str(tmp_path / "a"), str(tmp_path / "b")]}, [])
    with pytest.raises(UserError, match="nowhere"):
        plan.find({"": [str(tmp_path / "nowhere")]}, [])


def test_steps_that_say_nothing_are_counted(tmp_path: Path, capsys: Capsys) -> None:
    ckpts(tmp_path / "a", "early", "late-2")
    ckpts(tmp_path / "b", "s-5", "s-9")
    found = plan.find({"a": [str(tmp_path / "a")], "b": [str(tmp_path / "b")]}, [])
    assert [one.steps for one in found] == [[1, 2], [1, 2]]
    assert "early has no step" in capsys.readouterr().err
    backwards = [str(tmp_path / "b" / "s-9"), str(tmp_path / "b" / "s-5")]
    assert plan.find({"": backwards}, [])[0].steps == [1, 2]
    assert "s-5 comes after s-9" in capsys.readouterr().err


@pytest.mark.parametrize(
    "more",
    [
        ["model=demo"],
        ["model=demo", "tag=t", "sampling.trials=4"],
        ["model=custom"],
        ["model=qwen3-4b", "sampling=paper", "dataset=demo,aime25"],
        ["model=demo", "model.name=my-3b"],
    ],
)
def test_what_is_planned_is_what_each_command_gives(place: Path, more: list[str]) -> None:
    ckpts(place / "it's training", "s-1", "s-2", "s-3")
    _, made = planned(f"checkpoints={place}/it's training", "merge=2", *more)
    for one in made.evaluations:
        assert compose.load(one.settings) == one.run.cfg
    paths = [one.run.path for one in made.evaluations]
    assert len(set(paths)) == len(paths) == (3 + 2) * 2 * len(made.datasets)


def test_names_of_runs_are_those_of_the_models_own_checkpoints(place: Path) -> None:
    _, made = planned("model=demo", f"checkpoints={DEMO}", "merge=4", "dataset=demo")
    own = compose.load(["model=demo", "model.checkpoint=step-3900", "dataset=demo"])
    single = next(one for one in made.evaluations if one.run.path == Path(own.run_dir))
    assert runfolder.identity(single.run.cfg) == runfolder.identity(own)
    assert made.label == "demo" and made.out == Path("runs/demo/_trajectory/demo")
    two = planned("model=demo", f"checkpoints={DEMO}", "dataset=demo,aime25", "tag=t")[1]
    assert two.out == Path("runs/_trajectory/demo-t")
    last = made.evaluations[-1]
    assert last.run.path == Path("runs/demo/demo-step-4000-merge4-greedy") and last.greedy
    assert last.window.path == (place / "runs/_merged/demo/step-4000-merge4")
    assert [path.name for path in last.window.sources] == [
        f"step-{n}" for n in (3700, 3800, 3900, 4000)
    ]
    assert len(made.evaluations) == 2 * (18 + 15)

    ckpts(place / "math", "checkpoint-500", "checkpoint-1000")
    _, made = planned(
        "model=custom", "checkpoints=math", "merge=[]", "greedy=false", "dataset=demo"
    )
    assert made.label == "math"
    names = [one.run.cfg.model.name for one in made.evaluations]
    assert names == ["math-checkpoint-500", "math-checkpoint-1000"]
    ckpts(place / "code", "checkpoint-500", "checkpoint-1000")
    _, made = planned("model=qwen3-4b", "checkpoints.m=math", "checkpoints.c=code", "merge=[]")
    assert made.evaluations[-1].run.cfg.model.name == "qwen3-4b-c-checkpoint-1000"
    with pytest.raises(UserError, match="called sums"):
        planned("model=demo", "checkpoints=math", "merge=[]", "dataset=jsonl",
                "dataset.path=a/sums.jsonl,b/sums.jsonl")  # fmt: skip


def test_two_evaluations_of_one_run_folder_are_refused(place: Path) -> None:
    ckpts(place / "t", "s-1", "s-2", "s-2-merge2")
    with pytest.raises(
        UserError, match=r"would be the run folder of .*t/s-2-merge2 and of .*_merged"
    ):
        planned(*SUMS, "checkpoints=t", "merge=2", "dataset.path=x/sums.jsonl")
    ckpts(place / "u", "s-1", "s-1-greedy")
    with pytest.raises(UserError, match=r"would be the run folder of .*u/s-1 and of .*s-1-greedy"):
        planned(*SUMS, "checkpoints=u", "merge=[]", "dataset.path=x/sums.jsonl")
    assert planned(*SUMS, "checkpoints=u", "merge=[]", "greedy=false", "dataset.path=x/s.jsonl")


def test_a_folder_for_results_that_cannot_be_made_is_refused_first(place: Path) -> None:
    ckpts(place / "t", "s-1", "s-2")
    write_questions(place / "sums.jsonl", sums(1))
    (place / "file").write_text("")
    with pytest.raises(NotADirectoryError, match="file/in/it"):
        verb.run([*SUMS, "checkpoints=t", "merge=[]", "dataset.path=sums.jsonl",
                                "out=file/in/it"])  # fmt: skip
    assert not (place / "runs").exists()


# --- where runs stand -------------------------------------------------------------------------


SUMS = ("model=custom", "dataset=jsonl", "sampling.prompt_logprobs=false", "verifier=none")


def finish(one: Evaluation, marks: Mapping[str, str]) -> None:
    """The folder of an evaluation as its run would leave it."""
    run = make_run(one.run.path, marks, *one.settings, f"run_dir={one.run.path}")
    identity = runfolder.read_manifest(run)["identity"]
    hashes = {q.id: q.hash for q in questions.load(one.run.cfg.dataset)[0]}
    identity["questions"] = {qid: hashes[qid] for qid in marks}
    if one.window.size == 1:
        identity["model.weights"] = fingerprint(one.window.path)
    runfolder.write_json(run.manifest, {"format": 2, "identity": identity})


def stand(one: Evaluation) -> evaluate.Remaining:
    return evaluate.remaining(one, questions.load(one.run.cfg.dataset)[0])


def test_a_run_is_finished_when_nothing_of_it_would_be_made_again(place: Path) -> None:
    ckpts(place / "t", "s-1", "s-2")
    write_questions(place / "sums.jsonl", sums(2))
    ask = [*SUMS, "checkpoints=t", "merge=[]", "dataset.path=sums.jsonl"]
    one, greedy = planned(*ask, "sampling.trials=3")[1].evaluations[:2]
    assert stand(one) == (6, 0, 0, False) and stand(greedy) == (2, 0, 0, False)
    finish(one, {"q0": "110", "q1": "0.+"})
    assert stand(one) == (1, 1, 0, False)
    finish(one, {"q0": "110", "q1": "010"})
    assert stand(one).finished
    more = planned(*ask, "sampling.trials=4")[1].evaluations[0]
    assert stand(more).owed == 2
    fewer = planned(*ask, "sampling.trials=2")[1].evaluations[0]
    marks = tracks._outcomes(fewer.run, tracks_order(fewer))
    assert stand(fewer).finished and marks.tolist() == [[1, 1], [0, 1]]
    other = planned(*ask, "sampling.trials=3", "grading.timeout_s=2")[1].evaluations[0]
    assert stand(other) == (0, 6, 0, False)
    with pytest.raises(UserError, match=r"sampling\.temp"):
        stand(planned(*ask, "sampling.trials=3", "sampling.temperature=1")[1].evaluations[0])
    write_questions(place / "sums.jsonl", [*sums(1), {"id": "q1", "problem": "x", "answer": 1}])
    with pytest.raises(UserError, match="question q1"):
        stand(one)
    write_questions(place / "sums.jsonl", sums(2))
    save_file({"w": np.ones((2, 2), np.float32) * 7}, place / "t" / "s-1" / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.weights is"):
        stand(one)


def tracks_order(one: Evaluation) -> list[str]:
    return [q["question_hash"] for q in one.run.questions]


def test_merged_weights_are_made_removed_and_remembered(place: Path, capsys: Capsys) -> None:
    ckpts(place / "t", "s-1", "s-2", "s-3")
    write_questions(place / "sums.jsonl", sums(1))
    ask = [*SUMS, "checkpoints=t", "merge=2", "dataset.path=sums.jsonl", "sampling.trials=2"]
    one = planned(*ask)[1].evaluations[-2]
    window = one.window
    assert windows.known(window) is None
    windows.make(window)
    weights = windows.known(window)
    assert weights and (window.path / "merge.yaml").is_file()
    made = (window.path / "model.safetensors").stat().st_mtime_ns
    windows.make(window)
    assert (window.path / "model.safetensors").stat().st_mtime_ns == made
    finish(one, {"q0": "10"})
    assert stand(one) == (0, 0, 0, False)
    left = window.path.parent / f".{window.path.name}.merging"
    left.mkdir()  # of a removal that was stopped
    windows.remove(window)
    assert [path.name for path in window.path.parent.iterdir()] == [f"{window.path.name}.json"]
    assert windows.known(window) == weights
    assert stand(one) == (0, 0, 0, False)
    save_file({"w": np.ones((2, 2), np.float32) * 7}, place / "t" / "s-2" / "model.safetensors")
    with pytest.raises(UserError, match=r"merge2\.json.*s-2.*delete"):
        stand(one)
    (window.path.parent / f"{window.path.name}.json").unlink()
    assert stand(one) == (0, 0, 0, True)  # nothing is left that says what it was made of


def merged_run(place: Path, training: str) -> Evaluation:
    """A finished run of a window whose weights are there."""
    ckpts(place / training, "s-1", "s-2", "s-3")
    write_questions(place / "sums.jsonl", sums(1))
    one = planned(*SUMS, f"checkpoints={training}", "merge=2", "dataset.path=sums.jsonl",
                  "sampling.trials=2")[1].evaluations[-2]  # fmt: skip
    windows.make(one.window)
    finish(one, {"q0": "10"})
    run = one.run
    identity = runfolder.read_manifest(run)["identity"]
    identity["model.weights"] = windows.known(one.window)
    runfolder.write_json(run.manifest, {"format": 2, "identity": identity})
    return one


def test_runs_are_kept_where_merged_weights_cannot_be_recognised(place: Path) -> None:
    one = merged_run(place, "t")
    folder = one.window.path
    assert stand(one) == (0, 0, 0, False)
    only = r"s-3-merge2: .*; delete this folder only: it is merged again, and its runs stay if the"
    (folder / "merge.yaml").write_text("version: 1000\nsources: []\n")
    for refuse in (lambda: stand(one), lambda: windows.make(one.window)):
        with pytest.raises(UserError, match=only):
            refuse()  # no weights that nobody knows are sampled
    with pytest.raises(UserError, match=only):
        windows.remember(one.window)
    assert not folder.with_name(f"{folder.name}.json").exists()
    for path in folder.iterdir():
        path.unlink()
    with pytest.raises(UserError, match=only):
        stand(one)
    folder.rmdir()
    windows.make(one.window)
    assert stand(one).finished
    save_file({"w": np.ones((2, 2), np.float32) * 7}, place / "t" / "s-2" / "model.safetensors")
    with pytest.raises(UserError, match=r"s-2.*delete"):
        stand(one)


def test_merged_weights_of_another_training_are_never_taken_or_deleted(place: Path) -> None:
    one = merged_run(place, "x/t")
    windows.remember(one.window)
    ckpts(place / "y/t", "s-1", "s-2", "s-3")
    save_file({"w": np.ones((2, 2), np.float32) * 7}, place / "y/t/s-3/model.safetensors")
    ask = [*SUMS, "merge=2", "dataset.path=sums.jsonl", "sampling.trials=2"]
    other = planned(*ask, "checkpoints=y/t")[1].evaluations[-2]
    assert other.window.path == one.window.path
    remedy = r"is the mean of other checkpoints: .*x/t/s-2.*checkpoints\.NAME=FOLDER, or delete"
    with pytest.raises(UserError, match=remedy):
        stand(other)
    for refuse in (windows.make, windows.remove):
        with pytest.raises(UserError, match=remedy):
            refuse(other.window)
    assert (one.window.path / "merge.yaml").is_file()
    windows.remove(one.window)
    with pytest.raises(UserError, match=r"merge2\.json.*other checkpoints"):
        stand(other)
    assert stand(planned(*ask, "checkpoints.y=y/t")[1].evaluations[-2]).owed == 2


def test_a_dry_run_says_how_each_owed_run_is_made_elsewhere(
    place: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    ckpts(place / "it's t", "s-1", "s-2")
    checkpoint(place / "it's t" / "s-3", 2.0)
    write_questions(place / "sums.jsonl", sums(1))
    ask = [*SUMS, "checkpoints=it's t", "merge=2", "dataset.path=sums.jsonl", "tag=x",
           "sampling.trials=2", "model.name=m"]  # fmt: skip
    made = planned(*ask)[1]
    done, *owed = made.evaluations
    finish(done, {"q0": "10"})
    verb.run(ask, dry_run=True)
    told = capsys.readouterr().out
    at = told.index("weights to be merged first")
    merges, runs = [part.splitlines()[1:] for part in told[at:].strip().split("\n\n")]
    assert len(merges) == 2 and len(runs) == len(owed) == 9
    for one, line in zip(owed, runs, strict=True):
        cfg = compose.load(shlex.split(line))
        assert cfg == one.run.cfg
    for line in merges:
        merge.run(compose.load_as(MergeConfig, shlex.split(line)))
    for one in owed:
        run = made_elsewhere(one)
        assert stand(run).finished
    verb.run(ask, dry_run=True)
    assert "owed, settings" not in capsys.readouterr().out
    manifest = runfolder.read_manifest(done.run)
    del manifest["identity"]["questions"]
    runfolder.write_json(done.run.manifest, manifest)
    verb.run(ask, dry_run=True)
    table = capsys.readouterr().out
    assert "unprepared" in table and "runs owed, settings" in table
    monkeypatch.setattr(preview, "_MOST", 2)
    monkeypatch.setattr(preview.results, "_force_terminal", True)
    preview._show("title", [["1"], ["2"], ["3"]])
    assert "and 1 more" in capsys.readouterr().out


def made_elsewhere(one: Evaluation) -> Evaluation:
    finish(one, {"q0": "1" * one.run.cfg.sampling.trials})
    return one


def test_failures_stop_no_other_run_and_a_stop_stops_all(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capsys
) -> None:
    """With a program in place of Python that fails, or was stopped, as its model's name says."""
    ckpts(place / "t", "a-1", "bad-2", "c-3")
    write_questions(place / "sums.jsonl", sums(1))
    asked = list[str]()

    def fake(_: Residents, orders: list[Order]) -> list[int]:
        [order] = orders
        asked.append(order.model)
        return [130 if "quit-" in order.model else 7 if "bad-" in order.model else 0]

    monkeypatch.setattr(Residents, "follow", fake)
    ask = [*SUMS, "merge=[]", "greedy=false", "dataset.path=sums.jsonl", "sampling.trials=2"]
    with pytest.raises(UserError) as error:
        verb.run([*ask, "checkpoints=t"])
    assert error.value.exit_code == 1  # those that left nothing, as if others were at it
    assert "3 of 3 runs are not finished: runs/sums/t-a-1" in str(error.value)
    told = capfd.readouterr()
    assert "evaluating 2 of 3: t-bad-2" in told.err and "left" in told.err and not told.out
    assert len(asked) == 3
    ckpts(place / "u", "a-1", "quit-2", "z-3")
    with pytest.raises(UserError, match="stopped at runs/sums/u-quit-2") as error:
        verb.run([*ask, "checkpoints=u"])
    assert error.value.exit_code == 130
    assert len(asked) == 3 + 2


def send_once_heard(number: int, ready: Path | None = None, after: Path | None = None) -> None:
    """Signal this process when it listens and a file is there; then make another file."""
    ignored = signal.getsignal(number)

    def send() -> None:
        while signal.getsignal(number) == ignored or (ready and not ready.exists()):
            time.sleep(0.01)
        os.kill(os.getpid(), number)
        if after:
            after.touch()

    threading.Thread(target=send, daemon=True).start()


def ended(code: str) -> int:
    """The status of an order that is this program."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resident, "PROGRAM", [sys.executable, "-c", code])
        with Residents() as residents:
            return residents.follow([Order("", [])])[0]


def test_a_signal_to_this_process_reaches_the_run() -> None:
    send_once_heard(signal.SIGTERM)
    assert ended("import time; time.sleep(600)") == 143
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGUSR1, 85)])
def test_a_stop_that_a_run_outlives_is_one(number: int, status: int, tmp_path: Path) -> None:
    ready, after = tmp_path / "ready", tmp_path / "after"
    code = f"""
import os, signal, time
signal.signal(signal.SIGUSR1, signal.SIG_IGN)
open({str(ready)!r}, "w").close()
while not os.path.exists({str(after)!r}):
    time.sleep(0.01)
"""
    send_once_heard(number, ready, after)
    assert ended(code) == status


# --- analysis ---------------------------------------------------------------------------------


def track(right: Any, trials: int, **more: Any) -> Track:
    """With the first trials of every question correct, the others wrong."""
    return along(np.arange(trials) < np.asarray(right)[..., None], **more)


def along(marks: Any, **more: Any) -> Track:
    """`greedy` is (n, M), 1 where the greedy attempt is right."""
    R = np.asarray(marks, np.int8)
    steps = np.arange(1, len(R) + 1) * 100
    names = [f"s-{step}" for step in steps]
    if "greedy" in more:
        more["greedy"] = np.asarray(more["greedy"])[..., None]
    base = Track("", "sums", 1, steps, names, R, None, Tokens(3.0, 5.0), Tokens(None, None))
    return base._replace(**more)


def tau_of(scores: Sequence[float]) -> float:
    n = len(scores)
    rising = sum(b > a + 1e-12 for a, b in itertools.combinations(scores, 2))
    return 4 * rising / (n * (n - 1)) - 1


def pass_at(c: int, n: int, k: int) -> float:
    return 1 - math.comb(n - c, k) / math.comb(n, k)


RIGHT = [[0, 1, 2], [1, 1, 2], [3, 0, 4], [2, 4, 5], [4, 4, 6]]  # of eight, by checkpoint
CFG = TrajectoryConfig(metrics=["pass@1", "pass@2", "pass@4"], replicates=400)


def one_of(rows: Sequence[Any], **cells: Any) -> Any:
    found = [row for row in rows if all(row[key] == value for key, value in cells.items())]
    assert len(found) == 1, found
    return found[0]


def test_curves_and_taus_are_those_of_the_formulas() -> None:
    own = track(RIGHT, 8, greedy=np.array([[0, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]]))
    curve = stability.curve([own], CFG).rows
    rows = stability.stability([own], CFG)
    z = NormalDist().inv_cdf(0.975)
    expected = {
        "avg": [sum(r) / 24 for r in RIGHT],
        "bayes": [sum((c + 1) / 10 for c in r) / 3 for r in RIGHT],
        "greedy": [0, 1 / 3, 1 / 3, 2 / 3, 1],
        **{f"pass@{k}": [sum(pass_at(c, 8, k) for c in r) / 3 for r in RIGHT] for k in (1, 2, 4)},
    }
    for metric, values in expected.items():
        found = [row for row in curve if row["metric"] == metric]
        assert [row["value"] for row in found] == pytest.approx(values)
        row = one_of(rows, metric=metric, steps="common")
        assert row["tau"] == pytest.approx(tau_of(values)) and row["n"] == 5
        falls = sum(b < a for a, b in itertools.pairwise(values))
        assert row["down"] == pytest.approx(falls / 4)
        if metric == "greedy":
            assert row["tau_mean"] is None and row["real_up"] is None
            assert row["tau"] == pytest.approx(0.8)  # the tie is discordant
            assert row["tau_b"] == pytest.approx(9 / math.sqrt(90)) and found[1]["low"] is None
            assert row["flat"] == 0.25
    sigmas = [
        math.sqrt(sum((c + 1) * (9 - c) / 100 / 11 for c in r)) / 3 for r in RIGHT
    ]  # of Bayes@8
    bayes = [row for row in curve if row["metric"] == "bayes"]
    assert [row["sigma"] for row in bayes] == pytest.approx(sigmas)
    assert bayes[4]["high"] == pytest.approx(bayes[4]["value"] + z * sigmas[4])
    for i in range(1, 5):
        change = bayes[i]["value"] - bayes[i - 1]["value"]
        half = z * math.hypot(sigmas[i], sigmas[i - 1])
        assert (bayes[i]["change"], bayes[i]["change_low"]) == pytest.approx(
            (change, change - half)
        )
        assert bayes[i]["real"] == (abs(change) > half)
    assert bayes[0]["real"] is None
    row = one_of(rows, metric="bayes", steps="all")
    assert row["real_up"] == sum(b["real"] and b["change"] > 0 for b in bayes[1:])
    assert row["protocol"] == "Merge@1, Bayes@8"


def columns_drawn(n: int, shares: Sequence[float]) -> dict[tuple[int, int], float]:
    """Chances of (c of the first, c of the second) for n columns of kinds 00, 10, 01 and 11."""
    found: dict[tuple[int, int], float] = {}
    for kinds in itertools.product(range(n + 1), repeat=4):
        if sum(kinds) == n:
            ways = math.factorial(n) / math.prod(map(math.factorial, kinds))
            chance = ways * math.prod(s**k for s, k in zip(shares, kinds, strict=True))
            at = (kinds[1] + kinds[3], kinds[2] + kinds[3])
            found[at] = found.get(at, 0) + chance
    return found


def test_bootstrap_and_pairs_are_what_enumeration_gives() -> None:
    """Two checkpoints, one question: every outcome of n draws has a known probability."""
    cfg = TrajectoryConfig(metrics=["pass@2"], replicates=20000, seed=5)
    one = along([[[1, 1, 0, 0, 0, 0, 0, 0]], [[1, 0, 1, 1, 1, 1, 0, 0]]])
    shares = [2 / 8, 1 / 8, 4 / 8, 1 / 8]
    found = samples.samples([one], cfg)
    for n in (1, 2, 8):
        chances = columns_drawn(n, shares)
        assert sum(chances.values()) == pytest.approx(1)
        tau = {(i, j): 1 if j > i else -1 for i, j in chances}
        row = one_of(found["samples"].rows, metric="bayes", n=n)
        assert row["tau_mean"] == pytest.approx(
            sum(p * tau[at] for at, p in chances.items()), abs=0.03
        )
        flat = sum(p for (i, j), p in chances.items() if i == j)
        assert (row["flat_mean"], row["tau_b_undefined"]) == pytest.approx((flat, flat), abs=0.015)
        rising = sum(p for (i, j), p in chances.items() if j > i) / (1 - flat)
        assert row["tau_b_mean"] == pytest.approx(2 * rising - 1, abs=0.03)
        assert row["tau"] == (1 if n == 8 else None)
        if n == 1:
            continue

        def other_of(at: tuple[int, int], n: int = n) -> tuple[float, float]:
            return pass_at(at[0], n, 2), pass_at(at[1], n, 2)

        other = {at: tau_of(other_of(at)) for at in chances}
        pair = one_of(found["pairs"].rows, metric="pass@2", n=n)
        above = sum(p for at, p in chances.items() if tau[at] > other[at])
        below = sum(p for at, p in chances.items() if tau[at] < other[at])
        assert (pair["above"], pair["below"]) == pytest.approx((above, below), abs=0.015)
        assert pair["above"] + pair["equal"] + pair["below"] == pytest.approx(1)
        mean = one_of(found["samples"].rows, metric="pass@2", n=n)["tau_mean"]
        assert pair["difference"] == pytest.approx(row["tau_mean"] - mean)
        untied = {at: p for at, p in chances.items() if tau_b_of(at) and tau_b_of(other_of(at))}
        same = sum(p for at, p in untied.items() if tau_b_of(at) == tau_b_of(other_of(at)))
        assert pair["equal_b"] == pytest.approx(same / sum(untied.values()), abs=0.015)


def tau_b_of(two: Sequence[float]) -> int:
    """Of two scores; 0 where they tie."""
    return (two[1] > two[0]) - (two[1] < two[0])


def test_merged_and_single_are_drawn_jointly() -> None:
    """Merged models with the very outcomes of single ones gain nothing in any replicate."""
    marks = np.random.default_rng(2).integers(0, 2, (5, 3, 8))
    single, pair = along(marks), along(marks, window=2)
    gains = samples.samples([single, pair], CFG)["gains"].rows
    assert gains and all(row["equal"] == row["equal_b"] == 1 for row in gains)
    assert {(row["low"], row["high_b"]) for row in gains} == {(0, 0)}


@pytest.mark.parametrize("steps", [3, 4, 5])
def test_few_steps_tell_no_tau_from_chance(steps: int) -> None:
    """Scores that fall for sure, and merged ones that rise: certain to be so again."""
    rising = [[4 * i] for i in range(steps)]
    single, pair = track(rising[::-1], 16), track(rising, 16, window=2)
    rows = stability.stability([single, pair], CFG)
    gains = samples.samples([single, pair], CFG)["gains"].rows
    merge = forms.tables(rows, gains)["merge"]
    row = one_of(merge.rows, metric="avg@16")
    assert row["improve"] == 2 and any("-2 to 2" in note for note in merge.notes)
    [own] = [r for r in rows if r["metric"] == "avg" and r["window"] == 2 and r["steps"] == "all"]
    assert -1 <= own["tau_low"] <= own["tau_high"] <= 1
    few = (row["gain_low"], row["gain_high"]) == (-2, 2) and own["tau_low"] == -1
    assert few == (steps < 5)


def test_greedy_has_a_tau_of_its_own_and_no_replicates() -> None:
    right = np.array([[0, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]])
    own = track(RIGHT, 8, greedy=right)
    row = one_of(samples.samples([own], CFG)["samples"].rows, metric="greedy")
    assert (row["tau"], row["down"], row["flat"]) == (pytest.approx(0.8), 0, 0.25)
    assert row["tau_mean"] is None and row["tau_b_mean"] is None and row["flat_mean"] is None


def test_costs_are_those_of_appendix_c() -> None:
    cfg = TrajectoryConfig(metrics=["pass@2"], replicates=10)
    own = track(RIGHT, 8, greedy=np.ones((5, 3), int), tokens=Tokens(100.0, 40.0),
                greedy_tokens=Tokens(100.0, 30.0))  # fmt: skip
    rows = samples.samples([own], cfg)["samples"].rows
    for n in (1, 2, 4, 8):
        row = one_of(rows, metric="bayes", n=n)
        each = (1.25 * 100 + 0.125 * 100 * (n - 1) + 10 * 40 * n) / 1e6 * 3
        assert row["cost"] == pytest.approx(each) and row["cost_trajectory"] == pytest.approx(
            5 * each
        )
        assert row["cost_ratio"] == pytest.approx(each / ((125 + 400) / 1e6 * 3))
    assert one_of(rows, metric="greedy")["cost"] == pytest.approx((125 + 300) / 1e6 * 3)
    unknown = samples.samples([own._replace(tokens=Tokens(None, 40.0))], cfg)["samples"].rows
    assert all(row["cost"] is None for row in unknown)


def test_windows_are_compared_over_the_steps_that_all_have() -> None:
    single = track([[0], [3], [2], [4], [5]], 8)
    pair = track([[1], [2], [3], [6]], 8, window=2)._replace(steps=single.steps[1:])
    rows = stability.stability([single, pair], CFG)
    assert one_of(rows, metric="avg", window=1, steps="all")["n"] == 5
    common = one_of(rows, metric="avg", window=1, steps="common")
    assert common["n"] == 4 and common["tau"] == pytest.approx(tau_of([3, 2, 4, 5]))
    gains = samples.samples([single, pair], CFG)["gains"].rows
    made = forms.tables(rows, gains)
    assert list(made) == ["protocols", "merge", "passk"]
    costs = samples.samples([single, pair], CFG)["samples"].rows
    assert {row["points"] for row in costs} == {4}
    assert all(row["cost_trajectory"] == pytest.approx(4 * row["cost"]) for row in costs)
    row = one_of(made["merge"].rows, metric="avg@8")
    assert row["original"] == pytest.approx(2 / 3) and row["merge"] == 1
    assert row["improve"] == pytest.approx(1 / 3)
    assert row["gain_low"] <= one_of(gains, metric="bayes", n=8)["difference"] <= row["gain_high"]
    first = made["protocols"].rows
    assert [row["protocol"] for row in first] == [
        "Original (Merge@1, Pass@1)",
        "+ Merge@2",
        "+ Pass@4",
        "MaP (Merge@2, Pass@4)",
    ]
    assert first[0]["of_sums"] == pytest.approx(2 / 3) and first[1]["of_sums"] == 1
    last = made["passk"].rows
    assert [row["protocol"] for row in last] == ["Pass@1", "Pass@2", "Pass@4"]
    assert last[0]["of_sums"] == pytest.approx(tau_of([0, 3, 2, 4, 5]))
    three = track([[2], [3], [4]], 8, window=3)._replace(steps=single.steps[2:])
    more = forms.tables(stability.stability([single, pair, three], CFG), [])
    assert one_of(more["windows"].rows, metric="Pass@4")["merge_3"] == 1


def test_an_attempt_without_a_grade_is_refused(place: Path) -> None:
    ckpts(place / "t", "s-1", "s-2")
    write_questions(place / "sums.jsonl", sums(2))
    made = planned(*SUMS, "checkpoints=t", "merge=[]", "greedy=false", "sampling.trials=3",
                   "dataset.path=sums.jsonl")[1]  # fmt: skip
    for one in made.evaluations:
        finish(one, {"q0": "110", "q1": "0.+"})
    with pytest.raises(UserError, match="t-s-1: not every attempt has a grade; run `grade`"):
        tracks.read(made)


def test_intervals_of_pass_at_k_hold_near_n() -> None:
    """Models that are all alike: steps are hardly ever real, at k = N and p = 0.05, too."""
    outcomes = np.random.default_rng(3).random((400, 30, 16)) < 0.05
    own = along(outcomes)
    for k in (1, 16):
        found = table.parse(f"pass@{k}").summary(own.R)
        real = stability.changes(found, 0.95)["real"]
        assert 0.005 < np.mean(real) < 0.12
        right = outcomes.sum(axis=-1)
        expected = np.mean(right > 0, axis=-1) if k == 16 else outcomes.mean(axis=(1, 2))
        np.testing.assert_allclose(found.value, expected)
    z = NormalDist().inv_cdf(0.975)
    np.testing.assert_allclose(found.high, np.minimum(1, found.value + z * found.sigma))
    spread_of = found.value.std(ddof=1)
    assert found.sigma.mean() == pytest.approx(spread_of, rel=0.2)


def test_what_the_prior_moved_is_told_once(capsys: Capsys) -> None:
    own = track([[0, 1], [1, 0], [40, 41], [80, 80]], 80)
    rows = stability.curve([own], CFG).rows
    found = [row["shrinkage"] for row in rows if row["metric"] == "bayes"]
    means = [sum((c + 1) / 82 for c in pair) / 2 for pair in ([0, 1], [1, 0], [40, 41], [80, 80])]
    sigma = math.sqrt(2 * 1 * 81 / 82**2 / 83) / 2
    assert found[3] == pytest.approx((means[3] - 1) / sigma)
    assert {row["shrinkage"] for row in rows if row["metric"] != "bayes"} == {None}
    told = capsys.readouterr().err.replace("\n", " ")
    assert told.count("the uniform prior moved") == 1 and "0.5 σ at 3 of 4 points (s-400 -1" in told
    stability.curve([track([[40, 41], [50, 50]], 80)], CFG)
    assert not capsys.readouterr().err


def test_notes_say_percent_as_it_is_and_how_many_steps_are_real_by_chance() -> None:
    cfg = TrajectoryConfig(metrics=["pass@2"], replicates=10, confidence=0.975)
    rows = stability.stability([track([[c] for c in range(18)], 18)], cfg)
    notes = " ".join(stability.stability_table(rows, cfg).notes)
    assert "97.5 % interval leaves out 0" in notes and "about 0.43 would be" in notes
    assert "more ties" in notes and "repeating the trials" not in notes
    curve = stability.curve([track([[1], [2]], 4)], cfg)
    assert any("97.5 % credible interval" in note for note in curve.notes)


def test_a_summary_says_what_the_tables_hold() -> None:
    single = track([[0], [3], [2], [4], [5]], 8)
    pair = track([[1], [2], [3], [6]], 8, window=2)._replace(steps=single.steps[1:])
    rows: dict[str, Any] = {"stability": stability.stability([single, pair], CFG)}
    rows |= {stem: of.rows for stem, of in samples.samples([single, pair], CFG).items()}
    merges = forms.tables(rows["stability"], rows["gains"])["merge"].rows
    first, second, third = summary.lines(rows["stability"], rows["pairs"], merges, CFG)
    assert first.startswith("highest τ over the 4 steps that all windows share: 1.000 (Merge@2, a")
    assert first.endswith("Merge@1, avg@8 has 0.667")
    assert second == (
        "merging moves MaP's τ of avg@8 in windows of 2 from 0.667 to 1.000 (difference +0.333 on a"
        " scale of -2 to 2, 95 % bootstrap interval -2.000 to +2.000)"
    )
    pairs = one_of(rows["pairs"], window=1, n=8, metric="pass@4")
    assert third.startswith(
        f"τ of Bayes@8 is above that of Pass@4 on the same trials in {100 * pairs['above']:.0f} %"
    )
    alone = stability.stability([single], CFG)
    assert len(summary.lines(alone, rows["pairs"], [], CFG)) == 2


def test_trainings_side_by_side() -> None:
    a = track([[10, 20], [30, 30], [20, 30], [60, 70]], 80, training="a")
    b = track([[20, 20], [10, 10], [60, 60], [62, 70]], 80, training="b")
    b = b._replace(steps=np.array([100, 200, 300, 500]))
    rows = beside.ahead([a, b], CFG).rows
    assert [row["step"] for row in rows] == [100, 200, 300]
    row = rows[1]
    variance = sum((82 / 80) ** 2 * (c + 1) * (81 - c) / 82**2 / 83 / 4 for c in (30, 30, 10, 10))
    assert row["difference"] == pytest.approx(40 / 160)
    assert row["probability"] == pytest.approx(NormalDist().cdf(0.25 / math.sqrt(variance)))
    crossed = one_of(beside.crossings(rows, CFG).rows, first="a", second="b")
    assert (crossed["steps"], crossed["crossings"], crossed["real"]) == (3, 2, 1)
    assert (crossed["first_ahead"], crossed["settled"]) == (1, 2)
    assert (crossed["from"], crossed["to"], crossed["at"]) == (100, 300, "100, 200, 300")


def test_pictures_of_merging_and_of_trainings_draw_averages() -> None:
    """Where the prior pulls hard avg@N and Bayes@N are far apart."""
    singles = [track([[0, 1], [1, 0], [80, 79], [80, 80]], 80, training=name) for name in "ab"]
    pairs = [one.at([200, 300])._replace(window=2) for one in singles]
    read = [singles[0], pairs[0], singles[1], pairs[1]]
    made: dict[str, Any] = {
        "curve": stability.curve(read, CFG).rows, "ahead": beside.ahead(read, CFG).rows,
        "samples": [], "variance": [],
    }  # fmt: skip
    drawn = figures.draw(made, CFG)
    for name in ("merge_a", "side_by_side"):
        axes = drawn[name].axes[0]
        assert axes.get_ylabel() == "avg@N, share correct"
        assert axes.lines[0].get_ydata() == pytest.approx([1 / 160, 1 / 160, 159 / 160, 1])


def test_equal_totals_do_not_cross() -> None:
    """The same mean summed over other questions differs by rounding: no crossing, no sign."""
    one, other = [12, 26, 17], [17, 26, 12]
    a = track([one, other, one, [30, 30, 30]], 30, training="a")
    b = track([other, one, other, [20, 20, 20]], 30, training="b")
    found = [table.parse("avg").summary(of.R).value for of in (a, b)]
    assert (found[0] != found[1])[:3].all()  # else this would show nothing
    rows = beside.ahead([a, b], CFG).rows
    assert [row["difference"] for row in rows[:3]] == [0, 0, 0]
    assert [row["probability"] for row in rows[:3]] == [0.5] * 3 and not rows[0]["real"]
    crossed = one_of(beside.crossings(rows, CFG).rows, first="a")
    assert (crossed["crossings"], crossed["first_ahead"], crossed["settled"]) == (0, 1, 1)


def test_crossings_are_counted_where_all_windows_are_and_real_ones_along_real_steps() -> None:
    def of(*differences: float, window: int = 1, second: str = "b", first: int = 1) -> list[Any]:
        where = {"first": "a", "second": second, "dataset": "d", "window": window}
        return [
            {**where, "step": first + i, "difference": d, "real": abs(d) > 1}
            for i, d in enumerate(differences)
        ]

    # Unresolved steps lie between the real ones, and on both sides of 0.
    rows = [*of(2, 0.5, -0.5, -2, 0, -3, 0.1, 2), *of(1, -1, second="c")]
    rows += of(-2, -0.5, 3, 2, window=4, first=4)
    found = beside.crossings(rows, CFG).rows
    single, merged_ones = (one_of(found, second="b", window=w) for w in (1, 4))
    assert (single["steps"], single["from"], single["to"]) == (4, 4, 7)
    assert (single["crossings"], single["real"], single["settled"]) == (1, 0, 2)
    assert (merged_ones["crossings"], merged_ones["real"]) == (1, 1)
    assert one_of(found, second="c")["crossings"] == 1
    alone = beside.crossings(of(2, 0.5, -0.5, -2, 0, -3, 0.1, 2), CFG).rows[0]
    assert (alone["crossings"], alone["real"], alone["settled"]) == (2, 2, 4)


def test_sigma_of_pass_at_k_three_ways() -> None:
    rows = variance.variances([track([[3, 0], [4, 4], [2, 7]], 8)], CFG).rows
    assert {(row["which"], row["name"]) for row in rows} == {
        ("oldest", "s-100"),
        ("newest", "s-300"),
    }
    for k in (1, 2, 4):
        row = one_of(rows, k=k, which="newest")
        exact = delta = 0.0
        for p in (2 / 8, 7 / 8):
            chances = [math.comb(8, s) * p**s * (1 - p) ** (8 - s) for s in range(9)]
            values = [pass_at(s, 8, k) for s in range(9)]
            mean = sum(map(float.__mul__, chances, values))
            exact += sum(q * (v - mean) ** 2 for q, v in zip(chances, values, strict=True))
            delta += (k * (1 - p) ** (k - 1)) ** 2 * p * (1 - p) / 8
        assert row["plug_in"] == pytest.approx(exact / 4)
        assert row["delta"] == pytest.approx(delta / 4)
        assert row["delta_ratio"] == pytest.approx(delta / exact)
        rng = np.random.default_rng(0)
        drawn = 1 - (1 - rng.beta([3, 8], [7, 2], (200_000, 2))) ** k
        assert row["posterior"] == pytest.approx(drawn.mean(axis=1).var(), rel=0.02)
    p, deltas, posteriors = variance.along_p(8, [1, 4])
    at = int(np.argmin(np.abs(p - 0.3)))
    rng = np.random.default_rng(1)
    seen = rng.binomial(8, 0.3, 300_000)
    exact = np.var([pass_at(c, 8, 4) for c in range(9)] @ np.eye(9)[:, seen])
    drawn = 1 - (1 - rng.beta(1 + seen, 9 - seen, (1, seen.size))) ** 4
    within = sum(np.var(drawn[0, seen == c]) * np.mean(seen == c) for c in range(9))
    assert list(posteriors) == list(deltas) == ["k = 4"]
    assert posteriors["k = 4"][at] == pytest.approx(within / exact, rel=0.02)
    assert np.isnan(posteriors["k = 4"][[0, -1]]).all()


def marks_of(right: Sequence[int], trials: int) -> dict[str, str]:
    return {f"q{q}": "1" * c + "0" * (trials - c) for q, c in enumerate(right)}


@pytest.mark.usefixtures("undrawn")
def test_finished_runs_become_tables_pictures_and_a_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    """Two training runs from run folders to files, and no process is started."""
    for name in ("m", "c"):
        ckpts(place / name, "s-1", "s-2", "s-3")
    checkpoint(place / "c" / "s-4", 9.0)
    write_questions(place / "sums.jsonl", sums(3))
    ask = [*SUMS, "dataset.path=sums.jsonl", "sampling.trials=8", "merge=2", "replicates=50",
           "checkpoints.m=m", "checkpoints.c=c"]  # fmt: skip
    made = planned(*ask)[1]
    rng = np.random.default_rng(1)
    for one in made.evaluations:
        right = rng.binomial(1 if one.greedy else 8, 0.1 + 0.2 * one.window.step, 3)
        finish(one, marks_of(right.tolist(), 1 if one.greedy else 8))
    monkeypatch.setattr(subprocess, "Popen", None)
    verb.run(ask)
    told = capsys.readouterr()
    assert "24 runs in runs/sums, 24 finished, 0 owed" in told.err
    assert "Pass@16 left out, as there are only 8 trials" in told.err
    assert "at the 3 steps that both have" in told.err
    assert "warning: 10 finished runs" in told.err
    assert "form of MaP's Table 2" in told.out and "where training runs cross" in told.out
    out = place / "runs/sums/_trajectory/m-c"
    found = json.loads((out / "trajectory.json").read_text())
    assert any("10 finished runs of merged" in line for line in found["warnings"])
    assert len(found["summary"]) == 6 and found["summary"][0].startswith("m: highest τ over the 2 ")
    text = (out / "trajectory.md").read_text()
    assert text.startswith("# Trajectory of m-c\n\n- m: highest τ over the 2 steps")
    assert told.out.rstrip().endswith(found["summary"][-1])
    assert len(found["runs"]) == 24 and found["settings"]["run"][0] == "model=custom"
    assert {row["training"] for row in found["tables"]["stability"]} == {"m", "c"}
    single = made.evaluations[0]
    first = next(r for r in found["tables"]["curve"] if r["metric"] == "avg")
    grades = pq.read_table(single.run.grades / "00000.parquet").to_pylist()
    right = sum(g["outcome"] == "correct" for g in grades)
    assert first["value"] == pytest.approx(right / 24) and first["name"] == "m-s-1"
    for name in ("trajectory_m", "trajectory_c", "merge_m", "side_by_side", "samples_c", "cost_c"):
        assert (out / f"{name}.png").is_file()
        assert f"]({name}.png)" in (out / "trajectory.md").read_text()
    for stem in ("stability", "curve", "samples", "pairs", "gains", "protocols", "merge", "passk"):
        assert (out / f"{stem}.csv").is_file()
    verb.run([*SUMS, "dataset.path=sums.jsonl", "sampling.trials=8", "merge=[]",
                            "replicates=50", "checkpoints.m=m", "greedy=false",
                            f"out={out}"])  # fmt: skip
    assert not (out / "side_by_side.png").exists() and not (out / "crossings.csv").exists()
    assert set(json.loads((out / "trajectory.json").read_text())["files"]) | {
        "trajectory.json"
    } == {path.name for path in out.iterdir()}


# --- for real ---------------------------------------------------------------------------------


@pytest.mark.soak
def test_the_demo_from_checkpoints_to_a_page(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capsys
) -> None:
    """Checkpoints with the vLLM engine, then one more and windows of two, then nothing to do."""
    own = [
        "trajectory", "model=demo", "dataset=demo", "dataset.limit=3", "sampling.trials=4",
        "sampling.max_tokens=24", "replicates=100", "verifier=none",
    ]  # fmt: skip
    first = [*own, f"checkpoints={DEMO}/step-3[78]00", "merge=[]"]
    assert main.main([*first, "--dry-run"]) == 0
    assert not list(place.iterdir())
    told = capfd.readouterr()
    assert "3700 to 3800" in told.out and "nothing was written" in told.err
    assert main.main(first) == 0
    told = capfd.readouterr()
    assert "evaluating 2 of 2: demo-step-3800, about" in told.err
    assert "over the 2 steps" in told.out

    merge = [*own, f"checkpoints={DEMO}/step-3[789]00", "merge=2", "merge.keep=false"]
    assert main.main([*merge, "greedy=false"]) == 0
    told = capfd.readouterr()
    assert "3 checkpoints and 2 windows of 2, sampled: 5 runs in runs/demo, 2 fin" in told.err
    assert "evaluating 3 of 5: demo-step-3900\n" in told.err
    assert "evaluating 5 of 5: demo-step-3900-merge2, about" in told.err
    folders = sorted(path.name for path in (place / "runs/demo").glob("demo-*"))
    assert len(folders) == 7 and "demo-step-3800-greedy" in folders
    out = place / "runs/demo/_trajectory/demo"
    found = json.loads((out / "trajectory.json").read_text())
    protocols_of = {row["protocol"] for row in found["tables"]["stability"]}
    assert {"Merge@2, Bayes@4", "Merge@1, Pass@4"} <= protocols_of
    curve = one_of(found["tables"]["curve"], metric="avg", window=2, step=3900)
    scores = json.loads((place / "runs/demo/demo-step-3900-merge2/scores.json").read_text())
    assert curve["value"] == pytest.approx(scores["uniform_prior"]["avg"]["mean"])
    left = sorted(path.name for path in (place / "runs/_merged/demo").iterdir())
    assert left == ["step-3800-merge2.json", "step-3900-merge2.json"]

    monkeypatch.setattr(subprocess, "Popen", None)  # finished runs start no process
    assert main.main([*merge, "greedy=false"]) == 0
    assert "5 finished, 0 owed" in capfd.readouterr().err


@pytest.mark.soak
def test_base_checkpoints_are_evaluated_with_plain_prompts(place: Path, capfd: Capsys) -> None:
    """The demo's models without their template, with vLLM; the text of the template is no other."""
    for step in ("step-3800", "step-3900"):
        shutil.copytree(DEMO / step, place / "base" / step)
        (place / "base" / step / "chat_template.jinja").unlink()
    asked = [
        "trajectory", "dataset=demo", "sampling=demo", "sampling.seeds=shared", "verifier=none",
        "dataset.limit=6", "sampling.trials=4", "merge=[]", "greedy=false", "replicates=100",
    ]  # fmt: skip
    bare = [*asked, "model=custom", "checkpoints.bare=base"]
    assert main.main(bare) == 2
    assert "no chat template; a base model takes prompt.kind=plain" in capfd.readouterr().err
    shown = compose.load([]).prompt.template
    turn = f"<|im_start|>user\n{shown}<|im_end|>\n<|im_start|>assistant\n"
    assert main.main([*bare, "prompt.kind=plain", f'prompt.template="{turn}"']) == 0
    chat = [*asked, "model=demo", f"checkpoints.chat={DEMO}/step-3[89]00"]
    assert main.main(chat) == 0
    for name in ("step-3800", "step-3900"):
        folders = [place / "runs/demo" / f"{kind}-{name}" for kind in ("bare", "demo-chat")]
        parts = [
            parquet.whole(folder / "questions.parquet", QUESTIONS).to_pylist() for folder in folders
        ]
        here, there = ([row["prompt_token_ids"] for row in rows] for rows in parts)
        assert here == there
        assert stored(folders[0]) == stored(folders[1]) and len(stored(folders[0])) == 24


@pytest.mark.soak
def test_two_checkpoints_for_real(place: Path, capfd: Capsys) -> None:
    """The same with the engine that starts faster, and without merged weights; one is there."""
    run = [
        "model=demo", "dataset=demo", "dataset.limit=2", "sampling.trials=4",
        "sampling.max_tokens=8", "verifier=none", "engine=transformers",
    ]  # fmt: skip
    own = [f"checkpoints={DEMO}/step-3[89]00", "merge=[]", "greedy=false", "replicates=100"]
    own.append("metrics=[pass@2,cons-confidence@2]")
    assert main.main(["run", *run, "model.checkpoint=step-3800", "rubric=exact-match"]) == 0
    assert main.main(["trajectory", *run, *own]) == 0
    told = capfd.readouterr().err
    assert "2 runs in runs/demo, 1 finished, 1 owed" in told
    assert "evaluating 2 of 2: demo-step-3900\n" in told
    saved = json.loads((place / "runs/demo/_trajectory/demo/trajectory.json").read_text())
    curve = one_of(saved["tables"]["curve"], metric="avg", step=3900)
    assert one_of(saved["tables"]["curve"], metric="cons-confidence@2", step=3900)
    scores = json.loads((place / "runs/demo/demo-step-3900/scores.json").read_text())
    assert curve["value"] == pytest.approx(scores["uniform_prior"]["avg"]["mean"])
