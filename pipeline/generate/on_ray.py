"""cluster.address: one worker a device group, each an actor, on whatever nodes a Ray cluster has.

Ray places the workers and says when one is gone, be it with its node; another then begins wherever
there is room and goes on with what is owed. What was made, and how far a worker is, stands in the
run folders. There also lies the token of a command: a node that cannot read it has other storage,
and its removal asks the workers to stop.
"""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.console import Meter, counted, note, warn
from bayes_at_n.pipeline.base.errors import (
    DamagedData,
    Interrupted,
    TryAgain,
    UserError,
    install,
    one_line,
)
from bayes_at_n.pipeline.base.program import IMPORTED_FROM
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.generate.record import COUNTS, rate_and_shares
from bayes_at_n.pipeline.generate.supervise import MOST_IN_VAIN, STOP_S, is_over, owed_by
from bayes_at_n.pipeline.store import sessions, shards
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import home, process, stopping

SEEN_S = 30.0  # NFS may show a new file late
PLACED_S = 60.0  # then a person is told what each worker asks for
LOOK_S = 1.0

Said = dict[tuple[int, str], Mapping[str, Any]]  # sessions, by number of the run and worker
Sample = Callable[[Sequence[Run], stopping.StopFlag, int], None]  # the last: a worker's number


class Worker:
    """The actor."""

    def work(
        self, sample: Sample, configs: Sequence[RunConfig], number: int, token: str, folder: str
    ) -> tuple[int, str]:
        """Sample on this node what runs owe; return the exit status, and why it is not 0."""
        with suppress(OSError):
            os.chdir(folder)  # relative paths in settings are the command's
        os.environ.update({**process.caches(), **os.environ})
        stop = stopping.StopFlag()
        try:
            for cfg in configs:
                _find(Path(cfg.run_dir), token)
            args = (Path(configs[0].run_dir) / token, stop)
            threading.Thread(target=_watch, args=args, daemon=True).start()
            sample([*map(Run, configs)], stop, number)
        except (UserError, Interrupted, DamagedData) as error:
            return error.exit_code, str(error)
        return 0, ""


def _find(run: Path, token: str) -> None:
    deadline = time.monotonic() + SEEN_S
    while not (run / token).exists():
        if time.monotonic() > deadline:
            raise UserError(
                f"{run}: node {shards.node()} does not see what the command wrote there; the run"
                " folder must be on storage that all nodes see (docs/cluster.md)"
            )
        time.sleep(LOOK_S)


def _watch(token: Path, stop: stopping.StopFlag) -> None:
    """Set the flag when the token is gone; opening it asks the file server, not a cache."""
    while not stop.signal_number:
        time.sleep(LOOK_S)
        try:
            token.open().close()
        except FileNotFoundError:
            stop.signal_number = signal.SIGTERM
        except OSError:  # a mount that is away for a moment
            continue


@dataclass
class Place:
    """Room for one worker, and what is known of the actor that fills it."""

    number: int
    actor: Any = None
    answer: Any = None  # to come from the actor, which works until then
    known: set[tuple[int, str]] = field(default_factory=set)  # sessions from before this actor
    records: list[Mapping[str, Any]] = field(default_factory=list)  # its own
    in_vain: int = 0
    failed: UserError | None = None  # why nobody works here any more

    @property
    def loaded(self) -> bool:
        """Whether the actor got as far as a loaded engine."""
        return self.answer is not None and any("load_s" in record for record in self.records)


class Supervisor:
    """The workers of some runs of one engine on a Ray that is connected."""

    def __init__(self, ray: Any, runs: Sequence[Run], sample: Sample, token: str) -> None:
        self.ray, self.runs, self.sample, self.token = ray, runs, sample, token
        self.cluster = runs[0].cfg.cluster
        self.configs = [_for_actor(run.cfg) for run in runs]
        path = filter(None, [str(IMPORTED_FROM), os.environ.get("PYTHONPATH")])
        # Threads: Ray sets as many as CPUs.
        variables = {"PYTHONPATH": os.pathsep.join(path), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
        self.kind = ray.remote(Worker).options(
            num_cpus=self.cluster.cpus,
            num_gpus=self.cluster.gpus,
            runtime_env={"env_vars": variables},
        )
        self.before = {*self._said()}
        self.places = [Place(number) for number in range(self.cluster.workers)]

    def generate(self, stop: stopping.StopFlag, meter: Meter, check: home.Check) -> None:
        """Let a worker work in every place, until all have ended."""
        for place in self.places:
            self._start(place)
        began, told, asked = time.monotonic(), False, 0.0
        while waiting := [place.answer for place in self.places if place.answer is not None]:
            done, _ = self.ray.wait(waiting, timeout=LOOK_S)
            check()
            said = self._said()
            self._show(said, meter)
            for place in self.places:
                if place.answer in done:
                    self._ended(place, bool(asked))
            if done and all(map(is_over, self.runs)):
                self.kill(lambda place: not place.loaded)  # too late to be of use
            if stop.signal_number and not asked:
                asked = time.monotonic()
                for run in self.runs:
                    (run.path / self.token).unlink(missing_ok=True)
                self.kill(lambda place: not place.loaded)  # nothing to save yet
            elif asked and time.monotonic() - asked > STOP_S:
                self.kill()
            told = told or said.keys() > self.before
            if not told and (told := time.monotonic() - began > PLACED_S):
                each = f"each asks for {self.cluster.gpus} GPUs and {self.cluster.cpus} CPUs"
                note(f"Ray has placed no worker yet; {each} (`ray status` says what there is)")

    def kill(self, which: Callable[[Place], bool] = lambda place: True) -> None:
        """End workers at once; their engines end with them."""
        for place in self.places:
            if place.answer is not None and which(place):
                with suppress(Exception):  # it is gone, or Ray is
                    self.ray.kill(place.actor)
                place.actor = place.answer = None

    def _said(self) -> Said:
        each = ((i, sessions.sessions(run.path)) for i, run in enumerate(self.runs))
        return {(i, name): one for i, said in each for name, one in said.items() if one}

    def _start(self, place: Place) -> None:
        place.known, place.records = {*self._said()}, []
        place.actor = self.kind.remote()
        order = (self.sample, self.configs, place.number, self.token, os.getcwd())
        place.answer = place.actor.work.remote(*order)

    def _ended(self, place: Place, asked: bool) -> None:
        """Start another where a worker has died, unless that has been in vain before."""
        try:
            code, error = self.ray.get(place.answer)
        except self.ray.exceptions.RayError as died:
            code, error = TryAgain.exit_code, one_line(died)
        self.kill(lambda one: one is place)  # it may only be out of reach
        if asked or not code:
            return
        made = any(record["attempts"] for record in place.records)
        place.in_vain = 0 if made else place.in_vain + 1
        error = f"worker {place.number}: {error}"
        if code == UserError.exit_code or place.in_vain >= MOST_IN_VAIN:
            place.failed = (UserError if code == UserError.exit_code else TryAgain)(error)
            warn(f"{error}\n  given up")
        else:
            warn(f"{error}\n  starting another")
            self._start(place)

    def _show(self, said: Said, meter: Meter) -> None:
        """Take in what workers say; of every run that one knows most which names the least."""
        for place in self.places:
            own = (said[name] for name in said.keys() - place.known)
            place.records = [one for one in own if one.get("replica") == place.number]
        loaded = sum(place.loaded for place in self.places)
        if not loaded:
            meter.started = time.monotonic()  # loading tells nothing about the time left
            return
        new = {name: record for name, record in said.items() if name not in self.before}
        left = {i: len(run.keys) for i, run in enumerate(self.runs)}
        for (i, _), record in new.items():
            left[i] = min(left[i], record.get("left", left[i]))

        def detail() -> str:
            attempts, tokens, *counts = (sum(one[n] for one in new.values()) for n in COUNTS)
            rate = tokens / max(time.monotonic() - meter.started, 1e-9)
            made = rate_and_shares(rate, attempts, *counts) + ", " if attempts else ""
            return f"{made}{loaded} of {len(self.places)} workers"

        meter.reach(max(meter.done, meter.total - sum(left.values())), detail)


def supervise(runs: Sequence[Run], sample: Sample) -> None:
    """Generate with `cluster.workers` actors of the Ray cluster at `cluster.address`.

    An actor that dies is replaced, until three in a row have made nothing; the others go on.
    `runs`: of one engine; `sample`: what each does with them. Raises UserError: Ray is not there,
    or what the workers raise when all are given up. Interrupted: after a signal; finished attempts
    are kept.
    """
    first, cluster = runs[0], runs[0].cfg.cluster
    total = sum(len(run.keys) for run in runs)
    with (
        stopping.writable(first),
        home.staying(first.path, "attempts were sampled") as check,
        _connected(cluster.address or "") as ray,
        _token(runs) as token,
        stopping.requests() as stop,  # in place of Ray's own handlers
    ):
        supervisor = Supervisor(ray, runs, sample, token)
        of = f"{counted(cluster.workers, 'worker')} of Ray, {counted(len(runs), 'run')}"
        note(f"loading {first.cfg.model.name} with {first.cfg.engine.name}, {of} ...")
        with Meter("generate", total, total - owed_by(runs), keep=True) as meter:
            try:
                supervisor.generate(stop, meter, check)
            finally:
                supervisor.kill()
            meter.reach(total - owed_by(runs))
    if stop.signal_number:
        raise stopping.interrupted(runs, owed_by(runs), stop.signal_number)
    failed = [place.failed for place in supervisor.places if place.failed]
    if len(failed) == len(supervisor.places):
        raise failed[0]


def _for_actor(cfg: RunConfig) -> RunConfig:
    """The settings of a worker that has all GPUs of its actor, and finds the folder anywhere.

    Raises UserError: the engine takes another number of GPUs.
    """
    gpus, size = cfg.cluster.gpus, cfg.engine.tensor_parallel_size
    if gpus and size not in (AUTO, gpus):
        raise UserError(
            f"cluster.gpus={gpus}: of one worker, whose engine takes all of them, and"
            f" engine.tensor_parallel_size={size}; make them equal, cluster.workers=N adds workers"
        )
    engine = replace(cfg.engine, replicas=1, tensor_parallel_size=gpus or size)
    return replace(cfg, engine=engine, run_dir=os.path.abspath(cfg.run_dir))


@contextmanager
def _token(runs: Sequence[Run]) -> Iterator[str]:
    """Write into every run folder what every node must read; gives its place in a folder."""
    token = f"logs/{shards.worker_id()}.ray"
    try:
        for run in runs:
            (run.path / "logs").mkdir(exist_ok=True)
            (run.path / token).touch()
        yield token
    finally:
        for run in runs:
            with suppress(OSError):
                (run.path / token).unlink(missing_ok=True)


@contextmanager
def _connected(address: str) -> Iterator[Any]:
    """Gives the module `ray`, connected. Raises UserError: it is missing, or no cluster there."""
    try:
        import ray
    except ImportError:
        raise UserError(f"cluster.address={address}: needs Ray; {install('ray')}") from None
    own = {"include_dashboard": False} if address == "local" else {}
    if own:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", **own)
    except Exception as error:  # of many kinds: no cluster, another version, a time limit
        raise TryAgain(f"cluster.address={address}: {one_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
