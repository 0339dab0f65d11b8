"""Figure of what results of an older model are worth as a prior for its update."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.display import style
from pipeline.display.style import BLUE, INK, PAGE, plain

UNIFORM: dict[str, Any] = {"color": INK, "linestyle": (0, (4, 2))}


@style.styled
def prior_gain(
    n: npt.ArrayLike,
    tau: Mapping[int, npt.ArrayLike],
    update_tau: npt.ArrayLike,
    title: str = "",
    bands: Mapping[int, tuple[npt.ArrayLike, npt.ArrayLike]] | None = None,
) -> Figure:
    """Order before and after updates, τ by trials for each prior, and its gain (Figure 2 of 001).

    Args:
        n: numbers of trials of the updated models, shape (T,).
        tau: trials D of the older model in the prior -> mean Kendall's τ, shape (T,). D = 0 is the
            uniform prior: it is dashed, and what the gain is measured from.
        update_tau: τ between the models' order before and after each update, shape (R,).
        title: what is shown.
        bands: D -> ends of an interval for the mean τ, each of shape (T,).

    Raises:
        KeyError: without D = 0.
    """
    trials, uniform = plain(n), plain(tau[0])
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
        y = plain(curve)
        look = looks[i] | {"linestyle": "-"} if d else {**UNIFORM, "marker": ""}
        marks = style.every(len(trials), i, 5)
        curves.plot(trials, y, **look, markevery=marks)
        if bands and d in bands:
            ends = plain(bands[d][0]), plain(bands[d][1])
            curves.fill_between(trials, *ends, color=look["color"], alpha=0.18, linewidth=0)
        if d:
            gains.plot(trials, y - uniform, **look, markevery=marks)
        handles.append(Line2D([], [], **look))
        labels.append(f"D = {d}" if d else "uniform prior (D = 0)")
    gains.axhline(0, **UNIFORM, linewidth=1)
    for axes, letter, ylabel in (
        (curves, "b", "mean Kendall's τ to the true order"),
        (gains, "c", "gain in mean τ by the prior"),
    ):
        axes.set_title(f"({letter})", loc="left")
        axes.set(xlabel="trials N of the update", ylabel=ylabel)
        axes.set_xlim(trials[0], trials[-1])
    style.legend(figure, handles, labels, loc="outside lower center", ncols=6)
    return figure
