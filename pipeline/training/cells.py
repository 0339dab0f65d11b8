"""Select, group and name the rows of the tables of `trajectory` and `prr`."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from bayes_at_n.pipeline.display.table import Column, Table, to_html

Row = dict[str, Any]
Rows = Sequence[Mapping[str, Any]]


def names(rows: Rows, **titles: str) -> list[Column]:
    """Return the columns that name a row; a column with one value is shown in files only."""
    return [
        Column(key, title, align="left", wide=not varies(rows, key))
        for key, title in titles.items()
    ]


def records(cells: Mapping[str, Any], **same: Any) -> list[Row]:
    """Convert columns, lists or arrays (n,), to n rows, each with the cells in `same` first.

    A column that is None and masked elements become None.

    >>> change = np.ma.array([0, 5], mask=[True, False])
    >>> records({"step": [1, 2], "change": change, "sigma": None}, k=8)
    [{'k': 8, 'step': 1, 'change': None, 'sigma': None}, \
{'k': 8, 'step': 2, 'change': 5, 'sigma': None}]
    """
    lists = [
        itertools.repeat(None) if cell is None else np.ma.asarray(cell).tolist()  # type: ignore[no-untyped-call]
        for cell in cells.values()
    ]
    return [same | dict(zip(cells, row, strict=True)) for row in zip(*lists, strict=False)]


def where(rows: Rows, **cells: Any) -> list[Any]:
    """Select the rows whose cells equal these.

    >>> where([{"k": 1, "tau": 0.5}, {"k": 2, "tau": 0.7}], k=2)
    [{'k': 2, 'tau': 0.7}]
    """
    return [row for row in rows if all(row[key] == cell for key, cell in cells.items())]


def grouped(rows: Rows, *keys: str) -> dict[tuple[Any, ...], list[Any]]:
    """Group rows by the values of `keys`, in order of first occurrence.

    >>> grouped([{"k": 2}, {"k": 1}, {"k": 2}], "k")
    {(2,): [{'k': 2}, {'k': 2}], (1,): [{'k': 1}]}
    """
    groups: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def values(rows: Rows, key: str) -> list[Any]:
    """Return the distinct values of a column, in the order of the rows."""
    return list(dict.fromkeys(row[key] for row in rows))


def varies(rows: Rows, key: str) -> bool:
    """Return whether a column has more than one value."""
    return len(values(rows, key)) > 1


def page(
    title: str,
    lines: Sequence[str],
    pictures: Iterable[str],
    tables: Mapping[str, Table],
    linked: Sequence[str] = (),
    refresh: float = 0,
) -> str:
    """Write a page of HTML: lines, pictures and tables, by the stems of their files.

    Tables that are `linked` are too long for a page. A browser reads it again every `refresh`
    seconds, 0: never.
    """
    again = f'<meta http-equiv="refresh" content="{refresh:g}">' if refresh else ""
    style = "body{font:15px sans-serif;margin:2em}td,th{padding:2px 8px}img{width:44em}"
    parts = [
        f'<!doctype html><meta charset="utf-8">{again}<title>{escape(title)}</title>',
        f"<style>{style}</style><h1>{escape(title)}</h1>",
        *(f"<p>{escape(line)}</p>" for line in lines),
        *(f'<p><img src="{escape(stem)}.png" alt="{escape(stem)}"></p>' for stem in pictures),
    ]
    for stem, table in tables.items():
        link = f'<p><a href="{stem}.csv">{escape(table.title)}</a></p>'
        parts.append(link if stem in linked else to_html(table))
    return "\n".join(parts) + "\n"
