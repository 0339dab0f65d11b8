"""Read files that others may have written, within limits of size, depth and memory."""

import contextlib
import csv
import itertools
import json
import re
import resource
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from bayes_at_n.pipeline.base.errors import UserError

ROOM = 512 << 20  # bytes of memory beside four times the file
MOST_LINE = 64 << 20  # bytes: 80 long answers in one sample
MOST_FIELD = 16 << 20  # characters of CSV
_MOST = 1 << 28  # bytes of a file that is read whole; the manifest of a million questions has less
_SMALL = 1 << 20  # bytes of a line whose objects take no memory to speak of
# How a text begins that a spreadsheet would run, but for numbers; apostrophes may be in front.
FORMULA = r"'*(?:[\t-\r ]*(?:[=@]|[+\-][0-9.]*[^0-9.])|[\t\r])"
CsvRows = Iterator[tuple[str, dict[str, str] | None, str]]  # place, cells by column, what is wrong


def check(path: Path) -> None:
    """Raise FileNotFoundError: nothing is there. UserError: no file, or a link without content."""
    if (name := printable(path)) != str(path):
        raise UserError(f"{name}: its name is not UTF-8; rename it")
    if path.is_symlink() and not path.exists():
        remedy = "fetch its content (git annex get, dvc pull), or delete the link"
        raise UserError(f"{path}: a broken link; {remedy}")
    if not stat.S_ISREG(path.stat().st_mode):
        raise UserError(f"{path}: not a regular file but a folder, pipe or device; move it")


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
    with contextlib.suppress(RecursionError):
        if isinstance(value := json.loads(read_text(path)), dict):
            return value
    raise ValueError("holds something else than it should")


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Limit the memory of this process (Linux only) while something of `size` bytes is read.

    MemoryError inside is then the file's fault. Only for verbs that load no engine.
    """
    before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        most = psutil.Process().memory_info().vms + ROOM + 4 * size
        limit = min(x for x in (most, soft, hard) if x != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of every line of a file; None for one of over MOST_LINE bytes."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
            piece = line
            while len(piece) == MOST_LINE and not piece.endswith(b"\n"):
                piece = file.readline(MOST_LINE)
            yield number, line if piece is line else None


def json_value(line: bytes) -> Any:
    """Parse a line, None where it is blank. Raises ValueError: no JSON, too deep or too large."""
    text = line.decode("utf-8-sig")  # which drops the mark that some editors begin with
    try:
        with memory_limit(len(line)) if len(line) > _SMALL else contextlib.nullcontext():
            return json.loads(text) if text.strip() else None
    except RecursionError as error:
        raise ValueError("brackets within brackets without end") from error
    except MemoryError as error:
        raise ValueError("its values take too much memory") from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place ("line 1") and object of every line that is not blank.

    Raises UserError: a line is no JSON object in UTF-8. OSError: the file cannot be read.
    """
    for number, line in lines(path):
        place = f"{path}, line {number}"
        if line is None:
            raise UserError(f"{place}: over {MOST_LINE >> 20} MiB; split it")
        try:
            record = json_value(line)
        except ValueError as error:
            message = f"{place}: not JSON in UTF-8 ({error}); is it one object a line?"
            raise UserError(message) from error
        if isinstance(record, dict):
            yield f"line {number}", record
        elif line.strip():
            raise UserError(f"{place}: not an object, {{KEY: VALUE, ...}}")


def csv_table(source: Iterator[tuple[str, bytes]]) -> tuple[list[str], CsvRows]:
    """Return the column names of a CSV file, from place and bytes of its lines, and its rows.

    Cells are parted by the comma, semicolon or tab that the first line has most of. Empty rows are
    left out, and columns at the end that have no name. A record that cannot be parsed is skipped to
    the end of its lines. Raises ValueError: the names cannot be read, or one is there twice.
    """
    first = next(source, ("line 1", b"\n"))
    heads = re.sub('"[^"]*"', "", first[1].decode(errors="replace"))
    records = _csv_records(itertools.chain([first], source), max(",;\t", key=heads.count))
    place, cells, damage = next(records, ("line 1", [], ""))
    names = [name.strip() for name in cells]
    while names and not names[-1]:
        names.pop()
    twice = [name for name in names if names.count(name) > 1]
    if damage or twice:
        raise ValueError(f"{place}: {damage or f'{twice[0]} is there twice'}")

    def rows() -> CsvRows:
        for place, cells, damage in records:
            if not damage and (len(cells) < len(names) or any(cells[len(names) :])):
                damage = f"{len(cells)} of {len(names)} columns" * any(cells)
            if damage or any(cells):
                yield place, None if damage else dict(zip(names, cells, strict=False)), damage

    return names, rows()


def _csv_records(
    source: Iterator[tuple[str, bytes]], delimiter: str
) -> Iterator[tuple[str, list[str], str]]:
    """Yield place of the first line, cells, and what is wrong with them, of every record."""
    places, size = list[str](), 0

    def text(line: tuple[str, bytes]) -> str:
        nonlocal size
        places.append(line[0])
        size += len(line[1])
        if not line[1] or size > MOST_LINE:
            raise csv.Error("longer than any record")
        return line[1].decode("utf-8-sig")

    csv.field_size_limit(MOST_FIELD)
    reader = csv.reader(map(text, source), delimiter=delimiter, strict=True)
    while True:
        places.clear()
        size, cells, damage = 0, list[str](), ""
        try:
            cells = next(reader)
        except StopIteration:
            return
        except UnicodeDecodeError:
            damage = "not UTF-8"
        except csv.Error as error:
            damage = str(error).replace("unexpected end of data", "a quote that is not closed")
        if damage and len(places) > 1:
            damage += f", and {len(places) - 1} lines behind it"
        yield places[0], cells, damage
