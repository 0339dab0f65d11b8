"""Read what workers leave in a run folder: `sessions/WORKER.json`, heartbeats in `claims/`."""

from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.store import parquet, runfolder
from bayes_at_n.pipeline.store.runfolder import Run

CLAIMS = "claims"  # in the run folder: heartbeats, and what is claimed


class Totals(NamedTuple):
    """Sums over the sessions of a run."""

    sessions: int
    wall_s: float
    gpu_s: float | None  # None where no session says it
    completion_tokens: int


def alive(folder: Path) -> set[str]:
    """Return the names of the workers of a run folder that are alive; writes nothing there."""
    return lease.living(folder / CLAIMS)


def sessions(folder: Path) -> dict[str, dict[str, Any]]:
    """Return what every worker last said, by its name."""
    paths = sorted((folder / "sessions").glob("*.json"))
    return {path.stem: _read(path, parquet.fingerprint(path)) for path in paths}


@lru_cache(maxsize=1 << 14)  # those of finished workers never change
def _read(path: Path, fingerprint: str) -> dict[str, Any]:
    return runfolder.read_json(path)


def totals(run: Run) -> Totals:
    """Sum what the sessions of a run cost."""
    records = [record for record in sessions(run.path).values() if record]
    gpu_s = [record["gpu_s"] for record in records if "gpu_s" in record]
    wall_s = sum(record.get("wall_s", 0.0) for record in records)
    tokens = sum(record.get("completion_tokens", 0) for record in records)
    return Totals(len(records), wall_s, sum(gpu_s) if gpu_s else None, tokens)
