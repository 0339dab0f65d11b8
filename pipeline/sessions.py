"""What the processes that generated a run cost, added up from its `sessions/`."""

from typing import Any, NamedTuple

from pipeline import runfolder
from pipeline.console import warn
from pipeline.runfolder import Run

_MOST = 1e15  # seconds or tokens; beyond it, and below 0, no number is one


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
            if _number(session.get(key)):
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


def _number(value: Any) -> bool:
    """Whether a value from a file is a finite amount.

    >>> [_number(v) for v in (0, 1.5, None, "x", True, float("nan"), float("inf"), 10**400, -1)]
    [True, True, False, False, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST
