"""A replica as a process: started with its devices, ended, and what it last said.

It gets its order pickled on standard input and answers on standard output. What libraries print
goes to standard error, and that into a log.
"""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.base.program import IMPORTED_FROM
from bayes_at_n.pipeline.workers.devices import Share
from bayes_at_n.pipeline.workers.heartbeat import HUNG

_CACHES = "VLLM_CACHE_ROOT TRITON_CACHE_DIR TORCHINDUCTOR_CACHE_DIR FLASHINFER_WORKSPACE_BASE"
LINES = 5  # of a log, shown when its replica dies


@dataclass(frozen=True)
class Order:
    """What a replica is to do, by whom it is watched, and on which cores (none: all)."""

    work: Any
    parent: int  # process id
    cores: tuple[int, ...]


def caches() -> dict[str, str]:
    """Where engines are to keep what they compile: on this node, for homes are shared and slow."""
    node = Path(tempfile.gettempdir()) / f"bayes-at-n-{os.getuid()}"
    node.mkdir(mode=0o700, exist_ok=True)
    if node.stat().st_uid != os.getuid():  # what lies there would be run
        node = Path(tempfile.mkdtemp())
    return {name: f"{node}/{name.partition('_')[0].lower()}" for name in _CACHES.split()}


@contextlib.contextmanager
def answering() -> Iterator[IO[bytes]]:
    """In a replica: where its answers go; from here on what others print goes into the log."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    with answers:
        yield answers


def take_order() -> Any:
    """In a replica: what it is to do; from here on it has its cores, and dies with its parent.

    To be called before torch is imported, which counts the cores.
    """
    order: Order = pickle.load(sys.stdin.buffer)
    children.die_with(order.parent)
    if order.cores:
        os.sched_setaffinity(0, order.cores)
    return order.work


@dataclass
class Process:
    """One place for a replica, and what is known of the process that fills it."""

    number: int
    share: Share
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    error: str = ""  # why the latest process ended
    logged: int = 0  # bytes in the log before this process
    killed_because: str = ""

    def begin(self, program: Sequence[str], work: Any) -> None:
        """Start a process.

        Raises OSError: when its log cannot be written.
        """
        self.error = self.killed_because = ""
        self.log.parent.mkdir(exist_ok=True)
        path = os.pathsep.join(filter(None, [str(IMPORTED_FROM), os.environ.get("PYTHONPATH")]))
        with self.log.open("ab") as log:
            self.logged = log.tell()
            self.process = subprocess.Popen(
                program,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**caches(), **os.environ, **self.share.environment, "PYTHONPATH": path},
                process_group=0,  # the terminal's Ctrl-C is the parent's business
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its status will say more
            pickle.dump(Order(work, os.getpid(), self.share.cores), self.process.stdin)
            self.process.stdin.flush()

    def signal(self, number: int) -> None:
        """Send a signal to the process if it is there."""
        process = self.process  # another thread may just find that it has ended
        if process is not None:
            process.send_signal(number)

    def kill(self, why: str) -> None:
        """End the process at once; its engine's processes end with it."""
        self.killed_because = why
        self.signal(signal.SIGKILL)

    def end(self) -> None:
        """Kill the process if it is there, and wait until its devices are free."""
        if self.process is not None:
            self.kill("the command ends")
            with contextlib.suppress(subprocess.TimeoutExpired):  # stuck in a driver
                self.process.wait(timeout=10)
            self.forget()
        with contextlib.suppress(OSError):
            if not self.log.stat().st_size:
                self.log.unlink()

    def forget(self) -> None:
        """Close the pipes of a process that has ended, and make room for another."""
        assert self.process is not None
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError):
                pipe.close()
        self.process = None

    def how_it_ended(self, code: int) -> str:
        """What happened to a process that should have gone on, and the end of its log."""
        if self.killed_because:
            how = f"was killed: {self.killed_because}"
        elif code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
            how += " (out of memory?)" if -code == signal.SIGKILL else ""
        elif code == HUNG:
            how = "ended itself: its engine hung"
        else:
            how = f"ended with status {code}" + (f": {self.error}" if self.error else "")
        last = "".join(f"\n  | {line}" for line in self.log_lines()[-LINES:])
        return f"replica {self.number} {how}{last}" + (f"\n  ({self.log})" if last else "")

    def log_lines(self) -> list[str]:
        """What the latest process printed, or the last part of that."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.logged, self.log.stat().st_size - (1 << 16)))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return []
        return [line for line in lines if line.strip()]
