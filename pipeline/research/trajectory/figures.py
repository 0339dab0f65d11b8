"""Pictures of a trajectory, from the rows of its tables; drawing is `pipeline.plots.trajectory`."""

from collections.abc import Callable, Mapping
from typing import Any

from matplotlib.figure import Figure

from pipeline.base.console import percent
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.plots import trajectory as plots
from pipeline.plots.trajectory import Curve, Priced
from pipeline.research import protocols
from pipeline.research.protocols import AVG, BAYES, GREEDY, PASS
from pipeline.research.tables import Rows, values, varies, where
from pipeline.research.trajectory import variance

Namer = Callable[[Mapping[str, Any]], str | None]  # of rows
# Its interval covers what it says also where the prior pulls Bayes@N away.
AVERAGE = "avg@N, share correct"
SCORE = ("value", "low", "high")


def draw(tables: Mapping[str, Rows], cfg: TrajectoryConfig) -> dict[str, Figure]:
    """All figures that the rows make, by name.

    `merge` and `side_by_side` (MaP's Figures 3 and 4) draw avg@N with its interval; Bayes@N, of the
    same order, is in the tables.

    Args:
        tables: rows of `curve`, `samples`, `ahead` and `variance`.
        cfg: confidence, and the k of the variance.
    """
    curve, several = tables["curve"], varies(tables["curve"], "training")
    interval = f"{percent(cfg.confidence)} interval"
    figures: dict[str, Figure] = {}
    for training in values(curve, "training"):
        own = where(curve, training=training)
        end, of = (f"_{training}", f": {training}") if several else ("", "")
        figures[f"trajectory{end}"] = plots.curves(
            _panels(own, _four(own)), f"Four protocols along training{of}", "score", interval
        )
        if _window(own) > 1:
            figures[f"merge{end}"] = plots.curves(
                _panels(own, _average), f"Single and merged{of}", AVERAGE, interval
            )
    for name, rows in _each(tables["samples"]).items():
        figures |= _by_samples(rows, name, interval)
    if several:
        figures |= _side_by_side(tables, interval)
    return figures | _variance(tables["variance"], cfg)


def _window(rows: Rows) -> int:
    """The smallest window that is merged; 1 where none is."""
    return min((row["window"] for row in rows if row["window"] > 1), default=1)


def _four(rows: Rows) -> Namer:
    """Which of MaP's four protocols a row is of: the smallest window and the largest k."""
    metrics = values(rows, "metric")
    k = max((int(m.removeprefix(PASS)) for m in metrics if m.startswith(PASS)), default=1)
    named = {AVG: "Pass@1"} | ({f"{PASS}{k}": f"Pass@{k}"} if k > 1 else {})
    window = _window(rows)

    def name(row: Mapping[str, Any]) -> str | None:
        if row["window"] not in (1, window) or row["metric"] not in named:
            return None
        return f"Merge@{row['window']}, {named[row['metric']]}"

    return name


def _average(row: Mapping[str, Any]) -> str | None:
    return f"Merge@{row['window']}" if row["metric"] == AVG else None


def _panels(
    rows: Rows, name: Callable[[Mapping[str, Any]], str | None]
) -> dict[str, dict[str, Curve]]:
    """Curves by data set and by the name that rows get; those without a name are left out."""
    return {of: _lines(where(rows, dataset=of), name, *SCORE) for of in values(rows, "dataset")}


def _lines(rows: Rows, name: Namer, *keys: str) -> dict[str, Curve]:
    """Curves along steps by the name that rows get; those without a name are left out."""
    lines: dict[str, list[Any]] = {}
    for row in rows:
        if label := name(row):
            lines.setdefault(label, []).append(row)
    return {label: _curve(own, "step", *keys) for label, own in lines.items()}


def _curve(rows: Rows, *keys: str) -> Curve:
    """x, y and the ends of an interval; these only where every row has them."""
    x, y, *ends = [[row[key] for row in rows] for key in keys]
    return Curve(x, y) if any(None in end for end in ends) else Curve(x, y, *ends)


def _by_samples(rows: Rows, name: str, interval: str) -> dict[str, Figure]:
    """τ against the number of trials, and against cost: Bayes@n and two others, by window."""
    end, of = (f"_{name}", f": {name}") if name else ("", "")
    others = [metric for metric in values(rows, "metric") if metric not in (GREEDY, BAYES)]
    # More lines would be a tangle.
    drawn = {BAYES, *others[-1:], *others[max(0, len(others) // 2 - 1) :][:1]}
    kept = [row for row in rows if row["metric"] in drawn]
    lines = {label: where(kept, protocol=label) for label in values(kept, "protocol")}
    if not lines:
        return {}
    curves = {
        label: _curve(own, "n", "tau_mean", "tau_low", "tau_high") for label, own in lines.items()
    }
    title = f"Stability by number of trials{of}"
    figures = {
        f"samples{end}": plots.stability_by_samples(
            sorted(values(kept, "n")), curves, title, interval
        )
    }
    lines |= {row["protocol"]: [row] for row in where(rows, metric=GREEDY)}
    points = {
        label: _priced(own) for label, own in lines.items() if all(row["cost"] for row in own)
    }
    if points:
        title = f"Stability by cost{of}"
        figures[f"cost{end}"] = plots.cost_stability(points, title, interval=interval)
    return figures


def _priced(rows: Rows) -> Priced:
    own = rows[0]["metric"] == GREEDY  # nothing of it is drawn again
    line = _curve(rows, "cost", "tau" if own else "tau_mean", "tau_low", "tau_high")
    return Priced(line, [row["n"] for row in rows])


def _side_by_side(tables: Mapping[str, Rows], interval: str) -> dict[str, Figure]:
    """Training runs beside each other, single and merged by the smallest window."""
    figures = {}
    datasets = values(tables["curve"], "dataset")
    for dataset in datasets:
        rows = where(tables["curve"], dataset=dataset, metric=AVG)
        window = _window(rows)
        sides = {"single checkpoints": 1, f"merged, {window} at a time": window}
        panels, ahead = {}, {}
        for head, size in sides.items():
            panels[head] = _lines(where(rows, window=size), _training, *SCORE)
            pairs = where(tables["ahead"], dataset=dataset, window=size)
            ahead[head] = _lines(pairs, _pair, "probability")
        name = f"side_by_side_{dataset}" if len(datasets) > 1 else "side_by_side"
        title = f"Training runs side by side: {dataset}"
        figures[name] = (
            plots.side_by_side(panels, ahead, title, AVERAGE, interval)
            if window > 1
            else plots.curves({dataset: panels["single checkpoints"]}, title, AVERAGE, interval)
        )
    return figures


def _training(row: Mapping[str, Any]) -> str:
    return str(row["training"])


def _pair(row: Mapping[str, Any]) -> str:
    return f"{row['first']} ahead of {row['second']}"


def _variance(rows: Rows, cfg: TrajectoryConfig) -> dict[str, Figure]:
    n = min((row["n"] for row in rows), default=1)
    p, deltas, posteriors = variance.along_p(n, protocols.passes(protocols.metrics(cfg.metrics), n))
    if not deltas:
        return {}
    title = f"Variance of Pass@k over the exact one, n = {n}"
    return {"variance": plots.variance(p, deltas, title, expected=posteriors)}


def _each(rows: Rows) -> dict[str, Rows]:
    """Rows by training run and data set, under a name where there are several."""
    keys = [key for key in ("training", "dataset") if varies(rows, key)]
    groups: dict[str, Any] = {}
    for row in rows:
        groups.setdefault("_".join(row[key] for key in keys), []).append(row)
    return groups
