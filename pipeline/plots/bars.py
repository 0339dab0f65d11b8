"""Stacked bars of the costs of runs."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from bayes_at_n.pipeline.base.console import si
from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import (
    COLORS,
    HATCHES,
    PAGE,
    Numbers,
    one_line,
    plain,
)

ROW = 0.2  # inches
DATASET_COLORS = [COLORS[i] for i in (4, 1, 5, 6, 3, 0)]


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
    figure, (left, right) = style.panels(PAGE, 1.2 + ROW * len(names), title, columns=2)
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
