"""Lines with intervals, as figures of training runs draw them: bands, bars, axes and the legend."""

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullLocator

from pipeline.display import style
from pipeline.display.style import PAGE, Numbers, one_line, plain

LEGEND_LINE = 0.17  # inches
Looks = Mapping[str, dict[str, Any]]


class Curve(NamedTuple):
    """One line, and its interval where it has one; masked or NaN where there is no value."""

    x: npt.ArrayLike
    y: npt.ArrayLike
    low: npt.ArrayLike | None = None
    high: npt.ArrayLike | None = None


def draw(axes: Axes, lines: Mapping[str, Curve], looks: Looks, marks: int) -> None:
    """Lines over their bands, with about so many markers each."""
    axes.grid(axis="y")
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if not any(np.isfinite(plain(line.y)).any() for line in lines.values()):
        axes.text(0.5, 0.5, "no value", transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
        return
    for i, (label, look) in enumerate(looks.items()):
        if label not in lines:
            continue
        x, y = plain(lines[label].x), plain(lines[label].y)
        every = style.every(len(x), i, marks)
        axes.plot(x, y, **look, markevery=every, zorder=3, linewidth=1.0, markersize=3.4)
        _band(axes, lines[label], look["color"])


def _band(axes: Axes, line: Curve, colour: str) -> None:
    """A pale band with faint edges: where several overlap, edges tell them apart."""
    if line.low is None or line.high is None:
        return
    x, low, high = plain(line.x), plain(line.low), plain(line.high)
    if len(x) == 1:
        axes.vlines(x, low, high, color=colour, linewidth=0.8)
        return
    axes.fill_between(x, low, high, color=colour, alpha=0.13, linewidth=0)
    for edge in (low, high):
        axes.plot(x, edge, color=colour, alpha=0.45, linewidth=0.4, zorder=2)


def steps_axis(axes: Axes, lines: Iterable[Curve], ticks: int) -> None:
    """The axis of training steps: whole numbers, in thousands where they are long."""
    known = [plain(line.x) for line in lines]
    steps = np.concatenate(known) if known else np.zeros(1)
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda x, _: short(x, float(steps.max(initial=0))))
    if len(steps) and steps.min() < steps.max():
        margin = 0.02 * (steps.max() - steps.min())
        axes.set_xlim(steps.min() - margin, steps.max() + margin)


def short(step: float, largest: float) -> str:
    """A step as ticks have it.

    >>> short(3900, 3900), short(12500, 40000), short(0, 1e7)
    ('3900', '12.5k', '0')
    """
    unit, sign = (1e6, "M") if largest >= 1e6 else (1e3, "k") if largest >= 1e4 else (1, "")
    return f"{step / unit:g}{sign if step else ''}"


def key(figure: Figure, looks: Looks, beside: bool, more: str = "") -> None:
    """The legend: right of a single panel, below several."""
    handles = [Line2D([], [], **look) for look in looks.values()]
    labels = [one_line(label) for label in looks]
    if more:
        handles.append(Line2D([], [], color=style.GREY, alpha=0.4, linewidth=5))
        labels.append(more)
    if beside:
        style.legend(figure, handles, labels, loc="outside right upper")
        return
    columns = style.legend_columns(labels, PAGE)
    style.legend(figure, handles, labels, loc="outside lower center", ncols=columns)


def bars(axes: Axes, lines: Mapping[str, Curve], looks: Looks, dodge: bool = False) -> None:
    """Lines with vertical intervals, for few points far apart: bands would only make a fog.

    Args:
        axes: where; logarithmic in x if they dodge.
        lines: by label.
        looks: by label, in the order drawn.
        dodge: each line a little to the side, so that none hides another: only where x has a few
            known places, not where it is measured.
    """
    for i, (label, look) in enumerate(looks.items()):
        line = lines[label]
        x = plain(line.x) * (1.018 ** (i - (len(looks) - 1) / 2) if dodge else 1)
        axes.plot(x, plain(line.y), **look, zorder=3, linewidth=1.0)
        if line.low is not None and line.high is not None:
            axes.vlines(x, plain(line.low), plain(line.high), color=look["color"], linewidth=0.9,
                        alpha=0.7)  # fmt: skip


def log_ticks(axes: Axes, at: Numbers, words: Sequence[str], least: float = 0.035) -> None:
    """Ticks on a logarithmic axis, without those that stand too near to the one before."""
    if not len(at):
        return
    logs = np.log(at)
    width = max(float(np.ptp(logs)), 1e-9)
    kept = [0]
    for i in range(1, len(at)):
        if (logs[i] - logs[kept[-1]]) / width >= least:
            kept.append(i)
    axes.set_xticks([float(at[i]) for i in kept], [words[i] for i in kept])
    axes.xaxis.set_minor_locator(NullLocator())


def money_axis(axes: Axes) -> None:
    """Ticks of costs: 1, 2, 3 and 5 times powers of ten, as plain numbers."""
    low, high = axes.get_xlim()
    powers = range(int(np.floor(np.log10(low))), int(np.ceil(np.log10(high))) + 1)
    at = [m * 10.0**e for e, m in itertools.product(powers, (1, 2, 3, 5))]
    inside = [value for value in at if low <= value <= high]
    if len(inside) > 8:
        inside = [value for value in inside if not f"{value:e}".startswith("3")]
    if len(inside) > 8:
        inside = [value for value in inside if f"{value:e}".startswith("1")]
    axes.xaxis.set_major_locator(FixedLocator(inside))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.12g}")
    axes.set_xlim(low, high)


def banded(panels: Iterable[Mapping[str, Curve]]) -> bool:
    """Whether any line has an interval."""
    return any(line.low is not None for lines in panels for line in lines.values())


def legend_rows(labels: Sequence[str]) -> int:
    """How many lines a legend below a figure takes."""
    return -(-len(labels) // style.legend_columns(labels, PAGE))
