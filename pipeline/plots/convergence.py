"""Figures of how soon a ranking settles: convergence@n and Kendall's τ as trials are added."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from pipeline.display import style
from pipeline.display.style import PAGE, one_line, plain

HEIGHT = 2.9
SETTLED = "convergence@n: trials (per question) after which the ranking stays"


@style.styled
def pmf(
    n: npt.ArrayLike,
    masses: Mapping[str, npt.ArrayLike],
    means: Mapping[str, float | None],
    converged: Mapping[str, float],
    title: str = "",
) -> Figure:
    """Probability mass functions of convergence@n, their means as vertical lines (Figure 1 of 000).

    An estimator that never converged has a line in the legend that says so, and nothing else.

    Args:
        n: numbers of trials, shape (T,).
        masses: estimator -> share of all replicates that converged at exactly n, shape (T,).
        means: estimator -> mean over the replicates that converged, None when there are none.
        converged: estimator -> share of replicates that converged, from 0 to 1.
        title: what is shown.
    """
    trials = plain(n)
    figure, axes, looks = _frame(masses, title)
    for i, (label, look) in enumerate(looks.items()):
        if not converged[label]:
            continue
        mass = plain(masses[label])
        axes.plot(trials, mass, **look, drawstyle="steps-mid", markevery=style.every(len(mass), i))
        axes.fill_between(trials, mass, step="mid", color=look["color"], alpha=0.12, linewidth=0)
        mean = means[label]
        if mean is not None:
            axes.axvline(mean, color=look["color"], linestyle=look["linestyle"], linewidth=0.9)
            axes.plot(mean, 1, **look, transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set(xlabel=SETTLED, ylabel="share of replicates, per trial")
    axes.set_xlim(trials[0] - 0.5, trials[-1] + 0.5)
    axes.set_ylim(bottom=0)
    _key(figure, looks, {label: _settled(means[label], converged[label]) for label in masses})
    return figure


@style.styled
def cdf(
    n: npt.ArrayLike,
    masses: Mapping[str, npt.ArrayLike],
    means: Mapping[str, float | None],
    converged: Mapping[str, float],
    title: str = "",
) -> Figure:
    """Cumulative distribution of convergence@n, which ends at the share that converged.

    Figure 6 of 000, Figure 9 of 001. The arguments are those of ``pmf``.
    """
    trials = plain(n)
    figure, axes, looks = _frame(masses, title)
    for i, (label, look) in enumerate(looks.items()):
        if not converged[label]:
            continue
        below = np.cumsum(plain(masses[label]))
        marks = style.every(len(below), i)
        axes.plot(trials, below, **look, drawstyle="steps-post", markevery=marks)
    axes.set(xlabel=SETTLED, ylabel="share of replicates settled by n")
    axes.set(xlim=(trials[0], trials[-1]), ylim=(0, 1.02))
    axes.grid(axis="y")
    _key(figure, looks, {label: _settled(means[label], converged[label]) for label in masses})
    return figure


def _frame(
    labels: Iterable[str], title: str, height: float = HEIGHT
) -> tuple[Figure, Axes, dict[str, dict[str, Any]]]:
    """An empty figure of one panel, and the look of each line."""
    figure, (axes,) = style.panels(PAGE, height, title)
    names = list(labels)
    return figure, axes, dict(zip(names, style.palette(len(names)), strict=True))


def _settled(mean: float | None, share: float) -> str:
    if mean is None or not share:
        return "does not converge"
    return f"mean {mean:.1f} trials, {_percent(share)} converge"


def _percent(share: float) -> str:
    """A share in words that says 0 or 100 only where that is so.

    >>> _percent(1.0), _percent(0.9999), _percent(0.25), _percent(0.0001)
    ('100 %', '>99.9 %', '25.0 %', '<0.1 %')
    """
    if 0 < share < 0.001:
        return "<0.1 %"
    if 0.999 < share < 1:
        return ">99.9 %"
    return f"{share:.0%}".replace("%", " %") if share in (0, 1) else f"{100 * share:.1f} %"


def _key(figure: Figure, looks: Mapping[str, dict[str, Any]], words: Mapping[str, str]) -> None:
    """A legend right of the data: the estimator, and under it in words what its line shows."""
    handles = [Line2D([], [], **look) for look in looks.values()]
    labels = [
        one_line(label) + (f"\n{words[label]}" if words.get(label) else "") for label in looks
    ]
    style.legend(figure, handles, labels, loc="outside right upper")


@style.styled
def tau_curves(
    n: npt.ArrayLike,
    tau: Mapping[str, npt.ArrayLike],
    title: str = "",
    against: str = "the gold ranking",
) -> Figure:
    """Mean Kendall's τ against a known ranking as trials are added (Figures 2 and 4 of 000).

    Args:
        n: numbers of trials, shape (T,).
        tau: estimator -> mean τ, shape (T,), masked where the estimator is undefined (Pass@k
            below k trials) or every replicate was all ties.
        title: what is shown.
        against: that ranking, as the axis says it.
    """
    trials = plain(n)
    figure, axes, looks = _frame(tau, title, max(HEIGHT, 0.6 + 0.17 * len(tau)))
    for i, (label, look) in enumerate(looks.items()):
        axes.plot(trials, plain(tau[label]), **look, markevery=style.every(len(trials), i))
    axes.set(xlabel="number of trials n (per question)", ylabel=f"mean Kendall's τ to {against}")
    axes.set_xlim(trials[0], trials[-1])
    axes.set_ylim(top=1.01)
    axes.grid(axis="y")
    _key(figure, looks, {})
    return figure


@style.styled
def subsets(
    sizes: Sequence[int],
    values: Mapping[int, npt.ArrayLike],
    title: str = "",
    n_max: int | None = None,
) -> Figure:
    """Distribution of convergence@n by the number of models ranked (Figure 6 of 001).

    One empirical distribution function a size, over all its subsets and replicates. It ends at the
    share that converged within ``n_max`` trials.

    Args:
        sizes: numbers of models, in the order of the legend.
        values: size -> convergence@n of each replicate of each subset, shape (R,), masked or NaN
            where the ranking did not settle.
        title: what is shown.
        n_max: trials that were made; None means the largest value.
    """
    known = {size: np.ravel(plain(values[size])) for size in sizes}
    settled = {size: np.sort(one[np.isfinite(one)]) for size, one in known.items()}
    last = n_max or int(max((one[-1] for one in settled.values() if len(one)), default=1))
    figure, axes, looks = _frame((f"L = {size} models" for size in sizes), title)
    words = {}
    grid = np.arange(0, last + 1)
    for i, (size, (label, look)) in enumerate(zip(sizes, looks.items(), strict=True)):
        one, total = settled[size], len(known[size])
        words[label] = _settled(float(one.mean()) if len(one) else None, len(one) / max(total, 1))
        if len(one):
            share = np.searchsorted(one, grid, side="right") / total
            marks = style.every(len(grid), i)
            axes.plot(grid, share, **look, drawstyle="steps-post", markevery=marks)
    axes.set(xlabel=SETTLED, ylabel="share of rankings settled by n")
    axes.set(xlim=(0, last), ylim=(0, 1.02))
    axes.grid(axis="y")
    _key(figure, looks, words)
    return figure
