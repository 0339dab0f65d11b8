"""The curve of every protocol, and how steadily it follows training."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import scoring
from pipeline.base.console import Meter, percent, warn
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.display.table import Column, Table
from pipeline.research.trajectory import protocols
from pipeline.research.trajectory.protocols import AVG, BAYES, GREEDY, PASS, Metric, Scores
from pipeline.research.trajectory.tracks import Track
from scoring import Counts
from scoring.ranking import trajectory as follow

ALL, COMMON = "all", "common"
Row = dict[str, Any]


def key(track: Track, metric: Metric, trials: int | str | None = None) -> Row:
    """The cells that say of which protocol a row is, with its own number of trials or another."""
    return {
        "training": track.training,
        "dataset": track.dataset,
        "window": track.window,
        "metric": metric.kind,
        "k": metric.k,
        "protocol": protocols.label(track.window, metric, trials or protocols.trials_of(track)),
    }


def curve(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """One row for each step of each protocol: score, interval, and the step from the one before."""
    rows = []
    for track in tracks:
        for metric in protocols.metrics(track, cfg.pass_k):
            found = protocols.scores(track, metric, cfg.confidence)
            changes = _changes(found, cfg.confidence)
            moved = _shrinkage(track, metric, found)
            for i, (step, name) in enumerate(zip(track.steps.tolist(), track.names, strict=True)):
                cells = {part: _cell(value, i) for part, value in found._asdict().items()}
                change = changes[i - 1] if i else dict.fromkeys(changes[0])
                cells["shrinkage"] = _cell(moved, i)
                rows.append({**key(track, metric), "step": step, "name": name, **cells, **change})
    _warn_strayed([row for row in rows if row["shrinkage"] is not None])
    return rows


def _shrinkage(track: Track, metric: Metric, found: Scores) -> Any:
    """How far the prior moved each score, in σ; None where there is no prior."""
    if metric.kind != BAYES:
        return None
    average = scoring.avg(Counts(track.counts))[0]
    return np.asarray(scoring.shrinkage(found.value, found.sigma, average))


def _warn_strayed(rows: Sequence[Row]) -> None:
    strayed = [row for row in rows if abs(row["shrinkage"]) > scoring.SHRINKAGE_LIMIT]
    if strayed:
        worst = max(strayed, key=lambda row: abs(row["shrinkage"]))
        warn(
            f"the uniform prior moved Bayes@N by more than {scoring.SHRINKAGE_LIMIT:g} σ at"
            f" {len(strayed)} of {len(rows)} points ({worst['name']} {worst['shrinkage']:+.2f} σ):"
            " its intervals cover less than they say there; read avg@N and its interval"
        )


def _cell(values: Any, i: int) -> float | None:
    return None if values is None else float(values[i])


def _changes(found: Scores, confidence: float) -> list[Row]:
    """Each step from one score to the next; real where its interval leaves out 0."""
    difference = np.diff(found.value)
    if found.sigma is None:
        empty = {"change_low": None, "change_high": None, "real": None}
        return [{"change": float(d), **empty} for d in difference]
    after, before = slice(1, None), slice(None, -1)
    compared = scoring.compare_scores(
        *(found.value[after], found.sigma[after], found.value[before], found.sigma[before]),
        confidence,
    )
    return [
        {"change": float(d), "change_low": lo, "change_high": hi, "real": lo > 0 or hi < 0}
        for d, lo, hi in zip(difference, compared.lo.tolist(), compared.hi.tolist(), strict=True)
    ]


def stability(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """One row for each protocol: over all its steps, and over those that all windows share."""
    rows: list[Row] = []
    with Meter("bootstrap", len(tracks)) as meter:
        for track in tracks:
            whole = [*_rows(track, ALL, cfg)]
            rows += whole
            shared = protocols.shared_steps(track, tracks)
            if len(shared) == len(track.steps):
                rows += [{**row, "steps": COMMON} for row in whole]
            elif len(shared) > 1:
                rows += _rows(track.at(shared), COMMON, cfg)
            meter.advance(1)
    return rows


def _rows(track: Track, steps: str, cfg: TrajectoryConfig) -> Iterator[Row]:
    wanted = protocols.metrics(track, cfg.pass_k)
    computed = {protocols.twins(track, metric) for metric in wanted if metric.kind != GREEDY}
    found = follow.stabilities(
        protocols.drawn_from(track),
        {metric.label("N"): protocols.score(metric) for metric in sorted(computed, key=repr)},
        replicates=cfg.replicates,
        seed=protocols.seed(track, cfg.seed),
        confidence=cfg.confidence,
    )
    for metric in wanted:
        scored = protocols.scores(track, metric, cfg.confidence)
        if metric.kind == GREEDY:
            judged = _greedy(scored.value)
        else:
            judged = found[protocols.twins(track, metric).label("N")]._asdict()
        changes = _changes(scored, cfg.confidence)
        real = [c["change"] for c in changes if c["real"]]
        counted = {"real_up": None, "real_down": None}
        if metric.kind != GREEDY:
            counted = {
                "real_up": sum(change > 0 for change in real),
                "real_down": sum(change < 0 for change in real),
            }
        of = {"steps": steps, "n": len(track.steps)}
        of["trials"] = track.trials if track.equal else None
        of["flat"] = float(protocols.flat_share(scored.value))
        # Whether its order is that of avg@N.
        of["twin"] = protocols.twins(track, metric) == Metric(AVG)
        yield {**key(track, metric), **of, **judged, **counted}


def _greedy(values: Any) -> Row:
    """Of scores without trials to draw again."""
    tau_b = follow.progress_tau_b(values)
    return dict.fromkeys(follow.Stability._fields) | {
        "tau": follow.monotone_tau(values),
        "tau_b": None if np.ma.is_masked(tau_b) else float(tau_b),
        "down": follow.down_share(values),
    }


def curve_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """The rows of `curve` as a table."""
    level = percent(cfg.confidence)
    number = "{:.4f}"
    columns = [
        *names(rows),
        Column("step", "step"),
        Column("name", "checkpoint", align="left"),
        Column("value", "score", format=number),
        Column("sigma", "σ", r"$\sigma$", format=number),
        Column("low", "low", format=number),
        Column("high", "high", format=number),
        Column("shrinkage", "shrinkage", format="{:+.2f}"),
        Column("change", "change", format="{:+.4f}"),
        Column("change_low", "low", format="{:+.4f}", group="change"),
        Column("change_high", "high", format="{:+.4f}", group="change"),
        Column("real", "real"),
        *_wide(),
    ]
    notes = [
        f"low, high: {level} credible interval of the model's success on these very questions, not"
        " on others, nor of another training; greedy has one attempt and none",
        f"Pass@k: the unbiased estimator -/+ z of its sampling σ, a {level} confidence interval",
        protocols.INDEPENDENT,
        "shrinkage: (Bayes@N - avg@N) / σ; where it exceeds"
        f" {scoring.SHRINKAGE_LIMIT:g} in size the interval of Bayes@N covers less than it says:"
        " read avg@N's",
        f"real: the {level} interval of the change from the step before leaves out 0",
    ]
    return Table("scores along training", columns, rows, notes)


def stability_table(rows: Sequence[Row], cfg: TrajectoryConfig, steps: str | None = None) -> Table:
    """The rows of `stability` as a table: all, or those of all or common steps."""
    number = "{:.3f}"
    shown = [row for row in rows if steps is None or row["steps"] == steps]
    columns = [
        *names(rows),
        Column("steps", "steps", align="left", wide=steps is not None),
        Column("n", "points", wide=not _varies(shown, "n")),
        Column("tau", "τ", r"$\tau$", format=number),
        *_spread("tau", "boot"),
        Column("tau_b", "τ_b", r"$\tau_b$", format=number),
        *_spread("tau_b", "boot τ_b", wide=True),
        Column("tau_b_undefined", "τ_b undefined", format=number, wide=True),
        Column("down", "down", format=number),
        *_spread("down", "boot down", wide=True),
        Column("flat", "flat", format=number),
        Column("real_up", "up", group="real"),
        Column("real_down", "down", group="real"),
        *_wide(),
    ]
    return Table(f"how steadily a score follows training{_over(shown, steps)}", columns, shown,
                 _notes(shown, cfg))  # fmt: skip


def _over(rows: Sequence[Row], steps: str | None) -> str:
    """Which steps rows are over, for a title."""
    points = {row["n"] for row in rows}
    if steps is None or len(points) != 1:
        return ", over the steps that all windows share" if steps == COMMON else ""
    merged = any(row["window"] > 1 for row in rows)
    return f", over {points.pop()} steps" + " that all windows share" * merged


def _notes(rows: Sequence[Row], cfg: TrajectoryConfig) -> list[str]:
    level = percent(cfg.confidence)
    steps = max((row["n"] for row in rows), default=1) - 1
    chance = steps * (1 - cfg.confidence)
    notes = [
        "τ: 4P / n(n-1) - 1 with P the pairs of which the later scores higher (MaP); a tie counts"
        " as discordant. τ_b: tied pairs count neither way, and shorten its scale. down, flat:"
        " shares of the steps that go down, and neither up nor down",
        protocols.TIES,
        f"real: steps whose {level} interval leaves out 0; of {steps} steps of a training that"
        f" stands still about {chance:.2g} would be, up or down",
        f"boot: {cfg.replicates} bootstrap replicates of the trials, seed {cfg.seed};"
        f" mean and {level} interval. They hold the noise of the trials twice, so"
        " protocols are compared column by column",
        protocols.DRAWN,
        protocols.INDEPENDENT,
    ]
    if any(row["metric"] not in (GREEDY, PASS) for row in rows):
        notes.append(
            "with the same number of trials everywhere avg@N, Pass@1 and Bayes@N order checkpoints"
            " alike, so their τ is one and the same; Bayes@N adds the interval"
        )
    if any(row["metric"] == GREEDY for row in rows):
        notes.append("greedy: one attempt without chance; there is nothing to draw again")
    return notes


def names(rows: Sequence[Row]) -> list[Column]:
    """The columns that say what a row is of; those that are the same everywhere only in files."""
    columns = [
        Column(key, key.replace("dataset", "data set"), align="left", wide=not _varies(rows, key))
        for key in ("training", "dataset")
    ]
    return [*columns, Column("protocol", "protocol", align="left")]


def _varies(rows: Sequence[Row], key: str) -> bool:
    return len({row[key] for row in rows}) > 1


def _wide() -> list[Column]:
    return [Column(key, key, wide=True) for key in ("window", "metric", "k")]


def _spread(key: str, group: str, wide: bool = False) -> list[Column]:
    return [
        Column(f"{key}_{end}", end, format="{:.3f}", group=group, wide=wide)
        for end in ("mean", "low", "high")
    ]
