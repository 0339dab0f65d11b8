"""vLLM's engine core: the part that schedules and computes, on GPUs in a separate process.

vLLM 0.32 waits forever for output of a core that was killed; here that is an error that states how
the core ended.
"""

import contextlib
import signal
import threading
import time
from collections.abc import Iterable, Sequence
from multiprocessing import connection
from typing import Any

import psutil

from bayes_at_n.pipeline.base.console import warn

_CLOSE_S = 60.0  # after which processes of an engine that have not ended are killed


class Core:
    """The core of a loaded engine, in this process or another; `engine`: vLLM's `LLMEngine`."""

    def __init__(self, engine: Any) -> None:
        self.client = client = engine.engine_core
        manager = getattr(getattr(client, "resources", None), "engine_manager", None)
        self.processes: list[Any] = list(manager.processes) if manager else []
        # Listed now: workers are children of the core, and are orphaned when it is killed.
        self.family = families([process.pid for process in self.processes])
        self._vllm_get_output = client.get_output
        client.get_output = self._get_output
        if self.processes:
            threading.Thread(target=self._watch, name="engine-core", daemon=True).start()

    def ended(self) -> str:
        """Return how a process of the core ended; empty while all live."""
        return next(filter(None, map(_how_it_ended, self.processes)), "")

    def _get_output(self) -> Any:
        try:
            return self._vllm_get_output()
        except Exception as error:
            if reason := self.ended():
                raise RuntimeError(reason) from error
            raise

    def _watch(self) -> None:
        """When the core ends, raise an error in callers that wait for it; vLLM does not."""
        client, error = self.client, RuntimeError("its process ended")
        connection.wait([process.sentinel for process in self.processes])
        client.outputs_queue.put(error)
        for waiting in list(client.utility_results.values()):
            if not waiting.done():
                waiting.set_exception(error)

    def close(self) -> None:
        """Shut the core down and wait until its processes have ended, which frees their memory."""
        self.client.shutdown(timeout=_CLOSE_S)
        for process in self.processes:
            process.join(_CLOSE_S)
        if killed := end(self.family, _CLOSE_S):
            warn(f"{killed} processes of the engine did not end and were killed")


def _how_it_ended(process: Any) -> str:
    """Return how a process of multiprocessing ended; empty if it lives."""
    if not connection.wait([process.sentinel], timeout=0):
        return ""
    for _ in range(100):  # vLLM's thread may have collected the status and not yet stored it
        if process.exitcode is None:
            time.sleep(0.05)
    code = process.exitcode
    if code is not None and code < 0:
        killed = f"was killed by {signal.Signals(-code).name}"
        return f"its process {killed}" + (" (out of memory?)" if -code == signal.SIGKILL else "")
    return f"its process ended with status {code}"


def families(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the living processes among `pids`, and all their descendants."""
    processes = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            child = psutil.Process(pid)
            processes += [child, *child.children(recursive=True)]
    return processes


def end(processes: Sequence[psutil.Process], seconds: float) -> int:
    """Wait for processes to end; kill those that do not in time, and return how many."""
    alive = _alive(processes, seconds)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _alive(alive, seconds)
    return len(alive)


def _alive(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while (alive := [p for p in processes if lives(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def lives(process: psutil.Process) -> bool:
    """Return whether a process exists and is not a zombie, which holds no memory."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
