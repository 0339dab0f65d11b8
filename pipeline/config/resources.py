"""Resources of a run (engine, budget, cluster), which never change what the run *is*."""

import re
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlsplit

from bayes_at_n.pipeline.base.program import KINDS, kind, offered
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

# Fields of a request that other settings set.
_SET = {"model", "prompt", "messages", "token_ids", "input_ids", "sampling_params", "n", "stream"}
_SET |= {"temperature", "top_p", "top_k", "seed", "max_tokens", "logprobs", "prompt_logprobs"}
_ENGINES = [name for name, engine in KINDS.items() if not engine.in_process]


def _is_address(url: str) -> bool:
    parts = urlsplit(url)
    server = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    return bool(server) and not {"@", "?", "#"} & set(url)


Address = Annotated[
    str, must("a server address such as http://HOST:8000/v1 (keys: engine.key_env)", _is_address)
]
Url = Annotated[
    list[Address],
    must("a single address; put a router in front of several servers", lambda v: len(v) < 2),
]


@dataclass
class EngineConfig:
    """The program that samples, and its resources."""

    key = "engine"  # the group of these settings, for messages
    lighter = "sampling.max_tokens or engine.batch_size"  # lower values take less memory
    name: Annotated[str, one_of(*KINDS, more=offered)] = MISSING  # the engine
    batch_size: Auto = 256  # sequences at once; auto: as many as fit the GPU's cache, up to 1,024
    in_flight: Positive | None = None  # requests at once; default: batch_size, in vLLM 3 times that
    replicas: Auto = AUTO  # processes, each with its own GPUs; auto: one per available GPU group
    tensor_parallel_size: Auto = 1  # GPUs per replica; auto: as few as the model fits in
    gpu_memory_utilization: Share = 0.9  # share of GPU memory that vLLM may use
    device: str | None = None  # for transformers: cpu, cuda, cuda:1, mps
    price_in: Amount | None = None  # price per million prompt tokens, in any currency
    price_out: Amount | None = None  # price per million completion tokens
    args: dict[str, Any] = field(default_factory=dict)  # engine arguments, or fields of requests
    url: Url = field(default_factory=list)  # for openai: the server's address, ending in /v1
    served_name: str | None = None  # its name on the server; default: the only one, or model.id
    key_env: str = "OPENAI_API_KEY"  # environment variable with the server's key
    # completions: prompts as token ids; chat: as chat turns; auto: token ids if possible
    api: Annotated[str, one_of("auto", "completions", "chat")] = "auto"
    patience_s: Amount = 300.0  # seconds to retry a failing request
    timeout_s: Above0 = 3600.0  # seconds per request

    def problems(self) -> Iterator[str]:
        engine = kind(self.name)
        remote = engine.served and not engine.in_process
        if remote and not self.url:
            yield f"url: {self.key}=openai needs {self.key}.url=http://HOST/v1"
        if self.url and not remote:
            yield f"url: only {self.key}=openai has one, not {self.name}; leave it out"
        if engine.in_process and self.args:
            yield f"args: a function gets prompts only; {self.key}.name={self.name} has none"
        if engine.served and (names := sorted(_SET & set(self.args))):
            yield f"args.{names[0]}: not allowed in engine.args; other settings set it"
        if engine.served and self.replicas not in (1, AUTO):
            yield f"replicas={self.replicas}: for {self.name} use engine.in_flight instead"
        for key, feature, neutral in (
            ("tensor_parallel_size", "tensor_parallel", (1, AUTO)),
            ("device", "takes_device", (None,)),
        ):
            if (value := getattr(self, key)) not in neutral and not getattr(engine, feature):
                able = " or ".join(name for name, one in KINDS.items() if getattr(one, feature))
                yield f"{key}={str(value).lower()}: needs {self.key}={able}, not {self.name}"


class VerifierEngine(EngineConfig):
    """The verifier's settings in the form of an engine's; see `verifier_engine`."""

    key = "verifier.engine"
    lighter = "verifier.context or verifier.batch_size"


@dataclass
class VerifierEngineConfig:
    """The program that runs the verifier; `verifier_engine` replaces nulls."""

    # the engine; default: the run's
    name: Annotated[str, one_of(*_ENGINES, more=offered)] | None = None
    url: Url = field(default_factory=list)  # for openai: the server's address, ending in /v1
    served_name: str | None = None  # its name on the server; default: the only one, or its id
    key_env: str | None = None  # environment variable with the server's key; default: engine's
    replicas: Auto = AUTO  # processes, each with its own GPUs; auto: one per available GPU group
    tensor_parallel_size: Positive = 1  # GPUs per replica
    gpu_memory_utilization: Share | None = None  # share of GPU memory; default: engine's
    device: str | None = None  # for transformers: cpu, cuda, cuda:1, mps
    price_in: Amount | None = None  # price per million prompt tokens, in any currency
    price_out: Amount | None = None  # price per million completion tokens
    args: dict[str, Any] = field(default_factory=dict)  # engine arguments, or fields of requests


def _parsed(moment: str) -> datetime:
    return datetime.fromisoformat(moment).astimezone()  # by default in this machine's time zone


Moment = Annotated[str, must("a time such as 2026-12-01T08:00", _parsed)]


@dataclass
class BudgetConfig:
    """Limits of generating, per run folder over all workers and sessions; none by default."""

    tokens: Amount | None = None  # limit on sampled tokens
    gpu_hours: Amount | None = None  # limit on GPU hours, with loading; CPU worker: one GPU
    money: Amount | None = None  # limit on cost at engine.price_in and engine.price_out
    until: Moment | None = None  # stop sampling at this time, such as 2026-12-01T08:00

    @property
    def given(self) -> dict[str, float | str]:
        """Return the limits that are set, by key."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    @property
    def moment(self) -> float | None:
        """Return `until` in Unix seconds."""
        return None if self.until is None else _parsed(self.until).timestamp()

    @property
    def past(self) -> bool:
        """Return whether `until` is over."""
        return self.moment is not None and self.moment <= time.time()


_TIME = re.compile(r"(?:(\d+)-)?(\d{1,2}):([0-5]\d):([0-5]\d)")
_MEMORY = re.compile(r"(\d+)([KMGT]?)")
_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}  # in MiB, as in Slurm


def seconds(time: str) -> int | None:
    """Return a time limit of Slurm in seconds; None if it is not valid.

    >>> seconds("24:00:00"), seconds("2-12:30:00"), seconds("24:00"), seconds("90")
    (86400, 217800, None, None)
    """
    parts = _TIME.fullmatch(time)
    units = zip(parts.groups("0"), (86400, 3600, 60, 1), strict=True) if parts else ()
    return sum(int(number) * unit for number, unit in units) if parts else None


def share(memory: str, parts: int) -> str:
    """Return 1/`parts` of a task's memory, for a job with fewer GPUs.

    >>> share("1000G", 8), share("0", 8)
    ('128000M', '0')
    """
    number, unit = _MEMORY.findall(memory)[0]
    return f"{int(int(number) * _UNITS[unit] / parts)}M" if int(number) else memory


_WORD, _OPTION = re.compile(r"[^\s'\"]+"), re.compile("-[^\n]*")
Word = Annotated[str, must("one word, or null for the site's default", _WORD.fullmatch)]
Time = Annotated[str, must('"HH:MM:SS" or "D-HH:MM:SS", in quotes in YAML, or null', seconds)]
Memory = Annotated[str, must("a number with K, M, G or T, such as 64G", _MEMORY.fullmatch)]
Option = Annotated[str, must("an option of sbatch such as --x=y", _OPTION.fullmatch)]


@dataclass
class CpuJobs:
    """Resources of jobs without GPUs: grade, score, report."""

    partition: Word | None = None  # Slurm partition; default: the site's
    time: Time | None = "08:00:00"  # time limit; null: the partition's
    cpus: Positive = 8  # CPUs per task
    memory: Memory | None = "32G"  # memory per task; "0": the node's
    options: list[Option] = field(default_factory=list)  # more options of sbatch


@dataclass
class ClusterConfig(CpuJobs):
    """Resources of jobs of `submit`; Ray uses `address`, `gpus`, `cpus` and `workers` only."""

    time: Time | None = "24:00:00"  # time limit; null: the partition's
    memory: Memory | None = "64G"  # memory per task; "0": the node's
    name: str = "default"  # name in records
    address: Word | None = None  # address of a Ray cluster; null: Slurm
    account: Word | None = None  # Slurm account to charge
    qos: Word | None = None  # quality of service of jobs with GPUs
    gpus: Natural = 1  # GPUs per task; 0: engines on the CPU
    workers: Positive = 1  # array tasks per run; with Ray: actors
    max_running: Positive | None = None  # most array tasks at once, over all runs
    warn_s: Positive = 300  # jobs are told to save so many seconds before their limit
    setup: str = ""  # shell lines before the program: module loads, environments, LAUNCH=
    cpu_jobs: CpuJobs = field(default_factory=CpuJobs)

    def problems(self) -> Iterator[str]:
        if self.time and self.warn_s >= (limit := seconds(self.time) or 0):
            yield f"warn_s={self.warn_s}: must be less than cluster.time, {limit} s"
