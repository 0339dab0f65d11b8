"""How many trials a steady curve needs, and what they cost: each protocol at n = 1, 2, 4, ... N.

All protocols of a model are judged on the same replicates, so that Bayes@n can be set against
Pass@k sample for sample.
"""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pipeline.base.console import Meter, percent
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.display.table import Column, Table
from pipeline.research import protocols
from pipeline.research.protocols import AVG, BAYES
from pipeline.research.tables import Row, Rows, columns, values
from pipeline.research.trajectory.stability import DRAWN, KEYS, THREE, TIES, ends, names, place
from pipeline.research.trajectory.tracks import Judged, Track, judge, shared_steps
from scoring.metrics.table import Metric
from scoring.ranking import trajectory as follow

Replicates = dict[str, Judged]  # by name of the metric


class Samples(NamedTuple):
    """The rows of three tables."""

    samples: list[Row]  # stability and cost by protocol and number of trials
    pairs: list[Row]  # Bayes@n against every other metric, on the same replicates
    gains: list[Row]  # merged against single, with the same metric and number of trials


def numbers(most: int) -> list[int]:
    """Numbers of trials: powers of two, and all there are.

    >>> numbers(80), numbers(4), numbers(1)
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 2, 4], [1])
    """
    return sorted({1 << i for i in range(most.bit_length()) if 1 << i <= most} | {most})


def samples(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Samples:
    """How steady each protocol is by number of trials, what it costs, and which one is steadier.

    Steps are those that all windows of a training share, so that windows can be compared.
    """
    rows = Samples([], [], [])
    single: dict[tuple[str, str, int], Replicates] = {}  # of windows of one
    work = [(track, n) for track in tracks for n in numbers(track.trials)]
    with Meter("bootstrap by number of trials", len(work)) as meter:
        for whole, n in work:
            shared = shared_steps(whole, tracks)
            if len(shared) > 1:
                track, group = whole.at(shared), (whole.training, whole.dataset, n)
                metrics = _metrics(whole, n, cfg)
                drawn = _replicates(track, n, metrics, cfg)
                if whole.window == 1:
                    single[group] = drawn
                if n == 1 and track.greedy is not None:
                    rows.samples.append(_row(track, None, 1, None, cfg))
                for metric in metrics:
                    own, cells = drawn[metric.name], {**place(whole, metric, "n"), "n": n}
                    rows.samples.append(_row(track, metric, n, own, cfg))
                    if metric.name != BAYES:
                        rows.pairs.append(cells | _compared(drawn[BAYES], own, None))
                    if whole.window > 1 and metric.name in single.get(group, ()):
                        gain = _compared(own, single[group][metric.name], cfg)
                        rows.gains.append(cells | gain)
            meter.advance(1)
    return rows


def _metrics(track: Track, n: int, cfg: TrajectoryConfig) -> list[Metric]:
    """Bayes@n, and what orders models otherwise and has enough trials."""
    enough = [m for m in track.metrics(cfg.metrics) if m is not None and m.k <= n]
    return [m for m in enough if m.name == BAYES or m.name not in (AVG, f"{protocols.PASS}1")]


def _replicates(
    track: Track, n: int, metrics: Sequence[Metric], cfg: TrajectoryConfig
) -> Replicates:
    """How steady every replicate with n trials is, by metric.

    With n trials of every question Bayes@n orders as the average does, which is computed.
    """
    average = protocols.metrics([])[0].estimate
    scores = follow.resampled_scores(
        track.R,
        {m.name: average if m.name == BAYES else m.estimate for m in metrics},
        trials=n,
        replicates=cfg.replicates,
        seed=track.seed(cfg.seed),
    )
    return {name: judge(of) for name, of in scores.items()}


def _row(
    track: Track, metric: Metric | None, n: int, drawn: Judged | None, cfg: TrajectoryConfig
) -> Row:
    """One protocol with n trials; of greedy decoding nothing is drawn."""
    own: Row = dict.fromkeys(Judged._fields)  # the trials themselves, beside their replicates
    if metric is None or (track.equal and n == track.trials):
        own = judge(track.summary(metric, cfg.confidence).value).cells()
    cells: Row = dict.fromkeys(("tau_b_undefined", "down_mean", "flat_mean"))
    if drawn is not None:
        cells = {
            "tau_b_undefined": float(drawn.tau_b.mask.mean()),
            "down_mean": float(drawn.down.mean()),
            "flat_mean": float(drawn.flat.mean()),
        }
    each, once = cost(track, n if metric else None, cfg), cost(track, 1, cfg)
    return {
        **place(track, metric, "n"),
        "n": n,
        **own,
        **_spread("tau", drawn and drawn.tau, cfg),
        **_spread("tau_b", drawn and drawn.tau_b.compressed(), cfg),
        **cells,
        "cost": each,
        "points": len(track.steps),
        "cost_trajectory": None if each is None else each * len(track.steps),
        "cost_ratio": each / once if each is not None and once else None,
    }


def cost(track: Track, n: int | None, cfg: TrajectoryConfig) -> float | None:
    """What n trials of every question of one model cost; None is the greedy one."""
    tokens = track.tokens
    if n is None:
        tokens = tokens._replace(completion=track.greedy_tokens.completion)
    return protocols.evaluation_cost(tokens, track.R.shape[1], n or 1, cfg.prices)


def _spread(name: str, replicates: Any, cfg: TrajectoryConfig) -> Row:
    """Mean and interval over replicates; blank where no replicate has a value."""
    cells: list[Any] = [None] * 3
    if replicates is not None and replicates.size:
        cells = [float(replicates.mean()), *_interval(replicates, cfg)]
    return {f"{name}_{end}": cell for end, cell in zip(("mean", "low", "high"), cells, strict=True)}


def _compared(one: Judged, other: Judged, cfg: TrajectoryConfig | None) -> Row:
    """Both τ of one against the other; those of τ_b over the replicates in which both have one."""
    differences = {"": one.tau - other.tau, "_b": (one.tau_b - other.tau_b).compressed()}
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
        interval = _interval(difference, cfg) if difference.size else (None, None)
        yield from zip(("low", "high"), interval, strict=True)


def _interval(replicates: Any, cfg: TrajectoryConfig) -> Any:
    tail = (1 - cfg.confidence) / 2
    return np.quantile(replicates, [tail, 1 - tail], method="inverted_cdf").tolist()


def samples_table(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Stability and cost by number of trials."""
    heads = [
        *names(rows),
        Column("n", "n"),
        Column("tau", "τ", r"$\tau$", THREE, group="own"),
        *columns(THREE, wide=True, tau_b="own τ_b", down="own down", flat="own flat"),
        *ends("tau", "boot τ"),
        Column("tau_b_mean", "τ_b", r"$\tau_b$", THREE, group="boot"),
        *columns(THREE, group="boot", down_mean="down", flat_mean="flat"),
        *columns(THREE, wide=True, tau_b_low="tau_b_low", tau_b_high="tau_b_high"),
        *columns(THREE, wide=True, tau_b_undefined="tau_b_undefined"),
        *columns("{:.4g}", group="cost", cost="model", cost_trajectory="trajectory"),
        *columns("{:.3g}", group="cost", cost_ratio="to n = 1"),
        Column("points", "points", wide=True),
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
        TIES,
        DRAWN,
        "avg@n and Pass@1 order checkpoints as Bayes@n does, at the same n: their τ is the same",
        f"cost: MaP's appendix C with measured tokens, prices per million tokens ({prices}); of one"
        f" model, and of the models at those {points} steps",
        "own: of the attempts as they are, not of replicates: greedy, which has one attempt and"
        " nothing to draw, and all trials",
    ]
    return Table("stability and cost by number of trials", heads, rows, notes)


def pairs_table(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Bayes@n against the other metrics on the same draws."""
    what = (
        "τ of Bayes@n is above, equal to or below that of the other metric on the very same trials"
    )
    title = "Bayes@n against Pass@k and others, the same samples"
    return _against(title, "Bayes@n", (), rows, cfg, what, "gain: mean difference", DRAWN)


def gains_table(rows: Rows, cfg: TrajectoryConfig) -> Table:
    """Merged windows against single checkpoints."""
    return _against(
        "merged against single, the same number of samples",
        "merged",
        ("low", "high"),
        rows,
        cfg,
        "τ of merged windows is above, equal to or below that of single checkpoints, over the steps"
        " that all windows share",
        f"gain: mean and {percent(cfg.confidence)} interval of the difference",
        f"{DRAWN}. Where none is missing merged and single are thus drawn jointly",
    )


def _against(
    title: str,
    of: str,
    interval: Sequence[str],
    rows: Rows,
    cfg: TrajectoryConfig,
    what: str,
    gain: str,
    drawn: str,
) -> Table:
    heads = [*names(rows), Column("n", "n")]
    for end, tau in (("", "τ"), ("_b", "τ_b")):
        group = f"{tau} of {of}"
        shares = {f"{key}{end}": key for key in ("above", "equal", "below")}
        gains = {f"difference{end}": "gain"} | {f"{key}{end}": key for key in interval}
        heads += columns(THREE, shares, group=group)
        heads += columns("{:+.3f}", gains, group=group)
    notes = [
        f"share of {cfg.replicates} replicates with n trials in which {what}; {gain}; τ_b: over the"
        " replicates in which both have one",
        TIES,
        drawn,
    ]
    return Table(title, [*heads, *KEYS], rows, notes)
