"""What the numbers of a trajectory say, in a few lines: for those who read no further."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pipeline.base.console import percent
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.research.trajectory.protocols import AVG, PASS
from pipeline.research.trajectory.stability import COMMON, Row

Rows = Sequence[Mapping[str, Any]]
_SAME = 1e-9  # taus closer than that are of one order
_NAMED = 4  # protocols in a line


def lines(rows: Mapping[str, Sequence[Row]], merges: Rows, cfg: TrajectoryConfig) -> list[str]:
    """Up to three lines for each training run and data set.

    Args:
        rows: those of `stability` and `pairs`.
        merges: those of the table in the form of MaP's Table 2; none where nothing was merged.
        cfg: the confidence of intervals.
    """
    common = [row for row in rows["stability"] if row["steps"] == COMMON]
    places = dict.fromkeys((row["training"], row["dataset"]) for row in common)
    several = [len({place[i] for place in places}) > 1 for i in (0, 1)]
    found = []
    for place in places:
        own, changes, pairs = (
            [row for row in of if (row["training"], row["dataset"]) == place]
            for of in (common, merges, rows["pairs"])
        )
        head = ", ".join(part for part, named in zip(place, several, strict=True) if named)
        for line in (_steadiest(own), *_merging(changes, cfg), *_against(pairs)):
            found.append(f"{head}: {line}" if head else line)
    return found


def _steadiest(rows: Rows) -> str:
    """Which protocol has the highest τ."""
    most = max(row["tau"] for row in rows)
    best = [
        row["protocol"]
        for row in rows
        if row["tau"] > most - _SAME and (row["metric"] == AVG or not row["twin"])
    ]
    more = f" and {len(best) - _NAMED} more" if len(best) > _NAMED else ""
    plain = next(row for row in rows if row["window"] == 1 and row["metric"] == AVG)
    names = "; ".join(best[:_NAMED]) + more
    beside = f"; {plain['protocol']} has {plain['tau']:.3f}" * (plain["protocol"] not in best)
    steps = f"over the {plain['n']} steps that all windows share"
    return f"highest τ {steps}: {most:.3f} ({names}){beside}"


def _merging(rows: Rows, cfg: TrajectoryConfig) -> Iterator[str]:
    """What merging changes at avg@N, window by window."""
    parts = []
    for row in (row for row in rows if row["metric"].startswith("avg@")):
        interval = ""
        if row["gain_low"] is not None:
            ends = f"{row['gain_low']:+.3f} to {row['gain_high']:+.3f}"
            interval = f", {percent(cfg.confidence)} bootstrap interval {ends}"
        parts.append(
            f"of {row['window']} by {row['improve']:+.3f} ({row['original']:.3f} to"
            f" {row['merge']:.3f}{interval})"
        )
        name = row["metric"]
    if parts:
        yield f"merging changes τ of {name} in windows {'; '.join(parts)}"


def _against(rows: Rows) -> Iterator[str]:
    """Bayes@N against Pass@k of the largest k, all trials, single checkpoints."""
    single = [row for row in rows if row["window"] == 1 and row["metric"] == PASS]
    if single:
        row = max(single, key=lambda row: (row["n"], row["k"]))
        above, equal, below = (f"{100 * row[key]:.0f} %" for key in ("above", "equal", "below"))
        yield (
            f"τ of Bayes@{row['n']} is above that of Pass@{row['k']} on the same trials in {above}"
            f" of replicates, equal in {equal}, below in {below} (single checkpoints)"
        )
