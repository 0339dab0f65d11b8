"""What the processes that generated a run cost, added up from its `sessions/`."""

import time
from typing import Any, NamedTuple

from pipeline.base.console import warn
from pipeline.store import runfolder
from pipeline.store.runfolder import Run
from pipeline.store.workers import is_amount, workers


class Totals(NamedTuple):
    """Sums over the sessions of a run that can be read."""

    sessions: int
    wall_s: float
    gpu_s: float | None  # None where no session says it
    completion_tokens: int


def totals(run: Run) -> Totals:
    """Add up a run's sessions; what is no number counts nothing, and is named in a warning."""
    told: dict[str, list[float]] = {"wall_s": [], "gpu_s": [], "completion_tokens": []}
    count, faults = 0, []
    for path in sorted((run.path / "sessions").glob("*.json")):
        session = runfolder.read_json(path)
        if not session:
            faults.append(f"{path.name} cannot be read")
            continue
        count += 1
        for key, values in told.items():
            if is_amount(session.get(key)):
                values.append(session[key])
            elif key in session:
                faults.append(f"{path.name} has no number as {key}")
    if faults:
        more = f"; and {len(faults) - 3} more" if len(faults) > 3 else ""
        warn(f"{run.path / 'sessions'}: {'; '.join(faults[:3])}{more}; sums leave that out")
    return Totals(
        count,
        sum(told["wall_s"]),
        sum(told["gpu_s"]) if told["gpu_s"] else None,
        int(sum(told["completion_tokens"])),
    )


def write_summary(run: Run) -> None:
    """Put what generating took into manifest.json, under "generated"; all else in it stays.

    Attempts and tokens are what the workers made: one that two of them made counts twice.

    Raises:
        UserError: when the manifest is damaged.
        OSError: when it cannot be written.
    """
    found = workers(run.path)
    began = [w.started for w in found if w.started]
    latest = [w.updated or (w.started or 0.0) + w.wall_s for w in found]
    summary: dict[str, Any] = {
        "attempts": sum(w.attempts for w in found),
        "completion_tokens": sum(w.tokens for w in found),
        "workers": len(found),
        "workers_killed": sum(w.state == "dead" for w in found),
        "wall_s": round(sum(w.wall_s for w in found), 3),
        "gpu_hours": round(sum(w.gpu_s for w in found) / 3600, 4),
        "first": _moment(min(began, default=0.0)),
        "last": _moment(max(latest, default=0.0)),
    }
    runfolder.write_manifest(run, runfolder.read_manifest(run) | {"generated": summary})


def _moment(seconds: float) -> str | None:
    """A time as ISO 8601 with its zone, or None for one that nobody knows."""
    try:
        return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds)) if seconds else None
    except (OverflowError, ValueError, OSError):
        return None
