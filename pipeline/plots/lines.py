"""Lines with intervals, and axes, labels and legends shared by several figures."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, NullLocator
from matplotlib.transforms import Affine2D, ScaledTranslation, blended_transform_factory

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import PAGE, Numbers, one_line, plain

LEGEND_LINE = 0.17  # inches
Looks = Mapping[str, dict[str, Any]]  # label -> properties of its line


class Curve(NamedTuple):
    """One line and, optionally, its interval; masked or NaN where there is no value."""

    x: npt.ArrayLike
    y: npt.ArrayLike
    low: npt.ArrayLike | None = None
    high: npt.ArrayLike | None = None

    def interval(self) -> tuple[Numbers, Numbers]:
        """Return lower and upper ends; NaN where there are none."""
        nothing = np.full(np.shape(self.y), np.nan)
        low, high = (nothing if end is None else plain(end) for end in (self.low, self.high))
        return low, high


def looks_of(labels: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Assign each label a look of the palette."""
    names = list(labels)
    return dict(zip(names, style.palette(len(names)), strict=True))


def draw(axes: Axes, lines: Mapping[str, Curve], looks: Looks, marks: int) -> None:
    """Draw lines over pale bands with faint edges; `marks`: about how many markers each."""
    axes.grid(axis="y")
    axes.yaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]))
    if not any(np.isfinite(plain(line.y)).any() for line in lines.values()):
        axes.text(0.5, 0.5, "no value", transform=axes.transAxes, ha="center", va="center")
        axes.set_yticks([])
        return
    for i, (label, look) in enumerate(looks.items()):
        if label not in lines:
            continue
        line, color = lines[label], look["color"]
        x, y = plain(line.x), plain(line.y)
        every = style.every(len(x), i, marks)
        axes.plot(x, y, **look, markevery=every, zorder=3, linewidth=1.0, markersize=3.4)
        if line.low is None:
            continue
        if len(x) == 1:
            axes.vlines(x, *line.interval(), color=color, linewidth=0.8)
            continue
        axes.fill_between(x, *line.interval(), color=color, alpha=0.13, linewidth=0)
        for edge in line.interval():  # where several bands overlap, edges tell them apart
            axes.plot(x, edge, color=color, alpha=0.45, linewidth=0.4, zorder=2)


def steps_axis(axes: Axes, lines: Iterable[Curve], ticks: int) -> None:
    """Format the axis of training steps: whole numbers, in thousands or millions if long."""
    steps = np.concatenate([np.zeros(0), *(plain(line.x) for line in lines)])
    largest = float(steps.max(initial=0))
    axes.xaxis.set_major_locator(MaxNLocator(ticks, integer=True, steps=[1, 2, 5, 10]))
    axes.xaxis.set_major_formatter(lambda x, _: short(x, largest))
    if len(steps) and steps.min() < largest:
        margin = 0.02 * (largest - steps.min())
        axes.set_xlim(steps.min() - margin, largest + margin)


def short(step: float, largest: float) -> str:
    """Format a step for a tick.

    >>> short(3900, 3900), short(12500, 40000), short(0, 1e7)
    ('3900', '12.5k', '0')
    """
    unit, sign = (1e6, "M") if largest >= 1e6 else (1e3, "k") if largest >= 1e4 else (1, "")
    return f"{step / unit:g}{sign if step else ''}"


def log_ticks(axes: Axes, at: Numbers, words: Sequence[str]) -> None:
    """Set ticks on a logarithmic axis, without those too close to the one before."""
    shares = np.log(at) / max(float(np.ptp(np.log(at))), 1e-9)
    ticks = [0]
    for i in range(1, len(at)):
        if shares[i] - shares[ticks[-1]] >= 0.09:
            ticks.append(i)
    axes.set_xticks([float(at[i]) for i in ticks], [words[i] for i in ticks])
    axes.xaxis.set_minor_locator(NullLocator())


def key(
    figure: Figure,
    looks: Looks,
    beside: bool = True,
    words: Mapping[str, str] | None = None,
    band: str = "",
) -> None:
    """Add the legend of lines: right of a single panel, or below several.

    `words` are printed below the labels, and `band` explains pale bands, if any.
    """
    handles = [Line2D([], [], **look) for look in looks.values()]
    labels = [one_line(label) for label in looks]
    if words:
        labels = [f"{one_line(label)}\n{words[label]}" for label in looks]
    if band:
        handles.append(Line2D([], [], color=style.GRAY, alpha=0.4, linewidth=5))
        labels.append(band)
    style.legend(figure, handles, labels, beside)


def end_labels(
    axes: Axes, y: Numbers, names: Sequence[str], looks: Sequence[Mapping[str, Any]], gap: float
) -> None:
    """Label lines or points at the right edge, without overlapping names.

    `y` are the last values of the L lines, NaN for a line without a label; `looks` are of markers
    and leader lines, and `gap` is the least distance of two names, in units of y.
    """
    named = np.flatnonzero(np.isfinite(y))
    if not named.size:
        return
    # x in points right of the axes, y in data units: panels may be too narrow for axes units.
    corner = ScaledTranslation(1, 0, axes.transAxes)  # type: ignore[arg-type]
    points = Affine2D().scale(style.POINT) + axes.figure.dpi_scale_trans + corner
    beside: dict[str, Any] = {"transform": blended_transform_factory(points, axes.transData)}
    low, high = sorted(axes.get_ylim())
    heights = style.spread(y[named], gap, low + gap / 2, high - gap / 2)
    for i, height in zip(named, heights, strict=True):
        axes.plot([0, 9], [y[i], height], **{"linewidth": 1.0, **looks[i]}, **beside,
                  markevery=[1], clip_on=False, scalex=False, scaley=False)  # fmt: skip
        axes.text(15, height, names[i], **beside, va="center")


def label_rows(
    axes: Axes, names: Sequence[str], values: Sequence[str], heads: tuple[str, str]
) -> None:
    """Label rows 0, 1, … from the top: names left of the axes, values right, below two heads."""
    rows = range(len(names))
    right = axes.secondary_yaxis("right")
    for axis, words in ((axes, names), (right, values)):
        axis.set_yticks(rows, words)
        axis.tick_params(axis="y", length=0)
    right.spines["right"].set_visible(False)
    axes.set_ylim(len(names) - 0.5, -0.5)
    for x, head, side, shift in ((0, heads[0], "right", -5), (1, heads[1], "left", 5)):
        axes.annotate(head, (x, 1), (shift, 2), xycoords="axes fraction", ha=side, va="bottom",
                      textcoords="offset points", fontsize=style.SMALL)  # fmt: skip


def legend_rows(labels: Sequence[str]) -> int:
    """Return how many lines a legend below a figure takes."""
    return -(-len(labels) // style.legend_columns(labels, PAGE))
