"""Several training runs side by side: which is ahead at a step, and where their curves cross."""

import itertools
from collections.abc import Iterator, Sequence

import scoring
from pipeline.console import warn
from pipeline.tabular import Column, Table
from pipeline.trajectory import protocols
from pipeline.trajectory.protocols import AVG, Metric
from pipeline.trajectory.settings import TrajectoryConfig
from pipeline.trajectory.stability import Row
from pipeline.trajectory.tracks import Track


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
        found = scoring.compare_scores(a.value, a.sigma, b.value, b.sigma, cfg.confidence)
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

    A crossing is a change of sign of the difference from one step to the next at which it is not 0;
    a real one lies between steps whose differences are both real.
    """
    made = []
    of = ("first", "second", "dataset", "window")
    for key, group in itertools.groupby(rows, key=lambda row: [row[name] for name in of]):
        steps = list(group)
        apart = [row for row in steps if row["difference"] != 0]
        crossed = [
            (before, after)
            for before, after in itertools.pairwise(apart)
            if (before["difference"] > 0) != (after["difference"] > 0)
        ]
        made.append(
            {
                **dict(zip(of, key, strict=True)),
                "steps": len(steps),
                "settled": sum(row["real"] for row in steps),
                "first_ahead": sum(row["difference"] > 0 for row in steps),
                "crossings": len(crossed),
                "real": sum(before["real"] and after["real"] for before, after in crossed),
            }
        )
    return made


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
    notes = [
        f"interval of the difference: {cfg.confidence:.0%} of repeating the trials of these"
        " questions; real: it leaves out 0"
    ]
    return Table("which training run is ahead", columns, rows, notes)


def crossings_table(rows: Sequence[Row], cfg: TrajectoryConfig) -> Table:
    """The rows of `crossings` as a table."""
    columns = [
        *_columns(rows),
        Column("steps", "steps"),
        Column("first_ahead", "first ahead"),
        Column("settled", "real", group="differences"),
        Column("crossings", "crossings"),
        Column("real", "real", group="crossings"),
    ]
    notes = [
        "crossings: changes of sign of the difference of avg@N along the steps that both have;"
        f" real ones: between steps whose differences are both real at {cfg.confidence:.0%}"
    ]
    return Table("where training runs cross", columns, rows, notes)


def _columns(rows: Sequence[Row]) -> list[Column]:
    return [
        Column("first", "first", align="left"),
        Column("second", "second", align="left"),
        Column("dataset", "data set", align="left", wide=len({r["dataset"] for r in rows}) < 2),
        Column("window", "window"),
    ]
