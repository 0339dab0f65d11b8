"""What the runs of a trajectory lack, and the commands that make it."""

import shlex
from pathlib import Path

import numpy as np
import pytest
from helpers import Capsys, write_questions
from made_windows import SUMS, checkpoint, ckpts, finish, planned, remaining, sums
from safetensors.numpy import save_file

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.multirun import MergeConfig
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.training import evaluate, merge, tracks, trajectory
from bayes_at_n.pipeline.training.windows import Evaluation
from bayes_at_n.pipeline.workers.resident import Order, Residents


def test_a_run_is_finished_when_nothing_of_it_would_be_made_again(place: Path) -> None:
    ckpts(place / "t", "s-1", "s-2")
    write_questions(place / "sums.jsonl", sums(2))
    arguments = [*SUMS, "checkpoints=t", "merge=[]", "dataset.path=sums.jsonl"]
    one, greedy = planned(*arguments, "sampling.trials=3")[1].evaluations[:2]
    assert remaining(one) == (6, 0, 0) and remaining(greedy) == (2, 0, 0)
    finish(one, {"q0": "110", "q1": "0.+"})
    assert remaining(one) == (1, 1, 0)
    finish(one, {"q0": "110", "q1": "010"})
    assert remaining(one).finished
    more = planned(*arguments, "sampling.trials=4")[1].evaluations[0]
    assert remaining(more).pending == 2
    fewer = planned(*arguments, "sampling.trials=2")[1].evaluations[0]
    assert remaining(fewer).finished
    [read] = tracks._tracks([fewer], [], tracks._stack([fewer]).matrix().data, None)
    assert read.R.tolist() == [[[1, 1], [0, 1]]]
    other = planned(*arguments, "sampling.trials=3", "grading.timeout_s=2")[1].evaluations[0]
    assert remaining(other) == (0, 6, 0)
    with pytest.raises(UserError, match=r"sampling\.temp"):
        remaining(
            planned(*arguments, "sampling.trials=3", "sampling.temperature=1")[1].evaluations[0]
        )
    write_questions(place / "sums.jsonl", [*sums(1), {"id": "q1", "problem": "x", "answer": 1}])
    with pytest.raises(UserError, match="question q1"):
        remaining(one)
    write_questions(place / "sums.jsonl", sums(2))
    save_file({"w": np.ones((2, 2), np.float32) * 7}, place / "t" / "s-1" / "model.safetensors")
    with pytest.raises(UserError, match=r"model\.weights is"):
        remaining(one)


def test_merged_weights_are_made_removed_and_remembered(place: Path, capsys: Capsys) -> None:
    ckpts(place / "t", "s-1", "s-2", "s-3")
    write_questions(place / "sums.jsonl", sums(1))
    arguments = [*SUMS, "checkpoints=t", "merge=2", "dataset.path=sums.jsonl", "sampling.trials=2"]
    one = planned(*arguments)[1].evaluations[-2]
    window = one.window
    assert evaluate.weights(window) is None
    merge.merge(window.sources, window.path)
    weights = evaluate.weights(window)
    assert weights and (window.path / "merge.yaml").is_file()
    assert evaluate.present(window)
    finish(one, {"q0": "10"})
    assert remaining(one) == (0, 0, 0)
    left = window.path.parent / f".{window.path.name}.merging"
    left.mkdir()  # of a removal that was stopped
    evaluate.remove(window)
    assert [path.name for path in window.path.parent.iterdir()] == [f"{window.path.name}.json"]
    assert evaluate.weights(window) == weights
    assert remaining(one) == (0, 0, 0)
    save_file({"w": np.ones((2, 2), np.float32) * 7}, place / "t" / "s-2" / "model.safetensors")
    with pytest.raises(UserError, match=r"merge2\.json.*s-2.*delete"):
        remaining(one)
    (window.path.parent / f"{window.path.name}.json").unlink()
    assert remaining(one) == (0, 0, 0)  # no record to compare


def merged_run(place: Path, training: str) -> Evaluation:
    """A finished run of a window whose weights are there."""
    ckpts(place / training, "s-1", "s-2", "s-3")
    write_questions(place / "sums.jsonl", sums(1))
    one = planned(*SUMS, f"checkpoints={training}", "merge=2", "dataset.path=sums.jsonl",
                  "sampling.trials=2")[1].evaluations[-2]  # fmt: skip
    merge.merge(one.window.sources, one.window.path)
    finish(one, {"q0": "10"})
    run = one.run
    identity = runfolder.read_manifest(run)["identity"]
    identity["model.weights"] = evaluate.weights(one.window)
    runfolder.write_json(run.manifest, {"format": 2, "identity": identity})
    return one


def test_merged_weights_of_another_training_are_never_taken_or_deleted(place: Path) -> None:
    one = merged_run(place, "x/t")
    ckpts(place / "y/t", "s-1", "s-2", "s-3")
    save_file({"w": np.ones((2, 2), np.float32) * 7}, place / "y/t/s-3/model.safetensors")
    arguments = [*SUMS, "merge=2", "dataset.path=sums.jsonl", "sampling.trials=2"]
    other = planned(*arguments, "checkpoints=y/t")[1].evaluations[-2]
    assert other.window.path == one.window.path
    remedy = r"is the mean of .*x/t/s-2.*checkpoints\.NAME=FOLDER"
    with pytest.raises(UserError, match=remedy):
        remaining(other)
    for refuse in (evaluate.present, evaluate.remove):
        with pytest.raises(UserError, match=remedy):
            refuse(other.window)
    assert (one.window.path / "merge.yaml").is_file()
    evaluate.remove(one.window)
    with pytest.raises(UserError, match=r"merge2\.json.*checkpoints"):
        remaining(other)
    assert remaining(planned(*arguments, "checkpoints.y=y/t")[1].evaluations[-2]).pending == 2


def test_a_dry_run_says_how_each_pending_run_is_made_elsewhere(place: Path, capsys: Capsys) -> None:
    ckpts(place / "it's t", "s-1", "s-2")
    checkpoint(place / "it's t" / "s-3", 2.0)
    write_questions(place / "sums.jsonl", sums(1))
    arguments = [*SUMS, "checkpoints=it's t", "merge=2", "dataset.path=sums.jsonl", "tag=x",
           "sampling.trials=2", "model.name=m"]  # fmt: skip
    done, *pending = planned(*arguments)[1].evaluations
    finish(done, {"q0": "10"})
    trajectory.run(arguments, dry_run=True)
    lines = [shlex.split(line) for line in capsys.readouterr().out.splitlines()]
    merges, runs = ([w[4:] for w in lines if w[3:4] == [verb]] for verb in ("merge", "run"))
    assert len(merges) == 2 and len(runs) == len(pending) == 9
    for one, line in zip(pending, runs, strict=True):
        cfg = compose.load(line)
        assert cfg == one.run.cfg
    for line in merges:
        merge.run(compose.load_as(MergeConfig, line))
    for one in pending:
        finish(one, {"q0": "1" * one.run.cfg.sampling.trials})
        assert remaining(one).finished
    trajectory.run(arguments, dry_run=True)
    assert " run " not in capsys.readouterr().out


def test_failures_stop_no_other_run_and_a_stop_stops_all(
    place: Path, monkeypatch: pytest.MonkeyPatch, capfd: Capsys
) -> None:
    """With a program in place of Python that fails, or was stopped, as its model's name says."""
    ckpts(place / "t", "a-1", "bad-2", "c-3")
    write_questions(place / "sums.jsonl", sums(1))
    given = list[str]()

    def fake(_: Residents, order: Order) -> int:
        assert order.cfg is not None
        given.append(order.cfg.model.name)
        return 130 if "quit-" in given[-1] else 7 if "bad-" in given[-1] else 0

    monkeypatch.setattr(Residents, "follow", fake)
    arguments = [*SUMS, "merge=[]", "greedy=false", "dataset.path=sums.jsonl", "sampling.trials=2"]
    with pytest.raises(UserError) as error:
        trajectory.run([*arguments, "checkpoints=t"])
    assert error.value.exit_code == 1  # those that left nothing, as if others were at it
    assert "3 of 3 runs are not finished: runs/sums/t-a-1" in str(error.value)
    output = capfd.readouterr()
    assert "evaluating 2 of 3: t-bad-2" in output.err and not output.out
    assert len(given) == 3
    ckpts(place / "u", "a-1", "quit-2", "z-3")
    with pytest.raises(UserError, match="stopped at runs/sums/u-quit-2") as error:
        trajectory.run([*arguments, "checkpoints=u"])
    assert error.value.exit_code == 130
    assert len(given) == 3 + 2
