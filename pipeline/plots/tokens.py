"""Figures of what answers cost: their length, and the time and tokens of whole runs."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from pipeline.display import style
from pipeline.display.style import BLUE, COLOURS, HATCHES, PAGE, RED, Numbers, one_line, plain
from pipeline.plots.lines import key, label_rows

ROW = 0.2  # inches


@style.styled
def tokens_against_correctness(
    names: Sequence[str], correct: npt.ArrayLike, wrong: npt.ArrayLike, accuracy: npt.ArrayLike
) -> Figure:
    """Mean length of correct and of wrong answers, one row a model, the most accurate on top.

    Args:
        names: L models.
        correct: mean completion tokens of correct attempts, shape (L,), masked where none is.
        wrong: the same of wrong attempts.
        accuracy: share of correct attempts, shape (L,).
    """
    share = plain(accuracy)
    order = np.argsort(-np.nan_to_num(share, nan=-1), kind="stable")
    figure, (axes,) = style.panels(PAGE, 1.3 + ROW * len(names), "")
    looks: dict[str, dict[str, Any]] = {
        "correct attempts": {"color": BLUE, "marker": "o", "linestyle": ""},
        "wrong attempts": {
            "color": RED,
            "marker": "s",
            "linestyle": "",
            "markerfacecolor": "white",
        },
    }
    # One row holds both, a little apart, so that neither point hides the other.
    for means, shift, look in zip((correct, wrong), (-0.12, 0.12), looks.values(), strict=True):
        axes.plot(plain(means)[order], np.arange(len(names)) + shift, **look)
    axes.set_xlabel("completion tokens per attempt, mean")
    axes.set_xlim(left=0)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.0f}")
    axes.grid(axis="both")
    models = [one_line(names[i]) for i in order]
    shares = [f"{100 * share[i]:.1f} %" if np.isfinite(share[i]) else "no value" for i in order]
    label_rows(axes, models, shares, ("model", "correct"))
    key(figure, looks, beside=False)
    return figure


@style.styled
def cost(
    names: Sequence[str],
    datasets: Sequence[str],
    gpu_hours: npt.ArrayLike,
    tokens: npt.ArrayLike,
    title: str = "",
) -> Figure:
    """Inference time and completion tokens by model and data set, stacked (Figure 8 of 001).

    The sum stands beside each bar, with "≥" in front where a data set's value is not known. Models
    are sorted by their time, or by their tokens where no time is known.

    Args:
        names: L models.
        datasets: D data sets.
        gpu_hours: inference time in GPU-hours, shape (L, D), masked where unknown.
        tokens: completion tokens, shape (L, D), masked where unknown.
        title: what is shown.
    """
    hours, counts = plain(gpu_hours), plain(tokens)
    key = np.nansum(hours, axis=1) if np.isfinite(hours).any() else np.nansum(counts, axis=1)
    order = np.argsort(-key, kind="stable")
    figure, (left, right) = style.panels(PAGE, 1.2 + ROW * len(names), title, columns=2)
    _stack(left, hours[order], "inference time (GPU-hours)")
    scale, unit = _unit(counts)
    _stack(right, counts[order] / scale, f"completion tokens ({unit})")
    left.set_yticks(range(len(names)), [one_line(names[i]) for i in order])
    right.set_yticks(range(len(names)), [])
    handles = [Patch(**_fill(k)) for k in range(len(datasets))]
    labels = [one_line(name) for name in datasets]
    columns = style.legend_columns(labels, PAGE)
    style.legend(figure, handles, labels, loc="outside lower center", ncols=columns)
    return figure


def _unit(counts: Numbers) -> tuple[float, str]:
    """What to divide token counts by, and what the axis then calls them.

    >>> _unit(np.array([2.5e6])), _unit(np.array([300.0]))
    ((1000000.0, 'millions'), (1.0, 'number'))
    """
    most = np.nanmax(np.nansum(counts, axis=-1), initial=0)
    if most >= 1e6:
        return 1e6, "millions"
    return (1e3, "thousands") if most >= 1e4 else (1.0, "number")


def _fill(k: int) -> dict[str, Any]:
    colour = (COLOURS[4], COLOURS[1], COLOURS[5], COLOURS[6], COLOURS[3], COLOURS[0])[k % 6]
    hatch = HATCHES[(k + k // 6) % len(HATCHES)]
    return {"facecolor": colour, "hatch": hatch, "edgecolor": "white", "linewidth": 0}


def _stack(axes: Axes, values: Numbers, xlabel: str) -> None:
    rows = np.arange(len(values))
    left = np.zeros(len(values))
    for k, part in enumerate(np.nan_to_num(values).T):
        axes.barh(rows, part, left=left, height=0.75, **_fill(k))
        left += part
    for row, total, known in zip(rows, left, np.isfinite(values), strict=True):
        value = f"{'' if known.all() else '≥ '}{_short(total)}" if known.any() else "not known"
        axes.annotate(value, (total, row), (3, 0), textcoords="offset points", va="center",
                      fontsize=style.SMALL)  # fmt: skip
    axes.set(xlabel=xlabel, ylim=(len(values) - 0.5, -0.5))
    axes.set_xlim(0, (left.max(initial=0) or 1) * 1.22)  # room for the sum
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")


def _short(value: float) -> str:
    """Three digits at least, never an exponent.

    >>> _short(894.31), _short(48.4), _short(0.01234), _short(1234.5)
    ('894', '48.4', '0.0123', '1,234')
    """
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
