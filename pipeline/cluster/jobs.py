"""Which jobs of a run are queued or running, as `squeue` tells.

A submission leaves a pointer in each of its run folders, `_slurm/<id>.json`, with the ids of its
jobs. Finished jobs are not listed: what they made is in the run folder, and accounting (`sacct`) is
not there on every cluster.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.base.errors import UserError
from pipeline.cluster.client import ask
from pipeline.store import runfolder

FOLDER = "_slurm"
UNKNOWN = "UNKNOWN"
_TIMEOUT_S = 15.0
_FORMAT = "%i|%T|%N|%M|%r"


@dataclass(frozen=True)
class Job:
    """One task of a job; all texts as squeue prints them."""

    kind: str  # generate, grade, verify, score, report; empty where squeue did not answer
    id: str  # "12_3": task 3 of array 12
    state: str  # PENDING, RUNNING, ... or UNKNOWN, when squeue did not answer
    node: str
    time: str  # used so far
    reason: str  # why it waits, or why squeue did not answer


def jobs(run: Path) -> list[Job]:
    """The jobs of a run folder that are queued or running, in the order of their ids.

    Empty without submissions or without Slurm. When squeue does not answer: one job of state
    UNKNOWN whose reason says why.
    """
    return of([run])[run]


def of(runs: Sequence[Path]) -> dict[Path, list[Job]]:
    """As :func:`jobs`, of many run folders with one question to Slurm."""
    known = {run: _submitted(run) for run in runs}
    ids = sorted({job["id"] for kinds in known.values() for _, job in kinds}, key=int)
    if not ids:
        return {run: [] for run in runs}
    try:
        rows = _queue(ids)
    except UserError as error:
        if "no such command" in str(error):
            return {run: [] for run in runs}
        lost = [Job("", "", UNKNOWN, "", "", str(error))]
        return {run: lost if known[run] else [] for run in runs}
    return {run: [job for kinds in known[run] for job in _of_run(rows, *kinds)] for run in runs}


def _submitted(run: Path) -> list[tuple[str, dict[str, Any]]]:
    """(kind, {"id": ..., "tasks": ...}) of every job ever submitted for a run."""
    pointers = [runfolder.read_json(path) for path in sorted((run / FOLDER).glob("*.json"))]
    return [job for pointer in pointers for job in pointer.get("jobs", {}).items()]


def _queue(ids: Sequence[str]) -> list[list[str]]:
    """squeue's lines about some jobs, every task of an array on one of its own."""
    try:
        out = ask("squeue", "-h", "-r", "-j", ",".join(ids), "-o", _FORMAT, timeout_s=_TIMEOUT_S)
    except UserError as error:
        if "Invalid job id" in str(error):  # what squeue calls one that ended a while ago
            return []
        raise
    return [line.split("|", 4) for line in out.splitlines() if line.count("|") >= 4]


def _of_run(rows: list[list[str]], kind: str, job: dict[str, Any]) -> list[Job]:
    tasks = job["tasks"]
    names = [(name, *name.partition("_")[::2], rest) for name, *rest in rows]
    return [
        Job(kind, name, *rest)
        for name, array, task, rest in names
        if array == job["id"] and (not task or not tasks or int(task) in tasks)
    ]
