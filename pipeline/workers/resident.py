"""Resident processes that run commands, one process per model, which keeps its engine loaded.

So commands over several runs load a verifier once, and races and trajectories each model once. A
command that fails, or whose process dies, does not stop the others; a signal stops all.
"""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
from collections.abc import Sequence
from typing import IO, Any, NamedTuple, Self

import psutil

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.base.console import MODES, note, warn
from bayes_at_n.pipeline.base.errors import AGAIN, UserError
from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.workers import devices

PROGRAM = [sys.executable, "-c", "from bayes_at_n.pipeline.cli.main import resident; resident()"]
STOPPED = {130, 143, AGAIN}  # statuses of a stop by Ctrl-C or the system: nothing more is begun
_LEAST = 4 << 30  # bytes of free memory: with less, an idle process ends before another starts


class Unfinished(UserError):
    """Runs failed or were stopped; the command exits with the status of the last one."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status


def by_engine(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Group runs that one engine can sample; served and tracked runs stay alone."""
    groups: dict[str, list[RunConfig]] = {}
    for cfg in configs:
        alone = kind(cfg.engine.name).served or cfg.track.to
        key = cfg.run_dir if alone else repr((cfg.model, cfg.engine, cfg.cluster.address))
        groups.setdefault(key, []).append(cfg)
    return [*groups.values()]


class Order(NamedTuple):
    """A command for a resident process."""

    model: str  # commands of one model share a process
    command: Sequence[str]  # a verb and its arguments
    cfg: RunConfig | None = None  # settings of its run
    gpus: str | None = None  # CUDA_VISIBLE_DEVICES; None: all that this process may use

    @property
    def label(self) -> str:
        """Return the run folder or the model, for messages."""
        return self.cfg.run_dir if self.cfg else self.model or self.command[1]


class _Process(NamedTuple):
    process: "subprocess.Popen[str]"
    statuses: IO[str]  # one exit status per line


class Residents:
    """Processes that run commands, one per model; leaving the context ends them.

    Args:
        stdout: where commands print results, as for `subprocess.Popen`.
        mode: modes of `console.set_modes` for all of them.
    """

    def __init__(self, stdout: int | None = subprocess.DEVNULL, mode: str = "") -> None:
        self.stdout, self.modes = stdout, f"{os.environ.get(MODES, '')} {mode}"
        # By model and GPUs, the most recently used last.
        self._processes: dict[tuple[str, str | None], _Process] = {}
        self._busy = set[tuple[str, str | None]]()  # running a command

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)
        self._end([*self._processes])

    def begin(self, order: Order) -> None:
        """Begin a command without waiting for it; `ended` returns its status."""
        key = (order.model, order.gpus)
        if order.cfg and devices.on_gpus(order.cfg):  # an engine takes all memory of its GPUs
            others = [one for one in self._processes if one != key]
            self._end([one for one in others if _overlap(one[1], order.gpus)])
        self._send(key, order)
        self._busy.add(key)

    def ended(self, order: Order, wait: bool = False) -> int | None:
        """Return the exit status of a command, 128 + n after signal n; None while it runs."""
        process, statuses = self._processes[order.model, order.gpus]
        if not select.select([statuses], [], [], None if wait else 0)[0]:
            return None
        self._busy.discard((order.model, order.gpus))
        code = int(statuses.readline() or process.wait())
        return code if code >= 0 else 128 - code

    def stop(self, number: int) -> None:
        """Send a signal to every process that is running a command."""
        for key in self._busy:
            self._processes[key].process.send_signal(number)

    def run(self, order: Order) -> int:
        """Run a command as `follow` does. Raises Unfinished: it was stopped."""
        if (status := self.follow(order)) in STOPPED:
            kept = "finished attempts are kept; the same command continues"
            raise Unfinished(f"stopped at {order.label}; {kept}", status)
        return status

    def follow(self, order: Order) -> int:
        """Run a command, or wait for one that was begun, and return its exit status.

        A terminal's Ctrl-C reaches the resident process itself; other signals are passed on. After
        a signal the status is that of a stop, even if the command had just finished.
        """
        signals: list[int] = []

        def pass_on(number: int, _: Any) -> None:
            signals.append(number)
            if number != signal.SIGINT:
                self.stop(number)

        if (order.model, order.gpus) not in self._busy:
            self.begin(order)
        with children.handled_by(pass_on):
            status = self.ended(order, wait=True) or 0
        if signals and status not in STOPPED:
            return AGAIN if signals[-1] == signal.SIGUSR1 else 128 + signals[-1]
        return status

    def _send(self, key: tuple[str, str | None], order: Order) -> None:
        """Send a command to the process of its key; start one if there is none."""
        resident = self._processes.pop(key, None)
        if resident is None or resident.process.poll() is not None:  # it may have been killed
            while idle := [key for key in self._processes if key not in self._busy]:
                if psutil.virtual_memory().available >= _LEAST:
                    break
                self._end(idle[:1])
            resident = self._start(order)
        self._processes[key] = resident
        with contextlib.suppress(BrokenPipeError):  # `ended` returns the status of a dead process
            print(json.dumps([*order.command]), file=resident.process.stdin, flush=True)

    def _start(self, order: Order) -> _Process:
        variables = {MODES: self.modes}
        variables |= {} if order.gpus is None else {"CUDA_VISIBLE_DEVICES": order.gpus}
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [*PROGRAM, str(os.getpid()), str(writing)],
            stdin=subprocess.PIPE,
            stdout=self.stdout,
            text=True,
            env=os.environ | variables,
            pass_fds=[writing],
        )
        os.close(writing)
        return _Process(process, os.fdopen(reading))

    def _end(self, keys: Sequence[tuple[str, str | None]]) -> None:
        for key in keys:
            process, statuses = self._processes.pop(key)
            with statuses, process:  # which closes its input and waits for it
                pass


def run_all(commands: Sequence[Sequence[str]]) -> int:
    """Run commands of one verb in turn, in one process; return the worst exit status.

    A stop ends the sequence, and its status is returned.
    """
    common, failed = set.intersection(*map(set, commands)), dict[str, int]()
    with Residents(stdout=None, mode="several") as residents:
        for number, command in enumerate(commands, 1):
            name = " ".join(word for word in command if word not in common)
            note(f"{command[0]} {number} of {len(commands)}: {name}")
            status = residents.follow(Order("", command))
            if status in STOPPED:
                return status
            if status:
                failed[name] = status
    if failed:
        warn(f"{len(failed)} of {len(commands)} failed: {'; '.join(failed)}")
    return max(failed.values(), default=0)


def _overlap(some: str | None, others: str | None) -> bool:
    """Return whether two values of CUDA_VISIBLE_DEVICES have a GPU in common; None: all GPUs."""
    return some is None or others is None or bool({*some.split(",")} & {*others.split(",")})
