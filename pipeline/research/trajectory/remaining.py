"""What a run lacks: settings, weights and questions must be as asked, nothing owed, all graded."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.base.errors import UserError
from pipeline.grade import known as graders
from pipeline.prepare.questions import Question
from pipeline.research.trajectory import windows
from pipeline.research.trajectory.plan import Evaluation, Window
from pipeline.research.trajectory.windows import KnownWeights
from pipeline.store import runfolder, shards
from pipeline.store.columns import ATTEMPTS, GRADES
from pipeline.store.runfolder import Run


class Remaining(NamedTuple):
    """What a run lacks."""

    owed: int  # attempts
    ungraded: int  # attempts that are there, without a grade by today's grader
    prompts: int  # questions whose prompts, or the log-probs of these, are owed
    unknown: bool = False  # finished, of merged weights of which nothing says what they are of

    @property
    def finished(self) -> bool:
        return not (self.owed or self.ungraded or self.prompts)


def of(
    evaluation: Evaluation,
    questions: Sequence[Question],
    known: Callable[[Window], KnownWeights] = windows.known,
) -> Remaining:
    """What the run of an evaluation lacks; no engine and no tokenizer is loaded.

    Args:
        evaluation: which run.
        questions: those of its data set.
        known: what says what is known of weights.

    Raises:
        UserError: the folder was made with other settings, weights or questions; what is in the
            place of merged weights cannot be told to be theirs, and runs need them.
    """
    run = evaluation.run
    weights, doubt = known(evaluation.window)
    wanted = {(q.id, trial) for q in questions for trial in range(run.cfg.sampling.trials)}
    if not (run.path / "questions.parquet").is_file():
        if doubt is not None:
            raise UserError(doubt)
        return Remaining(len(wanted), 0, 0)
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
    attempts = wanted & shards.keys(run.attempts, ATTEMPTS, shards.Damage())
    grades = wanted & shards.keys(run.grades, GRADES, shards.Damage())
    if runfolder.read_json(run.grades / "_grader.json") != grader(run):
        grades.clear()
    unprepared = [q for q in questions if q.id not in made_with.get("questions", {})]
    prompts = len(unprepared) or len(runfolder.missing_prompt_logprobs(run))
    remaining = Remaining(len(wanted - attempts), len(attempts - grades), prompts)
    if doubt is not None and not remaining.finished:
        raise UserError(doubt)
    unknown = remaining.finished and (weights is None or doubt is not None)
    return remaining._replace(unknown=unknown)


def grader(run: Run) -> dict[str, object]:
    """What today's grader writes down beside the grades that it makes."""
    return graders.identity(run.cfg) | graders.extraction(run.cfg)
