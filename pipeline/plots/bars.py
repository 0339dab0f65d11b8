"""Stacked bars: shares of categories, and costs of runs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from bayes_at_n.pipeline.base.console import si
from bayes_at_n.pipeline.display import sides, style
from bayes_at_n.pipeline.display.style import (
    COLORS,
    HATCHES,
    PAGE,
    TALLEST,
    Numbers,
    one_line,
    plain,
)
from bayes_at_n.pipeline.plots import findings
from bayes_at_n.pipeline.plots.lines import legend_rows

CATEGORY_ROW, ROW, MARGIN = 0.16, 0.2, 1.3  # inches
DATASET_COLORS = [COLORS[i] for i in (4, 1, 5, 6, 3, 0)]


@style.styled
def category_shares(
    title: str,
    categories: Sequence[str],
    counts: npt.NDArray[np.int64],
    weights: Sequence[float],
    names: Sequence[str],
) -> Figure:
    """Draw stacked bars of category shares: all attempts on top, then one bar per question.

    Questions are ordered by their mean weight, from easy to hard; those without an attempt come
    last, without a bar. If a page is too short for all names, every k-th is labeled; if a bar would
    be thinner than two points, neighbors are merged.

    `counts` are attempts of each category on each question, shape (M, C + 1); `categories` and
    `weights` go from 0 to C, and `names` are those of the questions.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    scores = np.where(counts.any(axis=1), shares @ np.asarray(weights, float), -np.inf)
    order = np.argsort(-scores, kind="stable")
    every = counts.sum(axis=0) / max(counts.sum(), 1)
    labels = [one_line(name) for name in categories]
    margin = MARGIN + 0.16 * legend_rows(labels)
    size, first = style.bins(len(order), (TALLEST - margin) / (2 * style.POINT))
    height = min(TALLEST, margin + max(CATEGORY_ROW * (len(first) + 2), 1.9))
    step = int(np.ceil(0.12 * (len(first) + 2) / (height - margin)))
    parts = np.add.reduceat(counts[order], first)
    shares = parts / np.maximum(parts.sum(axis=1, keepdims=True), 1)
    # The bar of all attempts and the space below it are as high as a name.
    rows = np.vstack([[every] * step, [0 * every] * step, shares])
    looks = sides.looks(categories)
    by_side = {
        side: sum(every[i] for i, look in enumerate(looks) if look.side == side)
        for side in sides.HUES
    }
    finding = ", ".join(f"{share:.1%} {side}" for side, share in by_side.items() if share)
    figure, (axes,) = style.panels(PAGE, height, finding, about=title)
    colors, hatches = map(sides.color, looks), (sides.HATCHES[look.side] for look in looks)
    handles = _stack(axes, rows, colors, hatches, height=0.9)
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.4, -0.6))
    axes.set_xlabel("share of attempts")
    labeled = "" if step == 1 else f" (1 in {step * size} labeled)"
    axes.set_ylabel(f"question, from easy{f', {size} per bar' * (size > 1)}{labeled}")
    ticks = ["all", *(one_line(names[i], 24) for i in order[first[::step]])]
    axes.set_yticks(
        [(step - 1) / 2, *range(2 * step, len(rows), step)], ticks, fontsize=style.SMALL
    )
    style.legend(figure, handles, labels)
    return figure


@style.styled
def cost(
    names: Sequence[str],
    datasets: Sequence[str],
    gpu_hours: npt.ArrayLike,
    tokens: npt.ArrayLike,
    title: str = "",
) -> Figure:
    """Draw inference time and completion tokens by model and dataset, stacked (Figure 8 of 001).

    The sum is printed beside each bar, after "≥" if a dataset's value is unknown. Models are sorted
    by time, or by tokens if no time is known.

    `gpu_hours` (inference time) and `tokens` (of completions) have shape (L, D) for L models and D
    datasets, masked where unknown.
    """
    hours, counts = plain(gpu_hours), plain(tokens)
    key = np.nansum(hours, axis=1) if np.isfinite(hours).any() else np.nansum(counts, axis=1)
    order = np.argsort(-key, kind="stable")
    totals = dict(zip(names, np.nansum(counts, axis=1), strict=True))
    finding = findings.extreme(totals, "number of completion tokens", "{:,.0f}")
    figure, (left, right) = style.panels(
        PAGE, 1.2 + ROW * len(names), finding, columns=2, about=title
    )
    _sums(left, hours[order], "inference time (GPU-hours)", _short)
    handles = _sums(right, counts[order], "completion tokens", si)
    right.xaxis.set_major_formatter(lambda tokens, _: si(tokens))
    left.set_yticks(range(len(names)), [one_line(names[i]) for i in order])
    right.set_yticks([])
    labels = [one_line(name) for name in datasets]
    style.legend(figure, handles, labels)
    return figure


def _sums(axes: Axes, values: Numbers, xlabel: str, format: Callable[[float], str]) -> list[Any]:
    """Draw bars with a part per dataset, and beside each the sum of its known values."""
    parts = range(values.shape[1])
    colors = [DATASET_COLORS[k % 6] for k in parts]
    hatches = [HATCHES[(k + k // 6) % len(HATCHES)] for k in parts]
    handles = _stack(axes, np.nan_to_num(values), colors, hatches, height=0.75)
    totals = np.nansum(values, axis=1)
    for row, (total, known) in enumerate(zip(totals, np.isfinite(values), strict=True)):
        value = f"{'' if known.all() else '≥ '}{format(total)}" if known.any() else "unknown"
        axes.annotate(value, (total, row), (3, 0), textcoords="offset points", va="center",
                      fontsize=style.SMALL)  # fmt: skip
    axes.set(xlabel=xlabel, ylim=(len(values) - 0.5, -0.5))
    axes.set_xlim(0, (totals.max(initial=0) or 1) * 1.22)  # room for the sum
    axes.grid(axis="x")
    return handles


def _stack(
    axes: Axes, values: Numbers, colors: Iterable[str], hatches: Iterable[str], height: float
) -> list[Any]:
    """Draw a bar per row of `values` with a part per column; return the handles of a legend."""
    ends = values.cumsum(axis=1)
    axes.tick_params(axis="y", length=0)
    handles = []
    for k, (color, hatch) in enumerate(zip(colors, hatches, strict=True)):
        left, right = ends[:, k] - values[:, k], ends[:, k]
        low = np.arange(len(values)) - height / 2
        corners = [left, low, right, low, right, low + height, left, low + height, left, low]
        # All bars of one color are one path: an artist each would take most of the time.
        path = Path(np.stack(corners, axis=1).reshape(-1, 2), [1, 2, 2, 2, 79] * len(values))
        look: dict[str, Any] = {"facecolor": color, "hatch": hatch, "edgecolor": "white"}
        handles.append(axes.add_patch(PathPatch(path, **look, linewidth=0)))
    return handles


def _short(value: float) -> str:
    """Format a number with at least three digits and without an exponent.

    >>> _short(894.31), _short(48.4), _short(0.01234), _short(1234.5)
    ('894', '48.4', '0.0123', '1,234')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
