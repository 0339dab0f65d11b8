"""Figure of scores under smaller token limits: by max_tokens, and by tokens spent."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from matplotlib.figure import Figure

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import PAGE, one_line, plain
from bayes_at_n.pipeline.plots import findings
from bayes_at_n.pipeline.plots.lines import (
    LEGEND_LINE,
    Curve,
    draw,
    key,
    legend_rows,
    log_ticks,
    looks_of,
)


@style.styled
def by_cap(table: Sequence[Mapping[str, Any]], title: str = "") -> Figure:
    """Draw scores with intervals by max_tokens, and by mean tokens per attempt.

    Rows of the `table` have `model` (if there are several), `max_tokens`, `score`, `low`, `high`
    and `tokens_per_attempt`; those that a model's attempts cannot answer have no `score`.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(table, key=lambda row: int(row["max_tokens"])):
        rows.setdefault(one_line(row.get("model", "")), []).append(row)
    looks = looks_of(rows)
    several = len(rows) > 1
    height = 2.9 + several * LEGEND_LINE * legend_rows([*looks])
    figure, panels = style.panels(PAGE, height, _finding(rows), columns=2, about=title)
    heads = {"max_tokens": "max_tokens (log scale)", "tokens_per_attempt": "tokens per attempt"}
    for axes, (x, label) in zip(panels, heads.items(), strict=True):
        scored = {name: [r for r in points if "score" in r] for name, points in rows.items()}
        keys = (x, "score", "low", "high")
        lines = {
            name: Curve(*(plain([row[key] for row in points]) for key in keys))
            for name, points in scored.items()
        }
        draw(axes, lines, looks, 10)
        axes.set(xlabel=label, ylabel="score")
    caps = sorted({row["max_tokens"] for points in rows.values() for row in points})
    panels[0].set_xscale("log")
    log_ticks(panels[0], plain(caps), [f"{cap:,}" for cap in caps])
    panels[1].set_xlim(left=0)
    if several:
        key(figure, looks, beside=False)
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
        return findings.EMPTY
    if rising:
        whose = "" if len(rising) == len(rows) else f" of {findings.some(rising)}"
        return f"Scores{whose} still rise at the largest max_tokens"
    return f"From max_tokens = {max(needed):,} on, scores stay within their intervals"
