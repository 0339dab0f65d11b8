"""What one worker does: its record in `sessions/`, where others read it, and its log in `logs/`."""

import contextlib
import json
import os
import time
from collections import deque
from typing import Any

from bayes_at_n.pipeline.base.console import count
from bayes_at_n.pipeline.base.environment import describe
from bayes_at_n.pipeline.engines import Completion
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.columns import CUT
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.devices import on_gpus

SAVE_S = 5.0
COUNTS = ("attempts", "completion_tokens", "boxed", "truncated")
_RATE_S = 60.0  # the rate is that of the last minute


class Session:
    """What one process did, and does now.

    Attributes:
        record: what `sessions/WORKER.json` holds; docs/cluster.md describes its keys.
    """

    def __init__(
        self, run: Run, worker: str, replica: int | None = None, share: float = 1.0
    ) -> None:
        self.worker = worker
        self._path = run.path / "sessions" / f"{worker}.json"
        self._log = run.path / "logs" / f"{worker}.jsonl"
        # Durations are by the clock that nobody sets; it says nothing to other processes.
        self.began = self._saved = time.monotonic()
        self._lived, self._counted, self._share = 0.0, self.began, share
        self._sampling: float | None = None  # since when
        self._recent: deque[tuple[float, int]] = deque()  # when, tokens so far
        self.record: dict[str, Any] = {
            "worker": worker,
            "pid": os.getpid(),
            "replica": replica,
            "slurm": _slurm(),
            "owed": None,
            "gpus": run.cfg.engine.tensor_parallel_size if on_gpus(run.cfg) else 0,
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
        self.save()

    def lived(self) -> float:
        """Return the seconds that this run took of its worker, with the loading of the engine."""
        now = time.monotonic()
        self._lived += (now - self._counted) * self._share
        self._counted = now
        return self._lived

    def bear(self, share: float) -> None:
        """From now on this run takes such a share of its worker's time."""
        self.lived()
        self._share = share

    def log(self, event: str, **more: Any) -> None:
        """One line of the log."""
        line = {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "event": event, **more}
        with contextlib.suppress(OSError):
            self._log.parent.mkdir(exist_ok=True)
            with self._log.open("a") as file:
                file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def loaded(self, owed: int, engine: dict[str, Any]) -> None:
        """The engine is ready."""
        self._sampling = time.monotonic()
        seconds = round(self._sampling - self.began, 3)
        self.record |= {"owed": owed, "load_s": seconds, "engine": engine}
        self.log("loaded", owed=owed, seconds=seconds, engine=engine)
        self.save("sampling")

    def add(self, completion: Completion) -> None:
        """Count one finished attempt."""
        self.record["attempts"] += 1
        self.record["completion_tokens"] += completion.tokens or 0
        self.record["truncated"] += completion.finish_reason in CUT
        self.record["boxed"] += "\\boxed" in completion.text
        prompt = completion.request.prompt_token_ids
        self.record["prompt_tokens"] += len(prompt or ()) or completion.prompt_tokens or 0
        seconds = completion.finished - completion.started
        self.record["longest_s"] = max(self.record["longest_s"], seconds)

    def unfinished(self, completion: Completion, times: int) -> None:
        """Count, by reason, an attempt that the engine gave back unfinished, now so many times."""
        request, reason = completion.request, completion.finish_reason
        counts = self.record["unfinished"]
        counts[reason] = counts.get(reason, 0) + 1
        where = {"question": request.question_id, "trial": request.trial}
        self.log("unfinished", **where, reason=reason, times=times)

    def tick(self, state: str, in_flight: int, left: int, usage: dict[str, Any]) -> None:
        """Save the record every few seconds; call it often."""
        self.record |= {"in_flight": in_flight, "left": left, "usage": usage}
        if time.monotonic() - self._saved > SAVE_S:
            self.save(state)

    def end(self, state: str, error: str | None = None) -> None:
        """The last word: a record without it is of a worker that was killed."""
        self.record |= {"ended": True, "error": error, "in_flight": 0}
        attempts, tokens = self.record["attempts"], self.record["completion_tokens"]
        self.log(state, attempts=attempts, tokens=tokens, error=error)
        self.save(state)

    def save(self, state: str | None = None) -> None:
        """Write the record; a full disk is reported where attempts are lost."""
        self._saved = time.monotonic()
        self.record["state"] = state or self.record["state"]
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(exist_ok=True)
            runfolder.write_json(self._path, self.now(), sync=self.record["ended"])

    def now(self) -> dict[str, Any]:
        """The record with its latest figures."""
        now = time.monotonic()
        self._recent.append((now, self.record["completion_tokens"]))
        while self._recent[0][0] < now - _RATE_S and len(self._recent) > 1:
            self._recent.popleft()
        since, before = self._recent[0]
        tokens = self.record["completion_tokens"] - before
        lived = round(self.lived(), 3)
        return self.record | {
            "tokens_per_s": round(tokens / (now - since), 1) if now > since else 0.0,
            "wall_s": round(now - self._sampling, 3) if self._sampling else 0.0,
            "lived_s": lived,
            "gpu_s": round(lived * self.record["gpus"], 3),
            "updated": time.time(),
        }


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
