"""A worker's sign of life: a file that is touched every ten seconds while its engine answers.

A process that died on this host is known to be dead at once, one on another host, or one that lives
and does nothing, after two minutes of silence. Times are the file server's: no two clocks are
compared.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from bayes_at_n.pipeline.base import engines, lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.store import sessions
from bayes_at_n.pipeline.workers import home

HEARTBEAT_S = 10.0
HANG_S, LOAD_S = 600.0, 3600.0  # no step of an engine takes that long, nor the loading of one
HUNG = 86  # exit status of a process whose engine does not answer


class Heartbeat:
    """The file `claims/WORKER.lease` of a worker in a folder: there while the block runs.

    A `Watch` keeps it fresh. `check`: of the folder, before the file is made again.
    """

    def __init__(self, folder: Path, worker: str, check: home.Check = lambda: None) -> None:
        self.check, self.path = check, path_of(folder, worker)
        self._token = lease.token(worker=worker)
        self._ahead = 0.0  # of the file server's clock before this process's own
        self._left = False
        self._changing = threading.Lock()  # no look makes the file anew while it is removed

    def __enter__(self) -> Self:
        self.appear()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing, suppress(OSError):
            self._left = True
            self.path.unlink()

    def appear(self) -> None:
        """Touch the file; make it, complete from its first moment, when it is not there."""
        while True:
            self.check()
            self.path.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # the last one out cleared the folder away
                if not self.path.exists():
                    lease.create(self.path, self._token)
                os.utime(self.path)
                touched = time.monotonic()
                self._ahead = self.path.stat().st_mtime - touched
                return

    def touch(self) -> None:
        """Show that the worker lives, unless it has left."""
        with self._changing, suppress(OSError, UserError):
            if not self._left:
                self.appear()

    @property
    def now(self) -> float:
        """Return the file server's time, in Unix seconds."""
        return time.monotonic() + self._ahead


class Watch:
    """A thread that looks every `HEARTBEAT_S` whether the engine answers, and says who is alive.

    `hung`: called by that thread, once, with the limit in seconds, when what `awaiting` waits for
    did not come in time; no heartbeat is touched any more.

    Attributes:
        beats: the heartbeats that it touches, one a run; may be changed at any time.
    """

    def __init__(self, hung: Callable[[float], None]) -> None:
        self.beats: list[Heartbeat] = []
        self._hung = hung
        self._awaited: tuple[float, float] | None = None  # since when, and for how long at most
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def awaiting(self, seconds: float | None = None) -> Iterator[None]:
        """Give the engine control for at most so many seconds, by default `HANG_S`.

        Outside no time counts: a file system may stand still for as long as it likes.
        """
        self._awaited = time.monotonic(), HANG_S if seconds is None else seconds
        try:
            yield
        finally:
            self._awaited = None

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Stop the time while the engine that is awaited waits for us; then it begins anew."""
        awaited, self._awaited = self._awaited, None
        try:
            yield
        finally:
            self._awaited = awaited and (time.monotonic(), awaited[1])

    def _look(self) -> None:
        awake = excused = time.monotonic()
        while not self._stop.wait(HEARTBEAT_S):
            now = time.monotonic()
            if now - awake > 3 * HEARTBEAT_S:  # suspended, or held up by the file system,
                excused = now  # and so perhaps the engine
            awake, awaited = now, self._awaited  # read once: the main thread changes it
            if awaited and now - max(awaited[0], excused) > awaited[1]:
                self._hung(awaited[1])
                return
            for beat in tuple(self.beats):
                beat.touch()


def silence_s(engine: EngineConfig) -> float:
    """Return how long a step may take, in seconds: a server is asked again for as long as given.

    >>> silence_s(EngineConfig("vllm")) == HANG_S < silence_s(EngineConfig("openai"))
    True
    """
    served = engines.kind(engine.name).served
    return HANG_S + served * (engine.patience_s + engine.timeout_s)


def path_of(folder: Path, worker: str) -> Path:
    """Return where the heartbeat of a worker in a folder is."""
    return folder / sessions.CLAIMS / f"{worker}{lease.SUFFIX}"


def clear(folder: Path, now: float) -> None:
    """Delete all claims and the heartbeats of the dead; for whoever knows that no claim counts."""
    for path in folder.glob("[!.]*"):  # what starts with a dot is about to be renamed
        if path.suffix != lease.SUFFIX or lease.is_dead(path, now):
            path.unlink(missing_ok=True)
