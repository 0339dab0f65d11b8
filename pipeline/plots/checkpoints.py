"""Figures of checkpoints: scores by step, and ranks before and after fine-tuning."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import BLUE, NORMAL, PAGE, RED, Numbers, one_line, plain
from bayes_at_n.pipeline.plots.lines import (
    LEGEND_LINE,
    draw,
    end_labels,
    key,
    legend_rows,
    log_ticks,
    looks_of,
    steps_axis,
)
from bayes_at_n.pipeline.plots.lines import Curve as Curve

ACROSS = 4  # most panels in a row
STEP = "training step"
TAU = "τ with training order, ties discordant"
TRIALS = "number of trials n (per question)"
CHANCE = 0.5
Panels = Mapping[str, Mapping[str, Curve]]  # head -> label -> line
ROW = 0.17  # inches of a name
FEWEST = 10  # minimum height of a panel, in names
Panel = tuple[npt.ArrayLike, npt.ArrayLike, float]


@style.styled
def curves(panels: Panels, title: str = "", ylabel: str = "score", interval: str = "") -> Figure:
    """Draw scores by training step, a panel per dataset, a line per protocol (Figures 2, 3 of MaP).

    `panels` are dataset -> protocol -> score by training step, drawn to scale, each with a range of
    its own; `interval` names the bands, such as "95% interval".
    """
    looks = looks_of(_labels(panels))
    rows = -(-len(panels) // ACROSS)
    columns = -(-len(panels) // rows)
    beside = len(panels) == 1
    below = 0.0 if beside else LEGEND_LINE * legend_rows([*looks])
    high = 2.5 if rows == 1 else min(1.75, (style.TALLEST - 0.7 - below) / rows)
    figure, places = style.panels(PAGE, 0.6 + below + high * rows, title, columns, rows)
    for axes in places[len(panels) :]:
        axes.remove()
    for k, (name, lines) in enumerate(panels.items()):
        axes = places[k]
        if not beside:
            axes.set_title(one_line(name, 96 // columns), fontsize=style.NORMAL, loc="left")
        draw(axes, lines, looks, 24 // columns)
        steps_axis(axes, lines.values(), 7 if columns < 3 else 4)
        if k % columns == 0:
            axes.set_ylabel(ylabel)
        if k + columns >= len(panels):
            axes.set_xlabel(STEP)
    key(figure, looks, beside, band=_interval("bands", interval, panels.values()))
    return figure


@style.styled
def side_by_side(
    panels: Panels,
    ahead: Panels | None = None,
    title: str = "",
    ylabel: str = "score",
    interval: str = "",
) -> Figure:
    """Draw training runs side by side, single checkpoints and merged ones (Figure 4 of MaP).

    `panels` are "single checkpoints" and "merged" -> training run -> score by step, in one range;
    `ahead`, drawn below, for each side pair ("a ahead of b") -> probability by step.
    """
    below = ahead or {}
    pairs = _labels(below)
    looks = looks_of([*_labels(panels), *pairs])
    size = 3.0 + 1.35 * bool(pairs) + LEGEND_LINE * legend_rows([*looks])
    figure, axes = style.panels(PAGE, size, title, 2, 2 if pairs else 1)
    steps = [line for lines in panels.values() for line in lines.values()]
    if pairs:
        axes[0].get_gridspec().set_height_ratios([1.7, 1])  # type: ignore[union-attr]
    for panel, lines in zip(axes[2:], below.values(), strict=False):
        panel.axhline(CHANCE, **style.GUIDE)
        panel.set(ylim=(-0.03, 1.03), ylabel="P(ahead)" if panel is axes[2] else "")
        draw(panel, lines, {label: looks[label] for label in pairs}, 10)
        panel.set_yticks([0, 0.5, 1])
    for panel, (head, lines) in zip(axes, panels.items(), strict=False):
        panel.set_title(one_line(head), fontsize=style.NORMAL, loc="left")
        draw(panel, lines, {label: looks[label] for label in looks if label not in pairs}, 10)
    for i, panel in enumerate(axes):
        steps_axis(panel, steps, 6)
        panel.set_xlabel(STEP if i >= len(axes) - 2 else "")
    axes[0].set_ylabel(ylabel)
    axes[1].sharey(axes[0])
    axes[0].autoscale(axis="y")
    band = _interval("bands", interval, [*panels.values(), *below.values()])
    key(figure, looks, beside=False, band=band)
    return figure


@style.styled
def stability_by_samples(
    n: npt.ArrayLike, tau: Mapping[str, Curve], title: str = "", interval: str = ""
) -> Figure:
    """Draw τ with the order of training by numbers of trials, whose ticks are `n`, by protocol."""
    height = max(2.9, 0.7 + LEGEND_LINE * len(tau))
    figure, (axes,) = style.panels(PAGE, height, title)
    looks = looks_of(tau)
    for i, (label, look) in enumerate(looks.items()):  # each is shifted so that none hides another
        line = tau[label]
        x = plain(line.x) * 1.018 ** (i - (len(looks) - 1) / 2)
        axes.plot(x, plain(line.y), **look, zorder=3, linewidth=1.0)
        if line.low is not None:
            axes.vlines(x, *line.interval(), color=look["color"], linewidth=0.9, alpha=0.7)
    axes.set(xlabel=f"{TRIALS}{_interval('; lines', interval, [tau])}", ylabel=TAU)
    key(figure, looks)
    axes.set_xscale("log", base=2)
    log_ticks(axes, plain(n), [f"{value:g}" for value in plain(n)])
    axes.grid(axis="y")
    return figure


def _labels(panels: Panels) -> list[str]:
    return list(dict.fromkeys(label for lines in panels.values() for label in lines))


def _interval(what: str, interval: str, panels: Iterable[Mapping[str, Curve]]) -> str:
    """Return the label of the intervals; "" if no line has one."""
    banded = any(line.low is not None for lines in panels for line in lines.values())
    return f"{what}: {interval}" if interval and banded else ""


@style.styled
def rank_scatter(names: Sequence[str], panels: Mapping[str, Panel], title: str = "") -> Figure:
    """Draw ranks after by ranks before, a panel per protocol (Figure 5 of MaP, left and middle).

    `panels`: protocol -> ranks before and after, 1 the best, each of shape (L,) for L models, and
    the share of pairs that reverse. Models on the diagonal kept their rank.
    """
    last = len(names)
    high = 1.3 + ROW * max(last, FEWEST)
    figure, axes = style.panels(PAGE, min(high, style.TALLEST), title, len(panels))
    looks = style.palette(last)
    across = range(1, last + 1, -(-last * len(panels) // 20))
    up = range(1, last + 1, -(-last // 20))
    labels = [one_line(name, 44 // len(panels) - 4) for name in names]
    # Gray leader lines from rows to names, with the models' markers.
    leaders = [
        {"color": style.GRAY, "linewidth": 0.6, "marker": look["marker"],
         "markerfacecolor": look["color"], "markeredgecolor": look["color"]}
        for look in looks
    ]  # fmt: skip
    for panel, (label, (before, after, rate)) in zip(axes, panels.items(), strict=True):
        x, y = plain(before), plain(after)
        _scatter(panel, x, y, looks)
        panel.set(xlim=(0.4, last + 0.6), ylim=(0.4, last + 0.6), xticks=across, yticks=up)
        head = f"{one_line(label, 30)}: PRR {rate:.1%}"
        panel.set_title(head, fontsize=NORMAL, loc="left")
        panel.set(xlabel="rank before (1 is best)", ylabel="rank after (1 is best)")
        end_labels(panel, y, labels, leaders, 0.95 * last / max(last, FEWEST))
    return figure


def _scatter(axes: Axes, x: Numbers, y: Numbers, looks: Sequence[Mapping[str, Any]]) -> None:
    """Draw models at their ranks; further models at the same point are rings around the first."""
    last = len(x)
    axes.plot([1, last], [1, last], **style.GUIDE, zorder=1)
    axes.grid()
    drawn: Counter[tuple[float, float]] = Counter()
    for at_x, at_y, look in zip(x, y, looks, strict=True):
        times = drawn[at_x, at_y]
        drawn[at_x, at_y] += 1
        axes.plot(
            at_x, at_y, color=look["color"], marker=look["marker"], linestyle="",
            markersize=5 + 4 * times, markerfacecolor="none" if times else look["color"],
            zorder=3 - 0.1 * times,
        )  # fmt: skip


@style.styled
def trend(
    prr: Curve,
    cost: npt.ArrayLike | None = None,
    title: str = "",
    mean: npt.ArrayLike | None = None,
    interval: str = "95% interval",
) -> Figure:
    """Draw the pairwise reversal rate of Pass@k by k, and its cost (Figure 5 of MaP, right).

    `prr` are reversal rates of the scores by k, with intervals, shape (K,); `mean` posterior means
    of the rate, which may lie above it. `cost`, of k attempts on every question by one model, as in
    MaP, whatever the scores are computed from, has an axis of its own.
    """
    k, (low, high) = plain(prr.x), prr.interval()
    figure, (axes,) = style.panels(PAGE, 2.9, title)
    rates: dict[str, Any] = {"color": BLUE, "marker": "o", "linestyle": "-"}
    bars: dict[str, Any] = {"color": BLUE, "linewidth": 5, "alpha": 0.3}
    means = {**rates, "marker": "_", "linestyle": "", "markersize": 9, "markeredgewidth": 1.4}
    looks = {"PRR of the scores": rates, f"posterior, {interval}": bars}
    axes.vlines(k, low, high, **bars)
    axes.plot(k, plain(prr.y), **rates, zorder=4)
    if mean is not None:
        axes.plot(k, plain(mean), **means, zorder=3)
        looks["posterior mean"] = means
    axes.axhline(CHANCE, **style.GUIDE)
    looks["chance"] = style.GUIDE
    axes.set_xscale("log", base=2)
    log_ticks(axes, k, [f"{value:g}" for value in k])
    top = max(0.55, float(np.nanmax(high, initial=0)) * 1.06)
    axes.set(xlabel="k of Pass@k", ylabel="pairs that reverse (share)", ylim=(-0.02, top))
    axes.grid(axis="y")
    if cost is not None:
        looks["cost of k attempts (right)"] = _cost(axes, k, plain(cost))
    key(figure, looks)
    return figure


def _cost(axes: Axes, k: Numbers, cost: Numbers) -> dict[str, Any]:
    """Draw costs, from zero, on a second axis; return the line's look."""
    look: dict[str, Any] = {"color": RED, "marker": "s", "linestyle": style.DASHES[1]}
    look["markerfacecolor"] = "white"
    other = axes.twinx()
    other.plot(k, cost, **look, zorder=2)
    other.set_ylim(0, float(np.nanmax(cost, initial=0)) * 1.08 or 1)
    other.set_ylabel("cost of k attempts (as in MaP)")
    other.spines["right"].set_visible(True)
    other.yaxis.set_major_formatter(lambda y, _: f"{y:,.12g}")
    return look
