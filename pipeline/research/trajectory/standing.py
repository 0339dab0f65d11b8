"""Whether a run is finished: settings, weights and questions as asked, nothing owed, all graded."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from pipeline.base.errors import UserError
from pipeline.grade import known as grades
from pipeline.prepare.questions import Question
from pipeline.research.trajectory import merged
from pipeline.research.trajectory.merged import Known
from pipeline.research.trajectory.plan import Evaluation, Weights
from pipeline.store import rowkeys, runfolder, shards
from pipeline.store.columns import ATTEMPTS, GRADES, KEY
from pipeline.store.runfolder import Run


class Standing(NamedTuple):
    """What a run lacks."""

    owed: int  # attempts
    ungraded: int  # attempts that are there, without a grade by today's grader
    prompts: int  # questions whose prompt log-probs are owed
    unknown: bool = False  # finished, of merged weights of which nothing says what they are of

    @property
    def finished(self) -> bool:
        return not (self.owed or self.ungraded or self.prompts)


def of(
    evaluation: Evaluation,
    questions: Sequence[Question],
    known: Callable[[Weights], Known] = merged.known,
) -> Standing:
    """Where the run of an evaluation stands; no engine and no tokenizer is loaded.

    Args:
        evaluation: which run.
        questions: those of its data set.
        known: what says what is known of weights.

    Raises:
        UserError: the folder was made with other settings, weights or questions; what is in the
            place of merged weights cannot be told to be theirs, and runs need them.
    """
    run = evaluation.run
    trials = run.cfg.sampling.trials
    weights, doubt = known(evaluation.weights)
    if not (run.path / "questions.parquet").is_file():
        if doubt is not None:
            raise UserError(doubt)
        return Standing(len(questions) * trials, 0, 0)
    identity = {
        **runfolder.identity(run.cfg),
        "questions": {question.id: question.hash for question in questions},
    }
    made_with = runfolder.read_manifest(run).get("identity", {})
    if doubt is not None and weights != made_with.get("model.weights"):
        raise UserError(doubt)
    if weights is not None:
        identity["model.weights"] = weights
    runfolder.check_same(run, identity)
    ids = pa.array([question.id for question in questions], pa.string())
    made = _there(run, "attempts", ids, trials)
    graded = _there(run, "grades", ids, trials)
    if runfolder.read_json(run.grades / "_grader.json") != _grader(run):
        graded[:] = False
    missing = [q for q in questions if q.id not in made_with.get("questions", {})]
    prompts = len(missing) or len(runfolder.missing_prompt_logprobs(run))
    found = Standing(int((~made).sum()), int((made & ~graded).sum()), prompts)
    if doubt is not None and not found.finished:
        raise UserError(doubt)
    return found._replace(unknown=found.finished and (weights is None or doubt is not None))


def _grader(run: Run) -> dict[str, object]:
    return grades.identity(run.cfg) | grades.extraction(run.cfg)


def _there(run: Run, table: str, ids: pa.Array, trials: int) -> npt.NDArray[np.bool_]:
    """Which attempts have a row in a table, (M, N)."""
    folder, columns = (run.attempts, ATTEMPTS) if table == "attempts" else (run.grades, GRADES)
    found = np.zeros((len(ids), trials), np.bool_)
    try:
        for batch in shards.batches(folder, columns, KEY, shards.Damage()):
            found[rowkeys.cells(rowkeys.encode(batch, ids), trials)[1]] = True
    except OSError as error:
        raise UserError(f"{folder}: cannot be read ({error.strerror or error})") from error
    return found
