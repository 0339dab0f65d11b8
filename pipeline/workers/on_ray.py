"""Replicas as Ray actors, on the nodes of the cluster at `cluster.address`.

Ray places the workers and reports when one is lost, alone or with its node; another then starts
wherever devices are free. A token file in the run folders belongs to each command: a node that
cannot read it has other storage, and its removal asks the workers to stop.
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
from bayes_at_n.pipeline.workers.process import Replica, Work
from bayes_at_n.pipeline.workers.session import Slot
from bayes_at_n.pipeline.workers.stopping import StopFlag

VISIBLE_S = 30.0  # NFS may show a new file late
POLL_S = 1.0


@contextmanager
def replicas(work: Work, configs: Sequence[RunConfig]) -> Iterator[list["ActorReplica"]]:
    """Connect to Ray at `cluster.address`; yield `cluster.workers` replicas, not started.

    Raises UserError: Ray is not installed, there is no cluster, or the engine's GPUs do not match.
    """
    cluster, configs = configs[0].cluster, [_for_actor(cfg) for cfg in configs]
    path = filter(None, [str(IMPORTED_FROM), os.environ.get("PYTHONPATH")])
    # Threads: Ray sets as many as CPUs.
    variables = {"PYTHONPATH": os.pathsep.join(path), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}
    folders = [cfg.run_dir for cfg in configs]
    with _connected(cluster.address or "") as ray, _token(folders) as token:
        kind = ray.remote(Actor).options(
            num_cpus=cluster.cpus, num_gpus=cluster.gpus, runtime_env={"env_vars": variables}
        )
        yield [
            ActorReplica(number=n, ray=ray, kind=kind, task=(work, configs, token, os.getcwd()))
            for n in range(cluster.workers)
        ]


@dataclass(kw_only=True)
class ActorReplica(Replica):
    """A replica in an actor on a Ray cluster."""

    ray: Any  # the module
    kind: Any  # the remote class of the actor
    task: tuple[Work, Sequence[RunConfig], str, str]
    actor: Any = None
    may_wait: ClassVar[bool] = True
    result: Any = None  # Ray's reference to the actor's status, ready when the actor ends

    def begin(self, slot: Slot) -> None:
        self.actor = self.kind.remote()
        self.result = self.actor.work.remote(*self.task, slot)

    def poll(self) -> tuple[int, str] | None:
        """Return the actor's status and error, or those of an actor that was lost."""
        if not self.killed_because and not self.ray.wait([self.result], timeout=0)[0]:
            return None
        try:
            status, error = self.ray.get(self.result, timeout=POLL_S)
        except self.ray.exceptions.RayError as died:
            status, error = TryAgain.exit_code, ""
            self.killed_because = self.killed_because or one_line(died)
        self.close()  # it may only be unreachable
        return status, error

    def stop(self, number: int) -> None:
        """Ask all workers to stop by deleting the token."""
        _, configs, token, _ = self.task
        for cfg in configs:
            Path(cfg.run_dir, token).unlink(missing_ok=True)

    def kill(self, reason: str) -> None:
        self.killed_because = reason
        self.close()

    def close(self) -> None:
        with suppress(Exception):  # the actor or Ray is gone
            self.ray.kill(self.actor)

    def ending(self, status: int, error: str) -> str:
        return f"worker {self.number}: {error or self.killed_because}"


class Actor:
    """A worker on whatever node Ray has placed it."""

    def work(
        self, work: Work, configs: Sequence[RunConfig], token: str, folder: str, slot: Slot
    ) -> tuple[int, str]:
        """Do the task; return the exit status, and the error if it is not 0."""
        with suppress(OSError):
            os.chdir(folder)  # relative paths in settings start at the command's directory
        os.environ.update({**process.caches(), **os.environ})

        def checked(configs: Sequence[RunConfig], stop: StopFlag, slot: Slot) -> None:
            paths = [Path(cfg.run_dir, token) for cfg in configs]
            for path in paths:
                _await_token(path)
            threading.Thread(target=_watch, args=(paths[0], stop), daemon=True).start()
            work(configs, stop, slot)

        return process.perform(checked, configs, StopFlag(), slot)


def _await_token(token: Path) -> None:
    deadline = time.monotonic() + VISIBLE_S
    while not token.exists():
        if time.monotonic() > deadline:
            raise UserError(
                f"{token.parents[1]}: node {shards.node()} does not see a file that the command"
                " wrote; the run folder must be on storage that all nodes share (docs/cluster.md)"
            )
        time.sleep(POLL_S)


def _watch(token: Path, stop: StopFlag) -> None:
    """Set the flag when the token is gone; opening it bypasses the client's cache."""
    while not stop.signal_number:
        time.sleep(POLL_S)
        try:
            token.open().close()
        except FileNotFoundError:
            stop.signal_number = signal.SIGTERM
        except OSError:  # a mount may fail for a moment
            continue


def _for_actor(cfg: RunConfig) -> RunConfig:
    """Return the settings of a worker that uses all GPUs of its actor, with an absolute folder."""
    gpus, size = cfg.cluster.gpus, cfg.engine.tensor_parallel_size
    if gpus and size not in (AUTO, gpus):
        key = f"{cfg.engine.key}.tensor_parallel_size"
        raise UserError(
            f"cluster.gpus={gpus}: each worker's engine uses all of its GPUs, but {key}={size};"
            " make them equal (cluster.workers=N adds workers)"
        )
    engine = replace(cfg.engine, replicas=1, tensor_parallel_size=gpus or size)
    return replace(cfg, engine=engine, run_dir=os.path.abspath(cfg.run_dir))


@contextmanager
def _token(folders: Sequence[str]) -> Iterator[str]:
    """Write the token file to every run folder; yield its path relative to a folder."""
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
    """Yield the module `ray`, connected. Raises UserError: it is not installed, or no cluster."""
    try:
        import ray
    except ImportError:
        raise UserError(f"cluster.address={address}: needs Ray; {install('ray')}") from None
    options = {"include_dashboard": False} if address == "local" else {}
    if options:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        ray.init(address, log_to_driver=False, logging_level="ERROR", **options)
    except Exception as error:  # no cluster, another version, a timeout ...
        raise TryAgain(f"cluster.address={address}: {one_line(error)}") from error
    try:
        yield ray
    finally:
        ray.shutdown()
