"""The verb `status`: progress of runs, once or continuously; read-only, beside any workers."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table as RichTable
from rich.text import Text

from bayes_at_n.pipeline.base.console import duration, percent, plural, prints_json, results, si
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import Column, Table, columns, print_json, to_rich
from bayes_at_n.pipeline.score.headline import named
from bayes_at_n.pipeline.status.progress import (
    Counts,
    Progress,
    count,
    progress_of,
    score,
    total_of,
)
from bayes_at_n.pipeline.store import selection, shards
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.pipeline.workers.session import Worker
from bayes_at_n.pipeline.workers.spent import in_words

EVERY_S = 30.0  # between two reports in plain text
_POLL_S = 2.0
_WIDE = 500  # characters of a line without a terminal

Sources = Sequence[Path | RunConfig] | Callable[[], Sequence[Path | RunConfig]]


class Header(NamedTuple):
    """What is printed above the table of runs, such as a leaderboard."""

    text: RenderableType
    record: dict[str, Any]  # printed with --json
    is_finished: bool  # whether to stop watching, whatever is pending in the runs


MakeHeader = Callable[[Sequence[Progress]], Header]


class Observer:
    """Reads the progress of any number of runs, and only what has changed.

    `sources`: run folders, folders in which runs may appear, or settings of runs; or a function
    that returns these at each poll. Raises UserError: the only folder is no run and holds none.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources if callable(sources) else lambda: sources
        self._runs()
        self._counts: dict[Path, tuple[Any, Counts]] = {}  # with their settings and files

    def poll(self) -> list[Progress]:
        """Return the current progress of every run."""
        runs = self._runs()
        paths = list(runs)
        names, datasets = ["/".join(p.parts[-2:]) for p in paths], {p.parent for p in paths}
        if len({*names}) < len(names) or len(datasets) == 1 < len(names):
            names = selection.names(paths)
        rows = []
        for name, path, cfg in zip(names, paths, runs.values(), strict=True):
            try:
                counts = self._counted(path, cfg)
                rows.append(progress_of(name, counts, score(counts)))
            except (UserError, OSError) as error:
                rows.append(Progress(name=name, run=str(path), fault=str(error)))
        return rows

    def _runs(self) -> dict[Path, RunConfig | None]:
        """Map run folders to settings; None: those of their config.yaml."""
        runs: dict[Path, RunConfig | None] = {}
        sources = self._sources()
        for source in sources:
            if isinstance(source, RunConfig):
                runs[Path(source.run_dir).expanduser()] = source
                continue
            try:
                runs |= dict.fromkeys(selection.runs_in(source))
            except UserError:
                if len(sources) == 1:
                    raise
                runs[source] = None  # listed with its fault
        return runs

    def _counted(self, path: Path, cfg: RunConfig | None) -> Counts:
        """Return the counts of a run, read again if its settings or files have changed."""
        files = [path / name for name in ("config.yaml", "questions.parquet", "manifest.json")]
        for table in ("attempts", "grades", "verdicts"):
            files += shards.files(path / table)
        version = cfg, [(str(file), shards.fingerprint(file)) for file in files]
        if path not in self._counts or self._counts[path][0] != version:
            self._counts[path] = version, count(Run(cfg) if cfg else open_run(path))
        return self._counts[path][1]


def show(sources: Sources, make_header: MakeHeader | None = None) -> None:
    """Print the progress of runs once, below a header.

    Raises UserError: as `Observer`; or the only run cannot be read.
    """
    runs = Observer(sources).poll()
    if len(runs) == 1 and runs[0].fault and make_header is None:
        raise UserError(runs[0].fault)
    _print(runs, make_header(runs) if make_header else None)


def watch(sources: Sources, every: float = EVERY_S, make_header: MakeHeader | None = None) -> None:
    """Show runs until nothing is pending and no worker is alive, or until Ctrl-C.

    With `make_header`, watch until its header is finished. Without a terminal, print a report
    `every` so many seconds; with --json, a JSON object per run. For `sources` see `Observer`.
    Raises UserError: as `Observer`.
    """
    observer, live = Observer(sources), results.is_terminal and not prints_json()
    screen = Live(console=results, auto_refresh=False, vertical_overflow="crop")
    printed = float("-inf")
    with suppress(KeyboardInterrupt), screen if live else nullcontext():
        screen.update(Text("reading runs ..."), refresh=live)
        while True:
            runs = observer.poll()
            header = make_header(runs) if make_header else None
            finished = bool(runs) and all(run.is_finished or run.fault for run in runs)
            finished = header.is_finished if header else finished
            if live:
                screen.update(_render(runs, header, live), refresh=True)
            elif finished or time.monotonic() - printed >= every:
                printed = time.monotonic()
                _print(runs, header)
            if finished:
                return
            time.sleep(min(_POLL_S, every))


def _width() -> int:
    """Return the characters of a line; without a terminal a row is never broken."""
    return results.width if results.is_terminal else _WIDE


def _print(runs: list[Progress], header: Header | None) -> None:
    for record in [*([header.record] if header else []), *(run.record() for run in runs)]:
        print_json(record)
    if not prints_json():
        options, part = results.options.update(width=_width()), _render(runs, header)
        for line in results.render_lines(part, options, pad=False):
            results.print("".join(segment.text for segment in line).rstrip())
    results.file.flush()  # or a log stays empty for hours


def _render(runs: list[Progress], header: Header | None, live: bool = False) -> RenderableType:
    """Render the header and the table of runs; wrap long lines.

    `live`: what does not fit on the screen is cut off, so a bar for all runs, and active ones,
    come first.
    """
    parts: list[RenderableType] = [] if header is None else [header.text]
    if live and runs:
        parts.append(bar(runs, results.width))
        runs = sorted(runs, key=lambda r: (not r.workers_alive, not r.workers_dead, not r.pending))
    if runs or header is None:
        parts.append(board(runs, _width()))
    frame = RichTable.grid()  # outside a table a live display cuts long lines
    frame.add_column(overflow="fold")
    frame.add_row(Group(*parts))
    return frame


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
