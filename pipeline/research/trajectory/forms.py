"""Tables in the form of MaP's Tables 1 to 4: Kendall's τ between score and training.

τ is MaP's own, in which a tie counts as discordant. Columns are data sets; several training runs
have rows of their own. Single and merged are judged over the steps that all windows share, apart
from Table 4, which is of single checkpoints at all of theirs.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from pipeline.display.table import Column, Table
from pipeline.research.trajectory.protocols import AVG, BAYES, GREEDY, PASS, Metric
from pipeline.research.trajectory.stability import ALL, COMMON, Row

_TAU = "{:.3f}"
_NOTE = "Kendall's τ between score and training, ties discordant"
_SHARED = "over the steps that all windows share"
_ALIKE = (
    "Pass@1 is avg@N, and with the same number of trials everywhere Bayes@N orders checkpoints as"
    " they do: their rows would be the same"
)


def tables(rows: Sequence[Row], gains: Sequence[Row]) -> dict[str, Table]:
    """The tables that the rows of `stability` make, by the stem of their files.

    Args:
        rows: those of `stability`.
        gains: merged against single over replicates, from `samples`.
    """
    windows = sorted({row["window"] for row in rows if row["steps"] == COMMON} - {1})
    made = {"protocols": _protocols(rows, windows)} if windows else {}
    if windows:
        made["merge"] = _merge(rows, windows, gains)
    if len(windows) > 1:
        made["windows"] = _windows(rows, windows)
    made["passk"] = _pass_k(rows)
    return {stem: table for stem, table in made.items() if table.rows}


def _protocols(rows: Sequence[Row], windows: Sequence[int]) -> Table:
    """Table 1: merging and Pass@k, each alone and both together."""
    made = []
    for training in _trainings(rows):
        most = max(_ks(rows, training), default=1)
        one, many = Metric(PASS, 1), Metric(PASS, most)
        lines = [("Original (Merge@1, Pass@1)", 1, one)]
        lines += [(f"+ Merge@{w}", w, one) for w in windows]
        if most > 1:
            lines.append((f"+ Pass@{most}", 1, many))
            lines += [(f"MaP (Merge@{w}, Pass@{most})", w, many) for w in windows]
        for name, window, metric in lines:
            cells = _by_dataset(rows, training, window, metric, "tau", COMMON)
            made.append({"training": training, "protocol": name, **cells})
    columns = [*_left(made), Column("protocol", "protocol", align="left"), *_datasets(rows)]
    title = "merging and Pass@k (form of MaP's Table 1)"
    return Table(title, columns, made, [f"{_NOTE}, {_SHARED}", _ALIKE])


def _merge(rows: Sequence[Row], windows: Sequence[int], gains: Sequence[Row]) -> Table:
    """Table 2: what merging changes, by data set and metric."""
    made = []
    for training, dataset, metric in _subjects(rows):
        before = _find(rows, training, dataset, 1, metric, COMMON)
        for window in windows:
            after = _find(rows, training, dataset, window, metric, COMMON)
            if not before or not after:
                continue
            made.append(
                {
                    "training": training,
                    "dataset": dataset,
                    "metric": before["protocol"].partition(", ")[2],
                    "window": window,
                    "original": before["tau"],
                    "merge": after["tau"],
                    "improve": after["tau"] - before["tau"],
                    **_gain(gains, before, after),
                    "original_down": before["down"],
                    "merge_down": after["down"],
                }
            )
    columns = [
        *_left(made),
        Column("dataset", "data set", align="left"),
        Column("metric", "metric", align="left"),
        Column("window", "window"),
        Column("original", "original", format=_TAU),
        Column("merge", "merge", format=_TAU),
        Column("improve", "improve", format="{:+.3f}"),
        Column("gain_low", "low", format="{:+.3f}", group="boot"),
        Column("gain_high", "high", format="{:+.3f}", group="boot"),
        Column("original_down", "original", format=_TAU, group="steps down", wide=True),
        Column("merge_down", "merge", format=_TAU, group="steps down", wide=True),
    ]
    notes = [
        f"{_NOTE}, {_SHARED}; boot: interval of the improvement over replicates of as many trials,"
        " single and merged on the same draws; blank where their numbers differ",
        _ALIKE,
    ]
    return Table("what merging changes (form of MaP's Table 2)", columns, made, notes)


def _gain(gains: Sequence[Row], before: Row, after: Row) -> Row:
    """The interval of what merging gains, for two rows of `stability`.

    Blank where replicates do not have as many trials as the scores: where questions, or single and
    merged, do not have the same number.
    """
    found = None
    if before["trials"] is not None and before["trials"] == after["trials"]:
        metric = (BAYES, None) if after["twin"] else (after["metric"], after["k"])
        place = [after[key] for key in ("training", "dataset", "window", "trials")]
        for gain in gains:
            if [gain[key] for key in ("training", "dataset", "window", "n")] == place:
                found = gain if (gain["metric"], gain["k"]) == metric else found
    return {f"gain_{end}": found and found[end] for end in ("low", "high")}


def _windows(rows: Sequence[Row], windows: Sequence[int]) -> Table:
    """Table 3: the size of the window."""
    made = []
    for training, dataset, metric in _subjects(rows):
        cells: Row = {"training": training, "dataset": dataset}
        for window in (1, *windows):
            row = _find(rows, training, dataset, window, metric, COMMON)
            if row:
                cells["metric"] = row["protocol"].partition(", ")[2]
            cells[f"merge_{window}"] = row and row["tau"]
        made.append(cells)
    columns = [
        *_left(made),
        Column("dataset", "data set", align="left"),
        Column("metric", "metric", align="left"),
        Column("merge_1", "original", format=_TAU),
        *(Column(f"merge_{w}", f"Merge@{w}", format=_TAU) for w in windows),
    ]
    return Table("the size of the window (form of MaP's Table 3)", columns, made,
                 [f"{_NOTE}, {_SHARED}", _ALIKE])  # fmt: skip


def _pass_k(rows: Sequence[Row]) -> Table:
    """Table 4: single checkpoints by metric; mean over bootstrap replicates beside."""
    made = []
    for training in _trainings(rows):
        for metric in [Metric(GREEDY), *(Metric(PASS, k) for k in _ks(rows, training))]:
            cells = _by_dataset(rows, training, 1, metric, "tau", ALL)
            means = _by_dataset(rows, training, 1, metric, "tau_mean", ALL)
            if any(value is not None for value in cells.values()):
                name = "Greedy" if metric.kind == GREEDY else f"Pass@{metric.k}"
                of = {f"{key}_mean": value for key, value in means.items()}
                made.append({"training": training, "protocol": name, **cells, **of})
    columns = [*_left(made), Column("protocol", "protocol", align="left")]
    for column in _datasets(rows):
        columns.append(Column(column.key, "τ", r"$\tau$", _TAU, group=column.title))
        columns.append(Column(f"{column.key}_mean", "bootstrap", format=_TAU, group=column.title))
    notes = [f"{_NOTE}, single checkpoints; bootstrap: mean over replicates of the trials", _ALIKE]
    return Table("Pass@k along training (form of MaP's Table 4)", columns, made, notes)


def _find(
    rows: Sequence[Row], training: str, dataset: str, window: int, metric: Metric, steps: str
) -> Row | None:
    wanted = (training, dataset, window, *metric, steps)
    if metric == Metric(PASS, 1):  # it may not be among pass_k, and avg@N is the same
        wanted = (training, dataset, window, *Metric(AVG), steps)
    keys = ("training", "dataset", "window", "metric", "k", "steps")
    return next((row for row in rows if tuple(row[key] for key in keys) == wanted), None)


def _by_dataset(
    rows: Sequence[Row], training: str, window: int, metric: Metric, cell: str, steps: str
) -> Row:
    found: dict[str, Any] = {}
    for dataset in _values(rows, "dataset"):
        row = _find(rows, training, dataset, window, metric, steps)
        found[f"of_{dataset}"] = row and row[cell]
    return found


def _subjects(rows: Sequence[Row]) -> Iterator[tuple[str, str, Metric]]:
    """Training, data set and metric of all rows; Pass@1 and Bayes@N only where avg@N is another."""
    names: dict[tuple[str, str, str, int | None], list[bool]] = {}
    for row in rows:
        place = (row["training"], row["dataset"], row["metric"], row["k"])
        names.setdefault(place, []).append(row["twin"])
    for (training, dataset, kind, k), twin in names.items():
        if kind == AVG or not all(twin):  # windows may have other numbers of trials
            yield training, dataset, Metric(kind, k)


def _ks(rows: Sequence[Row], training: str) -> list[int]:
    of = {row["k"] for row in rows if row["training"] == training and row["metric"] == PASS}
    return sorted(of | {1})


def _values(rows: Sequence[Row], key: str) -> list[Any]:
    return list(dict.fromkeys(row[key] for row in rows))


def _trainings(rows: Sequence[Row]) -> list[str]:
    return _values(rows, "training")


def _left(rows: Sequence[Row]) -> list[Column]:
    several = len({row["training"] for row in rows}) > 1
    return [Column("training", "training", align="left", wide=not several)]


def _datasets(rows: Sequence[Row]) -> list[Column]:
    return [Column(f"of_{name}", name, format=_TAU) for name in _values(rows, "dataset")]
