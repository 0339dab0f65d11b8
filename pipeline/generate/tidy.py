"""What dead workers left: journals become parts, damaged parts are set aside."""

import contextlib
import functools

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.store import parquet, runfolder, sessions, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import heartbeat, records

PATIENCE_S = 3600.0  # with a worker elsewhere that may wake up, and would be harmed
LEAVING = "leaving.lease"  # in the run folder: of the worker that is the last one out


def tidy(run: Run, patience: bool = True) -> None:
    """Seal journals of dead workers and set damaged parts aside; left out while another does it.

    `patience`: wait for workers elsewhere that may wake up; without it all that are not alive count
    as dead, which is right when nothing is pending any more.
    """
    with contextlib.suppress(lease.Taken), lease.held(run.path / "tidy.lease", "tidying up"):
        _seal(run, patience)
        _set_aside(run)


def leave(run: Run, spent: bool = False) -> None:
    """The last one out sums up, and leaves neither journals nor claims behind.

    `spent`: also where attempts are pending, for the budget allows no more of them.
    """
    if sessions.alive(run.path) or (not spent and runfolder.pending(run)):
        return
    tidy(run, patience=spent)
    records.write_summary(run)
    folder = run.path / sessions.CLAIMS
    with (
        contextlib.suppress(OSError, lease.Taken),  # another worker may just have come
        lease.held(run.path / LEAVING, "leaving"),  # one that was killed may have left it
    ):
        heartbeat.clear(folder, lease.now_of(folder))
        for path in folder.glob(".*"):  # what the killed were about to rename or to delete
            path.unlink(missing_ok=True)
        folder.rmdir()


def _seal(run: Run, patience: bool) -> None:
    alive = sessions.alive(run.path)

    @functools.cache
    def is_dead(worker: str) -> bool:
        certain = not patience or lease.expired(heartbeat.path_of(run.path, worker), PATIENCE_S)
        return certain and worker not in alive

    for line in shards.seal_leftovers(run.attempts, ATTEMPTS, is_dead):
        warn(f"attempts/{line}: its rows are pending again")


def _set_aside(run: Run) -> None:
    damage = parquet.Damage()
    runfolder.pending(run, damage)
    if parts := shards.set_aside(damage, ATTEMPTS):
        warn(f"attempts: {parts}; those rows are pending again, the damaged files are set aside")
