"""How many trials of a run may be begun by now, which `settle` says and raises while it samples.

In its file stands for each run of a race how many it wants, and how many a worker may begin that
would be idle else. 0: the model has left.
"""

from pathlib import Path

from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run


def trials(run: Run, idle: bool = False, before: int = 0) -> int:
    """Return how many trials of each question may be begun now; `before` where nobody says so."""
    if run.cfg.race is None:
        return run.cfg.sampling.trials
    if (wanted := runfolder.read_json(Path(run.cfg.race)).get(str(run.path))) is None:
        return before  # a file server may lose sight of a file that is replaced
    return min(run.cfg.sampling.trials, int(wanted[idle]))


def pending(run: Run) -> list[tuple[str, int]]:
    """List the keys that are wanted now and have no finished attempt."""
    most = trials(run)
    return [key for key in runfolder.pending(run) if key[1] < most]
