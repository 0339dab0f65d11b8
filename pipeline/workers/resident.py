"""Commands in processes that stay, one a model, with its engine loaded.

So commands of several runs load a verifier once, a race and a trajectory their models. One that
fails, or whose process dies, does not stop the others; a signal stops all.
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
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import AGAIN, UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.workers import devices

PROGRAM = [sys.executable, "-m", "bayes_at_n.pipeline.cli.resident"]
STOPPED = {130, 143, AGAIN}  # by Ctrl-C or by the system: nothing more is begun
_LEAST = 4 << 30  # bytes of memory that another model may find: with less an earlier one goes


class Unfinished(UserError):
    """Runs failed or were stopped; the command exits as the last of them did."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status


def by_engine(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Group runs by the engine that can sample them; those of a server and tracked ones alone."""
    groups: dict[str, list[RunConfig]] = {}
    for cfg in configs:
        alone = kind(cfg.engine.name).served or cfg.track.to
        key = cfg.run_dir if alone else repr((cfg.model, cfg.engine, cfg.cluster.address))
        groups.setdefault(key, []).append(cfg)
    return [*groups.values()]


class Order(NamedTuple):
    """A command."""

    model: str  # commands of one have their engine in common
    command: Sequence[str]  # a verb and what follows it
    cfg: RunConfig | None = None  # of the run that it is about
    gpus: str | None = None  # CUDA_VISIBLE_DEVICES; None: all that this process may use

    @property
    def place(self) -> str:
        """What it is about, for messages."""
        return self.cfg.run_dir if self.cfg else self.model


class _Process(NamedTuple):
    process: "subprocess.Popen[str]"
    answers: IO[str]


class Residents:
    """Processes that run commands, one a model; as a context manager it ends them.

    Args:
        stdout: where commands print results, as of `subprocess.Popen`.
        mode: what they are, a mode of `console.set_modes`.
    """

    def __init__(self, stdout: int | None = subprocess.DEVNULL, mode: str = "") -> None:
        self.stdout, self.modes = stdout, f"{os.environ.get(MODES, '')} {mode}"
        # By model and GPUs; the one used last comes last.
        self._processes: dict[tuple[str, str | None], _Process] = {}
        self._busy = set[tuple[str, str | None]]()  # with what was begun and has not ended

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop(signal.SIGTERM)
        self._end([*self._processes])

    def begin(self, order: Order) -> None:
        """Give an order without waiting for it: `ended` says when it was followed."""
        key = (order.model, order.gpus)
        if order.cfg and devices.on_gpus(order.cfg):  # an engine takes all the memory that it may
            others = [one for one in self._processes if one != key]
            self._end([one for one in others if _overlap(one[1], order.gpus)])
        self._give(key, order)
        self._busy.add(key)

    def ended(self, order: Order, wait: bool = False) -> int | None:
        """Return the exit status of what was begun, 128 + n of signal n; None while it goes on."""
        process, answers = self._processes[order.model, order.gpus]
        if not select.select([answers], [], [], None if wait else 0)[0]:
            return None
        self._busy.discard((order.model, order.gpus))
        line = answers.readline()
        code = int(line) if line else process.wait()
        return code if code >= 0 else 128 - code

    def stop(self, number: int) -> None:
        """Pass a signal on to whoever is at something."""
        for key in self._busy:
            self._processes[key].process.send_signal(number)

    def run(self, order: Order) -> int:
        """Follow an order as `follow` does. Raises Unfinished: it was stopped."""
        if (status := self.follow(order)) in STOPPED:
            kept = "what is finished is kept, the same command continues"
            raise Unfinished(f"stopped at {order.place}; {kept}", status)
        return status

    def follow(self, order: Order) -> int:
        """Follow an order and return its exit status.

        A terminal's Ctrl-C reaches its process, too; what is sent to this one alone is passed on.
        The status is that of a stop where one was requested, even if the process was just done.
        """
        signals: list[int] = []

        def pass_on(number: int, _: Any) -> None:
            signals.append(number)
            if number != signal.SIGINT:
                self.stop(number)

        self.begin(order)
        with children.handled_by(pass_on):
            status = self.ended(order, wait=True) or 0
        if signals and status not in STOPPED:
            return AGAIN if signals[-1] == signal.SIGUSR1 else 128 + signals[-1]
        return status

    def _give(self, key: tuple[str, str | None], order: Order) -> None:
        """Hand an order to the process of its key, which is started where there is none."""
        found = self._processes.pop(key, None)
        if found is None or found.process.poll() is not None:  # it may have been killed meanwhile
            while idle := [key for key in self._processes if key not in self._busy]:
                if psutil.virtual_memory().available >= _LEAST:
                    break
                self._end(idle[:1])
            found = self._started(order)
        self._processes[key] = found
        assert found.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its status will say more
            found.process.stdin.write(json.dumps([*order.command]) + "\n")
            found.process.stdin.flush()

    def _started(self, order: Order) -> _Process:
        own = {MODES: self.modes}
        own |= {} if order.gpus is None else {"CUDA_VISIBLE_DEVICES": order.gpus}
        reading, writing = os.pipe()
        process = subprocess.Popen(
            [*PROGRAM, str(os.getpid()), str(writing)],
            stdin=subprocess.PIPE,
            stdout=self.stdout,
            text=True,
            env=os.environ | own,
            pass_fds=[writing],
        )
        os.close(writing)
        return _Process(process, os.fdopen(reading))

    def _end(self, keys: Sequence[tuple[str, str | None]]) -> None:
        for key in keys:
            process, answers = self._processes.pop(key)
            with process, answers:
                assert process.stdin is not None
                process.stdin.close()


def run_all(commands: Sequence[Sequence[str]]) -> int:
    """Run commands of one verb one after the other, in one process; return the worst exit status.

    That of a stop is returned at once.
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
    """Return whether GPUs have one in common, named as in CUDA_VISIBLE_DEVICES; None: all."""
    return some is None or others is None or bool({*some.split(",")} & {*others.split(",")})
