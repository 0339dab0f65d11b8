"""Start child processes that end with this program, and handle the signals that ask it to stop.

Killed with `kill -9`, a parent cannot stop its children, and an orphan would hold a GPU: Linux's
parent-death signal ends it. Ctrl-C goes to a process group, so children get one of their own and
are stopped by us. A scheduler's warning goes to every process of a job: children ignore it.
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

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1)  # the last: a scheduler's warning
_PR_SET_PDEATHSIG = 1
_parent = 0  # the process whose children die with it
_spawn_untamed = util.spawnv_passfds


@contextlib.contextmanager
def dying_with_parent() -> Iterator[None]:
    """Let processes started inside by `os.fork` or `multiprocessing` die with their parent."""
    global _parent
    _parent, util.spawnv_passfds = os.getpid(), _spawn
    try:
        yield
    finally:
        _parent, util.spawnv_passfds = 0, _spawn_untamed


def _die_with_parent() -> None:
    global _parent
    if _parent:
        die_with(_parent)
        _parent = os.getpid()
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)
        os.setpgrp()  # last, so that who sees the group knows the rest to be done


os.register_at_fork(after_in_child=_die_with_parent)


def _spawn(path: bytes, args: Sequence[Any], passfds: Sequence[int]) -> int:
    """Start a fresh program by a fork: what `_die_with_parent` sets outlives `exec`."""
    if "--multiprocessing-fork" not in args:  # the resource tracker, which ends by itself
        ignoring = f"import signal; signal.signal({int(signal.SIGUSR1)}, signal.SIG_IGN)"
        # Else it would warn of the shared memory of an engine that was killed.
        args = [args[0], "-W", "ignore", *args[1:-1], f"{ignoring}; {args[-1]}"]
        return _spawn_untamed(path, args, passfds)
    if pid := os.fork():
        return pid
    try:
        for file in passfds:
            os.set_inheritable(file, True)
        os.execv(path, [*args])
    finally:
        os._exit(1)


def die_with(parent: int) -> None:
    """Be killed when `parent`, which started this process, ends in whatever way (Linux only)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL))
        if os.getppid() != parent:  # it died before that was asked for
            os._exit(1)


def in_fork(work: Callable[[], Iterator[Any]], seconds: float, size: int) -> Iterator[Any]:
    """Yield what `work` does, as it comes, from a forked process, killed if no more is asked.

    It has so many seconds of processor time (0: no limit), and the memory of
    `untrusted.memory_limit` for `size` bytes.

    Raises TimeoutError: the time was up. ChildProcessError: it ended otherwise.
    """
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)

    def child() -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds)
        with memory_limit(size):
            for item in work():
                theirs.send((item,))
        theirs.send(())

    process = context.Process(target=child, daemon=True)
    with dying_with_parent():
        process.start()
    theirs.close()
    try:
        with contextlib.suppress(EOFError, OSError):  # its end, perhaps amid an item
            while item := ours.recv():
                yield item[0]
            return
        process.join()
        if process.exitcode == -signal.SIGPROF:
            raise TimeoutError(f"more than {seconds:g} s of processor time")
        raise ChildProcessError(f"its process ended with status {process.exitcode}")
    finally:
        process.kill()
        process.join()
        ours.close()


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
