"""What one worker does: its record in `sessions/`, where others read it, and its log in `logs/`."""

import contextlib
import json
import os
import time
from collections import deque
from typing import Any

from pipeline.base.console import count
from pipeline.base.environment import describe
from pipeline.engines import Completion
from pipeline.generate.devices import on_gpus
from pipeline.store import runfolder
from pipeline.store.runfolder import Run

SAVE_S = 5.0
_RATE_S = 60.0  # the rate is that of the last minute


class Session:
    """What one process did, and does now.

    Attributes:
        record: what `sessions/WORKER.json` holds; docs/cluster.md describes its keys.
    """

    def __init__(self, run: Run, worker: str, replica: int | None = None) -> None:
        self.worker = worker
        self.attempts = self.tokens = self.truncated = self.boxed = self.in_flight = 0
        self._path = run.path / "sessions" / f"{worker}.json"
        self._log = run.path / "logs" / f"{worker}.jsonl"
        self._began = self._sampling = self._saved = time.time()
        self._recent: deque[tuple[float, int]] = deque()  # when, tokens so far
        self.record: dict[str, Any] = {
            "worker": worker,
            "pid": os.getpid(),
            "replica": replica,
            "slurm": _slurm(),
            "owed": None,
            "gpus": run.cfg.engine.tensor_parallel_size if on_gpus(run.cfg) else 0,
            "state": "loading",
            "started": self._began,
            "error": None,
            **describe(),
        }
        self.save()

    def log(self, event: str, **more: Any) -> None:
        """One line of the log."""
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": event, **more}
        with contextlib.suppress(OSError):
            self._log.parent.mkdir(exist_ok=True)
            with self._log.open("a") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def loaded(self, owed: int, engine: dict[str, Any]) -> None:
        """The engine is ready."""
        self._sampling = time.time()
        self.record |= {
            "owed": owed,
            "load_s": round(self._sampling - self._began, 3),
            "engine": engine,
        }
        self.log("loaded", owed=owed, seconds=self.record["load_s"], engine=engine)
        self.save("sampling")

    def add(self, done: Completion) -> None:
        """Count one finished attempt."""
        self.attempts += 1
        self.tokens += len(done.token_ids)
        self.truncated += done.finish_reason == "length"
        self.boxed += "\\boxed" in done.text

    def tick(self, in_flight: int, state: str) -> None:
        """Save the record every few seconds; call it often."""
        self.in_flight = in_flight
        if time.time() - self._saved > SAVE_S:
            self.save(state)

    def end(self, state: str, error: str | None = None) -> None:
        """The last word: a record without it is of a worker that was killed."""
        self.record |= {"ended": True, "error": error}
        self.in_flight = 0
        self.log(state, attempts=self.attempts, tokens=self.tokens, error=error)
        self.save(state)

    def save(self, state: str | None = None) -> None:
        """Write the record; a full disk is reported where attempts are lost."""
        self._saved = now = time.time()
        self.record["state"] = state or self.record["state"]
        self.record.setdefault("ended", False)
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            runfolder.write_json(self._path, self.now(now), sync=self.record["ended"])

    def now(self, at: float | None = None) -> dict[str, Any]:
        """The record with its latest figures."""
        at = at or time.time()
        wall = at - self._sampling if "load_s" in self.record else 0.0
        spent = at - self._began  # a GPU is taken while the engine loads, too
        return self.record | {
            "attempts": self.attempts,
            "completion_tokens": self.tokens,
            "truncated": self.truncated,
            "boxed": self.boxed,
            "tokens_per_s": round(self._rate(at), 1),
            "in_flight": self.in_flight,
            "wall_s": round(wall, 3),
            "gpu_s": round(spent * self.record["gpus"], 3),
            "updated": at,
        }

    def detail(self) -> str:
        """Rates and shares for the progress line."""
        if not self.attempts:
            return "no attempt finished yet"
        rate = self.tokens / max(time.time() - self._sampling, 1e-9)
        return rate_and_shares(rate, self.attempts, self.boxed, self.truncated)

    def _rate(self, now: float) -> float:
        self._recent.append((now, self.tokens))
        while self._recent[0][0] < now - _RATE_S and len(self._recent) > 1:
            self._recent.popleft()
        since, tokens = self._recent[0]
        return (self.tokens - tokens) / (now - since) if now > since else 0.0


def rate_and_shares(rate: float, attempts: int, boxed: int, truncated: int) -> str:
    """For the progress line; `rate` in tokens a second.

    >>> rate_and_shares(6760.0, 4, 3, 1)
    '6.76k tokens/s, 75% boxed, 25% truncated'
    """
    shares = f"{boxed / attempts:.0%} boxed, {truncated / attempts:.0%} truncated"
    return f"{count(rate)} tokens/s, {shares}"


def _slurm() -> dict[str, Any] | None:
    """Which job and array task this is."""
    job = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID")
    if job is None:
        return None
    task, restarts = os.environ.get("SLURM_ARRAY_TASK_ID"), os.environ.get("SLURM_RESTART_COUNT")
    return {
        "job": job,
        "task": int(task) if task and task.isdigit() else None,
        "restarts": int(restarts) if restarts and restarts.isdigit() else 0,
    }
