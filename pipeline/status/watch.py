"""The verb `status`: progress of runs, once or continuously; read-only, beside any workers."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bayes_at_n.pipeline.base.console import prints_json, results
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.status import board, progress
from bayes_at_n.pipeline.status.counts import Counts, count, score
from bayes_at_n.pipeline.status.progress import Progress
from bayes_at_n.pipeline.store import selection, shards
from bayes_at_n.pipeline.store.runfolder import Run, open_run

EVERY_S = 30.0  # between two reports in plain text
_POLL_S = 2.0
_JOBS_S = 20.0  # between two queries to Slurm
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
                rows.append(progress.progress_of(name, counts, score(counts)))
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
        parts.append(board.bar(runs, results.width))
        runs = sorted(runs, key=lambda r: (not r.workers_alive, not r.workers_dead, not r.pending))
    if runs or header is None:
        parts.append(board.board(runs, _width()))
    frame = Table.grid()  # outside a table a live display cuts long lines
    frame.add_column(overflow="fold")
    frame.add_row(Group(*parts))
    return frame
