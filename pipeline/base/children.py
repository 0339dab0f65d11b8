"""Start child processes that end with this program, and handle signals.

A parent killed with `kill -9` cannot stop its children, and an orphan would hold a GPU: Linux's
parent-death signal ends it. Ctrl-C goes to a process group, so children get their own group and the
parent stops them. A scheduler's warning goes to every process of a job, and children ignore it.
"""

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import util
from types import FrameType
from typing import Any

from bayes_at_n.pipeline.base.untrusted import memory_limit

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # SIGUSR1: a scheduler's warning
_PR_SET_PDEATHSIG = 1
_parent = 0  # pid of the process whose children die with it; 0: none
_original_spawn = util.spawnv_passfds


@contextlib.contextmanager
def dying_with_parent() -> Iterator[None]:
    """Make processes started within the block by `os.fork` or `multiprocessing` die with it."""
    global _parent
    _parent, util.spawnv_passfds = os.getpid(), _spawn
    try:
        yield
    finally:
        _parent, util.spawnv_passfds = 0, _original_spawn


def _die_with_parent() -> None:
    global _parent
    if _parent:
        die_with(_parent)
        _parent = os.getpid()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.setpgrp()  # last, so that a visible group means that all is set


os.register_at_fork(after_in_child=_die_with_parent)


def _spawn(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Start a program by fork and exec, which keeps what `_die_with_parent` sets."""
    if "--multiprocessing-fork" not in args:  # the resource tracker, which ends by itself
        ignoring = f"import signal; signal.signal({int(signal.SIGUSR1)}, signal.SIG_IGN)"
        # Ignore its warnings about shared memory of an engine that was killed.
        args = [args[0], "-W", "ignore", *args[1:-1], f"{ignoring}; {args[-1]}"]
        return _original_spawn(path, args, passfds)
    if pid := os.fork():
        return pid
    try:
        for file in passfds:
            os.set_inheritable(file, True)
        os.execv(path, [*args])
    finally:
        os._exit(1)


def die_with(parent: int) -> None:
    """Have this process killed when its `parent` ends for any reason (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it has died already
            os._exit(1)


def in_fork(work: Callable[[], Iterator[Any]], seconds: float, size: int) -> Iterator[Any]:
    """Yield the items of `work`, run in a forked process, which is killed when the caller stops.

    `seconds`: limit of its processor time, 0: none; `size`: see `memory_limit`. Raises
    TimeoutError: it took more. ChildProcessError: it ended otherwise.
    """
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)

    def child() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with memory_limit(size):
            for item in work():
                sender.send((item,))
        sender.send(())

    process = context.Process(target=child, daemon=True)
    with dying_with_parent():
        process.start()
    sender.close()
    try:
        with contextlib.suppress(EOFError, OSError):  # it ended, perhaps within an item
            while item := receiver.recv():
                yield item[0]
            return
        process.join()
        if process.exitcode == -signal.SIGPROF:
            raise TimeoutError(f"more than {seconds:g} s of processor time")
        raise ChildProcessError(f"its process ended with status {process.exitcode}")
    finally:
        process.kill()
        process.join()
        receiver.close()


@contextlib.contextmanager
def handled_by(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Handle `SIGNALS` by `handler` within the block, if this is the main thread."""
    is_main = threading.current_thread() is threading.main_thread()
    before = {number: signal.signal(number, handler) for number in SIGNALS if is_main}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
