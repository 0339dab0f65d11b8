"""The curve of every protocol, and how steadily it follows training: rows and tables."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import scoring
from pipeline.base.console import Meter, percent, warn
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.display.table import Column, Table
from pipeline.research import protocols
from pipeline.research.protocols import AVG, BAYES, GREEDY
from pipeline.research.tables import Row, Rows, columns, values, varies, where
from pipeline.research.trajectory.tracks import Track, judge, shared_steps
from scoring.metrics.table import Metric, Summary
from scoring.ranking import trajectory as follow

ALL, COMMON = "all", "common"
INDEPENDENT = (
    "intervals of scores take trials as independent; seeds are shared across questions, which"
    " correlates trials of one index, so that they may be too narrow"
)
DRAWN = (
    "replicates draw whole trials, one index for all questions, checkpoints and windows, as trials"
    " of one index share their seed; where trials are missing, each question's by itself"
)
TIES = (
    "fewer trials mean more ties, which lower MaP's τ and down alike: few trials and greedy are not"
    " to be judged by these two alone, but by τ_b and flat beside them"
)
THREE = "{:.3f}"


def place(track: Track, metric: Metric | None, trials: int | str | None = None) -> Row:
    """The cells that say of which protocol a row is, with its own number of trials or another."""
    title = protocols.title(metric, trials or track.size)
    return {
        "training": track.training,
        "dataset": track.dataset,
        "window": track.window,
        "metric": metric.name if metric else GREEDY,
        "protocol": f"Merge@{track.window}, {title}",
    }


def curve(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """One row for each step of each protocol: score, interval, and the step from the one before."""
    rows = []
    for track in tracks:
        for metric in track.metrics(cfg.metrics):
            scores = track.summary(metric, cfg.confidence)
            cells = scores._asdict() | {"shrinkage": _shrinkage(track, metric, scores)}
            changes = _changes(scores, cfg.confidence)
            for i, (step, name) in enumerate(zip(track.steps.tolist(), track.names, strict=True)):
                row = {**place(track, metric), "step": step, "name": name}
                row |= {key: None if of is None else float(of[i]) for key, of in cells.items()}
                rows.append(row | (changes[i - 1] if i else dict.fromkeys(changes[0])))
    _warn_strayed([row for row in rows if row["shrinkage"] is not None])
    return rows


def _shrinkage(track: Track, metric: Metric | None, scores: Summary) -> Any:
    """How far the prior moved each score, in σ; None where there is no prior."""
    if metric is None or metric.name != BAYES:
        return None
    return np.asarray(scoring.shrinkage(scores.value, scores.sigma, scoring.avg(track.R)[0]))


def _warn_strayed(rows: Rows) -> None:
    strayed = [row for row in rows if abs(row["shrinkage"]) > scoring.SHRINKAGE_LIMIT]
    if strayed:
        worst = max(strayed, key=lambda row: abs(row["shrinkage"]))
        warn(
            f"the uniform prior moved Bayes@N by more than {scoring.SHRINKAGE_LIMIT:g} σ at"
            f" {len(strayed)} of {len(rows)} points ({worst['name']} {worst['shrinkage']:+.2f} σ):"
            " its intervals cover less than they say there; read avg@N and its interval"
        )


def _changes(scores: Summary, confidence: float) -> list[Row]:
    """Each step from one score to the next; real where its interval leaves out 0."""
    difference = np.diff(scores.value).tolist()
    if scores.sigma is None:
        empty = {"change_low": None, "change_high": None, "real": None}
        return [{"change": change, **empty} for change in difference]
    value, sigma = scores.value, scores.sigma
    compared = scoring.compare_scores(value[1:], sigma[1:], value[:-1], sigma[:-1], confidence)
    return [
        {"change": change, "change_low": low, "change_high": high, "real": low > 0 or high < 0}
        for change, low, high in zip(
            difference, compared.lo.tolist(), compared.hi.tolist(), strict=True
        )
    ]


def stability(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """One row for each protocol: over all its steps, and over those that all windows share."""
    rows: list[Row] = []
    with Meter("bootstrap", len(tracks)) as meter:
        for track in tracks:
            whole = [*_judged(track, ALL, cfg)]
            rows += whole
            shared = shared_steps(track, tracks)
            if len(shared) == len(track.steps):
                rows += [{**row, "steps": COMMON} for row in whole]
            elif len(shared) > 1:
                rows += _judged(track.at(shared), COMMON, cfg)
            meter.advance(1)
    return rows


def _judged(track: Track, steps: str, cfg: TrajectoryConfig) -> Iterator[Row]:
    metrics = track.metrics(cfg.metrics)
    # What orders models as avg@N does is not drawn again.
    kept = [m for m in metrics if m and (m.name == AVG or not track.is_average(m))]
    judged = follow.stabilities(
        track.R,
        {metric.name: metric.estimate for metric in kept},
        replicates=cfg.replicates,
        seed=track.seed(cfg.seed),
        confidence=cfg.confidence,
    )
    for metric in metrics:
        scores = track.summary(metric, cfg.confidence)
        real = [one["change"] for one in _changes(scores, cfg.confidence) if one["real"]]
        twin = track.is_average(metric)
        yield {
            **place(track, metric),
            "steps": steps,
            "n": len(track.steps),
            "trials": track.trials if track.equal else None,
            "twin": twin,  # whether its order is that of avg@N
            **dict.fromkeys(follow.Stability._fields),  # there is nothing to draw of greedy
            **judge(scores.value).cells(),
            **(judged[AVG if twin else metric.name]._asdict() if metric else {}),
            "real_up": sum(change > 0 for change in real) if metric else None,
            "real_down": sum(change < 0 for change in real) if metric else None,
        }


def curve_table(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """The rows of `curve` as a table."""
    level, four = percent(cfg.confidence), "{:.4f}"
    heads = [
        *names(rows),
        Column("step", "step"),
        Column("name", "checkpoint", align="left"),
        Column("value", "score", format=four),
        Column("sigma", "σ", r"$\sigma$", format=four),
        *columns(four, low="low", high="high"),
        *columns("{:+.2f}", shrinkage="shrinkage"),
        *columns("{:+.4f}", change="change"),
        *columns("{:+.4f}", group="change", change_low="low", change_high="high"),
        Column("real", "real"),
        *KEYS,
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


def stability_table(rows: Rows, cfg: TrajectoryConfig, steps: str | None = None) -> Table:
    """The rows of `stability` as a table: all, or those of all or common steps."""
    shown = rows if steps is None else where(rows, steps=steps)
    heads = [
        *names(rows),
        Column("steps", "steps", align="left", wide=steps is not None),
        Column("n", "points", wide=not varies(shown, "n")),
        Column("tau", "τ", r"$\tau$", format=THREE),
        *ends("tau", "boot"),
        Column("tau_b", "τ_b", r"$\tau_b$", format=THREE),
        *ends("tau_b", "boot τ_b", wide=True),
        *columns(THREE, wide=True, tau_b_undefined="τ_b undefined"),
        *columns(THREE, down="down"),
        *ends("down", "boot down", wide=True),
        *columns(THREE, flat="flat"),
        *columns(group="real", real_up="up", real_down="down"),
        *KEYS,
    ]
    title = f"how steadily a score follows training{_over(shown, steps)}"
    return Table(title, heads, shown, _notes(shown, cfg))


def _over(rows: Rows, steps: str | None) -> str:
    """Which steps rows are over, for a title."""
    points = values(rows, "n")
    if steps is None or len(points) != 1:
        return ", over the steps that all windows share" if steps == COMMON else ""
    merged = any(row["window"] > 1 for row in rows)
    return f", over {points[0]} steps" + " that all windows share" * merged


def _notes(rows: Rows, cfg: TrajectoryConfig) -> list[str]:
    level = percent(cfg.confidence)
    steps = max((row["n"] for row in rows), default=1) - 1
    chance = steps * (1 - cfg.confidence)
    greedy = "greedy: one attempt without chance; there is nothing to draw again"
    return [
        "τ: 4P / n(n-1) - 1 with P the pairs of which the later scores higher (MaP); a tie counts"
        " as discordant. τ_b: tied pairs count neither way, and shorten its scale. down, flat:"
        " shares of the steps that go down, and neither up nor down",
        TIES,
        f"real: steps whose {level} interval leaves out 0; of {steps} steps of a training that"
        f" stands still about {chance:.2g} would be, up or down",
        f"boot: {cfg.replicates} bootstrap replicates of the trials, seed {cfg.seed};"
        f" mean and {level} interval. They hold the noise of the trials twice, so"
        " protocols are compared column by column",
        DRAWN,
        INDEPENDENT,
        "with the same number of trials everywhere avg@N, Pass@1 and Bayes@N order checkpoints"
        " alike, so their τ is one and the same; Bayes@N adds the interval",
        *[greedy] * bool(where(rows, metric=GREEDY)),
    ]


KEYS = columns(wide=True, window="window", metric="metric")


def names(rows: Rows) -> list[Column]:
    """The columns that say what a row is of; those that are the same everywhere only in files."""
    return [
        Column("training", "training", align="left", wide=not varies(rows, "training")),
        Column("dataset", "data set", align="left", wide=not varies(rows, "dataset")),
        Column("protocol", "protocol", align="left"),
    ]


def ends(key: str, group: str, wide: bool = False) -> list[Column]:
    """Mean and interval over replicates."""
    titles = {f"{key}_{end}": end for end in ("mean", "low", "high")}
    return columns(THREE, titles, group=group, wide=wide)
