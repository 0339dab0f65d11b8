"""cluster.address: a worker for each device group is an actor, on whatever nodes a Ray has.

Ray places the workers and says when one is gone, be it with its node; another then begins wherever
there is room and goes on with what is pending. In the run folders lies the token of a command: a
node that cannot read it has other storage, and its removal asks the workers to stop.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from bayes_at_n.pipeline.base.errors import TryAgain, UserError, install, one_line
from bayes_at_n.pipeline.base.program import IMPORTED_FROM
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.workers import process
from bayes_at_n.pipeline.workers.place import Place, Work
from bayes_at_n.pipeline.workers.session import Slot
from bayes_at_n.pipeline.workers.stopping import StopFlag

SEEN_S = 30.0  # NFS may show a new file late
LOOK_S = 1.0


@contextmanager
def places(work: Work, configs: Sequence[RunConfig]) -> Iterator[list["ActorPlace"]]:
    """Connect to the Ray at `cluster.address`; gives a place for each of `cluster.workers`.

    Raises UserError: Ray is missing, no cluster is there, or the engine takes other GPUs.
    """
    cluster, own = configs[0].cluster, [_for_actor(cfg) for cfg in configs]
    path = filter(None, [str(IMPORTED_FROM), os.environ.get("PYTHONPATH")])
    # Threads: Ray sets as many as CPUs.
    variables = {"PYTHONPATH": os.pathsep.join(path), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    with _connected(cluster.address or "") as ray, _token([cfg.run_dir for cfg in own]) as token:
        kind = ray.remote(Actor).options(
            num_cpus=cluster.cpus, num_gpus=cluster.gpus, runtime_env={"env_vars": variables}
        )
        yield [
            ActorPlace(number=n, ray=ray, kind=kind, order=(work, own, token, os.getcwd()))
            for n in range(cluster.workers)
        ]


@dataclass(kw_only=True)
class ActorPlace(Place):
    """A place on a cluster, and the actor that fills it."""

    ray: Any
    kind: Any
    order: tuple[Work, Sequence[RunConfig], str, str]
    actor: Any = None
    may_wait: ClassVar[bool] = True
    answer: Any = None  # to come from the actor, which works until then

    def begin(self, slot: Slot) -> None:
        """Have Ray place an actor."""
        self.actor = self.kind.remote()
        self.answer = self.actor.work.remote(*self.order, slot)

    def poll(self) -> tuple[int, str] | None:
        """Return what the actor answered, or that it was lost, be it with its node."""
        if not self.killed_because and not self.ray.wait([self.answer], timeout=0)[0]:
            return None
        try:
            status, error = self.ray.get(self.answer, timeout=LOOK_S)
        except self.ray.exceptions.RayError as died:
            status, error = TryAgain.exit_code, ""
            self.killed_because = self.killed_because or one_line(died)
        self.close()  # it may only be out of reach
        return status, error

    def stop(self, number: int) -> None:
        """Ask all workers to stop: they look for the token."""
        _, configs, token, _ = self.order
        for cfg in configs:
            Path(cfg.run_dir, token).unlink(missing_ok=True)

    def kill(self, why: str) -> None:
        """End the actor; its engine's processes end with it."""
        self.killed_because = why
        self.close()

    def close(self) -> None:
        """End the actor if it is there."""
        with suppress(Exception):  # it is gone, or Ray is
            self.ray.kill(self.actor)

    def ending(self, status: int, error: str) -> str:
        """Say how an actor ended that should have gone on."""
        return f"worker {self.number}: {error or self.killed_because}"


class Actor:
    """A worker on whatever node Ray has placed it."""

    def work(
        self, work: Work, configs: Sequence[RunConfig], token: str, folder: str, slot: Slot
    ) -> tuple[int, str]:
        """Follow the order; return the exit status, and why it is not 0."""
        with suppress(OSError):
            os.chdir(folder)  # relative paths in settings are the command's
        os.environ.update({**process.caches(), **os.environ})

        def checked(configs: Sequence[RunConfig], stop: StopFlag, slot: Slot) -> None:
            paths = [Path(cfg.run_dir, token) for cfg in configs]
            for path in paths:
                _find(path)
            threading.Thread(target=_watch, args=(paths[0], stop), daemon=True).start()
            work(configs, stop, slot)

        return process.perform(checked, configs, StopFlag(), slot)


def _find(token: Path) -> None:
    deadline = time.monotonic() + SEEN_S
    while not token.exists():
        if time.monotonic() > deadline:
            raise UserError(
                f"{token.parents[1]}: node {shards.node()} does not see what the command wrote"
                " there; the run folder must be on storage that all nodes see (docs/cluster.md)"
            )
        time.sleep(LOOK_S)


def _watch(token: Path, stop: StopFlag) -> None:
    """Set the flag when the token is gone; opening it asks the file server, not a cache."""
    while not stop.signal_number:
        time.sleep(LOOK_S)
        try:
            token.open().close()
        except FileNotFoundError:
            stop.signal_number = signal.SIGTERM
        except OSError:  # a mount that is away for a moment
            continue


def _for_actor(cfg: RunConfig) -> RunConfig:
    """Return the settings of a worker that has all GPUs of its actor, and finds the folder.

    Raises UserError: the engine takes another number of GPUs.
    """
    gpus, size = cfg.cluster.gpus, cfg.engine.tensor_parallel_size
    if gpus and size not in (AUTO, gpus):
        key = f"{cfg.engine.key}.tensor_parallel_size"
        raise UserError(
            f"cluster.gpus={gpus}: of one worker, whose engine takes all of them, and"
            f" {key}={size}; make them equal, cluster.workers=N adds workers"
        )
    engine = replace(cfg.engine, replicas=1, tensor_parallel_size=gpus or size)
    return replace(cfg, engine=engine, run_dir=os.path.abspath(cfg.run_dir))


@contextmanager
def _token(folders: Sequence[str]) -> Iterator[str]:
    """Write into every run folder what every node must read; gives its place in a folder."""
    token = f"logs/{shards.worker_id()}.ray"
    paths = [Path(folder, token) for folder in folders]
    try:
        for path in paths:
            path.parent.mkdir(exist_ok=True)
            path.touch()
        yield token
    finally:
        for path in paths:
            with suppress(OSError):
                path.unlink(missing_ok=True)


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
