"""The replicas of one node as processes: started, heard, stopped and taken away."""

import contextlib
import os
import pickle
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing import Pipe, connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from pipeline.base.console import warn
from pipeline.base.places import PACKAGES
from pipeline.generate.devices import Share
from pipeline.generate.record import COUNTS
from pipeline.generate.replica import Order
from pipeline.generate.worker import HUNG
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
    pipe: "Connection[Any, Any] | None" = None  # from the process, while it says something
    record: dict[str, Any] = field(default_factory=dict)  # the latest of this process
    exit: int | None = None  # what it said its status will be, before it cleans up
    error: str = ""
    past: Counter[str] = field(default_factory=Counter)  # of the processes before this one
    starts_in_vain: int = 0  # processes in a row that made none
    code: int = 0  # the status of the latest process that ended badly
    failed: str = ""  # why nobody works here now
    lost_while: str = ""  # the state in which the process before this one ended
    logged: int = 0  # bytes in the log before this process
    silent_since: float | None = None
    killed_because: str = ""

    @property
    def state(self) -> str:
        return str(self.record.get("state", "loading"))

    def total(self, count: str) -> int:
        """Of all processes so far, one of `COUNTS`."""
        return self.past[count] + int(self.record.get(count, 0))

    def start(self, run: Run) -> None:
        """Start a process.

        Raises:
            OSError: when its log cannot be written.
        """
        self.record, self.exit, self.silent_since = {}, None, None
        self.error = self.failed = self.killed_because = ""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.pipe, theirs = Pipe(duplex=False)
        path = filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")])
        with self.log.open("ab") as log, theirs:
            self.logged = log.tell()
            self.process = subprocess.Popen(
                PROGRAM,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env={**os.environ, **self.share.environment, "PYTHONPATH": os.pathsep.join(path)},
                process_group=0,  # the terminal's Ctrl-C is the parent's business
            )
            order = Order(run.cfg, self.number, os.getpid(), theirs.fileno(), self.share.cores)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError), self.process.stdin as stdin:
            pickle.dump(order, stdin)  # if it died already, that is seen in a moment

    def read_messages(self) -> None:
        """Take in what the process has said since."""
        try:
            while self.pipe is not None and self.pipe.poll():
                message = self.pipe.recv()
                if "warning" in message:
                    warn(f"replica {self.number}: {message['warning']}")
                elif "exit" in message:
                    self.exit, self.error = message["exit"], message["error"]
                else:
                    self.record = message
        except (EOFError, OSError):
            self.pipe = None

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

    def ended(self) -> int | None:
        """The exit status of a process that has ended since, or None; counts what it made."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.read_messages()
        self.process = self.pipe = None
        self.lost_while = self.state
        self.starts_in_vain = 0 if self.record.get("attempts") else self.starts_in_vain + 1
        self.past.update({count: self.record.get(count, 0) for count in COUNTS})
        self.record = {"state": "ended"}
        return code if self.exit is None else self.exit

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
        return f"replica {self.number} {how}{self._log_tail()}"

    def _log_tail(self) -> str:
        try:
            with self.log.open("rb") as log:
                log.seek(max(self.logged, self.log.stat().st_size - 4096))
                lines = log.read().decode(errors="replace").split("\n")
        except OSError:
            return ""
        last = [line for line in lines if line.strip()][-LINES:]
        return "".join(f"\n  | {line}" for line in last) + (f"\n  ({self.log})" if last else "")


def wait(replicas: Sequence[Replica], seconds: float) -> None:
    """Until a replica says something or `seconds` have passed; takes in what was said."""
    connection.wait([replica.pipe for replica in replicas if replica.pipe is not None], seconds)
    for replica in replicas:
        replica.read_messages()
