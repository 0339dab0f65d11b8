"""A worker's heartbeat: a file that is touched every ten seconds while its engine responds.

A process that died on this host counts as dead at once; one on another host, or one that hangs,
after two minutes without a heartbeat. All times are the file server's, so that clocks of hosts are
never compared.
"""

import math
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from bayes_at_n.pipeline.base import lease, program
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.store import sessions
from bayes_at_n.pipeline.workers import guard

HEARTBEAT_S = 10.0
HANG_S, LOAD_S = 600.0, 3600.0  # longer than any step of an engine, and than loading one
HUNG = 86  # exit status of a process whose engine does not respond


class Heartbeat:
    """The file `claims/WORKER.lease` of a worker in a folder; it exists within the `with` block.

    `check`: called before the file is touched; raises if the folder moved.

    Attributes:
        now: the file server's time when the file was last touched, in Unix seconds.
    """

    def __init__(self, folder: Path, worker: str, check: guard.Check = lambda: None) -> None:
        self.check, self.path, self.now = check, path_of(folder, worker), 0.0
        self._token, self._left = lease.token(worker=worker), False
        self._changing = threading.Lock()  # so that no touch recreates the file during removal

    def __enter__(self) -> Self:
        self.touch()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing, suppress(OSError):
            self._left = True
            self.path.unlink()

    def touch(self) -> None:
        """Touch the file; create it if it is missing, unless the worker has left."""
        with self._changing:
            while not self._left:
                self.check()
                self.path.parent.mkdir(exist_ok=True)
                with suppress(FileNotFoundError):  # the last worker to leave removed the folder
                    if not self.path.exists():
                        lease.create(self.path, self._token)
                    os.utime(self.path)
                    self.now = self.path.stat().st_mtime
                    return


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

    @contextmanager
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
        while not self._stop.wait(HEARTBEAT_S):
            now, (since, limit) = time.monotonic(), self._awaited
            if now - awake > 3 * HEARTBEAT_S:  # this process was suspended, or the file system
                excused = now  # blocked, and the engine perhaps too
            awake = now
            if now - max(since, excused) > limit:
                return self._hung(limit)
            for beat in tuple(self.beats):
                with suppress(OSError, UserError):
                    beat.touch()


def silence_s(engine: EngineConfig) -> float:
    """Return how many seconds a step may take; for servers, time for retries is added.

    >>> silence_s(EngineConfig("vllm")) == HANG_S < silence_s(EngineConfig("openai"))
    True
    """
    served = program.kind(engine.name).served
    return HANG_S + served * (engine.patience_s + engine.timeout_s)


def path_of(folder: Path, worker: str) -> Path:
    """Return the path of a worker's heartbeat in a folder."""
    return folder / sessions.CLAIMS / f"{worker}{lease.SUFFIX}"
