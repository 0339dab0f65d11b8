"""The supervisor: it keeps a worker at work in every place, on this node or on a cluster of Ray.

Workers share what is pending by claims, so nothing is divided here, and one that dies disturbs
nobody. How far each is stands in its session, in the folders that it works in: a file is read the
same way wherever its writer is.

Signals are this process's business. A terminal's Ctrl-C does not reach the workers, which are in
process groups of their own; Slurm's signals reach everyone. So a worker takes any number of
requests to stop for one, and only this process quits at the second, and then kills.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bayes_at_n.pipeline.base import engines
from bayes_at_n.pipeline.base.console import Meter, note, plural, warn
from bayes_at_n.pipeline.base.errors import Interrupted, TryAgain, UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import sessions, shards
from bayes_at_n.pipeline.workers import heartbeat, on_ray, process, stopping
from bayes_at_n.pipeline.workers.place import Place, Record, Work
from bayes_at_n.pipeline.workers.session import COUNTS, in_words

MOST_IN_VAIN = 3  # workers in a row, in one place, that made nothing: it is given up
STOP_S = 60.0  # for writing what is finished; journals hold it already
PLACED_S = 60.0  # then a person is told what each worker waits for
LOOK_S = 0.5


class Task(NamedTuple):
    """What workers are to do, and how far it is."""

    verb: str
    model: str  # what each loads, in words
    folders: Mapping[Path, int]  # where sessions are, and how much there is to make of each
    pending: Callable[[], int]  # of all folders
    is_over: Callable[[], bool]  # nothing is pending, or nothing that may be begun
    look: Callable[[], None]  # called twice a second; what it raises ends all workers
    interrupted: Callable[[int, int], Interrupted]  # of what is pending, and of a signal


def supervise(task: Task, work: Work, configs: Sequence[RunConfig], logs: Path) -> None:
    """Let workers work until nothing is pending that nobody else is at.

    One that dies or hangs is replaced, until three in a row have made nothing; the others go on.

    Args:
        task: what they do.
        work: the function that each calls in a process of its own.
        configs: of the runs, with the same engine: its `replicas` on this node are started, or
            `cluster.workers` of the Ray at `cluster.address`.
        logs: where what they print goes, the number of each behind.

    Raises:
        UserError: there are too few GPUs, no Ray; or what workers raise, when all are given up and
            something is pending.
        Interrupted: after a signal; what is finished is kept.
    """
    cfg = configs[0]
    with ExitStack() as stack:
        if cfg.cluster.address is not None and not engines.kind(cfg.engine.name).served:
            places: Sequence[Place] = stack.enter_context(on_ray.places(work, configs))
            each = f"each asks for {cfg.cluster.gpus} GPUs and {cfg.cluster.cpus} CPUs"
            hint = f"Ray has placed no worker yet; {each} (`ray status` says what there is)"
            crew = f"{plural(len(places), 'worker')} of Ray"
        else:
            places, hint = process.places(work, configs, logs), ""
            crew = plural(len(places), "replica")
        note(f"loading {task.model} with {cfg.engine.name}, {crew} ...")
        supervisor = _Supervisor(task, places, stack.enter_context(stopping.requests()), hint)
        left = supervisor.work()
        if number := supervisor.stop.signal_number:
            raise task.interrupted(task.pending(), number)
        supervisor.conclude(left)


class _Supervisor:
    def __init__(
        self, task: Task, places: Sequence[Place], stop: stopping.StopFlag, hint: str
    ) -> None:
        self.task, self.places, self.stop, self.hint = task, places, stop, hint
        self.name, self.starts = shards.worker_id(), 0
        self.stopped_at = 0.0  # since when workers are asked to stop
        self.looked = self.began = time.monotonic()  # for heartbeats
        self.records: list[list[Record]] = [[] for _ in task.folders]  # of all workers, by folder

    def work(self) -> int:
        """Let workers work; return how much is pending that should not be."""
        total, left, before = sum(self.task.folders.values()), self.task.pending(), -1
        over = False
        with Meter(self.task.verb, total, total - left, keep=True) as meter:
            try:
                while left != before and not self.stopped_at:  # once more if a healthy one had left
                    before = left
                    for place in self.places:
                        if not place.failed:
                            self._start(place)
                    while any(place.slot for place in self.places):
                        time.sleep(LOOK_S)
                        self.task.look()
                        self._round()
                        self._show(meter)
                    left, over = self.task.pending(), self.task.is_over()
                    meter.reach(total - left, lambda: self._detail(meter))
                    if over or self._others():
                        break
            finally:
                for place in self.places:
                    place.close()
        return 0 if over else left

    def conclude(self, left: int) -> None:
        """Say what was not in order. Raises UserError: something is left that nobody makes."""
        failures = [place.failed for place in self.places if place.failed]
        of = f"{len(failures)} of {len(self.places)} replicas were given up"
        reasons = list(dict.fromkeys(failures))
        if left and (len(failures) == len(self.places) or not self._others()):
            mended = all(place.status == UserError.exit_code for place in self.places)
            reason = "; ".join(reasons or ["no replica found anything to do"])
            total = sum(self.task.folders.values())
            text = f"{reason} ({of}; {left} of {total} attempts are still pending)"
            raise (UserError if mended else TryAgain)(text)
        for reason in reasons:
            warn(f"{of}: {reason}")

    def _others(self) -> bool:
        return any(sessions.alive(folder) for folder in self.task.folders)

    def _start(self, place: Place) -> None:
        self.starts += 1
        place.start(f"{self.name}/{self.starts}")

    def _round(self) -> None:
        """See who has ended, who is silent, and whether all are to stop."""
        now = time.monotonic()
        ended = {place.number: place.poll() for place in self.places if place.slot}
        self._read()
        if self.stop.signal_number and not self.stopped_at:
            self.stopped_at = now
            for place in filter(lambda place: place.slot, self.places):
                if place.loaded:
                    place.stop(self.stop.signal_number)
                else:
                    place.dismiss("nothing to save yet")
        for place in self.places:
            if (end := ended.get(place.number)) is not None:
                self._ended(place, *end)
        if self.stopped_at:
            for place in self.places:
                if place.slot and now - self.stopped_at > STOP_S:
                    place.dismiss("it did not stop")
            return
        if any(ended.values()) and self.task.is_over():
            for place in self.places:
                if place.slot and place.may_wait and not place.loaded:
                    place.dismiss("nothing is left to do")
        self._retry_failed_loads()
        if now - self.looked >= heartbeat.HEARTBEAT_S:
            self.looked = now
            self._kill_silent()
        if self.hint and now - self.began > PLACED_S:
            if not any(self.records):
                note(self.hint)
            self.hint = ""

    def _read(self) -> None:
        """Take in what the workers say of themselves."""
        for i, folder in enumerate(self.task.folders):
            every = sessions.sessions(folder).values()
            own = (one for one in every if str(one.get("start")).startswith(f"{self.name}/"))
            self.records[i] = [*own]
        for place in self.places:
            if place.slot:
                start = place.slot.start
                of_each = ([r for r in own if r["start"] == start] for own in self.records)
                place.records = [records[0] if records else {} for records in of_each]

    def _ended(self, place: Place, status: int, error: str) -> None:
        """Start another worker, unless that has been in vain or the user must do something."""
        place.slot = None
        made = any(record.get("attempts") for record in place.records)
        place.in_vain = 0 if made else place.in_vain + 1
        done = all(record.get("state") == "done" for record in place.records)
        if not status or place.dismissed or (done and status < 0):  # killed as it was taken down
            return
        if self.stopped_at:
            if status == UserError.exit_code:
                warn(f"replica {place.number}: {error}")
            return
        place.status, ending = status, place.ending(status, error)
        if status == UserError.exit_code or (error and not place.loaded):
            place.failed = error or ending
        elif place.in_vain >= MOST_IN_VAIN:
            place.failed = f"{ending}\n  given up after {MOST_IN_VAIN} times without an attempt"
        else:
            warn(f"{ending}\n  starting it again")
            self._start(place)

    def _retry_failed_loads(self) -> None:
        """Try again what failed while loading where others could load.

        That is no error of the user's: memory of a GPU that is not free yet, two processes that met
        in a cache.
        """
        if any(place.slot and place.loaded for place in self.places):
            for place in self.places:
                if place.failed and not place.loaded and 0 < place.in_vain < MOST_IN_VAIN:
                    warn(f"replica {place.number}: {place.failed}\n  others could load: once more")
                    self._start(place)

    def _kill_silent(self) -> None:
        """Kill workers that live and do nothing: their heartbeat has stopped."""
        alive, now = [sessions.alive(folder) for folder in self.task.folders], time.monotonic()
        for place in filter(lambda place: place.slot, self.places):
            each = zip(place.records, alive, strict=False)
            if not any(r and not r["ended"] and r["worker"] not in names for r, names in each):
                place.silent_since = None
            elif place.silent_since is None:
                # A whole machine may have slept: then the heartbeat is back in a moment. And a
                # worker that has done its work takes its heartbeat away before it ends.
                place.silent_since = now
            elif now - place.silent_since > 2 * heartbeat.HEARTBEAT_S:
                place.kill("its heartbeat stopped")

    def _show(self, meter: Meter) -> None:
        """Show of every folder what the worker says that knows of the least that is left."""
        loaded = any("load_s" in record for own in self.records for record in own)
        if not loaded:
            meter.started = time.monotonic()  # loading tells nothing about the time left
        each = zip(self.records, self.task.folders.values(), strict=True)
        left = [min((r["left"] for r in own if "left" in r), default=n) for own, n in each]
        if loaded:
            meter.reach(max(meter.done, meter.total - sum(left)), lambda: self._detail(meter))

    def _detail(self, meter: Meter) -> str:
        """Describe rates and shares for the progress line."""
        counts = Counter[str]()
        for record in (record for own in self.records for record in own):
            counts.update({name: record[name] for name in COUNTS})
        running = [place for place in self.places if place.slot]
        loading = sum(not place.loaded for place in running)
        parts = [in_words(counts, time.monotonic() - meter.started)]
        parts += [f"{len(running) - loading} of {len(self.places)} replicas"] * bool(running)
        return ", ".join(filter(None, [*parts, f"{loading} loading" * bool(loading)]))
