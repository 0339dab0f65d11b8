"""Trackers: what they get of a run, who follows it, faults; the real libraries, where they are.

`make extras` tries the libraries themselves.
"""

import itertools
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any, NamedTuple

import pytest
from helpers import Capsys, run_of, settings

from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config import records as of_records
from bayes_at_n.pipeline.config.records import ExportConfig
from bayes_at_n.pipeline.config.settings import TRACKERS
from bayes_at_n.pipeline.records import trackers
from bayes_at_n.pipeline.records.exporting import export
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store import outcomes, runfolder
from bayes_at_n.pipeline.store.runfolder import Run


class Fake:
    """What a tracker was sent."""

    def __init__(self, project: str, name: str, key: str, config: dict[str, Any]) -> None:
        self.project, self.name, self.key, self.config = project, name, key, config
        self.points: list[trackers.Values] = []
        self.final: trackers.Values = {}
        self.ended: list[bool] = []

    def close(self, scores: trackers.Values, well: bool) -> None:
        self.final = scores
        self.ended.append(well)


def fakes(monkeypatch: pytest.MonkeyPatch, name: str) -> list[Fake]:
    """In the place of a tracker: what will be opened there."""
    made: list[Fake] = []

    def opened(*of: Any) -> trackers.Tracker:
        made.append(fake := Fake(*of))
        return trackers.Tracker("nowhere", lambda v, _: fake.points.append(v), fake.close)

    monkeypatch.setitem(trackers._OPEN, name, opened)
    return made


def test_settings_without_secrets_and_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-mine-123456")
    cfg = settings("engine=openai", "engine.url=[http://inner:8000/v1]", "sampling.trials=4")
    cfg.engine.args = {"effort": "high", "api_key": "abc", "extra": {"h": "sk-of-mine-123456"}}
    cfg.cluster.setup = "export HF_TOKEN=hf_other"
    sent = trackers.config(cfg)
    assert sent["sampling.trials"] == 4 and sent["engine.args.effort"] == "high"
    assert sent["sampling.max_tokens"] == cfg.sampling.max_tokens  # a token of another kind
    assert sent["engine.key_env"] == "OPENAI_API_KEY"  # its name alone
    assert not any(text in json.dumps(sent) for text in ("sk-of", "abc", "inner", "hf_other"))


def test_the_key_of_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It goes with the folder, and more trials do not change it; a copy beside it is another."""
    made = fakes(monkeypatch, "wandb")
    run = run_of(tmp_path / "x", "a")
    more = Run(settings("sampling.trials=9"))
    more.cfg.run_dir = run.cfg.run_dir
    trackers.begin("wandb", run, "p")
    trackers.begin("wandb", more, "p")
    shutil.copytree(run.path, run.path.with_name("b"))
    trackers.begin("wandb", runfolder.open_run(run.path.with_name("b")), "p")
    (tmp_path / "x").rename(tmp_path / "y")
    trackers.begin("wandb", runfolder.open_run(tmp_path / "y/sums/a"), "p")
    key, of_more, of_copy, of_moved = (fake.key for fake in made)
    assert key == of_more == of_moved != of_copy and len(key) == 16


def test_what_is_followed_is_what_status_and_score_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, "a", {"a": "1100", "b": "10~-"})
    score(run)
    scores = json.loads((run.path / "scores.json").read_text())
    opened, over, well = fakes(monkeypatch, "wandb"), Event(), Event()
    over.set()
    trackers.follow(run.path, "p", "wandb", over, well)
    assert opened == []  # a command that failed at once leaves no trace
    well.set()
    trackers.follow(run.path, "p", "wandb", over, well)
    (made,) = opened
    (point,) = made.points
    assert (point["attempts"], point["attempts/tokens"]) == (8, 40)
    assert point["attempts/truncated"] == 1 / 8 and "attempts/price" not in point
    avg, bayes = (scores["metrics"][name] for name in ("avg", "bayes"))
    assert point["attempts/score/avg"] == avg["value"] == made.final["avg/value"] == 3 / 8
    for end in ("value", "low", "high"):
        found = point[f"attempts/score/{end}"], made.final[f"headline/{end}"]
        assert found == (bayes[end], bayes[end])
    assert made.final["bayes/sigma"] == bayes["sigma"]
    assert made.final["trials"] == 4 and made.ended == [True]
    assert (made.project, made.name, made.config["model.name"]) == ("p", "sums/a", "a")


def test_a_tracker_that_raises_is_named_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    def opened(*of: Any) -> trackers.Tracker:
        raise ModuleNotFoundError("No module named 'mlflow'")

    run = run_of(tmp_path, "a")
    monkeypatch.setitem(trackers._OPEN, "mlflow", opened)
    trackers.follow(run.path, "p", "mlflow", Event(), Event())
    [warning] = [text for text in capsys.readouterr().err.splitlines() if "warning" in text]
    assert 'pip install "bayes-at-n[mlflow]"' in warning
    assert f"export {run.path} to=mlflow" in warning


def test_one_that_hangs_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    """With whatever it started; what the run raises goes through."""
    run = run_of(tmp_path, "a", {"a": "1"}, "track=trackio")
    monkeypatch.setattr(trackers, "GRACE_S", 0.05)
    real, begun = subprocess.Popen, []

    def hanging(command: list[str], **options: Any) -> Any:
        begun.append(real(["sh", "-c", "sleep 600 & wait"], **options))
        assert command[1:] == ["-m", trackers.__name__, str(run.path), "bayes-at-n", "trackio"]
        return begun[-1]

    monkeypatch.setattr(subprocess, "Popen", hanging)
    with pytest.raises(KeyError, match="of the run"), trackers.tracked(run):
        raise KeyError("of the run")
    err = capsys.readouterr().err
    assert err.count("warning") == 1 and "track=trackio: not all was sent" in err
    assert begun[0].wait() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        while True:  # until init has taken the other one, too
            os.killpg(begun[0].pid, 0)


def test_export_shows_the_curve_and_a_failure_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = fakes(monkeypatch, "wandb")
    run_of(tmp_path, "a", {"a": "110", "b": ".10"})
    words = [f"runs={tmp_path}", "to=wandb", "project=p"]
    monkeypatch.setattr(of_records, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"to=wandb needs wandb, .* pip install .*\[wandb\]"):
        compose.load_as(ExportConfig, words)
    monkeypatch.setattr(of_records, "find_spec", lambda name: name)
    cfg = compose.load_as(ExportConfig, words)
    export(cfg)
    export(cfg)  # nothing has changed
    assert len(made) == 1 and made[0].project == "p" and made[0].ended == [True]
    means = [(p["trials"], round(p["trials/avg/value"], 9)) for p in made[0].points]
    assert means == [(1, 1.0), (2, 1.0), (3, round(7 / 12, 9))]
    ends = [[p[f"trials/avg/{end}"] for end in ("low", "value", "high")] for p in made[0].points]
    assert all(sorted(each) == each and each[0] < each[2] for each in ends)
    assert made[0].final["attempts"] == 5

    def refused(*of: Any) -> trackers.Tracker:
        raise ConnectionError("refused")  # an OSError, and no matter of this disk

    monkeypatch.setitem(trackers._OPEN, "mlflow", refused)
    with pytest.raises(TryAgain, match="to=mlflow: refused"):
        export(compose.load_as(ExportConfig, [words[0], "to=mlflow"]))
    assert not [*tmp_path.glob("sums/_export-mlflow*")]


# ---- the libraries themselves ----------------------------------------------


class Found(NamedTuple):
    """What a library gives back of one run."""

    config: dict[str, Any]
    curves: dict[str, list[tuple[int, float]]]  # by name: what was sent, in its order
    final: dict[str, float]


def of_mlflow(folder: Path) -> list[Found]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    found = []
    for run in client.search_runs([client.get_experiment_by_name("soak").experiment_id]):
        assert run.info.status == "FINISHED"
        history = {
            name: [(m.step, m.value) for m in client.get_metric_history(run.info.run_id, name)]
            for name in run.data.metrics
        }
        found.append(Found(run.data.params, history, run.data.metrics))
    return found


def of_trackio(folder: Path) -> list[Found]:
    import trackio

    trackio.sqlite_storage.TRACKIO_DIR = folder / "trackio"  # it was read at the import
    found = []
    for run in trackio.Api().runs("soak"):
        history: dict[str, list[tuple[int, float]]] = defaultdict(list)
        for line in trackio.SQLiteStorage.get_logs("soak", run.name):
            for name, value in line.items():
                history[name].append((line["step"], value))
        found.append(Found(run.config, history, {n: line[-1][1] for n, line in history.items()}))
    return found


READ: dict[str, Callable[[Path], list[Found]]] = {"mlflow": of_mlflow, "trackio": of_trackio}
WANDB = "wandb/offline-run-*/*.wandb"  # which only its core reads


@pytest.fixture(params=[*TRACKERS])
def library(request: pytest.FixtureRequest) -> str:
    """A tracker whose library is there."""
    name: str = request.param
    pytest.importorskip(name, reason=f"no {name}: make extras")
    return name


def here(folder: Path) -> dict[str, str]:
    """An environment in which trackers write to this folder alone."""
    return {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "TRACKIO_DIR": f"{folder}/trackio",
    }


@pytest.mark.soak
@pytest.mark.extras
def test_a_library_has_what_was_exported(library: str, tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", {"a": "1101", "b": ".10~"})
    words = ["export", f"to={library}", "project=soak", str(run.path)]
    done = subprocess.run(
        [sys.executable, "-m", "pipeline", *words, "--json"],
        env=os.environ | here(tmp_path), cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["format"] == library  # and nothing of the library's
    if library == "wandb":
        assert [*tmp_path.glob(WANDB)]
        return
    (found,) = READ[library](tmp_path)
    codes = outcomes.read(run).codes
    expected = [point for point, _ in trackers.curve(codes, run.cfg.scoring.confidence)]
    for name in ("trials/avg/value", "trials/avg/low", "trials/avg/high"):
        assert found.curves[name] == [(point["trials"], point[name]) for point in expected]
    score(run)
    scores = json.loads((run.path / "scores.json").read_text())
    for name, end in itertools.product(("avg", "bayes"), ("value", "sigma", "low", "high")):
        assert found.final[f"{name}/{end}"] == scores["metrics"][name][end]
    assert str(found.config["sampling.trials"]) == "4" and found.config["model.name"] == "a"


@pytest.mark.soak
@pytest.mark.extras
def test_a_library_has_the_points_of_a_watch(library: str, tmp_path: Path) -> None:
    if library == "wandb":
        pytest.skip("only its core reads what it writes")
    for step in ("step-3800", "step-3900"):
        shutil.copytree(ROOT / "demo" / "models" / step, tmp_path / "t" / step)
    own = "trajectory model=demo watch=t watch.every=0.1 watch.last=3900 merge=[] dataset=demo"
    own += " dataset.limit=2 verifier=none engine=transformers greedy=false sampling.trials=2"
    own += f" sampling.max_tokens=8 track={library} track.project=soak"
    environment = os.environ | here(tmp_path) | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "bayes_at_n", *own.split()]
    done = subprocess.run(command, env=environment, cwd=tmp_path, stderr=-1, text=True, check=False)
    assert done.returncode == 0 and "warning: track" not in done.stderr, done.stderr
    [found] = READ[library](tmp_path)
    out = tmp_path / "runs/demo/_trajectory/demo/trajectory.json"
    rows = json.loads(out.read_text())["tables"]["points"]
    for name, points in (("value", rows), ("tokens", rows), ("z", rows[1:])):
        expected = [(row["step"], pytest.approx(row[name])) for row in points]
        assert found.curves[f"steps/demo/merge_1/{name}"] == expected
