"""Figures of sampling that stops by itself: estimates and evidence over what was spent."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from pipeline.display import style
from pipeline.display.style import GUIDE, NORMAL, PAGE
from pipeline.plots import lines

_BANDS = 6  # models whose intervals can be told from each other


@style.styled
def race(
    names: Sequence[str],
    estimates: tuple[npt.ArrayLike, npt.ArrayLike, npt.ArrayLike],
    evidence: npt.ArrayLike,
    sampled: npt.ArrayLike,
    spent: npt.ArrayLike,
    unit: str,
    title: str,
) -> Figure:
    """Mean and interval of each model, and the evidence that the leader is better, look by look.

    Args:
        names: of K models.
        estimates: means, and ends of their intervals: (L, K) each, of L looks.
        evidence: natural log of the e-value of "the leader is better than this model": (L, K),
            NaN for the leader.
        sampled: whether the model was still sampled for the look: (L, K). Its lines end there.
        spent: of all models together by then (L,), in `unit`, "tokens" or "attempts".
        title: what is shown.
    """
    figure, (left, right) = style.panels(PAGE, 3.2, title, columns=2)
    looks = lines.looks_of(names)
    mean, low, high = (style.plain(part) for part in estimates)
    proof, live = style.plain(evidence) / np.log(10), np.asarray(sampled, dtype=bool)
    x = style.plain(spent)
    for k, name in enumerate(names):
        at = live[:, k]
        drawn = looks[name] | {"markevery": [int(at.sum()) - 1], "clip_on": False}
        left.plot(x[at], mean[at, k], **drawn)
        if len(names) <= _BANDS:
            color = looks[name]["color"]
            left.fill_between(x[at], low[at, k], high[at, k], color=color, alpha=0.12, linewidth=0)
        if np.isfinite(proof[at, k]).any():
            right.plot(x[at], proof[at, k], **drawn)
    right.axhline(0, **GUIDE)
    for axes, head, what in (
        (left, "accuracy", "mean of rounds"),
        (right, "the leader is better: evidence", "log10 of the e-value"),
    ):
        axes.set_title(head, fontsize=NORMAL, loc="left")
        axes.set(xlabel=f"{unit} spent on all models", ylabel=what)
        axes.set_xlim(left=0)
    lines.key(figure, {style.one_line(name): looks[name] for name in names}, beside=False)
    return figure
