"""Read JSON Lines files that others wrote: one object a line."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.errors import UserError

MOST_LINE = 64 << 20  # bytes: 80 long answers in one sample
_SMALL = 1 << 20  # bytes of a line whose objects take no memory to speak of


def lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of every line of a file; None for one of over MOST_LINE bytes."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MOST_LINE):
            number += 1
            whole = len(line) < MOST_LINE or line.endswith(b"\n")
            yield number, line if whole else None
            while not whole:
                rest = file.readline(MOST_LINE)
                whole = not rest or rest.endswith(b"\n")


def value(line: bytes) -> Any:
    """Parse a line, None where it is blank. Raises ValueError: no JSON, too deep or too large."""
    text = line.decode("utf-8-sig")  # which drops the mark that some editors begin with
    if not text.strip():
        return None
    try:
        if len(line) < _SMALL:
            return json.loads(text)
        with foreign.room(len(line)):
            return json.loads(text)
    except RecursionError as error:
        raise ValueError("brackets within brackets without end") from error
    except MemoryError as error:
        raise ValueError("its values take too much memory") from error


def read(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place ("line 1") and object of every line that is not blank.

    Raises UserError: a line is no JSON object in UTF-8. OSError: the file cannot be read.
    """
    for number, line in lines(path):
        place = f"{path}, line {number}"
        if line is None:
            raise UserError(f"{place}: over {MOST_LINE >> 20} MiB; split it")
        try:
            record = value(line)
        except ValueError as error:
            message = f"{place}: not JSON in UTF-8 ({error}); is it one object a line?"
            raise UserError(message) from error
        if isinstance(record, dict):
            yield f"line {number}", record
        elif line.strip():
            raise UserError(f"{place}: not an object, {{KEY: VALUE, ...}}")
