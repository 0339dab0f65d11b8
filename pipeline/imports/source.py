"""What the readers of all formats share: the files of an import, and lines of text."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.imports.troubles import Troubles, shown

MOST_LINE = 64 << 20  # bytes of a line of text: 80 long answers in one sample

# Where a record is, and its values by name; None for a record that is damaged: both passes count
# records in the same way.
Records = Iterator[tuple[str, Mapping[str, Any] | None]]


@dataclass(frozen=True)
class Source:
    """The files of an import and what they were taken for."""

    path: str  # as the user named it
    kind: str
    why: str  # what it was recognised by
    files: list[Path]
    revision: str | None
    fingerprint: str  # of files and settings: the same import again has the same


def lines(path: Path, troubles: Troubles) -> Iterator[tuple[str, bytes]]:
    """Every line of a text file with its place; of those beyond all measure, counted, nothing."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MOST_LINE):
            number += 1
            place = f"{path.name}, line {number}"
            if len(line) == MOST_LINE and not line.endswith(b"\n"):
                while (rest := file.readline(MOST_LINE)) and not rest.endswith(b"\n"):
                    pass
                troubles.add(f"lines over {MOST_LINE >> 20} MiB skipped", place)
                line = b""
            yield place, line


def json_lines(path: Path, troubles: Troubles) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON Lines file with their places; damaged lines are counted."""
    for place, line in lines(path, troubles):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8-sig"))
            why = "not an object"
        except (ValueError, RecursionError) as error:
            record, why = None, shown(str(error))[:60]
        if isinstance(record, dict):
            yield place, record
        else:
            troubles.add("damaged lines skipped", f"{place} ({why})")
