"""The supervisor: it keeps replicas running, on this node or on a Ray cluster.

Workers divide the pending attempts by claims, so nothing is assigned here, and a dead worker
disturbs no other. Progress is read from the sessions in the run folders, which works the same
wherever a worker runs.

This process alone handles signals. A terminal's Ctrl-C does not reach the workers, which have their
own process groups; Slurm's signals reach every process. So a worker ignores repeated signals, and
this process quits on the second and kills its workers.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import NamedTuple

from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.console import Meter, note, plural, warn
from bayes_at_n.pipeline.base.errors import Interrupted, TryAgain, UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.workers import claims, on_ray, process, stopping
from bayes_at_n.pipeline.workers.process import Record, Replica, Work
from bayes_at_n.pipeline.workers.session import in_words

MOST_FRUITLESS = 3  # starts of a replica in a row without an attempt: it is given up
STOP_S = 60.0  # for sealing finished attempts, which are in journals already
POLL_S = 0.5


class Task(NamedTuple):
    """What workers are to do, and how to tell their progress."""

    verb: str
    model: str  # what each loads, in words
    folders: Mapping[Path, int]  # folders of sessions, and how many items each has in all
    pending: Callable[[], int]  # of all folders
    is_over: Callable[[], bool]  # whether nothing is pending, or nothing more may begin
    check: Callable[[], None]  # called twice a second; an exception ends all workers
    interrupted: Callable[[int, int], Interrupted]  # makes the error, from pending and signal
    sampled: Callable[[list[Path]], object] = list  # called with complete folders beside others
    boxes: bool = False  # whether answers are expected in boxes


def supervise(task: Task, work: Work, configs: Sequence[RunConfig], logs: Path) -> None:
    """Run replicas until everything pending is done or claimed by workers of other commands.

    A replica that dies or hangs is started again, until three starts in a row made nothing; the
    others continue.

    Args:
        task: what they do.
        work: the function that each calls in its own process.
        configs: settings of the runs, with one engine: `engine.replicas` are started on this node,
            or `cluster.workers` on the Ray cluster at `cluster.address`.
        logs: prefix of their logs, to which the number of each is added.

    Raises:
        UserError: there are too few GPUs, or no Ray; or a worker's error, if all replicas are given
            up and something is pending.
        Interrupted: after a signal; finished attempts are kept.
    """
    cfg = configs[0]
    with ExitStack() as stack:
        if cfg.cluster.address is not None and not program.kind(cfg.engine.name).served:
            replicas: Sequence[Replica] = stack.enter_context(on_ray.replicas(work, configs))
            number = f"{plural(len(replicas), 'worker')} on Ray (`ray status` shows what waits)"
        else:
            replicas = process.replicas(work, configs, logs)
            number = plural(len(replicas), "replica")
        note(f"loading {task.model} with {cfg.engine.name}, {number} ...")
        supervisor = _Supervisor(task, replicas, stack.enter_context(stopping.requests()))
        left = supervisor.work()
        if signal_number := supervisor.stop.signal_number:
            raise task.interrupted(task.pending(), signal_number)
        supervisor.conclude(left)


class _Supervisor:
    def __init__(self, task: Task, replicas: Sequence[Replica], stop: stopping.StopFlag) -> None:
        self.task, self.replicas, self.stop = task, replicas, stop
        self.name, self.starts = shards.worker_id(), 0
        self.stopped_at = 0.0  # when workers were asked to stop
        self.checked_at = time.monotonic()  # when heartbeats were checked
        self.records: list[list[Record]] = [[] for _ in task.folders]  # of all workers, by folder

    def work(self) -> int:
        """Run the replicas; return how much is left pending that should not be."""
        total, left, before = sum(self.task.folders.values()), self.task.pending(), -1
        over = False
        with Meter(self.task.verb, total, total - left, keep=True) as meter:
            try:
                while left != before and not self.stopped_at:  # again if an idle worker left early
                    before = left
                    for replica in self.replicas:
                        if not replica.failed:
                            self._start(replica)
                    while self._running():
                        time.sleep(POLL_S)
                        self.task.check()
                        self._poll()
                        self._show(meter)
                    left, over = self.task.pending(), self.task.is_over()
                    meter.reach(total - left, lambda: self._detail(meter))
                    if over or self._others():
                        break
            finally:
                for replica in self.replicas:
                    replica.close()
        return 0 if over else left

    def conclude(self, left: int) -> None:
        """Warn of replicas that were given up. Raises UserError: attempts have no worker left."""
        failures = [replica.failed for replica in self.replicas if replica.failed]
        summary = f"{len(failures)} of {len(self.replicas)} replicas were given up"
        reasons = list(dict.fromkeys(failures))
        if left and (len(failures) == len(self.replicas) or not self._others()):
            permanent = all(replica.status == UserError.exit_code for replica in self.replicas)
            reason = "; ".join(reasons or ["no replica found anything to do"])
            total = sum(self.task.folders.values())
            text = f"{reason} ({summary}; {left} of {total} attempts are still pending)"
            raise (UserError if permanent else TryAgain)(text)
        for reason in reasons:
            warn(f"{summary}: {reason}")

    def _running(self) -> list[Replica]:
        return [replica for replica in self.replicas if replica.slot]

    def _others(self) -> bool:
        return any(runfolder.alive(folder) for folder in self.task.folders)

    def _start(self, replica: Replica) -> None:
        self.starts += 1
        replica.start(f"{self.name}/{self.starts}")

    def _poll(self) -> None:
        """Check which replicas have ended or are silent, and whether to stop."""
        now, running = time.monotonic(), self._running()
        ends = [(replica, end) for replica in running if (end := replica.poll()) is not None]
        self._read_records()
        if self.stop.signal_number and not self.stopped_at:
            self.stopped_at = now
            for replica in running:
                if replica.loaded:
                    replica.stop(self.stop.signal_number)
                else:
                    replica.dismiss("nothing to save yet")
        for replica, end in ends:
            self._ended(replica, *end)
        over = ends and not self.stopped_at and self.task.is_over()
        for replica in self._running():
            if self.stopped_at and now - self.stopped_at > STOP_S:
                replica.dismiss("it did not stop")
            elif over and replica.may_wait and not replica.loaded:
                replica.dismiss("nothing is left to do")
        if not self.stopped_at and now - self.checked_at >= claims.HEARTBEAT_S:
            self.checked_at = now
            self._kill_silent()

    def _read_records(self) -> None:
        """Read the sessions of the workers."""
        for i, folder in enumerate(self.task.folders):
            records = runfolder.sessions(folder).values()
            ours = f"{self.name}/"
            self.records[i] = [r for r in records if str(r.get("start")).startswith(ours)]
        for replica in self._running():
            start = replica.slot and replica.slot.start
            by_folder = ([r for r in own if r["start"] == start] for own in self.records)
            replica.records = [records[0] if records else {} for records in by_folder]

    def _ended(self, replica: Replica, status: int, error: str) -> None:
        """Start a replica again, unless that was fruitless or the user must act first."""
        replica.slot = None
        progressed = any(record.get("attempts") for record in replica.records)
        replica.fruitless = 0 if progressed else replica.fruitless + 1
        done = all(record.get("state") == "done" for record in replica.records)
        if not status or replica.dismissed or (done and status < 0):  # killed while it shut down
            return
        if self.stopped_at:
            if status == UserError.exit_code:
                warn(f"replica {replica.number}: {error}")
            return
        replica.status, ending = status, replica.ending(status, error)
        if status == UserError.exit_code or (error and not replica.loaded):
            replica.failed = error or ending
        elif replica.fruitless >= MOST_FRUITLESS:
            replica.failed = f"{ending}\n  given up: {MOST_FRUITLESS} starts without an attempt"
        else:
            warn(f"{ending}\n  starting it again")
            self._start(replica)

    def _kill_silent(self) -> None:
        """Kill workers whose heartbeat has stopped while their process lives."""
        alive, now = [runfolder.alive(folder) for folder in self.task.folders], time.monotonic()
        for replica in self._running():
            each = zip(replica.records, alive, strict=False)
            if not any(r and not r["ended"] and r["worker"] not in names for r, names in each):
                replica.silent_since = None
            elif replica.silent_since is None:
                # After a suspension of the whole machine the heartbeat is back in a moment. And a
                # worker that is done removes its heartbeat before it ends.
                replica.silent_since = now
            elif now - replica.silent_since > 2 * claims.HEARTBEAT_S:
                replica.kill("its heartbeat stopped")

    def _show(self, meter: Meter) -> None:
        """Show progress: of each folder, the smallest number left that a worker reports."""
        loaded = any("load_s" in record for record in chain.from_iterable(self.records))
        if not loaded:
            meter.started = time.monotonic()  # time spent loading says nothing about the rest
        each = zip(self.records, self.task.folders.values(), strict=True)
        left = [min((r["left"] for r in own if "left" in r), default=n) for own, n in each]
        own_of = zip(self.task.folders, self.records, strict=True)
        complete = [f for f, own in own_of if own and not any(one.get("left", 1) for one in own)]
        if len(complete) < len(self.task.folders):
            self.task.sampled(complete)
        if loaded:
            meter.reach(max(meter.done, meter.total - sum(left)), lambda: self._detail(meter))

    def _detail(self, meter: Meter) -> str:
        """Return rates and shares for the progress line."""
        records, running = chain.from_iterable(self.records), self._running()
        loading = sum(not replica.loaded for replica in running)
        parts = [in_words(records, time.monotonic() - meter.started, self.task.boxes)]
        parts += [f"{len(running) - loading} of {len(self.replicas)} replicas"] * bool(running)
        return ", ".join(filter(None, [*parts, f"{loading} loading" * bool(loading)]))
