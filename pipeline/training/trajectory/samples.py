"""How many trials a steady curve needs, and what they cost: each protocol at n = 1, 2, 4, ... N.

All protocols of a model are judged on the same replicates, so that Bayes@n can be set against
Pass@k sample for sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bayes_at_n.pipeline.base.console import Meter, percent
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.protocols import AVERAGE, AVERAGES, BAYES, GREEDY
from bayes_at_n.pipeline.training.tables import Row, Rows, values
from bayes_at_n.pipeline.training.trajectory.stability import (
    DRAWN,
    FEW,
    KEYS,
    TAU_B,
    THREE,
    TIES,
    ends,
    place,
)
from bayes_at_n.pipeline.training.trajectory.steadiness import (
    Steadiness,
    replicates,
    spread,
    steadiness,
)
from bayes_at_n.pipeline.training.trajectory.tracks import Track, common_steps, together
from bayes_at_n.scoring.metrics.table import Metric
from bayes_at_n.scoring.ranking.trajectory import spread as spread_of
from bayes_at_n.scoring.ranking.trajectory import tells


def numbers(most: int) -> list[int]:
    """Numbers of trials: powers of two, and all there are.

    >>> numbers(80), numbers(4), numbers(1)
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 2, 4], [1])
    """
    return sorted({1 << i for i in range(most.bit_length()) if 1 << i <= most} | {most})


def samples(tracks: Sequence[Track], cfg: TrajectoryConfig) -> dict[str, Table]:
    """How steady each protocol is by number of trials, what it costs, and which one is steadier.

    `pairs` has Bayes@n against every other metric, `gains` merged windows against single
    checkpoints with the same metric and number of trials; both on the same replicates. Steps are
    those that all windows of a training share, so that windows can be compared.
    """
    rows: dict[str, list[Row]] = {"samples": [], "pairs": [], "gains": []}
    with Meter("bootstrap by number of trials", len(tracks)) as meter:
        for windows in together(tracks):
            shared = common_steps(windows)
            single: dict[int, dict[str, Steadiness]] = {}  # replicates by number of trials
            for track in windows:
                for n in numbers(track.trials) if len(shared) > 1 else ():
                    _judge(track.at(shared), n, single, rows, cfg)
                meter.advance(1)
    return {
        "samples": _samples_table(rows["samples"], cfg),
        "pairs": _pairs_table(rows["pairs"], cfg),
        "gains": _gains_table(rows["gains"], cfg),
    }


def _judge(
    track: Track,
    n: int,
    single: dict[int, dict[str, Steadiness]],
    rows: dict[str, list[Row]],
    cfg: TrajectoryConfig,
) -> None:
    """Add the rows of a track with n trials; its windows of one come first."""
    enough = [m for m in track.metrics(cfg.metrics) if m.k <= n and not m.votes]
    metrics = [m for m in enough if m.name == BAYES or m.name not in AVERAGES]
    sampled = [metric for metric in metrics if metric is not GREEDY]
    drawn = replicates(track, sampled, cfg, n)
    for metric in metrics if n == 1 else sampled:
        rows["samples"].append(_row(track, metric, n, drawn.get(metric.name), cfg))
    for metric in sampled:
        own, cells = drawn[metric.name], {**track.place(metric, "n"), "n": n}
        if metric.name != BAYES:
            rows["pairs"].append(cells | _compared(drawn[BAYES], own))
        if track.window > 1:
            gain = _compared(own, single[n][metric.name], cfg)
            if not tells(len(track.steps), cfg.confidence):
                gain |= {"low": -2.0, "high": 2.0, "low_b": -2.0, "high_b": 2.0}
            rows["gains"].append(cells | gain)
    single.setdefault(n, drawn)


def _row(
    track: Track, metric: Metric, n: int, drawn: Steadiness | None, cfg: TrajectoryConfig
) -> Row:
    """One protocol with n trials."""
    own: Row = dict.fromkeys(Steadiness._fields)  # the trials themselves, beside their replicates
    if metric is GREEDY or n == track.trials:
        own = steadiness(track.summary(metric, cfg.confidence).value).cells()
    each, once = cost(track, metric, n, cfg), cost(track, AVERAGE, 1, cfg)
    return {
        **track.place(metric, "n"),
        "n": n,
        **own,
        **spread(drawn, len(track.steps), cfg),
        "cost": each,
        "points": len(track.steps),
        "cost_trajectory": None if each is None else each * len(track.steps),
        "cost_ratio": each / once if each is not None and once else None,
    }


def cost(track: Track, metric: Metric, n: int, cfg: TrajectoryConfig) -> float | None:
    """What n trials of every question of one model cost."""
    tokens = track.tokens
    if metric is GREEDY:
        tokens = tokens._replace(completion=track.greedy_tokens.completion)
    return protocols.evaluation_cost(tokens, track.R.shape[1], n, cfg.prices)


def _compared(first: Steadiness, second: Steadiness, cfg: TrajectoryConfig | None = None) -> Row:
    """Both τ of the first against the second; τ_b over the replicates in which both have one.

    With `cfg` the interval of the difference, too.
    """
    differences = {"": first.tau - second.tau, "_b": (first.tau_b - second.tau_b).compressed()}
    return {
        f"{name}{end}": cell
        for end, difference in differences.items()
        for name, cell in _shares(difference, cfg)
    }


def _shares(difference: Any, cfg: TrajectoryConfig | None) -> Iterator[tuple[str, float | None]]:
    settled = np.abs(difference) > 1e-9  # taus of one order are equal but for rounding
    parts = {
        "above": settled & (difference > 0),
        "equal": ~settled,
        "below": settled & (difference < 0),
        "difference": difference,
    }
    for name, part in parts.items():
        yield name, float(part.mean()) if difference.size else None
    if cfg is not None:
        yield from zip(("low", "high"), spread_of(difference, cfg.confidence)[1:], strict=True)


def _samples_table(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Stability and cost by number of trials."""
    heads = [
        *place(rows),
        *columns(n="n"),
        *columns(THREE, group="own", tau="τ"),
        *columns(THREE, wide=True, tau_b="own τ_b", down="own down", flat="own flat"),
        *ends("tau", "boot τ"),
        replace(TAU_B, key="tau_b_mean", group="boot"),
        *columns(THREE, group="boot", down_mean="down", flat_mean="flat"),
        *columns(THREE, wide=True, tau_b_low="tau_b_low", tau_b_high="tau_b_high"),
        *columns(THREE, wide=True, tau_b_undefined="tau_b_undefined"),
        *columns("{:.4g}", group="cost", cost="model", cost_trajectory="trajectory"),
        *columns("{:.3g}", group="cost", cost_ratio="to n = 1"),
        *columns(wide=True, points="points"),
        *KEYS,
    ]
    points = " or ".join(map(str, sorted(values(rows, "points"))))
    prices = ", ".join(f"{name} {price:g}" for name, price in vars(cfg.prices).items())
    notes = [
        f"boot: n trials of every question, mean and {percent(cfg.confidence)} interval"
        f" of {cfg.replicates} replicates drawn from all trials, seed {cfg.seed}, over the"
        f" {points} steps that all windows share. τ counts ties as discordant; τ_b counts them"
        " neither way (mean over replicates that have one); down, flat: shares of the steps that"
        " go down, and neither up nor down",
        FEW,
        TIES,
        DRAWN,
        "avg@n and Pass@1 order checkpoints as Bayes@n does, at the same n: their τ is the same",
        f"cost: MaP's appendix C with measured tokens, prices per million tokens ({prices}); of one"
        f" model, and of the models at those {points} steps",
        "own: of the attempts as they are, not of replicates: greedy, which has one attempt and"
        " nothing to draw, and all trials",
    ]
    return Table("stability and cost by number of trials", heads, rows, notes)


def _pairs_table(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Bayes@n against the other metrics on the same draws."""
    title = "Bayes@n against Pass@k and others, the same samples"
    what = (
        "τ of Bayes@n is above, equal to or below that of the other metric on the very same trials"
    )
    notes = _notes(cfg, what, "gain: mean difference", DRAWN)
    return Table(title, _against("Bayes@n", rows), rows, notes)


def _gains_table(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Merged windows against single checkpoints."""
    what = (
        "τ of merged windows is above, equal to or below that of single checkpoints, over the steps"
        " that all windows share"
    )
    gain = f"gain: mean and {percent(cfg.confidence)} interval of the difference of both; {FEW}"
    drawn = f"{DRAWN}; merged and single are thus drawn jointly"
    title = "merged against single, the same number of samples"
    return Table(
        title, _against("merged", rows, "low", "high"), rows, _notes(cfg, what, gain, drawn)
    )


def _against(of: str, rows: Rows, *interval: str) -> list[Column]:
    heads = [*place(rows), *columns(n="n")]
    for end, tau in (("", "τ"), ("_b", "τ_b")):
        group = f"{tau} of {of}"
        shares = {f"{key}{end}": key for key in ("above", "equal", "below")}
        gains = {f"difference{end}": "gain"} | {f"{key}{end}": key for key in interval}
        heads += columns(THREE, shares, group=group)
        heads += columns("{:+.3f}", gains, group=group)
    return [*heads, *KEYS]


def _notes(cfg: TrajectoryConfig, what: str, gain: str, drawn: str) -> list[str]:
    return [
        f"share of {cfg.replicates} replicates with n trials in which {what}; {gain}; τ_b: over the"
        " replicates in which both have one",
        TIES,
        drawn,
    ]
