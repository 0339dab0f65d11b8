"""The models and runs that a trajectory plans."""

from pathlib import Path

import pytest
from helpers import Capsys
from made_windows import DEMO, ckpts, planned

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config import multirun as settings
from bayes_at_n.pipeline.store import provenance
from bayes_at_n.pipeline.training import windows


def test_own_settings_and_those_of_runs_are_told_apart() -> None:
    found = settings.load_trajectory(
        ["model=demo", "dataset=demo,aime25", "checkpoints=[a, b]", "merge=8,4,4", "tag=t",
         "merge.keep=false", "output=2", "sampling.trials=4", "metrics=pass@16,maj@4"]
    )  # fmt: skip
    assert found.cfg.checkpoints == {"": ["a", "b"]} and found.cfg.merge.windows == [4, 8]
    assert not found.cfg.merge.keep and found.cfg.metrics == ["pass@16", "maj@4"]
    assert found.cfg.prices.output == 2 and found.cfg.prices.cache_miss == 1.25
    assert found.models == [["model=demo", "tag=t", "sampling.trials=4"]]
    assert found.datasets == [["dataset=demo"], ["dataset=aime25"]]
    assert settings.load_trajectory(["checkpoints=a"]).cfg.merge.windows == [4]
    two = settings.load_trajectory(["checkpoints.x=a", "checkpoints.y=b,c"]).cfg.checkpoints
    assert two == {"x": ["a"], "y": ["b", "c"]}
    globs = settings.load_trajectory(["checkpoints=t/step-[0-9]*,u/step-3[0-9]"]).cfg.checkpoints
    assert globs == {"": ["t/step-[0-9]*", "u/step-3[0-9]"]}


def test_windows_that_cannot_be_are_refused(tmp_path: Path) -> None:
    a, b = str(ckpts(tmp_path / "a", "s-1", "s-2", "s-3")), str(ckpts(tmp_path / "b", "s-1"))
    assert windows.find({"": [a]}, [2])[0].steps == [1, 2, 3]
    for folders, sizes, named in (
        ([a], [3], "merge=3"),
        ([a], [4], "merge=4"),
        ([b], [], "merge=1"),
        ([a, b], [], "s-1; .*checkpoints"),
        ([str(tmp_path / "nowhere")], [], "nowhere"),
    ):
        with pytest.raises(UserError, match=named):
            windows.find({"": folders}, sizes)


def test_steps_that_say_nothing_are_counted(tmp_path: Path, capsys: Capsys) -> None:
    ckpts(tmp_path / "a", "early", "late-2")
    ckpts(tmp_path / "b", "s-5", "s-9")
    found = windows.find({"a": [str(tmp_path / "a")], "b": [str(tmp_path / "b")]}, [])
    assert [one.steps for one in found] == [[1, 2], [1, 2]]
    assert "checkpoints.a: " in capsys.readouterr().err
    backwards = [str(tmp_path / "b" / "s-9"), str(tmp_path / "b" / "s-5")]
    assert windows.find({"": backwards}, [])[0].steps == [1, 2]
    assert "warning: checkpoints: " in capsys.readouterr().err


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
    assert provenance.identity(single.run.cfg) == provenance.identity(own)
    assert made.label == "demo" and made.out == Path("runs/demo/_trajectory/demo")
    two = planned("model=demo", f"checkpoints={DEMO}", "dataset=demo,aime25", "tag=t")[1]
    assert two.out == Path("runs/_trajectory/demo-t")
    last = made.evaluations[-1]
    assert last.run.path == Path("runs/demo/demo-step-4000-merge4-greedy") and last.kind == "greedy"
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
