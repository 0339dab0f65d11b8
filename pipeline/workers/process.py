"""Supervised workers (replicas), above all processes on this node with devices of their own.

A process gets its task pickled on standard input, and prints why it ended on standard output, since
the disk may be full. Standard error, where libraries print, goes to a log.
"""

import abc
import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import DamagedData, Interrupted, UserError
from bayes_at_n.pipeline.base.program import IMPORTED_FROM, run_and_exit
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.workers import devices, stopping
from bayes_at_n.pipeline.workers.devices import Share
from bayes_at_n.pipeline.workers.session import Slot
from bayes_at_n.pipeline.workers.stopping import HUNG, StopFlag

PROGRAM = [sys.executable, "-m", __name__]
_CACHES = "VLLM_CACHE_ROOT TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR FLASHINFER_WORKSPACE_BASE"
_LINES = 5  # of the log, shown when a worker dies


# What a worker does, given the settings of its runs, the flag that stops it, and its slot.
Work = Callable[[Sequence[RunConfig], StopFlag, Slot], None]
Record = Mapping[str, Any]  # a session


@dataclass(kw_only=True)
class Replica(abc.ABC):
    """One of the workers of a supervisor, which starts it again when it dies."""

    number: int
    slot: Slot | None = None  # None: not running
    records: list[Record] = field(default_factory=list)  # sessions of the latest start, by folder
    fruitless: int = 0  # starts in a row without an attempt
    status: int = 0  # exit status of the latest start that failed
    failed: str = ""  # why it is not running
    killed_because: str = ""
    dismissed: bool = False  # stopped for good
    silent_since: float | None = None
    may_wait: ClassVar[bool] = False  # whether it may wait for free devices without end

    @abc.abstractmethod
    def begin(self, slot: Slot) -> None:
        """Launch the worker. Raises OSError: its log cannot be written."""

    @abc.abstractmethod
    def poll(self) -> tuple[int, str] | None:
        """Return the exit status and error of a worker that has ended, else None."""

    @abc.abstractmethod
    def stop(self, number: int) -> None:
        """Ask the worker to save finished attempts and end, as on signal `number`."""

    @abc.abstractmethod
    def kill(self, reason: str) -> None:
        """End the worker at once; its engine's processes end with it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Kill the worker if it is running, and wait until its devices are free."""

    @abc.abstractmethod
    def ending(self, status: int, error: str) -> str:
        """Describe how a worker ended that should have continued."""

    def start(self, name: str) -> None:
        """Start the worker; `name`: a unique name of this start."""
        self.records, self.silent_since, self.failed = [], None, ""
        self.killed_because, self.dismissed = "", False
        self.slot = Slot(self.number, name)
        self.begin(self.slot)

    def dismiss(self, reason: str) -> None:
        """Kill the worker for good."""
        self.dismissed = True
        self.kill(reason)

    @property
    def loaded(self) -> bool:
        """Return whether the latest start has loaded its engine."""
        return any("load_s" in record for record in self.records)


def replicas(work: Work, configs: Sequence[RunConfig], logs: Path) -> list["Process"]:
    """Return `engine.replicas` replicas, not started. Raises UserError: see `devices.shares`."""
    task = pickle.dumps((work, [*configs]))
    shares = devices.shares(configs[0])
    return [
        Process(number=n, share=share, task=task, log=Path(f"{logs}-{n}.stderr"))
        for n, share in enumerate(shares)
    ]


@dataclass(kw_only=True)
class Process(Replica):
    """A replica in a process on this node."""

    share: Share
    task: bytes
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    logged: int = 0  # bytes in the log before the latest start

    def begin(self, slot: Slot) -> None:
        self.log.parent.mkdir(exist_ok=True)
        path = os.pathsep.join(filter(None, [str(IMPORTED_FROM), os.environ.get("PYTHONPATH")]))
        with self.log.open("ab") as log:
            self.logged = log.tell()
            self.process = subprocess.Popen(
                PROGRAM,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**caches(), **os.environ, **self.share.environment, "PYTHONPATH": path},
                process_group=0,  # the parent alone handles the terminal's Ctrl-C
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:
            pickle.dump((os.getpid(), self.share.cores, slot), stdin)
            stdin.write(self.task)

    def poll(self) -> tuple[int, str] | None:
        """Return the exit status and error of a process that has ended, and show its warnings."""
        if self.process is None or (status := self.process.poll()) is None:
            return None
        assert self.process.stdout is not None
        with self.process.stdout as stdout:
            os.set_blocking(stdout.fileno(), False)  # a stuck child may hold it open
            error = (stdout.read() or b"").decode(errors="replace")
        for line in self._log_lines():
            if line.startswith("warning: "):
                warn(f"replica {self.number}: {line.removeprefix('warning: ')}")
        self.process = None
        return status, error

    def stop(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def kill(self, reason: str) -> None:
        self.killed_because = reason
        self.stop(signal.SIGKILL)

    def close(self) -> None:
        if self.process is not None:
            self.kill("the command ends")
            with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in a driver
                self.process.wait(timeout=10)
            self.poll()
        with contextlib.suppress(OSError):
            if not self.log.stat().st_size:
                self.log.unlink()

    def ending(self, status: int, error: str) -> str:
        if self.killed_because:
            ending = f"was killed: {self.killed_because}"
        elif status < 0:
            ending = f"was killed by {signal.Signals(-status).name}"
            ending += " (out of memory?)" if -status == signal.SIGKILL else ""
        elif status == HUNG:
            ending = "ended itself: its engine hung"
        else:
            ending = f"ended with status {status}" + (f": {error}" if error else "")
        last = "".join(f"\n  | {line}" for line in self._log_lines()[-_LINES:])
        return f"replica {self.number} {ending}{last}" + (f"\n  ({self.log})" if last else "")

    def _log_lines(self) -> list[str]:
        """Return the last lines that the latest start printed."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.logged, self.log.stat().st_size - (1 << 16)))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return []
        return [line for line in lines if line.strip()]


def caches() -> dict[str, str]:
    """Return variables that put compilation caches on this node: homes are shared and slow."""
    node = Path(tempfile.gettempdir()) / f"bayes-at-n-{os.getuid()}"
    node.mkdir(mode=0o700, exist_ok=True)
    if node.stat().st_uid != os.getuid():  # another user's compiled code would be run
        node = Path(tempfile.mkdtemp())
    return {name: f"{node}/{name.partition('_')[0].lower()}" for name in _CACHES.split()}


def perform(
    work: Work, configs: Sequence[RunConfig], stop: StopFlag, slot: Slot
) -> tuple[int, str]:
    """Call `work`; return the exit status, and the error if it is not 0."""
    try:
        work(configs, stop, slot)
    except (UserError, Interrupted, DamagedData) as error:
        return error.exit_code, str(error)
    except OSError as error:
        return 1, str(error)
    return 0, ""


def main() -> int:
    """Do the task on standard input; return the exit status, as on the command line."""
    with os.fdopen(os.dup(1), "wb") as stdout, stopping.requests(patient=True) as stop:
        os.dup2(2, 1)  # from here on what libraries print goes to the log
        parent, cores, slot = pickle.load(sys.stdin.buffer)
        children.die_with(parent)
        if cores:
            os.sched_setaffinity(0, cores)
        # Not before: unpickling imports torch, which counts the cores.
        work, configs = pickle.load(sys.stdin.buffer)
        status, error = perform(work, configs, stop, slot)
        stdout.write(error.encode())
        return status


if __name__ == "__main__":
    run_and_exit(main)
