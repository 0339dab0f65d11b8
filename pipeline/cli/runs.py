"""Verbs on runs that are more than one call of one stage."""

from collections.abc import Sequence
from pathlib import Path

from bayes_at_n.pipeline.base.console import answering
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import find, parquet, runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run


def configured(words: Sequence[str], verb: str = "") -> RunConfig:
    """Compose settings, or load those of the run folder among them for a verb. Raises UserError."""
    folders, settings = compose.folders_of(words)
    if len(folders) > 1:
        raise UserError(f"{' '.join(folders)}: name one run folder, or KEY=VALUE settings")
    if folders:
        return load_folder(Path(folders[0]), settings, verb)
    return compose.load(settings)


def grade(
    run: Run,
    file: str | None = None,
    out: str | None = None,
    complete: bool = False,
    review: bool = False,
) -> None:
    """Grade a run, or a file of completions with its settings."""
    if (file is None) != (out is None) or (file and (complete or review)):
        raise UserError("--file IN and --out OUT: name both, without --complete and --review")
    from bayes_at_n.pipeline.generate.budget import Allowance
    from bayes_at_n.pipeline.grade import stage

    if file and out:
        return stage.grade_file(run.cfg, Path(file), Path(out))
    if complete and (owed := len(runfolder.owed(run))) and not Allowance(run).told():
        makers = len(sessions.alive(run.path))
        remedy = f"{makers} workers are at it" if makers else "see what ended the generate job"
        raise UserError(f"{run.path}: {owed} attempts are owed, so nothing is graded; {remedy}")
    stage.grade(run, ask_math_verify=review)


def status(words: list[str], watch: bool, every: float | None, check: bool) -> None:
    """Show where runs stand: those in folders, of a race, or every combination of settings."""
    parquet.without_pandas()
    from bayes_at_n.pipeline.settle import RECORD
    from bayes_at_n.pipeline.status import page
    from bayes_at_n.pipeline.status import watch as runs

    if every is not None and (not watch or not 0.5 <= every <= 86400):
        raise UserError("--every: is for --watch, and takes seconds from 0.5 on")
    folders, settings = compose.folders_of(words)
    if not check and any((Path(folder) / RECORD).is_file() for folder in folders):
        from bayes_at_n.pipeline.settle import watch as races

        if len(words) > 1:
            raise UserError(f"{' '.join(words)}: name one folder of `settle`, without settings")
        return races.status(Path(folders[0]), watch, every)
    sources: list[Path | RunConfig] = [*map(Path, folders)]
    if settings or not folders:
        sources = [configured([*folders, *one]) for one in compose.expand(settings)]
    one_run = len(sources) == 1 and (not isinstance(sources[0], Path) or find.is_run(sources[0]))
    if check:
        from bayes_at_n.pipeline.rubrics import categories, signals
        from bayes_at_n.pipeline.score import current
        from bayes_at_n.pipeline.store import graded
        from bayes_at_n.pipeline.store.check import check as read_all

        paths = [s if isinstance(s, Path) else Path(s.run_dir).expanduser() for s in sources]
        read_all(paths, [one.stale for one in (graded, signals, categories, current)])
    elif watch:
        runs.watch(sources, every or runs.EVERY_S)
    elif one_run and not answering():
        page.status(Run(configured(words)))
    else:
        runs.show(sources)
