"""Children die with a killed parent, and stand outside the terminal's process group."""

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

FORK = """
import os, sys, time
from pipeline.base.children import tamed
with tamed():
    pid = os.fork()
if pid == 0:
    time.sleep(600)
print(pid, os.getpgid(pid) == pid, flush=True)
time.sleep(600)
"""
SPAWN = """
import multiprocessing, time
from pipeline.base.children import tamed
with tamed():
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
print(child.pid, False, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("program", [FORK, SPAWN], ids=["forked", "spawned"])
def test_a_child_dies_with_its_parent_and_has_a_group_of_its_own(program: str) -> None:
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    pid, own_group = parent.stdout.readline().split()
    child = psutil.Process(int(pid))
    deadline = time.monotonic() + 30
    while os.getpgid(child.pid) != child.pid and time.monotonic() < deadline:
        time.sleep(0.01)  # the parent may look before the child has run
    assert own_group in ("True", "False") and os.getpgid(child.pid) == child.pid
    child.send_signal(signal.SIGUSR1)  # a scheduler's warning, which goes to everyone
    time.sleep(0.2)
    assert child.is_running() and child.status() != psutil.STATUS_ZOMBIE
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    psutil.wait_procs([child], timeout=30)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
