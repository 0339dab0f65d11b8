"""The rows of a file that anybody may have written: JSON Lines, a JSON array, CSV or Parquet."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.errors import UserError, one_line

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_OTHERS = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff")
_ROWS = 256  # of Parquet that are read together
Rows = Iterator[tuple[str, dict[str, Any]]]  # each with its place, such as "line 3"


def read_rows(path: Path) -> Rows:
    """The rows of a file, which its first bytes tell the kind of.

    Raises UserError: it is none of these, or, when a row is asked for, that one is damaged.
    """
    foreign.check(path)
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(_OTHERS):
        what = "an Excel workbook, an archive or text in UTF-16"
        raise UserError(f"{path}: is {what}; save the sheet as CSV UTF-8, or unpack the file")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1") or path.suffix == ".parquet":
        return _parquet(path)
    if text.startswith(b"["):
        return _array(path)
    plain = not text.startswith(b"{") and text and path.suffix not in (".jsonl", ".json")
    return _csv(path) if plain else foreign.json_lines(path)


def _csv(path: Path) -> Rows:
    lines = ((f"line {number}", line or b"") for number, line in foreign.lines(path))
    try:
        _, rows = foreign.csv_table(lines)
    except ValueError as error:
        raise UserError(f"{path}, {error}; is it CSV UTF-8 with a line of names?") from error
    for place, row, damage in rows:
        if row is None:
            remedy = "save it as CSV UTF-8, with commas, quotes and line ends in double quotes"
            raise UserError(f"{path}, {place}: {damage}; {remedy}")
        yield place, row


def _array(path: Path) -> Rows:
    with path.open("rb") as file:
        content = file.read(foreign.MOST_LINE + 1)
    if len(content) > foreign.MOST_LINE:
        raise UserError(f"{path}: an array of over {foreign.MOST_LINE >> 20} MiB; write JSON Lines")
    try:
        items = foreign.json_value(content)
    except ValueError as error:
        raise UserError(f"{path}: no JSON array in UTF-8 ({error})") from error
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise UserError(f"{path}, item {number}: not an object, {{KEY: VALUE, ...}}")
        yield f"item {number}", item


def _parquet(path: Path) -> Rows:
    number, size = 0, path.stat().st_size
    try:
        with foreign.room(size):  # whatever the file says of itself
            batches = pq.ParquetFile(path).iter_batches(_ROWS)
        while True:
            with foreign.room(size):
                rows = [] if (batch := next(batches, None)) is None else batch.to_pylist()
            if batch is None:
                return
            for row in rows:
                number += 1
                yield f"row {number}", row
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        behind = f"{path}, behind row {number}: no sound Parquet"
        raise UserError(f"{behind} ({one_line(error)}); write the file again") from error
