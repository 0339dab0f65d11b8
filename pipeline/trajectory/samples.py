"""How many trials a steady curve needs, and what they cost: each protocol at n = 1, 2, 4, ... N.

All protocols of a model are judged on the same replicates, so that Bayes@n can be set against
Pass@k sample for sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from pipeline.console import Meter
from pipeline.tabular import Column, Table
from pipeline.trajectory import protocols
from pipeline.trajectory.protocols import AVG, BAYES, GREEDY, PASS, Metric
from pipeline.trajectory.settings import TrajectoryConfig
from pipeline.trajectory.stability import Row, names
from pipeline.trajectory.tracks import Track
from scoring import Counts
from scoring import trajectory as follow
from scoring.cost import sampling_cost

_MILLION = 1e6  # tokens that prices are for
Taus = dict[Metric, Any]  # of every replicate, (replicates,)


def numbers(most: int) -> list[int]:
    """Numbers of trials: powers of two, and all there are.

    >>> numbers(80), numbers(4), numbers(1)
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 2, 4], [1])
    """
    return sorted({1 << i for i in range(most.bit_length()) if 1 << i <= most} | {most})


class Samples(NamedTuple):
    """The rows of three tables."""

    samples: list[Row]  # stability and cost by protocol and number of trials
    pairs: list[Row]  # Bayes@n against every Pass@k, on the same replicates
    gains: list[Row]  # merged against single, with the same metric and number of trials


def samples(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Samples:
    """How steady each protocol is by number of trials, what it costs, and which one is steadier.

    Steps are those that all windows of a training share, so that windows can be compared.
    """
    found = Samples([], [], [])
    single: dict[tuple[str, str, int], Taus] = {}  # of windows of one
    work = [(track, n) for track in tracks for n in numbers(track.trials)]
    with Meter("bootstrap by number of trials", len(work)) as meter:
        for track, n in work:
            beside = [
                t for t in tracks if (t.training, t.dataset) == (track.training, track.dataset)
            ]
            shared = protocols.common_steps(beside)
            if len(shared) > 1:
                taus, downs = _replicates(track.at(shared), n, cfg)
                if n == 1 and track.greedy is not None:
                    found.samples.append(_greedy_row(track, track.at(shared), cfg))
                found.samples.extend(_rows(track, n, taus, downs, cfg))
                found.pairs.extend(_pairs(track, n, taus))
                place = (track.training, track.dataset, n)
                if track.window == 1:
                    single[place] = taus
                elif place in single:
                    found.gains.extend(_gains(track, n, single[place], taus, cfg))
            meter.advance(1)
    return found


def _replicates(track: Track, n: int, cfg: TrajectoryConfig) -> tuple[Taus, Taus]:
    """τ and share of steps down of every replicate with n trials, by metric.

    With n trials of every question Bayes@n orders as the average does: one is computed.
    """
    wanted = {Metric(BAYES): protocols.score(Metric(AVG))}
    wanted |= {Metric(PASS, k): protocols.score(Metric(PASS, k)) for k in cfg.pass_k if 1 < k <= n}
    drawn = follow.resampled_scores(
        Counts(track.counts),
        {str(metric): score for metric, score in wanted.items()},
        trials=n,
        replicates=cfg.replicates,
        seed=protocols.seed(track, cfg.seed),
    )
    taus = {metric: follow.monotone_tau(drawn[str(metric)]) for metric in wanted}
    return taus, {metric: follow.down_share(drawn[str(metric)]) for metric in wanted}


def _rows(track: Track, n: int, taus: Taus, downs: Taus, cfg: TrajectoryConfig) -> Iterator[Row]:
    once = cost(track, 1, cfg)
    for metric, values in taus.items():
        low, high = _ends(values, cfg)
        yield {
            **_key(track, metric, n),
            "tau_mean": float(values.mean()),
            "tau_low": low,
            "tau_high": high,
            "down_mean": float(downs[metric].mean()),
            **_costs(track, cost(track, n, cfg), once),
        }


def _greedy_row(track: Track, shared: Track, cfg: TrajectoryConfig) -> Row:
    """One greedy attempt: τ as it is, and what it costs."""
    assert shared.greedy is not None
    scores = shared.greedy.mean(axis=-1)
    own = track._replace(completion_tokens=track.greedy_tokens)
    return {
        **_key(track, Metric(GREEDY), 1),
        "tau_mean": follow.monotone_tau(scores),
        "tau_low": None,
        "tau_high": None,
        "down_mean": follow.down_share(scores),
        **_costs(track, cost(own, 1, cfg), cost(track, 1, cfg)),
    }


def _key(track: Track, metric: Metric, n: int) -> Row:
    return {
        "training": track.training,
        "dataset": track.dataset,
        "window": track.window,
        "metric": metric.kind,
        "k": metric.k,
        "protocol": protocols.label(track.window, metric, "n"),
        "n": n,
    }


def cost(track: Track, n: int, cfg: TrajectoryConfig) -> float | None:
    """What n trials of every question of one model cost, at prices per million tokens.

    None where the runs do not hold their tokens. Source: MaP, appendix C.
    """
    if track.prompt_tokens is None or track.completion_tokens is None:
        return None
    prices = asdict(cfg.prices)
    one = sampling_cost(track.prompt_tokens, track.completion_tokens, n, **prices)
    return float(one * track.counts.shape[1] / _MILLION)


def _costs(track: Track, each: float | None, once: float | None) -> Row:
    return {
        "cost": each,
        "cost_trajectory": None if each is None else each * len(track.steps),
        "cost_ratio": each / once if each is not None and once else None,
    }


def _pairs(track: Track, n: int, taus: Taus) -> Iterator[Row]:
    """How often Bayes@n is steadier than Pass@k on the same draws."""
    for metric, values in taus.items():
        if metric.kind == PASS:
            yield {**_key(track, metric, n), **_shares(taus[Metric(BAYES)] - values)}


def _gains(
    track: Track, n: int, single: Taus, merged: Taus, cfg: TrajectoryConfig
) -> Iterator[Row]:
    """How often merged windows are steadier than single checkpoints, drawn independently."""
    for metric in merged:
        if metric in single:
            difference = merged[metric] - single[metric]
            low, high = _ends(difference, cfg)
            yield {**_key(track, metric, n), **_shares(difference), "low": low, "high": high}


def _shares(difference: Any) -> Row:
    settled = np.abs(difference) > 1e-9  # taus are fractions of the same number of pairs
    return {
        "above": float(np.mean(settled & (difference > 0))),
        "equal": float(np.mean(~settled)),
        "below": float(np.mean(settled & (difference < 0))),
        "difference": float(difference.mean()),
    }


def _ends(values: Any, cfg: TrajectoryConfig) -> list[float]:
    """The percentile interval of replicates."""
    tail = (1 - cfg.confidence) / 2
    found: list[float] = np.quantile(values, [tail, 1 - tail], method="inverted_cdf").tolist()
    return found


def samples_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """Stability and cost by number of trials."""
    columns = [
        *names(rows),
        Column("n", "n"),
        Column("tau_mean", "τ", r"$\tau$", "{:.3f}"),
        Column("tau_low", "low", format="{:.3f}"),
        Column("tau_high", "high", format="{:.3f}"),
        Column("down_mean", "down", format="{:.3f}"),
        Column("cost", "model", format="{:.4g}", group="cost"),
        Column("cost_trajectory", "trajectory", format="{:.4g}", group="cost"),
        Column("cost_ratio", "to n = 1", format="{:.3g}", group="cost"),
        *(Column(key, key, wide=True) for key in ("window", "metric", "k")),
    ]
    prices = ", ".join(f"{name} {price:g}" for name, price in asdict(cfg.prices).items())
    notes = [
        f"τ with n trials of every question: mean and {cfg.confidence:.0%} interval of"
        f" {cfg.replicates} replicates drawn from all trials, seed {cfg.seed}, over the steps that"
        " all windows share; ties discordant",
        "avg@n and Pass@1 order checkpoints as Bayes@n does, at the same n: their τ is the same",
        f"cost: MaP's appendix C with measured tokens, prices per million tokens ({prices}); of one"
        " model, and of all models of that window",
        "greedy: one attempt with its own measured tokens; τ is that of the attempts themselves",
    ]
    return Table("stability and cost by number of trials", columns, rows, notes)


def pairs_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """Bayes@n against Pass@k on the same draws."""
    share = "{:.3f}"
    columns = [
        *names(rows),
        Column("n", "n"),
        Column("above", "above", format=share, group="τ of Bayes@n"),
        Column("equal", "equal", format=share, group="τ of Bayes@n"),
        Column("below", "below", format=share, group="τ of Bayes@n"),
        Column("difference", "mean difference", format="{:+.3f}"),
        *(Column(key, key, wide=True) for key in ("window", "metric", "k")),
    ]
    notes = [
        f"share of {cfg.replicates} replicates with n trials in which τ of Bayes@n is above, equal"
        " to or below that of Pass@k on the very same trials"
    ]
    return Table("Bayes@n against Pass@k, the same samples", columns, rows, notes)


def gains_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """Merged windows against single checkpoints."""
    share = "{:.3f}"
    columns = [
        *names(rows),
        Column("n", "n"),
        Column("above", "above", format=share, group="τ of merged"),
        Column("equal", "equal", format=share, group="τ of merged"),
        Column("below", "below", format=share, group="τ of merged"),
        Column("difference", "mean", format="{:+.3f}", group="gain"),
        Column("low", "low", format="{:+.3f}", group="gain"),
        Column("high", "high", format="{:+.3f}", group="gain"),
        *(Column(key, key, wide=True) for key in ("window", "metric", "k")),
    ]
    notes = [
        f"share of {cfg.replicates} replicates with n trials in which τ of merged windows is"
        " above, equal to or below that of single checkpoints, over the steps that all windows"
        f" share; gain: mean and {cfg.confidence:.0%} interval of the difference"
    ]
    return Table("merged against single, the same number of samples", columns, rows, notes)
