"""The interface of a supervised worker: a process on this node, or a Ray actor."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.workers.session import Slot
from bayes_at_n.pipeline.workers.stopping import StopFlag

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
