"""A process that runs one command `run` after another, and keeps the engine loaded in between."""

import json
import os
import signal
import sys

from bayes_at_n.pipeline.base import children
from bayes_at_n.pipeline.cli.main import main


def serve() -> None:
    """Run the settings of each line of standard input; answer with the exit status, a line each."""
    from bayes_at_n.pipeline.generate import worker

    children.die_with(int(sys.argv[1]))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    with worker.keeping():
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # its parent ends it
        for line in sys.stdin:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            status = main(["run", *json.loads(line)])
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            print(status, file=answers, flush=True)


if __name__ == "__main__":
    serve()
