"""The replicas of one node as processes: started, watched by their sessions, stopped."""

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.generate.record import COUNTS
from bayes_at_n.pipeline.store import sessions, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.process import Process

PROGRAM = [sys.executable, "-m", "bayes_at_n.pipeline.generate.replica"]


@dataclass
class Replica(Process):
    """One place for a worker, and what is known of the process that fills it."""

    record: Mapping[str, Any] = field(default_factory=dict)  # the session of the latest process
    past: Counter[str] = field(default_factory=Counter)  # `COUNTS` of the processes before
    starts_in_vain: int = 0  # processes in a row that made none
    code: int = 0  # the status of the latest process that ended badly
    failed: str = ""  # why nobody works here now
    since: str = ""  # names of workers that begin later are greater
    silent_since: float | None = None

    @property
    def loaded(self) -> bool:
        """Whether the latest process got as far as a loaded engine."""
        return "load_s" in self.record

    def total(self, count: str) -> int:
        """Of all processes so far, one of `COUNTS`."""
        return self.past[count] + (self.record.get(count, 0) if self.process else 0)

    def start(self, run: Run) -> None:
        """Start a process.

        Raises OSError: when its log cannot be written.
        """
        self.record, self.silent_since, self.failed = {}, None, ""
        self.since = f"{time.time_ns() // 1000:016d}"
        self.begin(PROGRAM, (run.cfg, self.number))

    def read(self, sessions: Mapping[str, Mapping[str, Any]]) -> None:
        """Take in what the process last said of itself; `sessions` by the names of workers."""
        if self.process is not None:
            own = f"-{shards.node()}-{self.process.pid}"
            names = [name for name in sessions if name.endswith(own) and name > self.since]
            self.record = sessions[names[0]] if names else {}

    def ended(self, run: Run) -> int | None:
        """The exit status of a process that has ended since, or None; counts what it made."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)  # a stuck child may hold it open
        self.error = (self.process.stdout.read() or b"").decode(errors="replace")
        self.read(sessions.sessions(run.path))
        for line in self.log_lines():
            if line.startswith("warning: "):
                warn(f"replica {self.number}: {line.removeprefix('warning: ')}")
        self.forget()
        self.starts_in_vain = 0 if self.record.get("attempts") else self.starts_in_vain + 1
        self.past.update({count: self.record.get(count, 0) for count in COUNTS})
        done = self.record.get("state") == "done"
        return 0 if done and code < 0 else code  # an engine may crash while it is taken down
