"""Figures of training runs: scores along the steps, and how steadily each protocol follows them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from pipeline.display import style
from pipeline.display.style import INK, PAGE, one_line, plain
from pipeline.plots.lines import (
    LEGEND_LINE,
    Looks,
    banded,
    bars,
    draw,
    key,
    legend_rows,
    log_ticks,
    money_axis,
    steps_axis,
)
from pipeline.plots.lines import Curve as Curve

ACROSS = 4  # panels beside each other, at most
STEP = "training step"
CHANCE = 0.5


@style.styled
def curves(
    panels: Mapping[str, Mapping[str, Curve]],
    title: str = "",
    ylabel: str = "score",
    interval: str = "",
) -> Figure:
    """Scores along training, one panel a data set, one line a protocol (Figures 2 and 3 of MaP).

    A protocol looks the same in all panels; each panel has its own range of scores.

    Args:
        panels: data set -> protocol -> score by training step. Steps keep their distances.
        title: what is shown.
        ylabel: what the scores are.
        interval: what the bands are, such as "95 % interval".
    """
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    looks = dict(zip(labels, style.palette(len(labels)), strict=True))
    rows = -(-len(panels) // ACROSS)
    columns = -(-len(panels) // rows)
    beside = len(panels) == 1
    said = f"bands: {interval}" if interval and banded(panels.values()) else ""
    below = 0.0 if beside else LEGEND_LINE * legend_rows(labels)
    high = 2.5 if rows == 1 else min(1.75, (style.TALLEST - 0.7 - below) / rows)
    figure, places = style.panels(PAGE, 0.6 + below + high * rows, title, columns, rows)
    for k, axes in enumerate(places):
        if k >= len(panels):
            axes.remove()
    drawn = places[: len(panels)]
    for k, (axes, (name, lines)) in enumerate(zip(drawn, panels.items(), strict=True)):
        if not beside:
            axes.set_title(one_line(name, 96 // columns), fontsize=style.NORMAL, loc="left")
        draw(axes, lines, looks, 24 // columns)
        steps_axis(axes, lines.values(), 7 if columns < 3 else 4)
        if k % columns == 0:
            axes.set_ylabel(ylabel)
        if k + columns >= len(panels):
            axes.set_xlabel(STEP)
    key(figure, looks, beside, said)
    return figure


@style.styled
def side_by_side(
    left: Mapping[str, Curve],
    right: Mapping[str, Curve],
    ahead: tuple[Mapping[str, Curve], Mapping[str, Curve]] | None = None,
    title: str = "",
    heads: tuple[str, str] = ("single checkpoints", "merged"),
    ylabel: str = "score",
    interval: str = "",
) -> Figure:
    """Training runs side by side, as they are and merged (Figure 4 of MaP).

    Both panels have one range of scores, so that what is smoother looks smoother.

    Args:
        left: training run -> score by step, of single checkpoints.
        right: the same of merged windows.
        ahead: for each side, pair ("a ahead of b") -> probability by step, drawn below; None
            leaves it out.
        title: what is shown.
        heads: what stands above the two sides.
        ylabel: what the scores are.
        interval: what the bands are.
    """
    labels = list(dict.fromkeys([*left, *right]))
    looks = dict(zip(labels, style.palette(len(labels)), strict=True))
    pairs = list(dict.fromkeys([*ahead[0], *ahead[1]])) if ahead else []
    size = 3.0 + 1.35 * bool(pairs) + LEGEND_LINE * legend_rows([*labels, *pairs])
    figure, axes = style.panels(PAGE, size, title, 2, 2 if pairs else 1)
    for one, lines, head in zip(axes, (left, right), heads, strict=False):
        one.set_title(one_line(head), fontsize=style.NORMAL, loc="left")
        draw(one, lines, looks, 10)
        steps_axis(one, [*left.values(), *right.values()], 6)
        one.set_xlabel("" if pairs else STEP)
    axes[0].set_ylabel(ylabel)
    axes[1].sharey(axes[0])
    axes[0].autoscale(axis="y")
    if pairs and ahead:
        axes[0].get_gridspec().set_height_ratios([1.7, 1])  # type: ignore[union-attr]
        # Other colours than those of the runs, as far as there are any.
        others = style.palette(len(labels) + len(pairs))[len(labels) :]
        looks |= (below := dict(zip(pairs, others, strict=True)))
        _ahead(axes[2:], ahead, below, [*left.values(), *right.values()])
    said = f"bands: {interval}" if interval and banded([left, right, *(ahead or ())]) else ""
    key(figure, looks, False, said)
    return figure


def _ahead(
    axes: Sequence[Axes],
    ahead: tuple[Mapping[str, Curve], Mapping[str, Curve]],
    looks: Looks,
    steps: Sequence[Curve],
) -> None:
    """Probabilities below the curves, with a line at chance."""
    for one, lines in zip(axes, ahead, strict=True):
        one.axhline(CHANCE, color=INK, linewidth=0.7, linestyle=(0, (2, 2)))
        draw(one, lines, looks, 10)
        steps_axis(one, steps, 6)
        one.set(ylim=(-0.03, 1.03), xlabel=STEP)
        one.set_yticks([0, 0.5, 1])
    axes[0].set_ylabel("P(ahead)")


@style.styled
def stability_by_samples(
    n: npt.ArrayLike, tau: Mapping[str, Curve], title: str = "", interval: str = ""
) -> Figure:
    """How steady each protocol is by the number of trials it is given.

    Args:
        n: numbers of trials, which are the ticks, shape (T,).
        tau: protocol -> Kendall's τ with the order of training; x is the number of trials.
        title: what is shown.
        interval: what the vertical lines are.
    """
    figure, (axes,) = style.panels(PAGE, max(2.9, 0.7 + LEGEND_LINE * len(tau)), title)
    looks = dict(zip(tau, style.palette(len(tau)), strict=True))
    bars(axes, tau, looks, dodge=True)
    axes.set_xscale("log", base=2)
    log_ticks(axes, plain(n), [f"{value:g}" for value in plain(n)])
    axes.grid(axis="y")
    more = f"; lines: {interval}" if interval and banded([tau]) else ""
    axes.set(xlabel=f"number of trials n (per question){more}", ylabel="Kendall's τ with training")
    key(figure, looks, True)
    return figure


class Priced(NamedTuple):
    """One protocol's stability at several numbers of trials, with what they cost."""

    cost: npt.ArrayLike
    tau: npt.ArrayLike
    low: npt.ArrayLike | None
    high: npt.ArrayLike | None
    n: Sequence[object]  # numbers of trials, or other words for the points


@style.styled
def cost_stability(
    points: Mapping[str, Priced],
    title: str = "",
    xlabel: str = "cost of one checkpoint's evaluation, in units of the prices",
    interval: str = "",
) -> Figure:
    """What an evaluation costs against how steady it is: up and to the left is better.

    Protocols that use the same trials cost the same, so their numbers of trials stand above the
    axes once, at the median of their costs.

    Args:
        points: protocol -> its points.
        title: what is shown.
        xlabel: what the costs are.
        interval: what the vertical lines are.
    """
    figure, (axes,) = style.panels(PAGE, max(3.1, 0.9 + LEGEND_LINE * len(points)), title)
    looks = dict(zip(points, style.palette(len(points)), strict=True))
    lines = {label: Curve(one.cost, one.tau, one.low, one.high) for label, one in points.items()}
    bars(axes, lines, looks)
    found: dict[str, list[float]] = {}
    for one in points.values():
        for word, value in zip(one.n, plain(one.cost), strict=True):
            found.setdefault(str(word), []).append(float(value))
    axes.set_xscale("log")
    axes.grid(axis="both")
    more = f"; lines: {interval}" if interval and banded([lines]) else ""
    axes.set(xlabel=f"{xlabel}{more}", ylabel="Kendall's τ with training")
    money_axis(axes)
    middle = sorted((float(np.median(costs)), word) for word, costs in found.items())
    top = axes.secondary_xaxis("top")
    log_ticks(top, np.array([cost for cost, _ in middle]), [word for _, word in middle])  # type: ignore[arg-type]
    top.set_xlabel("number of trials n (per question)")
    top.spines["top"].set_visible(True)
    key(figure, looks, True)
    return figure


@style.styled
def variance(
    p: npt.ArrayLike,
    ratios: Mapping[str, npt.ArrayLike],
    title: str = "",
    near: float = 0.1,
    expected: Mapping[str, npt.ArrayLike] | None = None,
) -> Figure:
    """The delta method's variance of Pass@k over the exact one, by the success rate.

    Ratios are on a logarithmic axis from 1/10 to 10; what is further off leaves it.

    Args:
        p: success rates of a question, shape (P,).
        ratios: label ("k = 4") -> delta / exact, shape (P,), masked where the exact one is 0.
        title: what is shown.
        near: half the width of the band around 1 that counts as good.
        expected: label -> expected posterior variance / exact, likewise; drawn dashed.
    """
    rates = plain(p)
    figure, (axes,) = style.panels(PAGE, 2.9, title)
    looks = dict(zip(ratios, style.palette(len(ratios)), strict=True))
    axes.axhspan(1 - near, 1 + near, color=style.GREY, alpha=0.25, linewidth=0)
    axes.axhline(1, color=INK, linewidth=0.7)
    for i, (label, look) in enumerate(looks.items()):
        look |= {"linestyle": "-"}
        for lines, way in ((ratios, "-"), (expected or {}, "--")):
            if label in lines:
                marks = style.every(len(rates), i)
                axes.plot(rates, plain(lines[label]), **look | {"linestyle": way}, markevery=marks)
    axes.grid(axis="y")
    axes.set(xlim=(0, 1), yscale="log", ylim=(0.1, 10))
    ticks = (0.1, 0.2, 0.5, 1, 2, 5, 10)
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set(xlabel=f"success rate p of a question; grey: within {100 * near:g} %",
             ylabel="variance / exact variance")  # fmt: skip
    ways = {"delta method": "-"} | ({"posterior, expected": "--"} if expected else {})
    key(
        figure, looks | {way: {"color": INK, "linestyle": line} for way, line in ways.items()}, True
    )
    return figure
