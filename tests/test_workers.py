"""Several workers on one run folder: whoever dies, hangs, or comes twice, every attempt is made."""

import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from forked import IN_FLIGHT, TRIALS, Attempts, Command, Forker, assert_whole, rows, stored
from forked import SETTINGS as FORKED

SETTINGS = [*FORKED, f"sampling.trials={TRIALS}"]
# What silence means, in seconds that a test can wait for.
QUICK = """
from pipeline.store import lease
from pipeline.store import heartbeat
lease.EXPIRE_S, heartbeat.HEARTBEAT_S = 4.0, 0.5
"""
# A host of its own, whose clock is wrong: nobody can ask whether a process there lives.
ELSEWHERE = (
    QUICK
    + """
import socket, time
true = time.time
time.time = lambda: true() + {seconds}
socket.gethostname = lambda: "{host}"
"""
)
# The engine answers a few times and then never again. No real engine hangs when it is told to.
HANGING = (
    QUICK
    + """
from vllm.v1.engine.llm_engine import LLMEngine
heartbeat.HANG_S = 3.0
step, steps = LLMEngine.step, []
def hanging(self):
    steps.append(1)
    if len(steps) > 40:
        import time
        time.sleep(600)
    return step(self)
LLMEngine.step = hanging
"""
)


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return shutil.copytree(prepared, tmp_path / "run")


def start(folder: Path, forker: Forker | None, **more: Any) -> Command:
    return Command(folder, forker, *SETTINGS, verb="generate", **more)


def sessions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "sessions").glob("*.json"))]


def both_sampling(folder: Path, commands: list[Command]) -> None:
    """Wait until every worker has finished something."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        busy = {path.name.split("-00000")[0] for path in (folder / "attempts").glob("_*.journal")}
        if len(busy) >= len(commands):
            return
        assert all(command.alive() for command in commands), [c.text()[-2000:] for c in commands]
        time.sleep(0.02)
    raise AssertionError("they never sampled together")


def test_two_submissions_at_once(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    two = [start(folder, forker) for _ in range(2)]
    both_sampling(folder, two)
    for command in two:
        command.finish()
    assert_whole(folder, reference[1])
    shares = [session["attempts"] for session in sessions(folder)]
    assert len(shares) == 2 and min(shares) > 0 and sum(shares) == len(reference[1])
    summary = json.loads((folder / "manifest.json").read_text())["generated"]
    assert summary["attempts"] == len(reference[1])
    for path in (folder / "logs").glob("*.jsonl"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert [line["event"] for line in lines] == ["loaded", "done"]


def test_a_whole_run_in_two_processes_ends_with_one_score(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    stages = "stages=[prepare,generate,grade,score]"
    two = [Command(folder, forker, *SETTINGS, stages) for _ in range(2)]
    texts = [command.finish() for command in two]
    assert_whole(folder, reference[1])
    assert (folder / "scores.json").exists()
    assert any("saved" in text for text in texts)


def test_kill_9_of_one_worker_leaves_its_attempts_to_the_other(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    one, other = (start(folder, forker) for _ in range(2))
    both_sampling(folder, [one, other])
    before = stored(folder)
    one.kill()
    other.finish()
    assert all(stored(folder)[key] == row for key, row in before.items())
    assert_whole(folder, reference[1])
    ended = [session["ended"] for session in sessions(folder)]
    assert sorted(ended) == [False, True]
    [log] = [p for p in (folder / "logs").glob("*.jsonl") if "took over" in p.read_text()]
    assert log.stem == next(s["worker"] for s in sessions(folder) if s["ended"])


def test_a_worker_that_is_suspended_is_followed_and_may_come_back(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    """Its heartbeat stops while its process lives."""
    one, other = (start(folder, forker, before=QUICK) for _ in range(2))
    both_sampling(folder, [one, other])
    one.signal(signal.SIGSTOP)
    other.finish()
    assert len(stored(folder)) == len(reference[1])
    one.signal(signal.SIGCONT)
    one.finish()
    assert_whole(folder, reference[1], twice=True)
    assert rows(folder) <= len(reference[1]) + IN_FLIGHT  # what one step ends


@pytest.mark.parametrize("seconds", [3600, pytest.param(-3600, marks=pytest.mark.soak)])
def test_nodes_whose_clocks_differ(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path, seconds: int
) -> None:
    one = start(folder, forker, before=ELSEWHERE.format(seconds=seconds, host="n1"))
    other = start(folder, forker, before=ELSEWHERE.format(seconds=0, host="n2"))
    both_sampling(folder, [one, other])
    one.kill()
    other.finish()
    assert {session["hardware"]["host"] for session in sessions(folder)} == {"n1", "n2"}
    assert_whole(folder, reference[1])


def test_nodes_whose_clocks_differ_do_not_think_each_other_dead(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    hosts = {"n1": 3600, "n2": -3600}
    two = [
        start(folder, forker, before=ELSEWHERE.format(seconds=seconds, host=host))
        for host, seconds in hosts.items()
    ]
    both_sampling(folder, two)
    for command in two:
        command.finish()
    assert_whole(folder, reference[1])
    assert not any("took over" in path.read_text() for path in (folder / "logs").glob("*.jsonl"))


def test_an_engine_that_hangs_costs_its_worker_and_nothing_else(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path
) -> None:
    one = start(folder, forker, before=HANGING)
    other = start(folder, forker, before=QUICK)
    assert one.wait() == 86
    other.finish()
    assert_whole(folder, reference[1], twice=True)
    [failed] = [session for session in sessions(folder) if session["state"] == "failed"]
    assert "did not answer" in failed["error"] and failed["ended"]


@pytest.mark.parametrize(
    ("number", "environment"),
    [(signal.SIGUSR1, {}), (signal.SIGTERM, {"SLURM_JOB_ID": "7", "SLURM_RESTART_COUNT": "1"})],
)
def test_a_scheduler_s_warning_saves_and_asks_to_be_started_again(
    forker: Forker,
    reference: tuple[Path, Attempts],
    folder: Path,
    number: int,
    environment: dict[str, str],
) -> None:
    command = start(folder, forker, environment=environment)
    just_before = command.wait_for_more_than(20)
    assert just_before
    command.signal(number)
    assert command.wait() == 85, command.text()[-2000:]
    assert stored(folder).items() >= just_before.items()
    [session] = sessions(folder)
    assert session["state"] == "stopped" and session["ended"]
    slurm = {"job": "7", "task": None, "restarts": 1} if environment else None
    assert session["slurm"] == slurm
    start(folder, forker).finish()
    assert_whole(folder, reference[1])


@pytest.mark.parametrize("how", ["moved", pytest.param("copied", marks=pytest.mark.soak)])
def test_a_folder_that_moved_while_idle(
    forker: Forker, reference: tuple[Path, Attempts], folder: Path, how: str
) -> None:
    command = start(folder, forker)
    assert command.wait_for_more_than(20)
    command.kill()  # its claims stay behind
    before, there = stored(folder), folder.parent / "elsewhere" / "run"
    (shutil.move if how == "moved" else shutil.copytree)(folder, there)
    start(there, forker).finish()
    assert stored(there).items() >= before.items()
    assert_whole(there, reference[1])


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, to be filled or made read-only."""
    disk = tmp_path / "disk"
    disk.mkdir()
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16m", "t", disk], check=False)
    if made.returncode:
        pytest.skip("only root may mount a file system")
    yield disk
    subprocess.run(["umount", "-l", disk], check=True)


def test_a_full_disk_stops_a_worker_and_loses_nothing(
    forker: Forker,
    reference: tuple[Path, Attempts],
    prepared: Path,
    small_disk: Path,
    tmp_path: Path,
) -> None:
    folder = shutil.copytree(prepared, small_disk / "run")
    command = start(folder, forker, logs=tmp_path)
    assert command.wait_for_more_than(20)
    size = shutil.disk_usage(small_disk).used // 1024 + 8
    subprocess.run(["mount", "-o", f"remount,size={size}k", small_disk], check=True)
    assert command.wait() == 2
    said, before = command.text(), stored(folder)
    assert "No space left on device" in said and "same command continues" in said
    assert "Traceback" not in said and len(before) >= 20
    subprocess.run(["mount", "-o", "remount,size=16m", small_disk], check=True)
    start(folder, forker, logs=tmp_path).finish()
    assert stored(folder).items() >= before.items()
    assert_whole(folder, reference[1])


def test_a_read_only_folder_is_said_at_once(
    forker: Forker, reference: tuple[Path, Attempts], small_disk: Path, tmp_path: Path
) -> None:
    folder = shutil.copytree(reference[0], small_disk / "run")
    for part in (folder / "attempts").iterdir():
        part.unlink()
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    began = time.monotonic()
    command = start(folder, forker, logs=tmp_path)
    assert command.wait() == 2
    said = command.text()
    assert "Read-only file system" in said and str(folder) in said and "Traceback" not in said
    assert "loading" not in said and time.monotonic() - began < 60
    assert os.listdir(folder / "attempts") == []
    subprocess.run(["mount", "-o", "remount,rw", small_disk], check=True)
    start(folder, forker, logs=tmp_path).finish()
    assert_whole(folder, reference[1])
