"""Commands `run` in processes that stay, one a model, with its engine loaded."""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple, Self

import psutil

from bayes_at_n.pipeline.config import sweep
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import devices

PROGRAM = [sys.executable, "-m", "bayes_at_n.pipeline.cli.resident"]
_LEAST = 4 << 30  # bytes of memory that another model may find: with less an earlier one goes


class Order(NamedTuple):
    """Stages of a run."""

    model: str  # runs of one have their engine in common
    run: Run
    settings: Sequence[str]  # which name the run and its stages
    gpus: str | None = None  # CUDA_VISIBLE_DEVICES; None: all that this process may use


class Residents:
    """Processes that run commands `run`, one a model; as a context manager it ends them."""

    def __init__(self) -> None:
        # By model and GPUs; the one used last comes last.
        self._processes: dict[tuple[str, str | None], subprocess.Popen[str]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end([*self._processes])

    def run(self, orders: Sequence[Order]) -> list[int]:
        """Follow orders, of several models at once; return their exit statuses.

        Raises Unfinished: one was stopped.
        """
        statuses = self._run(orders)
        for order, status in zip(orders, statuses, strict=True):
            if status in sweep.STOPPED:
                kept = "what is finished is kept, the same command continues"
                raise sweep.Unfinished(f"stopped at {order.run.path}; {kept}", status)
        return statuses

    def _run(self, orders: Sequence[Order]) -> list[int]:
        keys = [(order.model, order.gpus) for order in orders]
        if devices.on_gpus(orders[0].run.cfg):  # an engine takes all the memory that it may
            self._end([key for key in self._processes if key not in keys])
        asked = [self._asked(key, order) for key, order in zip(keys, orders, strict=True)]

        def answers() -> Iterator[int]:
            for process in asked:
                assert process.stdout is not None
                line = process.stdout.readline()
                yield int(line) if line else process.wait()

        return sweep.watched(asked, answers())

    def _asked(self, key: tuple[str, str | None], order: Order) -> "subprocess.Popen[str]":
        """The process that an order was given to."""
        process = self._processes.pop(key, None)
        if process is None or process.poll() is not None:  # it may have been killed meanwhile
            while self._processes and psutil.virtual_memory().available < _LEAST:
                self._end([next(iter(self._processes))])
            own = {} if order.gpus is None else {"CUDA_VISIBLE_DEVICES": order.gpus}
            command, pipe = [*PROGRAM, str(os.getpid())], subprocess.PIPE
            environment = os.environ | own
            process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment)
        self._processes[key] = process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # its status will say more
            process.stdin.write(json.dumps([*order.settings]) + "\n")
            process.stdin.flush()
        return process

    def _end(self, keys: Sequence[tuple[str, str | None]]) -> None:
        for key in keys:
            with self._processes.pop(key) as process:
                assert process.stdin is not None
                process.stdin.close()
