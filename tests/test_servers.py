"""A real server of OpenAI's protocol, and what is asked of it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import ROOT

from benchmarks.servers import Server, serving

OWNER = """
import sys, time
from pathlib import Path
from benchmarks.servers import serving
with serving(sys.argv[1], Path(sys.argv[2])) as server:
    print(*(process.pid for process in server.processes()), flush=True)
    time.sleep(1000)
"""


@pytest.mark.soak
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_a_server_ends_with_its_owner(tiny_model: Path, tmp_path: Path, number: int) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tiny_model), str(tmp_path / "log")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert owner.stdout
    pids = [int(pid) for pid in owner.stdout.readline().split()]
    assert len(pids) >= 2 and all(map(psutil.pid_exists, pids))
    os.killpg(owner.pid, number)
    owner.wait()
    while any(psutil.pid_exists(pid) for pid in pids):
        time.sleep(0.05)


@pytest.mark.soak
def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    with (
        pytest.raises(RuntimeError, match=r"ended with 1; its log:[\s\S]*no-such-model"),
        serving(tmp_path / "no-such-model", tmp_path / "log"),
    ):
        pass


def test_the_server_is_the_one_that_was_asked_for(server: Server, tiny_model: Path) -> None:
    assert server.name in server.get("/v1/models") and str(tiny_model) in server.get("/v1/models")
    assert server.requests() == 0 and len(server.processes()) >= 2
