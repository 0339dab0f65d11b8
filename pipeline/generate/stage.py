"""generate: sample every pending attempt, with one worker or several."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bayes_at_n.pipeline.base.console import mode, note, note_alone, prints_json, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.generate import race
from bayes_at_n.pipeline.generate.budget import Allowance
from bayes_at_n.pipeline.generate.tidy import LEAVING, leave
from bayes_at_n.pipeline.generate.worker import work
from bayes_at_n.pipeline.prepare import models, questions_table, sizing
from bayes_at_n.pipeline.store import parquet, runfolder, sessions, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import guard
from bayes_at_n.pipeline.workers.claims import any_free
from bayes_at_n.pipeline.workers.process import Work
from bayes_at_n.pipeline.workers.session import Slot
from bayes_at_n.pipeline.workers.stopping import StopFlag, interrupted, writable
from bayes_at_n.pipeline.workers.supervise import Task, supervise


def generate(run: Run) -> bool:
    """Sample every (question_id, trial) of the run that has no readable attempt.

    Any number of processes may call this on one run folder, on all machines that share it. Returns
    whether nothing is pending, or nothing that `budget` allows; False means that other live workers
    are sampling the rest.

    Raises:
        UserError: the folder was made with other settings, or the disk is full.
        TryAgain: the engine cannot be loaded or broke, or no worker samples what is pending.
        Interrupted: after SIGINT, SIGTERM or SIGUSR1; finished attempts are kept.
    """
    if not mode("several") or any_free(run):  # in that mode `together` has just sampled the runs
        together([run])
    left, others = len(race.pending(run)), len(sessions.alive(run.path))
    if spent := Allowance(run).message() if left else "":
        leave(run, spent=True)
        note(f"generate: {spent}")
    elif left and not others:
        raise TryAgain(f"{run.path}: {left} attempts are still pending; run the same command again")
    elif left:
        note(f"generate: {others} other workers are sampling the last {left} attempts")
    if prints_json():
        print_json({"run": run.path, "attempts": len(run.keys), "pending": left})
    return not left or bool(spent)


def together(runs: Sequence[Run], sampled: Callable[[list[Path]], object] | None = None) -> None:
    """Sample the pending attempts of runs of one model and engine with the same workers.

    `sampled`: called twice a second with the folders of runs that are complete before others.
    Raises: see `generate`.
    """
    pending = []
    for run in runs:
        try:
            pending += [run] if _is_pending(run) else []
        except UserError:  # the other runs go ahead; this run's own command reports the error
            if len(runs) == 1:
                raise
    if not pending:
        return
    cfg = pending[0].cfg
    if cfg.cluster.address is not None and not kind(cfg.engine.name).served:
        _supervised(pending, sample_anywhere, sampled)
        return
    pending = _fitted(pending)
    if sampled or len(pending) > 1 or pending[0].cfg.engine.replicas > 1:
        _supervised(pending, sample, sampled)
    else:
        work(pending)


def sample(configs: Sequence[RunConfig], stop: StopFlag, slot: Slot) -> None:
    """Sample in this process, as one of several workers, until all is done or `stop` is set."""
    work([*map(Run, configs)], stop, slot)


def sample_anywhere(configs: Sequence[RunConfig], stop: StopFlag, slot: Slot) -> None:
    """Call `sample` after sizing the engine for this node, which the command has not seen."""
    work(_fitted([*map(Run, configs)]), stop, slot)


def _supervised(
    runs: Sequence[Run], work: Work, sampled: Callable[[list[Path]], object] | None
) -> None:
    first, budgets = runs[0], [Allowance(run) for run in runs if run.cfg.budget.given]

    def pending() -> int:
        return sum(len(race.pending(run)) for run in runs)

    def is_over() -> bool:
        return all(not race.pending(run) or Allowance(run).message() for run in runs)

    with writable(first.path), guard.unmoved(first.path, "attempts were sampled") as check:

        def check_all() -> None:
            check()
            for budget in budgets:
                budget.may_begin(0)  # notes when one is reached

        task = Task(
            verb="generate",
            model=first.cfg.model.name,
            folders={run.path: len(run.keys) for run in runs},
            pending=pending,
            is_over=is_over,
            check=check_all,
            interrupted=partial(interrupted, runs),
            sampled=sampled or list,
            boxes=any(run.cfg.boxed for run in runs),
        )
        logs = first.path / "logs" / shards.worker_id()
        supervise(task, work, [run.cfg for run in runs], logs)
        for run in runs:
            if (run.path / sessions.CLAIMS).exists():
                leave(run)  # a killed worker has not cleaned up


def _fitted(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with their engine sized for this machine and their longest attempts."""
    first = runs[0].cfg
    if not kind(first.engine.name).served:
        models.download(first.model)  # once, before workers start, so that none waits for it
    engine = sizing.resolved(first, [row for run in runs for row in run.questions]).engine
    return [Run(replace(run.cfg, engine=engine)) for run in runs]


def _is_pending(run: Run) -> bool:
    """Check a run's state; return whether there is anything to sample."""
    weights = models.weights(run.cfg, models.recorded_facts(run))
    runfolder.check_same(run, runfolder.identity(run.cfg) | {"model.weights": weights})
    if any(row["max_tokens"] > run.cfg.sampling.max_tokens for row in run.questions):
        raise UserError(
            f"{run.path}: a change of sampling.max_tokens was interrupted; `run` (or `prepare`)"
            " with the intended value completes it"
        )
    if cut := runfolder.continuing(run):
        note(f"generate: {questions_table.continued_in_words(run.cfg, cut.values())}")
    if run.cfg.trust_parts:
        sessions.trust(run)
    if message := sessions.suspects(run):
        warn(f"generate: {message}")
    damage = parquet.Damage()
    if (
        not runfolder.pending(run, damage)
        and not damage.lines
        and not runfolder.missing_prompt_logprobs(run)
        and not sessions.unproven(run)
    ):
        note_alone(
            f"generate: nothing pending, all {len(run.keys)} attempts are done"
            " (sampling.trials=N adds more)"
        )
        if (run.path / sessions.CLAIMS).exists() or any(run.path.glob(f"{LEAVING}*")):
            leave(run)  # a killed worker may not have cleaned up
        return False
    return not Allowance(run).message()
