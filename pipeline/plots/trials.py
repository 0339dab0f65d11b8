"""Figures of what more trials buy: separating two close models, and priors of older ones."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import BLUE, INK, NORMAL, PAGE, Numbers, plain
from bayes_at_n.pipeline.plots.lines import Curve

SURE = 0.95
UNIFORM: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 2))}


@style.styled
def separation(
    probability: Curve,
    z: Curve,
    marks: Sequence[int],
    title: str,
    thresholds: Sequence[float] = (1.645, 1.96),
) -> Figure:
    """Draw the probability of the correct order of two models, and their |z|, by trials (Figure 3).

    `probability` is the share of replicates that order the two correctly by the number of trials,
    with a spread, each of shape (T,), and `z` the mean absolute z-score, likewise. Values at
    `marks` are written beside the curves; `thresholds` of z are drawn across the right panel.
    """
    at, chance = plain(probability.x), plain(probability.y)
    sure = at[chance >= SURE]
    finding = f"The order is correct with probability {SURE:g} " + (
        f"from N = {sure[0]:g} trials on" if sure.size else f"at no N up to {at[-1]:g}"
    )
    figure, both = style.panels(PAGE, 2.9, finding, columns=2, about=title)
    ylabels = ("probability of the correct order", "mean absolute z-score, |z|")
    for axes, letter, curve, ylabel in zip(both, "ab", (probability, z), ylabels, strict=True):
        n, y = plain(curve.x), plain(curve.y)
        axes.fill_between(n, *curve.interval(), color=BLUE, alpha=0.18, linewidth=0)
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
    """Drop a line from the curve at each mark; return the values at the marks as text."""
    values, range_of_y = [], axes.get_ylim()
    for mark in marks:
        value = float(np.interp(mark, n, y))
        drop = ((mark, mark), (range_of_y[0], value))
        axes.plot(*drop, color=INK, linewidth=0.7, linestyle=(0, (1, 2)))
        axes.plot([mark], [value], color=INK, marker="o", ls="")
        values.append(f"{value:.3g} at {mark}")
    axes.set_ylim(range_of_y)
    return "\n".join(textwrap.wrap(", ".join(values), 48))


@style.styled
def prior_gain(tau: Mapping[int, Curve], update_tau: npt.ArrayLike, title: str = "") -> Figure:
    """Draw τ before against after updates, τ by trials per prior, and the gain (Figure 2 of 001).

    `tau` is trials D of the older model in the prior -> mean Kendall's τ by trials of the updated
    models, the same for all D; D = 0, the uniform prior, is dashed, and the baseline of the gain.
    `update_tau` is τ between the models' order before and after each update, shape (R,).
    Raises KeyError: D = 0 is missing.
    """
    trials, uniform = plain(tau[0].x), plain(tau[0].y)
    figure, (shares, curves, gains) = style.panels(PAGE, 2.9, title, columns=3)
    sample = np.ravel(plain(update_tau))
    sample = np.round(sample[np.isfinite(sample)], 9)
    values, counts = np.unique(sample, return_counts=True)
    width = 0.8 * np.min(np.diff(values), initial=0.1)
    shares.bar(values, counts / len(sample), width=width, color=BLUE)
    shares.axvline(sample.mean(), **UNIFORM, linewidth=1)
    shares.set_title(f"(a)  mean {sample.mean():.2f}", loc="left")
    shares.set(xlabel="Kendall's τ, before and after", ylabel="share of updates")
    looks = style.palette(len(tau) + 1)
    handles, labels = [], []
    for i, (d, curve) in enumerate(sorted(tau.items())):
        y = plain(curve.y)
        look = looks[i] | {"linestyle": "-"} if d else {**UNIFORM, "marker": ""}
        marks = style.every(len(trials), i, 5)
        curves.plot(trials, y, **look, markevery=marks)
        if curve.low is not None:
            ends = curve.interval()
            curves.fill_between(trials, *ends, color=look["color"], alpha=0.18, linewidth=0)
        if d:
            gains.plot(trials, y - uniform, **look, markevery=marks)
        handles.append(Line2D([], [], **look))
        labels.append(f"D = {d}" if d else "uniform prior (D = 0)")
    gains.axhline(0, **UNIFORM, linewidth=1)
    for axes, letter, ylabel in (
        (curves, "b", "mean Kendall's τ to the true order"),
        (gains, "c", "gain in mean τ from the prior"),
    ):
        axes.set_title(f"({letter})", loc="left")
        axes.set(xlabel="trials N of the update", ylabel=ylabel)
        axes.set_xlim(trials[0], trials[-1])
    style.legend(figure, handles, labels, columns=6)
    return figure
