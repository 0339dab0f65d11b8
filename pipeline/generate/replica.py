"""One of several replicas on a node: a worker in a process of its own, watched by `supervise.py`.

What the worker is at it says in its session, to its parent only why it ended: a disk may be full.
"""

import sys

from bayes_at_n.pipeline.base.errors import DamagedData, Interrupted, UserError
from bayes_at_n.pipeline.workers import process, stopping


def main() -> int:
    """Work until nothing is left; returns the exit status, as the command line has it."""
    with process.answering() as answers, stopping.requests(patient=True) as stop:
        configs, number = process.take_order()
        # Late: torch counts the cores when it is imported.
        from bayes_at_n.pipeline.generate.worker import work
        from bayes_at_n.pipeline.store.runfolder import Run

        try:
            work([*map(Run, configs)], stop, number)
        except (UserError, Interrupted) as error:
            answers.write(str(error).encode())
            return error.exit_code
        except (DamagedData, OSError) as error:
            answers.write(str(error).encode())
            return 1
        return 0


if __name__ == "__main__":
    sys.exit(main())
