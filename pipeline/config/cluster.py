"""What the `cluster` settings mean to Slurm, and which of them cannot work."""

import re
from collections.abc import Iterator

from pipeline.config.settings import ClusterConfig, CpuJobs

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
    found = _MEMORY.fullmatch(memory)
    assert found
    return f"{int(int(found[1]) * _UNITS[found[2]] / parts)}M" if int(found[1]) else memory


def problems(cfg: ClusterConfig) -> Iterator[str]:
    """One line for every value that Slurm would refuse, or read as something else."""
    numbers = {
        "cpus": (cfg.cpus, 1),
        "gpus": (cfg.gpus, 0),
        "workers": (cfg.workers, 1),
        "max_running": (cfg.max_running, 1),
        "warn_s": (cfg.warn_s, 1),
        "cpu_jobs.cpus": (cfg.cpu_jobs.cpus, 1),
    }
    for key, (value, least) in numbers.items():
        if value is not None and value < least:
            yield f"cluster.{key}={value}: must be at least {least}"
    for key in ("account", "qos"):
        word = getattr(cfg, key)
        if word is not None and not _WORD.fullmatch(word):
            yield f"cluster.{key}={word!r}: must be one word, or null for the site's own"
    yield from _bad_job(cfg, "cluster")
    yield from _bad_job(cfg.cpu_jobs, "cluster.cpu_jobs")
    limit = seconds(cfg.time or "")
    if limit is not None and cfg.warn_s >= limit:
        yield (
            f"cluster.warn_s={cfg.warn_s}: a task of {limit} s would be told to stop before it"
            " began; lower it or raise cluster.time"
        )


def _bad_job(job: ClusterConfig | CpuJobs, where: str) -> Iterator[str]:
    """What both kinds of jobs have."""
    if job.time is not None and not seconds(job.time):
        yield (
            f'{where}.time={job.time}: write "HH:MM:SS" or "D-HH:MM:SS", in quotes in a YAML'
            " file, or null for the partition's own limit"
        )
    if job.memory is not None and not _MEMORY.fullmatch(job.memory):
        yield f"{where}.memory={job.memory}: write a number and K, M, G or T, such as 64G"
    if job.partition is not None and not _WORD.fullmatch(job.partition):
        yield f"{where}.partition={job.partition!r}: must be one word, or null for the site's own"
    for option in job.options:
        if not option.startswith("-") or "\n" in option:
            yield f"{where}.options: {option!r} is no option of sbatch, such as --constraint=h200"
