"""Measure how steadily scores follow training: rows of the tables of `trajectory`.

On the trials themselves and on bootstrap replicates of them. A replicate draws whole trials, one
index for all questions, checkpoints and windows, so all protocols with the same number of trials
share their draws.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import Meter, warn
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.training.cells import Row, Rows, records
from bayes_at_n.pipeline.training.protocols import (
    AVERAGE,
    AVERAGES,
    AVG,
    BAYES,
    GREEDY,
    evaluation_cost,
)
from bayes_at_n.pipeline.training.tracks import Track, by_training, common_steps
from bayes_at_n.scoring.metrics.table import Metric, Summary
from bayes_at_n.scoring.ranking import trajectory as follow

ALL, COMMON = "all", "common"


class Steadiness(NamedTuple):
    """Measures of how steadily scores (..., n) follow training, each (...)."""

    tau: Any  # MaP's
    tau_b: Any  # masked if all steps tie
    down: Any  # share of the steps whose score goes down
    flat: Any  # share of the steps whose score goes neither up nor down

    def cells(self) -> Row:
        """Return the measures of one curve as cells; None for an undefined τ_b.

        >>> steadiness([0.1, 0.3, 0.1 + 0.2, 0.2, 0.2]).cells()["flat"]
        0.5
        """
        parts = self._asdict().items()
        return {name: None if np.ma.is_masked(part) else float(part) for name, part in parts}


Drawn = Mapping[str, Steadiness]  # by metric, over B replicates: (B,)


def steadiness(scores: Any) -> Steadiness:
    """Measure how steadily scores (..., n) follow training."""
    flat = np.mean(np.diff(scoring.ranks(scores), axis=-1) == 0, axis=-1)
    taus = follow.monotone_tau(scores), follow.progress_tau_b(scores)
    return Steadiness(*taus, follow.down_share(scores), flat)


def replicates(track: Track, trials: int, cfg: TrajectoryConfig) -> dict[str, Steadiness]:
    """Measure replicates of `trials` trials by metric, on the same draws; (replicates,) each.

    Votes and greedy decoding are not resampled. Bayes@N and Pass@1, which order models as avg@N
    does, have its values.
    """
    metrics = [
        metric
        for metric in track.metrics(cfg.metrics)
        if metric.k <= trials and metric is not GREEDY and not metric.votes
    ]
    estimates = {m.name: m.estimate for m in metrics if m.name == AVG or m.name not in AVERAGES}
    scores = follow.resampled_scores(track.R, estimates, trials, cfg.replicates, cfg.seed)
    drawn = {name: steadiness(values) for name, values in scores.items()}
    return {metric.name: drawn[_twin(metric)] for metric in metrics}


def _twin(metric: Metric) -> str:
    """Return the name of the metric that orders models as this one does."""
    return AVG if metric.name in AVERAGES else metric.name


def spread(drawn: Steadiness | None, steps: int, cfg: TrajectoryConfig) -> Row:
    """Compute mean and interval over replicates, such as tau_mean, tau_low and tau_high.

    None without replicates, as for greedy decoding, and if no replicate has a value. The interval
    of either tau is its whole scale if the steps are too few to distinguish any order from chance.
    """
    cells: Row = {}
    for name in Steadiness._fields:
        values = np.ma.compressed(getattr(drawn, name)) if drawn else np.empty(0)
        ends = zip(("mean", "low", "high"), follow.spread(values, cfg.confidence), strict=True)
        cells |= {f"{name}_{end}": value for end, value in ends}
        if values.size and name.startswith("tau") and not follow.conclusive(steps, cfg.confidence):
            cells |= {f"{name}_low": -1.0, f"{name}_high": 1.0}
    cells["tau_b_undefined"] = float(drawn.tau_b.mask.mean()) if drawn else None
    return cells


def numbers(most: int) -> list[int]:
    """List numbers of trials: the powers of two up to `most`, and `most`.

    >>> numbers(80), numbers(4), numbers(1)
    ([1, 2, 4, 8, 16, 32, 64, 80], [1, 2, 4], [1])
    """
    return sorted({1 << i for i in range(most.bit_length()) if 1 << i <= most} | {most})


def curve(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """Return one row per protocol and step: score, interval, and change from the step before."""
    rows: list[Row] = []
    for track in tracks:
        for metric in track.metrics(cfg.metrics):
            scores = track.summary(metric, cfg.confidence)
            shrinkage = None  # other metrics have no prior
            if metric.name == BAYES:
                shrinkage = scoring.shrinkage(scores.value, scores.sigma, scoring.avg(track.R)[0])
            cells = {
                "step": track.steps,
                "name": track.names,
                **scores._asdict(),
                "shrinkage": shrinkage,
                **changes(scores, cfg.confidence),
            }
            rows += records(cells, **track.labels(metric))
    _warn_shrunk([row for row in rows if row["shrinkage"] is not None])
    return rows


def _warn_shrunk(rows: Rows) -> None:
    far = [row for row in rows if abs(row["shrinkage"]) > scoring.SHRINKAGE_LIMIT]
    if far:
        worst = max(far, key=lambda row: abs(row["shrinkage"]))
        warn(
            f"the uniform prior moved Bayes@N by more than {scoring.SHRINKAGE_LIMIT:g} σ at"
            f" {len(far)} of {len(rows)} points ({worst['name']} {worst['shrinkage']:+.2f} σ):"
            " its intervals cover less than they claim; read avg@N and its interval"
        )


def changes(scores: Summary, confidence: float) -> Row:
    """Compare each of n scores with the one before: arrays (n,), masked at the first.

    A change is `real` if its interval excludes 0. Without a sigma, `real` and the ends of the
    interval are None.
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


def judge(tracks: Sequence[Track], cfg: TrajectoryConfig) -> dict[str, list[Row]]:
    """Return the rows of `stability`, `samples`, `pairs` and `gains`, on the same replicates.

    `stability` has each protocol over all its steps and over those that all windows share; the
    others are over the shared steps, so that windows can be compared. `samples` has each protocol
    by number of trials, with its cost; `pairs`, Bayes@n against every other metric; `gains`, merged
    windows against single checkpoints with the same metric and number of trials.
    """
    rows: dict[str, list[Row]] = {"stability": [], "samples": [], "pairs": [], "gains": []}
    with Meter("bootstrap", len(tracks)) as meter:
        for windows in by_training(tracks):
            shared = common_steps(windows)
            single: dict[int, Drawn] = {}  # by trials, of windows of one, which come first
            for track in windows:
                whole = len(shared) == len(track.steps)
                cut = track if whole else track.select(shared)
                by_trials: dict[int, Drawn] = {}
                if len(shared) > 1:
                    by_trials = {n: replicates(cut, n, cfg) for n in numbers(track.trials)}
                drawn = by_trials[track.trials] if whole else replicates(track, track.trials, cfg)
                added = [*_judged(track, ALL, drawn, cfg)]
                rows["stability"] += added
                if whole:
                    rows["stability"] += [{**row, "steps": COMMON} for row in added]
                elif by_trials:
                    rows["stability"] += _judged(cut, COMMON, by_trials[track.trials], cfg)
                for n, drawn in by_trials.items():
                    rows["samples"] += _by_trials(cut, n, drawn, cfg)
                    _compare(cut, n, drawn, single.setdefault(n, drawn), rows, cfg)
                meter.advance(1)
    return rows


def _judged(track: Track, steps: str, drawn: Drawn, cfg: TrajectoryConfig) -> Iterator[Row]:
    for metric in track.metrics(cfg.metrics):
        scores = track.summary(metric, cfg.confidence)
        change, real = (changes(scores, cfg.confidence)[key] for key in ("change", "real"))
        yield {
            **track.labels(metric),
            "steps": steps,
            "n": len(track.steps),
            "trials": track.trials,
            "twin": metric.name in AVERAGES,  # orders models as avg@N does
            **steadiness(scores.value).cells(),
            **spread(drawn.get(metric.name), len(track.steps), cfg),
            "real_up": None if real is None else int((real & (change > 0)).sum()),
            "real_down": None if real is None else int((real & (change < 0)).sum()),
        }


def _drawable(track: Track, drawn: Drawn, cfg: TrajectoryConfig) -> list[Metric]:
    """List the metrics that have replicates; Bayes@n stands for all that order models alike."""
    metrics = [metric for metric in track.metrics(cfg.metrics) if metric.name in drawn]
    return [m for m in metrics if m.name == BAYES or m.name not in AVERAGES]


def _by_trials(track: Track, n: int, drawn: Drawn, cfg: TrajectoryConfig) -> Iterator[Row]:
    """Yield the rows of a track's protocols with n trials; greedy decoding is with n = 1."""
    greedy = [GREEDY] if n == 1 and track.greedy is not None else []
    for metric in [*greedy, *_drawable(track, drawn, cfg)]:
        observed: Row = dict.fromkeys(Steadiness._fields)  # of the trials themselves
        if metric is GREEDY or n == track.trials:
            observed = steadiness(track.summary(metric, cfg.confidence).value).cells()
        price, unit = cost(track, metric, n, cfg), cost(track, AVERAGE, 1, cfg)
        yield {
            **track.labels(metric, "n"),
            "n": n,
            **observed,
            **spread(drawn.get(metric.name), len(track.steps), cfg),
            "cost": price,
            "points": len(track.steps),
            "cost_trajectory": None if price is None else price * len(track.steps),
            "cost_ratio": price / unit if price is not None and unit else None,
        }


def cost(track: Track, metric: Metric, n: int, cfg: TrajectoryConfig) -> float | None:
    """Compute the cost of n trials of every question by one model; None if unknown."""
    tokens = track.tokens
    if metric is GREEDY:
        tokens = tokens._replace(completion=track.greedy_tokens.completion)
    return evaluation_cost(tokens, track.R.shape[1], n, cfg.prices)


def _compare(
    track: Track,
    n: int,
    drawn: Drawn,
    single: Drawn,
    rows: dict[str, list[Row]],
    cfg: TrajectoryConfig,
) -> None:
    """Add to `pairs` and `gains` the comparisons of a track with n trials on the same draws."""
    for metric in _drawable(track, drawn, cfg):
        taus, cells = drawn[metric.name], {**track.labels(metric, "n"), "n": n}
        if metric.name != BAYES:
            rows["pairs"].append(cells | _compared(drawn[BAYES], taus))
        if track.window > 1:
            gain = _compared(taus, single[metric.name], cfg)
            if not follow.conclusive(len(track.steps), cfg.confidence):
                gain |= {"low": -2.0, "high": 2.0, "low_b": -2.0, "high_b": 2.0}
            rows["gains"].append(cells | gain)


def _compared(first: Steadiness, second: Steadiness, cfg: TrajectoryConfig | None = None) -> Row:
    """Compare both τ of the first with the second; τ_b over replicates in which both have one.

    With `cfg` the cells include the interval of the difference.
    """
    differences = {"": first.tau - second.tau, "_b": (first.tau_b - second.tau_b).compressed()}
    cells: Row = {}
    for end, difference in differences.items():
        differs = np.abs(difference) > 1e-9  # taus of equal orders may differ by rounding
        parts = {
            "above": differs & (difference > 0),
            "equal": ~differs,
            "below": differs & (difference < 0),
            "difference": difference,
        }
        for name, part in parts.items():
            cells[name + end] = float(part.mean()) if difference.size else None
        if cfg is not None:
            _, cells[f"low{end}"], cells[f"high{end}"] = follow.spread(difference, cfg.confidence)
    return cells
