"""Read CSV that others wrote; a damaged record takes no other with it."""

import csv
import itertools
import re
from collections import deque
from collections.abc import Iterator

from bayes_at_n.pipeline.base import jsonl

Lines = Iterator[tuple[str, bytes]]  # place and bytes
MOST_FIELD = 16 << 20  # characters
# How a text begins that a spreadsheet would run, but for numbers; apostrophes may be in front.
FORMULA = r"'*(?:[\t-\r ]*(?:[=@]|[+\-][0-9.]*[^0-9.])|[\t\r])"
# Place, cells by the names of their columns, and what is wrong with them.
Rows = Iterator[tuple[str, dict[str, str] | None, str]]


def table(lines: Lines) -> tuple[list[str], Rows]:
    """Return the column names of a CSV file, and its rows.

    Cells are parted by the comma, semicolon or tab that the first line has most of, or by what
    Excel's line `sep=;` names. Empty rows are left out, and columns at the end that have no name.
    Raises ValueError: the names cannot be read, or one is there twice.

    >>> names, rows = table(iter([("line 1", b"Nr; Text;;\\r\\n"), ("line 2", b'1;"a;b"\\n')]))
    >>> names, list(rows)
    (['Nr', 'Text'], [('line 2', {'Nr': '1', 'Text': 'a;b'}, '')])
    """
    csv.field_size_limit(MOST_FIELD)
    first = next(lines, ("line 1", b"\n"))
    text = _decoded(first[1])[0]
    said = re.fullmatch(r"sep=(.)\s*", text)
    delimiter = said[1] if said else max(",;\t", key=re.sub('"[^"]*"', "", text).count)
    records = _parsed(lines if said else itertools.chain([first], lines), delimiter)
    place, cells, damage = next(records, ("line 1", [], ""))
    names = [name.strip() for name in cells]
    while names and not names[-1]:
        names.pop()
    twice = [name for name in names if names.count(name) > 1]
    if damage or twice:
        raise ValueError(f"{place}: {damage or f'{twice[0]} is there twice'}")
    return names, _rows(names, records)


def _rows(names: list[str], records: Iterator[tuple[str, list[str], str]]) -> Rows:
    for place, cells, damage in records:
        if not damage and (len(cells) < len(names) or any(cells[len(names) :])):
            damage = f"{len(cells)} of {len(names)} columns" * any(cells)
        if damage or any(cells):
            row = None if damage else dict(zip(names, cells, strict=False))
            yield place, row, damage


def _parsed(lines: Lines, delimiter: str) -> Iterator[tuple[str, list[str], str]]:
    """Yield place of the first line, cells, and what is wrong with them, of every record.

    Where a record cannot be parsed only its first line is lost: the lines that a stray quote took
    in are parsed again, at most once, for none of them has a quote that would open.
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

    reader = csv.reader(feed(), delimiter=delimiter, strict=True)
    while True:
        held.clear()
        size, damage = 0, ""
        try:
            cells = next(reader, None)
        except csv.Error as error:
            why = str(error).replace("unexpected end of data", "a quote that is not closed")
            yield held[0][0], [], why
            again.extendleft(reversed(held[1:]))
            reader = csv.reader(feed(), delimiter=delimiter, strict=True)
            continue
        if cells is None:
            return
        if cells or damage:
            yield held[0][0], cells, damage


def _decoded(line: bytes) -> tuple[str, str]:
    """Return a line of CSV as text, and what is wrong with it."""
    if not line:
        return "\n", "a line that was skipped"
    try:
        return line.replace(b"\0", b"").decode("utf-8-sig"), "a NUL" * (b"\0" in line)
    except UnicodeDecodeError:
        return line.decode(errors="replace").replace("\0", ""), "not UTF-8"
