"""Verbs on runs that are more than one call of one stage."""

from pathlib import Path

from pipeline.base.console import note
from pipeline.base.errors import DamagedData, UserError
from pipeline.cli.verbs import VERBS
from pipeline.config import compose, overrides, sweep
from pipeline.config.settings import RunConfig
from pipeline.store import find, heartbeat, parquet, runfolder
from pipeline.store.runfolder import Run


def configured(settings: list[str]) -> RunConfig:
    """The configuration that settings compose, or of the run folder that they name.

    Raises UserError: a setting or a folder cannot be used.
    """
    folders = [setting for setting in settings if "=" not in setting]
    single = [setting for setting in settings if "=" in setting]
    if not folders:
        return compose.load(single)
    if len(folders) > 1:
        raise UserError(f"{' '.join(folders)}: name one run folder, or KEY=VALUE settings")
    return compose.load_folder(overrides.check_folder(folders[0]), single)


def run_stages(run: Run) -> None:
    """Every stage of `stages`, in order; once more where damaged data was set aside."""
    prior = run.cfg.prior.run
    if prior is not None and not Path(prior).expanduser().is_dir():  # not after hours of sampling
        raise UserError(f"prior={prior}: no such folder; name the folder of an earlier run")
    try:
        _stages(run)
    except DamagedData as error:
        note(f"{error} - doing so now")
        _stages(run)


def _stages(run: Run) -> None:
    """A verifier that cannot be had ends the command, but after what does without it."""
    failure: UserError | None = None
    for stage in run.cfg.stages:
        try:
            # False: left to other processes; what comes after must wait for them.
            if VERBS[stage].function(Run(run.cfg)) is False:
                note(f"the last of them does what follows {stage}; or give the same command later")
                return
        except UserError as error:
            # Of what follows its failure, rubrics asked for by name may fail for want of it.
            if run.cfg.dataset.judge or stage == "score" or not (failure or stage == "verify"):
                raise
            failure = failure or error
    if failure is not None:
        again = "the same command asks it again, verifier=none leaves it out"
        raise type(failure)(f"verify: {failure}. Scored without it; {again}") from failure


def grade(
    run: Run,
    file: str | None = None,
    out: str | None = None,
    complete: bool = False,
    review: bool = False,
) -> None:
    """Grade a run, or a file of completions with its settings."""
    if file is None and out is None:
        from pipeline.grade.stage import grade

        if complete:
            _refuse_owed(run)
        grade(run, ask_math_verify=review)
        return
    if not file or not out or complete or review:
        raise UserError("--file IN and --out OUT: name both, without --complete and --review")
    from pipeline.grade.file import grade_file

    grade_file(run.cfg, Path(file), Path(out))


def _refuse_owed(run: Run) -> None:
    """The array of `generate` may have been cancelled, or have come to nothing."""
    from pipeline.generate.budget import Allowance  # numbers; not wanted for --help

    if (owed := len(runfolder.owed(run))) and not Allowance(run).told():
        makers = len(heartbeat.alive(run.path))
        remedy = "see what ended the generate job, then submit again"
        if makers:
            remedy = f"{makers} workers of another submission are at it, whose jobs follow"
        raise UserError(f"{run.path}: {owed} attempts are owed, so nothing is graded; {remedy}")


def submit(settings: list[str], dry_run: bool) -> None:
    """Queue runs on a Slurm cluster, or a race between them."""
    from pipeline.cluster import submit as runs
    from pipeline.settle import queue as race

    (race if race.is_race(settings) else runs).submit(settings, dry_run)


def status(settings: list[str], watch: bool, every: float | None, json: bool, check: bool) -> None:
    """Where runs stand: those in folders, of a race, or every combination of settings."""
    parquet.without_pandas()
    from pipeline.settle import plan
    from pipeline.status import page
    from pipeline.status import watch as runs

    if every is not None and (not watch or not 0.5 <= every <= 86400):
        raise UserError("--every: is for --watch, and takes seconds from 0.5 on")
    folders = [Path(setting).expanduser() for setting in settings if "=" not in setting]
    if check and watch:
        raise UserError("--check: reads everything once; leave --watch out")
    if not check and any((folder / plan.RECORD).is_file() for folder in folders):
        if len(settings) > 1:
            raise UserError(f"{' '.join(settings)}: name one folder of `settle`, without settings")
        from pipeline.settle import watch as races

        races.status(folders[0], watch, every, json)
        return
    sources: list[Path | RunConfig] = [*folders]
    if not folders or len(folders) < len(settings) or not all(map(Path.is_dir, folders)):
        sources = [configured(combination) for combination in sweep.expand(settings)]
    first = sources[0]
    if check:
        from pipeline.status.check import check as read_all

        read_all(
            [s if isinstance(s, Path) else Path(s.run_dir).expanduser() for s in sources], json
        )
    elif watch:
        runs.watch(sources, every or runs.EVERY_S, json)
    elif json or len(sources) > 1 or not (isinstance(first, RunConfig) or find.is_run(first)):
        runs.show(sources, json)
    else:
        page.status(Run(configured(settings)))
