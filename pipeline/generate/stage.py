"""generate: sample every pending attempt, with one worker or several.

A worker is one process with one loaded engine, and the runs that it serves. Requests of all its
runs share one queue, in the order of the runs: as the last attempts of one run leave the batch, the
first of the next fill it.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.console import Meter, mode, note, note_alone, prints_json, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.base.program import kind
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.engines import likelihood
from bayes_at_n.pipeline.generate import allowance
from bayes_at_n.pipeline.generate.allowance import Allowance
from bayes_at_n.pipeline.generate.attempts import LEAVING, leave
from bayes_at_n.pipeline.generate.job import IDLE_S, Job
from bayes_at_n.pipeline.prepare import models, sizing
from bayes_at_n.pipeline.store import provenance, runfolder, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import stopping
from bayes_at_n.pipeline.workers.claims import any_free
from bayes_at_n.pipeline.workers.session import Slot, in_words
from bayes_at_n.pipeline.workers.stopping import StopFlag, Watch, interrupted, writable
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
    left, others = len(allowance.pending(run)), len(runfolder.alive(run.path))
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
    on_ray = _on_ray(pending[0].cfg)
    pending = pending if on_ray else _fitted(pending)
    if on_ray or sampled or len(pending) > 1 or pending[0].cfg.engine.replicas > 1:
        _supervised(pending, sampled)
    else:
        work(pending)


def _on_ray(cfg: RunConfig) -> bool:
    return cfg.cluster.address is not None and not kind(cfg.engine.name).served


def sample(configs: Sequence[RunConfig], stop: StopFlag, slot: Slot) -> None:
    """Sample in this process, as one of several workers, until all is done or `stop` is set.

    On Ray the engine is sized here, for a node that the command has not seen.
    """
    runs = [*map(Run, configs)]
    work(_fitted(runs) if _on_ray(configs[0]) else runs, stop, slot)


def _supervised(runs: Sequence[Run], sampled: Callable[[list[Path]], object] | None) -> None:
    first, budgets = runs[0], [Allowance(run) for run in runs if run.cfg.budget.given]

    def pending() -> int:
        return sum(len(allowance.pending(run)) for run in runs)

    def is_over() -> bool:
        return all(not allowance.pending(run) or Allowance(run).message() for run in runs)

    with writable(first.path), stopping.unmoved(first.path, "attempts were sampled") as check:

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
        supervise(task, sample, [run.cfg for run in runs], logs)
        for run in runs:
            if (run.path / runfolder.CLAIMS).exists():
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
    runfolder.check_same(run, provenance.identity(run.cfg) | {"model.weights": weights})
    if any(row["max_tokens"] > run.cfg.sampling.max_tokens for row in run.questions):
        raise UserError(
            f"{run.path}: a change of sampling.max_tokens was interrupted; `run` (or `prepare`)"
            " with the intended value completes it"
        )
    if cut := runfolder.continuing(run):
        note(f"generate: {sizing.continued_in_words(run.cfg, cut.values())}")
    if run.cfg.trust_parts:
        runfolder.accept_suspects(run)
    if message := runfolder.suspects(run):
        warn(f"generate: {message}")
    damage = shards.Damage()
    if (
        not runfolder.pending(run, damage)
        and not damage.lines
        and not runfolder.missing_prompt_logprobs(run)
        and not runfolder.unproven(run)
    ):
        note_alone(
            f"generate: nothing pending, all {len(run.keys)} attempts are done"
            " (sampling.trials=N adds more)"
        )
        if (run.path / runfolder.CLAIMS).exists() or any(run.path.glob(f"{LEAVING}*")):
            leave(run)  # a killed worker may not have cleaned up
        return False
    return not Allowance(run).message()


def work(
    runs: Sequence[Run], stop: stopping.StopFlag | None = None, slot: Slot | None = None
) -> None:
    """Sample pending attempts of runs of one engine until every one is done or claimed by others.

    An error of one of several runs ends that run only; the worst is raised at the end.

    Args:
        runs: the runs, in the order of their requests.
        stop: a flag that the caller sets to stop the worker; by default signals do.
        slot: this worker's slot under a supervisor, which then shows the progress.

    Raises:
        UserError: the disk is full or read-only. Moved: the run folder was deleted or renamed.
        TryAgain: the engine cannot be loaded, broke, or returned attempts unfinished.
        Interrupted: the worker was asked to stop; finished attempts are kept.
    """
    jobs, errors = list[Job](), list[UserError]()
    with contextlib.ExitStack() as stack:
        flag = stop or stack.enter_context(stopping.requests())
        watch = stack.enter_context(Watch(lambda seconds: _give_up(jobs, seconds)))
        for number, run in enumerate(runs):
            try:
                with stopping.writable(run.path):
                    jobs.append(stack.enter_context(Job(run, number, len(runs), watch, slot)))
            except UserError as error:
                if len(runs) == 1:
                    raise
                warn(f"{run.path}: {error}")
                errors.append(error)
        _Worker(jobs, watch, flag, slot is None).work()
    errors += [job.error for job in jobs if job.error is not None]
    if errors:
        raise max(errors, key=lambda error: error.exit_code)


def _give_up(jobs: Sequence[Job], seconds: float) -> None:
    """End the process: nothing else frees the GPU of an engine that hangs."""
    try:
        for job in jobs:
            job.session.end("failed", f"the engine did not answer for {seconds:.0f} s")
    finally:
        os._exit(stopping.HUNG)


class _Worker:
    """Drives one engine and the jobs that it serves."""

    def __init__(
        self, jobs: Sequence[Job], watch: Watch, stop: stopping.StopFlag, show_progress: bool
    ) -> None:
        self.jobs, self.job_of_run = jobs, {job.number: job for job in jobs}
        self.watch, self.stop, self.show_progress = watch, stop, show_progress
        self.probed_at = self.began = time.monotonic()

    def work(self) -> None:
        """Load the engine if anything is pending, sample, and add the log-probs of prompts."""
        self._each(Job.begin)
        if not any(job.open for job in self.jobs):
            return
        engine = self._load()
        try:
            self._each(lambda job: job.loaded(engine))
            self._sample(engine)
            # Last, because an engine may fail at this, or even die.
            self._each(lambda job: job.add_prompt_logprobs(engine, self.stop))
            self._interrupt()
            self._each(Job.check_finished)
        finally:
            # After Ctrl-C its processes may be gone already.
            with contextlib.suppress(Exception), self.watch.awaiting(stopping.LOAD_S):
                engines.leave(engine)

    def _load(self) -> engines.Engine:
        cfg = self.jobs[0].run.cfg
        rows = [row for job in self.jobs if job.open for row in job.rows.values()]
        longest = max(len(row["prompt_token_ids"] or ()) + row["max_tokens"] for row in rows)
        self.batch = int(cfg.engine.batch_size)
        self.capacity = cfg.engine.in_flight or 3 * self.batch
        if self.show_progress and not engines.loaded(cfg, longest):
            note(f"loading {cfg.model.name} with {cfg.engine.name} ...")
        try:
            with stopping.at_once(self.stop), self.watch.awaiting(stopping.LOAD_S):
                return engines.load(cfg, longest, rows)
        except stopping.StopNow:
            self._interrupt()
            raise

    def _do(self, job: Job, action: Callable[..., Any], *args: Any) -> Any:
        """Call an action of a job; where there are several jobs, an error ends that job only."""
        try:
            with stopping.writable(job.run.path):
                return action(*args)
        except UserError as error:
            if len(self.jobs) == 1:
                raise
            warn(f"{job.run.path}: {error}")
            job.error = error
            with contextlib.suppress(Exception):
                job.close()

    def _each(self, action: Callable[[Job], Any]) -> None:
        for job in self.jobs:
            if job.error is None:
                self._do(job, action, job)

    def _sample(self, engine: engines.Engine) -> None:
        total = sum(job.planned for job in self.jobs)
        self.began, proven = time.monotonic(), True
        meter = Meter("generate", total, total - self._left(), keep=True)
        with meter if self.show_progress else contextlib.nullcontext():
            try:
                with stopping.engine_errors(self.jobs[0].run.cfg.engine.name, self._excused):
                    self._drive(engine, meter)
                proven = self._prove(engine)
            finally:
                self._each(Job.close)
                self._share()
                self._show(meter)
        self._interrupt()
        if not proven and (job := self.jobs[0]).session.record["attempts"]:
            raise TryAgain(
                f"{job.run.path}: the server did not answer at the end, so its model may have"
                " changed; the same command checks it again, trust_parts=true keeps the attempts"
            )

    def _drive(self, engine: engines.Engine, meter: Meter) -> None:
        for completion in self._completions(engine):
            if completion is not None:
                job = self.job_of_run[completion.request.run]
                self._do(job, job.ended, completion)
                continue
            self._share()
            for job in self.jobs:
                if job.open or job.in_flight:
                    self._do(job, job.tick)
            if self.stop.signal_number or all(job.dropped for job in self.jobs):
                return
            if engine.probe_due(time.monotonic() - self.probed_at):
                self._prove(engine)
            self._show(meter)

    def _prove(self, engine: engines.Engine) -> bool:
        """Return whether the server still has the runs' model."""
        self.probed_at = time.monotonic()
        return all([job.prove(engine, stopping.PROBE_S) for job in self.jobs if job.error is None])

    def _completions(self, engine: engines.Engine) -> Iterator[engines.Completion | None]:
        """Yield completions of the engine; the watch runs only while the engine has control."""
        scored = [job for job in self.jobs if job.run.cfg.sampling.likelihood]
        sampled = [job for job in self.jobs if job not in scored]
        for completions in (
            engine.generate(self._requests(sampled)),
            likelihood.score(engine, self._requests(scored)),
        ):
            try:
                while True:
                    with self.watch.awaiting():
                        try:
                            completion = next(completions)
                        except StopIteration:
                            break
                    yield completion
            finally:
                with self.watch.awaiting():
                    completions.close()  # the engine may have to abort requests

    def _requests(self, jobs: Sequence[Job]) -> Iterator[engines.Request | None]:
        """Yield requests while any run is open; None where there is nothing to begin right now."""
        while any(job.open for job in jobs):
            with self.watch.awaiting(math.inf):
                request = self._next(jobs)
            yield request

    def _next(self, jobs: Sequence[Job]) -> engines.Request | None:
        """Return a request of the first run that has one; close runs with nothing left.

        Once what is unclaimed fits two batches, the runs with the longest attempts come first.
        """
        in_flight = sum(len(job.in_flight) for job in self.jobs)
        if sum(len(job.claims.free) for job in jobs if job.open) <= 2 * self.batch:
            jobs = sorted(jobs, key=Job.mean_length, reverse=True)
        for job in jobs:
            free = self.capacity - in_flight + len(job.in_flight)
            if job.open and (request := self._do(job, job.next, free, self.batch)) is not None:
                return request  # type: ignore[no-any-return]
        for job in jobs:
            if job.open and self._do(job, job.nothing_left):
                self._do(job, job.close)
        if not in_flight and any(job.open for job in jobs):
            time.sleep(IDLE_S)
        return None

    def _share(self) -> None:
        """Divide the worker's time from now on among the runs by their attempts in flight."""
        in_flight = sum(len(job.in_flight) for job in self.jobs)
        idle = [job for job in self.jobs if job.open] or self.jobs
        for job in self.jobs:
            share = len(job.in_flight) / in_flight if in_flight else (job in idle) / len(idle)
            job.session.take_share(share)

    def _left(self) -> int:
        return sum(job.left for job in self.jobs)

    def _interrupt(self) -> None:
        """Raise Interrupted if the worker has to stop."""
        if self.stop.signal_number:
            runs = [job.run for job in self.jobs]
            raise stopping.interrupted(runs, self._left(), self.stop.signal_number)

    def _show(self, meter: Meter) -> None:
        if self.show_progress:
            meter.reach(meter.total - self._left(), self._detail)

    def _detail(self) -> str:
        """Return rates and shares for the progress line."""
        records = [job.session.record for job in self.jobs]
        boxes = any(job.run.cfg.boxed for job in self.jobs)
        return in_words(records, time.monotonic() - self.began, boxes) or "no attempt finished yet"

    def _excused(self, error: Exception) -> bool:
        """Return whether the worker is stopping: Ctrl-C may end the engine's processes first."""
        for job in self.jobs:
            if job.writer is not None and job.writer.error is not None:
                raise job.writer.error from error
        return bool(self.stop.signal_number)
