"""One of several replicas on a node: a worker in a process of its own, watched by `supervise.py`.

The order to work comes pickled on standard input. What the worker is at it says in its session, on
standard output only why it ended, for a disk may be full; what a library prints goes into a log.
"""

import os
import pickle
import sys
from dataclasses import dataclass

from pipeline.base.errors import DamagedData, Interrupted, UserError
from pipeline.config.settings import RunConfig
from pipeline.engines import children
from pipeline.generate import stopping


@dataclass(frozen=True)
class Order:
    """What a replica is to do, by whom it is watched, and on which cores (none: all)."""

    cfg: RunConfig
    number: int
    parent: int  # process id
    cores: tuple[int, ...]


def main() -> int:
    """Work until nothing is left; returns the exit status, as the command line has it."""
    parent = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with parent, stopping.requests(patient=True) as stop:
        order: Order = pickle.load(sys.stdin.buffer)
        children.die_with(order.parent)
        if order.cores:
            os.sched_setaffinity(0, order.cores)
        # Late: torch counts the cores when it is imported.
        from pipeline.generate.worker import work
        from pipeline.store.runfolder import Run

        try:
            work(Run(order.cfg), stop, order.number)
        except (UserError, Interrupted) as error:
            parent.write(str(error))
            return error.exit_code
        except (DamagedData, OSError) as error:
            parent.write(str(error))
            return 1
        return 0


if __name__ == "__main__":
    sys.exit(main())
