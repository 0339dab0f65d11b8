"""One attempt a line: records of outcomes or categories, as CSV or JSON Lines."""

import csv
from collections import deque
from collections.abc import Iterator

from pipeline.base import jsonl
from pipeline.base.errors import UserError
from pipeline.imports import row, source
from pipeline.imports.source import Records, Source, Troubles


def read_json(files: Source, first: bool, troubles: Troubles) -> Records:
    """The objects of a JSON Lines file.

    Raises UserError: no object says which question, or none what came of it.
    """
    names: dict[str, None] = {}
    known = set(row.NAMES)
    for place, record in source.json_lines(files.files[0], troubles):
        names |= dict.fromkeys(list(record)[:30] if not names else known & record.keys())
        yield place, record
    row.check_names(files.path, list(names))


def read_csv(files: Source, first: bool, troubles: Troubles) -> Records:
    """The rows of a CSV file with a header.

    Raises UserError: no column says which question, or what came of it.
    """
    csv.field_size_limit(row.MOST_TEXT)
    header: list[str] = []
    for place, cells, damage in _parsed(source.lines(files.files[0], troubles)):
        if not header:
            if damage:
                raise UserError(f"{place}: no CSV ({damage})")
            header = [name.strip() for name in cells]
            row.check_names(files.path, header)
            continue
        if not damage and len(cells) != len(header):
            damage = f"{len(cells)} of {len(header)} columns"
        if damage:
            troubles.add("damaged rows skipped", f"{place} ({damage})")
        yield place, None if damage else dict(zip(header, cells, strict=True))


def _parsed(lines: Iterator[tuple[str, bytes]]) -> Iterator[tuple[str, list[str], str]]:
    """Place of the first line, cells, and what is wrong with them, of every record of a CSV file.

    Where a record cannot be parsed its first line alone is lost: a stray quote must not swallow
    the lines that follow. They are parsed again, at most once each: whatever an open quote took in
    has no other quote that would open.
    """
    again: deque[tuple[str, bytes]] = deque()
    held: list[tuple[str, bytes]] = []  # of the record that is parsed
    size, damage = 0, ""  # of its lines

    def feed() -> Iterator[str]:
        nonlocal size, damage
        while (line := again.popleft() if again else next(lines, None)) is not None:
            held.append(line)
            size += len(line[1])
            if size > jsonl.MOST_LINE:
                raise csv.Error("longer than any record")
            text, of_line = _decoded(line[1])
            damage = damage or of_line
            yield text

    reader = csv.reader(feed(), strict=True)
    while True:
        held.clear()
        size, damage = 0, ""
        try:
            cells = next(reader, None)
        except csv.Error as error:
            why = str(error).replace("unexpected end of data", "a quote that is not closed")
            yield held[0][0], [], why
            again.extendleft(reversed(held[1:]))
            reader = csv.reader(feed(), strict=True)
            continue
        if cells is None:
            return
        if cells or damage:
            yield held[0][0], cells, damage


def _decoded(line: bytes) -> tuple[str, str]:
    """A line of CSV as text, and what is wrong with it."""
    if not line:
        return "\n", "a line that was skipped"
    try:
        return line.replace(b"\0", b"").decode("utf-8-sig"), "a NUL" * (b"\0" in line)
    except UnicodeDecodeError:
        return line.decode(errors="replace").replace("\0", ""), "not UTF-8"
