"""Replace files atomically: a reader finds the old file or the new one, never half of one.

A process writes a draft in the same folder and renames it when it is complete. Drafts of killed
processes are removed by the next command that writes in the folder.
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

GONE = (errno.ENOENT, errno.ESTALE)  # another process, or another host, has deleted the file
_OLD_S = 86400.0  # after which drafts of other hosts, whose processes are not visible, are removed
_DRAFT = re.compile(r"\..+\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.tmp")


def draft(path: Path) -> Path:
    """Return a path for a draft of `path`, which names host and process."""
    return path.with_name(f".{path.name}.{host_id()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


@functools.cache
def host_id() -> str:
    """Return a hash of host, boot and process namespace, within which a pid is unique."""
    names = [socket.gethostname()]
    with contextlib.suppress(OSError):
        names.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        names.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256(" ".join(names).encode()).hexdigest()[:8]


@functools.cache
def sweep(folder: Path) -> None:
    """Remove the drafts of killed processes; cached, because listing a folder takes time."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if match := _DRAFT.fullmatch(path.name):
                is_local, age = match[1] == host_id(), time.time() - path.stat().st_mtime
                if not psutil.pid_exists(int(match[2])) if is_local else age > _OLD_S:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def sync_folder(folder: Path) -> None:
    """Flush new and changed names in a folder to disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file that replaces `path` if the block succeeds, and is deleted otherwise.

    `sync`: flush it to disk, so that it survives a power cut. Raises OSError: `path` is unchanged.
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
    """Replace several files, in order, once all are written; delete those with None first.

    Raises OSError: one could not be written; then all are unchanged.
    """
    with contextlib.ExitStack() as drafts:
        for path in reversed([*contents]):  # contexts end in reverse order
            if (content := contents[path]) is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
                with drafts.enter_context(replacing(path)) as file:  # closed: there may be many
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
        for path in contents:
            if contents[path] is None:
                path.unlink(missing_ok=True)


def write_text(path: Path, text: str, sync: bool = True) -> None:
    """Replace a text file atomically; for `sync` see `replacing`."""
    with replacing(path, sync) as file:
        file.write(text.encode(errors="backslashreplace"))  # which is an escape in JSON, too


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file atomically with one JSON value per line."""
    with replacing(path) as file:
        for row in rows:
            line = f"{json.dumps(row, ensure_ascii=False)}\n"
            file.write(line.encode(errors="backslashreplace"))
