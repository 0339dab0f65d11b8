"""Figures of training runs: scores by step, and how well each protocol keeps their order."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import INK, PAGE, one_line, plain
from bayes_at_n.pipeline.plots.lines import (
    LEGEND_LINE,
    bars,
    draw,
    key,
    legend_rows,
    log_ticks,
    looks_of,
    money_axis,
    steps_axis,
)
from bayes_at_n.pipeline.plots.lines import Curve as Curve

ACROSS = 4  # most panels in a row
STEP = "training step"
TAU = "τ with training order, ties discordant"
TRIALS = "number of trials n (per question)"
COST = "cost of evaluating one checkpoint, in the unit of the prices"
CHANCE = 0.5
NEAR = 0.1  # a ratio of variances counts as good up to so far from 1
Panels = Mapping[str, Mapping[str, Curve]]  # head -> label -> line


@style.styled
def curves(panels: Panels, title: str = "", ylabel: str = "score", interval: str = "") -> Figure:
    """Draw scores by training step, a panel per dataset, a line per protocol (Figures 2, 3 of MaP).

    A protocol looks the same in all panels; each panel has its own range of scores.

    `panels` are dataset -> protocol -> score by training step, drawn to scale; `interval` names the
    bands, such as "95% interval".
    """
    looks = looks_of(_labels(panels))
    rows = -(-len(panels) // ACROSS)
    columns = -(-len(panels) // rows)
    beside = len(panels) == 1
    below = 0.0 if beside else LEGEND_LINE * legend_rows([*looks])
    high = 2.5 if rows == 1 else min(1.75, (style.TALLEST - 0.7 - below) / rows)
    figure, places = style.panels(PAGE, 0.6 + below + high * rows, title, columns, rows)
    for axes in places[len(panels) :]:
        axes.remove()
    for k, (name, lines) in enumerate(panels.items()):
        axes = places[k]
        if not beside:
            axes.set_title(one_line(name, 96 // columns), fontsize=style.NORMAL, loc="left")
        draw(axes, lines, looks, 24 // columns)
        steps_axis(axes, lines.values(), 7 if columns < 3 else 4)
        if k % columns == 0:
            axes.set_ylabel(ylabel)
        if k + columns >= len(panels):
            axes.set_xlabel(STEP)
    key(figure, looks, beside, band=_interval("bands", interval, panels.values()))
    return figure


@style.styled
def side_by_side(
    panels: Panels,
    ahead: Panels | None = None,
    title: str = "",
    ylabel: str = "score",
    interval: str = "",
) -> Figure:
    """Draw training runs side by side, single checkpoints and merged ones (Figure 4 of MaP).

    Both panels share a range of scores, so that smoothness can be compared.

    `panels` are "single checkpoints" and "merged" -> training run -> score by step; `ahead`, drawn
    below, for each side pair ("a ahead of b") -> probability by step.
    """
    below = ahead or {}
    pairs = _labels(below)
    looks = looks_of([*_labels(panels), *pairs])
    size = 3.0 + 1.35 * bool(pairs) + LEGEND_LINE * legend_rows([*looks])
    figure, axes = style.panels(PAGE, size, title, 2, 2 if pairs else 1)
    steps = [line for lines in panels.values() for line in lines.values()]
    if pairs:
        axes[0].get_gridspec().set_height_ratios([1.7, 1])  # type: ignore[union-attr]
    for panel, lines in zip(axes[2:], below.values(), strict=False):
        panel.axhline(CHANCE, **style.GUIDE)
        panel.set(ylim=(-0.03, 1.03), ylabel="P(ahead)" if panel is axes[2] else "")
        draw(panel, lines, {label: looks[label] for label in pairs}, 10)
        panel.set_yticks([0, 0.5, 1])
    for panel, (head, lines) in zip(axes, panels.items(), strict=False):
        panel.set_title(one_line(head), fontsize=style.NORMAL, loc="left")
        draw(panel, lines, {label: looks[label] for label in looks if label not in pairs}, 10)
    for i, panel in enumerate(axes):
        steps_axis(panel, steps, 6)
        panel.set_xlabel(STEP if i >= len(axes) - 2 else "")
    axes[0].set_ylabel(ylabel)
    axes[1].sharey(axes[0])
    axes[0].autoscale(axis="y")
    band = _interval("bands", interval, [*panels.values(), *below.values()])
    key(figure, looks, beside=False, band=band)
    return figure


@style.styled
def stability_by_samples(
    n: npt.ArrayLike, tau: Mapping[str, Curve], title: str = "", interval: str = ""
) -> Figure:
    """Draw the stability of each protocol by number of trials.

    `n` are numbers of trials, the ticks, shape (T,), and `tau` protocol -> Kendall's τ with the
    order of training, by the number of trials.
    """
    figure, axes = _stability(tau, title, TRIALS, interval, 2.9, dodge=True)
    axes.set_xscale("log", base=2)
    log_ticks(axes, plain(n), [f"{value:g}" for value in plain(n)])
    axes.grid(axis="y")
    return figure


class Priced(NamedTuple):
    """One protocol's stability by the cost of several numbers of trials."""

    line: Curve
    n: Sequence[object]  # numbers of trials, or other labels of the points


@style.styled
def cost_stability(points: Mapping[str, Priced], title: str = "", interval: str = "") -> Figure:
    """Draw stability by the cost of an evaluation: up and to the left is better.

    Protocols with the same trials cost the same, so numbers of trials are printed once, above the
    axes, at the median of their costs.

    `points`: protocol -> its points.
    """
    lines = {label: priced.line for label, priced in points.items()}
    figure, axes = _stability(lines, title, COST, interval, 3.1)
    costs: dict[str, list[float]] = {}
    for priced in points.values():
        for word, value in zip(priced.n, plain(priced.line.x), strict=True):
            costs.setdefault(str(word), []).append(float(value))
    axes.set_xscale("log")
    axes.grid(axis="both")
    money_axis(axes)
    medians = sorted((float(np.median(of)), word) for word, of in costs.items())
    top: Any = axes.secondary_xaxis("top")
    log_ticks(top, np.array([cost for cost, _ in medians]), [word for _, word in medians])
    top.set_xlabel(TRIALS)
    top.spines["top"].set_visible(True)
    return figure


@style.styled
def variance(
    p: npt.ArrayLike,
    ratios: Mapping[str, npt.ArrayLike],
    title: str = "",
    expected: Mapping[str, npt.ArrayLike] | None = None,
) -> Figure:
    """Draw the delta method's variance of Pass@k over the exact one, by success rate.

    Ratios are on a logarithmic axis from 1/10 to 10, which clips others.

    `p` are success rates of a question, shape (P,); `ratios` label ("k = 4") -> delta / exact,
    shape (P,), masked where the exact one is 0; `expected`, drawn dashed, label -> expected
    posterior variance / exact, likewise.
    """
    rates, looks = plain(p), looks_of(ratios)
    figure, (axes,) = style.panels(PAGE, 2.9, title)
    axes.axhspan(1 - NEAR, 1 + NEAR, color=style.GRAY, alpha=0.25, linewidth=0)
    axes.axhline(1, color=INK, linewidth=0.7)
    for i, (label, look) in enumerate(looks.items()):
        look["linestyle"] = "-"
        marks = style.every(len(rates), i)
        axes.plot(rates, plain(ratios[label]), **look, markevery=marks)
        if expected and label in expected:
            dashed = look | {"linestyle": "--"}
            axes.plot(rates, plain(expected[label]), **dashed, markevery=marks)
    axes.grid(axis="y")
    axes.set(xlim=(0, 1), yscale="log", ylim=(0.1, 10))
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set(
        xlabel=f"success rate p of a question; gray: within {NEAR:.0%}",
        ylabel="variance / exact variance",
    )
    looks["delta method"] = {"color": INK, "linestyle": "-"}
    if expected:
        looks["posterior, expected"] = {"color": INK, "linestyle": "--"}
    key(figure, looks)
    return figure


def _labels(panels: Panels) -> list[str]:
    return list(dict.fromkeys(label for lines in panels.values() for label in lines))


def _interval(what: str, interval: str, panels: Iterable[Mapping[str, Curve]]) -> str:
    """Return the label of the intervals; "" if no line has one."""
    banded = any(line.low is not None for lines in panels for line in lines.values())
    return f"{what}: {interval}" if interval and banded else ""


def _stability(
    lines: Mapping[str, Curve],
    title: str,
    xlabel: str,
    interval: str,
    high: float,
    dodge: bool = False,
) -> tuple[Figure, Axes]:
    """Draw a panel of τ with vertical intervals and a legend, at least `high` inches high."""
    height = max(high, high - 2.2 + LEGEND_LINE * len(lines))
    figure, (axes,) = style.panels(PAGE, height, title)
    bars(axes, lines, looks := looks_of(lines), dodge)
    axes.set(xlabel=f"{xlabel}{_interval('; lines', interval, [lines])}", ylabel=TAU)
    key(figure, looks)
    return figure, axes
