"""Evaluation of the models of a trajectory: what each run lacks, and the commands that make it.

A run is finished where settings, weights and questions are as requested, nothing is pending, all
graded. One that fails does not stop the others, and one that was stopped stops all.

    runs/_merged/demo/step-3900-merge4/           a checkpoint like any other, with merge.yaml
    runs/_merged/demo/step-3900-merge4.json       in its place once its weights are deleted

That file holds the fingerprints of the weights and of what they were made of. So a finished run is
known to be of these very checkpoints although the weights are gone.
"""

import contextlib
import functools
import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base.console import duration, fail, note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.prepare.questions import Question
from bayes_at_n.pipeline.store import graded, parquet, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.training import merge
from bayes_at_n.pipeline.training.checkpoints import MANIFEST, fingerprint
from bayes_at_n.pipeline.training.windows import Evaluation, Series, Window
from bayes_at_n.pipeline.workers.resident import Order, Residents, Unfinished

_RENAME = (
    "the runs would have the same names, too: call this training otherwise with"
    " checkpoints.NAME=FOLDER, or delete that, if nobody needs it"
)
_DELETE = "delete this folder only: it is merged again, and its runs stay if the bytes are the same"
_BRING_BACK = "bring back what it was, or delete this file and its runs to make them anew"


class Remaining(NamedTuple):
    """What a run lacks."""

    pending: int  # attempts
    ungraded: int  # attempts that are there, without a grade by today's grader
    prompts: int  # questions whose prompts, or the log-probs of these, are pending
    unknown: bool = False  # finished, of merged weights whose sources nothing records

    @property
    def finished(self) -> bool:
        return not (self.pending or self.ungraded or self.prompts)


Work = dict[Path, Remaining]  # what runs lack, by run folder


def weights(window: Window) -> str | None:
    """Return the fingerprint of a model's weights, as they are or were; None without a record.

    Raises UserError: what is in the place of merged weights is the mean of other checkpoints, of
    what these were before, or cannot be recognised.
    """
    if present(window):
        return fingerprint(window.path)
    if not (record := runfolder.read_json(_record(window))):
        return None
    if problem := merge.sources_mismatch(record, window.sources):
        remedy = _RENAME if problem.others else _BRING_BACK
        raise UserError(f"{_record(window)}: {problem.clause}; {remedy}")
    return str(record["weights"])


def present(window: Window) -> bool:
    """Return whether a model can be loaded: a checkpoint, or a window that is merged already.

    Raises UserError: something else is in the place of merged weights.
    """
    problem = merge.mismatch(window.path, window.sources) if window.size > 1 else None
    if problem and os.path.lexists(window.path):
        remedy = _RENAME if problem.others else _DELETE
        raise UserError(f"{window.path}: {problem.clause}; {remedy}")
    return problem is None


def remove(window: Window) -> None:
    """Delete the merged weights of a window whose runs are complete, and record what they were.

    Raises UserError: something else is in their place. OSError: the folder cannot be written.
    """
    if window.size > 1 and present(window):
        manifest = yaml.safe_load((window.path / MANIFEST).read_text(encoding="utf-8"))
        runfolder.write_json(
            _record(window), {key: manifest[key] for key in ("weights", "sources")}
        )
        merge.remove(window.path)


def _record(window: Window) -> Path:
    return window.path.with_name(f"{window.path.name}.json")


def remaining(
    evaluation: Evaluation,
    questions: Sequence[Question],
    weights: Callable[[Window], str | None] = weights,
) -> Remaining:
    """Count what the run of an evaluation lacks, on the questions of its data set.

    No engine is loaded. Raises UserError: the folder was made with other settings, weights or
    questions; what is in the place of merged weights cannot be recognised.
    """
    run, own = evaluation.run, weights(evaluation.window)
    keys = {(q.id, trial) for q in questions for trial in range(run.cfg.sampling.trials)}
    if not (run.path / "questions.parquet").is_file():
        return Remaining(len(keys), 0, 0)
    identity = {
        **runfolder.identity(run.cfg),
        "questions": {question.id: question.hash for question in questions},
        **({} if own is None else {"model.weights": own}),
    }
    prepared = runfolder.read_manifest(run).get("identity", {}).get("questions", {})
    runfolder.check_same(run, identity)
    attempts = keys & shards.keys(run.attempts, ATTEMPTS, parquet.Damage())
    attempts -= runfolder.continuing(run).keys()
    grades = set[tuple[str, int]]()
    with contextlib.suppress(tables.Stale):
        there = graded.GRADES_TABLE.read(run, [], graded.inputs(run)).table
        grades = keys.intersection(zip(*(there[name].to_pylist() for name in KEY), strict=True))
    unprepared = [question for question in questions if question.id not in prepared]
    prompts = len(unprepared) or len(runfolder.missing_prompt_logprobs(run))
    lacks = Remaining(len(keys - attempts), len(attempts - grades), prompts)
    return lacks._replace(unknown=lacks.finished and own is None)


def work(series: Series) -> Work:
    """Count what every run of a series lacks.

    Raises UserError: a data set cannot be read; a folder holds another run.
    """
    known = functools.cache(weights)  # of several runs each
    return {
        evaluation.run.path: remaining(evaluation, series.questions[evaluation.dataset], known)
        for evaluation in series.evaluations
    }


def evaluate(series: Series, lacking: Work, keep: bool) -> None:
    """Run what is pending, model by model; merged weights are made just before.

    What runs lack, `lacking`, is brought up to date, and merged weights whose runs are complete are
    deleted unless `keep` says otherwise. Raises Unfinished: some runs failed, or one was stopped.
    """

    def pending(evaluations: Iterable[Evaluation]) -> list[Evaluation]:
        return [e for e in evaluations if not lacking[e.run.path].finished]

    models = [[*of] for _, of in itertools.groupby(series.evaluations, attrgetter("window"))]
    failed: dict[Path, int] = {}
    attempts = sum(run.pending for run in lacking.values())
    began = time.monotonic()
    for number, evaluations in enumerate(models, 1):
        window, lacks = evaluations[0].window, pending(evaluations)
        if lacks:
            left = sum(lacking[e.run.path].pending for e in series.evaluations)
            seconds = (time.monotonic() - began) * left / max(1, attempts - left)
            estimate = f", about {duration(seconds)} left" if left < attempts else ""
            name = lacks[0].run.cfg.model.name
            note(f"evaluating {number} of {len(models)}: {name}{estimate}")
            failed |= _evaluate_model(window, lacks)
        for evaluation in lacks:
            path = evaluation.run.path
            lacking[path] = remaining(evaluation, series.questions[evaluation.dataset])
            if not lacking[path].finished:
                failed.setdefault(path, 1)
        if not keep and not pending(evaluations):
            remove(window)
    if failed:
        more = f" and {len(failed) - 6} more" if len(failed) > 6 else ""
        names = "; ".join(map(str, [*failed][:6])) + more
        raise Unfinished(
            f"{len(failed)} of {len(series.evaluations)} runs are not finished: {names}; the same"
            " command makes what is pending",
            [*failed.values()][-1],
        )


def _evaluate_model(window: Window, lacks: Sequence[Evaluation]) -> dict[Path, int]:
    """Evaluate one model by one process; return the exit statuses of the runs that failed."""
    try:
        if not present(window):
            merge.merge(window.sources, window.path)
    except UserError as error:
        fail(f"{window.name}: {error}")
        return {evaluation.run.path: error.exit_code for evaluation in lacks}
    failed = {}
    with Residents() as residents:
        for evaluation in lacks:
            run, command = evaluation.run, ["run", *evaluation.settings]
            status = residents.run(Order(window.name, command, run.cfg))
            if status:
                failed[run.path] = status
    return failed
