"""What `submit` asks Slurm for; a resource, it never changes what a run *is*."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from bayes_at_n.pipeline.config.checks import limited

_TIME = re.compile(r"(?:(\d+)-)?(\d{1,2}):([0-5]\d):([0-5]\d)")
_MEMORY = re.compile(r"(\d+)([KMGT]?)")
_UNITS = {"K": 1 / 1024, "": 1, "M": 1, "G": 1024, "T": 1 << 20}  # in MiB, as Slurm reads them
_WORD = re.compile(r"[^\s'\"]+")


def seconds(time: str) -> int | None:
    """A time limit in seconds; None when it is none.

    >>> seconds("24:00:00"), seconds("2-12:30:00"), seconds("24:00"), seconds("90")
    (86400, 217800, None, None)
    """
    if not (parts := _TIME.fullmatch(time)):
        return None
    days, hours, minutes, rest = (int(part or 0) for part in parts.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def share(memory: str, parts: int) -> str:
    """A part of a task's memory, for a job with fewer GPUs.

    >>> share("1000G", 8), share("0", 8)
    ('128000M', '0')
    """
    shape = _MEMORY.fullmatch(memory)
    assert shape
    return f"{int(int(shape[1]) * _UNITS[shape[2]] / parts)}M" if int(shape[1]) else memory


@dataclass
class CpuJobs:
    """What jobs that need no GPU ask for: grade, score, report."""

    partition: str | None = None  # default: the site's own
    time: str | None = "08:00:00"
    cpus: int = limited(8, "[1, inf)")
    memory: str | None = "32G"
    options: list[str] = field(default_factory=list)

    def problems(self) -> Iterator[str]:
        """What Slurm would refuse, or read as something else."""
        if self.time is not None and not seconds(self.time):
            yield f'time={self.time}: write "HH:MM:SS" or "D-HH:MM:SS", in quotes in YAML, or null'
        if self.memory is not None and not _MEMORY.fullmatch(self.memory):
            yield f"memory={self.memory}: write a number and K, M, G or T, such as 64G"
        for key in ("partition", "account", "qos"):
            word = getattr(self, key, None)
            if word is not None and not _WORD.fullmatch(word):
                yield f"{key}={word!r}: must be one word, or null for the site's own"
        for option in self.options:
            if not option.startswith("-") or "\n" in option:
                yield f"options: {option!r} is no option of sbatch, such as --constraint=h200"


@dataclass
class ClusterConfig(CpuJobs):
    """What jobs ask for, one task each; keys that are not here are those of `cpu_jobs`."""

    time: str | None = "24:00:00"  # HH:MM:SS or D-HH:MM:SS; null: the partition's
    memory: str | None = "64G"  # "0": all of the node
    name: str = "default"
    account: str | None = None
    qos: str | None = None  # of jobs with GPUs
    gpus: int = limited(1, "[0, inf)")  # 0: engines on the CPU
    workers: int = limited(1, "[1, inf)")  # array tasks a run is shared by
    max_running: int | None = limited(None, "[1, inf)")  # array tasks at once, over all runs
    warn_s: int = limited(300, "[1, inf)")  # a task is told so long before its time is up
    setup: str = ""  # shell lines before the program: module loads, environments, LAUNCH=
    cpu_jobs: CpuJobs = field(default_factory=CpuJobs)

    def problems(self) -> Iterator[str]:
        """As of the other jobs, and a warning that would come before the job began."""
        yield from super().problems()
        limit = seconds(self.time or "")
        if limit is not None and self.warn_s >= limit:
            yield f"warn_s={self.warn_s}: must be below the time of a task, which is {limit} s"
