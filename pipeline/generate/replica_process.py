"""The replicas of one node as processes: started, watched by their sessions, stopped."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.base.console import warn
from pipeline.base.places import PACKAGES
from pipeline.generate.devices import Share
from pipeline.generate.record import COUNTS
from pipeline.generate.replica import Order
from pipeline.generate.worker import HUNG
from pipeline.store import workernames, workers
from pipeline.store.runfolder import Run

PROGRAM = [sys.executable, "-m", "pipeline.generate.replica"]
LINES = 5  # of a log, shown when its replica dies


@dataclass
class Replica:
    """One place for a worker, and what is known of the process that fills it."""

    number: int
    share: Share
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    record: Mapping[str, Any] = field(default_factory=dict)  # the session of the latest process
    past: Counter[str] = field(default_factory=Counter)  # `COUNTS` of the processes before
    starts_in_vain: int = 0  # processes in a row that made none
    code: int = 0  # the status of the latest process that ended badly
    error: str = ""  # why the latest process ended
    failed: str = ""  # why nobody works here now
    since: str = ""  # names of workers that begin later are greater
    logged: int = 0  # bytes in the log before this process
    silent_since: float | None = None
    killed_because: str = ""

    @property
    def loaded(self) -> bool:
        """Whether the latest process got as far as a loaded engine."""
        return "load_s" in self.record

    def total(self, count: str) -> int:
        """Of all processes so far, one of `COUNTS`."""
        return self.past[count] + (self.record.get(count, 0) if self.process else 0)

    def start(self, run: Run) -> None:
        """Start a process.

        Raises:
            OSError: when its log cannot be written.
        """
        self.record, self.silent_since = {}, None
        self.error = self.failed = self.killed_because = ""
        self.since = f"{time.time_ns() // 1000:016d}"
        self.log.parent.mkdir(parents=True, exist_ok=True)
        path = filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")])
        with self.log.open("ab") as log:
            self.logged = log.tell()
            self.process = subprocess.Popen(
                PROGRAM,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.share.environment, "PYTHONPATH": os.pathsep.join(path)},
                process_group=0,  # the terminal's Ctrl-C is the parent's business
            )
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:
            pickle.dump(Order(run.cfg, self.number, os.getpid(), self.share.cores), stdin)

    def read(self, sessions: Mapping[str, Mapping[str, Any]]) -> None:
        """Take in what the process last said of itself; `sessions` by the names of workers."""
        if self.process is not None:
            own = f"-{workernames.node()}-{self.process.pid}"
            names = [name for name in sessions if name.endswith(own) and name > self.since]
            self.record = sessions[names[0]] if names else {}

    def signal(self, number: int) -> None:
        """Send a signal to the process if it is there."""
        if self.process is not None:
            self.process.send_signal(number)

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
        with contextlib.suppress(OSError):
            if not self.log.stat().st_size:
                self.log.unlink()

    def ended(self, run: Run) -> int | None:
        """The exit status of a process that has ended since, or None; counts what it made."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)  # a stuck child may hold it open
        with self.process.stdout as stdout:
            self.error = (stdout.read() or b"").decode(errors="replace")
        self.read(workers.sessions(run.path))
        for line in self._log_lines():
            if line.startswith("warning: "):
                warn(f"replica {self.number}: {line.removeprefix('warning: ')}")
        self.process = None
        self.starts_in_vain = 0 if self.record.get("attempts") else self.starts_in_vain + 1
        self.past.update({count: self.record.get(count, 0) for count in COUNTS})
        done = self.record.get("state") == "done"
        return 0 if done and code < 0 else code  # an engine may crash while it is taken down

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
        last = "".join(f"\n  | {line}" for line in self._log_lines()[-LINES:])
        return f"replica {self.number} {how}{last}" + (f"\n  ({self.log})" if last else "")

    def _log_lines(self) -> list[str]:
        """What the latest process printed, or the last part of that."""
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.logged, self.log.stat().st_size - (1 << 16)))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return []
        return [line for line in lines if line.strip()]
