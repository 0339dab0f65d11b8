"""Which jobs of a run are queued or running, as `squeue` tells.

A submission leaves a pointer in each of its run folders, `_slurm/<id>.json`, with the ids of its
jobs. Finished jobs are not listed: what they made is in the run folder, and accounting (`sacct`) is
not there on every cluster.
"""

import os
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store import runfolder

FOLDER = "_slurm"
UNKNOWN = "UNKNOWN"


def ask(*command: str, timeout_s: float = 60) -> str:
    """What a client command prints on standard output; which may not hang (Slurm may be down).

    Raises UserError: it is not installed, failed or did not answer; with what it said.
    """
    # From within a job: what that job was given is not meant for the new one.
    outside = {k: v for k, v in os.environ.items() if k[:6] != "SLURM_" or k == "SLURM_CONF"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=outside, check=False
        )
    except FileNotFoundError:
        remedy = "submit where Slurm's clients are (a login node), or look with --dry-run"
        raise UserError(f"{command[0]}: no such command; {remedy}") from None
    except subprocess.TimeoutExpired:
        remedy = "is Slurm's controller up? (scontrol ping)"
        raise UserError(f"{command[0]} did not answer within {timeout_s:.0f} s; {remedy}") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise UserError(f"{command[0]} refused: {reason[:400]}")
    return done.stdout


@dataclass(frozen=True)
class Job:
    """One task of a job; all texts as squeue prints them."""

    kind: str  # generate, grade, verify, score, report; empty where squeue did not answer
    id: str  # "12_3": task 3 of array 12
    state: str  # PENDING, RUNNING, ... or UNKNOWN, when squeue did not answer
    node: str
    time: str  # used so far
    reason: str  # why it waits, or why squeue did not answer


def jobs_of(runs: Sequence[Path]) -> dict[Path, list[Job]]:
    """The jobs of run folders that are queued or running, of each in the order of their ids.

    None without submissions or without Slurm. When squeue does not answer: one job of state
    UNKNOWN whose reason says why.
    """
    submitted = {run: _submitted(run) for run in runs}
    ids = sorted({job["id"] for jobs in submitted.values() for _, job in jobs}, key=int)
    tasks: list[list[str]] = []
    if ids:
        command = ("squeue", "-h", "-r", "-j", ",".join(ids), "-o", "%i|%T|%N|%M|%r")
        try:
            lines = ask(*command, timeout_s=15).splitlines()
            tasks = [line.split("|", 4) for line in lines if line.count("|") >= 4]
        except UserError as error:
            # The second is what squeue calls one that ended a while ago.
            if not re.search("no such command|Invalid job id", str(error)):
                lost = [Job("", "", UNKNOWN, "", "", str(error))]
                return {run: lost if submitted[run] else [] for run in runs}
    return {run: [job for jobs in submitted[run] for job in _of_run(tasks, *jobs)] for run in runs}


def _submitted(run: Path) -> list[tuple[str, dict[str, Any]]]:
    """(kind, {"id": ..., "tasks": ...}) of every job ever submitted for a run."""
    pointers = [runfolder.read_json(path) for path in sorted((run / FOLDER).glob("*.json"))]
    return [job for pointer in pointers for job in pointer.get("jobs", {}).items()]


def _of_run(tasks: list[list[str]], kind: str, submitted: dict[str, Any]) -> list[Job]:
    """Those of squeue's tasks that belong to a run's part of a job."""
    jobs = []
    for name, *rest in tasks:
        array, _, task = name.partition("_")
        own = not task or not submitted["tasks"] or int(task) in submitted["tasks"]
        if array == submitted["id"] and own:
            jobs.append(Job(kind, name, *rest))
    return jobs
