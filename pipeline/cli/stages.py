"""`run`: the stages of a run in their order, each doing only what its own tables lack."""

from pathlib import Path

from bayes_at_n.pipeline.base.console import asked, collected, inside, note, results
from bayes_at_n.pipeline.base.errors import DamagedData, UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import VERBS
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import stage as prepare
from bayes_at_n.pipeline.score import shown, stopped
from bayes_at_n.pipeline.score import stage as score
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run


def run_stages(run: Run) -> None:
    """Every stage of `stages`, in order; once more where damaged data was set aside."""
    prior = run.cfg.prior.run
    if prior is not None and not Path(prior).expanduser().is_dir():  # not after hours of sampling
        raise UserError(f"prior={prior}: no such folder; name the folder of an earlier run")
    if "score" in run.cfg.stages and _has_more(run):
        return
    try:
        with collected():
            done = _stages(run)
    except DamagedData as error:
        note(f"{error} - doing so now")
        done = _stages(run)
    if not done or "score" not in run.cfg.stages or asked("several"):
        return
    attempts = len(run.questions) * run.cfg.sampling.trials
    if runfolder.read_json(run.path / "scores.json").get("attempts") == attempts:
        total = f"{len(run.questions)} questions × {run.cfg.sampling.trials} trials"
        note(f"complete, nothing owed: {total} (sampling.trials=N adds more)")
    note(f"all scores: {PROGRAM} score {run.path}; of rubrics: the same, and rubrics")


def _stages(run: Run) -> bool:
    """Do the stages of a run; whether none was left to other processes.

    A verifier that cannot be had ends the command, but after what does without it.
    """
    told, failure, judge = "", None, run.cfg.dataset.judge
    for stage in run.cfg.stages:
        early = stage == "verify" and {"grade", "score"} <= {*run.cfg.stages} and not judge
        if early and run.cfg.verifier.id is not None:
            with inside():  # a verifier may take hours, and this process with it
                _refresh(Run(run.cfg))
            told = _tell(run)
        try:
            with inside():
                act = _refresh if stage == "score" else VERBS[stage].function
                done = act(Run(run.cfg))
        except UserError as error:
            # Of what follows its failure, rubrics asked for by name may fail for want of it.
            if judge or stage == "score" or not (failure or stage == "verify"):
                raise
            failure = failure or error
            continue
        if done is False:  # what comes after must wait for them
            note(f"the last of them does what follows {stage}; or give the same command later")
            return False
    if "score" in run.cfg.stages:
        _tell(run, told)
        answer(runfolder.read_json(run.path / "scores.json"))
    if failure is not None:
        again = "the same command asks it again, verifier=none leaves it out"
        raise type(failure)(f"verify: {failure}. Scored without it; {again}") from failure
    return True


def _refresh(run: Run) -> None:
    """Score a run, unless its scores are what that would give."""
    if asked("verbose") or not score.is_current(run):
        score.score(run)


def _has_more(run: Run) -> bool:
    """Whether more trials are there and scored than are asked for: then nothing is touched."""
    scores, trials = runfolder.read_json(run.path / "scores.json"), run.cfg.sampling.trials
    there, questions = scores.get("trials", 0), scores.get("questions", 0)
    if scores.get("attempts", 0) <= questions * trials or stopped.of(run):
        return False
    if "prepare" in run.cfg.stages and prepare.questions_there(run) > questions:
        return False  # imported runs have no data set
    runfolder.check_same(run, runfolder.identity(run.cfg))
    if runfolder.owed(run):
        return False
    _tell(run)
    answer(scores)
    note(f"{there} trials are there, and stay; {trials} were asked for")
    note(f"the first {trials}: {PROGRAM} score {run.path} sampling.trials={trials}")
    return True


def _tell(run: Run, told: str = "") -> str:
    """Print the score of a run in a line, if that is not what was told."""
    line = shown.line(runfolder.read_json(run.path / "scores.json"))
    if line != told:
        results.print(line)
    return line
