"""Files that are replaced whole: a reader finds the old one or the new one, never half of one."""

import contextlib
import errno
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pipeline.base import journal

GONE = (errno.ENOENT, errno.ESTALE)  # renamed or deleted by another, here or on a file server


@contextlib.contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, and else is gone.

    `sync`: whether a power cut must not take it back; that may wait for a busy disk. Raises
    OSError: when it could not be written; what was there stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
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


def write_text(path: Path, text: str, sync: bool = True) -> None:
    """Replace a small text file atomically; for `sync` see `replacing`."""
    with replacing(path, sync) as file:
        file.write(text.encode())


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file atomically by one JSON value a line."""
    with replacing(path) as file:
        for row in rows:
            try:
                line = json.dumps(row, ensure_ascii=False).encode()
            except UnicodeEncodeError:  # half a surrogate pair: only an escape can hold it
                line = json.dumps(row).encode()
            file.write(line + b"\n")
