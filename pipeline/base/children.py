"""Processes that an engine forks end with this program, and Ctrl-C is this program's business.

Killed with `kill -9`, a parent cannot stop its children, and an orphan would go on holding a GPU.
Linux can stop it: the parent-death signal. And a terminal sends Ctrl-C to a whole process group:
children in a group of their own are stopped in good order by us instead. A scheduler's warning goes
to every process of a job: theirs is ignored.
"""

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import util
from typing import Any

import psutil

_PR_SET_PDEATHSIG = 1
_taming = False
_parent = 0
_spawn_untamed = util.spawnv_passfds


@contextlib.contextmanager
def tamed() -> Iterator[None]:
    """Processes forked inside die with their parent and do not see the terminal's Ctrl-C.

    The same for those that `multiprocessing` starts afresh ("spawn"): no fork hook runs in them.
    """
    global _taming
    _taming, util.spawnv_passfds = True, _spawn
    try:
        yield
    finally:
        _taming, util.spawnv_passfds = False, _spawn_untamed


def _spawn(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    args = list(args)
    program = args.index("-c") + 1
    first = "import ctypes, os, signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN);"
    if "--multiprocessing-fork" not in args:  # the resource tracker, which ends by itself
        # It would tell of the shared memory of an engine that was killed.
        args[program] = f"{first} import warnings; warnings.simplefilter('ignore'); {args[program]}"
    elif sys.platform == "linux":
        args[program] = (
            f"{first} ctypes.CDLL(None).prctl({_PR_SET_PDEATHSIG}, {int(signal.SIGKILL)});"
            f" os.getppid() == {os.getpid()} or os._exit(1); os.setpgrp(); {args[program]}"
        )
    return _spawn_untamed(path, args, passfds)


def die_with(parent: int) -> None:
    """Be killed when `parent`, which started this process, ends in whatever way (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it died before the signal was asked for
            os._exit(1)


def families(pids: Iterable[int]) -> list[psutil.Process]:
    """These children of this process that live, and all processes below them."""
    found = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            child = psutil.Process(pid)
            found += [child, *child.children(recursive=True)]
    return found


def end(processes: Sequence[psutil.Process], seconds: float) -> int:
    """Wait until processes have ended; kill what has not in time, and say how many these were."""
    alive = _alive(processes, seconds)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _alive(alive, seconds)
    return len(alive)


def _alive(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    """Those that still live after so many seconds; a zombie holds nothing but its number."""
    until = time.monotonic() + seconds
    while alive := [process for process in processes if lives(process)]:
        if time.monotonic() > until:
            break
        time.sleep(0.05)
    return alive


def lives(process: psutil.Process) -> bool:
    """Whether a process is there, and no zombie."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _before_fork() -> None:
    global _parent
    _parent = os.getpid()


def _after_fork() -> None:
    if not _taming:
        return
    die_with(_parent)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    os.setpgrp()  # last, so that who sees the group knows the rest to be done


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
