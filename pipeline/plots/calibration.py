"""Reliability diagram of the verifier's probabilities."""

from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from scipy.stats import binomtest

from pipeline.display import style
from pipeline.display.style import COLOURS, GREY

LEVEL = 0.95


@style.styled
def reliability(title: str, table: dict[str, Any]) -> Figure:
    """Reliability diagram of P(A), before and after calibration.

    Points are bins: mean predicted probability across, observed share of correct attempts upwards
    with its Wilson interval, the area by the bin's share of attempts. On the diagonal probabilities
    are what they say.

    Args:
        title: what is shown.
        table: what ``verifiers.judge.quality.report`` returned.
    """
    figure, (axes,) = style.panels(4.4, 4.6, title)
    (diagonal,) = axes.plot([0, 1], [0, 1], color=GREY, linewidth=1, linestyle=(0, (4, 2)))
    handles, labels = [diagonal], ["probabilities are what they say"]
    names = {"before": "softmax", "after": f"calibrated, T = {table['temperature']:g}"}
    looks: tuple[dict[str, Any], ...] = (
        {"color": COLOURS[0], "marker": "s", "linestyle": style.DASHES[1]},
        {"color": COLOURS[4], "marker": "o", "linestyle": "-"},
    )
    for (side, name), look in zip(names.items(), looks, strict=True):
        diagram = table[side]["reliability"]["a"]
        bins = zip(diagram["predicted"], diagram["observed"], diagram["counts"], strict=True)
        x, y, n = (np.array(one) for one in zip(*(b for b in bins if b[2]), strict=True))
        ends = [binomtest(round(p * k), int(k)).proportion_ci(LEVEL, "wilson")
                for p, k in zip(y, n, strict=True)]  # fmt: skip
        low, high = np.array([end.low for end in ends]), np.array([end.high for end in ends])
        axes.vlines(x, low, high, color=look["color"], linewidth=0.9, alpha=0.8)
        axes.plot(x, y, color=look["color"], linestyle=look["linestyle"], linewidth=1)
        inside = "white" if side == "before" else look["color"]
        axes.scatter(x, y, s=12 + 160 * n / n.sum(), marker=look["marker"],
                     facecolors=inside, edgecolors=look["color"], zorder=3)  # fmt: skip
        handles.append(Line2D([], [], **look, markerfacecolor=inside))
        labels.append(name)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03), aspect="equal")
    axes.set_xlabel("predicted probability of correct, mean of the bin")
    axes.set_ylabel(f"observed share of correct, with {LEVEL:.0%} interval".replace("%", " %"))
    style.legend(figure, handles, labels, loc="outside lower center", ncols=1)
    return figure
