"""JSON Lines files that others wrote: one object a line."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pipeline.base import limits
from pipeline.base.errors import UserError

MOST_LINE = 64 << 20  # bytes: 80 long answers in one sample
_SMALL = 1 << 20  # bytes of a line whose objects take no memory to speak of


def line(value: Any) -> bytes:
    r"""A JSON value as a line; half a surrogate pair becomes an escape.

    >>> line({"text": "é\ud800"}).decode()
    '{"text": "é\\ud800"}\n'
    """
    return f"{json.dumps(value, ensure_ascii=False)}\n".encode(errors="backslashreplace")


def lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Number and bytes of every line of a file; None for one of over MOST_LINE bytes."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MOST_LINE):
            number += 1
            if len(line) < MOST_LINE or line.endswith(b"\n"):
                yield number, line
                continue
            while (rest := file.readline(MOST_LINE)) and not rest.endswith(b"\n"):
                pass
            yield number, None


def value(line: bytes) -> Any:
    """What a line says, None where it is blank.

    Raises ValueError: no JSON in UTF-8, too deep, or more objects than the memory of `limits`.
    """
    text = line.decode("utf-8-sig")  # which drops the mark that some editors begin with
    try:
        with limits.room(len(line)) if len(line) > _SMALL else contextlib.nullcontext():
            return json.loads(text) if text.strip() else None
    except RecursionError as error:
        raise ValueError("brackets within brackets without end") from error
    except MemoryError as error:
        raise ValueError("its values take too much memory") from error


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Place ("line 1") and object of every line that is not blank.

    Raises UserError: a line is no JSON object in UTF-8. OSError: the file cannot be read.
    """
    for number, line in lines(path):
        if line is None:
            raise UserError(f"{path}, line {number}: over {MOST_LINE >> 20} MiB; split it")
        try:
            record = value(line)
        except ValueError as error:
            raise UserError(
                f"{path}, line {number}: not JSON in UTF-8 ({error}); is it one object a line?"
            ) from error
        if isinstance(record, dict):
            yield f"line {number}", record
        elif line.strip():
            raise UserError(f"{path}, line {number}: not an object, {{KEY: VALUE, ...}}")
