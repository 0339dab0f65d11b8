"""generate: sample every attempt that is owed, with one worker or several."""

from collections.abc import Sequence
from dataclasses import replace

from bayes_at_n.pipeline.base.console import answering, asked, mention, note, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.generate.budget import Allowance
from bayes_at_n.pipeline.generate.tidy import LEAVING, leave
from bayes_at_n.pipeline.generate.worker import work
from bayes_at_n.pipeline.prepare import endpoint, models, raised_cap, sizing
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.claims import any_free
from bayes_at_n.pipeline.workers.stopping import StopFlag


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
    if not asked("several") or any_free(run):  # several were sampled together just now
        together([run])
    left, others = len(runfolder.owed(run)), len(sessions.alive(run.path))
    if spent := Allowance(run).told() if left else "":
        leave(run, spent=True)
        note(f"generate: {spent}")
    elif left and not others:
        raise TryAgain(f"{run.path}: {left} attempts are owed still; the same command makes them")
    elif left:
        note(f"generate: {left} attempts are being made by {others} other workers")
    if answering():
        answer({"run": run.path, "attempts": len(run.keys), "owed": left})
    return not left or bool(spent)


def together(runs: Sequence[Run]) -> None:
    """Sample what runs of one model and engine owe, by the same workers. Raises: as `generate`."""
    owing = []
    for run in runs:
        try:
            owing += [run] if _owes(run) else []
        except UserError:  # of several, the others need not wait for it; its own command says why
            if len(runs) == 1:
                raise
    if not owing:
        return
    first = owing[0].cfg
    if first.cluster.address is not None and not kind(first.engine.name).served:
        from bayes_at_n.pipeline.generate import on_ray

        on_ray.supervise(owing, sample_here)
        return
    owing = _fitted(owing)
    if len(owing) > 1 or owing[0].cfg.engine.replicas > 1:
        from bayes_at_n.pipeline.generate.supervise import supervise

        supervise(owing)
    else:
        work(owing)


def sample_here(runs: Sequence[Run], stop: StopFlag, replica: int) -> None:
    """Sample in this process, as one of several workers, until nothing is owed or `stop` is set."""
    work(_fitted(runs), stop, replica)


def _fitted(runs: Sequence[Run]) -> list[Run]:
    """The runs with one engine that fits this machine, where their model is by then."""
    if not kind(runs[0].cfg.engine.name).served:
        models.download(runs[0].cfg.model)  # here and once: no worker waits for a download
    settled = [_settled(run) for run in runs]
    # Of several the one with the longest attempts decides what fits.
    engine = min((run.cfg.engine for run in settled), key=lambda engine: engine.batch_size)
    return [Run(replace(run.cfg, engine=engine)) for run in settled]


def _owes(run: Run) -> bool:
    """Check a run; return whether there is anything to sample."""
    weights = endpoint.weights(run.cfg, endpoint.kept(run))
    runfolder.check_same(run, runfolder.identity(run.cfg) | {"model.weights": weights})
    if any(row["max_tokens"] > run.cfg.sampling.max_tokens for row in run.questions):
        raise UserError(
            f"{run.path}: a change of sampling.max_tokens was interrupted; `run` (or `prepare`)"
            " with the one that is meant completes it"
        )
    if cut := runfolder.continuing(run):
        note(f"generate: {raised_cap.described(run.cfg, cut.values())}")
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
        return False
    return not Allowance(run).told()


def _settled(run: Run) -> Run:
    """The run with a number wherever its engine has "auto"; its model is on this machine."""

    def made() -> list[int]:
        tokens = rowkeys.streamed(run, "attempts", ["completion_tokens"])["completion_tokens"]
        return list(tokens.drop_null().to_pylist())

    return Run(sizing.resolved(run.cfg, run.questions, made))
