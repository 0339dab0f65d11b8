"""Clean up after workers: seal journals of dead ones, set damaged parts aside, sum up."""

import contextlib
import functools

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import claims, heartbeat, records

PATIENCE_S = 3600.0  # a silent worker on another host may wake up and still need its journal
LEAVING = "leaving.lease"  # in the run folder: held by the last worker to leave


def tidy(run: Run, patience: bool = True) -> None:
    """Seal journals of dead workers and set damaged parts aside, unless another process does.

    `patience`: spare silent workers of other hosts, which may wake up. Without it every worker that
    is not alive counts as dead, which is right when nothing is pending.
    """
    with contextlib.suppress(lease.Taken), lease.held(run.path / "tidy.lease", "tidying up"):
        alive = runfolder.alive(run.path)

        @functools.cache
        def is_dead(worker: str) -> bool:
            certain = not patience or lease.expired(heartbeat.path_of(run.path, worker), PATIENCE_S)
            return certain and worker not in alive

        for line in shards.seal_leftovers(run.attempts, ATTEMPTS, is_dead):
            warn(f"attempts/{line}: its rows are pending again")
        damage = shards.Damage()
        runfolder.pending(run, damage)
        if parts := shards.set_aside(damage, ATTEMPTS):
            warn(f"attempts: {parts}; those rows are pending again; damaged files are set aside")


def leave(run: Run, spent: bool = False) -> None:
    """Write the summary and remove journals and claims, if this is the last worker of the run.

    `spent`: do so although attempts are pending, because the budget allows no more of them.
    """
    if runfolder.alive(run.path) or (not spent and runfolder.pending(run)):
        return
    tidy(run, patience=spent)
    records.write_summary(run)
    folder = run.path / runfolder.CLAIMS
    with (
        contextlib.suppress(OSError, lease.Taken),  # another worker may just have started
        lease.held(run.path / LEAVING, "leaving"),  # a killed worker may have left it
    ):
        claims.clear(folder, lease.now_of(folder))
        for path in folder.glob(".*"):  # that killed workers did not get to rename or delete
            path.unlink(missing_ok=True)
        folder.rmdir()
