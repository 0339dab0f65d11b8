"""Tables in the form of MaP's Tables 1 to 4: Kendall's τ between score and training.

τ is MaP's own, in which a tie counts as discordant. Columns are data sets; several training runs
have rows of their own. Single and merged are judged over the steps that all windows share, apart
from Table 4, which is of single checkpoints at all of theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bayes_at_n.pipeline.display.table import Table, columns
from bayes_at_n.pipeline.training.protocols import AVG, BAYES, GREEDY, PASS, largest_k
from bayes_at_n.pipeline.training.tables import Row, Rows, grouped, names, values, where
from bayes_at_n.pipeline.training.trajectory.stability import ALL, COMMON, FEW, THREE

_NOTE = "Kendall's τ between score and training, ties discordant"
_SHARED = f"{_NOTE}, over the steps that all windows share"
_ALIKE = (
    "Pass@1 is avg@N, and with the same number of trials everywhere Bayes@N orders checkpoints as"
    " they do: their rows would be the same"
)


def tables(rows: Rows, gains: Rows) -> dict[str, Table]:
    """The tables that the rows of `stability` make, by the stem of their files.

    `gains` are of merged against single over replicates, from `samples`.
    """
    common = where(rows, steps=COMMON)
    windows = sorted({row["window"] for row in common} - {1})
    forms: dict[str, Table] = {}
    if windows:
        forms |= {"protocols": _protocols(common, windows), "merge": _merge(common, windows, gains)}
    if len(windows) > 1:
        forms["windows"] = _windows(common, windows)
    forms["passk"] = _pass_k(where(rows, steps=ALL, window=1))
    return {stem: table for stem, table in forms.items() if table.rows}


def _protocols(common: Rows, windows: Sequence[int]) -> Table:
    """Table 1: merging and Pass@k, each alone and both together."""
    k = largest_k(values(common, "metric"))
    # Pass@1 may not be among the metrics, and avg@N is the same.
    protocols = [("Original (Merge@1, Pass@1)", 1, AVG)]
    protocols += [(f"+ Merge@{w}", w, AVG) for w in windows]
    if k > 1:
        protocols.append((f"+ Pass@{k}", 1, f"{PASS}{k}"))
        protocols += [(f"MaP (Merge@{w}, Pass@{k})", w, f"{PASS}{k}") for w in windows]
    rows = _by_dataset(common, protocols)
    heads = [*names(rows, training="training"), *columns(align="left", protocol="protocol")]
    heads += columns(THREE, {f"of_{name}": name for name in values(common, "dataset")})
    title = "merging and Pass@k (form of MaP's Table 1)"
    return Table(title, heads, rows, [_SHARED, _ALIKE])


def _merge(common: Rows, windows: Sequence[int], gains: Rows) -> Table:
    """Table 2: what merging changes, by data set and metric."""
    rows = [
        {
            **subject,
            "window": window,
            "original": before["tau"],
            "merge": after["tau"],
            "improve": after["tau"] - before["tau"],
            **_gain(gains, after),
            "original_down": before["down"],
            "merge_down": after["down"],
        }
        for subject, own in _subjects(common)
        for window in windows
        if (before := own.get(1)) and (after := own.get(window))
    ]
    down = {"original_down": "original", "merge_down": "merge"}
    heads = [
        *names(rows, training="training"),
        *columns(align="left", dataset="data set", metric="metric"),
        *columns(window="window"),
        *columns(THREE, original="original", merge="merge"),
        *columns("{:+.3f}", improve="improve"),
        *columns("{:+.3f}", group="boot", gain_low="low", gain_high="high"),
        *columns(THREE, down, group="steps down", wide=True),
    ]
    notes = [
        f"{_SHARED}; improve: difference of the two τ, on a scale from -2 to 2; boot: its interval"
        " over replicates of as many trials, single and merged on the same draws",
        FEW,
        _ALIKE,
    ]
    return Table("what merging changes (form of MaP's Table 2)", heads, rows, notes)


def _gain(gains: Rows, merged: Row) -> Row:
    """The interval of what merging gains in replicates of as many trials as a row's score."""
    place = {key: merged[key] for key in ("training", "dataset", "window")}
    metric = BAYES if merged["twin"] else merged["metric"]
    own = where(gains, n=merged["trials"], metric=metric, **place)
    return {f"gain_{end}": own[0][end] if own else None for end in ("low", "high")}


def _windows(common: Rows, windows: Sequence[int]) -> Table:
    """Table 3: the size of the window."""
    titles = {1: "original"} | {window: f"Merge@{window}" for window in windows}
    rows = [
        {**subject, **{f"merge_{w}": own[w]["tau"] if w in own else None for w in titles}}
        for subject, own in _subjects(common)
    ]
    heads = [
        *names(rows, training="training"),
        *columns(align="left", dataset="data set", metric="metric"),
        *columns(THREE, {f"merge_{window}": title for window, title in titles.items()}),
    ]
    return Table("the size of the window (form of MaP's Table 3)", heads, rows, [_SHARED, _ALIKE])


def _pass_k(single: Rows) -> Table:
    """Table 4: single checkpoints by metric; mean over bootstrap replicates beside."""
    titles = {GREEDY.name: "Greedy", AVG: "Pass@1"}
    for row in single:
        if row["metric"] not in (BAYES, f"{PASS}1"):
            titles.setdefault(row["metric"], _title(row))
    protocols = [(title, 1, metric) for metric, title in titles.items()]
    rows = _by_dataset(single, protocols)
    heads = [*names(rows, training="training"), *columns(align="left", protocol="protocol")]
    for name in values(single, "dataset"):
        titles = {f"of_{name}": "τ", f"of_{name}_mean": "bootstrap"}
        heads += columns(THREE, titles, group=name)
    notes = [f"{_NOTE}, single checkpoints; bootstrap: mean over replicates of the trials", _ALIKE]
    return Table("Pass@k along training (form of MaP's Table 4)", heads, rows, notes)


def _by_dataset(rows: Rows, protocols: Sequence[tuple[str, int, str]]) -> list[Row]:
    """A row for each training and protocol (title, window, metric); τ and its mean by data set."""
    lines = []
    for (training,), own in grouped(rows, "training").items():
        for title, window, metric in protocols:
            of = {row["dataset"]: row for row in where(own, window=window, metric=metric)}
            line: Row = {"training": training, "protocol": title}
            for name in values(rows, "dataset"):
                line[f"of_{name}"] = of[name]["tau"] if name in of else None
                line[f"of_{name}_mean"] = of[name]["tau_mean"] if name in of else None
            lines += [line] if of else []
    return lines


def _subjects(rows: Rows) -> Iterator[tuple[Row, dict[int, Row]]]:
    """Training, data set and metric, and rows by window; avg@N for all that have its order."""
    apart = [row for row in rows if row["metric"] == AVG or not row["twin"]]
    for (training, dataset, _), own in grouped(apart, "training", "dataset", "metric").items():
        subject = {"training": training, "dataset": dataset, "metric": _title(own[0])}
        yield subject, {row["window"]: row for row in own}


def _title(row: Mapping[str, Any]) -> str:
    """The metric's title, behind the window's."""
    return str(row["protocol"].partition(", ")[2])
