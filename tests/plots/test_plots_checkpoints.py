"""Figures of checkpoints: what is drawn is what was given, and no text covers another."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from test_plots import HOSTILE, boxes, texts

from bayes_at_n.pipeline.plots import checkpoints
from bayes_at_n.pipeline.plots.checkpoints import Curve

pytestmark = pytest.mark.usefixtures("drawn")

PROTOCOLS = [
    f"Merge@{w}, {metric}"
    for metric in ("greedy", "avg@80", "Bayes@80", "Pass@16", "Pass@2")
    for w in (1, 4)
]
MAP = ["AGIEval", "RACE", "SQuAD2.0", "MMLU", "CMMLU", "CEval", "GSM8K", "MATH", "GSM-Plus"]
MAP += ["CMATH", "HumanEval", "MBPP", "MBPP-Plus", "a_b%: $x$ and a name far too long for a panel"]


def steps_of(count: int) -> Any:
    """Unequal distances, as the demo's: every 300 first, every 100 later."""
    half = count // 2
    return np.r_[300 * np.arange(1, half + 1), 300 * half + 100 * np.arange(1, count - half + 1)]


def curve(count: int, seed: int, noise: float = 0.03, bands: bool = True, scale: int = 1) -> Curve:
    rng = np.random.default_rng(seed)
    x = scale * steps_of(count)
    y = 0.2 + 0.5 * (1 - np.exp(-2 * x / x.max())) + rng.normal(0, noise, count)
    return Curve(x, y, y - 1.5 * noise, y + 1.5 * noise) if bands else Curve(x, y)


def panels(datasets: int, lines: int, count: int, scale: int = 1) -> dict[str, dict[str, Curve]]:
    return {
        name: {
            label: curve(
                count, 100 * i + j, 0.01 + 0.02 * (j % 2 == 0), "greedy" not in label, scale
            )
            for j, label in enumerate(PROTOCOLS[:lines])
        }
        for i, name in enumerate(MAP[:datasets])
    }


def some_curves(datasets: int, lines: int, count: int, scale: int = 1) -> Figure:
    found = panels(datasets, lines, count, scale)
    return checkpoints.curves(found, "scores along training", "score", "95% interval")


def four(trainings: int, count: int) -> Figure:
    names = ["math corpus", "code corpus", *HOSTILE][:trainings]
    left = {name: curve(count, i, 0.04) for i, name in enumerate(names)}
    right = {name: curve(count - 3, i, 0.01) for i, name in enumerate(names)}
    pairs = list(itertools.combinations(names, 2))[:6]

    def chances(n: int) -> dict[str, Curve]:
        rng = np.random.default_rng(n)
        return {f"{a} ahead of {b}": Curve(steps_of(n), rng.random(n)) for a, b in pairs}

    sides = {"single checkpoints": left, "merged": right}
    both = {"single checkpoints": chances(count), "merged": chances(count - 3)}
    return checkpoints.side_by_side(sides, both, "training runs", interval="95% interval")


N = [1, 2, 4, 8, 16, 32, 64, 80]


def samples(lines: int) -> Figure:
    tau = {}
    for i, label in enumerate(PROTOCOLS[:lines]):
        first = 4 if "Pass@16" in label else 0
        y = 0.9 - 0.5 / (1 + np.arange(8)) - 0.03 * i
        tau[label] = Curve(N[first:], y[first:], y[first:] - 0.08, y[first:] + 0.06)
    return checkpoints.stability_by_samples(N, tau, "stability by trials", "95% interval")


def ranks_of(models: int, seed: int) -> Any:
    return 1 + np.random.default_rng(seed).permutation(models)


def a_scatter(models: int, several: int = 2) -> Figure:
    names = [
        "demo-constant-base",
        "demo-cosine-to-zero-base",
        "demo-linear_$x$-warmup-restart-base",
    ]
    names = [*names, *(f"variant-{i}" for i in range(models))][:models]
    one = ranks_of(models, 0)
    tied = np.minimum(one, models - 1)
    found = {
        "greedy": (ranks_of(models, 1), one, 0.5),
        "Pass@16": (tied, tied, 15 / 66),
        "Bayes@80": (np.ones(models), one, 0.0),
    }
    return checkpoints.rank_scatter(names, dict(list(found.items())[:several]), "ranks")


def a_trend(ks: int, cost: bool = True) -> Figure:
    k = 2 ** np.arange(ks)
    rate = 0.45 - 0.04 * np.arange(ks)
    money = 1000.0 * k if cost else None
    prr = Curve(k, rate, rate - 0.1, rate + 0.2)
    return checkpoints.trend(prr, money, "trend", rate + 0.05)


# The narrowest of each kind.
FIGURES: dict[str, Callable[[], Figure]] = {
    "curves-1x10": lambda: some_curves(1, 10, 18),
    "curves-3x4-two-points": lambda: some_curves(3, 4, 2),
    "curves-14x4": lambda: some_curves(14, 4, 54, 10_000),
    "sides-4": lambda: four(4, 40),
    "samples-10": lambda: samples(10),
    "ranks-12x3": lambda: a_scatter(12, 3),
    "ranks-40": lambda: a_scatter(40, 1),
    "trend-1": lambda: a_trend(1, False),
}


@pytest.mark.parametrize("name", FIGURES)
def test_no_text_is_cut_or_covers_another_and_axes_are_labelled(name: str) -> None:
    figure = FIGURES[name]()
    found = boxes(figure)
    assert any(axes.get_xlabel() for axes in figure.axes)
    assert figure.axes[0].get_ylabel()
    # No words lie on data, but for those that say that there is none.
    for axes in figure.axes:
        inside = axes.get_window_extent()
        for text, box in found:
            if text.get_text() != "no value":
                x, y = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
                assert not inside.contains(x, y), text.get_text()


def test_curves_draw_what_was_given_in_panels_and_leave_gaps() -> None:
    y = np.ma.array([0.1, 0.2, 0.4, 0.3], mask=[0, 1, 0, 0])
    given = {
        "a": {"one": Curve([100, 200, 900, 1000], y, y - 0.05, y + 0.1)},
        "b": {"two": Curve([1], [0.5], [0.4], [0.6])},
        "c": {},
    }
    figure = checkpoints.curves(given, interval="95% interval")
    first, second, third = figure.axes
    main = next(line for line in first.lines if line.get_marker() == "o")
    np.testing.assert_array_equal(main.get_ydata(), [0.1, np.nan, 0.4, 0.3])
    assert main.get_xdata().tolist() == [100, 200, 900, 1000]
    edges = [line.get_ydata() for line in first.lines if line is not main]
    np.testing.assert_allclose(edges, [[0.05, np.nan, 0.35, 0.25], [0.2, np.nan, 0.5, 0.4]])
    assert second.collections[0].get_segments()[0][:, 1].tolist() == [0.4, 0.6]
    assert [text.get_text() for text in third.texts] == ["no value"]
    # One look for a protocol in all panels, others for others.
    assert second.lines[0].get_marker() == "s"
    assert "bands: 95% interval" in texts(figure)
    without = checkpoints.curves({"a": {"x": Curve([1, 2], [0, 1])}}, interval="95% interval")
    assert "bands" not in texts(without)


def test_ranks_keep_their_places_and_ties_are_rings() -> None:
    panel = {"Pass@16": ([1, 2, 2], [3, 1, 1], 2 / 3)}
    axes = checkpoints.rank_scatter(["u", "v", "w"], panel).axes[0]
    models = [line for line in axes.lines if line.get_linestyle() == "None" and line.get_clip_on()]
    places = [(float(*line.get_xdata()), float(*line.get_ydata())) for line in models]
    assert places == [(1, 3), (2, 1), (2, 1)] and models[2].get_markerfacecolor() == "none"
    assert axes.get_title(loc="left") == "Pass@16: PRR 66.7%"
