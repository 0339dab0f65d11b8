"""generate: sample every attempt that is pending, with one worker or several."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from bayes_at_n.pipeline.base.console import mode, note, note_alone, prints_json, warn
from bayes_at_n.pipeline.base.engines import kind
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.generate import race
from bayes_at_n.pipeline.generate.budget import Allowance
from bayes_at_n.pipeline.generate.tidy import LEAVING, leave
from bayes_at_n.pipeline.generate.worker import work
from bayes_at_n.pipeline.prepare import endpoint, models, raised_cap, sizing
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder, sessions, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import home
from bayes_at_n.pipeline.workers.claims import any_free
from bayes_at_n.pipeline.workers.place import Work
from bayes_at_n.pipeline.workers.session import Slot
from bayes_at_n.pipeline.workers.stopping import StopFlag, interrupted, writable
from bayes_at_n.pipeline.workers.supervise import Task, supervise


def generate(run: Run) -> bool:
    """Sample what the run owes: every (question_id, trial) without a readable attempt.

    Any number of processes may do so in one run folder, on any number of machines that share it.
    Returns whether nothing is pending any more, or nothing that `budget` allows; if not, other live
    workers are making the rest.

    Raises:
        UserError: when the folder was made with other settings, or the disk is full.
        TryAgain: when the engine cannot be loaded or broke, or pending attempts are nobody's.
        Interrupted: after SIGINT, SIGTERM or SIGUSR1; finished attempts are kept.
    """
    if not mode("several") or any_free(run):  # several were sampled together just now
        together([run])
    left, others = len(race.pending(run)), len(sessions.alive(run.path))
    if spent := Allowance(run).message() if left else "":
        leave(run, spent=True)
        note(f"generate: {spent}")
    elif left and not others:
        raise TryAgain(
            f"{run.path}: {left} attempts are pending still; the same command makes them"
        )
    elif left:
        note(f"generate: {left} attempts are being made by {others} other workers")
    if prints_json():
        print_json({"run": run.path, "attempts": len(run.keys), "pending": left})
    return not left or bool(spent)


def together(runs: Sequence[Run]) -> None:
    """Sample what is pending of runs of one model and engine, by the same workers.

    Raises: as `generate`.
    """
    pending = []
    for run in runs:
        try:
            pending += [run] if _is_pending(run) else []
        except UserError:  # of several, the others need not wait for it; its own command says why
            if len(runs) == 1:
                raise
    if not pending:
        return
    cfg = pending[0].cfg
    if cfg.cluster.address is not None and not kind(cfg.engine.name).served:
        _supervised(pending, sample_anywhere)
        return
    pending = _fitted(pending)
    if len(pending) > 1 or pending[0].cfg.engine.replicas > 1:
        _supervised(pending, sample)
    else:
        work(pending)


def sample(configs: Sequence[RunConfig], stop: StopFlag, slot: Slot) -> None:
    """Sample in this process, as one of several workers, until nothing is left or `stop` is set."""
    work([*map(Run, configs)], stop, slot)


def sample_anywhere(configs: Sequence[RunConfig], stop: StopFlag, slot: Slot) -> None:
    """Sample as `sample`, on a node on which nothing is known of the engine yet."""
    work(_fitted([*map(Run, configs)]), stop, slot)


def _supervised(runs: Sequence[Run], what: Work) -> None:
    first, budgets = runs[0], [Allowance(run) for run in runs if run.cfg.budget.given]

    def pending() -> int:
        return sum(len(race.pending(run)) for run in runs)

    def is_over() -> bool:
        return all(not race.pending(run) or Allowance(run).message() for run in runs)

    with writable(first.path), home.staying(first.path, "attempts were sampled") as check:

        def look() -> None:
            check()
            for budget in budgets:
                budget.may_begin(0)  # says when one is reached

        task = Task(
            verb="generate",
            model=first.cfg.model.name,
            folders={run.path: len(run.keys) for run in runs},
            pending=pending,
            is_over=is_over,
            look=look,
            interrupted=partial(interrupted, runs),
        )
        logs = first.path / "logs" / shards.worker_id()
        supervise(task, what, [run.cfg for run in runs], logs)
        for run in runs:
            if (run.path / sessions.CLAIMS).exists():
                leave(run)  # the last worker was killed


def _fitted(runs: Sequence[Run]) -> list[Run]:
    """Return the runs with an engine that fits this machine and the longest of their attempts."""
    first = runs[0].cfg
    if not kind(first.engine.name).served:
        models.download(first.model)  # here and once: no worker waits for a download

    def made() -> list[int]:
        tables = (rowkeys.streamed(run, "attempts", ["completion_tokens"]) for run in runs)
        return [n for table in tables for n in table["completion_tokens"].to_pylist() if n]

    questions = [row for run in runs for row in run.questions]
    engine = sizing.resolved(first, questions, made).engine
    return [Run(replace(run.cfg, engine=engine)) for run in runs]


def _is_pending(run: Run) -> bool:
    """Check a run; return whether there is anything to sample."""
    weights = endpoint.weights(run.cfg, endpoint.recorded(run))
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
        not runfolder.pending(run, damage)
        and not damage.lines
        and not runfolder.missing_prompt_logprobs(run)
        and not sessions.unproven(run)
    ):
        note_alone(
            f"generate: nothing pending, all {len(run.keys)} attempts are there"
            " (sampling.trials=N adds more)"
        )
        if (run.path / sessions.CLAIMS).exists() or any(run.path.glob(f"{LEAVING}*")):
            leave(run)  # the last worker may have been killed
        return False
    return not Allowance(run).message()
