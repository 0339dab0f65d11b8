"""Replace files whole: a reader finds the old one or the new one, never half of one.

A draft beside the file, of one process, takes its place when complete. Drafts that a killed process
left are removed by the next command that writes in the folder.
"""

import contextlib
import errno
import functools
import hashlib
import json
import os
import re
import secrets
import shutil
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import psutil

GONE = (errno.ENOENT, errno.ESTALE)  # renamed or deleted by another, here or on a file server
_OLD_S = 86400.0  # a draft of another machine, whose process nobody here can ask about
_DRAFT = re.compile(r"\..+\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.tmp")


def draft(path: Path) -> Path:
    """Return a name beside `path` for what will take its place; it says whose it is."""
    return path.with_name(f".{path.name}.{where()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


@functools.cache
def where() -> str:
    """Name host, boot and process namespace: elsewhere the same number is another process."""
    names = [socket.gethostname()]
    with contextlib.suppress(OSError):
        names.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        names.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256(" ".join(names).encode()).hexdigest()[:8]


@functools.cache
def sweep(folder: Path) -> None:
    """Remove the drafts of killed processes; once a process, for it lists the folder."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if made := _DRAFT.fullmatch(path.name):
                here, age = made[1] == where(), time.time() - path.stat().st_mtime
                if not psutil.pid_exists(int(made[2])) if here else age > _OLD_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync_folder(folder: Path) -> None:
    """Make new and changed names in the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends well, and else is gone.

    With `sync` a power cut does not take it back. Raises OSError: what was there stays.
    """
    temporary = draft(path)
    try:
        with temporary.open("wb") as file:
            yield file
            if sync and not file.closed:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
    if sync:
        sync_folder(path.parent)
    sweep(path.parent)


def replace_all(contents: Mapping[Path, bytes | None]) -> None:
    """Replace several files, in order, when all that is new is written; None: it goes, first.

    Raises OSError: one could not be written; then all stay as they were.
    """
    with contextlib.ExitStack() as drafts:
        for path in reversed([*contents]):  # the last that is entered takes its place first
            if (content := contents[path]) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                with drafts.enter_context(replacing(path)) as file:  # closed: they may be many
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
        for path in contents:
            if contents[path] is None:
                path.unlink(missing_ok=True)


def write_text(path: Path, text: str, sync: bool = True) -> None:
    """Replace a text file atomically; for `sync` see `replacing`."""
    with replacing(path, sync) as file:
        file.write(text.encode(errors="backslashreplace"))  # in JSON, too, an escape


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file atomically by one JSON value a line."""
    with replacing(path) as file:
        for row in rows:
            line = f"{json.dumps(row, ensure_ascii=False)}\n"
            file.write(line.encode(errors="backslashreplace"))
