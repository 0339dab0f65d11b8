"""One of several replicas on a node: a worker in a process of its own, watched by `supervise.py`.

The order to work comes pickled on standard input. What the worker is at goes into a pipe, whatever
a library prints into a file. A message that the parent has no time for is left out: nothing here
ever waits for a reader.
"""

import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from types import FrameType
from typing import Any

from pipeline.base.console import collected
from pipeline.base.errors import DamagedData, Interrupted, UserError
from pipeline.base.interrupts import SIGNALS
from pipeline.config.settings import RunConfig
from pipeline.engines import children
from pipeline.generate.record import COUNTS
from pipeline.generate.stopping import StopFlag

_MESSAGE = ("worker", "state", "left", "tokens_per_s", "exit", "error", *COUNTS)
_LONGEST = 600  # characters: what has at most 4096 bytes enters a pipe whole or not at all


@dataclass(frozen=True)
class Order:
    """What a replica is to do, by whom it is watched, and on which cores (none: all)."""

    cfg: RunConfig
    number: int
    parent: int  # process id
    pipe: int  # file descriptor
    cores: tuple[int, ...]


def main() -> int:
    """Work until nothing is left; returns the exit status, as the command line has it."""
    stop = _stoppable()
    order: Order = pickle.load(sys.stdin.buffer)
    children.die_with(order.parent)
    if order.cores:
        os.sched_setaffinity(0, order.cores)  # before torch counts them
    os.set_blocking(order.pipe, False)
    pipe = Connection(order.pipe, readable=False)
    with collected() as warnings:

        def tell(record: dict[str, Any]) -> None:
            with suppress(BlockingIOError, BrokenPipeError):
                while warnings:
                    pipe.send({"warning": warnings.pop(0)[:_LONGEST]})
                pipe.send({key: record[key] for key in _MESSAGE if key in record})

        try:
            code, error = _work(order, stop, tell)
        except Exception as unexpected:
            traceback.print_exc()
            code, error = 1, f"{type(unexpected).__name__}: {unexpected}"
        os.set_blocking(order.pipe, True)  # nobody waits for this process any more
        tell({"exit": code, "error": error[:_LONGEST]})
    return code


def _work(order: Order, stop: StopFlag, tell: Callable[[dict[str, Any]], None]) -> tuple[int, str]:
    # Late: with torch, these take seconds, and the cores must be known before.
    from pipeline.generate.worker import work
    from pipeline.store.runfolder import Run

    try:
        work(Run(order.cfg), progress=tell, stop=stop, replica=order.number)
    except (UserError, Interrupted) as error:
        return error.exit_code, str(error)
    except (DamagedData, OSError) as error:
        return 1, str(error)
    return 0, ""


def _stoppable() -> StopFlag:
    """Set by any number of signals: Slurm sends its own to everyone, and the parent hands on."""
    flag = StopFlag()

    def stop(number: int, frame: FrameType | None) -> None:
        flag.signal_number = flag.signal_number or number

    for number in SIGNALS:
        signal.signal(number, stop)
    return flag


if __name__ == "__main__":
    sys.exit(main())
