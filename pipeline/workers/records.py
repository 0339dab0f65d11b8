"""The workers of a run, alive and dead, from what they leave in its folder, and what they cost."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import heartbeat

_FRESH_S = 30.0  # a session changed since then may be of a worker that began after we looked
_LIVING = ("loading", "sampling", "waiting")


@dataclass(frozen=True)
class Worker:
    """What one process that generated did, and whether it still does."""

    name: str
    alive: bool
    state: str  # loading, sampling, waiting; stopped, done, failed, ended; dead
    host: str | None
    pid: int | None
    replica: int | None  # of one node's, counted from 0
    task: str | None  # of Slurm, as 123 or 123_4
    attempts: int
    tokens: int
    tokens_per_s: float  # over its last minute while it lives, else over its life
    cache: float | None  # share of the key-value cache in use; None unless its engine says so
    preemptions: int  # sequences thrown out of the cache, and computed again
    in_flight: int  # attempts begun and not finished; 0 unless it is alive
    gpus: int
    gpu_s: float
    wall_s: float  # since sampling began
    started: float | None  # Unix seconds; None before it wrote its session
    updated: float | None  # Unix seconds: when it last told what it did
    last_seen: float | None  # Unix seconds: that, or its last heartbeat


def workers(folder: Path) -> list[Worker]:
    """Every worker that ever generated in the run folder `folder`, in the order of their names."""
    alive, records = sessions.alive(folder), sessions.sessions(folder)
    fresh = time.time() - _FRESH_S
    if any(
        not record.get("ended") and name not in alive and record.get("updated", 0) > fresh
        for name, record in records.items()
    ):
        alive |= sessions.alive(folder)  # begun between our two looks, or just killed
    names = sorted({*records, *alive})
    return [_worker(folder, name, records.get(name, {}), name in alive) for name in names]


def write_summary(run: Run) -> None:
    """Put what generating took into manifest.json, under "generated"; all else in it stays.

    Attempts and tokens are what the workers made: one that two of them made counts twice. Raises
    UserError: when the manifest is damaged. OSError: when it cannot be written.
    """
    everyone = workers(run.path)
    engines: list[dict[str, Any]] = []  # what they said of themselves, each different answer once
    for record in sessions.sessions(run.path).values():
        if record.get("engine") and record["engine"] not in engines:
            engines.append(record["engine"])
    summary: dict[str, Any] = {
        "attempts": sum(w.attempts for w in everyone),
        "completion_tokens": sum(w.tokens for w in everyone),
        "workers": len(everyone),
        "preemptions": sum(w.preemptions for w in everyone),
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
    updated = record.get("updated", 0.0)
    slurm, usage = record.get("slurm") or {}, record.get("usage") or {}
    task = [str(slurm[key]) for key in ("job", "task") if slurm.get(key) is not None]
    state = record.get("state", "loading")
    if not alive and (state in _LIVING or not ended):
        state = "ended" if ended else "dead"
    return Worker(
        name=name,
        alive=alive,
        state=state,
        host=record.get("host") or record.get("hardware", {}).get("host"),
        pid=record.get("pid"),
        replica=record.get("replica"),
        task="_".join(task) or None,
        attempts=record.get("attempts", 0),
        tokens=tokens,
        tokens_per_s=tokens / wall_s if rate is None and wall_s else rate or 0.0,
        cache=usage.get("cache") if alive else None,
        preemptions=usage.get("preemptions", 0),
        in_flight=record.get("in_flight", 0) if alive else 0,
        gpus=record.get("gpus", 0),
        gpu_s=record.get("gpu_s", 0.0),
        wall_s=wall_s,
        started=record.get("started"),
        updated=updated or None,
        last_seen=max(updated, _touched(folder, name)) or None,
    )


def _touched(folder: Path, worker: str) -> float:
    """Return when a worker last touched its heartbeat; 0 where there is none, as after its end."""
    try:
        return heartbeat.path_of(folder, worker).stat().st_mtime
    except OSError:
        return 0.0


def _iso(seconds: float) -> str | None:
    """A time as ISO 8601 with its zone, or None for one that nobody knows."""
    return time.strftime("%Y-%m-%dT%H:%M:%S%z", time.localtime(seconds)) if seconds else None
