"""Verbs on runs that are more than one call of one stage."""

from pathlib import Path

from bayes_at_n.pipeline.base.console import answering
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose, overrides, sweep
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.store import find, parquet, runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run


def configured(words: list[str], verb: str = "") -> RunConfig:
    """The configuration that settings compose, or of the run folder that they name, for a verb.

    Raises UserError: a setting or a folder cannot be used.
    """
    folders = [word for word in words if overrides.is_folder(word)]
    single = [word for word in words if word not in folders]
    if not folders:
        return compose.load(single)
    if len(folders) > 1:
        raise UserError(f"{' '.join(folders)}: name one run folder, or KEY=VALUE settings")
    return load_folder(overrides.check_folder(folders[0]), single, verb)


def grade(
    run: Run,
    file: str | None = None,
    out: str | None = None,
    complete: bool = False,
    review: bool = False,
) -> None:
    """Grade a run, or a file of completions with its settings."""
    if file is None and out is None:
        from bayes_at_n.pipeline.grade.stage import grade

        if complete:
            _refuse_owed(run)
        grade(run, ask_math_verify=review)
        return
    if not file or not out or complete or review:
        raise UserError("--file IN and --out OUT: name both, without --complete and --review")
    from bayes_at_n.pipeline.grade.file import grade_file

    grade_file(run.cfg, Path(file), Path(out))


def _refuse_owed(run: Run) -> None:
    """The array of `generate` may have been cancelled, or have come to nothing."""
    from bayes_at_n.pipeline.generate.budget import Allowance  # numbers; not wanted for --help

    if (owed := len(runfolder.owed(run))) and not Allowance(run).told():
        makers = len(sessions.alive(run.path))
        remedy = "see what ended the generate job, then submit again"
        if makers:
            remedy = f"{makers} workers of another submission are at it, whose jobs follow"
        raise UserError(f"{run.path}: {owed} attempts are owed, so nothing is graded; {remedy}")


def submit(settings: list[str], dry_run: bool) -> None:
    """Queue runs on a Slurm cluster, or a race between them."""
    from bayes_at_n.pipeline.cluster import submit as runs
    from bayes_at_n.pipeline.settle import queue as race

    (race if race.is_race(settings) else runs).submit(settings, dry_run)


def status(settings: list[str], watch: bool, every: float | None, check: bool) -> None:
    """Where runs stand: those in folders, of a race, or every combination of settings."""
    parquet.without_pandas()
    from bayes_at_n.pipeline.settle import plan
    from bayes_at_n.pipeline.status import page
    from bayes_at_n.pipeline.status import watch as runs

    if every is not None and (not watch or not 0.5 <= every <= 86400):
        raise UserError("--every: is for --watch, and takes seconds from 0.5 on")
    folders = [Path(text).expanduser() for text in settings if overrides.is_folder(text)]
    if check and watch:
        raise UserError("--check: reads everything once; leave --watch out")
    if not check and any((folder / plan.RECORD).is_file() for folder in folders):
        if len(settings) > 1:
            raise UserError(f"{' '.join(settings)}: name one folder of `settle`, without settings")
        from bayes_at_n.pipeline.settle import watch as races

        races.status(folders[0], watch, every)
        return
    sources: list[Path | RunConfig] = [*folders]
    if not folders or len(folders) < len(settings) or not all(map(Path.is_dir, folders)):
        sources = [configured(combination) for combination in sweep.expand(settings)]
    first = sources[0]
    if check:
        from bayes_at_n.pipeline.store.check import check as read_all

        read_all([s if isinstance(s, Path) else Path(s.run_dir).expanduser() for s in sources])
    elif watch:
        runs.watch(sources, every or runs.EVERY_S)
    elif (
        answering() or len(sources) > 1 or not (isinstance(first, RunConfig) or find.is_run(first))
    ):
        runs.show(sources)
    else:
        page.status(Run(configured(settings)))
