"""status: where runs are, once or again and again, read only and beside any number of workers."""

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
from bayes_at_n.pipeline.cluster import jobs
from bayes_at_n.pipeline.cluster.jobs import Job
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import print_json
from bayes_at_n.pipeline.status import board, progress
from bayes_at_n.pipeline.status.counts import Counts, score
from bayes_at_n.pipeline.status.progress import Progress
from bayes_at_n.pipeline.store import find, parquet
from bayes_at_n.pipeline.store.runfolder import Run, open_run

EVERY_S = 30.0  # between two blocks of plain text
_LOOK_S = 2.0
_JOBS_S = 20.0  # between two questions to Slurm
_WIDE = 500  # characters of a line where there is no terminal

Sources = Sequence[Path | RunConfig] | Callable[[], Sequence[Path | RunConfig]]


class Above(NamedTuple):
    """What stands above the runs: what they are for."""

    drawn: RenderableType
    record: dict[str, Any]  # for programs
    over: bool  # whether nothing will change any more, whatever is pending of the runs


About = Callable[[Sequence[Progress]], Above]


class Observer:
    """Reads any number of runs, each file of them once.

    `sources`: run folders, folders of them in which others may appear, or settings of runs; or
    what says at every look which they are. Raises UserError: the only folder is no run and holds
    none.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._runs()
        self._counts: dict[Path, tuple[Any, Counts]] = {}  # with what each was made from
        self._jobs: dict[Path, list[Job]] = {}
        self._jobs_read = -_JOBS_S

    def look(self) -> list[Progress]:
        """Return the figures of every run now."""
        runs = self._runs()
        paths = list(runs)
        names = find.names(paths) if len(paths) > 1 else ["/".join(p.parts[-2:]) for p in paths]
        if time.monotonic() - self._jobs_read >= _JOBS_S or not self._jobs.keys() >= set(paths):
            self._jobs, self._jobs_read = jobs.jobs_of(paths), time.monotonic()
        found = []
        for name, path, cfg in zip(names, paths, runs.values(), strict=True):
            try:
                counts = self._counts_of(path, cfg)
                counts.look()
                scored = score(counts, stored=len(runs) == 1)
                found.append(progress.progress_of(name, counts, self._jobs[path], scored))
            except (UserError, OSError) as error:
                found.append(Progress(name=name, run=str(path), fault=str(error)))
        return found

    def _runs(self) -> dict[Path, RunConfig | None]:
        """List run folders, and settings other than those of their config.yaml."""
        runs: dict[Path, RunConfig | None] = {}
        sources = self._sources() if callable(self._sources) else self._sources
        for source in sources:
            if isinstance(source, RunConfig):
                runs[Path(source.run_dir).expanduser()] = source
                continue
            try:
                runs |= dict.fromkeys(find.within(source))
            except UserError:
                if len(sources) == 1:
                    raise
                runs[source] = None  # a fault among the others
        return runs

    def _counts_of(self, path: Path, cfg: RunConfig | None) -> Counts:
        """Return the counts of a run, new ones where its settings or questions have changed."""
        files = (parquet.fingerprint(path / name) for name in ("config.yaml", "questions.parquet"))
        version = cfg, *files
        before, counts = self._counts.get(path, (None, None))
        if counts is None or before != version:  # workers write the same settings again
            run = Run(cfg) if cfg else open_run(path)
            if counts is None or (counts.run.cfg, counts.run.questions) != (run.cfg, run.questions):
                counts = Counts(run)
            self._counts[path] = version, counts
        return counts


def show_run(run: Run) -> None:
    """Print where a run stands, with a character a trial. Raises UserError: it is not prepared."""
    counts = Counts(run)
    counts.look()
    path, of_run = str(run.path), jobs.jobs_of([run.path])[run.path]
    found = progress.progress_of(run.path.name, counts, of_run, score(counts, stored=True))
    results.print(f"{path}: {run.cfg.model.name} on {run.cfg.dataset.name}")
    for line in board.map_lines(counts, results.width if results.is_terminal else None):
        results.print(line)
    _show(board.board([found], _width()))
    for job in of_run:
        words = (job.kind, job.id, job.state, job.node, job.time, job.reason)
        results.print(f"Slurm: {' '.join(word for word in words if word)}")


def show(sources: Sources, about: About | None = None) -> None:
    """Print the figures of several runs once.

    `about` says what stands above them. Raises UserError: as `Observer`.
    """
    runs = Observer(sources).look()
    _print(runs, about(runs) if about else None)


def watch(sources: Sources, every: float = EVERY_S, about: About | None = None) -> None:
    """Show runs until nothing is pending and nobody is alive, or until Ctrl-C.

    With `about`, which says what stands above them, it is over when that is.

    Blocks of plain text come `every` so many seconds where there is no terminal; with --json they
    are a JSON object a run, terminal or not. For `sources` see `Observer`.
    Raises UserError: as `Observer`.
    """
    observer, drawn = Observer(sources), results.is_terminal and not prints_json()
    screen = Live(console=results, auto_refresh=False, vertical_overflow="crop")
    printed = float("-inf")
    with suppress(KeyboardInterrupt), screen if drawn else nullcontext():
        screen.update(Text("reading the runs ..."), refresh=drawn)
        while True:
            runs = observer.look()
            above = about(runs) if about else None
            over = bool(runs) and all(run.over or run.fault for run in runs)
            over = over if above is None else above.over
            if drawn:
                screen.update(_drawn(runs, above, results.height), refresh=True)
            elif over or time.monotonic() - printed >= every:
                printed = time.monotonic()
                _print(runs, above)
            if over:
                return
            time.sleep(min(_LOOK_S, every))


def _width() -> int:
    """Return the columns of a row; it is one line where there is no terminal."""
    return results.width if results.is_terminal else _WIDE


def _print(runs: list[Progress], above: Above | None) -> None:
    for record in [*([above.record] if above else []), *(run.record() for run in runs)]:
        print_json(record)
    if not prints_json():
        _show(_drawn(runs, above))
    results.file.flush()  # or a log stays empty for hours


def _show(part: RenderableType) -> None:
    for line in results.render_lines(part, results.options.update(width=_width()), pad=False):
        results.print("".join(segment.text for segment in line).rstrip())


def _drawn(runs: list[Progress], above: Above | None, height: int | None = None) -> RenderableType:
    """Draw the table of runs in the room below what stands above it; long lines are wrapped."""
    parts: list[RenderableType] = [] if above is None else [above.drawn]
    if height is not None and runs:  # of --watch
        parts.append(board.bar(runs, results.width))
    if runs or above is None:
        room = None if height is None else height - len(results.render_lines(Group(*parts)))
        parts.append(board.board(runs, _width(), room))
    frame = Table.grid()  # of what stands alone a live display cuts long lines
    frame.add_column(overflow="fold")
    frame.add_row(Group(*parts))
    return frame
