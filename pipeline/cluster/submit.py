"""submit: one array of workers over any number of runs, and the jobs that follow it.

    runs/_slurm/20261121T220102-3f9a/     what was submitted: scripts, submission.json, output
    runs/aime25/qwen3-30b/_slurm/20261121T220102-3f9a.json      a run's pointer to it

A submission goes into the folder that all its runs have in common; of a single run into its own.
"""

import os
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from bayes_at_n.pipeline.base import atomic, engines
from bayes_at_n.pipeline.base.console import note, plural, results
from bayes_at_n.pipeline.base.environment import describe
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.cluster import jobs, scripts
from bayes_at_n.pipeline.cluster.jobs import ask
from bayes_at_n.pipeline.cluster.scripts import Submission
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.folder import dump, load_folder
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.display.table import Table, columns, print_json, show
from bayes_at_n.pipeline.prepare import estimate, questions_table, stage
from bayes_at_n.pipeline.store import find, graded, runfolder
from bayes_at_n.pipeline.store.runfolder import Run


def submit(settings: list[str], dry_run: bool = False) -> None:
    """Queue what is pending of runs on a Slurm cluster: generate, grade, verify, score, report.

    `settings`: as of `run`, several values making several runs; or run folders or folders of runs,
    and what to change in them. `dry_run`: print the scripts and write nothing. Raises UserError: a
    setting or a run cannot work, or Slurm refused; what was submitted before that is named.
    """
    queue([Run(cfg) for cfg in _configurations(settings)], settings, dry_run)


def queue(
    runs: list[Run], settings: list[str], dry_run: bool, race: Path | None = None, open_: int = 0
) -> None:
    """Queue what is pending; of the `race` of a folder of `settle`, what its open models need.

    Args:
        runs: of a race the `open_` ones first, which are sampled until it is decided.
        settings: as given, for the record.
        dry_run: print the scripts and write nothing.

    Raises UserError: as `submit`.
    """
    if not dry_run and shutil.which("sbatch") is None:
        ask("sbatch")  # says so
    _check(runs)
    used, found = estimate.cluster_hardware(runs[0].cfg.cluster), {}
    for run in runs:
        if dry_run or (race and (run.path / "questions.parquet").exists()):
            built = questions_table.build(run)
            runfolder.check_same(run, built.identity, raising=True)
            if dry_run:
                found[str(run.path)] = estimate.estimate(run, built.rows(), used)
        else:
            stage.prepare(run)
    submission = _planned(runs, race, open_)
    if not submission.kinds:
        more = "another until= goes on" if race else "sampling.trials=N adds trials"
        note(f"nothing to submit: {plural(len(runs), 'run')} complete ({more})")
        return
    _name_earlier(runs)
    if dry_run:
        _show_scripts(submission)
        for line in estimate.summary(found, used):
            results.print(line)
    else:
        _submit(submission, settings)


def _configurations(settings: list[str]) -> list[RunConfig]:
    """The configuration of every run that the settings name, with the engines of a task."""
    folders, others = compose.folders_of(settings)
    [others] = compose.split(others, RunConfig)
    if folders:
        cfgs = _of_folders(folders, others)
    else:
        cfgs = [compose.load(combination) for combination in compose.expand(others)]
    for cfg in cfgs:
        place_engines(cfg, fixed=any(one.startswith("engine.replicas=") for one in others))
    return cfgs


def _of_folders(folders: list[str], settings: list[str]) -> list[RunConfig]:
    """Those of the runs in folders, with the settings that are given.

    Where one names another cluster, nothing of the earlier one remains.
    """
    site = []
    if any(setting.startswith("cluster=") for setting in settings):
        site = [setting for setting in settings if setting.startswith(("cluster=", "cluster."))]
    others = [setting for setting in settings if setting not in site]
    cfgs = []
    for folder in map(Path, folders):
        if folder.name.startswith("_") and len(folders) > 1:
            continue  # of runs/DATASET/*: what is made from runs
        for run in find.within(folder):
            cfgs.append(load_folder(run, others, "run prepare" if site else "submit"))
            if site:
                cfgs[-1].cluster = compose.load(site).cluster
    return cfgs


def place_engines(cfg: RunConfig, fixed: bool) -> None:
    """As many engines as fill the GPUs of a task, unless the user said how many.

    Raises UserError: they do not fit.
    """
    engine, gpus = cfg.engine, cfg.cluster.gpus
    if engines.kind(engine.name).in_process:
        raise UserError(f"{cfg.model.name}: a function runs in its own Python program, in no job")
    size = engine.tensor_parallel_size
    if not fixed:  # a number in a folder is that of another machine
        engine.replicas = AUTO
    if size != AUTO and gpus and not engines.kind(engine.name).served:
        used = scripts.replicas(cfg) * size
        if used > gpus or (used < gpus and not fixed):
            raise UserError(
                f"cluster.gpus={gpus}: {cfg.model.name} with engine.tensor_parallel_size={size} and"
                f" engine.replicas={scripts.replicas(cfg)} takes {used}; change one of the three"
            )
    judge = cfg.verifier.engine
    size, used = judge.tensor_parallel_size, scripts.judging(cfg)
    if gpus and used > gpus and cfg.verifier.id is not None:
        raise UserError(
            f"cluster.gpus={gpus}: verifier.engine.tensor_parallel_size={size} and"
            f" verifier.engine.replicas={judge.replicas} take {used}; change one of the three"
        )


def _check(runs: list[Run]) -> None:
    """Refuse what one submission cannot hold."""
    for key in ("cluster", "stages"):
        if any(getattr(run.cfg, key) != getattr(runs[0].cfg, key) for run in runs):
            raise UserError(f"{key}: must be the same for all runs of one submission")
    places = [*map(scripts.absolute, runs)]
    if len({*places}) < len(places):
        path = max(places, key=places.count)
        raise UserError(f"{path}: two of these runs share this folder; tell them apart by tag=")


def _planned(runs: list[Run], race: Path | None = None, open_: int = 0) -> Submission:
    """What is pending, and the name of the submission's folder."""
    pending = runs[:open_] if race else [run for run in runs if _is_pending(run)]
    unscored = [run for run in runs if run in pending or not _scored(run)]
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    place = Path(os.path.commonpath([scripts.absolute(run) for run in runs]))
    folder = place / jobs.FOLDER / f"{stamp}-{secrets.token_hex(2)}"
    return Submission(runs, pending, unscored, place / "_report", folder, race)


def _is_pending(run: Run) -> bool:
    """Whether `generate` has something to do."""
    if not (run.path / "questions.parquet").exists():  # only without --dry-run it is there
        return True
    raised = runfolder.raised(run, runfolder.identity(run.cfg))  # so only with --dry-run
    return bool(raised or runfolder.pending(run) or runfolder.missing_prompt_logprobs(run))


def _scored(run: Run) -> bool:
    """Whether `score` has seen every attempt, its outcome decided by whom it is to be."""
    scores = runfolder.read_json(run.path / "scores.json")
    by = scores.get("judge", {}).get("by")
    return scores.get("attempts") == len(run.keys) and by == graded.judge_settings(run)


def _name_earlier(runs: list[Run]) -> None:
    """Say which jobs of earlier submissions are still there: no harm, but good to know."""
    for path, queued in jobs.jobs_of([scripts.absolute(run) for run in runs]).items():
        ids = sorted({job.id.partition("_")[0] or job.state for job in queued})
        if ids:
            note(f"{path}: jobs {', '.join(ids)} are still there; all workers share the work")


def _show_scripts(submission: Submission) -> None:
    ids: dict[str, str] = {}
    for kind in submission.kinds:
        results.print(f"# ---- {shlex.join(_command(submission, kind, ids))}")
        results.print(scripts.render(submission, kind))
        ids[kind] = f"ID_OF_{kind.upper()}"
    runs = plural(len(submission.runs), "run")
    note(f"{runs}; nothing was written or submitted: {', '.join(ids)}")


def _command(submission: Submission, kind: str, ids: dict[str, str]) -> list[str]:
    """What submits a job after the latest of those before it, whose ids are given by kind."""
    command = ["sbatch", "--parsable", f"--chdir={submission.folder}"]
    if ids:
        # Task by task where both are arrays over the same runs. The others find out themselves what
        # they can do, so that one failing run, or a verifier, does not cancel the rest.
        before, number = list(ids.items())[-1]
        by_task = kind in ("verify", "score") and before == "grade"
        command.append(f"--dependency={'aftercorr' if by_task else 'afterany'}:{number}")
    return [*command, str(submission.folder / f"{kind}.sbatch")]


def _submit(submission: Submission, settings: list[str]) -> None:
    """Write the scripts and submit them one by one; what was submitted is always on record."""
    record: dict[str, Any] = {
        "id": submission.folder.name,
        "arguments": settings,
        "cwd": os.getcwd(),
        "python": sys.executable,
        "made_with": describe(),
        "runs": [str(scripts.absolute(run)) for run in submission.runs],
        "jobs": {},
    }
    submission.folder.mkdir(parents=True)
    for kind in submission.kinds:
        (submission.folder / f"{kind}.sbatch").write_text(scripts.render(submission, kind))
    try:
        _queue(submission, record)
    finally:
        _point(submission, record)
    _show_jobs(submission, record)


def _queue(submission: Submission, record: dict[str, Any]) -> None:
    """sbatch every script, each after the one before."""
    for kind in submission.kinds:
        ids = {before: job["id"] for before, job in record["jobs"].items()}
        try:
            number = ask(*_command(submission, kind, ids)).strip().split(";")[0]
            record["jobs"][kind] = {"id": number, "tasks": submission.tasks(kind)}
        except UserError as error:
            record["error"] = f"{kind}: {error}"
            numbers = " ".join(ids.values())
            queued = f"queued before that and going on: {numbers} (scancel {numbers} ends them)"
            raise UserError(
                f"{error}; {queued if ids else 'nothing was queued'}. The same command submits what"
                f" is pending; scripts are in {submission.folder}"
            ) from error
        finally:
            runfolder.write_json(submission.folder / "submission.json", record)


def _point(submission: Submission, record: dict[str, Any]) -> None:
    """Leave in each run's folder where its jobs are."""
    found: dict[Path, dict[str, Any]] = {run.path: {} for run in submission.runs}
    for kind, job in record["jobs"].items():
        groups = submission.groups(kind)
        for number, group in enumerate(groups):
            tasks = [*range(number, job["tasks"], len(groups))] or None  # None: it is no array
            for run in group:
                found[run.path][kind] = {"id": job["id"], "tasks": tasks}
    for run in submission.runs:
        place, name = run.path / jobs.FOLDER, submission.folder.name
        place.mkdir(exist_ok=True)
        pointer = {"folder": str(submission.folder), "jobs": found[run.path]}
        runfolder.write_json(place / f"{name}.json", pointer)
        atomic.write_text(place / f"{name}.yaml", dump(run.cfg))


def _show_jobs(submission: Submission, record: dict[str, Any]) -> None:
    heads = [*columns(align="left", job="job", id="id"), *columns(runs="runs", tasks="tasks")]
    rows = [
        {"job": kind, "id": job["id"], "runs": len(submission.of(kind)), "tasks": job["tasks"] or 1}
        for kind, job in record["jobs"].items()
    ]
    print_json({"jobs": rows, "folder": str(submission.folder)})
    show(Table(f"submitted: {plural(len(submission.runs), 'run')}", heads, rows))
    note(f"scripts and output: {submission.folder}")
    note(f"report, at the end: {submission.out / 'index.html'}")
    note(f"where it stands: {PROGRAM} status RUN_FOLDER, or squeue --me")
