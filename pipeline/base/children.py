"""Start child processes that end with this program, and handle the signals that ask it to stop.

Killed with `kill -9`, a parent cannot stop its children, and an orphan would hold a GPU: Linux's
parent-death signal ends it. Ctrl-C goes to a process group, so children get one of their own and
are stopped by us. A scheduler's warning goes to every process of a job: children ignore it.
"""

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import util
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # the last: a scheduler's warning
_PR_SET_PDEATHSIG = 1
_taming = False
_parent = 0
_spawn_untamed = util.spawnv_passfds


@contextlib.contextmanager
def tamed() -> Iterator[None]:
    """Let processes forked inside die with their parent, and not see the terminal's Ctrl-C.

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


def _before_fork() -> None:
    global _parent
    _parent = os.getpid()


def _after_fork() -> None:
    if _taming:
        die_with(_parent)
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.setpgrp()  # last, so that who sees the group knows the rest to be done


os.register_at_fork(before=_before_fork, after_in_child=_after_fork)


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Give each of `SIGNALS` to `handler` while the block runs, in the main thread."""
    mine = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in SIGNALS if mine}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
