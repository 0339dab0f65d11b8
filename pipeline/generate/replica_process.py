"""The workers of one node as processes: started, watched by their sessions, stopped."""

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.generate.record import COUNTS
from bayes_at_n.pipeline.store import sessions, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.process import Process

PROGRAM = [sys.executable, "-m", "bayes_at_n.pipeline.generate.replica"]
Said = Mapping[str, Mapping[str, Any]]  # the sessions of a run, by the names of workers


@dataclass
class Replica(Process):
    """One place for a worker, and what is known of the process that fills it."""

    records: list[Mapping[str, Any]] = field(default_factory=list)  # of the latest process, by run
    past: Counter[str] = field(default_factory=Counter)  # `COUNTS` of the processes before
    starts_in_vain: int = 0  # processes in a row that made none
    code: int = 0  # the status of the latest process that ended badly
    failed: str = ""  # why nobody works here now
    since: str = ""  # names of workers that begin later are greater
    silent_since: float | None = None

    @property
    def loaded(self) -> bool:
        """Whether the latest process got as far as a loaded engine."""
        return any("load_s" in record for record in self.records)

    def made(self, count: str) -> int:
        """Of the latest process, one of `COUNTS`."""
        return sum(record.get(count, 0) for record in self.records)

    def total(self, count: str) -> int:
        """Of all processes so far, one of `COUNTS`."""
        return self.past[count] + (self.made(count) if self.process else 0)

    def start(self, runs: Sequence[Run]) -> None:
        """Start a process. Raises OSError: when its log cannot be written."""
        self.records, self.silent_since, self.failed = [], None, ""
        self.since = f"{time.time_ns() // 1000:016d}"
        self.begin(PROGRAM, ([run.cfg for run in runs], self.number))

    def read(self, said: Sequence[Said]) -> None:
        """Take in what the process last said of itself in each run."""
        if self.process is not None:
            own = f"-{shards.node()}-{self.process.pid}"
            names = [[n for n in one if n.endswith(own) and n > self.since] for one in said]
            self.records = [one[n[0]] if n else {} for one, n in zip(said, names, strict=True)]

    def ended(self, runs: Sequence[Run]) -> int | None:
        """The exit status of a process that has ended since, or None; counts what it made."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)  # a stuck child may hold it open
        self.error = (self.process.stdout.read() or b"").decode(errors="replace")
        self.read([sessions.sessions(run.path) for run in runs])
        for line in self.log_lines():
            if line.startswith("warning: "):
                warn(f"replica {self.number}: {line.removeprefix('warning: ')}")
        self.forget()
        self.starts_in_vain = 0 if self.made("attempts") else self.starts_in_vain + 1
        self.past.update({count: self.made(count) for count in COUNTS})
        done = all(record.get("state") == "done" for record in self.records)
        return 0 if done and code < 0 else code  # an engine may crash while it is taken down
