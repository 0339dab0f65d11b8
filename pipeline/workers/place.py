"""A place for a worker: a process of this node, or an actor of Ray."""

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.workers.session import Slot
from bayes_at_n.pipeline.workers.stopping import StopFlag

# What a worker does: the settings of its runs, the flag that stops it, where it works.
Work = Callable[[Sequence[RunConfig], StopFlag, Slot], None]
Record = Mapping[str, Any]  # a session


@dataclass(kw_only=True)
class Place(abc.ABC):
    """Room for one worker, and what is known of the one that fills it."""

    number: int
    slot: Slot | None = None  # None: nobody is at work
    records: list[Record] = field(default_factory=list)  # of the latest worker, by folder
    in_vain: int = 0  # workers in a row that made nothing
    status: int = 0  # of the latest worker that ended badly
    failed: str = ""  # why nobody works here now
    killed_because: str = ""
    dismissed: bool = False  # it need not be replaced
    silent_since: float | None = None
    may_wait: ClassVar[bool] = False  # for room, without end

    @abc.abstractmethod
    def begin(self, slot: Slot) -> None:
        """Start a worker. Raises OSError: its log cannot be written."""

    @abc.abstractmethod
    def poll(self) -> tuple[int, str] | None:
        """Return exit status and error of a worker that has ended, which makes room; else None."""

    @abc.abstractmethod
    def stop(self, number: int) -> None:
        """Ask the worker to save what is finished and to end, as by this signal."""

    @abc.abstractmethod
    def kill(self, why: str) -> None:
        """End the worker at once; its engine's processes end with it."""

    @abc.abstractmethod
    def close(self) -> None:
        """Kill the worker if it is there, and wait until its devices are free."""

    @abc.abstractmethod
    def ending(self, status: int, error: str) -> str:
        """Say what happened to a worker that should have gone on."""

    def start(self, name: str) -> None:
        """Start a worker; `name`: of this start, as no other has."""
        self.records, self.silent_since, self.failed = [], None, ""
        self.killed_because, self.dismissed = "", False
        self.slot = Slot(self.number, name)
        self.begin(self.slot)

    def dismiss(self, why: str) -> None:
        """End a worker that is of no use any more."""
        self.dismissed = True
        self.kill(why)

    @property
    def loaded(self) -> bool:
        """Return whether the latest worker got as far as a loaded engine."""
        return any("load_s" in record for record in self.records)
