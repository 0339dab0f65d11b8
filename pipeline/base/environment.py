"""The environment of a run, for its records: package versions, commit and hardware."""

import os
import platform
import socket
import subprocess
import sys
import time
from importlib import metadata
from typing import Any

import psutil

from bayes_at_n.pipeline.base import engines
from bayes_at_n.pipeline.base.program import ROOT

# What all stages need, besides the engines' packages; rows as in `engines.Kind.needs`.
PACKAGES = (("transformers",), ("datasets",), ("math-verify",), ("numpy",), ("pyarrow",))


def describe() -> dict[str, Any]:
    """Return versions, commit and hardware as plain JSON values."""
    rows = PACKAGES + tuple(row for kind in engines.KINDS.values() for row in kind.needs)
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "commit": commit(),
        "python": platform.python_version(),
        "packages": {row[0]: next(filter(None, map(version, row)), None) for row in rows},
        "hardware": hardware(),
    }


def hardware() -> dict[str, Any]:
    """Return host, processor, memory and GPUs, without initializing CUDA."""
    return {
        "host": socket.gethostname(),
        "machine": platform.machine(),
        "cpus": cores(),
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpus": printed("nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"),
    }


def cores() -> int:
    """Return the number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def version(name: str) -> str | None:
    """Return the version of an installed distribution, else None."""
    return next((one.version for one in metadata.distributions(name=name)), None)


def commit() -> str | None:
    """Return this project's commit, with "-dirty" if files differ; None outside a checkout."""
    git = "git", "-C", str(ROOT), "describe", "--always", "--dirty", "--abbrev=12"
    # An installed copy may be inside another repository.
    return next(iter(printed(*git) if (ROOT / ".git").exists() else []), None)


def printed(*command: str) -> list[str]:
    """Return the lines that a program prints; empty if it fails."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return done.stdout.strip().splitlines()
