"""Training runs side by side, and the variance of Pass@k three ways: tables of `trajectory`."""

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy.stats import binom

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent, warn
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.training.cells import Row, Rows, grouped, names, records, values, where
from bayes_at_n.pipeline.training.forms import place
from bayes_at_n.pipeline.training.protocols import AVERAGE, passes
from bayes_at_n.pipeline.training.tracks import Track, common_steps
from bayes_at_n.scoring.metrics.passk_variance import (
    delta_variance,
    posterior_variance,
    sampling_variance,
)
from bayes_at_n.scoring.numerics.inputs import Floats

POINTS = 201  # of p in a picture


def ahead(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Table:
    """Tabulate each pair of training runs by data set, size of windows and step both have.

    The difference is that of avg@N, as of `scoring.compare`: with the same trials that is the z of
    Bayes@N, and with others no prior pulls one of them further than the other.
    """
    rows: list[Row] = []
    for first, second, steps in _pairs(tracks):
        a, b = (AVERAGE.summary(track.at(steps).R, cfg.confidence) for track in (first, second))
        # Equal but for rounding is equal: a difference of 1e-16 has no sign.
        levels = scoring.ranks(np.stack([a.value, b.value], axis=-1))
        second_value = np.where(levels[:, 0] == levels[:, 1], a.value, b.value)
        compared = scoring.compare_scores(a.value, a.sigma, second_value, b.sigma, cfg.confidence)
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
        rows += records(
            cells,
            first=first.training,
            second=second.training,
            dataset=first.dataset,
            window=first.window,
        )
    heads = [
        *_pair(rows),
        *columns(step="step"),
        *columns("{:.3f}", group="avg@N", first_score="first", second_score="second"),
        *columns("{:+.3f}", difference="difference", low="low", high="high"),
        *columns("{:.3f}", probability="P(first ahead)"),
        *columns(real="real"),
    ]
    level = percent(cfg.confidence)
    notes = [
        f"low, high: {level} interval of the difference on these questions; real: it leaves out 0,"
        f" as for {percent(1 - cfg.confidence)} of the steps of two equal curves by chance"
    ]
    return Table("which training run is ahead", heads, rows, notes)


def _pairs(tracks: Sequence[Track]) -> Iterator[tuple[Track, Track, list[int]]]:
    """Yield tracks of two training runs on one data set with one size of windows; steps of both."""
    for first, second in itertools.combinations(tracks, 2):
        alike = (first.dataset, first.window) == (second.dataset, second.window)
        if first.training == second.training or not alike:
            continue
        shared = common_steps([first, second])
        alone = {*first.steps.tolist(), *second.steps.tolist()} - {*shared}
        if alone and first.window == 1:
            warn(
                f"{first.training} and {second.training} on {first.dataset}: side by side at the"
                f" {len(shared)} steps that both have; {len(alone)} have only one of them"
            )
        if shared:
            yield first, second, shared


def crossings(ahead: Rows, cfg: TrajectoryConfig) -> Table:
    """Count how often the curves of each pair cross, from the rows of `ahead`.

    A crossing is a change of sign of the difference from one step to the next at which it is not 0.
    A real one is a change of sign from one real difference to the next real one, whatever lies
    between. All windows are judged at the steps that all windows of both trainings have: more
    steps have more crossings.
    """
    rows: list[Row] = []
    for (first, second, dataset), own in grouped(ahead, "first", "second", "dataset").items():
        windows = grouped(own, "window")
        shared = set.intersection(*({*values(of, "step")} for of in windows.values()))
        for (window,), all_steps in windows.items():
            judged = [row for row in all_steps if row["step"] in shared]
            steps = values(judged, "step")
            rows.append(
                {
                    "first": first,
                    "second": second,
                    "dataset": dataset,
                    "window": window,
                    "steps": len(steps),
                    "from": steps[0] if steps else None,
                    "to": steps[-1] if steps else None,
                    "at": ", ".join(map(str, steps)),
                    "differences_real": len(where(judged, real=True)),
                    "first_ahead": sum(row["difference"] > 0 for row in judged),
                    "crossings": _changes([row for row in judged if row["difference"] != 0]),
                    "real": _changes(where(judged, real=True)),
                }
            )
    heads = [
        *_pair(rows),
        *columns(titles={"steps": "number", "from": "from", "to": "to"}, group="steps"),
        *columns(align="left", wide=True, at="at"),
        *columns(first_ahead="first ahead"),
        *columns(group="differences", differences_real="real"),
        *columns(crossings="crossings"),
        *columns(group="crossings", real="real"),
    ]
    notes = [
        "steps: those that all windows of both have; single checkpoints have more, and would cross"
        " more often for that alone",
        "crossings: changes of sign of the difference of avg@N; equal scores are passed over. real:"
        f" along the steps alone whose difference is real at {percent(cfg.confidence)}",
    ]
    return Table("where training runs cross", heads, rows, notes)


def _changes(rows: Rows) -> int:
    """Count how often the sign of the difference changes from a row to the next; none is 0."""
    signs = [row["difference"] > 0 for row in rows]
    return sum(before != after for before, after in itertools.pairwise(signs))


def _pair(rows: Rows) -> list[Column]:
    return [
        *columns(align="left", first="first", second="second"),
        *names(rows, dataset="data set"),
        *columns(window="window"),
    ]


def variances(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Table:
    """Tabulate the variance of Pass@k of the oldest and the newest single checkpoint.

    The delta method (MaP's appendix D) and the exact variance of the estimator have the observed
    shares in place of p, so both call a question that was always or never solved certain. The
    posterior, which Bayes@N uses, does not.
    """
    rows = [
        {
            "training": track.training,
            "dataset": track.dataset,
            "protocol": f"Pass@{k}",
            "which": which,
            "name": track.names[at],
            "k": k,
            "n": track.trials,
            **_three(track.trials, track.R[at].sum(axis=-1), k),
        }
        for track in tracks
        if track.window == 1
        for which, at in (("oldest", 0), ("newest", -1))
        for k in passes(cfg.metrics, track.trials)
    ]
    three = {"delta": "delta method", "plug_in": "plug-in", "posterior": "posterior"}
    ratios = {"delta_ratio": "delta method", "posterior_ratio": "posterior"}
    heads = [
        *place(rows),
        *columns(align="left", which="checkpoint", name="name"),
        *columns(n="trials"),
        *columns("{:.3g}", three, group="variance"),
        *columns("{:.3f}", ratios, group="to plug-in"),
        *columns(wide=True, k="k"),
    ]
    notes = [
        "delta method: MaP's appendix D; plug-in: exact but for p: both have c/N in its place, so a"
        " question always or never solved adds nothing; posterior: of p ~ Beta(1 + c, 1 + N - c)",
        "picture: one question by its true p; the delta method's variance and the posterior's,"
        " averaged over outcomes (dashed), over the exact one",
    ]
    return Table("variance of Pass@k, three ways", heads, rows, notes)


def _three(n: int, correct: Any, k: int) -> Row:
    """Compute variances of the mean over questions (M,), of which `correct` of n trials are."""
    c = np.asarray(correct, dtype=np.int64)
    each = delta_variance(c / n, k, n), sampling_variance(c / n, k, n), posterior_variance(c, n, k)
    delta, exact, posterior = (float(of.sum()) / len(c) ** 2 for of in each)
    return {
        "delta": delta,
        "plug_in": exact,
        "posterior": posterior,
        "delta_ratio": delta / exact if exact else None,
        "posterior_ratio": posterior / exact if exact else None,
    }


def along_p(n: int, ks: Sequence[int]) -> tuple[Floats, dict[str, Floats], dict[str, Floats]]:
    """Compute delta and expected posterior variance over the exact one, for each k up to n.

    Of one question with n trials. k = 1, where the delta method is exact, is left out. Returns
    success rates (POINTS,); delta over exact by k ("k = 4"), and the posterior's variance, averaged
    over outcomes, over exact; (POINTS,) each, NaN at 0 and 1.
    """
    p = np.linspace(0, 1, POINTS)
    seen = np.arange(n + 1)
    chances = binom.pmf(seen, n, p[:, None])
    deltas: dict[str, Floats] = {}
    posteriors: dict[str, Floats] = {}
    for k in (k for k in ks if 1 < k <= n):
        exact = sampling_variance(p, k, n)
        mean = chances @ posterior_variance(seen, n, k)
        for of, variance in ((deltas, delta_variance(p, k, n)), (posteriors, mean)):
            of[f"k = {k}"] = np.divide(variance, exact, np.full(p.shape, np.nan), where=exact > 0)
    return p, deltas, posteriors
