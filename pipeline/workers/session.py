"""The session of a worker: its record in `sessions/`, which others read."""

import contextlib
import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.console import si
from bayes_at_n.pipeline.base.program import describe
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import runfolder
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
