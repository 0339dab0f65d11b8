"""Standings for people: a table as wide as the terminal, or a line a run where there is none."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pipeline.base.console import clock, count
from pipeline.score.headline import apart
from pipeline.status.standing import RunStanding, added, by_state
from pipeline.status.tally import RunningScore
from pipeline.store.spent import in_words
from pipeline.store.workers import Worker

_FIGURES, _FIGURES_WIDE = 62, 108  # columns beside a run's name, in two lines a run and in one
_UNKNOWN = "–"
# Two of them share a column of a narrow terminal, one under the other.
_HEADINGS = ["done/total", "owed", "in flight", "workers", "tokens", "a second"]
_HEADINGS += ["time left", "GPU h+left", "score"]
_REMARK, _FAULTS = 240, 3  # characters of a remark, faults that are told one by one


def table(
    standings: Sequence[RunStanding], width: int, height: int | None = None
) -> RenderableType:
    """All runs, their total, Slurm's jobs; of a lone run its workers, too.

    A terminal that is not wide gets two lines a run; of more runs than fit its `height` the rest is
    counted, and those that move are shown first.
    """
    longest = max((len(s.name) for s in standings), default=0)
    wide = width >= _FIGURES_WIDE + longest
    per_run = 1 if wide else max(2, -(-longest // max(1, width - _FIGURES)))
    told = [line for line in (_price(added(standings)), *_remarks(standings)) if line]
    told += [f"{s.name} {s.continues}" for s in standings if s.continues][:_FAULTS]
    remarks = [Text(line[:_REMARK], overflow="fold") for line in told]
    around = 6 + sum(-(-len(line) // width) for line in remarks)  # headings, total, what is hidden
    room = None if height is None else max(1, (height - around) // per_run)
    shown = _most_alive(standings, room)
    parts: list[RenderableType] = [_runs(shown, standings, wide)]
    if hidden := [s for s in standings if s not in shown]:
        states = Counter(_phase(s) for s in hidden)
        parts.append(Text("and " + ", ".join(f"{n} {state}" for state, n in states.items())))
    if len(standings) == 1 and standings[0].workers:
        rows = None if height is None else max(1, height - around - per_run - 2)
        parts.append(workers_table(standings[0].workers, wide, rows))
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
        scored = f", score {score(s.score)}" if s.score else ""
        block.append(f"{s.name}: {sentence(s)}{scored}")
    return block + _remarks(standings)


def sentence(s: RunStanding) -> str:
    """The figures of a run or of several in words, but for the score."""
    left = "" if s.gpu_h_left is None else f", about {s.gpu_h_left:.1f} left"
    words = [
        f"{s.done}/{s.total} done, {s.owed} owed, {s.in_flight} in flight",
        s.continues,
        f"workers {len(s.alive)} alive {len(s.dead)} dead",
        f"{count(s.tokens)} tokens, {count(s.tokens_per_s)} tokens/s",
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


def score(running: RunningScore) -> str:
    """A running score in words.

    >>> score(RunningScore(0, 0, 0.185, 0.167, 0.043, 0.29, 2.65, 0.95, 20))
    'avg 0.000 (0.000 to 0.185), Bayes@N 0.167 (0.043 to 0.290), 95 % intervals, of 20 attempts'
    """
    shown = [f"{name} {x:.3f} ({low:.3f} to {high:.3f})" for name, x, low, high in _both(running)]
    level = f"{running.confidence * 100:g} % intervals"
    return f"{', '.join(shown)}, {level}, of {running.attempts} attempts"


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


def _runs(shown: Sequence[RunStanding], standings: Sequence[RunStanding], wide: bool) -> Table:
    levels = {s.score.confidence for s in standings if s.score is not None}
    interval = f"{min(levels) * 100:g} % interval" if len(levels) == 1 else "interval"
    grid = Table(box=None, pad_edge=False)
    grid.add_column("run", overflow="fold")
    for heading in _cells([*_HEADINGS, interval], wide):
        grid.add_column(heading, justify="right", no_wrap=True)
    for s in shown:
        grid.add_row(Text(s.name), *_cells(_figures(s), wide))
    if len(standings) > 1:
        total = added(standings)
        grid.add_row(total.name, *_cells(_figures(total), wide), style="bold")
    return grid


def _cells(figures: list[str], wide: bool) -> list[str]:
    pairs = zip(figures[::2], figures[1::2], strict=True)
    return figures if wide else ["\n".join(pair) for pair in pairs]


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
    unread = sum(s.unread for s in standings)
    scored = [s for s in standings if s.score is not None and s.owed]
    remarks = [f"{s.name}: {s.fault}" for s in standings if s.fault is not None]
    remarks[_FAULTS:] = [f"and {len(remarks) - _FAULTS} more like that"] * (len(remarks) > _FAULTS)
    if unread:
        remarks.append(f"scores: the answers of {unread} attempts are still to be read")
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
