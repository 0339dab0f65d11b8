"""Sampling until it is decided: block by block, each block of a model an ordinary command `run`.

Any number of these processes may work on one folder, as the tasks of a Slurm array do. There is no
coordinator: what is decided follows from the grades, so each process finds it out by itself, and
sampling claims attempts as in any run.
"""

import os
import shlex
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from bayes_at_n.pipeline.adaptive import RECORD, budget, data, looks
from bayes_at_n.pipeline.adaptive.data import Outcomes
from bayes_at_n.pipeline.adaptive.looks import Course
from bayes_at_n.pipeline.adaptive.plan import MARK, Contender, Plan, record_of
from bayes_at_n.pipeline.adaptive.race import Bools, State, owed, states
from bayes_at_n.pipeline.adaptive.tables import told
from bayes_at_n.pipeline.base import atomic, lease
from bayes_at_n.pipeline.base.console import note, warn
from bayes_at_n.pipeline.base.errors import Interrupted, UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.score.shown import STOPPED
from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.workers import claims, devices, stopping
from bayes_at_n.pipeline.workers.resident import Order, Residents, Unfinished

STAGES = "stages=[prepare,generate,grade]"
_WAIT_S = 2.0  # while others make the rest of a block


def settle(plan: Plan) -> tuple[Course, Outcomes]:
    """Sample until it is decided or all trials are used; every look, and what it was seen in.

    Raises:
        UserError: the folder holds another plan, or looks at other outcomes.
        Unfinished: a run failed or was stopped; the same command goes on.
        Interrupted: as a run, when a signal comes between two of them.
    """
    begin(plan)
    said = 0
    with stopping.requests() as stop, Residents() as residents:
        while True:
            seen, known = look(plan)
            looked = len(seen.states)
            for until in range(said + 1, looked + 1):
                note(told(seen._replace(states=seen.states[:until], tokens=seen.tokens[:until])))
            trials, chosen = owed(seen.states[-1] if looked else None, plan.goal)
            if looked > said or not trials:
                mark(plan, seen.states[-1], chosen)
            if not trials:
                return seen, known
            said = looked
            lacking = _lacking(plan, known, trials, chosen)
            if why := budget.told(plan, [(of, _owed(plan, known, of, trials)) for of in lacking]):
                return _unpaid(why, seen), known
            shares = _shares([plan.contenders[k] for k in np.flatnonzero(chosen)])
            groups = [lacking] if shares and lacking else [[of] for of in lacking]
            many = len(lacking)
            if not any(_sample(plan, of, trials, many, stop, residents, shares) for of in groups):
                if _stands_still(plan, known):
                    return _unpaid("what is left of the budget begins no attempt", seen), known
                time.sleep(_WAIT_S)


def _owed(plan: Plan, known: Outcomes, contender: Contender, trials: int) -> int:
    """Attempts that a model lacks up to so many trials; 0 of questions that are not prepared."""
    place = plan.contenders.index(contender)
    return int((known.codes[place, :, :trials] < 0).sum())


def _stands_still(plan: Plan, before: Outcomes) -> bool:
    """Whether a budget kept every run from beginning anything, and nobody else is at work."""
    runs = [run for contender in plan.contenders for run in contender.runs]
    if not runs[0].cfg.budget.given or any(sessions.alive(run.path) for run in runs):
        return False
    now = data.of_contenders(plan.contenders, plan.goal.trials).codes
    return now.shape == before.codes.shape and bool((now == before.codes).all())


def _unpaid(why: str, seen: Course) -> Course:
    """Say that no more is sampled, with what was seen until then.

    Raises UserError: that was nothing.
    """
    if not seen.states:
        raise UserError(f"{why}; there was no look yet, and what was sampled is kept")
    warn(why)
    return seen


def begin(plan: Plan) -> None:
    """Keep the plan in its folder.

    Raises UserError: the folder holds another plan.
    """
    path, new = plan.folder / RECORD, record_of(plan)
    plan.folder.mkdir(parents=True, exist_ok=True)
    with lease.held(plan.folder / "looks.lease", "beginning", wait=True):
        there = runfolder.read_json(path)
        if path.exists() and not there:
            raise UserError(f"{path}: unreadable; delete it, the runs and the looks stay")
        for key in [key for key in new if key not in ("arguments", "cwd", MARK)]:
            if there and there.get(key) != new[key]:
                raise UserError(
                    f"{path}: was begun with {key}={there.get(key)}, and this is {key}={new[key]};"
                    " use out=FOLDER for another, which reads the same runs"
                )
        marked = new | {MARK: there.get(MARK) or new[MARK]}  # by another machine's key, perhaps
        if there != marked:  # what the folder alone goes on with: as it was asked for last
            runfolder.write_json(path, new)
    announce(plan)


def announce(plan: Plan) -> None:
    """Say beforehand when one looks."""
    goal = plan.goal
    shown = ", ".join(map(str, goal.looks))
    note(f"until={goal.cfg.until} of {len(goal.names)} models; looks after {shown} trials")
    note(f"to watch it: {PROGRAM} status {shlex.quote(str(plan.folder))} --watch")


def look(plan: Plan) -> tuple[Course, Outcomes]:
    """Every look so far, from the grades; those that are new go on record."""
    known = data.of_contenders(plan.contenders, plan.goal.trials)
    course = looks.course([*states(known.codes, plan.goal)], known, plan.goal)
    if course.states:
        looks.record(plan.folder, course)
    return course, known


def _lacking(plan: Plan, known: Outcomes, trials: int, chosen: Bools) -> list[Contender]:
    """The models that the next look waits for, those first that the fewest workers are at.

    Of equal ones each task of Slurm begins with another, as they all may start at once.
    """
    lacks = (known.codes[:, :, :trials] < 0).any(axis=(1, 2)) | (not known.codes.shape[1])
    places = np.flatnonzero(chosen & lacks)
    start = int(os.environ.get("SLURM_ARRAY_TASK_ID", 0)) % max(1, len(places))
    found = [plan.contenders[place] for place in np.roll(places, -start)]
    return sorted(found, key=lambda of: sum(len(sessions.alive(run.path)) for run in of.runs))


def _shares(contenders: Sequence[Contender]) -> dict[str, str]:
    """The GPUs of each open model by its name, where all can be sampled at once; else nothing.

    A model that has left leaves its GPUs to the others, which are then loaded anew on more.
    """
    configs = [run.cfg for of in contenders for run in of.runs]
    sizes = [cfg.engine.tensor_parallel_size for cfg in configs]
    gpus = devices.visible_gpus() if devices.on_gpus(configs[0]) else []
    each = len(gpus) // len(contenders)
    if len(contenders) == 1 or not each or AUTO in sizes or max(sizes) > each:
        return {}
    groups = devices.gpu_groups(gpus, len(contenders), each)
    return dict(zip((of.name for of in contenders), groups, strict=True))


def _sample(
    plan: Plan,
    contenders: Sequence[Contender],
    trials: int,
    lacking: int,
    stop: stopping.StopFlag,
    residents: Residents,
    shares: Mapping[str, str],
) -> bool:
    """Make what models owe up to so many trials; whether the runs of one are whole now.

    Where they are not, other processes are at the rest.
    """
    orders, of_all = [], sum(len(of.runs) for of in contenders)
    for contender in contenders:
        for run, settings in zip(contender.runs, contender.settings, strict=True):
            if stop.signal_number:
                said = f"stopped before {run.path}; the same command continues"
                raise Interrupted(said, stop.signal_number)
            so_many = data.reached(run, trials)
            if not claims.any_free(data.with_trials(run, so_many)):
                continue  # an engine would be loaded for nothing
            note(f"{run.path}: up to {so_many} trials")
            parts = lacking * len(contender.runs)
            asked = [*settings, *budget.settings(plan, run, parts, at_once=of_all > 1)]
            asked += [f"sampling.trials={so_many}", STAGES]
            gpus = shares.get(contender.name)
            orders.append(Order(contender.name, ["run", *asked], run.cfg, gpus))
    for order, status in zip(orders, residents.run(orders) if orders else [], strict=True):
        if status:
            raise Unfinished(
                f"{order.place} failed (see above); mend it, and the same command continues",
                status,
            )
    whole = [data.of_contenders([contender], trials).codes for contender in contenders]
    return any(codes.size and (codes >= 0).all() for codes in whole)


def mark(plan: Plan, state: State, chosen: Bools) -> None:
    """Leave in runs that are sampled no more how they were stopped, and how many trials count.

    Of a run that held more before, complete, all count, and nothing stopped it.
    """
    for k in np.flatnonzero(~chosen):
        trials = int(state.spent[k])
        for run in plan.contenders[k].runs:
            for left in run.path.glob("*.lease"):  # of one that was killed when all was graded
                with suppress(lease.Taken), lease.held(left, "clearing up"):
                    pass
            for folder in run.path.glob("*/"):
                atomic.sweep(folder)
            so_many = data.reached(run, trials)
            runfolder.save(data.with_trials(run, so_many), *runfolder.TRIALS)
            cfg = plan.goal.cfg
            how = {"until": cfg.until, "method": cfg.method, "confidence": cfg.confidence}
            how |= {"trials": trials, "folder": os.path.abspath(plan.folder)}
            manifest = runfolder.read_manifest(run)
            if so_many == trials and manifest.get(STOPPED) != how:
                runfolder.write_json(run.manifest, manifest | {STOPPED: how})
