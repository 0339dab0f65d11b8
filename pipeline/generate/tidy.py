"""What dead workers left: journals become parts, damaged parts are set aside."""

from pipeline import lease, runfolder, shards
from pipeline.console import warn
from pipeline.errors import UserError
from pipeline.generate import heartbeat
from pipeline.runfolder import Run
from pipeline.tables import ATTEMPTS


def tidy(run: Run) -> None:
    """Seal journals of dead workers and set damaged parts aside; left out while another does it."""
    try:
        with lease.held(run.path / "tidy.lease", "tidying up"):
            _seal(run)
            _set_aside(run)
    except UserError:
        return


def _seal(run: Run) -> None:
    dead: dict[str, bool] = {}

    def is_dead(worker: str) -> bool:
        if worker not in dead:
            dead[worker] = heartbeat.surely_dead(run.path, worker)
        return dead[worker]

    for line in shards.seal_leftovers(run.attempts, ATTEMPTS, is_dead):
        warn(f"attempts/{line}: its rows are owed again")
        runfolder.forget_grades(run)


def _set_aside(run: Run) -> None:
    damage = shards.Damage()
    runfolder.owed(run, damage)
    parts = {p: lines for p, lines in damage.lines.items() if p.suffix == ".parquet"}
    if parts:
        found = shards.Damage(parts)
        warn(f"attempts: {found}; those rows are owed again, the damaged files are set aside")
        shards.set_aside(found, ATTEMPTS)
        runfolder.forget_grades(run)
