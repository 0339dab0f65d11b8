"""Figures of rankings before and after fine-tuning: who moved, and how often pairs reverse."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator
from matplotlib.transforms import ScaledTranslation, Transform

from pipeline.display import style
from pipeline.display.style import BLUE, INK, NORMAL, PAGE, RED, Numbers, one_line, plain
from pipeline.plots.lines import key

ROW = 0.17  # inches that a name takes
FEWEST = 10  # names that a panel is high enough for, at least
CHANCE = 0.5
Panel = tuple[npt.ArrayLike, npt.ArrayLike, float]


@style.styled
def rank_scatter(names: Sequence[str], panels: Mapping[str, Panel], title: str = "") -> Figure:
    """Ranks after against ranks before, one panel a protocol (Figure 5 of MaP, left and middle).

    Every model has its own marker; its name stands right of its row. What lies on the diagonal
    kept its rank.

    Args:
        names: L models.
        panels: protocol -> ranks before and after, 1 the best, each of shape (L,), and the share
            of pairs that reverse.
        title: what is shown.
    """
    last = len(names)
    high = 1.3 + ROW * max(last, FEWEST)
    figure, axes = style.panels(PAGE, min(high, style.TALLEST), title, len(panels))
    looks = style.palette(last)
    across = range(1, last + 1, -(-last * len(panels) // 20))
    up = range(1, last + 1, -(-last // 20))
    for one, (label, (before, after, rate)) in zip(axes, panels.items(), strict=True):
        x, y = plain(before), plain(after)
        _scatter(one, x, y, looks)
        one.set(xlim=(0.4, last + 0.6), ylim=(0.4, last + 0.6), xticks=across, yticks=up)
        one.set_title(f"{one_line(label, 30)}: PRR {percent(rate)}", fontsize=NORMAL, loc="left")
        one.set(xlabel="rank before (1 is best)", ylabel="rank after (1 is best)")
        _name(one, y, [one_line(name, 44 // len(panels) - 4) for name in names], looks)
    return figure


def _name(axes: Axes, y: Numbers, names: Sequence[str], looks: Sequence[Mapping[str, Any]]) -> None:
    """Names with their markers right of the rows, with a line to the row of a name that moved."""
    last = len(names)
    places = style.spread(y, 0.95 * last / max(last, FEWEST), 0.6, last + 0.4)
    for at, place, name, look in zip(y, places, names, looks, strict=True):
        axes.annotate(
            "", (1, at), (1, place), xycoords=_beside(axes, 0), textcoords=_beside(axes, 9),
            arrowprops={"arrowstyle": "-", "color": style.GREY, "linewidth": 0.6, "shrinkB": 0},
        )  # fmt: skip
        axes.plot(1, place, color=look["color"], marker=look["marker"], clip_on=False,
                  transform=_beside(axes, 9), markersize=4, scalex=False, scaley=False)  # fmt: skip
        axes.text(1, place, name, transform=_beside(axes, 15), va="center")


def _beside(axes: Axes, points: float) -> Transform:
    """Rows of the data, so many points right of it: panels are too narrow for shares of them."""
    shift = ScaledTranslation(points * style.POINT, 0, axes.figure.dpi_scale_trans)
    return axes.get_yaxis_transform() + shift


def _scatter(axes: Axes, x: Numbers, y: Numbers, looks: Sequence[Mapping[str, Any]]) -> None:
    """Models at their ranks; of several at one place the later ones are rings around the first."""
    last = len(x)
    axes.plot([1, last], [1, last], color=INK, linewidth=0.7, linestyle=(0, (2, 2)), zorder=1)
    axes.grid()
    here: Counter[tuple[float, float]] = Counter()
    for at_x, at_y, look in zip(x, y, looks, strict=True):
        times = here[at_x, at_y]
        here[at_x, at_y] += 1
        axes.plot(
            at_x, at_y, color=look["color"], marker=look["marker"], linestyle="",
            markersize=5 + 4 * times, markerfacecolor="none" if times else look["color"],
            zorder=3 - 0.1 * times,
        )  # fmt: skip


def percent(share: float) -> str:
    """A share as MaP prints it.

    >>> percent(15 / 66), percent(0.5), percent(0)
    ('22.73 %', '50 %', '0 %')
    """
    return f"{round(100 * share, 2):g} %"


@style.styled
def trend(
    k: npt.ArrayLike,
    prr: npt.ArrayLike,
    low: npt.ArrayLike,
    high: npt.ArrayLike,
    cost: npt.ArrayLike | None = None,
    title: str = "",
    mean: npt.ArrayLike | None = None,
    interval: str = "95 % interval",
) -> Figure:
    """The reversal rate of Pass@k by k, and what it costs (Figure 5 of MaP, right).

    Args:
        k: attempts, shape (K,).
        prr: reversal rates of the scores, shape (K,).
        low: lower ends of their intervals.
        high: upper ends.
        cost: cost of k attempts of every question by one model, as MaP draws it, on an axis of
            its own, whatever the scores are made from; None leaves it out.
        title: what is shown.
        mean: posterior means of the reversal rate, which may lie above the rate of the scores.
        interval: what the vertical lines are.
    """
    at = plain(k)
    figure, (axes,) = style.panels(PAGE, 2.9, title)
    rates: dict[str, Any] = {"color": BLUE, "marker": "o", "linestyle": "-"}
    bars: dict[str, Any] = {"color": BLUE, "linewidth": 5, "alpha": 0.3}
    chance: dict[str, Any] = {"color": INK, "linewidth": 0.8, "linestyle": (0, (2, 2))}
    means = {**rates, "marker": "_", "linestyle": "", "markersize": 9, "markeredgewidth": 1.4}
    looks = {"PRR of the scores": rates, f"posterior, {interval}": bars}
    axes.vlines(at, plain(low), plain(high), **bars)
    axes.plot(at, plain(prr), **rates, zorder=4)
    if mean is not None:
        axes.plot(at, plain(mean), **means, zorder=3)
        looks["posterior mean"] = means
    axes.axhline(CHANCE, **chance)
    looks["chance"] = chance
    axes.set_xscale("log", base=2)
    axes.set_xticks(at, [f"{value:g}" for value in at])
    axes.xaxis.set_minor_locator(NullLocator())
    top = max(0.55, float(np.nanmax(plain(high), initial=0)) * 1.06)
    axes.set(xlabel="k of Pass@k", ylabel="pairs that reverse (share)", ylim=(-0.02, top))
    axes.grid(axis="y")
    if cost is not None:
        looks["cost of k attempts (right)"] = _cost(axes, at, plain(cost))
    key(figure, looks, True)
    return figure


def _cost(axes: Axes, k: Numbers, cost: Numbers) -> dict[str, Any]:
    """The line of costs, from zero, on a second axis; its look."""
    look: dict[str, Any] = {"color": RED, "marker": "s", "linestyle": (0, (5, 1.5))}
    look["markerfacecolor"] = "white"
    other = axes.twinx()
    other.plot(k, cost, **look, zorder=2)
    other.set_ylim(0, float(np.nanmax(cost, initial=0)) * 1.08 or 1)
    other.set_ylabel("cost of k attempts (as in MaP)")
    other.spines["right"].set_visible(True)
    other.yaxis.set_major_formatter(lambda y, _: f"{y:,.12g}")
    return look
