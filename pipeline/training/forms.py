"""Tables of how steadily scores follow training, some in the form of MaP's Tables 1 to 4.

In these τ is MaP's own, in which a tie counts as discordant. Columns are data sets; several
training runs have rows of their own. Single and merged are judged over the steps that all windows
share, apart from Table 4, which is of single checkpoints at all of theirs.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.training.protocols import AVG, BAYES, GREEDY, PASS, largest_k, metrics
from bayes_at_n.pipeline.training.rows import Row, Rows, grouped, names, values, varies, where
from bayes_at_n.pipeline.training.stability import ALL, COMMON

INDEPENDENT = (
    "intervals of scores take attempts as independent; with sampling.seeds=shared trials of one"
    " index are correlated across questions (vLLM's runner V1), so that they may be too narrow"
)
_DRAWN = (
    "replicates draw whole trials, one index for all questions, checkpoints and windows, as trials"
    " of one index may share their seed"
)
_TIES = (
    "fewer trials mean more ties, which lower MaP's τ and down alike: few trials and greedy are not"
    " to be judged by these two alone, but by τ_b and flat beside them"
)
_FEW = (
    "of steps so few that chance alone often puts them in the best order (up to four at 95%) the"
    " interval of τ is its whole scale, -1 to 1, and that of a difference of two τ -2 to 2"
)
_TAU = "Kendall's τ between score and training, ties discordant"
_SHARED = f"{_TAU}, over the steps that all windows share"
_ALIKE = (
    "Pass@1 is avg@N, and with the same number of trials everywhere Bayes@N orders checkpoints as"
    " they do: their rows would be the same"
)
_THREE = "{:.3f}"
_TAU_B = Column("tau_b", "τ_b", r"$\tau_b$", _THREE)
_KEYS = columns(wide=True, window="window", metric="metric")


def place(rows: Rows) -> list[Column]:
    """Make the columns that name a row's protocol."""
    protocol = columns(align="left", protocol="protocol")
    return [*names(rows, training="training", dataset="data set"), *protocol]


def _ends(key: str, group: str, wide: bool = False) -> list[Column]:
    """Make the columns of mean and interval over replicates."""
    titles = {f"{key}_{end}": end for end in ("mean", "low", "high")}
    return columns(_THREE, titles, group=group, wide=wide)


def curve(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Tabulate the score of every protocol at every step."""
    level = percent(cfg.confidence)
    heads = [
        *place(rows),
        *columns(step="step"),
        *columns(align="left", name="checkpoint"),
        *columns("{:.3f}", value="score", sigma="σ", low="low", high="high"),
        *columns("{:+.2f}", shrinkage="shrinkage"),
        *columns("{:+.3f}", change="change"),
        *columns("{:+.3f}", group="change", change_low="low", change_high="high"),
        *columns(real="real"),
        *_KEYS,
    ]
    notes = [
        f"low, high: {level} credible interval of the model's success on these very questions, not"
        " on others, nor of another training; greedy has one attempt and none",
        "other metrics than avg and Bayes: the unbiased estimator -/+ z of its sampling σ, a"
        f" {level} confidence interval",
        INDEPENDENT,
        "shrinkage: (Bayes@N - avg@N) / σ; where it exceeds"
        f" {scoring.SHRINKAGE_LIMIT:g} in size the interval of Bayes@N covers less than it says:"
        " read avg@N's",
        f"real: the {level} interval of the change from the step before leaves out 0",
    ]
    return Table("scores along training", heads, rows, notes)


def stability(rows: Rows, cfg: TrajectoryConfig, steps: str | None = None) -> Table:
    """Tabulate how steady each protocol is; of all rows, or of those of all or common steps."""
    shown = rows if steps is None else where(rows, steps=steps)
    heads = [
        *place(rows),
        *columns(align="left", wide=steps is not None, steps="steps"),
        *columns(wide=not varies(shown, "n"), n="points"),
        *columns(_THREE, tau="τ"),
        *_ends("tau", "boot"),
        _TAU_B,
        *_ends("tau_b", "boot τ_b", wide=True),
        *columns(_THREE, wide=True, tau_b_undefined="τ_b undefined"),
        *columns(_THREE, down="down"),
        *_ends("down", "boot down", wide=True),
        *columns(_THREE, flat="flat"),
        *columns(group="real", real_up="up", real_down="down"),
        *_KEYS,
    ]
    points = " or ".join(map(str, values(shown, "n")))
    over = f", over the {points} steps that all windows share" if steps == COMMON else ""
    title = f"how steadily a score follows training{over}"
    return Table(title, heads, shown, _stability_notes(shown, cfg))


def _stability_notes(rows: Rows, cfg: TrajectoryConfig) -> list[str]:
    level = percent(cfg.confidence)
    steps = max((row["n"] for row in rows), default=1) - 1
    chance = steps * (1 - cfg.confidence)
    requested = metrics({row["metric"] for row in rows} - {GREEDY.name})
    voting = any(metric.votes for metric in requested)
    voted = "votes and the best of k are not drawn again: their boot is blank"
    greedy = "greedy: one attempt without chance; there is nothing to draw again"
    return [
        "τ: 4P / n(n-1) - 1 with P the pairs of which the later scores higher (MaP); a tie counts"
        " as discordant. τ_b: tied pairs count neither way, and shorten its scale. down, flat:"
        " shares of the steps that go down, and neither up nor down",
        _TIES,
        f"real: steps whose {level} interval leaves out 0; of {steps} steps of a training that"
        f" stands still about {chance:.2g} would be, up or down",
        f"boot: {cfg.replicates} bootstrap replicates of the trials, seed {cfg.seed};"
        f" mean and {level} interval. They hold the noise of the trials twice, so"
        " protocols are compared column by column",
        _FEW,
        _DRAWN,
        INDEPENDENT,
        "with the same number of trials everywhere avg@N, Pass@1 and Bayes@N order checkpoints"
        " alike, so their τ is one and the same; Bayes@N adds the interval",
        *[voted] * voting,
        *[greedy] * bool(where(rows, metric=GREEDY.name)),
    ]


def samples(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Tabulate stability and cost by number of trials."""
    heads = [
        *place(rows),
        *columns(n="n"),
        *columns(_THREE, group="own", tau="τ"),
        *columns(_THREE, wide=True, tau_b="own τ_b", down="own down", flat="own flat"),
        *_ends("tau", "boot τ"),
        replace(_TAU_B, key="tau_b_mean", group="boot"),
        *columns(_THREE, group="boot", down_mean="down", flat_mean="flat"),
        *columns(_THREE, wide=True, tau_b_low="tau_b_low", tau_b_high="tau_b_high"),
        *columns(_THREE, wide=True, tau_b_undefined="tau_b_undefined"),
        *columns("{:.4g}", group="cost", cost="model", cost_trajectory="trajectory"),
        *columns("{:.3g}", group="cost", cost_ratio="to n = 1"),
        *columns(wide=True, points="points"),
        *_KEYS,
    ]
    points = " or ".join(map(str, sorted(values(rows, "points"))))
    prices = ", ".join(f"{name} {price:g}" for name, price in vars(cfg.prices).items())
    notes = [
        f"boot: n trials of every question, mean and {percent(cfg.confidence)} interval"
        f" of {cfg.replicates} replicates drawn from all trials, seed {cfg.seed}, over the"
        f" {points} steps that all windows share. τ counts ties as discordant; τ_b counts them"
        " neither way (mean over replicates that have one); down, flat: shares of the steps that"
        " go down, and neither up nor down",
        _FEW,
        _TIES,
        _DRAWN,
        "avg@n and Pass@1 order checkpoints as Bayes@n does, at the same n: their τ is the same",
        f"cost: MaP's appendix C with measured tokens, prices per million tokens ({prices}); of one"
        f" model, and of the models at those {points} steps",
        "own: of the attempts as they are, not of replicates: greedy, which has one attempt and"
        " nothing to draw, and all trials",
    ]
    return Table("stability and cost by number of trials", heads, rows, notes)


def pairs(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Tabulate Bayes@n against the other metrics on the same draws."""
    what = (
        "τ of Bayes@n is above, equal to or below that of the other metric on the very same trials"
    )
    notes = _compared_notes(cfg, what, "gain: mean difference", _DRAWN)
    title = "Bayes@n against Pass@k and others, the same samples"
    return Table(title, _compared("Bayes@n", rows), rows, notes)


def gains(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Tabulate merged windows against single checkpoints on the same draws."""
    what = (
        "τ of merged windows is above, equal to or below that of single checkpoints, over the steps"
        " that all windows share"
    )
    gain = f"gain: mean and {percent(cfg.confidence)} interval of the difference of both; {_FEW}"
    notes = _compared_notes(cfg, what, gain, f"{_DRAWN}; merged and single are thus drawn jointly")
    title = "merged against single, the same number of samples"
    return Table(title, _compared("merged", rows, "low", "high"), rows, notes)


def _compared(of: str, rows: Rows, *interval: str) -> list[Column]:
    heads = [*place(rows), *columns(n="n")]
    for end, tau in (("", "τ"), ("_b", "τ_b")):
        group = f"{tau} of {of}"
        shares = {f"{key}{end}": key for key in ("above", "equal", "below")}
        differences = {f"difference{end}": "gain"} | {f"{key}{end}": key for key in interval}
        heads += columns(_THREE, shares, group=group)
        heads += columns("{:+.3f}", differences, group=group)
    return [*heads, *_KEYS]


def _compared_notes(cfg: TrajectoryConfig, what: str, gain: str, drawn: str) -> list[str]:
    return [
        f"share of {cfg.replicates} replicates with n trials in which {what}; {gain}; τ_b: over the"
        " replicates in which both have one",
        _TIES,
        drawn,
    ]


def of_map(rows: Rows, gains: Rows) -> dict[str, Table]:
    """Make the tables in MaP's forms that rows of `stability` allow, by the stem of their files.

    `gains` are rows of merged against single over replicates.
    """
    common = where(rows, steps=COMMON)
    windows = sorted({row["window"] for row in common} - {1})
    made: dict[str, Table] = {}
    if windows:
        made |= {"protocols": _table1(common, windows), "merge": _table2(common, windows, gains)}
    if len(windows) > 1:
        made["windows"] = _table3(common, windows)
    made["passk"] = _table4(where(rows, steps=ALL, window=1))
    return {stem: table for stem, table in made.items() if table.rows}


def _table1(common: Rows, windows: Sequence[int]) -> Table:
    """Tabulate merging and Pass@k, each alone and both together."""
    k = largest_k(values(common, "metric"))
    # Pass@1 may not be among the metrics, and avg@N is the same.
    protocols = [("Original (Merge@1, Pass@1)", 1, AVG)]
    protocols += [(f"+ Merge@{w}", w, AVG) for w in windows]
    if k > 1:
        protocols.append((f"+ Pass@{k}", 1, f"{PASS}{k}"))
        protocols += [(f"MaP (Merge@{w}, Pass@{k})", w, f"{PASS}{k}") for w in windows]
    rows = _by_dataset(common, protocols)
    heads = [*names(rows, training="training"), *columns(align="left", protocol="protocol")]
    heads += columns(_THREE, {f"of_{name}": name for name in values(common, "dataset")})
    title = "merging and Pass@k (form of MaP's Table 1)"
    return Table(title, heads, rows, [_SHARED, _ALIKE])


def _table2(common: Rows, windows: Sequence[int], gains: Rows) -> Table:
    """Tabulate the change by merging, by data set and metric."""
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
        *columns(_THREE, original="original", merge="merge"),
        *columns("{:+.3f}", improve="improve"),
        *columns("{:+.3f}", group="boot", gain_low="low", gain_high="high"),
        *columns(_THREE, down, group="steps down", wide=True),
    ]
    notes = [
        f"{_SHARED}; improve: difference of the two τ, on a scale from -2 to 2; boot: its interval"
        " over replicates of as many trials, single and merged on the same draws",
        _FEW,
        _ALIKE,
    ]
    return Table("what merging changes (form of MaP's Table 2)", heads, rows, notes)


def _gain(gains: Rows, merged: Row) -> Row:
    """Select the interval of the gain in replicates of as many trials as a row's score."""
    key = {key: merged[key] for key in ("training", "dataset", "window")}
    metric = BAYES if merged["twin"] else merged["metric"]
    own = where(gains, n=merged["trials"], metric=metric, **key)
    return {f"gain_{end}": own[0][end] if own else None for end in ("low", "high")}


def _table3(common: Rows, windows: Sequence[int]) -> Table:
    """Tabulate τ by the size of the window."""
    titles = {1: "original"} | {window: f"Merge@{window}" for window in windows}
    rows = [
        {**subject, **{f"merge_{w}": own[w]["tau"] if w in own else None for w in titles}}
        for subject, own in _subjects(common)
    ]
    heads = [
        *names(rows, training="training"),
        *columns(align="left", dataset="data set", metric="metric"),
        *columns(_THREE, {f"merge_{window}": title for window, title in titles.items()}),
    ]
    return Table("the size of the window (form of MaP's Table 3)", heads, rows, [_SHARED, _ALIKE])


def _table4(single: Rows) -> Table:
    """Tabulate single checkpoints by metric; mean over bootstrap replicates beside."""
    titles = {GREEDY.name: "Greedy", AVG: "Pass@1"}
    for row in single:
        if row["metric"] not in (BAYES, f"{PASS}1"):
            titles.setdefault(row["metric"], _metric_title(row))
    rows = _by_dataset(single, [(title, 1, metric) for metric, title in titles.items()])
    heads = [*names(rows, training="training"), *columns(align="left", protocol="protocol")]
    for name in values(single, "dataset"):
        both = {f"of_{name}": "τ", f"of_{name}_mean": "bootstrap"}
        heads += columns(_THREE, both, group=name)
    notes = [f"{_TAU}, single checkpoints; bootstrap: mean over replicates of the trials", _ALIKE]
    return Table("Pass@k along training (form of MaP's Table 4)", heads, rows, notes)


def _by_dataset(rows: Rows, protocols: Sequence[tuple[str, int, str]]) -> list[Row]:
    """Make a row for each training and protocol (title, window, metric): τ by data set."""
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
    """Yield training, data set and metric with rows by window; avg@N for all of its order."""
    own_order = [row for row in rows if row["metric"] == AVG or not row["twin"]]
    for (training, dataset, _), own in grouped(own_order, "training", "dataset", "metric").items():
        subject = {"training": training, "dataset": dataset, "metric": _metric_title(own[0])}
        yield subject, {row["window"]: row for row in own}


def _metric_title(row: Mapping[str, Any]) -> str:
    """Return the metric's title, which follows the window's."""
    return str(row["protocol"].partition(", ")[2])
