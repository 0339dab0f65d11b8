"""Workers as Ray actors; all but the first tests need `make extras`."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from helpers import Capsys, make_run

from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.workers import on_ray
from bayes_at_n.pipeline.workers.resident import by_engine
from bayes_at_n.pipeline.workers.session import Slot

TRIALS, KILLS = 40, 20
SLOW = ["engine.batch_size=4", "engine.in_flight=8"]  # that there is a middle
DEMO = ["model=demo", "dataset=demo", f"trials={TRIALS}", "stages=[prepare,generate,grade,score]"]


def test_cluster_ray_is_composed_and_needs_an_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    cfg = compose.load(["cluster=ray", "cluster.gpus=2", "engine.tensor_parallel_size=auto"])
    [made] = [on_ray._for_actor(cfg)]
    assert (cfg.cluster.address, made.engine.tensor_parallel_size) == ("auto", 2)
    assert Path(made.run_dir).is_absolute()
    monkeypatch.setitem(sys.modules, "ray", None)
    command = ["submit", *DEMO, f"run_dir={tmp_path}/run", "cluster=ray", "cluster.gpus=0"]
    assert main(command) == 2
    assert "bayes-at-n[ray]" in capsys.readouterr().err
    assert not list((tmp_path / "run").glob("attempts/*"))


def test_a_node_that_does_not_see_the_run_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_ray, "VISIBLE_S", 0.0)
    monkeypatch.setattr(on_ray.process, "caches", dict)
    run = make_run(tmp_path / "run", {"a": "10"})
    code, error = on_ray.Actor().work(lambda *_: None, [run.cfg], "logs/1.ray", ".", Slot(0, "x/1"))
    assert code == 2 and str(run.path) in error
    assert not (run.path / "sessions").exists()


def test_commands_of_the_examples_are_composed() -> None:
    names = ("kuberay.yaml", "skypilot.yaml")
    job, task = (yaml.safe_load((ROOT / "examples" / name).read_text()) for name in names)
    for command in (job["spec"]["entrypoint"], task["run"].partition("bayes-at-n ")[2]):
        words = re.findall(r"(?:model|dataset|cluster)\S*=\S+", command)
        assert compose.load(words).cluster.address


def test_runs_on_different_clusters_are_not_sampled_together() -> None:
    addresses = ("auto", "auto", "node:6379")
    configs = [compose.load([f"cluster.address={one}", "tag=x"]) for one in addresses]
    assert [len(group) for group in by_engine(configs)] == [2, 1]


def _rows(run: Path) -> list[dict[str, Any]]:
    files = sorted((run / "attempts").glob("[!_]*.parquet"))
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _on_nodes(*words: str) -> None:
    """Call `ray_cluster.py` in a network of its own: nothing else is found, nothing is reached."""
    pytest.importorskip("ray", reason="no ray: make extras")
    alone = ["unshare", "--map-root-user", "--net", "sh", "-c", 'ip link set lo up && exec "$@"']
    if subprocess.run([*alone, "sh", "true"], check=False).returncode:
        pytest.skip("this machine gives no network namespace")
    script = [sys.executable, str(Path(__file__).with_name("ray_cluster.py"))]
    subprocess.run([*alone, "sh", *script, *words], check=True)


@pytest.mark.extras
def test_no_kill_of_an_actor_loses_or_doubles_an_attempt(tmp_path: Path) -> None:
    _on_nodes(str(KILLS), f"{tmp_path}/run", *DEMO, *SLOW, "engine=transformers")
    for run in tmp_path.glob("run-*"):
        keys = [(row["question_id"], row["trial"]) for row in _rows(run)]
        assert len(keys) == len(set(keys)) == 30 * TRIALS


@pytest.mark.extras
def test_a_run_survives_ctrl_c_and_the_loss_of_a_node(tmp_path: Path) -> None:
    here = [sys.executable, "-m", "pipeline", "run", *DEMO, *SLOW, f"run_dir={tmp_path}/here"]
    subprocess.run(here, check=True)
    _on_nodes(f"{tmp_path}/run", *DEMO, *SLOW)
    rows, expected = _rows(tmp_path / "run"), _rows(tmp_path / "here")
    by_key, others = (
        {(row["question_id"], row["trial"]): row for row in each} for each in (rows, expected)
    )
    assert len(rows) == len(by_key) == len(others) == 30 * TRIALS
    assert all(row["seed"] == others[key]["seed"] for key, row in by_key.items())
    same = [row["text"] == others[key]["text"] for key, row in by_key.items()]
    assert sum(same) >= 0.99 * len(rows)
    sessions = [json.loads(path.read_bytes()) for path in tmp_path.glob("run/sessions/*.json")]
    assert sum(not session["ended"] for session in sessions) == 1
    assert len(sessions) == 4  # of Ctrl-C, of two workers, and of one in the place of the lost
    of_node, of_here = [
        json.loads((tmp_path / name / "scores.json").read_text())["uniform_prior"]["avg"]
        for name in ("run", "here")
    ]
    assert of_here["low"] < of_node["mean"] < of_here["high"]
