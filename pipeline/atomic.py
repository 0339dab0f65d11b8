"""Files that are replaced whole: a reader finds the old one or the new one, never half of one."""

import contextlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from pipeline import journal


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends well, and else is gone.

    Raises:
        OSError: when it could not be written; what was there stays.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        journal.sync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Replace a small text file atomically."""
    write_lines(path, (text,))


def write_lines(path: Path, lines: Iterable[str]) -> None:
    """Replace a text file atomically by lines that bring their own line ends."""
    with replacing(path) as file:
        file.writelines(line.encode() for line in lines)


def write_jsonl(path: Path, rows: Iterable[Any]) -> None:
    """Replace a file atomically by one JSON value a line."""
    write_lines(path, (json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
