"""`python -m pipeline.cluster.complete RUN_FOLDER`: fails while attempts of the run are owed.

The first thing a grade job does. Its array of `generate` may have ended because it was cancelled,
or because nothing it started came to anything; other runs of the submission go on regardless.
"""

import sys
from pathlib import Path

from pipeline.base.console import fail
from pipeline.base.errors import UserError
from pipeline.config import compose
from pipeline.store import runfolder
from pipeline.store.heartbeat import alive
from pipeline.store.runfolder import Run


def check(folder: Path) -> None:
    """Return if every attempt of a run is there.

    Raises:
        UserError: some are owed, or it is no run.
    """
    owed = len(runfolder.owed(Run(compose.load_folder(folder, []))))
    if owed:
        makers = len(alive(folder))
        remedy = (
            f"{makers} workers of another submission are at it, whose jobs follow"
            if makers
            else "see what ended the generate job, then submit again"
        )
        raise UserError(f"{folder}: {owed} attempts are owed, so nothing is graded; {remedy}")


def main(arguments: list[str]) -> int:
    """Check the run folder that is the only argument; returns the exit status."""
    try:
        check(Path(arguments[0]))
    except UserError as error:
        fail(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
