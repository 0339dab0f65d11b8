"""Evaluate the models of a trajectory: count each run's remaining work, and run what is pending.

A run is finished if its settings, weights and questions are as requested, and every attempt exists
and is graded. A run that fails does not stop the others; one that is stopped stops all.

    runs/_merged/demo/step-3900-merge4/           a checkpoint like any other, with merge.yaml
    runs/_merged/demo/step-3900-merge4.json       replaces it once its weights are deleted

The JSON file holds the fingerprints of the weights and of their sources, so a finished run can
still be matched to these checkpoints after its weights are deleted.
"""

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Sequence
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import yaml  # type: ignore[import-untyped]

from bayes_at_n.pipeline.base.console import fail, note
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.prepare.questions import Question
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, shards, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.training import merge
from bayes_at_n.pipeline.training.checkpoints import MANIFEST, fingerprint
from bayes_at_n.pipeline.training.windows import Evaluation, Series, Window
from bayes_at_n.pipeline.workers.resident import Order, Residents, Unfinished

_REMEDY = (
    "delete it, and its runs if the checkpoints changed; of another training run, keep it and"
    " name this one with checkpoints.NAME=FOLDER"
)


class Remaining(NamedTuple):
    """The remaining work of a run."""

    pending: int  # attempts
    ungraded: int  # attempts without a grade by the current grader
    prompts: int  # questions whose prompts, or the prompts' log-probs, are pending

    @property
    def finished(self) -> bool:
        return not (self.pending or self.ungraded or self.prompts)


Work = dict[Path, Remaining]  # by run folder


def weights(window: Window) -> str | None:
    """Return the fingerprint of a model's current or deleted weights; None without a record.

    Raises UserError: the folder of merged weights holds the mean of other checkpoints or of earlier
    versions of these, or something else.
    """
    if present(window):
        return fingerprint(window.path)
    if not (record := runfolder.read_json(_record(window))):
        return None
    if problem := merge.sources_mismatch(record, window.sources):
        raise UserError(f"{_record(window)}: {problem}; {_REMEDY}")
    return str(record["weights"])


def present(window: Window) -> bool:
    """Return whether a model can be loaded: a checkpoint, or a window that is merged already.

    Raises UserError: the folder of merged weights holds something else.
    """
    problem = merge.mismatch(window.path, window.sources) if window.size > 1 else None
    if problem and os.path.lexists(window.path):
        raise UserError(f"{window.path}: {problem}; {_REMEDY}")
    return problem is None


def remove(window: Window) -> None:
    """Record the fingerprints of the merged weights of a window, and delete the weights.

    Raises UserError: their folder holds something else. OSError: it cannot be written.
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
    """Count the remaining work of an evaluation's run on the questions of its dataset.

    No engine is loaded. Raises UserError: the folder was made with other settings, weights or
    questions; the folder of merged weights holds something else.
    """
    run, fingerprint = Run(evaluation.run.cfg), weights(evaluation.window)  # nothing is cached
    keys = {(q.id, trial) for q in questions for trial in range(run.cfg.sampling.trials)}
    if not (run.path / "questions.parquet").is_file():
        return Remaining(len(keys), 0, 0)
    identity = {
        **provenance.identity(run.cfg),
        "questions": {question.id: question.hash for question in questions},
        **({} if fingerprint is None else {"model.weights": fingerprint}),
    }
    prepared = runfolder.read_manifest(run).get("identity", {}).get("questions", {})
    runfolder.check_same(run, identity)
    attempts = keys & shards.keys(run.attempts, ATTEMPTS, shards.Damage())
    attempts -= runfolder.continuing(run).keys()
    grades = set[tuple[str, int]]()
    with contextlib.suppress(tables.Stale):
        table = outcomes.GRADES_TABLE.read(run, [], outcomes.grade_inputs(run)).table
        grades = keys.intersection(zip(*(table[name].to_pylist() for name in KEY), strict=True))
    unprepared = [question for question in questions if question.id not in prepared]
    prompts = len(unprepared) or len(runfolder.missing_prompt_logprobs(run))
    grades |= attempts if run.cfg.sampling.likelihood == "gold" else set()  # has no grades
    return Remaining(len(keys - attempts), len(attempts - grades), prompts)


def work(series: Series) -> Work:
    """Count the remaining work of every run of a series.

    Raises UserError: a dataset cannot be read; a folder holds another run.
    """
    cached = functools.cache(weights)  # several runs share a window's weights
    return {
        evaluation.run.path: remaining(evaluation, series.questions[evaluation.dataset], cached)
        for evaluation in series.evaluations
    }


def evaluate(series: Series, work: Work, keep: bool) -> None:
    """Run the unfinished runs, model by model, and merge weights just before their runs.

    Updates `work`. Deletes merged weights whose runs are complete, unless `keep`. Raises
    Unfinished: some runs failed, or one was stopped.
    """
    models = [[*runs] for _, runs in itertools.groupby(series.evaluations, attrgetter("window"))]
    failed: dict[Path, int] = {}
    with Residents() as residents:
        for number, evaluations in enumerate(models, 1):
            unfinished = [e for e in evaluations if not work[e.run.path].finished]
            if unfinished:
                name = unfinished[0].run.cfg.model.name
                note(f"evaluating {number} of {len(models)}: {name}")
                failed |= evaluate_model(residents, series, unfinished, work)
            if not keep and all(work[e.run.path].finished for e in evaluations):
                remove(evaluations[0].window)
    if failed:
        more = f" and {len(failed) - 6} more" if len(failed) > 6 else ""
        names = "; ".join(map(str, [*failed][:6])) + more
        raise Unfinished(
            f"{len(failed)} of {len(series.evaluations)} runs are not finished: {names}; the same"
            " command continues",
            [*failed.values()][-1],
        )


def evaluate_model(
    residents: Residents,
    series: Series,
    evaluations: Sequence[Evaluation],
    work: Work,
    more: Sequence[str] = (),
) -> dict[Path, int]:
    """Run evaluations of one model in the resident process, which swaps weights into its engine.

    Updates `work`. `more`: further settings of the runs. Returns the exit statuses of the runs that
    failed. Raises Unfinished: stopped.
    """
    window, failed = evaluations[0].window, dict[Path, int]()
    try:
        if not present(window):
            merge.merge(window.sources, window.path)
    except UserError as error:
        fail(f"{window.name}: {error}")
        return {evaluation.run.path: error.exit_code for evaluation in evaluations}
    for evaluation in evaluations:
        path = evaluation.run.path
        command = ["run", *evaluation.settings, *more]
        status = residents.run(Order("", command, evaluation.run.cfg))
        work[path] = remaining(evaluation, series.questions[evaluation.dataset])
        if status or not work[path].finished:
            failed[path] = status or 1
    return failed
