"""Several training runs side by side: which is ahead at a step, and where their curves cross."""

import itertools
from collections.abc import Iterator, Sequence

import numpy as np

import scoring
from pipeline.base.console import percent, warn
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.display.table import Column, Table
from pipeline.research.trajectory import protocols
from pipeline.research.trajectory.protocols import AVG, Metric
from pipeline.research.trajectory.stability import Row
from pipeline.research.trajectory.tracks import Track


def ahead(tracks: Sequence[Track], cfg: TrajectoryConfig) -> list[Row]:
    """One row for each pair of training runs, data set, size of windows and step both have.

    The difference is that of avg@N, as of `scoring.compare`: with the same trials that is the z of
    Bayes@N, and with others no prior pulls one of them further than the other.
    """
    rows: list[Row] = []
    for first, second in _pairs(tracks):
        shared = protocols.common_steps([first, second])
        if not shared:
            continue
        a, b = (
            protocols.scores(track.at(shared), Metric(AVG), cfg.confidence)
            for track in (first, second)
        )
        # Equal but for rounding is equal: a difference of 1e-16 has no sign.
        levels = scoring.ranks(np.stack([a.value, b.value], axis=-1))
        second_value = np.where(levels[:, 0] == levels[:, 1], a.value, b.value)
        found = scoring.compare_scores(a.value, a.sigma, second_value, b.sigma, cfg.confidence)
        for i, step in enumerate(shared):
            lo, hi = float(found.lo[i]), float(found.hi[i])
            rows.append(
                {
                    **_key(first, second),
                    "step": step,
                    "first_score": float(a.value[i]),
                    "second_score": float(b.value[i]),
                    "difference": float(found.difference[i]),
                    "low": lo,
                    "high": hi,
                    "probability": float(found.probability[i]),
                    "real": lo > 0 or hi < 0,
                }
            )
    return rows


def crossings(rows: Sequence[Row]) -> list[Row]:
    """How often the curves of each pair cross, from the rows of `ahead`.

    A crossing is a change of sign of the difference from one step to the next at which it is not 0.
    A real one is a change of sign from one real difference to the next real one, whatever lies
    between. All windows are judged at the steps that all windows of both trainings have: more
    steps have more crossings.
    """
    made = []
    of = ("first", "second", "dataset")
    for place in dict.fromkeys(tuple(row[name] for name in of) for row in rows):
        found = [row for row in rows if tuple(row[name] for name in of) == place]
        windows = dict.fromkeys(row["window"] for row in found)
        at = {w: [row["step"] for row in found if row["window"] == w] for w in windows}
        shared = set.intersection(*map(set, at.values()))
        for window in windows:
            steps = [row for row in found if row["window"] == window and row["step"] in shared]
            ends = [row["step"] for row in steps] or [None]
            made.append(
                {
                    **dict(zip(of, place, strict=True)),
                    "window": window,
                    "steps": len(steps),
                    "from": ends[0],
                    "to": ends[-1],
                    "at": ", ".join(str(row["step"]) for row in steps),
                    "settled": sum(row["real"] for row in steps),
                    "first_ahead": sum(row["difference"] > 0 for row in steps),
                    "crossings": _changes([row for row in steps if row["difference"] != 0]),
                    "real": _changes([row for row in steps if row["real"]]),
                }
            )
    return made


def _changes(rows: Sequence[Row]) -> int:
    """How often the sign of the difference changes from a row to the next; none is 0."""
    signs = [row["difference"] > 0 for row in rows]
    return sum(before != after for before, after in itertools.pairwise(signs))


def _pairs(tracks: Sequence[Track]) -> Iterator[tuple[Track, Track]]:
    """Tracks of two training runs on one data set with one size of windows."""
    for first, second in itertools.combinations(tracks, 2):
        if first.training != second.training and _place(first) == _place(second):
            shared = protocols.common_steps([first, second])
            rest = {*first.steps.tolist(), *second.steps.tolist()} - {*shared}
            if rest and first.window == 1:
                warn(
                    f"{first.training} and {second.training} on {first.dataset}: side by side at"
                    f" the {len(shared)} steps that both have; {len(rest)} have only one of them"
                )
            yield first, second


def _place(track: Track) -> tuple[str, int]:
    return track.dataset, track.window


def _key(first: Track, second: Track) -> Row:
    return {
        "first": first.training,
        "second": second.training,
        "dataset": first.dataset,
        "window": first.window,
    }


def ahead_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """The rows of `ahead` as a table."""
    columns = [
        *_columns(rows),
        Column("step", "step"),
        Column("first_score", "first", format="{:.4f}", group="avg@N"),
        Column("second_score", "second", format="{:.4f}", group="avg@N"),
        Column("difference", "difference", format="{:+.4f}"),
        Column("low", "low", format="{:+.4f}"),
        Column("high", "high", format="{:+.4f}"),
        Column("probability", "P(first ahead)", format="{:.3f}"),
        Column("real", "real"),
    ]
    level = percent(cfg.confidence)
    notes = [
        f"low, high: {level} credible interval of the difference of the success rates on these"
        f" questions; real: it leaves out 0, which {percent(1 - cfg.confidence)} of the"
        " steps of two equal curves do by chance",
        protocols.INDEPENDENT,
    ]
    return Table("which training run is ahead", columns, rows, notes)


def crossings_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """The rows of `crossings` as a table."""
    level = percent(cfg.confidence)
    columns = [
        *_columns(rows),
        Column("steps", "number", group="steps"),
        Column("from", "from", group="steps"),
        Column("to", "to", group="steps"),
        Column("at", "at", align="left", wide=True),
        Column("first_ahead", "first ahead"),
        Column("settled", "real", group="differences"),
        Column("crossings", "crossings"),
        Column("real", "real", group="crossings"),
    ]
    notes = [
        "steps: those that all windows of both training runs have; single checkpoints have more"
        " (table of which one is ahead), and would cross more often for that alone",
        "crossings: changes of sign of the difference of avg@N; equal scores are passed over. real"
        f" ones: changes of sign along the steps alone whose difference is real at {level}",
    ]
    return Table("where training runs cross", columns, rows, notes)


def _columns(rows: Sequence[Row]) -> list[Column]:
    return [
        Column("first", "first", align="left"),
        Column("second", "second", align="left"),
        Column("dataset", "data set", align="left", wide=len({r["dataset"] for r in rows}) < 2),
        Column("window", "window"),
    ]
