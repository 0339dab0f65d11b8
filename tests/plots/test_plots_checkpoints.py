"""Figures of checkpoints: what is drawn is what was given, and no text covers another."""

import itertools
from collections.abc import Callable

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
MAP = ["a_b%: $x$ and a name far too long for a panel", "AGIEval", "RACE", "SQuAD2.0", "MMLU"]
MAP += ["CMMLU", "CEval", "GSM8K", "MATH", "GSM-Plus", "CMATH", "HumanEval", "MBPP", "MBPP-Plus"]


def curve(count: int, seed: int, scale: int = 1, bands: bool = True) -> Curve:
    """A noisy rise over unequal distances, as the demo's: every 300 first, every 100 later."""
    x = scale * np.cumsum(np.r_[np.full(count // 2, 300), np.full(count - count // 2, 100)])
    noise = np.random.default_rng(seed).normal(0, 0.03, count)
    y = 0.2 + 0.5 * (1 - np.exp(-2 * x / x.max())) + noise
    return Curve(x, y, y - 0.045, y + 0.045) if bands else Curve(x, y)


def some_curves(datasets: int, lines: int, count: int, scale: int = 1) -> Figure:
    panels = {
        name: {
            label: curve(count, 100 * i + j, scale, "greedy" not in label)
            for j, label in enumerate(PROTOCOLS[:lines])
        }
        for i, name in enumerate(MAP[:datasets])
    }
    return checkpoints.curves(panels, "scores along training", "score", "95% interval")


def sides(trainings: int, count: int) -> Figure:
    names = ["math corpus", "code corpus", *HOSTILE][:trainings]
    pairs = [f"{a} ahead of {b}" for a, b in itertools.combinations(names, 2)]

    def both(labels: list[str]) -> dict[str, dict[str, Curve]]:
        single, merged = (
            {label: curve(n, i) for i, label in enumerate(labels)} for n in (count, count - 3)
        )
        return {"single checkpoints": single, "merged": merged}

    return checkpoints.side_by_side(
        both(names), both(pairs[:6]), "training runs", interval="95% interval"
    )


def samples(lines: int) -> Figure:
    n, tau = [1, 2, 4, 8, 16, 32, 64, 80], {}
    for i, label in enumerate(PROTOCOLS[:lines]):
        first = 4 if "Pass@16" in label else 0
        y = 0.9 - 0.5 / (1 + np.arange(8)) - 0.03 * i
        tau[label] = Curve(n[first:], y[first:], y[first:] - 0.08, y[first:] + 0.06)
    return checkpoints.stability_by_samples(n, tau, "stability by trials", "95% interval")


def a_scatter(models: int, several: int) -> Figure:
    names = ["demo-constant-base", "demo-linear_$x$-warmup-restart-base"]
    names = [*names, *(f"variant-{i}" for i in range(models))][:models]
    one, other = (1 + np.random.default_rng(seed).permutation(models) for seed in (0, 1))
    tied = np.minimum(one, models - 1)
    found = {
        "greedy": (other, one, 0.5),
        "Pass@16": (tied, tied, 15 / 66),
        "Bayes@80": (np.ones(models), one, 0.0),
    }
    return checkpoints.rank_scatter(names, dict(list(found.items())[:several]), "ranks")


def a_trend(ks: int) -> Figure:
    rate = 0.45 - 0.04 * np.arange(ks)
    prr = Curve(2 ** np.arange(ks), rate, rate - 0.1, rate + 0.2)
    return checkpoints.trend(prr, None, "trend", rate + 0.05)


# The narrowest of each kind.
FIGURES: dict[str, Callable[[], Figure]] = {
    "curves-1x10": lambda: some_curves(1, 10, 18),
    "curves-3x4-two-points": lambda: some_curves(3, 4, 2),
    "curves-14x4": lambda: some_curves(14, 4, 54, 10_000),
    "sides-4": lambda: sides(4, 40),
    "samples-10": lambda: samples(10),
    "ranks-12x3": lambda: a_scatter(12, 3),
    "ranks-40": lambda: a_scatter(40, 1),
    "trend-1": lambda: a_trend(1),
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
