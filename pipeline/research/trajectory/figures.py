"""Pictures of a trajectory, from the rows of its tables; drawing is `pipeline.plots.trajectory`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from pipeline.base.console import percent
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.plots import trajectory as plots
from pipeline.plots.trajectory import Curve, Priced
from pipeline.research.trajectory import spread
from pipeline.research.trajectory.protocols import AVG, BAYES, GREEDY, PASS
from pipeline.research.trajectory.stability import Row

Rows = Sequence[Row]
# Its interval covers what it says also where the prior pulls Bayes@N away.
AVERAGE = "avg@N, share correct"


def draw(made: Mapping[str, Rows], cfg: TrajectoryConfig) -> dict[str, Figure]:
    """All figures that the rows make, by the stem of their files.

    `merge` and `side_by_side` (MaP's Figures 3 and 4) draw avg@N with its interval; Bayes@N, of the
    same order, is in the tables.

    Args:
        made: rows of `curve`, `samples`, `ahead` and `variance`.
        cfg: confidence, and the k of the variance.
    """
    curve, several = made["curve"], len(_values(made["curve"], "training")) > 1
    interval = f"{percent(cfg.confidence)} interval"
    figures: dict[str, Figure] = {}
    for training in _values(curve, "training"):
        own = _of(curve, training=training)
        end, of = (f"_{training}", f": {training}") if several else ("", "")
        figures[f"trajectory{end}"] = plots.curves(
            _panels(own, _four(own)), f"Four protocols along training{of}", "score", interval
        )
        if any(row["window"] > 1 for row in own):
            figures[f"merge{end}"] = plots.curves(
                _panels(own, _average), f"Single and merged{of}", AVERAGE, interval
            )
    for name, rows in _each(made["samples"]).items():
        figures |= _by_samples(rows, name, interval)
    if several:
        figures |= _side_by_side(made, interval)
    figures |= _variance(made["variance"], cfg)
    return figures


def _four(rows: Rows) -> Callable[[Row], str | None]:
    """Which of MaP's four protocols a row is of: the smallest window and the largest k."""
    window = min((row["window"] for row in rows if row["window"] > 1), default=1)
    k = max((row["k"] for row in rows if row["metric"] == PASS), default=1)

    def name(row: Row) -> str | None:
        if row["window"] not in (1, window):
            return None
        if row["metric"] == PASS and row["k"] == k > 1:
            return f"Merge@{row['window']}, Pass@{k}"
        return f"Merge@{row['window']}, Pass@1" if row["metric"] == AVG else None

    return name


def _average(row: Row) -> str | None:
    return f"Merge@{row['window']}" if row["metric"] == AVG else None


def _panels(rows: Rows, name: Callable[[Row], str | None]) -> dict[str, dict[str, Curve]]:
    """Curves by data set and by the name that rows get; those without a name are left out."""
    panels: dict[str, dict[str, Curve]] = {}
    for dataset in _values(rows, "dataset"):
        own = [row for row in rows if row["dataset"] == dataset]
        labels = dict.fromkeys(label for label in map(name, own) if label)
        panels[dataset] = {
            label: _curve([row for row in own if name(row) == label], "step", "value")
            for label in labels
        }
    return panels


def _curve(rows: Rows, x: str, y: str, low: str = "low", high: str = "high") -> Curve:
    values = [[row[key] for row in rows] for key in (x, y, low, high)]
    if any(end is None for end in (*values[2], *values[3])):
        return Curve(values[0], values[1])
    return Curve(*values)


def _by_samples(rows: Rows, name: str, interval: str) -> dict[str, Figure]:
    """τ against the number of trials, and against cost: Bayes@n and two k, by window."""
    end, of = (f"_{name}", f": {name}") if name else ("", "")
    ks = sorted({row["k"] for row in rows if row["metric"] == PASS})
    drawn = {ks[-1], ks[max(0, len(ks) // 2 - 1)]} if ks else set()  # more lines would be a tangle
    kept = [row for row in rows if row["metric"] == BAYES or row["k"] in drawn]
    labels = dict.fromkeys(row["protocol"] for row in kept)
    by_label = {label: [row for row in kept if row["protocol"] == label] for label in labels}
    curves = {
        label: _curve(of_one, "n", "tau_mean", "tau_low", "tau_high")
        for label, of_one in by_label.items()
    }
    if not curves:
        return {}
    n = sorted({row["n"] for row in kept})
    title = f"Stability by number of trials{of}"
    made = {f"samples{end}": plots.stability_by_samples(n, curves, title, interval)}
    by_label |= {row["protocol"]: [row] for row in rows if row["metric"] == GREEDY}
    points = {label: _priced(of_one) for label, of_one in by_label.items() if _has(of_one, "cost")}
    if points:
        made[f"cost{end}"] = plots.cost_stability(
            points, f"Stability by cost{of}", interval=interval
        )
    return made


def _priced(rows: Rows) -> Priced:
    own = rows[0]["metric"] == GREEDY  # nothing of it is drawn again
    line = _curve(rows, "cost", "tau" if own else "tau_mean", "tau_low", "tau_high")
    return Priced(line.x, line.y, line.low, line.high, [row["n"] for row in rows])


def _has(rows: Rows, key: str) -> bool:
    return all(row[key] for row in rows)


def _side_by_side(made: Mapping[str, Rows], interval: str) -> dict[str, Figure]:
    """Training runs beside each other, single and merged by the smallest window."""
    figures = {}
    datasets = _values(made["curve"], "dataset")
    for dataset in datasets:
        rows = _of(made["curve"], dataset=dataset, metric=AVG)
        window = min((row["window"] for row in rows if row["window"] > 1), default=1)
        sides, chances = [], []
        for size in (1, window):
            own = _of(rows, window=size)
            sides.append(
                {
                    training: _curve(_of(own, training=training), "step", "value")
                    for training in _values(own, "training")
                }
            )
            chances.append(_ahead(_of(made["ahead"], dataset=dataset, window=size)))
        end = f"_{dataset}" if len(datasets) > 1 else ""
        heads = ("single checkpoints", f"merged, {window} at a time")
        title = f"Training runs side by side: {dataset}"
        if window == 1:
            figures[f"side_by_side{end}"] = plots.curves(
                {dataset: sides[0]}, title, AVERAGE, interval
            )
        else:
            ahead = (chances[0], chances[1]) if chances[0] else None
            figures[f"side_by_side{end}"] = plots.side_by_side(
                sides[0], sides[1], ahead, title, heads, AVERAGE, interval
            )
    return figures


def _ahead(rows: Rows) -> dict[str, Curve]:
    pairs = dict.fromkeys((row["first"], row["second"]) for row in rows)
    return {
        f"{first} ahead of {second}": Curve(
            [row["step"] for row in _of(rows, first=first, second=second)],
            [row["probability"] for row in _of(rows, first=first, second=second)],
        )
        for first, second in pairs
    }


def _variance(rows: Rows, cfg: TrajectoryConfig) -> dict[str, Figure]:
    n = min((row["n"] for row in rows), default=1)
    p, ratios = spread.along_p(n, cfg.pass_k)
    if not ratios.delta:
        return {}
    title = f"Variance of Pass@k over the exact one, n = {n}"
    return {"variance": plots.variance(p, ratios.delta, title, expected=ratios.posterior)}


def _each(rows: Rows) -> dict[str, Rows]:
    """Rows by training run and data set, under a name where there are several."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["training"], row["dataset"]), []).append(row)
    varying = [len({key[i] for key in groups}) > 1 for i in (0, 1)]
    return {
        "_".join(part for part, varies in zip(key, varying, strict=True) if varies): group
        for key, group in groups.items()
    }


def _of(rows: Rows, **cells: Any) -> list[Row]:
    return [row for row in rows if all(row[key] == value for key, value in cells.items())]


def _values(rows: Rows, key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))
