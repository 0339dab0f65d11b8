"""The workers of a run, alive and dead, as read from its folder, and the summary of their cost."""

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import heartbeat

_LIVING = ("loading", "sampling", "waiting")


@dataclass(frozen=True)
class Worker:
    """What one worker has done, and whether it is alive."""

    name: str
    alive: bool
    state: str  # loading, sampling, waiting; stopped, done, failed, ended; dead
    host: str | None
    task: str | None  # Slurm's, as 123 or 123_4
    tokens: int
    tokens_per_s: float  # over its last minute if it is alive, else over all its time
    last_seen: float | None  # Unix seconds of its last session or heartbeat
    pid: int | None = None
    replica: int | None = None  # number on its node, from 0
    attempts: int = 0
    in_flight: int = 0  # attempts begun and not finished; 0 unless it is alive
    gpus: int = 0
    gpu_s: float = 0.0
    wall_s: float = 0.0  # since sampling began
    started: float | None = None  # Unix seconds; None before it wrote its session
    updated: float | None = None  # Unix seconds of its last session


_SAME = ("pid", "replica", "attempts", "gpus", "gpu_s", "wall_s", "started", "updated")


def workers(folder: Path) -> list[Worker]:
    """Return every worker that ever sampled in a run folder, ordered by name."""
    alive, records = runfolder.alive(folder), runfolder.sessions(folder)
    alive |= runfolder.alive(folder)  # some started meanwhile
    names = sorted({*records, *alive})
    return [_worker(folder, name, records.get(name, {}), name in alive) for name in names]


def write_summary(run: Run) -> None:
    """Write what generating took to manifest.json, under "generated"; the other keys stay.

    Attempts and tokens are those that workers sampled: one that two of them sampled counts twice.

    Raises:
        UserError: the manifest is damaged.
        OSError: it cannot be written.
    """
    everyone = workers(run.path)
    engines: list[dict[str, Any]] = []  # distinct descriptions of engines
    for record in runfolder.sessions(run.path).values():
        if record.get("engine") and record["engine"] not in engines:
            engines.append(record["engine"])
    summary: dict[str, Any] = {
        "attempts": sum(w.attempts for w in everyone),
        "completion_tokens": sum(w.tokens for w in everyone),
        "workers": len(everyone),
        "workers_killed": sum(w.state == "dead" for w in everyone),
        "wall_s": round(sum(w.wall_s for w in everyone), 3),
        "gpu_hours": round(sum(w.gpu_s for w in everyone) / 3600, 4),
        "first": _iso(min((w.started for w in everyone if w.started), default=0.0)),
        "last": _iso(max((w.updated for w in everyone if w.updated), default=0.0)),
        "engines": engines,
    }
    runfolder.write_json(run.manifest, runfolder.read_manifest(run) | {"generated": summary})


def _worker(folder: Path, name: str, record: dict[str, Any], has_heartbeat: bool) -> Worker:
    ended = bool(record.get("ended"))
    alive = has_heartbeat and not ended
    tokens, wall_s = record.get("completion_tokens", 0), record.get("wall_s", 0.0)
    rate = record.get("tokens_per_s") if alive else None
    slurm = record.get("slurm") or {}
    task = [str(slurm[key]) for key in ("job", "task") if slurm.get(key) is not None]
    state = record.get("state", "loading")
    if not alive and (state in _LIVING or not ended):
        state = "ended" if ended else "dead"
    touched = 0.0
    with suppress(OSError):  # there is no heartbeat
        touched = heartbeat.path_of(folder, name).stat().st_mtime
    return Worker(
        name=name,
        alive=alive,
        state=state,
        host=record.get("host") or record.get("hardware", {}).get("host"),
        task="_".join(task) or None,
        tokens=tokens,
        tokens_per_s=tokens / wall_s if rate is None and wall_s else rate or 0.0,
        last_seen=max(record.get("updated", 0.0), touched) or None,
        in_flight=record.get("in_flight", 0) if alive else 0,
        **{key: record[key] for key in _SAME if key in record},
    )


def _iso(seconds: float) -> str | None:
    """Return Unix seconds as ISO 8601 with the local zone; None for 0."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds)) if seconds else None
