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

from bayes_at_n.pipeline.base import journal

GONE = (errno.ENOENT, errno.ESTALE)  # renamed or deleted by another, here or on a file server
_OLD_S = 86400.0  # a draft of another machine, whose process nobody here can ask about
_DRAFT = re.compile(r"\..+\.([0-9a-f]{8})-(\d+)-[0-9a-f]{8}\.tmp")


def draft(path: Path) -> Path:
    """Return a name beside `path` for what will take its place; it says whose it is."""
    return path.with_name(f".{path.name}.{_here()}-{os.getpid()}-{secrets.token_hex(4)}.tmp")


@functools.cache
def where() -> str:
    """Name the boot and the process namespace: elsewhere the same number is another process."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return ""


@functools.cache
def _here() -> str:
    return hashlib.sha256(f"{socket.gethostname()} {where()}".encode()).hexdigest()[:8]


@functools.cache
def sweep(folder: Path) -> None:
    """Remove the drafts of killed processes; once a process, for it lists the folder."""
    for path in folder.glob(".*.tmp"):
        if not (made := _DRAFT.fullmatch(path.name)):
            continue
        with contextlib.suppress(OSError):
            if made[1] == _here():
                left = not psutil.pid_exists(int(made[2]))
            else:
                left = time.time() - path.stat().st_mtime > _OLD_S
            if left and path.is_dir():
                shutil.rmtree(path)
            elif left:
                path.unlink()


@contextlib.contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[BinaryIO]:
    """Open a file that takes the place of `path` when the block ends well, and else is gone.

    With `sync` a power cut does not take it back. Raises OSError: what was there stays.
    """
    temporary = draft(path)
    try:
        with temporary.open("wb") as file:
            yield file
            if sync:
                file.flush()
                os.fsync(file.fileno())
        temporary.replace(path)
        if sync:
            journal.sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)
    sweep(path.parent)


def replace_all(contents: Mapping[Path, bytes | None]) -> None:
    """Replace several files, in order, when all that is new is written; None: it goes.

    Raises OSError: one could not be written; then all stay as they were.
    """
    drafts = {path: draft(path) for path, content in contents.items() if content is not None}
    try:
        for path, temporary in drafts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("wb") as file:
                file.write(contents[path] or b"")
                file.flush()
                os.fsync(file.fileno())
        for path in contents:
            drafts[path].replace(path) if path in drafts else path.unlink(missing_ok=True)
    finally:
        for temporary in drafts.values():
            temporary.unlink(missing_ok=True)
    for folder in {path.parent for path in drafts}:
        journal.sync_folder(folder)
        sweep(folder)


def write_text(path: Path, text: str, sync: bool = True) -> None:
    """Replace a small text file atomically; for `sync` see `replacing`."""
    with replacing(path, sync) as file:
        file.write(text.encode(errors="backslashreplace"))  # in JSON, too, an escape


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file atomically by one JSON value a line."""
    with replacing(path) as file:
        for row in rows:
            line = json.dumps(row, ensure_ascii=False)  # half a surrogate pair becomes an escape
            file.write(line.encode(errors="backslashreplace") + b"\n")
