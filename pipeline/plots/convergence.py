"""Figures of how soon a ranking converges: convergence@n and Kendall's τ by trials."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from bayes_at_n.pipeline.display import style
from bayes_at_n.pipeline.display.style import PAGE, Numbers, one_line, plain
from bayes_at_n.pipeline.plots.lines import Looks, key, label_rows, looks_of

HEIGHT = 2.9
CONVERGED = "convergence@n: trials (per question) after which a sample's order is final"


@style.styled
def pmf(n: npt.ArrayLike, masses: Mapping[str, npt.ArrayLike], title: str = "") -> Figure:
    """Draw probability mass functions of convergence@n with their means (Figure 1 of 000).

    An estimator that never converged appears in the legend only.

    `n` are numbers of trials, shape (T,), and `masses` by estimator the share of all replicates
    that converged at exactly n, shape (T,).
    """
    trials, looks, words = plain(n), looks_of(masses), {}
    figure, (axes,) = style.panels(PAGE, HEIGHT, title)
    for i, (label, look) in enumerate(looks.items()):
        mass = plain(masses[label])
        words[label] = _summary(trials, mass)
        if not mass.any():
            continue
        axes.plot(trials, mass, **look, drawstyle="steps-mid", markevery=style.every(len(mass), i))
        axes.fill_between(trials, mass, step="mid", color=look["color"], alpha=0.12, linewidth=0)
        mean = _mean(trials, mass)
        axes.axvline(mean, color=look["color"], linestyle=look["linestyle"], linewidth=0.9)
        axes.plot(mean, 1, **look, transform=axes.get_xaxis_transform(), clip_on=False)
    axes.set(xlabel=CONVERGED, ylabel="share of replicates, per trial")
    axes.set_xlim(trials[0] - 0.5, trials[-1] + 0.5)
    axes.set_ylim(bottom=0)
    key(figure, looks, words=words)
    return figure


@style.styled
def cdf(
    n: npt.ArrayLike,
    masses: Mapping[str, npt.ArrayLike],
    title: str = "",
    ylabel: str = "share of replicates converged by n",
) -> Figure:
    """Draw the cumulative distribution of convergence@n, which ends at the share that converged.

    Figure 6 of 000, Figure 9 of 001. The arguments are those of ``pmf``.
    """
    trials, looks = plain(n), looks_of(masses)
    figure, (axes,) = style.panels(PAGE, HEIGHT, title)
    shares = {label: plain(mass) for label, mass in masses.items()}
    below = {label: mass.cumsum() for label, mass in shares.items() if mass.any()}
    _lines(axes, trials, below, looks, "steps-post")
    axes.set(xlabel=CONVERGED, ylabel=ylabel, ylim=(0, 1.02))
    words = {label: _summary(trials, mass) for label, mass in shares.items()}
    key(figure, looks, words=words)
    return figure


@style.styled
def subsets(
    sizes: Sequence[int], values: Mapping[int, npt.ArrayLike], title: str, n_max: int
) -> Figure:
    """Draw the distribution of convergence@n by the number of models ranked (Figure 6 of 001).

    One empirical distribution function per size, over all its subsets and replicates. It ends at
    the share that converged within ``n_max`` trials.

    `values` are convergence@n of each replicate of each subset by size, shape (R,), masked or NaN
    where the ranking did not converge; `sizes` are numbers of models, in the order of the legend.
    """
    masses = {}
    for size in sizes:
        points = np.ravel(plain(values[size]))
        converged = points[np.isfinite(points)].astype(int)
        masses[f"L = {size} models"] = np.bincount(converged, minlength=n_max + 1) / len(points)
    return cdf(np.arange(n_max + 1), masses, title, "share of rankings converged by n")


@style.styled
def tau_curves(
    n: npt.ArrayLike,
    tau: Mapping[str, npt.ArrayLike],
    title: str = "",
    against: str = "the gold ranking",
) -> Figure:
    """Draw mean Kendall's τ against a reference ranking by trials (Figures 2 and 4 of 000).

    `n` are numbers of trials, shape (T,), and `tau` by estimator the mean τ, shape (T,), masked
    where the estimator is undefined (Pass@k below k trials) or every replicate was all ties.
    `against` names that ranking on the axis.
    """
    looks = looks_of(tau)
    figure, (axes,) = style.panels(PAGE, max(HEIGHT, 0.6 + 0.17 * len(tau)), title)
    _lines(axes, plain(n), {label: plain(curve) for label, curve in tau.items()}, looks)
    axes.set(xlabel="number of trials n (per question)", ylabel=f"mean Kendall's τ to {against}")
    axes.set_ylim(top=1.01)
    key(figure, looks)
    return figure


@style.styled
def agreement(methods: Sequence[str], taus: npt.ArrayLike, title: str = "") -> Figure:
    """Draw `taus` with the gold ranking, (K, 3): all trials, mean and σ of one; may be NaN."""
    names, rows = [one_line(name) for name in methods], np.arange(len(methods))
    whole, means, spread = plain(taus).T
    figure, (axes,) = style.panels(PAGE, 1.25 + 0.15 * len(names), title)
    blue, red = (look["color"] for look in style.palette(2))
    axes.errorbar(means, rows, xerr=np.nan_to_num(spread), fmt="o", color=red, markersize=3.4,
                  linewidth=0.9, label="N = 1: mean, and spread over replicates")  # fmt: skip
    axes.plot(whole, rows, "D", color=blue, markersize=3.4, label="all trials")
    label_rows(axes, names, [f"{mean:.3f}" for mean in means], ("method", "N = 1"))
    axes.set(xlabel="Kendall's τ with the gold ranking")
    axes.grid(axis="x")
    style.legend(figure, *axes.get_legend_handles_labels(), False)
    return figure


def _lines(
    axes: Axes, n: Numbers, lines: Mapping[str, Numbers], looks: Looks, drawstyle: str = "default"
) -> None:
    """Draw the lines over all trials, in the order of their looks."""
    for i, (label, look) in enumerate(looks.items()):
        if label in lines:
            axes.plot(
                n, lines[label], **look, drawstyle=drawstyle, markevery=style.every(len(n), i)
            )
    axes.set_xlim(n[0], n[-1])
    axes.grid(axis="y")


def _mean(n: Numbers, mass: Numbers) -> float:
    return float(mass @ n / mass.sum())


def _summary(n: Numbers, mass: Numbers) -> str:
    if not mass.any():
        return "does not converge"
    return f"mean {_mean(n, mass):.1f} trials, {_percent(mass.sum())} converge"


def _percent(share: float) -> str:
    """Format a share as a percentage, which is 0 or 100 only if exact.

    >>> _percent(1.0), _percent(0.9999), _percent(0.25), _percent(0.0001)
    ('100%', '>99.9%', '25.0%', '<0.1%')
    """
    if 0 < share < 0.001:
        return "<0.1%"
    if 0.999 < share < 1 - 1e-12:  # masses need not add up to 1 exactly
        return ">99.9%"
    return f"{share:.0%}" if share > 0.999 else f"{share:.1%}"
