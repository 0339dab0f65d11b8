"""Pictures of a trajectory, from the rows of its tables; drawing is `pipeline.plots.trajectory`."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.plots import trajectory as plots
from bayes_at_n.pipeline.plots.trajectory import Curve, Priced
from bayes_at_n.pipeline.training import crossings, protocols
from bayes_at_n.pipeline.training.cells import Row, Rows, grouped, values, varies, where
from bayes_at_n.pipeline.training.protocols import AVG, BAYES, GREEDY, PASS

Labels = Callable[[Mapping[str, Any]], str | None]  # of rows; None: not drawn
# Its interval covers what it says also where the prior pulls Bayes@N away.
AVERAGE = "avg@N, share correct"
SCORE = ("value", "low", "high")
TAU = ("tau_mean", "tau_low", "tau_high")


def draw(tables: Mapping[str, Rows], cfg: TrajectoryConfig) -> dict[str, Figure]:
    """Draw all figures that the rows allow, by name.

    `merge` and `side_by_side` (MaP's Figures 3 and 4) draw avg@N with its interval; Bayes@N, of the
    same order, is in the tables.

    `tables` are rows of `curve`, `samples`, `ahead` and `variance`.
    """
    curve, several = tables["curve"], varies(tables["curve"], "training")
    interval = f"{percent(cfg.confidence)} interval"
    figures: dict[str, Figure] = {}
    for (training,), rows in grouped(curve, "training").items():
        end, of = _ending(training if several else "")
        figures[f"trajectory{end}"] = plots.curves(
            _panels(rows, _four(rows)), f"Four protocols along training{of}", "score", interval
        )
        if _window(rows) > 1:
            figures[f"merge{end}"] = plots.curves(
                _panels(rows, _average), f"Single and merged{of}", AVERAGE, interval
            )
    keys = [key for key in ("training", "dataset") if varies(tables["samples"], key)]
    for place, rows in grouped(tables["samples"], *keys).items():
        figures |= _by_samples(rows, "_".join(place), interval)
    if several:
        figures |= _side_by_side(tables, interval)
    return figures | _variance(tables["variance"], cfg)


def _ending(name: str) -> tuple[str, str]:
    """Return the ends of a figure's name and of its title."""
    return (f"_{name}", f": {name}") if name else ("", "")


def _window(rows: Rows) -> int:
    """Find the smallest window that is merged; 1 where none is."""
    return min((row["window"] for row in rows if row["window"] > 1), default=1)


def _four(rows: Rows) -> Labels:
    """Label the rows of MaP's four protocols: the smallest window and the largest k."""
    k, windows = protocols.largest_k(values(rows, "metric")), (1, _window(rows))
    titles = {AVG: "Pass@1"} | ({f"{PASS}{k}": f"Pass@{k}"} if k > 1 else {})

    def label(row: Mapping[str, Any]) -> str | None:
        if row["window"] not in windows or row["metric"] not in titles:
            return None
        return f"Merge@{row['window']}, {titles[row['metric']]}"

    return label


def _average(row: Mapping[str, Any]) -> str | None:
    return f"Merge@{row['window']}" if row["metric"] == AVG else None


def _panels(rows: Rows, label: Labels) -> dict[str, dict[str, Curve]]:
    """Make curves of scores by data set and label."""
    by_dataset = grouped(rows, "dataset").items()
    return {dataset: _lines(own, label, *SCORE) for (dataset,), own in by_dataset}


def _lines(rows: Rows, label: Labels, *keys: str) -> dict[str, Curve]:
    """Make curves along steps by label."""
    labelled: list[Row] = [{**row, "label": label(row)} for row in rows]
    by_label = grouped(labelled, "label").items()
    return {label: _curve(own, "step", *keys) for (label,), own in by_label if label}


def _curve(rows: Rows, *keys: str) -> Curve:
    """x, y and the ends of an interval; these only where every row has them."""
    x, y, *ends = [[row[key] for row in rows] for key in keys]
    return Curve(x, y) if any(None in end for end in ends) else Curve(x, y, *ends)


def _by_samples(rows: Rows, name: str, interval: str) -> dict[str, Figure]:
    """τ against the number of trials, and against cost: Bayes@n and two others, by window."""
    others = [m for m in values(rows, "metric") if m not in (GREEDY.name, BAYES)]
    # More lines would be a tangle.
    drawn = {BAYES, *others[-1:], *others[max(0, len(others) // 2 - 1) :][:1]}
    sampled = [row for row in rows if row["metric"] in drawn]
    if not sampled:
        return {}
    end, of = _ending(name)
    lines = {protocol: own for (protocol,), own in grouped(sampled, "protocol").items()}
    curves = {protocol: _curve(own, "n", *TAU) for protocol, own in lines.items()}
    numbers = sorted(values(sampled, "n"))
    title = f"Stability by number of trials{of}"
    figures = {f"samples{end}": plots.stability_by_samples(numbers, curves, title, interval)}
    lines |= {row["protocol"]: [row] for row in where(rows, metric=GREEDY.name)}
    points = {
        protocol: _priced(own) for protocol, own in lines.items() if all(r["cost"] for r in own)
    }
    if points:
        title = f"Stability by cost{of}"
        figures[f"cost{end}"] = plots.cost_stability(points, title, interval=interval)
    return figures


def _priced(rows: Rows) -> Priced:
    own = rows[0]["metric"] == GREEDY.name  # nothing of it is drawn again
    line = _curve(rows, "cost", "tau" if own else "tau_mean", "tau_low", "tau_high")
    return Priced(line, [row["n"] for row in rows])


def _side_by_side(tables: Mapping[str, Rows], interval: str) -> dict[str, Figure]:
    """Draw training runs side by side, single and merged by the smallest window."""
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
            plots.side_by_side(panels, ahead, title, AVERAGE, interval)
            if window > 1
            else plots.curves({dataset: panels["single checkpoints"]}, title, AVERAGE, interval)
        )
    return figures


def _variance(rows: Rows, cfg: TrajectoryConfig) -> dict[str, Figure]:
    n = min((row["n"] for row in rows), default=1)
    p, deltas, posteriors = crossings.along_p(n, protocols.passes(cfg.metrics, n))
    if not deltas:
        return {}
    title = f"Variance of Pass@k over the exact one, n = {n}"
    return {"variance": plots.variance(p, deltas, title, expected=posteriors)}
