"""A file of rows that anybody may have written: JSON Lines, a JSON array, CSV or Parquet.

Which of them it is its first bytes say. What is wrong is named by file and line (or row), and
whoever reads a row has not paid for the rows behind it.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base import csvs, foreign, jsonl, limits
from pipeline.base.errors import UserError, one_line

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
_AS_CSV = "save the sheet as CSV UTF-8"
_OTHERS = {
    b"PK\x03\x04": f"an Excel workbook, or another zip; {_AS_CSV}",
    b"\xd0\xcf\x11\xe0": f"an old Excel workbook; {_AS_CSV}",
    b"\xff\xfe": f"text in UTF-16; {_AS_CSV}",
    b"\xfe\xff": f"text in UTF-16; {_AS_CSV}",
    b"\x1f\x8b": "packed with gzip; unpack it first: gunzip FILE",
}
_ROWS = 256  # of Parquet that are read together
Rows = Iterator[tuple[str, dict[str, Any]]]  # each with its place, such as "line 3"


def read(path: Path) -> Rows:
    """The rows of a file, with their places.

    Raises UserError: it is none of these, or, when a row is asked for, that one is damaged.
    """
    foreign.check(path)
    with path.open("rb") as file:
        head = file.read(1 << 16)
    for start, what in _OTHERS.items():
        if head.startswith(start):
            raise UserError(f"{path}: is {what}")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1") or path.suffix == ".parquet":
        return _parquet(path)
    if text.startswith(b"["):
        return _array(path)
    if text.startswith(b"{") or not text or path.suffix in (".jsonl", ".json"):
        return jsonl.read(path)
    return _csv(path)


def _csv(path: Path) -> Rows:
    lines = ((f"line {number}", line or b"") for number, line in jsonl.lines(path))
    try:
        _, rows = csvs.table(lines)
    except ValueError as error:
        raise UserError(f"{path}, {error}; is it CSV in UTF-8 with a line of names?") from error
    for place, row, damage in rows:
        if row is None:
            remedy = "text with commas, quotes or line ends stands in double quotes"
            remedy = "save it as CSV UTF-8" if "UTF-8" in damage else remedy
            raise UserError(f"{path}, {place}: {damage}; {remedy}")
        yield place, row


def _array(path: Path) -> Rows:
    with path.open("rb") as file:
        content = file.read(jsonl.MOST_LINE + 1)
    if len(content) > jsonl.MOST_LINE:
        most = f"over {jsonl.MOST_LINE >> 20} MiB in one array"
        raise UserError(f"{path}: {most}; write one object a line (JSON Lines)")
    try:
        items = jsonl.value(content)
    except ValueError as error:
        raise UserError(f"{path}: no JSON array in UTF-8 ({error})") from error
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise UserError(f"{path}, item {number}: not an object, {{KEY: VALUE, ...}}")
        yield f"item {number}", item


def _parquet(path: Path) -> Rows:
    number, size = 0, path.stat().st_size
    try:
        with limits.room(size):
            file = pq.ParquetFile(path)
            batches = file.iter_batches(_ROWS)
        while True:
            with limits.room(size):  # whatever the file says of itself
                batch = next(batches, None)
                rows = [] if batch is None else batch.to_pylist()
            if batch is None:
                return
            for row in rows:
                number += 1
                yield f"row {number}", row
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        behind = f"{path}, behind row {number}: no sound Parquet"
        raise UserError(f"{behind} ({one_line(error)}); write the file again") from error
