"""How a worker ends early: on a signal, or when the engine, the disk or the run folder fails.

Finished attempts are kept, and the user gets one readable line.
"""

import contextlib
import errno
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Self

from bayes_at_n.pipeline.base import children, program
from bayes_at_n.pipeline.base.atomic import GONE
from bayes_at_n.pipeline.base.console import note
from bayes_at_n.pipeline.base.errors import Interrupted, TryAgain, UserError, one_line
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import claims
from bayes_at_n.pipeline.workers.claims import Heartbeat

HANG_S, LOAD_S = 600.0, 3600.0  # longer than any step of an engine, and than loading one
HUNG = 86  # exit status of a process whose engine does not respond
PROBE_S = 20.0  # the longest that a probe of a server may take: sampling waits for it
# Errors of a disk that trying again does not mend.
_PERMANENT = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM)


class StopFlag:
    """Set by the first of `children.SIGNALS`."""

    signal_number: int = 0
    loading: bool = False  # then there is nothing to save


class StopNow(BaseException):
    """A signal arrived while the engine was loading, when there is nothing to save."""


@contextlib.contextmanager
def requests(patient: bool = False) -> Iterator[StopFlag]:
    """Set the flag on a signal; a second Ctrl-C or SIGTERM ends the process at once.

    `patient`: ignore repeated signals, because Slurm sends one to every process and a parent passes
    its own on.
    """
    flag = StopFlag()

    def stop(number: int, frame: FrameType | None) -> None:
        warned = flag.signal_number == signal.SIGUSR1  # and the real signal follows
        if flag.signal_number and number != signal.SIGUSR1 and not (warned or patient):
            raise KeyboardInterrupt
        if not flag.signal_number or warned:
            flag.signal_number = number
            if flag.loading:
                raise StopNow
            note("stopping: saving finished attempts (again to quit immediately) ...")

    with children.handled_by(stop):
        yield flag


@contextlib.contextmanager
def at_once(flag: StopFlag) -> Iterator[None]:
    """Raise StopNow on the first signal."""
    flag.loading = True
    try:
        if flag.signal_number:
            raise StopNow
        yield
    finally:
        flag.loading = False


@contextlib.contextmanager
def engine_errors(
    engine: str, excused: Callable[[Exception], bool] = lambda error: False
) -> Iterator[None]:
    """Turn an engine's exception into one readable line.

    `excused`: returns whether to ignore an error because the worker is stopping.
    """
    try:
        yield
    except Exception as error:  # engines raise whatever their parts raise
        if isinstance(error, OSError) and error.errno in _PERMANENT:
            raise  # the disk's, say of the folder of claims
        if isinstance(error, UserError) and not excused(error):
            raise
        if not excused(error):
            raise TryAgain(
                f"engine={engine} failed while generating: {one_line(error)}."
                " Finished attempts are kept; the same command continues"
            ) from error


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turn an OSError into one readable line."""
    try:
        yield
    except OSError as error:
        kind = UserError if error.errno in _PERMANENT else TryAgain
        raise kind(
            f"{folder}: {error.strerror or error}. Finished attempts that were written are kept;"
            " fix the disk (free space, permissions), then the same command continues"
        ) from error


def interrupted(runs: Sequence[Run], left: int, signal_number: int) -> Interrupted:
    """Return the exception of a command that was stopped with `left` attempts pending."""
    total = sum(len(run.keys) for run in runs)
    folders = str(runs[0].path) if len(runs) == 1 else f"{len(runs)} run folders"
    return Interrupted(
        f"stopped: {total - left} of {total} attempts are kept in {folders}; the same command"
        f" samples the other {left}",
        signal_number,
    )


Check = Callable[[], None]  # raises Moved


class Moved(UserError):
    """A run folder was deleted, renamed or replaced while a command worked in it."""


@contextlib.contextmanager
def unmoved(folder: Path, work: str) -> Iterator[Check]:
    """Yield a check that the folder is still the one that it was on entry.

    `work`: what the command does, for the message. Raises Moved: from the check, and instead of any
    error inside that comes of the folder being gone. OSError: there is no such folder.
    """
    handle = os.open(folder, os.O_RDONLY)  # while it is open no other folder gets the same inode

    def check() -> None:
        try:
            if os.path.samestat(original, folder.stat()):
                return
        except OSError as error:
            if error.errno not in GONE:
                raise
        raise Moved(
            f"{folder}: was deleted, renamed or replaced while {work} in it; stopped, nothing more"
            " is written. If it was renamed, give the command the new name: what was finished is"
            " kept there. If it was deleted, the same command starts over"
        )

    try:
        original = os.fstat(handle)
        yield check
    except Exception:
        check()
        raise
    finally:
        os.close(handle)


class Watch:
    """A thread that checks the engine every `HEARTBEAT_S` and touches heartbeats while it responds.

    `hung`: called once, in that thread, with the limit in seconds, if a block of `awaiting` takes
    longer; heartbeats are no longer touched then.

    Attributes:
        beats: the heartbeats to touch, one per run; may be changed at any time.
    """

    def __init__(self, hung: Callable[[float], None]) -> None:
        self.beats: list[Heartbeat] = []
        self._hung, self._stop = hung, threading.Event()
        self._awaited = 0.0, math.inf  # start and limit of the current wait
        self._thread = threading.Thread(target=self._check, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextlib.contextmanager
    def awaiting(self, seconds: float | None = None) -> Iterator[None]:
        """Limit a block in which the engine has control to `seconds`, by default `HANG_S`.

        Time outside such blocks has no limit: a file system may block for as long as it likes. An
        inner block without limit (math.inf) is for when the engine waits for us; after it the limit
        of the outer one starts over.
        """
        outer, self._awaited = self._awaited[1], (time.monotonic(), seconds or HANG_S)
        try:
            yield
        finally:
            self._awaited = time.monotonic(), outer

    def _check(self) -> None:
        awake = excused = time.monotonic()
        while not self._stop.wait(claims.HEARTBEAT_S):
            now, (since, limit) = time.monotonic(), self._awaited
            # This process was suspended, or the file system blocked, and the engine perhaps too.
            if now - awake > 3 * claims.HEARTBEAT_S:
                excused = now
            awake = now
            if now - max(since, excused) > limit:
                return self._hung(limit)
            for beat in tuple(self.beats):
                with contextlib.suppress(OSError):  # it was deleted
                    os.utime(beat.path)


def silence_s(engine: EngineConfig) -> float:
    """Return how many seconds a step may take; for servers, time for retries is added.

    >>> silence_s(EngineConfig("vllm")) == HANG_S < silence_s(EngineConfig("openai"))
    True
    """
    served = program.kind(engine.name).served
    return HANG_S + served * (engine.patience_s + engine.timeout_s)
