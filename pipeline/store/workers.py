"""The workers of a run, alive and dead, from what they leave in its folder.

A worker keeps `sessions/WORKER.json` up to date and touches its heartbeat in `claims/`. Session
files of older versions lack keys, and any of them may be damaged: what is missing is 0 or None.
"""

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from pipeline.store import heartbeat, runfolder
from pipeline.store.heartbeat import FOLDER, SUFFIX

_MOST = 1e15  # seconds or tokens; beyond it, and below 0, no number is one
_FRESH_S = 30.0  # a session changed since then may be of a worker that began after we looked
_LIVING = ("loading", "sampling", "waiting")
_LONGEST = 40  # characters of a word from a session file


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
    in_flight: int  # attempts begun and not finished; 0 unless it is alive
    gpus: int
    gpu_s: float
    wall_s: float  # since sampling began
    started: float | None  # Unix seconds
    updated: float | None  # Unix seconds: when it last told what it did
    heard: float | None  # Unix seconds: that, or its last heartbeat


def workers(folder: Path) -> list[Worker]:
    """Every worker that ever generated in the run folder `folder`, in the order of their names.

    Reads only. What a session file does not say, or says in a form that is none, counts nothing.
    """
    alive = heartbeat.alive(folder)
    sessions = dict(_sessions(folder / "sessions"))
    now = time.time()
    if any(
        not _ended(told) and name not in alive and _amount(told.get("updated")) > now - _FRESH_S
        for name, told in sessions.items()
    ):
        alive |= heartbeat.alive(folder)  # begun between our two looks, or just killed
    return [
        _worker(name, sessions.get(name, {}), alive, _beat(folder, name))
        for name in sorted({*sessions, *alive})
    ]


def is_amount(value: Any) -> bool:
    """Whether a value from a file is a finite amount.

    >>> [is_amount(v) for v in (0, 1.5, None, "x", True, float("nan"), float("inf"), 10**400, -1)]
    [True, True, False, False, False, False, False, False, False]
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < _MOST


def _worker(name: str, told: dict[str, Any], alive: set[str], beat: float) -> Worker:
    lives = name in alive and not _ended(told)
    tokens, wall_s = int(_amount(told.get("completion_tokens"))), _amount(told.get("wall_s"))
    rate = told.get("tokens_per_s") if lives else None
    hardware = told.get("hardware")
    host = told.get("host") or (hardware.get("host") if isinstance(hardware, dict) else None)
    started = _amount(told.get("started")) or _named_time(name)
    updated = _amount(told.get("updated"))
    return Worker(
        name=name,
        alive=lives,
        state=_state(told, lives),
        host=_word(host),
        pid=_whole(told.get("pid")),
        replica=_whole(told.get("replica")),
        task=_task(told.get("slurm")),
        attempts=int(_amount(told.get("attempts"))),
        tokens=tokens,
        tokens_per_s=_amount(rate) if is_amount(rate) else tokens / wall_s if wall_s else 0.0,
        in_flight=int(_amount(told.get("in_flight"))) if lives else 0,
        gpus=int(_amount(told.get("gpus"))),
        gpu_s=_amount(told.get("gpu_s")),
        wall_s=wall_s,
        started=started or None,
        updated=updated or None,
        heard=max(updated, beat) or None,
    )


def _state(told: dict[str, Any], lives: bool) -> str:
    if not lives and not _ended(told):
        return "dead"
    state = _word(told.get("state")) or "loading"
    return "ended" if not lives and state in _LIVING else state


def _ended(told: dict[str, Any]) -> bool:
    return told.get("ended") is True


def _task(slurm: Any) -> str | None:
    if not isinstance(slurm, dict) or not _word(slurm.get("job")):
        return None
    task = _whole(slurm.get("task"))
    return f"{_word(slurm['job'])}" + ("" if task is None else f"_{task}")


def _named_time(name: str) -> float:
    """When the process began, from the worker's name, which starts with the microseconds.

    >>> _named_time("1795298536000000-n1-42"), _named_time("mine")
    (1795298536.0, 0.0)
    """
    digits = name.split("-")[0]
    return int(digits) / 1e6 if len(digits) == 16 and digits.isdecimal() else 0.0


def _amount(value: Any) -> float:
    return float(value) if is_amount(value) else 0.0


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and is_amount(value) else None


def _word(value: Any) -> str | None:
    """A short printable text or number as text, or None."""
    text = str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""
    text = "".join(char for char in text[:_LONGEST] if char.isprintable())
    return text or None


def _beat(folder: Path, name: str) -> float:
    """When the worker last touched its heartbeat; 0 where there is none, as after its end."""
    try:
        return (folder / FOLDER / f"{name}{SUFFIX}").stat().st_mtime
    except (OSError, ValueError):
        return 0.0


def _sessions(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    try:
        with os.scandir(folder) as entries:
            found = sorted((e for e in entries if e.name.endswith(".json")), key=lambda e: e.name)
    except OSError:
        return
    for entry in found:
        try:
            status = entry.stat()
        except OSError:
            continue
        yield (
            entry.name.removesuffix(".json"),
            _read(entry.path, status.st_ino, status.st_mtime_ns, status.st_size),
        )


@lru_cache(maxsize=1 << 14)  # those of finished workers never change
def _read(path: str, inode: int, changed: int, size: int) -> dict[str, Any]:
    return runfolder.read_json(Path(path))
