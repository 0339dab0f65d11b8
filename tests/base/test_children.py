"""Children die with a killed parent, and stand outside the terminal's process group."""

import os
import signal
import subprocess
import sys
import time

import psutil

from bayes_at_n.pipeline.engines import vllm_core

FORK = """
import os, sys, time
from bayes_at_n.pipeline.base.children import dying_with_parent
with dying_with_parent():
    pid = os.fork()
if pid == 0:
    time.sleep(600)
print(pid, flush=True)
time.sleep(600)
"""


def test_a_child_dies_with_its_parent_and_has_a_group_of_its_own() -> None:
    parent = subprocess.Popen([sys.executable, "-c", FORK], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    deadline = time.monotonic() + 30
    while os.getpgid(child.pid) != child.pid and time.monotonic() < deadline:
        time.sleep(0.01)  # the parent may look before the child has run
    assert os.getpgid(child.pid) == child.pid
    child.send_signal(signal.SIGUSR1)  # a scheduler's warning, which goes to everyone
    time.sleep(0.2)
    assert vllm_core.lives(child)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    assert vllm_core.end([child], 30) == 0
