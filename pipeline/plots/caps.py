"""Figure of scores under smaller token limits."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.console import joined
from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import PAGE, one_line, plain
from bayes_at_n.pipeline.plots.leaderboard import ROW
from bayes_at_n.pipeline.plots.lines import Curve, draw, end_labels, log_ticks, looks_of


@style.styled
def by_cap(table: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draw scores with intervals by max_tokens.

    Rows of the `table` have `model` (if there are several), `max_tokens`, `score`, `low` and
    `high`; those that a model's attempts cannot answer have no `score`.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(table, key=lambda row: int(row["max_tokens"])):
        rows.setdefault(one_line(row.get("model", "")), []).append(row)
    looks = looks_of(rows)
    scored = {name: [row for row in points if "score" in row] for name, points in rows.items()}
    keys = ("max_tokens", "score", "low", "high")
    lines = {
        name: Curve(*(plain([row[key] for row in points]) for key in keys))
        for name, points in scored.items()
    }
    height = 1.0 + ROW * max(len(rows), 9)
    figure, (axes,) = style.panels(PAGE, height, _finding(rows), about=title)
    axes.margins(x=0)
    draw(axes, lines, looks, 10)
    axes.set(xlabel="max_tokens (log scale)", ylabel="score", xscale="log")
    caps = sorted({row["max_tokens"] for points in rows.values() for row in points})
    log_ticks(axes, plain(caps), [f"{cap:,}" for cap in caps])
    if len(rows) > 1:
        bottom, top = axes.get_ylim()
        ends = plain([plain(line.y)[-1] if np.size(line.y) else np.nan for line in lines.values()])
        gap = (top - bottom) * 0.16 / (height - 1)
        end_labels(axes, ends, [*rows], [*looks.values()], gap)
    return figure


def _finding(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """State from which limit on scores stay within the interval of the largest limit."""
    needed, rising = [], []
    for name, points in rows.items():
        if scored := [row for row in points if "score" in row]:
            low = scored[-1]["low"]
            rises = [b["max_tokens"] for a, b in pairwise(scored) if a["score"] < low]
            needed.append(max([scored[0]["max_tokens"], *rises]))
            if rises and needed[-1] == scored[-1]["max_tokens"]:
                rising.append(name)
    if not needed:
        return "No value is known"
    if rising:
        whose = "" if len(rising) == len(rows) else f" of {joined(rising, 3)}"
        return f"Scores{whose} still rise at the largest max_tokens"
    return f"From max_tokens = {max(needed):,} on, scores stay within their intervals"
