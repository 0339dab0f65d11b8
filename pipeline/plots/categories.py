"""Stacked bars of the categories that attempts fall into."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from pipeline.display import style
from pipeline.display.style import COLOURS, GREY, HATCHES, PAGE, TALLEST, one_line

ROW, MARGIN = 0.16, 1.3  # inches


@style.styled
def category_shares(
    title: str,
    categories: Sequence[str],
    counts: npt.NDArray[np.int64],
    weights: Sequence[float],
    names: Sequence[str],
    what: str = "question, from easy",
) -> Figure:
    """Stacked bars of category shares: all attempts on top, then one bar a question (or model).

    Questions are in the order of their mean weight, so that the picture reads from easy to hard;
    those without an attempt come last, without a bar. Where a page has no room for all names,
    every k-th stands.

    Args:
        title: what is shown.
        categories: names, from 0 to C.
        counts: attempts of each category at each question, shape (M, C + 1).
        weights: of the categories, from 0 to C.
        names: of the M questions.
        what: what a bar is, and what is on top.
    """
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    scores = np.where(counts.any(axis=1), shares @ np.asarray(weights, float), -np.inf)
    order = np.argsort(-scores, kind="stable")
    every = counts.sum(axis=0) / max(counts.sum(), 1)
    rows = np.vstack([every, np.zeros(every.size), shares[order]])
    labels = [one_line(name) for name in categories]
    columns = style.legend_columns(labels, PAGE)
    margin = MARGIN + 0.16 * -(-len(labels) // columns)
    height = min(TALLEST, margin + max(ROW * len(rows), 1.9))
    step = int(np.ceil(0.12 * len(rows) / (height - margin)))
    figure, (axes,) = style.panels(PAGE, height, title)
    left, handles = np.zeros(len(rows)), []
    palette = [GREY, *(COLOURS[i % len(COLOURS)] for i in range(len(categories) - 1))]
    for k, _ in enumerate(categories):
        handles.append(
            axes.barh(
                range(len(rows)), rows[:, k], left=left, height=0.9, color=palette[k],
                hatch=HATCHES[k % len(HATCHES)], edgecolor="white", linewidth=0,
            )
        )  # fmt: skip
        left += rows[:, k]
    axes.set(xlim=(0, 1), ylim=(len(rows) - 0.4, -0.6))
    axes.set_xlabel("share of attempts")
    some = "" if step == 1 else f" (one of {step} is named)"
    axes.set_ylabel(f"{what}{some}")
    ticks = ["all", *(one_line(names[i], 24) for i in order[::step])]
    axes.set_yticks([0, *range(2, len(rows), step)], ticks, fontsize=style.SMALL)
    axes.tick_params(axis="y", length=0)
    style.legend(figure, handles, labels, loc="outside lower center", ncols=columns)
    return figure
