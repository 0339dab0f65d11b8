"""Sampling until it is decided: block by block, each block of a model an ordinary command `run`.

Any number of these processes may work on one folder, as the tasks of a Slurm array do. There is no
coordinator: what is decided follows from the grades, so each process finds it out by itself, and
sampling claims attempts as in any run.
"""

import os
import sys
import time

import numpy as np

from pipeline.base.console import note, warn
from pipeline.base.errors import AGAIN, UserError
from pipeline.config import sweep
from pipeline.settle import data, looks
from pipeline.settle.data import Outcomes
from pipeline.settle.looks import Course
from pipeline.settle.plan import RECORD, Contender, Plan, record_of
from pipeline.settle.race import Bools, State, ended, owed, states
from pipeline.settle.tables import told
from pipeline.store import runfolder

STAGES = "stages=[prepare,generate,grade]"
_WAIT_S = 2.0  # while others make the rest of a block


class Unfinished(UserError):
    """A run failed or was stopped; the command exits as it did."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status


def settle(plan: Plan) -> tuple[Course, Outcomes]:
    """Sample until it is decided or all trials are used; every look, and what it was seen in.

    Raises:
        UserError: the folder holds another plan, or looks at other outcomes.
        Unfinished: a run failed or was stopped; the same command goes on.
    """
    begin(plan)
    said = 0
    while True:
        seen, known = look(plan)
        for until in range(said + 1, len(seen.states) + 1):
            note(told(seen._replace(states=seen.states[:until], tokens=seen.tokens[:until])))
        said = len(seen.states)
        last = seen.states[-1] if seen.states else None
        trials, chosen = owed(last, plan.goal)
        if not trials:
            mark(plan, seen.states[-1])
            return seen, known
        lacking = _lacking(plan, known, trials, chosen)
        if not any(_sample(plan, contender, trials) for contender in lacking):
            time.sleep(_WAIT_S)


def begin(plan: Plan) -> None:
    """Keep the plan in its folder, and say beforehand when one looks.

    Raises UserError: the folder holds another plan.
    """
    path = plan.folder / RECORD
    new = record_of(plan)
    if path.exists():
        there = runfolder.read_json(path)
        changed = [
            key for key in new if key not in ("arguments", "cwd") and there.get(key) != new[key]
        ]
        if changed:
            key = changed[0]
            raise UserError(
                f"{path}: was begun with {key}={there.get(key)}, and this is {key}={new[key]}; use"
                " out=FOLDER for another, which reads the same runs"
            )
    else:
        plan.folder.mkdir(parents=True, exist_ok=True)
        runfolder.write_json(path, new)
    goal = plan.goal
    shown = ", ".join(map(str, goal.looks))
    note(f"until={goal.cfg.until} of {len(goal.names)} models; looks after {shown} trials")


def look(plan: Plan) -> tuple[Course, Outcomes]:
    """Every look so far, from the grades; those that are new go on record."""
    known = data.of_contenders(plan.contenders, plan.goal.trials)
    seen = [*states(known.codes, plan.goal)] if known.codes.shape[1] else []
    course = looks.course(seen, known, plan.goal)
    if seen:
        looks.record(plan.folder, course)
    return course, known


def _lacking(plan: Plan, known: Outcomes, trials: int, chosen: Bools) -> list[Contender]:
    """The models that the next look waits for; each process begins with another one."""
    lacks = (known.codes[:, :, :trials] < 0).any(axis=(1, 2)) | (not known.codes.shape[1])
    places = np.flatnonzero(chosen & lacks)
    start = int(os.environ.get("SLURM_ARRAY_TASK_ID", 0)) % max(1, len(places))
    return [plan.contenders[place] for place in np.roll(places, -start)]


def _sample(plan: Plan, contender: Contender, trials: int) -> bool:
    """Make what a model owes up to so many trials; whether its runs are whole now.

    Where they are not, other processes are at the rest.
    """
    note(f"{contender.name}: up to {trials} trials")
    for run, settings in zip(contender.runs, contender.settings, strict=True):
        command = [sys.executable, "-m", "pipeline", "run", *settings]
        status = sweep.child([*command, f"sampling.trials={trials}", STAGES])
        if status in sweep.STOPPED or status == AGAIN:
            raise Unfinished(
                f"stopped at {run.path}; what is finished is kept, the same command continues",
                status if status > 0 else 128 - status,
            )
        if status:
            raise Unfinished(
                f"{run.path} failed (see above); mend it, and the same command continues", status
            )
    whole = data.of_contenders([contender], trials).codes
    return bool(whole.size and (whole >= 0).all())


def mark(plan: Plan, state: State) -> None:
    """Leave in every run how it was stopped: its number of trials depends on its outcomes."""
    for k, contender in enumerate(plan.contenders):
        for run in contender.runs:
            manifest = runfolder.read_manifest(run)
            stopped = {
                "until": plan.goal.cfg.until,
                "method": plan.goal.cfg.method,
                "confidence": plan.goal.cfg.confidence,
                "trials": int(state.spent[k]),
                "folder": os.path.abspath(plan.folder),
            }
            if len(contender.runs) == 1:
                of_model = {
                    "mean": state.known.mean,
                    "low": state.known.low,
                    "high": state.known.high,
                }
                stopped |= {key: float(values[k]) for key, values in of_model.items()}
            if manifest.get("stopped") != stopped:
                runfolder.write_json(run.manifest, manifest | {"stopped": stopped})


def warn_unsettled(state: State, plan: Plan) -> None:
    """Say that more trials may settle what all of these did not."""
    if ended(state, plan.goal) and not state.known.settled:
        warn(f"all {plan.goal.trials} trials are used; sampling.trials=N and out=FOLDER go on")
