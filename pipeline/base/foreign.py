"""Read files that others may have written, within limits of size, depth and memory."""

import contextlib
import json
import resource
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base.errors import UserError

ROOM = 512 << 20  # bytes of memory beside four times the file
_MOST = 1 << 28  # bytes of a file that is read whole; the manifest of a million questions has less


def check(path: Path) -> None:
    """Raise FileNotFoundError: nothing is there. UserError: no file, or a link without content."""
    if (name := printable(path)) != str(path):
        raise UserError(f"{name}: a name that is not UTF-8; rename it")
    if path.is_symlink() and not path.exists():
        remedy = "fetch its content (git annex get, dvc pull), or delete the link"
        raise UserError(f"{path}: a link to what is not here; {remedy}")
    if not stat.S_ISREG(path.stat().st_mode):
        raise UserError(f"{path}: a folder, a pipe or a device, and no file; move it")


def printable(path: Path) -> str:
    """Spell out the bytes of a path that are not UTF-8."""
    return str(path).encode(errors="backslashreplace").decode()


def read_text(path: Path, most: int = _MOST) -> str:
    """Read a file of at most so many bytes, in UTF-8.

    Raises as `check`; ValueError: it is larger, or not UTF-8.
    """
    check(path)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most:,} bytes")
    return data.decode()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises as `read_text`; ValueError, too: it holds something else."""
    try:
        value = json.loads(read_text(path))
    except RecursionError:
        value = None
    if not isinstance(value, dict):
        raise ValueError("holds something else than it should")
    return value


@contextlib.contextmanager
def room(size: int) -> Iterator[None]:
    """Limit the memory of this process (Linux only) while something of `size` bytes is read.

    MemoryError inside is then the file's fault. Only for verbs that load no engine.
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
