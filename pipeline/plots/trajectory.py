"""Figures of training runs: scores by step, and how well each protocol keeps their order."""

from collections.abc import Iterable, Mapping

import numpy.typing as npt
from matplotlib.figure import Figure

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import PAGE, one_line, plain
from bayes_at_n.pipeline.plots.lines import (
    LEGEND_LINE,
    bars,
    draw,
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


@style.styled
def curves(panels: Panels, title: str = "", ylabel: str = "score", interval: str = "") -> Figure:
    """Draw scores by training step, a panel per dataset, a line per protocol (Figures 2, 3 of MaP).

    A protocol looks the same in all panels; each panel has its own range of scores.

    `panels` are dataset -> protocol -> score by training step, drawn to scale; `interval` names the
    bands, such as "95% interval".
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

    Both panels share a range of scores, so that smoothness can be compared.

    `panels` are "single checkpoints" and "merged" -> training run -> score by step; `ahead`, drawn
    below, for each side pair ("a ahead of b") -> probability by step.
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
    """Draw the stability of each protocol by number of trials.

    `n` are numbers of trials, the ticks, shape (T,), and `tau` protocol -> Kendall's τ with the
    order of training, by the number of trials.
    """
    height = max(2.9, 0.7 + LEGEND_LINE * len(tau))
    figure, (axes,) = style.panels(PAGE, height, title)
    bars(axes, tau, looks := looks_of(tau), dodge=True)
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
