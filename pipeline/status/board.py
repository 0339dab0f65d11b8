"""Render progress for the terminal: a row per run, its workers, and remarks."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from bayes_at_n.pipeline.base.console import duration, percent, plural, si
from bayes_at_n.pipeline.display.table import Column, Table, columns, to_rich
from bayes_at_n.pipeline.score.headline import named
from bayes_at_n.pipeline.status.progress import Progress, total_of
from bayes_at_n.pipeline.workers.records import Worker
from bayes_at_n.pipeline.workers.spent import in_words

_FAULTS = 3  # printed one by one; the rest are counted
_RUNS = [
    Column("run", "run", align="left"),
    *columns(
        done="done/total", pending="pending", in_flight="in flight", workers="workers",
        tokens="tokens", speed="tokens/s", left="time left", gpu_hours="GPU h+left", price="price",
    ),
    *columns("{:.3f}", score="score", interval="interval"),
    Column("avg", "avg", format="{:.3f}", minor=1),
]  # fmt: skip
_WORKERS = [
    *columns(align="left", worker="worker", state="state"),
    *columns(attempts="attempts", in_flight="in flight", speed="tokens/s"),
    Column("last_seen", "last seen"),
]


def board(runs: Sequence[Progress], width: int) -> RenderableType:
    """Render all runs, their total, and the workers of a single run."""
    parts: list[RenderableType] = [to_rich(runs_table(runs), width)]
    if len(runs) == 1 and runs[0].workers:
        parts.append(to_rich(workers_table(runs[0].workers), width))
    return Group(*parts, *(Text(line, overflow="fold") for line in remarks(runs)))


def runs_table(runs: Sequence[Progress]) -> Table:
    """Tabulate runs, one row each, and their total; drop empty columns."""
    rows = [_row(run) for run in [*runs, *([total_of(runs)] if len(runs) > 1 else [])]]
    levels = {run.score.confidence for run in runs if run.score is not None}
    priors = {run.name: run.score.prior for run in runs if run.score is not None}
    filled = [column for column in _RUNS if any(row[column.key] not in (None, "") for row in rows)]
    note = [f"score: {''.join(named(priors))}"] if priors else []
    note += [f"intervals: {percent(min(levels))}"] if len(levels) == 1 else []
    return Table(time.strftime("%Y-%m-%d %H:%M:%S"), filled, rows, note)


def _row(run: Progress) -> dict[str, object]:
    row: dict[str, object] = dict.fromkeys(column.key for column in _RUNS)
    row["run"], score = run.name, run.score
    if run.fault is None:
        dead = f"+{run.workers_dead} dead" if run.workers_dead else ""
        alive = run.workers_alive or ("0" if dead else "")
        hours_left = "–" if run.gpu_hours_left is None else f"{run.gpu_hours_left:.1f}"
        left = "–" if run.seconds_left is None else duration(run.seconds_left)
        price = "" if run.price is None else f"{run.price:,.2f}"
        if run.pending and run.price_total:
            price += f" of about {run.price_total:,.2f}"
        row |= {
            "done": f"{run.done}/{run.total}",
            "pending": run.pending or None,
            "in_flight": run.in_flight or None,
            "workers": f"{alive}{dead}",
            "tokens": si(run.tokens) if run.tokens else None,
            "speed": si(run.tokens_per_s) if run.tokens_per_s else None,
            "left": left if run.pending else None,
            "gpu_hours": f"{run.gpu_hours:.1f}+{hours_left}" if run.gpu_hours else None,
            "price": price,
        }
    if score is not None:
        row |= {"score": score.value, "interval": (score.low, score.high), "avg": score.avg}
    return row


def workers_table(workers: Sequence[Worker], most: int = 20) -> Table:
    """Tabulate workers, live ones first, then the latest; beyond `most` count them by state."""
    now = time.time()
    ordered = sorted(workers, key=lambda w: (not w.alive, -(w.last_seen or w.started or 0.0)))
    rest = Counter(worker.state for worker in ordered[most:])
    rows = []
    for w in ordered[:most]:
        ids = {"#": w.replica, "job ": w.task, "pid ": w.pid}
        label = "".join(f" {k}{v}" for k, v in ids.items() if v is not None)
        seen = f"{duration(max(0.0, now - w.last_seen))} ago" if w.last_seen else "–"
        row = {"worker": f"{w.host or w.name}{label}", "state": w.state, "attempts": w.attempts}
        row |= {"in_flight": w.in_flight if w.alive else None, "speed": si(w.tokens_per_s)}
        rows.append(row | {"last_seen": seen})
    more = [{"worker": f"and {number} more", "state": state} for state, number in rest.items()]
    return Table("", _WORKERS, [*rows, *more])


def bar(runs: Sequence[Progress], width: int) -> RenderableType:
    """Render a progress bar over all runs, `width` characters wide."""
    run = total_of(runs)
    left = f", about {duration(run.seconds_left)} left" if run.pending and run.seconds_left else ""
    text = f" {run.done}/{run.total}, {run.done / max(1, run.total):.0%}{left}"
    row = RichTable.grid()
    row.add_row(ProgressBar(max(1, run.total), run.done, max(10, width - len(text))), text)
    return row


def remarks(runs: Sequence[Progress]) -> list[str]:
    """List faults, missing or stale grades, and budgets."""
    lines = list[str]()
    faults = [f"{run.name}: {run.fault}" for run in runs if run.fault is not None]
    for some in (faults, [run.stale for run in runs if run.stale]):
        some[_FAULTS:] = [f"and {plural(len(some) - _FAULTS, 'more run')}"] * (len(some) > _FAULTS)
        lines += some
    lines += [f"{run.name} {run.continues}" for run in runs if run.continues][:_FAULTS]
    if ungraded := sum(run.ungraded for run in runs):
        lines.append(f"scores: {ungraded} attempts are not graded yet")
    elif any(run.score is not None and run.pending for run in runs):
        lines.append("scores cover finished attempts only, and short ones finish first")
    lines += [f"{run.name}: {in_words(run.budget)}" for run in runs if run.budget]
    return lines
