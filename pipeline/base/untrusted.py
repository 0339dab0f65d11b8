"""Read untrusted files within limits of size, depth and memory."""

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

HEADROOM = 512 << 20  # bytes of memory in addition to four times the file's size
MOST_LINE = 64 << 20  # bytes: enough for 80 long answers in one sample
MOST_FIELD = 16 << 20  # characters of a CSV cell
_MOST = 1 << 28  # bytes of a file that is read whole: more than a manifest of a million questions
_SMALL = 1 << 20  # bytes of a line whose objects need no memory limit
# Beginning of a text that a spreadsheet would evaluate; apostrophes may precede it. After a minus
# stand names of cells or functions, not only numbers, prose or TeX.
FORMULA = (
    r"'*(?:[\t\r]|[\t-\r ]*(?:[=@]|\+[0-9.]*[^0-9.]"
    r"|-[-+( ]*(?:[0-9.]+[ )]*[-+*/^&<>=][-+( ]*)*[A-Za-z_@'\"]))"
)
CsvRows = Iterator[tuple[str, dict[str, str] | None, str]]  # position, cells by column, fault


def check(path: Path) -> None:
    """Raise FileNotFoundError: nothing exists. UserError: not a file, or a broken link."""
    if (name := printable(path)) != str(path):
        raise UserError(f"{name}: its name is not UTF-8; rename it")
    if path.is_symlink() and not path.exists():
        remedy = "fetch its content (git annex get, dvc pull), or delete the link"
        raise UserError(f"{path}: a broken link; {remedy}")
    if not stat.S_ISREG(path.stat().st_mode):
        raise UserError(f"{path}: not a regular file but a folder, pipe or device; move it")


def printable(path: Path) -> str:
    """Return a path as text, with bytes that are not UTF-8 as escapes."""
    return str(path).encode(errors="backslashreplace").decode()


def read_text(path: Path, most: int = _MOST) -> str:
    """Read a UTF-8 file. Raises: see `check`; ValueError: over `most` bytes, or not UTF-8."""
    check(path)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"more than {most:,} bytes")
    return data.decode()


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object. Raises: see `read_text`; ValueError: it is not one."""
    with contextlib.suppress(RecursionError):
        if isinstance(value := json.loads(read_text(path)), dict):
            return value
    raise ValueError("not a JSON object")


@contextlib.contextmanager
def memory_limit(size: int) -> Iterator[None]:
    """Limit the memory of this process (Linux only) while data of `size` bytes are read.

    A MemoryError within the block is then the data's fault. Only for verbs that load no engine.
    """
    before = soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        most = psutil.Process().memory_info().vms + HEADROOM + 4 * size
        limit = min(x for x in (most, soft, hard) if x != resource.RLIM_INFINITY)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def lines(path: Path) -> Iterator[tuple[int, bytes | None]]:
    """Yield number and bytes of each line of a file; None for lines over MOST_LINE bytes."""
    with path.open("rb") as file:
        for number, line in enumerate(iter(lambda: file.readline(MOST_LINE), b""), 1):
            piece = line
            while len(piece) == MOST_LINE and not piece.endswith(b"\n"):
                piece = file.readline(MOST_LINE)
            yield number, line if piece is line else None


def json_value(line: bytes) -> Any:
    """Parse a line; None if it is blank. Raises ValueError: no JSON, too deep or too large."""
    text = line.decode("utf-8-sig")  # drops a byte order mark
    try:
        with memory_limit(len(line)) if len(line) > _SMALL else contextlib.nullcontext():
            return json.loads(text) if text.strip() else None
    except RecursionError as error:
        raise ValueError("too deep nesting") from error
    except MemoryError as error:
        raise ValueError("its values take too much memory") from error


def json_lines(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield position ("line 1") and object of each line that is not blank.

    Raises UserError: a line is no JSON object in UTF-8. OSError: the file cannot be read.
    """
    for number, line in lines(path):
        position = f"{path}, line {number}"
        if line is None:
            raise UserError(f"{position}: over {MOST_LINE >> 20} MiB; split it")
        try:
            record = json_value(line)
        except ValueError as error:
            message = f"{position}: not JSON in UTF-8 ({error}); write one object per line"
            raise UserError(message) from error
        if isinstance(record, dict):
            yield f"line {number}", record
        elif line.strip():
            raise UserError(f"{position}: not an object, {{KEY: VALUE, ...}}")


def csv_table(source: Iterator[tuple[str, bytes]]) -> tuple[list[str], CsvRows]:
    """Return the column names of a CSV file, from position and bytes of its lines, and its rows.

    The delimiter is the comma, semicolon or tab, whichever is most frequent in the first line.
    Empty rows and nameless last columns are left out. A record that cannot be parsed is skipped to
    the end of its lines. Raises ValueError: the names cannot be read, or one occurs twice.
    """
    first = next(source, ("line 1", b"\n"))
    header = re.sub('"[^"]*"', "", first[1].decode(errors="replace"))
    records = _csv_records(itertools.chain([first], source), max(",;\t", key=header.count))
    position, cells, fault = next(records, ("line 1", [], ""))
    names = [name.strip() for name in cells]
    while names and not names[-1]:
        names.pop()
    repeated = [name for name in names if names.count(name) > 1]
    if fault or repeated:
        raise ValueError(f"{position}: {fault or f'column {repeated[0]} occurs twice'}")

    def rows() -> CsvRows:
        for position, cells, fault in records:
            if not fault and (len(cells) < len(names) or any(cells[len(names) :])):
                fault = f"{len(cells)} of {len(names)} columns" * any(cells)
            if fault or any(cells):
                yield position, None if fault else dict(zip(names, cells, strict=False)), fault

    return names, rows()


def _csv_records(
    source: Iterator[tuple[str, bytes]], delimiter: str
) -> Iterator[tuple[str, list[str], str]]:
    """Yield the position of its first line, the cells and the fault of each record."""
    positions, size = list[str](), 0

    def text(line: tuple[str, bytes]) -> str:
        nonlocal size
        positions.append(line[0])
        size += len(line[1])
        if not line[1] or size > MOST_LINE:
            raise csv.Error("record too long")
        return line[1].decode("utf-8-sig")

    csv.field_size_limit(MOST_FIELD)
    reader = csv.reader(map(text, source), delimiter=delimiter, strict=True)
    while True:
        positions.clear()
        size, cells, fault = 0, list[str](), ""
        try:
            cells = next(reader)
        except StopIteration:
            return
        except UnicodeDecodeError:
            fault = "not UTF-8"
        except csv.Error as error:
            fault = str(error).replace("unexpected end of data", "a quote that is not closed")
        if fault and len(positions) > 1:
            fault += f", with {len(positions) - 1} more lines"
        yield positions[0], cells, fault
