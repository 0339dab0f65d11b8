"""engine.replicas with real engines: work shared, and replicas and parents that are killed, hang,
are stopped, or cannot start."""

import json
import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
import pytest
from forked import HELD, Command, strike

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.workers import devices

QUESTIONS, KILLS = 30, 30
OFTEN = "from bayes_at_n.pipeline.workers import session\nsession.SAVE_S = 0.1\n"

# How replicas start, with code that comes first.
START = """
import sys
from bayes_at_n.pipeline.workers import process
process.PROGRAM = [sys.executable, "-c", {code!r}]
"""
REPLICA = "import sys\nfrom bayes_at_n.pipeline.workers import process\nsys.exit(process.main())"
SHORT_EXPIRY = """
from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.workers import claims
claims.HEARTBEAT_S, lease.EXPIRE_S = 0.5, 3.0
"""


def start(
    folder: Path, replica: str = REPLICA, everywhere: str = "", **environment: str
) -> Command:
    """`generate` with two replicas, in a process group of its own as under a shell."""
    before = everywhere + START.format(code=everywhere + replica)
    line = ["generate", str(folder), "engine.replicas=2"]
    return Command(folder, None, before=before, line=line, environment=environment)


class Held:
    """Both replicas stop when they have stored something, until `release`."""

    def __init__(self, folder: Path, everywhere: str = "", **environment: str) -> None:
        self.file = folder.with_name(f"{time.time_ns()}.held")
        self.file.touch()
        code = HELD.format(attempts=0, file=str(self.file)) + REPLICA
        self.command = start(folder, code, everywhere, **environment)
        while len(list(self.file.parent.glob(f"{self.file.name}.*"))) < 2:
            assert self.command.alive(), self.command.text()
            time.sleep(0.02)
        self.pids = {session["replica"]: session["pid"] for session in sessions(folder)}

    def release(self) -> None:
        self.file.unlink()


def ends(command: Command, code: int) -> str:
    assert command.wait() == code and "Traceback" not in command.text(), command.text()
    return command.text()


@pytest.fixture(autouse=True)
def nobody_left(tmp_path: Path) -> Iterator[None]:
    """A test that fails leaves no engines behind."""
    yield
    for process in psutil.process_iter(["cmdline"]):
        if str(tmp_path) in " ".join(process.info["cmdline"] or []):
            process.kill()  # the parent; the others end with it


def prepared(folder: Path, trials: int, *more: str) -> Path:
    settings = [f"run_dir={folder}", f"sampling.trials={trials}", *more]
    # Few at a time: sampling takes long enough to be hit.
    settings += ["engine.batch_size=8", "engine.in_flight=12"]
    assert main.main(["prepare", *settings]) == 0
    return folder


def rows(folder: Path) -> list[tuple[str, int]]:
    keys = []
    for part in (folder / "attempts").glob("*.parquet"):
        table = pq.read_table(part, columns=["question_id", "trial"])
        keys += list(zip(*(table[name].to_pylist() for name in table.column_names), strict=True))
    return keys


def sessions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(p.read_text()) for p in (folder / "sessions").glob("*.json")]


def assert_whole(folder: Path, trials: int) -> None:
    """Every attempt exactly once, in sealed parts, and nothing of the workers left."""
    found = rows(folder)
    assert len(found) == len(set(found)) == QUESTIONS * trials
    assert {trial for _, trial in found} == set(range(trials))
    assert not list((folder / "attempts").glob("*.journal"))
    assert not (folder / "claims").exists()


@pytest.mark.soak
def test_no_kill_of_a_replica_loses_or_doubles_an_attempt(tiny_model: Path, tmp_path: Path) -> None:
    moments, kills, n = random.Random(7), 0, 0
    while kills < KILLS:
        folder, n = prepared(tmp_path / f"run-{n}", 8, "engine=transformers"), n + 1
        command = start(folder, OFTEN + REPLICA)
        kills += (struck := strike(folder, command.alive, KILLS - kills, moments))
        said, made = ends(command, 0), sessions(folder)
        assert f"generate: {8 * QUESTIONS}/{8 * QUESTIONS}" in said
        assert said.count("by SIGKILL") == said.count("starting it again") <= struck
        assert len(made) >= struck + 1 and {s["replica"] for s in made if s["attempts"]} == {0, 1}
        assert_whole(folder, 8)
    print(f"{kills} kills of replicas in {n} runs")


@pytest.mark.soak
def test_replicas_end_with_a_killed_parent(tiny_model: Path, tmp_path: Path) -> None:
    """Processes of an engine die with their replica: tests/base/test_children.py."""
    folder = prepared(tmp_path / "run", 8, "engine=transformers")
    process = Held(folder).command.process
    family = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    _, alive = psutil.wait_procs(family, timeout=30)
    assert not [p for p in alive if p.status() != psutil.STATUS_ZOMBIE]
    process.wait()
    ends(start(folder), 0)
    assert_whole(folder, 8)


@pytest.mark.soak
def test_a_replica_that_hangs_is_replaced(tiny_model: Path, tmp_path: Path) -> None:
    folder = prepared(tmp_path / "run", 8, "engine=transformers")
    held = Held(folder, SHORT_EXPIRY)
    number, hung = held.pids.popitem()
    os.kill(hung, signal.SIGSTOP)
    held.release()
    said = ends(held.command, 0)
    assert f"replica {number} was killed" in said
    assert not psutil.pid_exists(hung)
    assert_whole(folder, 8)


@pytest.mark.soak
@pytest.mark.parametrize(("slurm", "number", "code"), [("", "SIGINT", 130), ("7", "SIGTERM", 85)])
def test_a_signal_to_the_parent_or_to_everyone_stops_all_once(
    tiny_model: Path, tmp_path: Path, slurm: str, number: str, code: int
) -> None:
    """A terminal signals the parent's group, Slurm every process of a step."""
    folder = prepared(tmp_path / "run", 16, "engine=transformers")
    held = Held(folder, **({"SLURM_JOB_ID": slurm} if slurm else {}))
    parent = held.command.pid
    children = psutil.Process(parent).children(recursive=True) if slurm else []
    for pid in (*(child.pid for child in children), parent):
        os.kill(pid, signal.Signals[number])
    held.release()
    said = ends(held.command, code)
    found, total = rows(folder), QUESTIONS * 16
    assert 0 < len(found) == len(set(found)) < total
    assert f"{len(found)} of {total} attempts" in said
    assert all(s["ended"] and s["state"] == "stopped" for s in sessions(folder))
    assert sum(s["attempts"] for s in sessions(folder)) == len(found)


def test_replicas_that_die_at_once_are_given_up(tiny_model: Path, tmp_path: Path) -> None:
    folder = prepared(tmp_path / "run", 1)
    dying = "import os, sys; say = [os.environ[n] for n in ('VLLM_CACHE_ROOT', 'TRITON_CACHE_DIR')]"
    dying += "; print('last words', *say, file=sys.stderr, flush=True); os.abort()"
    fetch = "from bayes_at_n.pipeline.prepare import models as m\n"
    fetch += "m.download = lambda _: print('fetched')\n"
    here = {"TMPDIR": str(tmp_path), "VLLM_CACHE_ROOT": "/mine"}
    said = ends(start(folder, dying, fetch, **here), 1)
    assert said.count("fetched") == 1 and said.index("fetched") < said.index("last words")
    assert f"last words /mine {tmp_path}/bayes-at-n-{os.getuid()}/triton\n" in said
    assert said.count("starting it again") == 2 * 2 and said.count("last words") == 2 * 3
    assert "by SIGABRT" in said and "30 of 30" in said


def test_gpus_are_split_as_they_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices.program, "version", lambda name: None)  # a build for GPUs
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,GPU-8f,MIG-5a,3")
    cfg = compose.load(["engine.replicas=2", "engine.tensor_parallel_size=2"])
    found = [share.environment for share in devices.shares(cfg)]
    assert found == [{"CUDA_VISIBLE_DEVICES": "0,GPU-8f"}, {"CUDA_VISIBLE_DEVICES": "MIG-5a,3"}]
    cfg = compose.load(["engine.replicas=3", "engine.tensor_parallel_size=2"])
    with pytest.raises(UserError, match=r"needs 6 GPUs.*engine\.replicas=2"):
        devices.shares(cfg)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    with pytest.raises(UserError, match=r"none can be used"):
        devices.shares(cfg)


def test_cores_are_split_and_threads_with_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {3, 4, 5, 6, 7, 8, 9})
    cfg = compose.load(["engine=transformers", "engine.device=cpu", "engine.replicas=3"])
    found = devices.shares(cfg)
    assert sorted(core for share in found for core in share.cores) == [3, 4, 5, 6, 7, 8, 9]
    assert [s.environment["OMP_NUM_THREADS"] for s in found] == ["2", "2", "3"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert {s.environment["OMP_NUM_THREADS"] for s in devices.shares(cfg)} == {"1"}
    cfg = compose.load(["engine=transformers", "engine.device=cuda:1", "engine.replicas=2"])
    with pytest.raises(UserError, match=r"write engine\.device=cuda"):
        devices.shares(cfg)
