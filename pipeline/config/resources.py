"""What a run may use: engines, a budget, a cluster; resources never change what a run *is*."""

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from bayes_at_n.pipeline.base.engines import KINDS, kind
from bayes_at_n.pipeline.config.checks import (
    AUTO,
    MISSING,
    Above0,
    Amount,
    Auto,
    Natural,
    Positive,
    Share,
    must,
    one_of,
)

# Of a request, what other settings say.
_SAID = {"model", "prompt", "messages", "token_ids", "input_ids", "sampling_params", "n", "stream"}
_SAID |= {"temperature", "top_p", "top_k", "seed", "max_tokens", "logprobs", "prompt_logprobs"}
Lacks = Annotated[str, one_of("logprobs", "prompt_logprobs")]
_HERE = [name for name, of in KINDS.items() if not of.in_process]


def _is_address(url: str) -> bool:
    parts = urlsplit(url)
    server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    return bool(server) and not {"@", "?", "#"} & set(url)


Address = Annotated[
    str, must("a server address such as http://HOST:8000/v1 (keys: engine.key_env)", _is_address)
]
Url = Annotated[
    list[Address],
    must("a single address; put a router before several servers", lambda v: len(v) < 2),
]


@dataclass
class EngineConfig:
    """The program that samples, and its resources."""

    key = "engine"  # where these settings stand, for messages
    lighter = "sampling.max_tokens or engine.batch_size"  # settings: lower, they take less memory
    name: Annotated[str, one_of(*KINDS)] = MISSING
    batch_size: Auto = 256  # sequences at once; auto: what a GPU's cache has room for, up to 1,024
    in_flight: Positive | None = None  # requests with the engine; of vLLM three batches by default
    replicas: Auto = AUTO  # processes that share the run, each with GPUs of its own; auto: all
    tensor_parallel_size: Auto = 1  # GPUs of one replica; auto: as few as the model fits
    gpu_memory_utilization: Share = 0.9
    batch_invariant: bool = False  # vLLM's kernels for it; GPUs only, and slower
    device: str | None = None  # transformers only: cpu, cuda, cuda:1, mps
    price_in: Amount | None = None  # of a million tokens of prompts, in whatever money
    price_out: Amount | None = None  # of completions
    args: dict[str, Any] = field(default_factory=dict)  # of a server: fields of every request
    url: Url = field(default_factory=list)  # engine=openai: its address, which ends in /v1
    served_name: str | None = None  # of the model; default: the only one, or model.id
    key_env: str = "OPENAI_API_KEY"  # in the environment: the key
    # completions and generate: token ids; chat: chat turns; auto: token ids where it takes them
    api: Annotated[str, one_of("auto", "completions", "chat", "generate")] = "auto"
    allow_missing: list[Lacks] = field(default_factory=list)  # of what a run asks for
    patience_s: Amount = 300.0  # a failing request is sent again for so long
    timeout_s: Above0 = 3600.0  # of one request

    def problems(self) -> Iterator[str]:
        of = kind(self.name)
        remote = of.served and not of.in_process
        if remote != bool(self.url):
            yield f"url: {self.key}=openai, and no other, needs one: {self.key}.url=http://HOST/v1"
        if of.in_process and self.args:
            yield f"args: a function takes prompts alone; {self.key}.name={self.name} has none"
        if of.served and (said := sorted(_SAID & set(self.args))):
            yield f"args.{said[0]}: is not for engine.args; sampling.* and others say it"
        if of.served and self.replicas not in (1, AUTO):
            yield f"replicas={self.replicas}: one process asks {self.name} as much as it can take"
        for key, can, free in (
            ("tensor_parallel_size", "tensor_parallel", (1, AUTO)),
            ("device", "takes_device", (None,)),
            ("batch_invariant", "batch_invariant", (False,)),
        ):
            if (value := getattr(self, key)) not in free and not getattr(of, can):
                able = " or ".join(name for name, known in KINDS.items() if getattr(known, can))
                yield f"{key}={str(value).lower()}: needs {self.key}={able}, not {self.name}"


class VerifierEngine(EngineConfig):
    """The verifier's engine in the place of the engine; `verifier_engine` makes it."""

    key = "verifier.engine"
    lighter = "verifier.context or verifier.batch_size"


@dataclass
class VerifierEngineConfig:
    """The program that the verifier runs in; see `verifier_engine` for what is left null."""

    name: Annotated[str, one_of(*_HERE)] | None = None
    url: Url = field(default_factory=list)
    served_name: str | None = None
    key_env: str | None = None
    replicas: Auto = AUTO  # processes that judge at once, each with GPUs of its own; auto: all
    tensor_parallel_size: Positive = 1  # GPUs of one replica
    gpu_memory_utilization: Share | None = None
    device: str | None = None
    args: dict[str, Any] = field(default_factory=dict)


def _parsed(moment: str) -> datetime:
    return datetime.fromisoformat(moment).astimezone()  # in this machine's zone without another


Moment = Annotated[str, must("a time such as 2026-12-01T08:00", _parsed)]


@dataclass
class BudgetConfig:
    """Limits of generating, of a run folder over all its workers and sessions; none by default."""

    tokens: Amount | None = None  # sampled ones, of completions
    gpu_hours: Amount | None = None  # loading too; a worker without a GPU counts as one
    money: Amount | None = None  # at engine.price_in and engine.price_out
    until: Moment | None = None

    @property
    def given(self) -> dict[str, float | str]:
        """The limits that are set, by their keys."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def moment(self) -> float | None:
        """`until` in Unix seconds."""
        return None if self.until is None else _parsed(self.until).timestamp()

    @property
    def past(self) -> bool:
        """Whether `until` is over."""
        return self.moment is not None and self.moment <= time.time()


_TIME = re.compile(r"(?:(\d+)-)?(\d{1,2}):([0-5]\d):([0-5]\d)")
_MEMORY = re.compile(r"(\d+)([KMGT]?)")
_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}  # in MiB, as Slurm reads them


def seconds(time: str) -> int | None:
    """Return a time limit of Slurm in seconds; None when it is none.

    >>> seconds("24:00:00"), seconds("2-12:30:00"), seconds("24:00"), seconds("90")
    (86400, 217800, None, None)
    """
    parts = _TIME.fullmatch(time)
    units = zip(parts.groups("0"), (86400, 3600, 60, 1), strict=True) if parts else ()
    return sum(int(number) * unit for number, unit in units) if parts else None


def share(memory: str, parts: int) -> str:
    """Return a part of a task's memory, for a job with fewer GPUs.

    >>> share("1000G", 8), share("0", 8)
    ('128000M', '0')
    """
    number, unit = _MEMORY.findall(memory)[0]
    return f"{int(int(number) * _UNITS[unit] / parts)}M" if int(number) else memory


_WORD, _OPTION = re.compile(r"[^\s'\"]+"), re.compile("-[^\n]*")
Word = Annotated[str, must("one word, or null for the site's own", _WORD.fullmatch)]
Time = Annotated[str, must('"HH:MM:SS" or "D-HH:MM:SS", in quotes in YAML, or null', seconds)]
Memory = Annotated[str, must("a number and K, M, G or T, such as 64G", _MEMORY.fullmatch)]
Option = Annotated[str, must("an option of sbatch such as --x=y", _OPTION.fullmatch)]


@dataclass
class CpuJobs:
    """What jobs that need no GPU ask for: grade, score, report."""

    partition: Word | None = None  # default: the site's own
    time: Time | None = "08:00:00"
    cpus: Positive = 8
    memory: Memory | None = "32G"
    options: list[Option] = field(default_factory=list)


@dataclass
class ClusterConfig(CpuJobs):
    """What jobs of `submit` ask for, one task each; keys that are not here are of `cpu_jobs`.

    Of Ray count `address`, `gpus` and `cpus` of a worker, and `workers`.
    """

    time: Time | None = "24:00:00"  # null: the partition's
    memory: Memory | None = "64G"  # "0": all of the node
    name: str = "default"
    address: Word | None = None  # of a Ray cluster; null: Slurm
    account: Word | None = None
    qos: Word | None = None  # of jobs with GPUs
    gpus: Natural = 1  # 0: engines on the CPU
    workers: Positive = 1  # array tasks a run is shared by; of Ray actors
    max_running: Positive | None = None  # array tasks at once, over all runs
    warn_s: Positive = 300  # a task is told so long before its time is up
    setup: str = ""  # shell lines before the program: module loads, environments, LAUNCH=
    cpu_jobs: CpuJobs = field(default_factory=CpuJobs)

    def problems(self) -> Iterator[str]:
        if self.time and self.warn_s >= (limit := seconds(self.time) or 0):
            yield f"warn_s={self.warn_s}: must be below the time of a task, which is {limit} s"
