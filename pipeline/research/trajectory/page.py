"""What the numbers of a trajectory say: a few lines, and trajectory.md with tables and pictures."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pipeline.base.console import percent
from pipeline.config.trajectory import TrajectoryConfig
from pipeline.display import table as tabular
from pipeline.display.table import Table
from pipeline.research.protocols import AVG, PASS
from pipeline.research.tables import Rows, values, varies, where
from pipeline.research.trajectory.stability import COMMON

# Which picture stands above which table; pictures of several data sets have names behind.
_ABOVE = {
    "stability": ("trajectory",),
    "merge": ("merge",),
    "samples": ("samples", "cost"),
    "crossings": ("side_by_side",),
    "variance": ("variance",),
}
_ONLY_FILES = ("curve", "ahead")  # too long for a page
_SAME = 1e-9  # taus closer than that are of one order
_NAMED = 4  # protocols in a line


def page(
    label: str,
    tables: Mapping[str, Table],
    pictures: Iterable[str],
    summary: Sequence[str],
    warnings: Sequence[str],
) -> str:
    """trajectory.md.

    Args:
        label: what was evaluated.
        tables: by stem of their files.
        pictures: stems of theirs.
        summary: what the numbers say, one line each.
        warnings: what should be known, one line each.
    """
    parts = [f"# Trajectory of {label}\n", "\n".join(f"- {line}" for line in summary) + "\n"]
    parts += [f"> {line}\n" for line in warnings]
    left = list(pictures)
    for name, table in tables.items():
        for kind in _ABOVE.get(name, ()):
            shown = [p for p in left if p == kind or p.startswith(f"{kind}_")]
            parts += map(_picture, shown)
            left = [picture for picture in left if picture not in shown]
        parts.append(
            f"{table.title}: [{name}.csv]({name}.csv)\n"
            if name in _ONLY_FILES
            else tabular.to_markdown(table)
        )
    return "\n".join([*parts, *map(_picture, left)])


def _picture(stem: str) -> str:
    return f"![{stem}]({stem}.png)\n"


def summary(stability: Rows, pairs: Rows, merges: Rows, cfg: TrajectoryConfig) -> list[str]:
    """Up to three lines for each training run and data set, for those who read no further.

    Args:
        stability: rows of that table.
        pairs: Bayes@n against other metrics, rows from `samples`.
        merges: rows of the table in the form of MaP's Table 2; none where nothing was merged.
        cfg: the confidence of intervals.
    """
    common = where(stability, steps=COMMON)
    heads = [key for key in ("training", "dataset") if varies(common, key)]
    lines = []
    for training, dataset in dict.fromkeys((row["training"], row["dataset"]) for row in common):
        place = {"training": training, "dataset": dataset}
        head = ", ".join(place[key] for key in heads)
        own, gains, against = (where(rows, **place) for rows in (common, merges, pairs))
        for line in (_steadiest(own), *_merging(gains, cfg), *_against(against)):
            lines.append(f"{head}: {line}" if head else line)
    return lines


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
            f"of {row['window']} by {row['improve']:+.3f} ({row['original']:.3f} to"
            f" {row['merge']:.3f}{interval})"
        )
    if rows:
        yield f"merging changes τ of {rows[-1]['metric']} in windows {'; '.join(parts)}"


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
