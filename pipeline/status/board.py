"""Standings for people: a table as wide as the terminal, or a line a run where there is none."""

import time
from collections import Counter
from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pipeline.base.console import clock, count
from pipeline.status.standing import Figures, Standing, by_state, figures
from pipeline.status.tally import Score
from pipeline.store.workers import Worker

_FIGURES, _FIGURES_WIDE = 62, 108  # columns beside a run's name, in two lines a run and in one
_UNKNOWN = "–"
# Two figures share a column of a narrow terminal, one under the other.
_COLUMNS = (
    ("done/total", "owed"),
    ("in flight", "workers"),
    ("tokens", "a second"),
    ("time left", "GPU h+left"),
    ("score", "interval"),
)
_REMARK, _FAULTS = 240, 3  # characters of a remark, faults that are told one by one


def table(standings: Sequence[Standing], width: int, height: int | None = None) -> RenderableType:
    """All runs, their total, Slurm's jobs; of a lone run its workers, too.

    Args:
        standings: the runs.
        width: columns of the terminal; a narrow one gets two lines a run.
        height: its lines: runs that do not fit are counted, those that move are shown first.
    """
    longest = max((len(s.name) for s in standings), default=0)
    wide = width >= _FIGURES_WIDE + longest
    per_run = 1 if wide else max(2, -(-longest // max(1, width - _FIGURES)))
    remarks = [Text(line[:_REMARK], overflow="fold") for line in _remarks(standings)]
    around = 6 + sum(-(-len(line) // width) for line in remarks)  # headings, total, what is hidden
    room = None if height is None else max(1, (height - around) // per_run)
    shown = list(standings) if room is None else _most_alive(standings, room)
    parts: list[RenderableType] = [_runs(shown, standings, wide)]
    if hidden := [s for s in standings if s not in shown]:
        states = Counter(_phase(s) for s in hidden)
        parts.append(Text("and " + ", ".join(f"{n} {state}" for state, n in states.items())))
    if len(standings) == 1 and standings[0].workers:
        rows = None if height is None else max(1, height - around - per_run - 2)
        parts.append(workers_table(standings[0].workers, wide, rows))
    return Group(*parts, *remarks)


def lines(standings: Sequence[Standing]) -> list[str]:
    """The same as plain text: a line a run, the total, Slurm's jobs; after the time."""
    found = [time.strftime("%Y-%m-%d %H:%M:%S")]
    for s in standings:
        if s.fault is None:
            scored = f", score {score(s.score)}" if s.score else ""
            found.append(f"{s.name}: {_sentence(figures([s]))}{scored}")
    if len(standings) > 1:
        found.append(f"{len(standings)} runs: {_sentence(figures(standings))}")
    return found + _remarks(standings)


def cost(found: Figures) -> str:
    """GPU-hours used and left, in words; empty where no GPU was used."""
    if not found.gpu_h:
        return ""
    text = f"{found.gpu_h:.1f} GPU-hours used"
    return text if found.gpu_h_left is None else f"{text}, about {found.gpu_h_left:.1f} left"


def score(found: Score) -> str:
    """A running score in words.

    >>> score(Score(0.5, 0.4, 0.6, 0.95, 24))
    'μ 0.500, 95 % interval 0.400 to 0.600, of 24 attempts'
    """
    return (
        f"μ {found.mu:.3f}, {found.confidence * 100:g} % interval {found.low:.3f} to"
        f" {found.high:.3f}, of {found.attempts} attempts"
    )


def workers_table(found: Sequence[Worker], wide: bool, most: int | None = None) -> Table:
    """Workers, those alive first and then the latest; the rest are counted."""
    now = time.time()
    ordered = sorted(found, key=lambda w: (not w.alive, -(w.heard or w.started or 0.0)))
    grid = Table(box=None, pad_edge=False)
    for name in ("worker on", "state", "attempts", "in flight", "tokens/s", "heard of"):
        text = name in ("worker on", "state")
        grid.add_column(name, justify="left" if text else "right", overflow="fold")
    for worker in ordered[:most]:
        grid.add_row(
            Text(_place(worker, wide)),
            Text(worker.state, style="red" if worker.state in ("dead", "failed") else ""),
            str(worker.attempts),
            str(worker.in_flight) if worker.alive else "",
            count(worker.tokens_per_s),
            _ago(now, worker.heard),
        )
    rest = Counter(worker.state for worker in ordered[len(ordered[:most]) :])
    for state, number in rest.items():
        grid.add_row(Text(f"and {number} more"), Text(state))
    return grid


def _place(worker: Worker, wide: bool) -> str:
    text = worker.host or worker.name
    if worker.replica is not None:
        text += f" #{worker.replica}"
    if worker.task is not None:
        text += f" job {worker.task}"
    return f"{text} pid {worker.pid}" if wide and worker.pid is not None else text


def _ago(now: float, then: float | None) -> str:
    return _UNKNOWN if then is None else f"{clock(max(0.0, now - then))} ago"


def _runs(shown: Sequence[Standing], standings: Sequence[Standing], wide: bool) -> Table:
    level = {s.score.confidence for s in standings if s.score is not None}
    interval = f"{min(level) * 100:g} % interval" if len(level) == 1 else "interval"
    grid = Table(box=None, pad_edge=False)
    grid.add_column("run", overflow="fold")
    names = [(first, interval if second == "interval" else second) for first, second in _COLUMNS]
    for heading in [part for pair in names for part in pair] if wide else map("\n".join, names):
        grid.add_column(heading, justify="right", no_wrap=True)
    for s in shown:
        scored = (_UNKNOWN, "")
        if s.score is not None:
            scored = (f"{s.score.mu:.3f}", f"{s.score.low:.3f}–{s.score.high:.3f}")
        grid.add_row(Text(s.name), *_cells([*_figures([s]), scored], wide))
    if len(standings) > 1:
        every = _cells([*_figures(standings), ("", "")], wide)
        grid.add_row(f"{len(standings)} runs", *every, style="bold")
    return grid


def _cells(pairs: Sequence[tuple[str, str]], wide: bool) -> list[str]:
    return [part for pair in pairs for part in pair] if wide else ["\n".join(p) for p in pairs]


def _figures(standings: Sequence[Standing]) -> list[tuple[str, str]]:
    """What runs have in common with their total, in the order of the columns."""
    if all(s.fault is not None for s in standings):
        return [(_UNKNOWN, "")] * (len(_COLUMNS) - 1)
    f = figures(standings)
    dead = f"+{f.dead} dead" if f.dead else ""
    left = _UNKNOWN if f.gpu_h_left is None else f"{f.gpu_h_left:.1f}"
    return [
        (f"{f.done}/{f.total}", str(f.owed)),
        (str(f.in_flight), f"{f.alive}{dead}"),
        (count(f.tokens), count(f.tokens_per_s)),
        (
            _UNKNOWN if f.left_s is None else clock(f.left_s) if f.owed else "done",
            f"{f.gpu_h:.1f}+{left}" if f.gpu_h else _UNKNOWN,
        ),
    ]


def _sentence(f: Figures) -> str:
    """The figures of a run or of several, but for the score."""
    words = [
        f"{f.done}/{f.total} done, {f.owed} owed, {f.in_flight} in flight",
        f"workers {f.alive} alive {f.dead} dead",
        f"{count(f.tokens)} tokens, {count(f.tokens_per_s)} tokens/s",
        "" if f.left_s is None or not f.owed else f"about {clock(f.left_s)} left",
        cost(f),
    ]
    return ", ".join(word for word in words if word)


def _most_alive(standings: Sequence[Standing], room: int) -> list[Standing]:
    """The runs that move, then those owed, then the rest, as many as fit; in their own order."""
    if len(standings) <= room:
        return list(standings)
    order = sorted(
        range(len(standings)),
        key=lambda i: (not standings[i].alive, not standings[i].dead, standings[i].owed == 0, i),
    )
    return [standings[i] for i in sorted(order[:room])]


def _phase(s: Standing) -> str:
    if s.fault is not None:
        return "without figures"
    return "running" if s.alive else "idle" if s.owed else "done"


def _remarks(standings: Sequence[Standing]) -> list[str]:
    """What the figures rest on, and Slurm's jobs."""
    unread = sum(s.unread for s in standings)
    scored = [s for s in standings if s.score is not None and s.owed]
    found = [f"{s.name}: {s.fault}" for s in standings if s.fault is not None]
    found[_FAULTS:] = [f"and {len(found) - _FAULTS} more like that"] * (len(found) > _FAULTS)
    if unread:
        found.append(f"scores: the answers of {unread} attempts are still to be read")
    elif scored:
        found.append("scores are of the attempts that are done: short ones are done first")
    if jobs := by_state(standings):
        found.append(f"Slurm: {jobs}")
    return found
