"""Tables in the form of MaP's Tables 1 to 4: Kendall's τ between score and training.

τ is MaP's own, in which a tie counts as discordant. Columns are data sets; several training runs
have rows of their own. Single and merged are judged over the steps that all windows share, apart
from Table 4, which is of single checkpoints at all of theirs.
"""

from collections.abc import Iterator, Sequence

from pipeline.display.table import Column, Table
from pipeline.research.protocols import AVG, BAYES, GREEDY, PASS
from pipeline.research.tables import Row, Rows, columns, values, varies, where
from pipeline.research.trajectory.stability import ALL, COMMON, THREE

_NOTE = "Kendall's τ between score and training, ties discordant"
_SHARED = f"{_NOTE}, over the steps that all windows share"
_ALIKE = (
    "Pass@1 is avg@N, and with the same number of trials everywhere Bayes@N orders checkpoints as"
    " they do: their rows would be the same"
)


def tables(rows: Rows, gains: Rows) -> dict[str, Table]:
    """The tables that the rows of `stability` make, by the stem of their files.

    Args:
        rows: those of `stability`.
        gains: merged against single over replicates, from `samples`.
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
    lines = []
    for training in values(common, "training"):
        own = where(common, training=training)
        ks = [int(m.removeprefix(PASS)) for m in values(own, "metric") if m.startswith(PASS)]
        k = max(ks, default=1)
        # Pass@1 may not be among the metrics, and avg@N is the same.
        protocols = [("Original (Merge@1, Pass@1)", 1, AVG)]
        protocols += [(f"+ Merge@{w}", w, AVG) for w in windows]
        if k > 1:
            protocols.append((f"+ Pass@{k}", 1, f"{PASS}{k}"))
            protocols += [(f"MaP (Merge@{w}, Pass@{k})", w, f"{PASS}{k}") for w in windows]
        for name, window, metric in protocols:
            cells = _by_dataset(common, where(own, window=window, metric=metric), "tau")
            lines.append({"training": training, "protocol": name, **cells})
    heads = [*_left(lines), *columns(align="left", protocol="protocol")]
    heads += columns(THREE, {f"of_{name}": name for name in values(common, "dataset")})
    title = "merging and Pass@k (form of MaP's Table 1)"
    return Table(title, heads, lines, [_SHARED, _ALIKE])


def _merge(common: Rows, windows: Sequence[int], gains: Rows) -> Table:
    """Table 2: what merging changes, by data set and metric."""
    lines = []
    for cells, own in _subjects(common):
        for window in windows:
            before, after = own.get(1), own.get(window)
            if before and after:
                lines.append(
                    {
                        **cells,
                        "window": window,
                        "original": before["tau"],
                        "merge": after["tau"],
                        "improve": after["tau"] - before["tau"],
                        **_gain(gains, before, after),
                        "original_down": before["down"],
                        "merge_down": after["down"],
                    }
                )
    down = {"original_down": "original", "merge_down": "merge"}
    heads = [
        *_left(lines),
        *columns(align="left", dataset="data set", metric="metric"),
        Column("window", "window"),
        *columns(THREE, original="original", merge="merge"),
        *columns("{:+.3f}", improve="improve"),
        *columns("{:+.3f}", group="boot", gain_low="low", gain_high="high"),
        *columns(THREE, down, group="steps down", wide=True),
    ]
    notes = [
        f"{_SHARED}; boot: interval of the improvement over replicates of as many trials,"
        " single and merged on the same draws; blank where their numbers differ",
        _ALIKE,
    ]
    return Table("what merging changes (form of MaP's Table 2)", heads, lines, notes)


def _gain(gains: Rows, before: Row, after: Row) -> Row:
    """The interval of what merging gains, for two rows of `stability`.

    Blank where replicates do not have as many trials as the scores: where questions, or single and
    merged, do not have the same number.
    """
    same: list[Row] = []
    if before["trials"] is not None and before["trials"] == after["trials"]:
        cells = {key: after[key] for key in ("training", "dataset", "window", "metric")}
        if after["twin"]:
            cells["metric"] = BAYES
        same = where(gains, n=after["trials"], **cells)
    return {f"gain_{end}": same[0][end] if same else None for end in ("low", "high")}


def _windows(common: Rows, windows: Sequence[int]) -> Table:
    """Table 3: the size of the window."""
    lines = [
        {**cells, **{f"merge_{w}": own[w]["tau"] if w in own else None for w in (1, *windows)}}
        for cells, own in _subjects(common)
    ]
    heads = [
        *_left(lines),
        *columns(align="left", dataset="data set", metric="metric"),
        *columns(THREE, {"merge_1": "original"} | {f"merge_{w}": f"Merge@{w}" for w in windows}),
    ]
    return Table("the size of the window (form of MaP's Table 3)", heads, lines, [_SHARED, _ALIKE])


def _pass_k(single: Rows) -> Table:
    """Table 4: single checkpoints by metric; mean over bootstrap replicates beside."""
    lines = []
    others = [m for m in values(single, "metric") if m not in (GREEDY, AVG, BAYES, f"{PASS}1")]
    for training in values(single, "training"):
        for metric in (GREEDY, AVG, *others):
            if own := where(single, training=training, metric=metric):
                title = {GREEDY: "Greedy", AVG: "Pass@1"}.get(metric, _metric(own[0]))
                cells = _by_dataset(single, own, "tau")
                means = _by_dataset(single, own, "tau_mean")
                cells |= {f"{key}_mean": mean for key, mean in means.items()}
                lines.append({"training": training, "protocol": title, **cells})
    heads = [*_left(lines), Column("protocol", "protocol", align="left")]
    for name in values(single, "dataset"):
        heads.append(Column(f"of_{name}", "τ", r"$\tau$", THREE, group=name))
        heads.append(Column(f"of_{name}_mean", "bootstrap", format=THREE, group=name))
    notes = [f"{_NOTE}, single checkpoints; bootstrap: mean over replicates of the trials", _ALIKE]
    return Table("Pass@k along training (form of MaP's Table 4)", heads, lines, notes)


def _by_dataset(rows: Rows, own: Rows, key: str) -> Row:
    """A cell of one's own row for each data set that there is; None where it has none."""
    cells = {row["dataset"]: row[key] for row in own}
    return {f"of_{name}": cells.get(name) for name in values(rows, "dataset")}


def _subjects(rows: Rows) -> Iterator[tuple[Row, dict[int, Row]]]:
    """Training, data set and metric, and rows by window.

    Pass@1 and Bayes@N only where avg@N is another order: windows may have other numbers of trials.
    """
    groups: dict[tuple[str, str, str], dict[int, Row]] = {}
    for row in rows:
        subject = (row["training"], row["dataset"], row["metric"])
        groups.setdefault(subject, {})[row["window"]] = dict(row)
    for (training, dataset, metric), own in groups.items():
        if metric == AVG or not all(row["twin"] for row in own.values()):
            first = own[min(own)]
            yield {"training": training, "dataset": dataset, "metric": _metric(first)}, own


def _metric(row: Row) -> str:
    """The metric's title, behind the window's."""
    return str(row["protocol"].partition(", ")[2])


def _left(rows: Rows) -> list[Column]:
    return [Column("training", "training", align="left", wide=not varies(rows, "training"))]
