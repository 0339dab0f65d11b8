"""Several training runs side by side: which is ahead at a step, and where their curves cross."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.console import percent, warn
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.display.table import Column, Table, columns
from bayes_at_n.pipeline.training.protocols import AVERAGE
from bayes_at_n.pipeline.training.tables import Row, Rows, grouped, names, records, values, where
from bayes_at_n.pipeline.training.trajectory.stability import INDEPENDENT
from bayes_at_n.pipeline.training.trajectory.tracks import Track, common_steps


def ahead(tracks: Sequence[Track], cfg: TrajectoryConfig) -> Table:
    """One row for each pair of training runs, data set, size of windows and step both have.

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
    notes = [
        f"low, high: {percent(cfg.confidence)} credible interval of the difference of the success"
        f" rates on these questions; real: it leaves out 0, which {percent(1 - cfg.confidence)} of"
        " the steps of two equal curves do by chance",
        INDEPENDENT,
    ]
    return Table("which training run is ahead", heads, rows, notes)


def _pairs(tracks: Sequence[Track]) -> Iterator[tuple[Track, Track, list[int]]]:
    """Tracks of two training runs on one data set with one size of windows; steps both have."""
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
    """How often the curves of each pair cross, from the rows of `ahead`.

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
                    "settled": len(where(judged, real=True)),
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
        *columns(group="differences", settled="real"),
        *columns(crossings="crossings"),
        *columns(group="crossings", real="real"),
    ]
    notes = [
        "steps: those that all windows of both training runs have; single checkpoints have more"
        " (table of which one is ahead), and would cross more often for that alone",
        "crossings: changes of sign of the difference of avg@N; equal scores are passed over. real"
        " ones: changes of sign along the steps alone whose difference is real at"
        f" {percent(cfg.confidence)}",
    ]
    return Table("where training runs cross", heads, rows, notes)


def _changes(rows: Rows) -> int:
    """How often the sign of the difference changes from a row to the next; none is 0."""
    signs = [row["difference"] > 0 for row in rows]
    return sum(before != after for before, after in itertools.pairwise(signs))


def _pair(rows: Rows) -> list[Column]:
    return [
        *columns(align="left", first="first", second="second"),
        *names(rows, dataset="data set"),
        *columns(window="window"),
    ]
