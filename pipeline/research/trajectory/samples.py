"""How many trials a steady curve needs, and what they cost: each protocol at n = 1, 2, 4, ... N.

All protocols of a model are judged on the same replicates, so that Bayes@n can be set against
Pass@k sample for sample.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple

import numpy as np

from pipeline.base.console import Meter
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.research.trajectory import protocols
from pipeline.research.trajectory.protocols import AVG, BAYES, GREEDY, PASS, Metric
from pipeline.research.trajectory.stability import Row, key
from pipeline.research.trajectory.tracks import Track
from scoring import Counts
from scoring.metrics.cost import sampling_cost
from scoring.ranking import trajectory as follow

_MILLION = 1e6  # tokens that prices are for


class Judged(NamedTuple):
    """What replicates of one metric are like, each array (replicates,)."""

    tau: Any  # MaP's
    tau_b: Any  # masked where all steps tie
    down: Any
    flat: Any


Replicates = dict[Metric, Judged]


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
    single: dict[tuple[str, str, int], Replicates] = {}  # of windows of one
    work = [(track, n) for track in tracks for n in numbers(track.trials)]
    with Meter("bootstrap by number of trials", len(work)) as meter:
        for track, n in work:
            shared = protocols.shared_steps(track, tracks)
            if len(shared) > 1:
                judged_at = track.at(shared)
                drawn = _replicates(judged_at, n, cfg)
                if n == 1 and track.greedy is not None:
                    found.samples.append(_greedy_row(judged_at, cfg))
                found.samples.extend(_rows(judged_at, n, drawn, cfg))
                found.pairs.extend(_pairs(track, n, drawn))
                place = (track.training, track.dataset, n)
                if track.window == 1:
                    single[place] = drawn
                elif place in single:
                    found.gains.extend(_gains(track, n, single[place], drawn, cfg))
            meter.advance(1)
    return found


def _replicates(track: Track, n: int, cfg: TrajectoryConfig) -> Replicates:
    """How steady every replicate with n trials is, by metric.

    With n trials of every question Bayes@n orders as the average does: one is computed.
    """
    wanted = {Metric(BAYES): protocols.score(Metric(AVG))}
    wanted |= {Metric(PASS, k): protocols.score(Metric(PASS, k)) for k in cfg.pass_k if 1 < k <= n}
    drawn = follow.resampled_scores(
        protocols.drawn_from(track),
        {str(metric): score for metric, score in wanted.items()},
        trials=n,
        replicates=cfg.replicates,
        seed=protocols.seed(track, cfg.seed),
    )
    return {metric: judged(drawn[str(metric)]) for metric in wanted}


def judged(values: Any) -> Judged:
    """How steadily scores (..., n) follow training."""
    measures = (follow.monotone_tau, follow.progress_tau_b, follow.down_share, protocols.flat_share)
    return Judged(*(measure(values) for measure in measures))


def _rows(track: Track, n: int, drawn: Replicates, cfg: TrajectoryConfig) -> Iterator[Row]:
    once = cost(track, 1, cfg)
    for metric, values in drawn.items():
        scores = None
        if track.equal and n == track.trials:  # the trials themselves, beside their replicates
            scores = protocols.score(metric)(Counts(track.counts))
        yield {
            **_key(track, metric, n),
            **_own(scores),
            **_spread("tau", values.tau, cfg),
            **_spread("tau_b", values.tau_b.compressed(), cfg),
            "tau_b_undefined": float(values.tau_b.mask.mean()),
            "down_mean": float(values.down.mean()),
            "flat_mean": float(values.flat.mean()),
            **_costs(track, cost(track, n, cfg), once),
        }


def _greedy_row(track: Track, cfg: TrajectoryConfig) -> Row:
    """One greedy attempt: how steady it is itself, as there is nothing to draw; what it costs."""
    assert track.greedy is not None
    own = track._replace(completion_tokens=track.greedy_tokens)
    none = np.zeros(0)
    return {
        **_key(track, Metric(GREEDY), 1),
        **_own(track.greedy.mean(axis=-1)),
        **_spread("tau", none, cfg),
        **_spread("tau_b", none, cfg),
        **dict.fromkeys(("tau_b_undefined", "down_mean", "flat_mean")),
        **_costs(track, cost(own, 1, cfg), cost(track, 1, cfg)),
    }


def _own(scores: Any) -> Row:
    """Of scores (n,) as they are, not drawn again; blank where there are none of so many trials."""
    if scores is None:
        return dict.fromkeys(Judged._fields)
    found = judged(scores)._asdict()
    return {name: None if np.ma.is_masked(one) else float(one) for name, one in found.items()}


def _spread(name: str, values: Any, cfg: TrajectoryConfig) -> Row:
    """Mean and interval over replicates; blank where no replicate has a value."""
    found = (float(values.mean()), *_ends(values, cfg)) if values.size else (None, None, None)
    return dict(zip((f"{name}_mean", f"{name}_low", f"{name}_high"), found, strict=True))


def _key(track: Track, metric: Metric, n: int) -> Row:
    return {**key(track, metric, "n"), "n": n}


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
        "points": len(track.steps),
        "cost_trajectory": None if each is None else each * len(track.steps),
        "cost_ratio": each / once if each is not None and once else None,
    }


def _pairs(track: Track, n: int, drawn: Replicates) -> Iterator[Row]:
    """How often Bayes@n is steadier than Pass@k on the same draws."""
    for metric, values in drawn.items():
        if metric.kind == PASS:
            yield {**_key(track, metric, n), **_compared(drawn[Metric(BAYES)], values, None)}


def _gains(
    track: Track, n: int, single: Replicates, merged: Replicates, cfg: TrajectoryConfig
) -> Iterator[Row]:
    """How often merged windows are steadier than single checkpoints on the same draws."""
    for metric in merged:
        if metric in single:
            yield {**_key(track, metric, n), **_compared(merged[metric], single[metric], cfg)}


def _compared(one: Judged, other: Judged, cfg: TrajectoryConfig | None) -> Row:
    """Both τ of one against the other; those of τ_b over the replicates in which both have one."""
    by_b = (one.tau_b - other.tau_b).compressed()
    found: Row = {}
    for end, difference in (("", one.tau - other.tau), ("_b", by_b)):
        cells = _shares(difference)
        if cfg is not None:
            cells |= dict.fromkeys(("low", "high"))
            if difference.size:
                cells["low"], cells["high"] = _ends(difference, cfg)
        found |= {f"{name}{end}": cell for name, cell in cells.items()}
    return found


def _shares(difference: Any) -> Row:
    if not difference.size:
        return dict.fromkeys(("above", "equal", "below", "difference"))
    settled = np.abs(difference) > 1e-9  # taus of one order are equal but for rounding
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
