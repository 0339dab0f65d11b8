"""The queued and running jobs of a run, from `squeue`.

A submission writes `_slurm/<id>.json` with the ids of its jobs to each of its run folders. Finished
jobs are not listed: their results are in the run folder, and not every cluster has accounting
(`sacct`).
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


def query(*command: str, timeout_s: float = 60) -> str:
    """Run a client command of Slurm with a time limit; return its standard output.

    Raises UserError: it is not installed, failed or did not answer; with its message.
    """
    # Variables of the job that this process may run in are not meant for a new one.
    outside = {k: v for k, v in os.environ.items() if k[:6] != "SLURM_" or k == "SLURM_CONF"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=outside, check=False
        )
    except FileNotFoundError:
        remedy = "submit on a node with Slurm's clients (a login node), or use --dry-run"
        raise UserError(f"{command[0]}: no such command; {remedy}") from None
    except subprocess.TimeoutExpired:
        remedy = "is Slurm's controller up? (scontrol ping)"
        raise UserError(f"{command[0]} did not answer within {timeout_s:.0f} s; {remedy}") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise UserError(f"{command[0]} failed: {reason[:400]}")
    return done.stdout


@dataclass(frozen=True)
class Job:
    """One task of a job; all texts as squeue prints them."""

    kind: str  # generate, grade, verify, score, report; empty if squeue did not answer
    id: str  # "12_3": task 3 of array 12
    state: str  # PENDING, RUNNING, ... or UNKNOWN if squeue did not answer
    node: str
    time: str  # used so far
    reason: str  # why it waits, or why squeue did not answer


def jobs_of(runs: Sequence[Path]) -> dict[Path, list[Job]]:
    """Return the queued and running jobs of run folders, ordered by id.

    There are none without submissions or without Slurm. If squeue does not answer, runs with
    submissions get one job with state UNKNOWN and a reason.
    """
    submitted = {run: _submitted(run) for run in runs}
    ids = sorted({job["id"] for jobs in submitted.values() for _, job in jobs}, key=int)
    tasks: list[list[str]] = []
    if ids:
        command = ("squeue", "-h", "-r", "-j", ",".join(ids), "-o", "%i|%T|%N|%M|%r")
        try:
            lines = query(*command, timeout_s=15).splitlines()
            tasks = [line.split("|", 4) for line in lines if line.count("|") >= 4]
        except UserError as error:
            # squeue calls the id of a job that ended a while ago invalid.
            if not re.search("no such command|Invalid job id", str(error)):
                lost = [Job("", "", UNKNOWN, "", "", str(error))]
                return {run: lost if submitted[run] else [] for run in runs}
    return {run: [job for one in submitted[run] for job in _tasks_of(tasks, *one)] for run in runs}


def _submitted(run: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return (kind, {"id": ..., "tasks": ...}) of every job ever submitted for a run."""
    pointers = [runfolder.read_json(path) for path in sorted((run / FOLDER).glob("*.json"))]
    return [job for pointer in pointers for job in pointer.get("jobs", {}).items()]


def _tasks_of(tasks: list[list[str]], kind: str, submitted: dict[str, Any]) -> list[Job]:
    """Return those of squeue's tasks that belong to a run's part of a job."""
    jobs = []
    for name, *rest in tasks:
        array, _, task = name.partition("_")
        own = not task or not submitted["tasks"] or int(task) in submitted["tasks"]
        if array == submitted["id"] and own:
            jobs.append(Job(kind, name, *rest))
    return jobs
