"""One run after the other, each in a process of its own; finished ones start none.

As in `config.sweep` one that fails does not stop the others, and one that was stopped stops all.
"""

import functools
import itertools
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pipeline.base import interrupts
from pipeline.base.console import clock, fail, note
from pipeline.base.errors import AGAIN, UserError
from pipeline.config import sweep
from pipeline.prepare import questions
from pipeline.prepare.questions import Question
from pipeline.research.trajectory import merged, standing
from pipeline.research.trajectory.plan import Evaluation, Plan, Weights
from pipeline.research.trajectory.standing import Standing

Standings = dict[tuple[str, str], Standing]  # by data set and name of the run's folder


class Unfinished(UserError):
    """Runs failed or were stopped; the command exits as the last of them did."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.exit_code = status


def key(evaluation: Evaluation) -> tuple[str, str]:
    """What standings of evaluations go by."""
    return evaluation.dataset, evaluation.run.path.name


def standings(plan: Plan, asked: Mapping[str, Sequence[Question]]) -> Standings:
    """Where every run of a plan stands.

    Args:
        plan: all evaluations.
        asked: what `asked_in` returned.

    Raises:
        UserError: a folder holds another run.
    """
    known = functools.cache(merged.known)  # of several runs each
    return {key(one): standing.of(one, asked[one.dataset], known) for one in plan.evaluations}


def asked_in(plan: Plan) -> dict[str, list[Question]]:
    """The questions of each data set of a plan.

    Raises:
        UserError: a data set cannot be read.
    """
    configs = {one.dataset: one.run.cfg.dataset for one in plan.evaluations}
    return {name: questions.load(cfg)[0] for name, cfg in configs.items()}


def evaluate(
    plan: Plan, asked: Mapping[str, Sequence[Question]], found: Standings, keep: bool
) -> None:
    """Run what is owed, model by model; merged weights are made just before.

    Args:
        plan: all evaluations.
        asked: what `asked_in` returned.
        found: where they stand; brought up to date.
        keep: whether merged weights stay when the runs of their model are complete.

    Raises:
        Unfinished: some runs failed, or one was stopped.
    """
    groups = [
        (weights, [*of]) for weights, of in itertools.groupby(plan.evaluations, lambda e: e.weights)
    ]
    failed: dict[str, int] = {}
    timer = _Timer()
    for number, (weights, of) in enumerate(groups, 1):
        owed = [one for one in of if not found[key(one)].finished]
        if owed:
            left = [e for _, later in groups[number:] for e in later if not found[key(e)].finished]
            name = owed[0].run.cfg.model.name
            note(f"evaluating {number} of {len(groups)}: {name}{timer.left([*owed, *left])}")
            failed |= _model(weights, owed, timer)
            for one in owed:
                found[key(one)] = standing.of(one, asked[one.dataset])
                if not found[key(one)].finished:
                    failed.setdefault(str(one.run.path), 1)
        if all(found[key(one)].finished for one in of):
            (merged.remember if keep else merged.remove)(weights)
    if failed:
        names = "; ".join([*failed][:6]) + f" and {len(failed) - 6} more" * (len(failed) > 6)
        raise Unfinished(
            f"{len(failed)} of {len(plan.evaluations)} runs are not finished: {names}; the same"
            " command makes what is owed",
            [*failed.values()][-1],
        )


def _model(weights: Weights, owed: Sequence[Evaluation], timer: "_Timer") -> dict[str, int]:
    """Evaluate one model; returns the runs that failed, with their exit statuses."""
    try:
        merged.make(weights)
    except UserError as error:
        fail(f"{weights.name}: {error}")
        return {str(one.run.path): error.exit_code for one in owed}
    failed = {}
    for one in owed:
        began = time.monotonic()
        status = _child([sys.executable, "-m", "pipeline", "run", *one.settings])
        if status in sweep.STOPPED or status == AGAIN:
            raise Unfinished(
                f"stopped at {one.run.path}; what is finished is kept, the same command continues",
                status if status > 0 else 128 - status,
            )
        if status:
            failed[str(one.run.path)] = status
        else:
            timer.took(one, time.monotonic() - began)
    return failed


def _child(command: Sequence[str]) -> int:
    """Run a command to its end; its tables are not printed, what it tells is.

    A terminal's Ctrl-C reaches the child, too, which ends in good order: this process waits for
    it. What is sent to this process alone is passed on.

    Returns:
        Its exit status; that of a stop where one was asked for, even if the child was just done.
    """
    asked: list[int] = []
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:

        def heard(number: int, _: Any) -> None:
            asked.append(number)
            if number != signal.SIGINT:
                child.send_signal(number)

        with interrupts.handled_by(heard):
            status = child.wait()
    if asked and status not in sweep.STOPPED and status != AGAIN:
        return AGAIN if asked[-1] == signal.SIGUSR1 else 128 + asked[-1]
    return status


class _Timer:
    """How long runs take, sampled and greedy ones by themselves."""

    def __init__(self) -> None:
        self.seconds: dict[bool, list[float]] = {False: [], True: []}

    def took(self, one: Evaluation, seconds: float) -> None:
        """One run is done."""
        self.seconds[one.greedy].append(seconds)

    def left(self, owed: Iterable[Evaluation]) -> str:
        """The time that runs may take, in words; nothing before the first one is done."""
        means = {kind: sum(of) / len(of) for kind, of in self.seconds.items() if of}
        if not means:
            return ""
        most = max(means.values())
        return f", about {clock(sum(means.get(one.greedy, most) for one in owed))} left"
