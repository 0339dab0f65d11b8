"""What the readers of all formats share: files, lines of text, and what was wrong with them."""

import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import clean_line
from bayes_at_n.pipeline.config.records import RecordsConfig

_NAMED = 3
_PLURAL = re.compile(r"s\b")  # in a kind of trouble, the first: "damaged rows skipped"
_START = 1 << 18
_LONGEST = 160  # characters of one place

# Where a record is, and its values by name; None for a record that is damaged: both passes count
# records in the same way.
Records = Iterator[tuple[str, Mapping[str, Any] | None]]


@dataclass(frozen=True)
class Source:
    """The files of an import and what they were taken for."""

    cfg: RecordsConfig  # what the user said of them
    kind: str
    why: str  # what it was recognised by
    files: list[Path]
    revision: str | None
    fingerprint: str  # of files and settings: the same import again has the same

    @property
    def path(self) -> str:
        """As the user named it."""
        return str(self.cfg.source.path)


class Troubles:
    """Counts by kind of trouble, and the first places of each in `files`.

    >>> troubles = Troubles(); troubles.add("damaged rows", "a.csv, line 7"); troubles.lines()
    ['1 damaged row: a.csv, line 7']
    """

    def __init__(self, files: Sequence[Path] = ()) -> None:
        self._above = os.path.commonpath([path.parent for path in files]) if files else None
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}
        self.read = 0  # bytes of the source that were read, about
        self.columns = set[str]()  # that its records have

    def add(self, kind: str, place: str = "", number: int = 1) -> None:
        """Count `number` more of one kind; without a place where it is the same everywhere."""
        self.counts[kind] += number
        places = self.places.setdefault(kind, [])
        if place and len(places) < _NAMED and shown(place) not in places:
            places.append(shown(place))

    def file(self, path: Path) -> str:
        """What a place calls a file: its path below the folder of all."""
        return shown(path.name if self._above is None else str(path.relative_to(self._above)))

    def lines(self) -> list[str]:
        """One line a kind."""
        return [
            f"{number} {kind if number > 1 else _PLURAL.sub('', kind, 1)}"
            + (f": {'; '.join(places)}" + " ..." * (number > len(places)) if places else "")
            for (kind, number), places in zip(
                self.counts.items(), self.places.values(), strict=True
            )
        ]


def shown(text: str) -> str:
    """Foreign text for one line of a message."""
    line = clean_line(text[:_LONGEST])
    return line if len(text) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def start(path: Path) -> bytes:
    """What a file is recognised by."""
    with path.open("rb") as file:
        return file.read(_START)


def lines(path: Path, troubles: Troubles) -> Iterator[tuple[str, bytes]]:
    """Every line of a text file with its place; of those beyond all measure, counted, nothing."""
    for number, line in foreign.lines(path):
        place = f"{troubles.file(path)}, line {number}"
        troubles.read += len(line or b"")
        if line is None:
            troubles.add(f"lines over {foreign.MOST_LINE >> 20} MiB skipped", place)
        yield place, line or b""


def json_lines(path: Path, troubles: Troubles) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of a JSON Lines file with their places; damaged lines are counted."""
    for place, line in lines(path, troubles):
        if not line.strip():
            continue
        try:
            record = foreign.json_value(line)
            why = "not an object"
        except ValueError as error:
            why = "not UTF-8" if isinstance(error, UnicodeError) else str(error)
            record, why = None, shown(getattr(error, "msg", why))[:60]
        if isinstance(record, dict):
            yield place, record
        else:
            troubles.add("damaged lines skipped", f"{place} ({why})")
