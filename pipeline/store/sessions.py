"""Read the sessions and heartbeats of workers: `sessions/WORKER.json` and `claims/`.

Files of a server's attempts are named `-unproven` until a probe finds that the server still has the
run's model. If it has another, they become `attempts/_*.suspect`, which no reader counts.
"""

import time
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.store import parquet, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run

CLAIMS = "claims"  # folder of claims and heartbeats in a run folder
UNPROVEN, _SUSPECT = "-unproven", ".suspect"


class Totals(NamedTuple):
    """Sums over the sessions of a run."""

    sessions: int
    wall_s: float
    gpu_s: float | None  # None if no session has it
    completion_tokens: int


def alive(folder: Path) -> set[str]:
    """Return the names of the live workers of a run folder, without writing there."""
    return lease.living(folder / CLAIMS)


def sessions(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the latest session of every worker, by name."""
    paths = sorted((folder / "sessions").glob("*.json"))
    return {path.stem: _read(path, parquet.fingerprint(path)) for path in paths}


@lru_cache(maxsize=1 << 14)  # sessions of finished workers never change
def _read(path: Path, fingerprint: str) -> dict[str, Any]:
    return runfolder.read_json(path)


def totals(run: Run) -> Totals:
    """Return the sums over a run's sessions."""
    records = [record for record in sessions(run.path).values() if record]
    gpu_s = [record["gpu_s"] for record in records if "gpu_s" in record]
    wall_s = sum(record.get("wall_s", 0.0) for record in records)
    tokens = sum(record.get("completion_tokens", 0) for record in records)
    return Totals(len(records), wall_s, sum(gpu_s) if gpu_s else None, tokens)


def unproven(run: Run, own: str = "") -> list[Path]:
    """Return the unproven files of the worker `own` and of dead workers."""
    living = alive(run.path) - {own}
    named = (path for path in shards.files(run.attempts) if UNPROVEN in path.name)
    return [path for path in named if shards.worker_of(path) not in living]


def prove(run: Run, good: bool, own: str = "") -> None:
    """Accept unproven files if a probe was `good`, or set them aside as suspect."""
    if not good:  # seal journals of dead workers first: only parts can be suspects
        living = alive(run.path) - {own}
        shards.seal_leftovers(run.attempts, ATTEMPTS, lambda worker: worker not in living)
    for path in unproven(run, own):
        if not good:
            parquet.put_aside(path, _SUSPECT)
        elif path.suffix == ".parquet":
            path.rename(path.with_name(path.name.replace(UNPROVEN, "")))


def trust(run: Run) -> None:
    """Accept all suspect and unproven files; the server's next model becomes the run's."""
    for path in run.attempts.glob(f"_*.parquet{_SUSPECT}"):
        path.rename(path.with_name(path.name[1:].removesuffix(_SUSPECT)))
    prove(run, good=True)
    (run.path / runfolder.SERVER).unlink(missing_ok=True)


def suspects(run: Run) -> str:
    """Return a line on how many attempts are suspect, since when and why; empty if none are."""
    times, damage = list[float](), parquet.Damage()
    for path in run.attempts.glob(f"_*.parquet{_SUSPECT}"):
        for batch in parquet.read(path, ATTEMPTS, ["finished"], damage):
            times += batch["finished"].to_pylist()
    if not times:
        return ""
    since = time.strftime("%F %T", time.localtime(min(times)))
    reason = "suspect and do not count: their server had another model"
    return f"{len(times)} attempts since {since} are {reason}; trust_parts=true accepts them"
