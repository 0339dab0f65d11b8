"""status of many runs, or again and again: a table that follows whatever works on them."""

import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from bayes_at_n.pipeline.base.console import answering, results
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cluster import jobs
from bayes_at_n.pipeline.cluster.jobs import Job
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.status import board
from bayes_at_n.pipeline.status.standing import RunStanding, as_json, of
from bayes_at_n.pipeline.status.tally import Tally, scores
from bayes_at_n.pipeline.store import find, parquet
from bayes_at_n.pipeline.store.runfolder import Run, opened

EVERY_S = 30.0  # between two blocks of plain text
_LOOK_S = 2.0
_JOBS_S = 20.0  # between two questions to Slurm


Sources = Sequence[Path | RunConfig] | Callable[[], Sequence[Path | RunConfig]]


class Above(NamedTuple):
    """What stands above the runs: what they are for."""

    drawn: RenderableType
    lines: list[str]  # the same where there is no terminal
    record: dict[str, Any]  # and for programs
    over: bool  # whether nothing will change any more, whatever the runs owe


About = Callable[[Sequence[RunStanding]], Above]


class Observer:
    """Reads any number of runs, each file of them once.

    `sources`: run folders, folders of them in which others may appear, or settings of runs; or
    what says at every look which they are. Raises UserError: the only folder is no run and holds
    none.
    """

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._runs()
        self._tallies: dict[Path, tuple[Any, Tally]] = {}  # with what each was made from
        self._jobs: dict[Path, list[Job]] = {}
        self._asked = -_JOBS_S

    def look(self) -> list[RunStanding]:
        """The figures of every run now."""
        runs = self._runs()
        paths = list(runs)
        names = find.names(paths) if len(paths) > 1 else ["/".join(p.parts[-2:]) for p in paths]
        if time.monotonic() - self._asked >= _JOBS_S or not self._jobs.keys() >= set(paths):
            self._jobs, self._asked = jobs.of(paths), time.monotonic()
        sound: dict[Path, Tally] = {}
        standings = {}
        for name, path, cfg in zip(names, paths, runs.values(), strict=True):
            try:
                tally = self._tally(path, cfg)
                tally.look()
                standings[path] = of(name, tally, self._jobs[path])
                sound[path] = tally
            except (UserError, OSError) as error:
                standings[path] = RunStanding(name, str(path), fault=str(error))
        for path, score in zip(sound, scores([*sound.values()]), strict=True):
            standings[path] = replace(standings[path], score=score)
        return [*standings.values()]

    def _runs(self) -> dict[Path, RunConfig | None]:
        """Run folders, and settings other than those of their config.yaml."""
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

    def _tally(self, path: Path, cfg: RunConfig | None) -> Tally:
        """The tally of a run, a new one where its settings or its questions have changed."""
        mark = (
            cfg,
            *(parquet.fingerprint(path / name) for name in ("config.yaml", "questions.parquet")),
        )
        before, tally = self._tallies.get(path, (None, None))
        if tally is None or before != mark:  # workers write the same settings again
            run = Run(cfg) if cfg else opened(path)
            if tally is None or (tally.run.cfg, tally.run.questions) != (run.cfg, run.questions):
                tally = Tally(run)
            self._tallies[path] = mark, tally
        return tally


def show(sources: Sources, about: About | None = None) -> None:
    """Print the figures of several runs once.

    `about` says what stands above them. Raises UserError: as `Observer`.
    """
    standings = Observer(sources).look()
    above = about(standings) if about else None
    if results.is_terminal and not answering():
        results.print(_drawn(standings, above), soft_wrap=False)
    else:
        _print_block(standings, above)


def watch(sources: Sources, every: float = EVERY_S, about: About | None = None) -> None:
    """Show runs until nothing is owed and nobody is alive, or until Ctrl-C.

    With `about`, which says what stands above them, it is over when that is.

    Blocks of plain text come `every` so many seconds where there is no terminal; with --json they
    are a JSON object a run, terminal or not. For `sources` see `Observer`.
    Raises UserError: as `Observer`.
    """
    observer, drawn = Observer(sources), results.is_terminal and not answering()
    screen = Live(console=results, auto_refresh=False, vertical_overflow="crop")
    printed = float("-inf")
    with suppress(KeyboardInterrupt), screen if drawn else nullcontext():
        screen.update(Text("reading the runs ..."), refresh=drawn)
        while True:
            standings = observer.look()
            above = about(standings) if about else None
            over = bool(standings) and all(s.over or s.fault for s in standings)
            over = over if above is None else above.over
            if drawn:
                screen.update(_drawn(standings, above, results.height), refresh=True)
            elif over or time.monotonic() - printed >= every:
                printed = time.monotonic()
                _print_block(standings, above)
            if over:
                return
            time.sleep(min(_LOOK_S, every))


def _drawn(
    standings: list[RunStanding], above: Above | None, height: int | None = None
) -> RenderableType:
    """The table of runs in what room is left below what stands above it; long lines are wrapped."""
    parts: list[RenderableType] = []
    if above is not None:
        parts.append(above.drawn)
        height = None if height is None else height - len(results.render_lines(above.drawn))
    if height is not None and standings:  # of --watch
        parts.append(board.bar(standings, results.width))
        height -= 1
    if standings or above is None:
        parts.append(board.table(standings, results.width, height))
    frame = Table.grid()  # of what stands alone a live display cuts long lines
    frame.add_column(overflow="fold")
    frame.add_row(Group(*parts))
    return frame


def _print_block(standings: list[RunStanding], above: Above | None = None) -> None:
    for record in [*([above.record] if above else []), *map(as_json, standings)]:
        answer(record)
    for line in [*(above.lines if above else []), *board.lines(standings)]:
        results.print(line)
    results.file.flush()  # or a log stays empty for hours
