"""One run after the other, each in a process of its own; finished ones start none.

As in `config.sweep` one that fails does not stop the others, and one that was stopped stops all.
"""

import functools
import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path

from pipeline.base.console import clock, fail, note
from pipeline.base.errors import UserError
from pipeline.config import sweep
from pipeline.research.trajectory import remaining, windows
from pipeline.research.trajectory.plan import Evaluation, TrajectoryPlan, Window
from pipeline.research.trajectory.remaining import Remaining

Work = dict[Path, Remaining]  # what runs lack, by run folder


def work(plan: TrajectoryPlan) -> Work:
    """What every run of a plan lacks.

    Raises UserError: a data set cannot be read; a folder holds another run.
    """
    known = functools.cache(windows.known)  # of several runs each
    return {
        evaluation.run.path: remaining.of(evaluation, plan.questions[evaluation.dataset], known)
        for evaluation in plan.evaluations
    }


def evaluate(plan: TrajectoryPlan, lacking: Work, keep: bool) -> None:
    """Run what is owed, model by model; merged weights are made just before.

    What runs lack, `lacking`, is brought up to date, and merged weights whose runs are complete are
    deleted unless `keep` says otherwise. Raises Unfinished: some runs failed, or one was stopped.
    """

    def owed_of(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        return [e for e in evaluations if not lacking[e.run.path].finished]

    models = [
        (window, [*of]) for window, of in itertools.groupby(plan.evaluations, attrgetter("window"))
    ]
    failed: dict[Path, int] = {}
    seconds: dict[bool, list[float]] = {False: [], True: []}  # of runs, sampled and greedy
    for number, (window, evaluations) in enumerate(models, 1):
        if owed := owed_of(evaluations):
            later = plan.evaluations[plan.evaluations.index(owed[0]) :]
            time_left = _time_left(owed_of(later), seconds)
            note(f"evaluating {number} of {len(models)}: {owed[0].run.cfg.model.name}{time_left}")
            failed |= _evaluate_model(window, owed, seconds)
        for evaluation in owed:
            path = evaluation.run.path
            lacking[path] = remaining.of(evaluation, plan.questions[evaluation.dataset])
            if not lacking[path].finished:
                failed.setdefault(path, 1)
        if not owed_of(evaluations):
            (windows.remember if keep else windows.remove)(window)
    if failed:
        more = f" and {len(failed) - 6} more" if len(failed) > 6 else ""
        names = "; ".join(map(str, [*failed][:6])) + more
        raise sweep.Unfinished(
            f"{len(failed)} of {len(plan.evaluations)} runs are not finished: {names}; the same"
            " command makes what is owed",
            [*failed.values()][-1],
        )


def _evaluate_model(
    window: Window, owed: Sequence[Evaluation], seconds: Mapping[bool, list[float]]
) -> dict[Path, int]:
    """Evaluate one model, and note the seconds; returns exit statuses of the runs that failed."""
    try:
        windows.make(window)
    except UserError as error:
        fail(f"{window.name}: {error}")
        return {evaluation.run.path: error.exit_code for evaluation in owed}
    failed = {}
    for evaluation in owed:
        path, began = evaluation.run.path, time.monotonic()
        if status := sweep.run(path, evaluation.settings):
            failed[path] = status
        else:
            seconds[evaluation.greedy].append(time.monotonic() - began)
    return failed


def _time_left(owed: Iterable[Evaluation], seconds: Mapping[bool, list[float]]) -> str:
    """The time that runs may take, in words; nothing before the first one is done."""
    means = {greedy: sum(of) / len(of) for greedy, of in seconds.items() if of}
    if not means:
        return ""
    longest = max(means.values())
    return f", about {clock(sum(means.get(e.greedy, longest) for e in owed))} left"
