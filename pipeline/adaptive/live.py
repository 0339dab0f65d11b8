"""Sample until it is decided: workers go on while complete rounds are graded and looked at.

Any number of these processes may work on one folder, as the tasks of a Slurm array do. There is no
coordinator: what is decided follows from the grades, so each process finds it out by itself, and
sampling claims attempts as in any run.

The error of a race holds for any schedule of who samples what. A look uses rounds (one attempt or
more at every question) in their order, and only those that are complete for all open models;
whether a round counts, for which models, was decided from earlier rounds alone. So each round's
bets are fair given the rounds before it, and the product of bets is an e-process whatever else is
sampled, and when (Ramdas, Grünwald, Vovk and Shafer 2023, "Game-theoretic statistics and safe
anytime-valid inference": predictable bets and optional stopping; docs/adaptive.md has the proof).
An attempt that was sampled ahead has its seed, and counts when its round does, or never.

Sampling ahead costs tokens where a model leaves at the next look, and saves time where it does not:
a look waits for the longest of hundreds of attempts, and meanwhile devices empty.
"""

import math
import os
import shlex
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Self

import numpy as np

from bayes_at_n.pipeline.adaptive import RECORD, looks, plan
from bayes_at_n.pipeline.adaptive.forecast import forecast
from bayes_at_n.pipeline.adaptive.plan import MARK, Contender, Plan, record_of
from bayes_at_n.pipeline.adaptive.race import Course, Outcomes, State, upcoming
from bayes_at_n.pipeline.adaptive.tables import line
from bayes_at_n.pipeline.base import atomic, lease
from bayes_at_n.pipeline.base.console import note, substep, warn
from bayes_at_n.pipeline.base.errors import DamagedData, Interrupted, UserError
from bayes_at_n.pipeline.base.program import PROGRAM, kind
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.compose import quoted
from bayes_at_n.pipeline.generate import attempts
from bayes_at_n.pipeline.grade import stage as grading
from bayes_at_n.pipeline.score.headline import STOPPED
from bayes_at_n.pipeline.store import outcomes, runfolder
from bayes_at_n.pipeline.workers import claims, devices, stopping
from bayes_at_n.pipeline.workers.resident import STOPPED as STOPS
from bayes_at_n.pipeline.workers.resident import Order, Residents, Unfinished
from bayes_at_n.scoring.numerics.inputs import Bools, Ints

STAGES = "stages=[prepare,generate]"
WAIT_S = 1.0  # between two looks at what workers have made
LEAVE_S = 10.0  # for workers of a race that is over
IDLE = 1  # rounds that a worker may begin beyond what is wanted, when it would be idle
LOADING = 0.05  # of the time, where models take turns in a place


def settle(plan: Plan) -> tuple[Course, Outcomes]:
    """Sample until it is decided or all trials are used; return looks and what they were seen in.

    Raises UserError: the folder holds another plan; Unfinished: a run failed or was stopped;
    Interrupted: a signal came. The same command goes on.
    """
    begin(plan)
    announced, why = 0, ""
    with stopping.requests() as stop, Samplers(plan, stop) as samplers:
        while True:
            seen, known = looks.look(plan.contenders, plan.goal)
            if seen.states:
                looks.record(plan.folder, seen)
            for i in range(announced + 1, len(seen.states) + 1):
                note(line(seen.upto(i)))
            trials, chosen = upcoming(seen.states, plan.goal)
            if len(seen.states) > announced or not trials:
                mark(plan, seen.states[-1], chosen)
            announced = len(seen.states)
            if not trials or (why := samplers.sample(seen, known)):
                break
    for run in (run for contender in plan.contenders for run in contender.runs):
        if looks.is_prepared(run):
            attempts.leave(runfolder.open_run(run.path))  # what was sampled ahead stays, unused
    if why and not seen.states:
        raise UserError(f"{why}; no look was reached; finished attempts are kept")
    if why:
        warn(why)
    return seen, known


def begin(plan: Plan) -> None:
    """Keep the plan in its folder."""
    path, new = plan.folder / RECORD, record_of(plan)
    plan.folder.mkdir(parents=True, exist_ok=True)
    atomic.sweep(plan.folder)
    with lease.held(plan.folder / "looks.lease", "beginning", wait=True):
        there = runfolder.read_json(path)
        if path.exists() and not there:
            raise UserError(f"{path}: unreadable; delete it (the runs and looks are kept)")
        for key in [key for key in new if key not in ("arguments", "cwd", MARK)]:
            if there and there.get(key) != new[key]:
                raise UserError(
                    f"{path}: was started with {key}={there.get(key)}, not {key}={new[key]};"
                    " use out=FOLDER for another race on the same runs"
                )
        marked = new | {MARK: there.get(MARK) or new[MARK]}  # by another machine's key, perhaps
        if there != marked:  # what the folder alone goes on with: the settings given last
            runfolder.write_json(path, new)
    announce(plan)


def announce(plan: Plan) -> None:
    """Say beforehand when one looks."""
    models, after = len(plan.contenders), ", ".join(map(str, plan.goal.looks))
    note(f"until={plan.goal.cfg.until} of {models} models; looks after {after} trials")
    note(f"to follow it: {PROGRAM} status {shlex.quote(str(plan.folder))} --watch")


def mark(plan: Plan, state: State, chosen: Bools) -> None:
    """Leave in runs that are sampled no more how they were stopped, and how many trials count.

    Of a run that held more before, complete, all count, and nothing stopped it.
    """
    cfg, folder = plan.goal.cfg, os.path.abspath(plan.folder)
    for k in np.flatnonzero(~chosen):
        trials = int(state.spent[k])
        how = {key: getattr(cfg, key) for key in ("until", "confidence", "independent")}
        how |= {"trials": trials, "folder": folder}
        for run in plan.contenders[k].runs:
            for of_table in run.path.glob("*/"):  # drafts of one that was killed
                atomic.sweep(of_table)
            so_many = looks.reached(run, trials)
            runfolder.save(looks.with_trials(run, so_many), *runfolder.TRIALS)
            manifest = runfolder.read_manifest(run)
            if so_many == trials and manifest.get(STOPPED) != how:
                runfolder.write_json(run.manifest, manifest | {STOPPED: how})


def complete(contender: Contender, trials: int) -> bool:
    """Grade a model's attempts once all of so many trials are there; whether these are graded."""
    runs = [looks.with_trials(run, trials) for run in contender.runs]
    if not all(looks.is_prepared(run) and not runfolder.pending(run) for run in runs):
        return False
    ungraded = [run for run in runs if (outcomes.read(run, quiet=True).codes < 0).any()]
    for run in ungraded:
        with substep(), suppress(DamagedData):  # which was set aside, and is sampled anew
            grading.grade(run)
    return all((outcomes.read(run, quiet=True).codes >= 0).all() for run in ungraded)


def claimable(contender: Contender, trials: int) -> bool:
    """Return whether a worker that came now would find attempts of so many trials to begin."""
    runs = [looks.with_trials(run, trials) for run in contender.runs]
    return any(
        not looks.is_prepared(run) or (bool(runfolder.pending(run)) and claims.any_free(run))
        for run in runs
    )


def workers(contender: Contender) -> set[str]:
    """Return the names of the workers that are alive at a model's runs."""
    return {name for run in contender.runs for name in runfolder.alive(run.path)}


def attempts_in_flight(contender: Contender) -> int:
    """Count the attempts that live workers have begun and not finished."""
    records = [one for run in contender.runs for one in runfolder.sessions(run.path).values()]
    alive = workers(contender)
    return sum(int(one.get("in_flight", 0)) for one in records if one.get("worker") in alive)


def places(contenders: Sequence[Contender]) -> list[str | None]:
    """Return the GPUs of each place, as CUDA_VISIBLE_DEVICES names them; None: all there are."""
    configs = [run.cfg for contender in contenders for run in contender.runs]
    if all(kind(cfg.engine.name).served for cfg in configs):
        return [None] * len(contenders)
    copies = [1 if cfg.engine.replicas == AUTO else cfg.engine.replicas for cfg in configs]
    sizes = [cfg.engine.tensor_parallel_size for cfg in configs]
    elsewhere = configs[0].cluster.address is not None
    if elsewhere or AUTO in sizes or not devices.on_gpus(configs[0]):
        return [None]
    gpus, size = devices.visible_gpus(), max(map(math.prod, zip(copies, sizes, strict=True)))
    return [*devices.gpu_groups(gpus, len(gpus) // size, size)] or [None]


class Samplers:
    """The processes that sample the models of a race, in each place a model at a time.

    A place is as many GPUs as one engine takes, else the whole machine; each model on a server has
    one of its own. Models stay in their places while there are enough, and take turns otherwise.
    A file says how many trials of each run are wanted by now (`generate/allowance.py`): workers
    follow it while they sample, so that none waits for a look, and leave when their model does.
    """

    def __init__(self, plan: Plan, stop: stopping.StopFlag) -> None:
        self.plan, self.stop, self.gpus = plan, stop, places(plan.contenders)
        # Of several at once nobody could read the progress.
        self.residents = Residents(mode="quiet" if len(self.gpus) > 1 else "")
        self.file = atomic.draft(plan.folder / "wanted.json")
        self.wanted: dict[str, list[int]] = {}  # what stands in it
        self.loaded: list[int | None] = [None] * len(self.gpus)  # models by place
        self.orders: dict[int, tuple[int, Order]] = {}  # models and their commands by place

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._want(np.zeros(len(self.plan.contenders), np.int64))
        began = time.monotonic()
        while self.orders and time.monotonic() - began < LEAVE_S:  # unless they load
            self._ended(leaving=True)
            time.sleep(WAIT_S / 10)
        self.residents.__exit__()
        self.file.unlink(missing_ok=True)

    def sample(self, seen: Course, known: Outcomes) -> str:
        """Sample until what the next look needs is graded; else return what a budget forbids."""
        contenders = self.plan.contenders
        trials, chosen = upcoming(seen.states, seen.goal)
        lacking = np.where(chosen, (known.codes[:, :, :trials] < 0).sum(axis=(1, 2)), 0)
        why = plan.exhausted(contenders, "the next look needs", lacking)
        if why and (lacking.any() or not known.codes.size):
            return why
        first, limited = np.where(chosen, trials, 0), plan.has_budget(contenders)
        needed = chosen.copy()
        while True:
            began, ended = time.monotonic(), self._ended()
            for k in np.flatnonzero(needed):
                needed[k] = not complete(contenders[k], trials)
            if not needed.any():
                return ""
            if self.stop.signal_number:
                self._interrupt()
            if limited and (why := self._unpaid(bool(needed[ended].any()))):
                return why
            turns = self._turns() if chosen.sum() > len(self.gpus) else None
            wanted = first if limited else wanted_trials(seen, turns)
            self._assign(needed, first, wanted, 0 if limited else IDLE)
            time.sleep(max(WAIT_S, 4 * (time.monotonic() - began)))

    def _unpaid(self, lacking: bool) -> str:
        """Say why nothing more is begun under the budget; `lacking`: a command left attempts."""
        contenders = self.plan.contenders
        in_flight = np.array([attempts_in_flight(contender) for contender in contenders])
        if why := plan.exhausted(contenders, "attempts in flight need", in_flight):
            return why
        begun = bool(self.orders) or in_flight.any()
        return "the rest of the budget is too small for an attempt" if lacking and not begun else ""

    def _assign(self, needed: Bools, first: Ints, wanted: Ints, idle: int) -> None:
        """Say what is wanted, and give every free place a model that it can do something for."""
        contenders, own = self.plan.contenders, {k for k, _ in self.orders.values()}
        at_work = np.array([len(workers(of)) or k in own for k, of in enumerate(contenders)], int)
        self._want(wanted, 0 if (needed & (at_work == 0)).any() else idle)
        start = int(os.environ.get("SLURM_ARRAY_TASK_ID", 0))
        can_begin = cache(lambda k, trials: claimable(contenders[k], trials))  # for every place
        for place in sorted({*range(len(self.gpus))} - self.orders.keys()):
            now, later = np.zeros((2, len(contenders)), bool)
            for i in range(len(contenders)):
                if i not in own or self.gpus[place] is not None:  # else its process is busy
                    now[i] = needed[i] and can_begin(i, first[i])
                    later[i] = not now[i] and first[i] < wanted[i] and can_begin(i, wanted[i])
            if (k := choose(self.loaded[place], at_work, now, later, start)) is None:
                continue
            contender = contenders[k]
            most = max(looks.reached(run, self.plan.goal.trials) for run in contender.runs)
            more = [f"sampling.trials={most}", f"race={quoted(str(self.file.absolute()))}", STAGES]
            command, cfg = ["run", *contender.command, *more], contender.runs[0].cfg
            order = Order(contender.name, command, cfg, self.gpus[place])
            note(f"{order.label}: up to {wanted[k]} trials")
            self.residents.begin(order)
            self.orders[place], self.loaded[place] = (k, order), k
            at_work[k] += 1
            own.add(k)

    def _want(self, wanted: Ints, idle: int = 0) -> None:
        """Say how many trials of each model may be begun, and how many more by the idle."""
        most = self.plan.goal.trials
        current = {
            str(run.path): [int(n), int(min(n + idle * (n > 0), most))]
            for n, contender in zip(wanted, self.plan.contenders, strict=True)
            for run in contender.runs
        }
        if current != self.wanted:
            runfolder.write_json(self.file, current)
            self.wanted = current

    def _ended(self, leaving: bool = False) -> list[int]:
        """Return the models whose commands have ended. Raises Unfinished: one failed."""
        ended = []
        for place, (k, order) in [*self.orders.items()]:
            if (status := self.residents.ended(order)) is None:
                continue
            del self.orders[place]
            ended.append(k)
            if status and not (leaving or self.stop.signal_number):
                how = "was stopped" if status in STOPS else "failed (see above); fix it"
                raise Unfinished(f"{order.label}: {how}; the same command continues", status)
        return ended

    def _interrupt(self) -> None:
        """Stop all. Raises Interrupted."""
        number = self.stop.signal_number
        self._want(np.zeros(len(self.plan.contenders), np.int64))
        if number != signal.SIGINT:  # a terminal's Ctrl-C reaches them, too
            self.residents.stop(number)
        while self.orders:
            self._ended()
            time.sleep(WAIT_S / 10)
        raise Interrupted("stopped; the same command continues", number)

    def _turns(self) -> Ints | None:
        """Return the rounds (K,) that make loading a model `LOADING` of a turn; 0: not known yet.

        None where engines stay loaded.
        """
        if not devices.on_gpus(self.plan.contenders[0].runs[0].cfg):
            return None
        turns = []
        for contender in self.plan.contenders:
            runs = [run for run in contender.runs if looks.is_prepared(run)]
            records = [one for run in runs for one in runfolder.sessions(run.path).values()]
            loads = [one["load_s"] for one in records if one.get("attempts") and "load_s" in one]
            worked = sum(one.get("lived_s", 0.0) for one in records) - sum(loads)
            rounds = sum(one.get("attempts", 0) for one in records) / (
                sum(len(run.questions) for run in runs) or 1
            )
            turn = max(loads, default=0.0) * (1 / LOADING - 1)
            turns.append(math.ceil(turn * rounds / worked) if worked > 0 else 0)
        return np.array(turns)


def wanted_trials(seen: Course, turns: Ints | None = None) -> Ints:
    """Return how many trials of each model may be sampled by now: (K,), 0 of those that have left.

    All up to the next look, and then half of what the forecast leaves, at most as many as are
    sampled: of races that go on for long most is sampled ahead, of those that end soon little.
    `turns`: rounds (K,) after which a model's load was `LOADING` of its turn; so long is a turn.
    """
    trials, chosen = upcoming(seen.states, seen.goal)
    if not seen.states:
        return np.where(chosen, trials, 0)
    left = forecast(seen)
    assert left is not None  # there are looks
    more = (left.trials - trials) // 2
    spent = seen.states[-1].spent
    if turns is not None:
        more = np.maximum(more, turns - (trials - spent))
    more = np.clip(more, 0, spent)
    return np.where(chosen, np.minimum(trials + more, seen.goal.trials), 0)


def choose(
    loaded: int | None, at_work: Ints, needed: Bools, ahead: Bools, first: int = 0
) -> int | None:
    """Return the model that a free place takes, None where there is nothing to do.

    One that the next look waits for before one that can only be sampled ahead; then one that nobody
    is at, that which is loaded, and the one with the fewest workers.

    Args:
        loaded: the model in the place, if any.
        at_work: workers (K,) at each model.
        needed: whether attempts for the next look can be begun (K,).
        ahead: whether attempts can be begun that are wanted after it (K,).
        first: of models that are alike the one to begin with; tasks of Slurm start at once.

    >>> some = np.array([True, True, True])
    >>> choose(2, np.array([0, 1, 0]), some, some), choose(1, np.array([1, 1, 1]), ~some, some)
    (2, 1)
    >>> choose(0, np.array([0, 0, 0]), ~some, ~some) is None
    True
    """
    count = len(at_work)
    able = [k for k in range(count) if needed[k] or ahead[k]]
    return min(
        able,
        key=lambda k: (not needed[k], at_work[k] > 0, k != loaded, at_work[k], (k - first) % count),
        default=None,
    )
