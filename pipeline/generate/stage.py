"""generate: sample every attempt that is owed, with one worker or several."""

from bayes_at_n.pipeline.base.console import answering, mention, note, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.generate.budget import Allowance
from bayes_at_n.pipeline.generate.tidy import LEAVING, leave
from bayes_at_n.pipeline.generate.worker import work
from bayes_at_n.pipeline.prepare import prefetch, raising, served, sizes
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run


def generate(run: Run) -> bool:
    """Sample what the run owes: every (question_id, trial) without a readable attempt.

    Any number of processes may do so in one run folder, on any number of machines that share it.
    Returns whether nothing is owed any more, or nothing that `budget` allows; if not, other live
    workers are making the rest.

    Raises:
        UserError: when the folder was made with other settings, or the disk is full.
        TryAgain: when the engine cannot be loaded or broke, or attempts are owed that nobody makes.
        Interrupted: after SIGINT, SIGTERM or SIGUSR1; finished attempts are kept.
    """
    done = _generate(run)
    if answering():
        answer({"run": run.path, "attempts": len(run.keys), "owed": len(runfolder.owed(run))})
    return done


def _generate(run: Run) -> bool:
    weights = served.weights(run.cfg, served.kept(run))
    runfolder.check_same(run, runfolder.identity(run.cfg) | {"model.weights": weights})
    if any(row["max_tokens"] > run.cfg.sampling.max_tokens for row in run.questions):
        raise UserError(
            f"{run.path}: a change of sampling.max_tokens was interrupted; `run` (or `prepare`)"
            " with the one that is meant completes it"
        )
    if cut := runfolder.continuing(run):
        note(f"generate: {raising.told(run.cfg, cut.values())}")
    if run.cfg.trust_parts:
        sessions.trust(run)
    if said := sessions.suspects(run):
        warn(f"generate: {said}")
    damage = parquet.Damage()
    if (
        not runfolder.owed(run, damage)
        and not damage.lines
        and not runfolder.missing_prompt_logprobs(run)
        and not sessions.unproven(run)
    ):
        mention(
            f"generate: nothing owed, all {len(run.keys)} attempts are there"
            " (sampling.trials=N adds more)"
        )
        if (run.path / sessions.CLAIMS).exists() or any(run.path.glob(f"{LEAVING}*")):
            leave(run)  # the last worker may have been killed
        return True
    if _spent(run):
        return True
    if not kind(run.cfg.engine.name).served:
        prefetch.weights(run.cfg.model)  # here and once: no worker waits for a download

    def made() -> list[int]:
        tokens = rowkeys.streamed(run, "attempts", ["completion_tokens"])["completion_tokens"]
        return list(tokens.drop_null().to_pylist())

    run = Run(sizes.settled(run.cfg, run.questions, made))
    if run.cfg.engine.replicas > 1:
        from bayes_at_n.pipeline.generate.supervise import supervise

        supervise(run)
    else:
        work(run)
    left = len(runfolder.owed(run))
    others = len(sessions.alive(run.path))
    if left and _spent(run):
        return True
    if left and not others:
        raise TryAgain(f"{run.path}: {left} attempts are owed still; the same command makes them")
    if left:
        note(f"generate: {left} attempts are being made by {others} other workers")
    return not left


def _spent(run: Run) -> bool:
    """Whether the budget allows no more, and what that means."""
    told = Allowance(run).told()
    if told:
        leave(run, spent=True)
        note(f"generate: {told}")
    return bool(told)
