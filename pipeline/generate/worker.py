"""One worker: a process with one loaded engine, and the runs that it serves.

The requests of all its runs share one queue, in the order of the runs: the last attempts of one
leave room in the batch, which the first of the next fill.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.base.console import Meter, note, warn
from bayes_at_n.pipeline.base.errors import TryAgain, UserError
from bayes_at_n.pipeline.generate import stopping
from bayes_at_n.pipeline.generate.job import IDLE_S, Job
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import heartbeat
from bayes_at_n.pipeline.workers.heartbeat import Watch


def work(
    runs: Sequence[Run], stop: stopping.StopFlag | None = None, replica: int | None = None
) -> None:
    """Make attempts that runs of one engine owe until none is left that nobody else is at.

    A fault of one of several runs ends its own part; what ended with an error is raised at the end.

    `stop`: set by the caller when the worker is to stop; without it signals do that. `replica`: the
    number of this worker among those of one parent, which shows the progress.

    Raises:
        UserError: the disk is full or read-only. Moved: the run folder was deleted or renamed.
        TryAgain: the engine cannot be loaded, broke, or gave attempts back unfinished.
        Interrupted: the worker was asked to stop; finished attempts are kept.
    """
    jobs: list[Job] = []
    errors: list[UserError] = []
    with contextlib.ExitStack() as stack:
        flag = stop or stack.enter_context(stopping.requests())
        watch = stack.enter_context(Watch(lambda seconds: _give_up(jobs, seconds)))
        for number, run in enumerate(runs):
            with _faults(run, errors, alone=len(runs) == 1):
                jobs.append(stack.enter_context(Job(run, number, watch, replica)))
        _Worker(jobs, watch, flag, replica is None, errors).work()
    if errors:
        raise max(errors, key=lambda error: error.exit_code)


@contextlib.contextmanager
def _faults(run: Run, errors: list[UserError], alone: bool) -> Iterator[None]:
    """Inside, what is wrong with one run of several is said, and the others go on."""
    try:
        with stopping.writable(run):
            yield
    except UserError as error:
        errors.append(error)
        if alone:
            raise
        warn(f"{run.path}: {error}")


def _give_up(jobs: Sequence[Job], seconds: float) -> None:
    """The engine hangs: nothing but the end of the process frees its GPU."""
    try:
        for job in jobs:
            job.session.end("failed", f"the engine did not answer for {seconds:.0f} s")
    finally:
        os._exit(heartbeat.HUNG)


class _Worker:
    """The engine of one process, and the runs that it serves by their numbers."""

    def __init__(
        self,
        jobs: Sequence[Job],
        watch: Watch,
        stop: stopping.StopFlag,
        shown: bool,
        errors: list[UserError],
    ) -> None:
        self.jobs = {job.number: job for job in jobs}
        self.watch, self.stop, self.shown, self.errors = watch, stop, shown, errors
        self.alone = len(jobs) == 1
        self.probed = self.began = time.monotonic()

    def work(self) -> None:
        """Load the engine if anything is owed, sample, and add the log-probs of prompts."""
        for job in self.jobs.values():
            job.session.bear(1 / len(self.jobs))
            self._do(job, job.begin)
        self.jobs = {number: job for number, job in self.jobs.items() if job.open}
        if not self.jobs:
            return
        engine = self._load()
        try:
            for job in self._each(lambda job: job.loaded(engine)):
                job.session.log("sampling")
            self._sample(engine)
            # Last: an engine may fail at them, and even die.
            self._each(lambda job: job.add_prompt_logprobs(engine, self.stop))
            self._interrupt()
            self._each(Job.check_finished)
        finally:
            # After Ctrl-C its processes may be gone already.
            with contextlib.suppress(Exception), self.watch.awaiting(heartbeat.LOAD_S):
                engine.close()

    def _load(self) -> engines.Engine:
        cfg = next(iter(self.jobs.values())).run.cfg
        rows = [row for job in self.jobs.values() for row in job.rows.values()]
        longest = max(len(row["prompt_token_ids"] or ()) + row["max_tokens"] for row in rows)
        self.room = cfg.engine.in_flight or 3 * int(cfg.engine.batch_size)
        self.batch = int(cfg.engine.batch_size)
        if self.shown:
            note(f"loading {cfg.model.name} with {cfg.engine.name} ...")
        try:
            with stopping.at_once(self.stop), self.watch.awaiting(heartbeat.LOAD_S):
                return engines.load(cfg, longest, rows)
        except stopping.StopNow:
            self._interrupt()
            raise

    def _do(self, job: Job, action: Callable[..., Any], *given: Any) -> Any:
        """Have a run do something; what goes wrong ends its part where it is one of several."""
        before = len(self.errors)
        with _faults(job.run, self.errors, self.alone):
            return action(*given)
        job.error = self.errors[before]
        with contextlib.suppress(Exception):
            job.close()
        return None
