"""The sessions of workers: their records in `sessions/`, alive and dead, and the cost of a run."""

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.console import si
from bayes_at_n.pipeline.base.program import describe
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.devices import on_gpus

SAVE_S = 5.0
COUNTS = ("attempts", "completion_tokens", "boxed", "truncated")
_RATE_S = 60.0  # the rate is that of the last minute


class Slot(NamedTuple):
    """Which start of which replica a worker is: the replica's number, and the start's name."""

    number: int
    start: str


class Session:
    """The record of one worker in one folder.

    Args:
        folder: the run folder.
        cfg: settings with the engine.
        worker: the worker's id.
        slot: the worker's slot under a supervisor.
        share: which share of the worker's time counts for this folder, in [0, 1].

    Attributes:
        record: what `sessions/WORKER.json` holds; docs/cluster.md describes its keys.
    """

    def __init__(
        self,
        folder: Path,
        cfg: RunConfig,
        worker: str,
        slot: Slot | None = None,
        share: float = 1.0,
    ) -> None:
        self.worker = worker
        self._path = folder / "sessions" / f"{worker}.json"
        # Durations use the monotonic clock, which cannot be set but means nothing elsewhere.
        self.began = self._saved_at = time.monotonic()
        self._lived, self._counted_at, self._share = 0.0, self.began, share
        self._loaded_at: float | None = None
        self._recent: deque[tuple[float, int]] = deque()  # time, tokens so far
        self.record: dict[str, Any] = {
            "worker": worker,
            "pid": os.getpid(),
            "replica": slot and slot.number,
            "start": slot and slot.start,
            "slurm": _slurm(),
            "pending": None,
            "gpus": cfg.engine.tensor_parallel_size if on_gpus(cfg) else 0,
            "state": "loading",
            "started": time.time(),
            "error": None,
            **describe(),
            "ended": False,
            **dict.fromkeys(COUNTS, 0),
            "unfinished": {},
            "in_flight": 0,
            "prompt_tokens": 0,
            "longest_s": 0.0,
        }
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)  # once: the folder may be replaced later
        self.save()

    def lived(self) -> float:
        """Return how many seconds of its worker this run took, loading included."""
        now = time.monotonic()
        self._lived += (now - self._counted_at) * self._share
        self._counted_at = now
        return self._lived

    def take_share(self, share: float) -> None:
        """Set the run's share of its worker's time from now on."""
        self.lived()
        self._share = share

    def loaded(self, pending: int, engine: Mapping[str, Any]) -> None:
        """Record that the engine is loaded, and how many attempts are pending."""
        self._loaded_at = time.monotonic()
        seconds = round(self._loaded_at - self.began, 3)
        self.record |= {"pending": pending, "left": pending, "load_s": seconds, "engine": engine}
        self.save("sampling")

    def add(self, seconds: float, **counts: int) -> None:
        """Count one finished attempt, which took `seconds`."""
        for name, number in counts.items():
            self.record[name] += number
        self.record["longest_s"] = max(self.record["longest_s"], seconds)

    def tick(self, state: str, left: int, **more: Any) -> None:
        """Save the record if the last save is a few seconds old; call it often."""
        self.record |= {"left": left, **more}
        if time.monotonic() - self._saved_at > SAVE_S:
            self.save(state)

    def end(self, state: str, error: str | None = None) -> None:
        """Save the final record; a worker whose record has no end was killed."""
        self.record |= {"ended": True, "error": error, "in_flight": 0}
        self.save(state)

    def save(self, state: str | None = None) -> None:
        """Write the record; a full disk is reported where attempts are written."""
        self._saved_at = time.monotonic()
        self.record["state"] = state or self.record["state"]
        with contextlib.suppress(OSError):
            runfolder.write_json(self._path, self.now(), sync=self.record["ended"])

    def now(self) -> dict[str, Any]:
        """Return the record with its latest figures."""
        now = time.monotonic()
        self._recent.append((now, self.record["completion_tokens"]))
        while self._recent[0][0] < now - _RATE_S and len(self._recent) > 1:
            self._recent.popleft()
        since, before = self._recent[0]
        tokens = self.record["completion_tokens"] - before
        lived = round(self.lived(), 3)
        return self.record | {
            "tokens_per_s": round(tokens / (now - since), 1) if now > since else 0.0,
            "wall_s": round(now - self._loaded_at, 3) if self._loaded_at else 0.0,
            "lived_s": lived,
            "gpu_s": round(lived * self.record["gpus"], 3),
            "updated": time.time(),
        }


def in_words(records: Iterable[Mapping[str, Any]], seconds: float, boxes: bool) -> str:
    """Summarize what sessions made in some seconds for the progress line; empty without attempts.

    >>> record = {"attempts": 4, "completion_tokens": 13520, "boxed": 3, "truncated": 1}
    >>> in_words([record], 2.0, True)
    '6.76k tokens/s, 75% boxed, 25% truncated'
    """
    each = [[record[name] for name in COUNTS] for record in records]
    attempts, tokens, boxed, truncated = map(sum, zip(*each, strict=True)) if each else [0] * 4
    if not attempts:
        return ""
    # No tokens: a function or a server that does not count them.
    rate, unit = (tokens, "tokens") if tokens else (attempts, "attempts")
    share = f", {boxed / attempts:.0%} boxed" * boxes
    cut = f", {truncated / attempts:.0%} truncated" * bool(boxes or truncated)
    return f"{si(rate / max(seconds, 1e-9))} {unit}/s{share}{cut}"


def _slurm() -> dict[str, Any] | None:
    """Return this process's Slurm job, array task and restarts; None outside Slurm."""
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    task = os.environ.get("SLURM_ARRAY_TASK_ID")
    return {
        "job": job,
        "task": task and int(task),
        "restarts": int(os.environ.get("SLURM_RESTART_COUNT", 0)),
    }


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
    with contextlib.suppress(OSError):  # there is no heartbeat
        touched = runfolder.heartbeat(folder, name).stat().st_mtime
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
