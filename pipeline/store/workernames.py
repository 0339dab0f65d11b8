"""Names of workers: no two processes on any node have the same, and they sort by their start."""

import os
import re
import socket
import time
from pathlib import Path

ENDINGS = r"(-[a-z]+\d*)*"  # what may follow a worker's name and a number, see `shards`


def worker_id() -> str:
    """Return a name that no other process on any node has: start time, node, pid."""
    return f"{time.time_ns() // 1000:016d}-{node()}-{os.getpid()}"


def node() -> str:
    """Return this machine's short name, as Slurm calls it where it does."""
    return (os.environ.get("SLURMD_NODENAME") or socket.gethostname()).split(".")[0]


def worker_of(path: Path) -> str:
    """Return the worker that wrote a file of a table; empty if its name does not say.

    >>> worker_of(Path("_0000000000000007-gpu-01-12345-00003.journal"))
    '0000000000000007-gpu-01-12345'
    >>> worker_of(Path(".0000000000000007-n1-42-00003-taken.parquet.0a1b.tmp"))
    '0000000000000007-n1-42'
    >>> worker_of(Path("0000000000000007-n1-42-00003-upto65536-sound.parquet"))
    '0000000000000007-n1-42'
    """
    named = re.match(rf"[_.]?(\d{{16}}-.+-\d+)-\d{{5}}{ENDINGS}\.[a-z]", path.name)
    return named[1] if named else ""
