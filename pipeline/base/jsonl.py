"""JSON Lines files that others wrote: one object a line."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

from pipeline.base import limits
from pipeline.base.errors import UserError

MOST_LINE = 64 << 20  # bytes: 80 long answers in one sample
_SMALL = 1 << 20  # bytes of a line whose objects take no memory to speak of
_INK = re.compile(r"[^ \t\n\r]")
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


def parts(path: Path, within: str) -> Iterator[tuple[str, Any]]:
    """Keys and values of the one object in a JSON file; those of the list `within` one by one.

    Only one value is in memory. Raises ValueError: no such JSON in UTF-8, or a value of over
    MOST_LINE characters.
    """
    with path.open(encoding="utf-8-sig") as file:
        text = _Text(file)
        text.expect("{")
        while True:
            key = text.value()
            text.expect(":")
            if key == within and text.next() == "[":
                text.expect("[")
                while text.next() != "]":
                    yield key, text.value()
                    if text.next() != "]":
                        text.expect(",")
                text.expect("]")
            else:
                yield key, text.value()
            if text.expect(",}") == "}":
                return


class _Text:
    """A JSON text of which only what is being read is in memory."""

    def __init__(self, file: TextIO) -> None:
        self.file, self.text, self.at = file, "", 0

    def next(self) -> str:
        """The next character that is not blank; "" at the end."""
        while not (found := _INK.search(self.text, self.at)):
            self.text, self.at = self.file.read(_SMALL), 0
            if not self.text:
                return ""
        self.at = found.start()
        return found[0]

    def expect(self, allowed: str) -> str:
        if not (found := self.next()) or found not in allowed:
            raise ValueError(f"no JSON, or cut off: {found or 'the end'} in place of {allowed}")
        self.at += 1
        return found

    def value(self) -> Any:
        """The value that begins here, read further until it is whole."""
        self.next()
        while True:
            left = len(self.text) - self.at
            try:
                with limits.room(left) if left > _SMALL else contextlib.nullcontext():
                    found, end = _DECODER.raw_decode(self.text, self.at)
            except RecursionError as error:
                raise ValueError("brackets within brackets without end") from error
            except MemoryError as error:
                raise ValueError("its values take too much memory") from error
            except json.JSONDecodeError as error:
                if left > MOST_LINE or not self._more():
                    raise ValueError(f"no JSON, or cut off: {error.msg}") from error
                continue
            if end == len(self.text) and self._more():
                continue  # a number may go on
            self.at = end
            return found

    def _more(self) -> bool:
        left = len(self.text) - self.at
        more = self.file.read(max(_SMALL, left))
        self.text, self.at = self.text[self.at :] + more, 0
        return bool(more)


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
