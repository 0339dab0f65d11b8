"""Arrange the rows of a trajectory's tables as figures, which `plots.checkpoints` draws."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.plots import checkpoints as plots
from bayes_at_n.pipeline.plots.checkpoints import Curve
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.cells import Row, Rows, grouped, values, varies, where
from bayes_at_n.pipeline.training.protocols import AVG, BAYES, BITS, GREEDY, PASS

Labels = Callable[[Mapping[str, Any]], str | None]  # of rows; None: not drawn
# Not Bayes@N: where the prior shrinks it far, its interval covers less than it claims.
AVERAGE = "avg@N, share correct"
SCORE = ("value", "low", "high")
TAU = ("tau_mean", "tau_low", "tau_high")


def draw(tables: Mapping[str, Rows], cfg: TrajectoryConfig) -> dict[str, Figure]:
    """Draw all figures that the rows allow, by name.

    `tables` are rows of `curve`, `samples` and `ahead`. The figures `merge` and
    `side_by_side` (MaP's Figures 3 and 4) show avg@N with its interval.
    """
    curve, several = tables["curve"], varies(tables["curve"], "training")
    interval = f"{percent(cfg.confidence)} interval"
    figures: dict[str, Figure] = {}
    for (training,), rows in grouped(curve, "training").items():
        suffix, subtitle = _endings(training if several else "")
        title = f"Four protocols along training{subtitle}"
        figures[f"trajectory{suffix}"] = plots.curves(
            _panels(rows, _four(rows)), title, "score", interval
        )
        if _window(rows) > 1:
            figures[f"merge{suffix}"] = plots.curves(
                _panels(rows, _average), f"Single and merged{subtitle}", _axis(rows), interval
            )
    keys = [key for key in ("training", "dataset") if varies(tables["samples"], key)]
    for names, rows in grouped(tables["samples"], *keys).items():
        figures |= _by_samples(rows, "_".join(names), interval)
    if several:
        figures |= _side_by_side(tables, interval)
    return figures


def _endings(name: str) -> tuple[str, str]:
    """Return the endings of a figure's name and of its title."""
    return (f"_{name}", f": {name}") if name else ("", "")


def _window(rows: Rows) -> int:
    """Return the smallest merged window; 1 if none is merged."""
    return min((row["window"] for row in rows if row["window"] > 1), default=1)


def _four(rows: Rows) -> Labels:
    """Return the labels of MaP's four protocols: with the smallest window and the largest k."""
    k, windows = protocols.largest_k(values(rows, "metric")), (1, _window(rows))
    titles = {AVG: "Pass@1"} | ({f"{PASS}{k}": f"Pass@{k}"} if k > 1 else {})

    def label(row: Mapping[str, Any]) -> str | None:
        if row["window"] not in windows or row["metric"] not in titles:
            return None
        return f"Merge@{row['window']}, {titles[row['metric']]}"

    return label


def _axis(rows: Rows) -> str:
    return BITS.label if all(BITS.label in row["protocol"] for row in rows) else AVERAGE


def _average(row: Mapping[str, Any]) -> str | None:
    return f"Merge@{row['window']}" if row["metric"] == AVG else None


def _panels(rows: Rows, label: Labels) -> dict[str, dict[str, Curve]]:
    """Return curves of scores by dataset and label."""
    by_dataset = grouped(rows, "dataset").items()
    return {dataset: _lines(group, label, *SCORE) for (dataset,), group in by_dataset}


def _lines(rows: Rows, label: Labels, *keys: str) -> dict[str, Curve]:
    """Return curves along steps by label."""
    labeled: list[Row] = [{**row, "label": label(row)} for row in rows]
    by_label = grouped(labeled, "label").items()
    return {label: _curve(group, "step", *keys) for (label,), group in by_label if label}


def _curve(rows: Rows, *keys: str) -> Curve:
    """Return a curve from the columns x, y and, if complete, the ends of an interval."""
    x, y, *ends = [[row[key] for row in rows] for key in keys]
    return Curve(x, y) if any(None in end for end in ends) else Curve(x, y, *ends)


def _by_samples(rows: Rows, name: str, interval: str) -> dict[str, Figure]:
    """Draw τ against the number of trials: Bayes@n and two others, by window."""
    others = [m for m in values(rows, "metric") if m not in (GREEDY.name, BAYES)]
    # More lines would be hard to tell apart.
    drawn = {BAYES, *others[-1:], *others[max(0, len(others) // 2 - 1) :][:1]}
    sampled = [row for row in rows if row["metric"] in drawn]
    if not sampled:
        return {}
    suffix, subtitle = _endings(name)
    lines = {
        label: _curve(line, "n", *TAU) for (label,), line in grouped(sampled, "protocol").items()
    }
    title = f"Stability by number of trials{subtitle}"
    numbers = sorted(values(sampled, "n"))
    return {f"samples{suffix}": plots.stability_by_samples(numbers, lines, title, interval)}


def _side_by_side(tables: Mapping[str, Rows], interval: str) -> dict[str, Figure]:
    """Draw training runs side by side: single checkpoints, and merged by the smallest window."""
    figures = {}
    by_dataset = grouped(where(tables["curve"], metric=AVG), "dataset")
    for (dataset,), rows in by_dataset.items():
        window = _window(rows)
        sides = {"single checkpoints": 1, f"merged, {window} at a time": window}
        panels, ahead = {}, {}
        for head, size in sides.items():
            panels[head] = _lines(where(rows, window=size), lambda row: row["training"], *SCORE)
            pairs = where(tables["ahead"], dataset=dataset, window=size)
            ahead[head] = _lines(
                pairs, lambda row: f"{row['first']} ahead of {row['second']}", "probability"
            )
        title = f"Training runs side by side: {dataset}"
        figures["side_by_side" + f"_{dataset}" * (len(by_dataset) > 1)] = (
            plots.side_by_side(panels, ahead, title, _axis(rows), interval)
            if window > 1
            else plots.curves({dataset: panels["single checkpoints"]}, title, _axis(rows), interval)
        )
    return figures
