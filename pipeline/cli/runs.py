"""Verbs on runs that are more than one call of one stage."""

from collections.abc import Sequence
from pathlib import Path

from bayes_at_n.pipeline.base.console import answering, asked, collected, inside, note, results
from bayes_at_n.pipeline.base.errors import DamagedData, UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cli.verbs import VERBS
from bayes_at_n.pipeline.config import compose, overrides, sweep
from bayes_at_n.pipeline.config.settings import STAGES, RunConfig
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.prepare import questions
from bayes_at_n.pipeline.score import complete, shown, stopped
from bayes_at_n.pipeline.store import find, heartbeat, parquet, runfolder
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
    return compose.load_folder(overrides.check_folder(folders[0]), single, verb)


def run_stages(run: Run) -> None:
    """Every stage of `stages`, in order; once more where damaged data was set aside."""
    prior = run.cfg.prior.run
    if prior is not None and not Path(prior).expanduser().is_dir():  # not after hours of sampling
        raise UserError(f"prior={prior}: no such folder; name the folder of an earlier run")
    if "score" in run.cfg.stages and _has_more(run):
        return
    first = complete.first_owed(run) or ("score" if asked("verbose") else None)
    owed = [] if first is None else STAGES[STAGES.index(first) :]
    if owed and "prepare" not in owed:
        runfolder.save_config(run)
    try:
        with collected():
            done = _stages(run, [stage for stage in run.cfg.stages if stage in owed])
    except DamagedData as error:
        note(f"{error} - doing so now")
        done = _stages(run, run.cfg.stages)
    if not done or "score" not in run.cfg.stages:
        return
    if asked("several"):
        return
    if complete.first_owed(run) is None:
        total = f"{len(run.questions)} questions × {run.cfg.sampling.trials} trials"
        note(f"complete, nothing owed: {total} (sampling.trials=N adds more)")
    note(f"all scores: {PROGRAM} score {run.path}; of rubrics: the same, and rubrics")


def _stages(run: Run, stages: Sequence[str]) -> bool:
    """Do stages in their order; whether none was left to other processes.

    A verifier that cannot be had ends the command, but after what does without it.
    """
    began: dict[str, complete.State] = {}
    told = ""
    failure: UserError | None = None
    judge = run.cfg.verifier.id is not None and not run.cfg.dataset.judge
    for stage in stages:
        if stage == "verify" and judge and {"grade", "score"} <= {*stages}:
            with inside():  # a verifier may take hours, and this process with it
                VERBS["score"].function(Run(run.cfg))
            told = shown.line(runfolder.read_json(run.path / "scores.json"))
            results.print(told)
        began[stage] = complete.state(run)
        try:
            with inside():
                done = VERBS[stage].function(Run(run.cfg))
        except UserError as error:
            # Of what follows its failure, rubrics asked for by name may fail for want of it.
            if run.cfg.dataset.judge or stage == "score" or not (failure or stage == "verify"):
                raise
            failure = failure or error
            continue
        if done is False:  # what comes after must wait for them
            note(f"the last of them does what follows {stage}; or give the same command later")
            return False
    if "score" in run.cfg.stages:
        _tell(run, told)
    if failure is not None:
        again = "the same command asks it again, verifier=none leaves it out"
        raise type(failure)(f"verify: {failure}. Scored without it; {again}") from failure
    if "score" in began:
        complete.seal(run, began)
    return True


def _has_more(run: Run) -> bool:
    """Whether more trials are there and scored than are asked for: then nothing is touched."""
    scores, trials = runfolder.read_json(run.path / "scores.json"), run.cfg.sampling.trials
    there = scores.get("trials", 0)
    if scores.get("attempts", 0) <= scores.get("questions", 0) * trials or stopped.of(run):
        return False
    identity = runfolder.identity(run.cfg)
    if "prepare" in run.cfg.stages:  # imported runs have no data set
        identity["questions"] = {one.id: one.hash for one in questions.load(run.cfg.dataset)[0]}
    runfolder.check_same(run, identity)
    if len(identity.get("questions", ())) > len(run.questions) or runfolder.owed(run):
        return False
    _tell(run)
    note(f"{there} trials are there, and stay; {trials} were asked for")
    note(f"the first {trials}: {PROGRAM} score {run.path} sampling.trials={trials}")
    return True


def _tell(run: Run, told: str = "") -> None:
    """The score of a run in a line, if that is not what was told."""
    scores = runfolder.read_json(run.path / "scores.json")
    if (line := shown.line(scores)) != told:
        results.print(line)
    answer(scores)


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
        makers = len(heartbeat.alive(run.path))
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
