"""What `submit` asks Slurm for; a resource, it never changes what a run *is*."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated

from bayes_at_n.pipeline.config.checks import Natural, Positive, must

_TIME = re.compile(r"(?:(\d+)-)?(\d{1,2}):([0-5]\d):([0-5]\d)")
_MEMORY = re.compile(r"(\d+)([KMGT]?)")
_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}  # in MiB, as Slurm reads them


def seconds(time: str) -> int | None:
    """Return a time limit in seconds; None when it is none.

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
Option = Annotated[str, must("an option of sbatch, as --x=y", _OPTION.fullmatch)]


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
    """What jobs ask for, one task each; keys that are not here are those of `cpu_jobs`."""

    time: Time | None = "24:00:00"  # null: the partition's
    memory: Memory | None = "64G"  # "0": all of the node
    name: str = "default"
    account: Word | None = None
    qos: Word | None = None  # of jobs with GPUs
    gpus: Natural = 1  # 0: engines on the CPU
    workers: Positive = 1  # array tasks a run is shared by
    max_running: Positive | None = None  # array tasks at once, over all runs
    warn_s: Positive = 300  # a task is told so long before its time is up
    setup: str = ""  # shell lines before the program: module loads, environments, LAUNCH=
    cpu_jobs: CpuJobs = field(default_factory=CpuJobs)

    def problems(self) -> Iterator[str]:
        if self.time and self.warn_s >= (limit := seconds(self.time) or 0):
            yield f"warn_s={self.warn_s}: must be below the time of a task, which is {limit} s"
