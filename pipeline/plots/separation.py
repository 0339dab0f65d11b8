"""Figure of how many trials it takes to tell two close models apart."""

import textwrap
from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pipeline.display import style
from pipeline.display.style import BLUE, INK, NORMAL, PAGE, Numbers, plain


@style.styled
def separation(
    trials: npt.ArrayLike,
    probability: npt.ArrayLike,
    z: npt.ArrayLike,
    bands: Mapping[str, tuple[npt.ArrayLike, npt.ArrayLike]],
    marks: Sequence[int],
    title: str,
    thresholds: Sequence[float] = (1.645, 1.96),
) -> Figure:
    """Probability of the correct order of two models, and their |z|, by trials (Figure 3).

    Args:
        trials: numbers of trials, shape (T,).
        probability: share of replicates that order the two correctly, shape (T,).
        z: mean absolute z-score, shape (T,).
        bands: "probability" and "z" -> lower and upper ends of a spread, each of shape (T,).
        marks: numbers of trials whose values are written beside the curves.
        title: what is shown.
        thresholds: values of z that are drawn across the right panel.
    """
    n = plain(trials)
    figure, both = style.panels(PAGE, 2.9, title, columns=2)
    drawn = (("probability", plain(probability), "probability of the correct order"),
             ("z", plain(z), "mean absolute z-score, |z|"))  # fmt: skip
    for axes, letter, (key, y, ylabel) in zip(both, "ab", drawn, strict=True):
        low, high = (plain(end) for end in bands[key])
        axes.fill_between(n, low, high, color=BLUE, alpha=0.18, linewidth=0)
        axes.plot(n, y, color=BLUE)
        axes.set(xlabel="number of trials N (per question)", ylabel=ylabel)
        axes.set_xlim(n[0], n[-1])
        axes.set_title(f"({letter})  {_mark(axes, n, y, marks)}", loc="left", fontsize=NORMAL)
    for value in thresholds:
        both[1].axhline(value, color=INK, linewidth=0.7, linestyle=(0, (1, 2)))
        both[1].annotate(f"z = {value:g}", (0, value), (3, 2), textcoords="offset points",
                         xycoords=both[1].get_yaxis_transform(), va="bottom")  # fmt: skip
    return figure


def _mark(axes: Axes, n: Numbers, y: Numbers, marks: Sequence[int]) -> str:
    """Drop a line from the curve at each mark; returns N and the values in words."""
    values, range_of_y = [], axes.get_ylim()
    for mark in marks:
        value = float(np.interp(mark, n, y))
        drop = ((mark, mark), (range_of_y[0], value))
        axes.plot(*drop, color=INK, linewidth=0.7, linestyle=(0, (1, 2)))
        axes.plot([mark], [value], color=INK, marker="o", ls="")
        values.append(f"{value:.3g} at {mark}")
    axes.set_ylim(range_of_y)
    return "\n".join(textwrap.wrap(", ".join(values), 48))
