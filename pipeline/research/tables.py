"""Rows of results as `trajectory` and `prr` choose among them, and columns that look alike."""

from collections.abc import Mapping, Sequence
from typing import Any

from pipeline.display.table import Align, Column

Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


def columns(
    format: str = "{}",
    titles: Mapping[str, str] | None = None,
    *,
    group: str = "",
    align: Align = "right",
    wide: bool = False,
    **more: str,
) -> list[Column]:
    """Columns beside each other of one format and one head; their titles by key.

    >>> [(one.key, one.title, one.group) for one in columns(group="τ", low="from", high="to")]
    [('low', 'from', 'τ'), ('high', 'to', 'τ')]
    """
    return [
        Column(key, title, format=format, align=align, group=group, wide=wide)
        for key, title in {**(titles or {}), **more}.items()
    ]


def where(rows: Rows, **cells: Any) -> list[Any]:
    """The rows that hold these cells.

    >>> where([{"k": 1, "tau": 0.5}, {"k": 2, "tau": 0.7}], k=2)
    [{'k': 2, 'tau': 0.7}]
    """
    return [row for row in rows if all(row[key] == cell for key, cell in cells.items())]


def values(rows: Rows, key: str) -> list[Any]:
    """What a column holds, each value once, in the order of the rows."""
    return list(dict.fromkeys(row[key] for row in rows))


def varies(rows: Rows, key: str) -> bool:
    """Whether a column has more than one value."""
    return len(values(rows, key)) > 1
