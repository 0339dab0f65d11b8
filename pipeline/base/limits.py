"""Memory for reading what others wrote, when its own headers cannot be believed."""

import contextlib
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

ROOM = 512 << 20  # bytes beside four times the file


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """So much memory for something of `size` bytes, and no more: the kernel refuses the rest.

    MemoryError inside is then the file's fault. Only for verbs that load no engine: the limit is
    one of the whole process. Nothing is bounded where there is no Linux.
    """
    if sys.platform != "linux":
        yield
        return
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    limits = [limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY]
    resource.setrlimit(resource.RLIMIT_AS, (min([held + ROOM + 4 * size, *limits]), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
