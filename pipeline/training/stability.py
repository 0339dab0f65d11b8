"""Measure how steadily scores follow training: rows of the tables of `trajectory`.

On the trials themselves and on bootstrap replicates of them. A replicate draws whole trials, one
index for all questions, checkpoints and windows, so all protocols with the same number of trials
share their draws.
"""

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import Meter, note, results, warn
from bayes_at_n.pipeline.config.multirun import Request, TrajectoryConfig
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Table
from bayes_at_n.pipeline.store import selection
from bayes_at_n.pipeline.training import cells, tracks
from bayes_at_n.pipeline.training.cells import Row, Rows, grouped, records, varies, where
from bayes_at_n.pipeline.training.tracks import (
    ALL,
    AVERAGE,
    AVERAGES,
    AVG,
    COMMON,
    GREEDY,
    PASS,
    Track,
    by_training,
    common_steps,
    evaluation_cost,
)
from bayes_at_n.pipeline.training.windows import Series
from bayes_at_n.scoring.metrics.table import Metric, Summary
from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.ranking import trajectory as follow

_PRINTED = ("protocols", "merge", "passk")  # after stability
_EQUAL = 1e-9  # taus of equal orders may differ by rounding
_NAMED = 4  # protocols in a line
Drawn = Mapping[str, Floats]  # by metric, τ of each replicate: (replicates,)


def steadiness(scores: Any) -> Row:
    """Measure how steadily scores (n,) follow training.

    MaP's τ; τ_b, None if all steps tie; the shares of steps that go down, and neither up nor down.

    >>> {key: round(value, 3) for key, value in steadiness([0.1, 0.3, 0.1 + 0.2, 0.2, 0.2]).items()}
    {'tau': -0.2, 'tau_b': 0.0, 'down': 0.25, 'flat': 0.5}
    """
    tau_b = follow.progress_tau_b(scores)
    return {
        "tau": follow.monotone_tau(scores),
        "tau_b": None if np.ma.is_masked(tau_b) else float(tau_b),
        "down": follow.down_share(scores),
        "flat": float(np.mean(np.diff(scoring.ranks(scores)) == 0)),
    }


def replicates(track: Track, trials: int, cfg: TrajectoryConfig) -> dict[str, Floats]:
    """Compute MaP's τ of replicates of `trials` trials by metric, on the same draws.

    Greedy decoding is not resampled. Bayes@N and Pass@1, which order models as avg@N does, have its
    values. Of answers that are not random a replicate draws questions.
    """
    if track.fixed:
        rng, M = np.random.default_rng(cfg.seed), track.R.shape[1]
        times = rng.multinomial(M, np.full(M, 1 / M), cfg.replicates)
        return {AVG: follow.monotone_tau(times @ track.R[..., 0].T / M)}
    metrics = [m for m in track.metrics(cfg.metrics) if m.k <= trials and m is not GREEDY]
    estimates = {m.name: m.estimate for m in metrics if m.name == AVG or m.name not in AVERAGES}
    scores = follow.resampled_scores(track.R, estimates, trials, cfg.replicates, cfg.seed)
    taus = {name: follow.monotone_tau(values) for name, values in scores.items()}
    return {m.name: taus[AVG if m.name in AVERAGES else m.name] for m in metrics}


def spread(taus: Floats | None, steps: int, cfg: TrajectoryConfig, key: str = "tau") -> Row:
    """Compute mean and interval of τ over replicates; None without replicates.

    The interval is the whole scale if the steps are too few to distinguish any order from chance.
    """
    values = np.empty(0) if taus is None else taus
    mean, low, high = follow.spread(values, cfg.confidence)
    if values.size and not follow.conclusive(steps, cfg.confidence):
        high = 2.0 if key == "gain" else 1.0
        low = -high
    return {f"{key}_mean": mean, f"{key}_low": low, f"{key}_high": high}


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
            cells = {"step": track.steps, "name": track.names, **scores._asdict()}
            rows += records(cells | changes(track, scores, cfg.confidence), **track.labels(metric))
    return rows


def changes(track: Track, scores: Summary, confidence: float) -> Row:
    """Compare each of a track's n scores with the one before: arrays (n,), masked at the first.

    `probability` is that of a rise, `z` the change over its σ. A change is `real` if its interval
    excludes 0. Without a sigma all but `change` are None.
    """
    value, sigma = scores.value, scores.sigma
    before = np.roll(value, 1)
    keys = ("change_low", "change_high", "z", "probability", "real")
    cells: Row = {"change": value - before} | dict.fromkeys(keys)
    if sigma is not None:
        own, other = track.apart(np.roll(track.R, 1, axis=0), sigma, np.roll(sigma, 1))
        compared = scoring.compare_scores(value, own, before, other, confidence)
        real = (compared.lo > 0) | (compared.hi < 0)
        z = np.copysign(compared.z, compared.difference)
        ends = (compared.lo, compared.hi, z, compared.probability, real)
        cells |= dict(zip(keys, ends, strict=True))
    first = np.arange(len(value)) == 0
    arrays = {key: cell for key, cell in cells.items() if cell is not None}
    return cells | {key: np.ma.masked_where(first, cell) for key, cell in arrays.items()}  # type: ignore[no-untyped-call]


def judge(tracks: Sequence[Track], cfg: TrajectoryConfig) -> dict[str, list[Row]]:
    """Return the rows of `stability` and `samples`.

    `stability` has each protocol over all its steps and over those that all windows share, there
    with the gain of merged windows over single checkpoints on the same draws. `samples` has each
    protocol by number of trials, with its cost, over the shared steps.
    """
    rows: dict[str, list[Row]] = {"stability": [], "samples": []}
    with Meter("bootstrap", len(tracks)) as meter:
        for windows in by_training(tracks):
            shared, single = common_steps(windows), dict[str, Floats]()
            for track in windows:
                if len(track.steps) < 2:  # of a training that is watched
                    continue
                drawn: Drawn = replicates(track, track.trials, cfg)
                rows["stability"] += _judged(track, ALL, drawn, {}, cfg)
                if len(shared) > 1:
                    cut = track.select(shared)
                    for n in numbers(track.trials):
                        drawn = replicates(cut, n, cfg)
                        rows["samples"] += _by_trials(cut, n, drawn, cfg)
                    single = single or dict(drawn)  # single checkpoints come first
                    rows["stability"] += _judged(cut, COMMON, drawn, single, cfg)
                meter.advance(1)
    return rows


def _judged(
    track: Track, steps: str, drawn: Drawn, single: Drawn, cfg: TrajectoryConfig
) -> Iterator[Row]:
    """Yield a row per protocol; `single`: replicates of single checkpoints on the same draws."""
    for metric in track.metrics(cfg.metrics):
        scores = track.summary(metric, cfg.confidence)
        change, real = (changes(track, scores, cfg.confidence)[key] for key in ("change", "real"))
        taus, before = drawn.get(metric.name), single.get(metric.name)
        merged = taus is not None and before is not None and track.window > 1
        gain = np.subtract(taus, before) if merged else None  # type: ignore[arg-type]
        yield {
            **track.labels(metric),
            "steps": steps,
            "n": len(track.steps),
            "trials": track.trials,
            "twin": metric.name in AVERAGES,  # orders models as avg@N does
            **steadiness(scores.value),
            **spread(taus, len(track.steps), cfg),
            **spread(gain, len(track.steps), cfg, "gain"),
            "real_up": None if real is None else int((real & (change > 0)).sum()),
            "real_down": None if real is None else int((real & (change < 0)).sum()),
        }


def _by_trials(track: Track, n: int, drawn: Drawn, cfg: TrajectoryConfig) -> Iterator[Row]:
    """Yield the rows of a track's protocols with n trials; greedy decoding is with n = 1.

    Bayes@n stands for all metrics that order models alike.
    """
    for metric in track.metrics(cfg.metrics):
        if metric is GREEDY:
            if n > 1:
                continue
        elif metric.name not in drawn or (metric.name in (AVG, f"{PASS}1") and not track.fixed):
            continue
        observed = metric is GREEDY or n == track.trials
        price = cost(track, metric, n, cfg)
        value = track.summary(metric, cfg.confidence).value
        yield {
            **track.labels(metric, "n"),
            "n": n,
            "tau": follow.monotone_tau(value) if observed else None,
            **spread(drawn.get(metric.name), len(track.steps), cfg),
            "cost": price,
            "cost_trajectory": None if price is None else price * len(track.steps),
        }


def cost(track: Track, metric: Metric, n: int, cfg: TrajectoryConfig) -> float | None:
    """Compute the cost of n trials of every question by one model; None if unknown."""
    tokens = track.tokens
    if metric is GREEDY:
        tokens = tokens._replace(completion=track.greedy_tokens.completion)
    return evaluation_cost(tokens, track.R.shape[1], n, cfg.prices)


def ahead(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Rows:
    """Compare each pair of training runs by dataset, window size and shared step.

    The difference is that of avg@N, as in `scoring.compare`: with equal trials its z is that of
    Bayes@N, and with unequal trials no prior pulls one score further than the other.
    """
    rows: list[Row] = []
    for first, second in itertools.combinations(tracks, 2):
        comparable = (first.dataset, first.window) == (second.dataset, second.window)
        if first.training == second.training or not comparable:
            continue
        steps = common_steps([first, second])
        unshared = {*first.steps.tolist(), *second.steps.tolist()} - {*steps}
        if unshared and first.window == 1:
            warn(
                f"{first.training} and {second.training} on {first.dataset}: compared at the"
                f" {len(steps)} steps that both have; {len(unshared)} steps are in only one"
            )
        if not steps:
            continue
        one, two = first.select(steps), second.select(steps)
        a, b = (track.summary(AVERAGE, cfg.confidence) for track in (one, two))
        # Ranks tie scores that differ by rounding: a difference of 1e-16 has no sign.
        levels = scoring.ranks(np.stack([a.value, b.value], axis=-1))
        second_value = np.where(levels[:, 0] == levels[:, 1], a.value, b.value)
        own, other = one.apart(two.R, a.sigma, b.sigma)
        compared = scoring.compare_scores(a.value, own, second_value, other, cfg.confidence)
        cells = {
            "step": steps,
            "first_score": a.value,
            "second_score": b.value,
            "difference": compared.difference,
            "low": compared.lo,
            "high": compared.hi,
            "probability": compared.probability,
            "real": (compared.lo > 0) | (compared.hi < 0),
        }
        labels = {"first": first.training, "second": second.training}
        rows += records(cells, **labels, dataset=first.dataset, window=first.window)
    return rows


def read(planned: Series, request: Request[TrajectoryConfig]) -> list[Track]:
    """Read the tracks of finished runs, of a suite by benchmark."""
    curves = tracks.read(planned)
    return tracks.combined(curves) if request.cfg.suite else curves


def show(tables: Mapping[str, Table], cfg: TrajectoryConfig) -> None:
    """Print the main tables and the summary."""
    from bayes_at_n.pipeline.training import forms  # matplotlib is slow

    if "stability" not in tables:  # fewer than two steps
        return
    rows = tables["stability"].rows
    shared = forms.stability(rows, cfg, COMMON)
    main = [tables[stem] for stem in _PRINTED if stem in tables]
    tabular.show(*([] if cfg.suite else [shared]), *main)  # a suite has its own tables
    results.print("\n" + "\n".join(summary(rows)))


def save(
    tracks: Sequence[Track],
    request: Request[TrajectoryConfig],
    planned: Series,
    warnings: Sequence[str] = (),
    points: Mapping[str, Table] = {},
    refresh: float = 0,
) -> dict[str, Table]:
    """Save tables, figures, `trajectory.json` and the page of tracks; return the tables.

    `points`: further tables; `refresh`: seconds after which a browser reads the page again, 0:
    never. Raises OSError: the folder cannot be written.
    """
    from bayes_at_n.pipeline.training import forms

    cfg = request.cfg
    tables = {**points, **analyze(tracks, cfg)}
    rows = {stem: table.rows for stem, table in tables.items()}
    tables = {stem: table for stem, table in tables.items() if table.rows}
    lines = summary(rows["stability"])
    figures = {selection.file_stem(name): figure for name, figure in forms.draw(rows, cfg).items()}
    record = {
        "label": planned.label,
        "command": ["python", "-m", "pipeline", *sys.argv[1:]],
        "settings": {**asdict(cfg), "run": request.models[0], "datasets": request.datasets},
        "runs": [
            {
                "run": str(evaluation.run.path),
                "dataset": evaluation.dataset,
                "training": evaluation.window.training,
                "window": evaluation.window.size,
                "step": evaluation.window.step,
                "kind": evaluation.kind,
                "sources": [str(path) for path in evaluation.window.sources],
            }
            for evaluation in planned.evaluations
        ],
        "summary": lines,
        "warnings": list(warnings),
        "tables": rows,
        "notes": {stem: list(table.notes) for stem, table in tables.items()},
    }
    title, about = f"Trajectory of {planned.label}", [*lines, *warnings]
    text = cells.page(title, about, figures, tables, ("curve", "ahead"), refresh)
    selection.write_results(
        planned.out, "trajectory", record, tables, figures, {"index.html": text}
    )
    if not refresh:
        tabular.print_json(record)
        note(f"saved {planned.out}: index.html, trajectory.json, its tables and figures")
    return tables


def analyze(tracks: Sequence[Track], cfg: TrajectoryConfig) -> dict[str, Table]:
    """Return all tables of tracks, by the stem of their files; some may have no rows."""
    from bayes_at_n.pipeline.training import forms  # matplotlib is slow

    rows = judge(tracks, cfg)
    return {
        "stability": forms.stability(rows["stability"], cfg),
        **(forms.of_suite if cfg.suite else forms.of_map)(rows["stability"]),
        "samples": forms.samples(rows["samples"], cfg),
        "ahead": forms.ahead(ahead(tracks, cfg), cfg),
        "curve": forms.curve(curve(tracks, cfg), cfg),
    }


def summary(rows: Rows) -> list[str]:
    """Name the protocols with the highest τ in rows of `stability`, by training run and dataset."""
    common = where(rows, steps="common")
    heads = [key for key in ("training", "dataset") if varies(common, key)]
    lines: list[str] = []
    for _, group in grouped(common, "training", "dataset").items():
        head = ", ".join(group[0][key] for key in heads)
        most = max(row["tau"] for row in group)
        best = [
            row["protocol"]
            for row in group
            if row["tau"] > most - _EQUAL and (row["metric"] == AVG or not row["twin"])
        ]
        more = f" and {len(best) - _NAMED} more" if len(best) > _NAMED else ""
        plain = where(group, window=1, metric=AVG)[0]
        other = f"; {plain['protocol']} has {plain['tau']:.3f}" * (plain["protocol"] not in best)
        lines.append(
            f"{head}{': ' * bool(head)}highest τ over the {plain['n']} steps that all windows"
            f" share: {most:.3f} ({'; '.join(best[:_NAMED])}{more}){other}"
        )
    return lines
