"""What was wrong with a source: counted by kind, with the first few places named."""

from dataclasses import dataclass, field

from pipeline.base.console import warn

_NAMED = 3
_LONGEST = 160  # characters of one place


@dataclass
class Troubles:
    """Counts by kind of trouble, and the first places of each."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, place: str, number: int = 1) -> None:
        """Count `number` more of one kind."""
        self.counts[kind] = self.counts.get(kind, 0) + number
        known = self.places.setdefault(kind, [])
        if len(known) < _NAMED:
            known.append(shown(place))

    def lines(self) -> list[str]:
        """One line a kind.

        >>> found = Troubles(); found.add("damaged rows", "a.csv, line 7"); found.lines()
        ['1 damaged rows: a.csv, line 7']
        """
        return [
            f"{number} {kind}: {'; '.join(self.places[kind])}"
            + (" ..." if number > len(self.places[kind]) else "")
            for kind, number in self.counts.items()
        ]

    def report(self) -> None:
        """Warn about everything."""
        for line in self.lines():
            warn(f"import: {line}")


def shown(text: str) -> str:
    r"""Foreign text for one line of a message.

    >>> shown("a\x00\nb")
    'a..b'
    """
    line = "".join(char if char.isprintable() else "." for char in text[:_LONGEST])
    return line if len(text) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
