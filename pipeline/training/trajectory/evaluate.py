"""One run after the other, each in a process of its own; finished ones start none.

A run is finished where settings, weights and questions are as asked, nothing is owed, all graded.
One that fails does not stop the others, and one that was stopped stops all.
"""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from bayes_at_n.pipeline.base.console import clock, fail, note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.prepare.questions import Question
from bayes_at_n.pipeline.store import graded, parquet, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.training.trajectory import windows
from bayes_at_n.pipeline.training.trajectory.plan import Evaluation, TrajectoryPlan, Window
from bayes_at_n.pipeline.workers.resident import Order, Residents, Unfinished


class Remaining(NamedTuple):
    """What a run lacks."""

    owed: int  # attempts
    ungraded: int  # attempts that are there, without a grade by today's grader
    prompts: int  # questions whose prompts, or the log-probs of these, are owed
    unknown: bool = False  # finished, of merged weights of which nothing says what they are of

    @property
    def finished(self) -> bool:
        return not (self.owed or self.ungraded or self.prompts)


def remaining(
    evaluation: Evaluation,
    questions: Sequence[Question],
    known: Callable[[Window], str | None] = windows.known,
) -> Remaining:
    """What the run of an evaluation lacks, on the questions of its data set; no engine is loaded.

    Raises UserError: the folder was made with other settings, weights or questions; what is in the
    place of merged weights cannot be told to be theirs.
    """
    run = evaluation.run
    weights = known(evaluation.window)
    keys = {(q.id, trial) for q in questions for trial in range(run.cfg.sampling.trials)}
    if not (run.path / "questions.parquet").is_file():
        return Remaining(len(keys), 0, 0)
    identity = {
        **runfolder.identity(run.cfg),
        "questions": {question.id: question.hash for question in questions},
    }
    made_with = runfolder.read_manifest(run).get("identity", {})
    if weights is not None:
        identity["model.weights"] = weights
    runfolder.check_same(run, identity)
    attempts = keys & shards.keys(run.attempts, ATTEMPTS, parquet.Damage())
    attempts -= runfolder.continuing(run).keys()
    grades = set[tuple[str, int]]()
    with contextlib.suppress(tables.Stale):
        there = graded.GRADES_TABLE.read(run, [], graded.inputs(run)).table
        grades = keys.intersection(zip(*(there[name].to_pylist() for name in KEY), strict=True))
    unprepared = [q for q in questions if q.id not in made_with.get("questions", {})]
    prompts = len(unprepared) or len(runfolder.missing_prompt_logprobs(run))
    found = Remaining(len(keys - attempts), len(attempts - grades), prompts)
    return found._replace(unknown=found.finished and weights is None)


Work = dict[Path, Remaining]  # what runs lack, by run folder


def work(plan: TrajectoryPlan) -> Work:
    """What every run of a plan lacks.

    Raises UserError: a data set cannot be read; a folder holds another run.
    """
    known = functools.cache(windows.known)  # of several runs each
    return {
        evaluation.run.path: remaining(evaluation, plan.questions[evaluation.dataset], known)
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
            lacking[path] = remaining(evaluation, plan.questions[evaluation.dataset])
            if not lacking[path].finished:
                failed.setdefault(path, 1)
        if not owed_of(evaluations):
            (windows.remember if keep else windows.remove)(window)
    if failed:
        more = f" and {len(failed) - 6} more" if len(failed) > 6 else ""
        names = "; ".join(map(str, [*failed][:6])) + more
        raise Unfinished(
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
    with Residents() as residents:
        for evaluation in owed:
            run, began = evaluation.run, time.monotonic()
            [status] = residents.run([Order(window.name, ["run", *evaluation.settings], run.cfg)])
            if status:
                failed[run.path] = status
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
