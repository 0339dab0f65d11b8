"""Standings for people: a table as wide as the terminal, or a line a run where there is none."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from bayes_at_n.pipeline.base.console import clock, count
from bayes_at_n.pipeline.score.shown import apart
from bayes_at_n.pipeline.status.standing import RunStanding, added, by_state
from bayes_at_n.pipeline.status.tally import RunningScore
from bayes_at_n.pipeline.workers.records import Worker
from bayes_at_n.pipeline.workers.spent import in_words

_UNKNOWN = "–"
_HEADINGS = ["done/total", "owed", "in flight", "workers", "tokens", "a second"]
_HEADINGS += ["time left", "GPU h+left", "score"]
_NOTHING = {"", "0", _UNKNOWN, "done"}  # a column of these is left out
_REMARK, _FAULTS = 240, 3  # characters of a remark, faults that are told one by one


def table(
    standings: Sequence[RunStanding], width: int, height: int | None = None
) -> RenderableType:
    """All runs, their total, Slurm's jobs; of a lone run its workers, too.

    Columns that say nothing are left out; where the others do not fit, two share a column, one
    under the other. Of more runs than fit the `height` the rest is counted, and those that move are
    shown first.
    """
    rows = [*standings, *([added(standings)] if len(standings) > 1 else [])]
    longest, columns = max((len(s.name) for s in rows), default=0), _columns(rows)
    if not (wide := longest + _needed(columns) <= width):
        columns[1:1] = [[""] * (len(rows) + 1)] * (len(columns) % 2)
        pairs = zip(columns[::2], columns[1::2], strict=True)
        columns = [["\n".join(cells) for cells in zip(*pair, strict=True)] for pair in pairs]
    per_run = 1 if wide else max(2, -(-longest // max(1, width - _needed(columns))))
    told = [line for line in (_price(added(standings)), *_remarks(standings)) if line]
    told += [f"{s.name} {s.continues}" for s in standings if s.continues][:_FAULTS]
    remarks = [Text(line[:_REMARK], overflow="fold") for line in told]
    around = 6 + sum(-(-len(line) // width) for line in remarks)  # headings, total, what is hidden
    room = None if height is None else max(1, (height - around) // per_run)
    shown = _most_alive(standings, room)
    grid = Table(box=None, pad_edge=False)
    grid.add_column("run", overflow="fold")
    for heading, *_ in columns:
        grid.add_column(heading, justify="right", no_wrap=True)
    for i, s in enumerate(rows, 1):
        if i > len(standings) or s in shown:
            style = "bold" * (i > len(standings))
            grid.add_row(Text(s.name), *(column[i] for column in columns), style=style)
    parts: list[RenderableType] = [grid]
    if hidden := [s for s in standings if s not in shown]:
        states = Counter(_phase(s) for s in hidden)
        parts.append(Text("and " + ", ".join(f"{n} {state}" for state, n in states.items())))
    if len(standings) == 1 and standings[0].workers:
        most = None if height is None else max(1, height - around - per_run - 2)
        parts.append(workers_table(standings[0].workers, wide, most))
    return Group(*parts, *remarks)


def bar(standings: Sequence[RunStanding], width: int) -> RenderableType:
    """How much of all runs is done, over the whole width."""
    s = added(standings)
    left = f", about {clock(s.left_s)} left" if s.owed and s.left_s is not None else ""
    text = f" {s.done}/{s.total}, {s.done / max(1, s.total):.0%}{left}"
    row = Table.grid()
    row.add_row(ProgressBar(max(1, s.total), s.done, max(10, width - len(text))), text)
    return row


def lines(standings: Sequence[RunStanding]) -> list[str]:
    """The same as plain text: a line a run, the total, Slurm's jobs; after the time."""
    block = [time.strftime("%Y-%m-%d %H:%M:%S")]
    sound = [s for s in standings if s.fault is None]
    for s in [*sound, *([added(standings)] if len(standings) > 1 else [])]:
        scored = f", {score(s.score, s.total)}" if s.score else ""
        block.append(f"{s.name}: {sentence(s)}{scored}")
    return block + _remarks(standings)


def sentence(s: RunStanding) -> str:
    """The figures of a run or of several in words, but for the score."""
    left = "" if s.gpu_h_left is None else f", about {s.gpu_h_left:.1f} left"
    words = [
        f"{s.done}/{s.total} done",
        f"{s.owed} owed" * bool(s.owed),
        f"{s.in_flight} in flight" * bool(s.in_flight),
        s.continues,
        f"workers {len(s.alive)} alive {len(s.dead)} dead" * bool(s.alive or s.dead),
        f"{count(s.tokens)} tokens" * bool(s.tokens),
        f"{count(s.tokens_per_s)} tokens/s" * bool(s.tokens_per_s),
        "" if s.left_s is None or not s.owed else f"about {clock(s.left_s)} left",
        f"{s.gpu_h:.1f} GPU-hours used{left}" if s.gpu_h else "",
        _price(s),
    ]
    return ", ".join(word for word in words if word)


def _price(s: RunStanding) -> str:
    if s.price is None:
        return ""
    total = f" so far, about {s.price_total:,.2f} in total" if s.price_total and s.owed else ""
    return f"price {s.price:,.2f}{total}"


def score(running: RunningScore, total: int) -> str:
    """A running score in words, and of how many attempts it is where that is not the total.

    >>> score(RunningScore(0, 0, 0.185, 0.167, 0.043, 0.29, 2.65, 0.95, 20), 20)
    'avg 0.000 (95%: 0.000 to 0.185), Bayes@N 0.167 (0.043 to 0.290)'
    """
    first, second = (f"{low:.3f} to {high:.3f})" for *_, low, high in _both(running))
    (name, x, *_), (other, y, *_) = _both(running)
    of = f", of {running.attempts} attempts" * (running.attempts != total)
    return f"{name} {x:.3f} ({running.confidence:.0%}: {first}, {other} {y:.3f} ({second}{of}"


def _both(running: RunningScore) -> list[tuple[str, float, float, float]]:
    """avg and Bayes@N with their intervals, the headline first."""
    both = [("avg", *running[:3]), ("Bayes@N", *running[3:6])]
    return both if running.headline == "avg" else both[::-1]


def workers_table(workers: Sequence[Worker], wide: bool, most: int | None = None) -> Table:
    """Workers, those alive first and then the latest; the rest are counted."""
    now = time.time()
    ordered = sorted(workers, key=lambda w: (not w.alive, -(w.heard or w.started or 0.0)))
    grid = Table(box=None, pad_edge=False)
    for name in ("worker on", "state"):
        grid.add_column(name, overflow="fold")
    for name in ("attempts", "in flight", "cache", "tokens/s", "heard of"):
        grid.add_column(name, justify="right", overflow="fold")
    for worker in ordered[:most]:
        grid.add_row(
            Text(_place(worker, wide)),
            Text(worker.state, style="red" if worker.state in ("dead", "failed") else ""),
            str(worker.attempts),
            str(worker.in_flight) if worker.alive else "",
            _cache(worker),
            count(worker.tokens_per_s),
            f"{clock(max(0.0, now - worker.heard))} ago" if worker.heard else _UNKNOWN,
        )
    rest = Counter(worker.state for worker in ordered[len(ordered[:most]) :])
    for state, number in rest.items():
        grid.add_row(Text(f"and {number} more"), Text(state))
    return grid


def _cache(worker: Worker) -> str:
    """How full the cache of a worker's engine is, and what did not fit into it."""
    full = "" if worker.cache is None else f"{worker.cache:.0%}"
    return f"{full}, {worker.preemptions} preempted" if full and worker.preemptions else full


def _place(worker: Worker, wide: bool) -> str:
    text = worker.host or worker.name
    if worker.replica is not None:
        text += f" #{worker.replica}"
    if worker.task is not None:
        text += f" job {worker.task}"
    return f"{text} pid {worker.pid}" if wide and worker.pid is not None else text


def _columns(standings: Sequence[RunStanding]) -> list[list[str]]:
    """Headings with the figures below them, where those say something."""
    levels = {s.score.confidence for s in standings if s.score is not None}
    interval = f"{min(levels) * 100:g} % interval" if len(levels) == 1 else "interval"
    columns = map(list, zip([*_HEADINGS, interval], *map(_figures, standings), strict=True))
    return [column for column in columns if set(column[1:]) - _NOTHING]


def _needed(columns: Sequence[Sequence[str]]) -> int:
    """How wide columns are beside the names."""
    lines = [[line for cell in column for line in cell.split("\n")] for column in columns]
    return sum(2 + max(map(len, column)) for column in lines)


def _figures(s: RunStanding) -> list[str]:
    """Of a run or of several, in the order of the columns."""
    scored = [_UNKNOWN, ""]
    if s.score is not None:
        _, value, low, high = _both(s.score)[0]
        scored = [f"{value:.3f}", f"{low:.3f}–{high:.3f}"]
    if s.fault is not None:
        return [_UNKNOWN, ""] * 4 + scored
    dead = f"+{len(s.dead)} dead" if s.dead else ""
    hours = _UNKNOWN if s.gpu_h_left is None else f"{s.gpu_h_left:.1f}"
    left = _UNKNOWN if s.left_s is None else clock(s.left_s) if s.owed else "done"
    gpu_h = f"{s.gpu_h:.1f}+{hours}" if s.gpu_h else _UNKNOWN
    counts = [f"{s.done}/{s.total}", str(s.owed), str(s.in_flight), f"{len(s.alive)}{dead}"]
    return [*counts, count(s.tokens), count(s.tokens_per_s), left, gpu_h, *scored]


def _most_alive(standings: Sequence[RunStanding], room: int | None) -> list[RunStanding]:
    """The runs that move, then those owed, then the rest, as many as fit; in their own order."""
    order = sorted(standings, key=lambda s: (not s.alive, not s.dead, s.owed == 0))[:room]
    return [s for s in standings if s in order]


def _phase(s: RunStanding) -> str:
    if s.fault is not None:
        return "without figures"
    return "running" if s.alive else "idle" if s.owed else "done"


def _remarks(standings: Sequence[RunStanding]) -> list[str]:
    """What the figures rest on, and Slurm's jobs."""
    ungraded = sum(s.ungraded for s in standings)
    scored = [s for s in standings if s.score is not None and s.owed]
    remarks = [f"{s.name}: {s.fault}" for s in standings if s.fault is not None]
    remarks[_FAULTS:] = [f"and {len(remarks) - _FAULTS} more like that"] * (len(remarks) > _FAULTS)
    remarks += [s.stale for s in standings if s.stale]
    if ungraded:
        remarks.append(f"scores: {ungraded} attempts are not graded yet")
    elif scored:
        remarks.append("scores are of the attempts that are done: short ones are done first")
    remarks += apart({s.name: s.score.shrinkage for s in standings if s.score is not None})
    if again := sum(worker.preemptions for s in standings for worker in s.alive):
        remarks.append(
            f"{again} preemptions: sequences thrown out of a full cache, to be computed again; a"
            " smaller engine.batch_size avoids them"
        )
    remarks += [f"{s.name}: {in_words(s.budget)}" for s in standings if s.budget]
    if jobs := by_state(standings):
        remarks.append(f"Slurm: {jobs}")
    return remarks
