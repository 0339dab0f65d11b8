"""The figure of scores under smaller limits: against max_tokens, and against what it costs."""

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
    """Scores with intervals by max_tokens, and by mean tokens an attempt.

    Rows of the `table` have `model` (if there are several), `max_tokens`, `score`, `low`, `high`
    and `tokens_per_attempt`; what a model's attempts do not tell has no `score`.
    """
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for row in sorted(table, key=lambda row: int(row["max_tokens"])):
        rows.setdefault(one_line(row.get("model", "")), []).append(row)
    looks = looks_of(rows)
    several = len(rows) > 1
    height = 2.9 + several * LEGEND_LINE * legend_rows([*looks])
    figure, panels = style.panels(PAGE, height, _finding(rows), columns=2, about=title)
    heads = {"max_tokens": "max_tokens, logarithmic", "tokens_per_attempt": "tokens an attempt"}
    for axes, (x, label) in zip(panels, heads.items(), strict=True):
        told = {name: [row for row in of if "score" in row] for name, of in rows.items()}
        ends = (x, "score", "low", "high")
        lines = {
            name: Curve(*(plain([row[end] for row in of]) for end in ends))
            for name, of in told.items()
        }
        draw(axes, lines, looks, 10)
        axes.set(xlabel=label, ylabel="score")
    caps = sorted({row["max_tokens"] for of in rows.values() for row in of})
    panels[0].set_xscale("log")
    log_ticks(panels[0], plain(caps), [f"{cap:,}" for cap in caps])
    panels[1].set_xlim(left=0)
    if several:
        key(figure, looks, beside=False)
    return figure


def _finding(rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """From which limit on nothing more is gained than intervals leave open."""
    needed, rising = [], []
    for name, of in rows.items():
        if told := [row for row in of if "score" in row]:
            rises = [b["max_tokens"] for a, b in pairwise(told) if a["score"] < told[-1]["low"]]
            needed.append(max([told[0]["max_tokens"], *rises]))
            if rises and needed[-1] == told[-1]["max_tokens"]:
                rising.append(name)
    if not needed:
        return findings.EMPTY
    if rising:
        whose = "" if len(rising) == len(rows) else f" of {findings.some(rising)}"
        return f"Scores{whose} still rise at the largest max_tokens"
    return f"From max_tokens = {max(needed):,} on scores change within their intervals"
