"""What a run lacks: settings, weights and questions must be as asked, nothing owed, all graded."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pipeline.grade import known as graders
from pipeline.prepare.questions import Question
from pipeline.research.trajectory import windows
from pipeline.research.trajectory.plan import Evaluation, Window
from pipeline.store import rowkeys, runfolder, shards
from pipeline.store.columns import ATTEMPTS, KEY
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
    attempts = keys & shards.keys(run.attempts, ATTEMPTS, shards.Damage())
    attempts -= runfolder.continuing(run).keys()
    graded = rowkeys.streamed(run, "grades", [], shards.Damage())
    grades = keys.intersection(zip(*(graded[name].to_pylist() for name in KEY), strict=True))
    if runfolder.read_json(run.grades / "_grader.json") != grader(run):
        grades.clear()
    unprepared = [q for q in questions if q.id not in made_with.get("questions", {})]
    prompts = len(unprepared) or len(runfolder.missing_prompt_logprobs(run))
    remaining = Remaining(len(keys - attempts), len(attempts - grades), prompts)
    return remaining._replace(unknown=remaining.finished and weights is None)


def grader(run: Run) -> dict[str, object]:
    """What today's grader writes down beside the grades that it makes."""
    return graders.identity(run.cfg) | graders.extraction(run.cfg)
