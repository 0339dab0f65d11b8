"""The replicas of one node as processes: started, heard, stopped and taken away."""

import contextlib
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pipeline.base.console import warn
from pipeline.base.places import PACKAGES
from pipeline.generate.devices import Share
from pipeline.generate.replica import Order
from pipeline.generate.worker import HUNG
from pipeline.store import workernames
from pipeline.store.runfolder import Run

PROGRAM = [sys.executable, "-m", "pipeline.generate.replica"]
COUNTS = ("attempts", "completion_tokens", "boxed", "truncated")
LINES = 5  # of a log, shown when its replica dies


@dataclass
class Replica:
    """One place for a worker, and what is known of the process that fills it."""

    number: int
    share: Share
    log: Path
    process: "subprocess.Popen[bytes] | None" = None
    record: dict[str, Any] = field(default_factory=dict)  # the latest record of this process
    exit: int | None = None  # what it said its status will be, before it cleans up
    error: str | None = None
    past: Counter[str] = field(default_factory=Counter)  # of the processes before this one
    starts_in_vain: int = 0  # processes in a row that made none
    code: int = 0  # the status of the latest process that ended badly
    failed: str | None = None  # why nobody works here now
    lost_while: str = ""  # the state in which the process before this one ended
    since: str = ""  # names of workers that begin later are greater
    logged: int = 0  # bytes in the log before this process
    silent_since: float | None = None
    killed_because: str | None = None
    _unread: bytes = b""

    @property
    def running(self) -> bool:
        return self.process is not None

    @property
    def state(self) -> str:
        return str(self.record.get("state", "loading"))

    @property
    def attempts(self) -> int:
        """Finished by the process that is there now."""
        return int(self.record.get("attempts", 0))

    def total(self, what: str) -> int:
        """Of all processes so far, one of `COUNTS`."""
        return self.past[what] + int(self.record.get(what, 0))

    def of(self, workers: set[str]) -> set[str]:
        """Those of the workers that are this process: at most one, while it runs."""
        if self.process is None:
            return set()
        mine = f"-{workernames.node()}-{self.process.pid}"  # as in worker_id
        return {name for name in workers if name.endswith(mine) and name > self.since}

    def start(self, run: Run) -> None:
        """Start a process.

        Raises:
            OSError: when its log cannot be written.
        """
        self.record, self.exit, self.error, self._unread = {}, None, None, b""
        self.failed = self.silent_since = self.killed_because = None
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.since = f"{time.time_ns() // 1000:016d}"
        order = Order(run.cfg, self.number, os.getpid(), self.share.cores)
        with self.log.open("ab") as log:
            self.logged = log.tell()
            self.process = subprocess.Popen(
                PROGRAM,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **self.share.environment, "PYTHONPATH": _path()},
                process_group=0,  # the terminal's Ctrl-C is the parent's business
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        with contextlib.suppress(BrokenPipeError):  # it died already: seen in a moment
            self.process.stdin.write(pickle.dumps(order))
            self.process.stdin.close()

    def read_output(self) -> None:
        """Take in what the process has said since."""
        assert self.process is not None and self.process.stdout is not None
        with contextlib.suppress(BlockingIOError):
            while data := os.read(self.process.stdout.fileno(), 1 << 16):
                self._unread += data
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            try:
                said = json.loads(line)
            except ValueError:  # torn: longer than a pipe takes at once
                continue
            if "warning" in said:
                warn(f"replica {self.number}: {said['warning']}")
            elif "exit" in said:
                self.exit, self.error = said["exit"], said["error"]
            else:
                self.record = said

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

    def ended(self) -> int | None:
        """The exit status of a process that has ended since, or None; counts what it made."""
        if self.process is None:
            return None
        code = self.process.poll()
        if code is None:
            return None
        self.read_output()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = None
        self.lost_while = self.state
        self.starts_in_vain = 0 if self.attempts else self.starts_in_vain + 1
        self.past.update({what: int(self.record.get(what, 0)) for what in COUNTS})
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
        said = [line for line in lines if line.strip()][-LINES:]
        return "".join(f"\n  | {line}" for line in said) + (f"\n  ({self.log})" if said else "")


def wait(replicas: Iterable[Replica], seconds: float) -> None:
    """Until a replica says something or `seconds` have passed; takes in what was said."""
    speaking = {r.process.stdout: r for r in replicas if r.process and r.process.stdout}
    if not speaking:
        time.sleep(seconds)
        return
    ready, _, _ = select.select(list(speaking), [], [], seconds)
    for pipe in ready:
        speaking[pipe].read_output()
    if ready:
        time.sleep(0.05)  # who has closed its pipe is always ready


def _path() -> str:
    """Where Python finds this project, whatever folder the command was given in."""
    return os.pathsep.join(filter(None, [str(PACKAGES), os.environ.get("PYTHONPATH")]))
