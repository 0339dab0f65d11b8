"""The curve of every protocol, and how steadily it follows training: rows and tables."""

from collections.abc import Iterator, Sequence

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import Meter, percent, warn
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.protocols import AVERAGES, AVG, BAYES, GREEDY
from bayes_at_n.pipeline.training.tables import Row, Rows, names, records, values, varies, where
from bayes_at_n.pipeline.training.trajectory.steadiness import replicates, spread, steadiness
from bayes_at_n.pipeline.training.trajectory.tracks import Track, common_steps, together
from bayes_at_n.scoring.metrics.table import Summary

ALL, COMMON = "all", "common"
INDEPENDENT = (
    "intervals of scores take attempts as independent; with sampling.seeds=shared trials of one"
    " index are correlated across questions (vLLM's runner V1), so that they may be too narrow"
)
DRAWN = (
    "replicates draw whole trials, one index for all questions, checkpoints and windows, as trials"
    " of one index may share their seed"
)
TIES = (
    "fewer trials mean more ties, which lower MaP's τ and down alike: few trials and greedy are not"
    " to be judged by these two alone, but by τ_b and flat beside them"
)
FEW = (
    "of steps so few that chance alone often puts them in the best order (up to four at 95%) the"
    " interval of τ is its whole scale, -1 to 1, and that of a difference of two τ -2 to 2"
)
THREE = "{:.3f}"
TAU_B = Column("tau_b", "τ_b", r"$\tau_b$", THREE)
KEYS = columns(wide=True, window="window", metric="metric")


def curve(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Table:
    """One row for each step of each protocol: score, interval, and the step from the one before."""
    rows: list[Row] = []
    for track in tracks:
        for metric in track.metrics(cfg.metrics):
            scores = track.summary(metric, cfg.confidence)
            moved = None  # there is no prior
            if metric.name == BAYES:
                moved = scoring.shrinkage(scores.value, scores.sigma, scoring.avg(track.R)[0])
            cells = {
                "step": track.steps,
                "name": track.names,
                **scores._asdict(),
                "shrinkage": moved,
                **changes(scores, cfg.confidence),
            }
            rows += records(cells, **track.place(metric))
    _warn_strayed([row for row in rows if row["shrinkage"] is not None])
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


def _warn_strayed(rows: Rows) -> None:
    strayed = [row for row in rows if abs(row["shrinkage"]) > scoring.SHRINKAGE_LIMIT]
    if strayed:
        worst = max(strayed, key=lambda row: abs(row["shrinkage"]))
        warn(
            f"the uniform prior moved Bayes@N by more than {scoring.SHRINKAGE_LIMIT:g} σ at"
            f" {len(strayed)} of {len(rows)} points ({worst['name']} {worst['shrinkage']:+.2f} σ):"
            " its intervals cover less than they say there; read avg@N and its interval"
        )


def changes(scores: Summary, confidence: float) -> Row:
    """The step to each of n scores from the one before, (n,), masked at the first.

    `real` where its interval leaves out 0; None, as the ends of the interval, without a sigma.
    """
    value, sigma = scores.value, scores.sigma
    before = np.roll(value, 1)
    cells: Row = {"change": value - before, "change_low": None, "change_high": None, "real": None}
    if sigma is not None:
        compared = scoring.compare_scores(value, sigma, before, np.roll(sigma, 1), confidence)
        cells |= {"change_low": compared.lo, "change_high": compared.hi}
        cells["real"] = (compared.lo > 0) | (compared.hi < 0)
    first = np.arange(len(value)) == 0
    arrays = {key: cell for key, cell in cells.items() if cell is not None}
    return cells | {key: np.ma.masked_where(first, cell) for key, cell in arrays.items()}  # type: ignore[no-untyped-call]


def stability(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """One row for each protocol: over all its steps, and over those that all windows share."""
    rows: list[Row] = []
    with Meter("bootstrap", len(tracks)) as meter:
        for windows in together(tracks):
            shared = common_steps(windows)
            for track in windows:
                whole = [*_judged(track, ALL, cfg)]
                rows += whole
                if len(shared) == len(track.steps):
                    rows += [{**row, "steps": COMMON} for row in whole]
                elif len(shared) > 1:
                    rows += _judged(track.at(shared), COMMON, cfg)
                meter.advance(1)
    return rows


def _judged(track: Track, steps: str, cfg: TrajectoryConfig) -> Iterator[Row]:
    metrics = track.metrics(cfg.metrics)
    drawable = [m for m in metrics if m is not GREEDY and not m.votes]
    apart = [m for m in drawable if m.name == AVG or m.name not in AVERAGES]
    drawn = replicates(track, apart, cfg)
    for metric in metrics:
        scores = track.summary(metric, cfg.confidence)
        twin = metric.name in AVERAGES
        change, real = (changes(scores, cfg.confidence)[key] for key in ("change", "real"))
        yield {
            **track.place(metric),
            "steps": steps,
            "n": len(track.steps),
            "trials": track.trials,
            "twin": twin,  # whether its order is that of avg@N
            **steadiness(scores.value).cells(),
            **spread(drawn.get(AVG if twin else metric.name), len(track.steps), cfg),
            "real_up": None if real is None else int((real & (change > 0)).sum()),
            "real_down": None if real is None else int((real & (change < 0)).sum()),
        }


def stability_table(rows: Rows, cfg: TrajectoryConfig, steps: str | None = None) -> Table:
    """The rows of `stability` as a table: all, or those of all or common steps."""
    shown = rows if steps is None else where(rows, steps=steps)
    heads = [
        *place(rows),
        *columns(align="left", wide=steps is not None, steps="steps"),
        *columns(wide=not varies(shown, "n"), n="points"),
        *columns(THREE, tau="τ"),
        *ends("tau", "boot"),
        TAU_B,
        *ends("tau_b", "boot τ_b", wide=True),
        *columns(THREE, wide=True, tau_b_undefined="τ_b undefined"),
        *columns(THREE, down="down"),
        *ends("down", "boot down", wide=True),
        *columns(THREE, flat="flat"),
        *columns(group="real", real_up="up", real_down="down"),
        *KEYS,
    ]
    points = " or ".join(map(str, values(shown, "n")))
    over = f", over the {points} steps that all windows share" if steps == COMMON else ""
    title = f"how steadily a score follows training{over}"
    return Table(title, heads, shown, _notes(shown, cfg))


def _notes(rows: Rows, cfg: TrajectoryConfig) -> list[str]:
    level = percent(cfg.confidence)
    steps = max((row["n"] for row in rows), default=1) - 1
    chance = steps * (1 - cfg.confidence)
    asked = protocols.metrics({row["metric"] for row in rows} - {GREEDY.name})
    voting = any(metric.votes for metric in asked)
    voted = "votes and the best of k are not drawn again: their boot is blank"
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
        FEW,
        DRAWN,
        INDEPENDENT,
        "with the same number of trials everywhere avg@N, Pass@1 and Bayes@N order checkpoints"
        " alike, so their τ is one and the same; Bayes@N adds the interval",
        *[voted] * voting,
        *[greedy] * bool(where(rows, metric=GREEDY.name)),
    ]


def place(rows: Rows) -> list[Column]:
    """The columns that say what a row is of."""
    protocol = columns(align="left", protocol="protocol")
    return [*names(rows, training="training", dataset="data set"), *protocol]


def ends(key: str, group: str, wide: bool = False) -> list[Column]:
    """Mean and interval over replicates."""
    titles = {f"{key}_{end}": end for end in ("mean", "low", "high")}
    return columns(THREE, titles, group=group, wide=wide)
