"""JSON Lines files that others wrote: one object a line."""

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import limits
from bayes_at_n.pipeline.base.errors import UserError

MOST_LINE = 64 << 20  # bytes: 80 long answers in one sample
_SMALL = 1 << 20  # bytes of a line whose objects take no memory to speak of
_DECODER = json.JSONDecoder()


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


def parts(path: Path, within: str) -> Iterator[Any]:
    """The object of a JSON file up to its list `within`, then that list's items one by one.

    Only one value is in memory. Raises ValueError: no such JSON in UTF-8, or a value of over
    MOST_LINE characters. MemoryError, RecursionError: one that there is no room for.
    """
    head, key, text, inside, piece = dict[str, Any](), None, "", False, 1 << 16
    with path.open(encoding="utf-8-sig") as file:
        while True:
            text = text.lstrip(" \t\n\r,:" if head or key else " \t\n\r{")
            if text[:1] == "}" or (text[:1] == "]" and inside):
                break
            if text[:1] == "[" and key == within and not inside:
                text, inside = text[1:], True
                yield head
                continue
            with contextlib.suppress(json.JSONDecodeError):  # as long as it is not whole
                with limits.room(len(text)) if len(text) > _SMALL else contextlib.nullcontext():
                    value, end = _DECODER.raw_decode(text)
                if end < len(text):
                    text = text[end:]
                    if inside:
                        yield value
                    elif key is None:
                        key = value
                    else:
                        head[key], key = value, None
                    continue
            if len(text) > MOST_LINE or not (further := file.read(max(piece, len(text)))):
                raise ValueError("no JSON, or cut off")
            text += further
    if not inside:
        yield head


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
