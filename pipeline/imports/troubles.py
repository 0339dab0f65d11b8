"""What was wrong with a source: counted by kind, with the first few places named."""

from collections import Counter

_NAMED = 3
_LONGEST = 160  # characters of one place


class Troubles:
    """Counts by kind of trouble, and the first places of each.

    >>> troubles = Troubles(); troubles.add("damaged rows", "a.csv, line 7"); troubles.lines()
    ['1 damaged rows: a.csv, line 7']
    """

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.places: dict[str, list[str]] = {}

    def add(self, kind: str, place: str, number: int = 1) -> None:
        """Count `number` more of one kind."""
        self.counts[kind] += number
        known = self.places.setdefault(kind, [])
        if len(known) < _NAMED:
            known.append(shown(place))

    def merge(self, later: "Troubles") -> None:
        """Take in a second pass, which meets the same damage: per kind the larger count stays."""
        for kind, number in later.counts.items():
            if number > self.counts[kind]:
                self.counts[kind], self.places[kind] = number, later.places[kind]

    def lines(self) -> list[str]:
        """One line a kind."""
        return [
            f"{number} {kind}: {'; '.join(self.places[kind])}"
            + (" ..." if number > len(self.places[kind]) else "")
            for kind, number in self.counts.items()
        ]


def shown(text: str) -> str:
    r"""Foreign text for one line of a message.

    >>> shown("a\x00\nb")
    'a..b'
    """
    line = "".join(char if char.isprintable() else "." for char in text[:_LONGEST])
    return line if len(text) <= _LONGEST else f"{line[: _LONGEST - 3]}..."
