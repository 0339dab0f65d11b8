"""A resident process: it runs one command after another and keeps its engine loaded."""

import json
import os
import signal
import sys

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.base.program import run_and_exit
from bayes_at_n.pipeline.cli.main import main


def serve(parent: int, statuses: int) -> int:
    """Run the command of each line of standard input; write its exit status on a line.

    `parent`: a process with which this one ends; `statuses`: file descriptor for the statuses.
    """
    from bayes_at_n.pipeline import engines

    children.die_with(parent)
    with engines.keeping(), os.fdopen(statuses, "w", buffering=1) as file:
        os.set_inheritable(statuses, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
        for line in sys.stdin:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            status = main(json.loads(line))
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print(status, file=file)
    return 0


if __name__ == "__main__":
    run_and_exit(lambda: serve(*map(int, sys.argv[1:])))
