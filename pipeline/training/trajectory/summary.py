"""What the numbers of a trajectory say, in a few lines: for those who read no further."""

from collections.abc import Iterator

from bayes_at_n.pipeline.base.console import percent
from bayes_at_n.pipeline.config.trajectory import TrajectoryConfig
from bayes_at_n.pipeline.training.protocols import AVG, PASS
from bayes_at_n.pipeline.training.tables import Rows, grouped, values, varies, where
from bayes_at_n.pipeline.training.trajectory.stability import COMMON

_SAME = 1e-9  # taus closer than that are of one order
_NAMED = 4  # protocols in a line


def lines(stability: Rows, pairs: Rows, merges: Rows, cfg: TrajectoryConfig) -> list[str]:
    """Up to three lines for each training run and data set.

    `stability` are rows of that table, `pairs` those of `samples` with Bayes@n against other
    metrics, and `merges` those in the form of MaP's Table 2, none where nothing was merged.
    """
    common = where(stability, steps=COMMON)
    heads = [key for key in ("training", "dataset") if varies(common, key)]
    summary: list[str] = []
    for (training, dataset), own in grouped(common, "training", "dataset").items():
        place = {"training": training, "dataset": dataset}
        head = ", ".join(place[key] for key in heads)
        gains, compared = where(merges, **place), where(pairs, **place)
        sentences = [_steadiest(own), *_merging(gains, cfg), *_against(compared)]
        summary += [f"{head}: {sentence}" if head else sentence for sentence in sentences]
    return summary


def _steadiest(rows: Rows) -> str:
    """Which protocol has the highest τ."""
    most = max(row["tau"] for row in rows)
    best = [
        row["protocol"]
        for row in rows
        if row["tau"] > most - _SAME and (row["metric"] == AVG or not row["twin"])
    ]
    more = f" and {len(best) - _NAMED} more" if len(best) > _NAMED else ""
    names = "; ".join(best[:_NAMED]) + more
    plain = where(rows, window=1, metric=AVG)[0]
    beside = f"; {plain['protocol']} has {plain['tau']:.3f}" * (plain["protocol"] not in best)
    steps = f"over the {plain['n']} steps that all windows share"
    return f"highest τ {steps}: {most:.3f} ({names}){beside}"


def _merging(merges: Rows, cfg: TrajectoryConfig) -> Iterator[str]:
    """What merging changes at avg@N, window by window."""
    rows = [row for row in merges if row["metric"].startswith("avg@")]
    parts = []
    for row in rows:
        interval = ""
        if row["gain_low"] is not None:
            ends = f"{row['gain_low']:+.3f} to {row['gain_high']:+.3f}"
            interval = f", {percent(cfg.confidence)} bootstrap interval {ends}"
        parts.append(
            f"of {row['window']} from {row['original']:.3f} to {row['merge']:.3f} (difference"
            f" {row['improve']:+.3f} on a scale of -2 to 2{interval})"
        )
    if rows:
        yield f"merging moves MaP's τ of {rows[-1]['metric']} in windows {'; '.join(parts)}"


def _against(pairs: Rows) -> Iterator[str]:
    """Bayes@N against Pass@k of the largest k, all trials, single checkpoints."""
    single = [row for row in where(pairs, window=1) if row["metric"].startswith(PASS)]
    if single:
        most = max(values(single, "n"))
        row = where(single, n=most)[-1]
        above, equal, below = (f"{100 * row[key]:.0f} %" for key in ("above", "equal", "below"))
        other = row["protocol"].partition(", ")[2]
        yield (
            f"τ of Bayes@{most} is above that of {other} on the same trials in {above}"
            f" of replicates, equal in {equal}, below in {below} (single checkpoints)"
        )
