"""submit: queue an array of workers for any number of runs, and the jobs that follow it.

    runs/_slurm/20261121T220102-3f9a/     a submission: scripts, submission.json, output

A submission goes to the common parent folder of its runs; with a single run, to its own folder.
Scripts are rendered from `slurm/array.sbatch`.
"""

import os
import secrets
import shlex
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.console import note, plural, results
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM, ROOT, describe
from bayes_at_n.pipeline.config import compose, resources
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_engine
from bayes_at_n.pipeline.display.table import Table, columns, print_json, show
from bayes_at_n.pipeline.prepare import estimate, questions_table, stage
from bayes_at_n.pipeline.store import outcomes, provenance, runfolder, selection
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.resident import by_engine

TEMPLATE = ROOT / "slurm" / "array.sbatch"
STARTS = 3  # in a row without progress, after which a task ends for good
KINDS = ("settle", "generate", "grade", "verify", "score", "report")
_LATER = ("categorize", "score")  # stages of the score job
_EARLY_S = 90  # Slurm's warnings may come up to a minute early
_HUNG_S = 120  # what is left of a job's time when its step is killed


@dataclass(frozen=True)
class Submission:
    """The runs and jobs of one submission."""

    runs: list[Run]  # all of them, for the report
    pending: list[Run]  # to generate, by an array of workers × groups
    unscored: list[Run]  # to grade, verify and score; includes `pending`
    out: Path  # folder of the report
    folder: Path  # of the submission
    race: Path | None = None  # folder of `settle`, whose tasks sample what is still open

    def groups(self, kind: str) -> list[list[Run]]:
        """Return the runs of a job, grouped by task; `generate` groups by engine."""
        if kind == "generate":
            return [[*map(Run, cfgs)] for cfgs in by_engine([run.cfg for run in self.pending])]
        together = {"settle": self.pending, "report": self.runs}.get(kind)
        return [together] if together else [[run] for run in self.unscored]

    def of(self, kind: str) -> list[Run]:
        """Return the runs of a job."""
        return [run for group in self.groups(kind) for run in group]

    def tasks(self, kind: str) -> int:
        """Return the number of tasks of a job's array; 0: no array."""
        workers = self.runs[0].cfg.cluster.workers
        factor = {"settle": workers, "generate": workers, "report": 0}.get(kind, 1)
        return factor * len(self.pending if kind == "settle" else self.groups(kind))

    @property
    def kinds(self) -> list[str]:
        """Return the jobs that are needed, in order: those of `stages` with something to do."""
        stages = set(self.runs[0].cfg.stages)
        needed = {
            "settle": self.race is not None and bool(self.pending),
            "generate": self.race is None and "generate" in stages and bool(self.pending),
            "grade": "grade" in stages,
            "verify": "verify" in stages and any(r.cfg.verifier.id for r in self.unscored),
            "score": bool(stages.intersection(_LATER)),
            "report": "score" in stages,
        }
        return [kind for kind in KINDS if needed[kind] and self.unscored]


def render(submission: Submission, kind: str) -> str:
    """Return the sbatch script of one job."""
    cluster, groups = submission.runs[0].cfg.cluster, submission.groups(kind)
    environment = Environment(
        loader=FileSystemLoader(TEMPLATE.parent),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # bash has ${#name[@]}
    )
    environment.filters["quote"] = shlex.quote
    return environment.get_template(TEMPLATE.name).render(
        kind=kind,
        tasks=submission.tasks(kind),
        groups=[(replicas(group[0].cfg), [*map(absolute, group)]) for group in groups],
        stages=[stage for stage in _LATER if stage in submission.runs[0].cfg.stages],
        race=str(submission.race and os.path.abspath(submission.race)),
        out=compose.quoted(str(submission.out)),
        folder=str(submission.folder),
        cwd=os.getcwd(),
        python=sys.executable,
        cluster=cluster,
        starts=STARTS,
        **_resources(submission, kind),
    )


def replicas(cfg: RunConfig) -> Any:
    """Return `engine.replicas` of a task: the number set, or as many as fit on its GPUs.

    AUTO if the GPUs per replica depend on the GPUs' memory, which only the task knows.
    """
    engine = cfg.engine
    if engine.replicas != AUTO:
        return engine.replicas
    if program.kind(engine.name).served:
        return 1
    size = engine.tensor_parallel_size
    return AUTO if size == AUTO else max(1, cfg.cluster.gpus // size)


def judging(cfg: RunConfig) -> int:
    """Return the GPUs of a verify task: those of one verifier, or of the replicas set."""
    judge = cfg.verifier.engine
    return int(judge.tensor_parallel_size * (1 if judge.replicas == AUTO else judge.replicas))


def _on_gpus(cfg: RunConfig, kind: str) -> bool:
    """Return whether a job runs a model itself, not on a server."""
    judge = verifier_engine(cfg)
    engine = {"settle": cfg.engine, "generate": cfg.engine, "verify": judge}.get(kind)
    return engine is not None and not program.kind(engine.name).served


def _resources(submission: Submission, kind: str) -> dict[str, Any]:
    """Return the resources of a job; a verify job gets its GPUs' share of CPUs and memory.

    If a server has the model, it is a job without GPUs.
    """
    cluster = submission.runs[0].cfg.cluster
    with_gpus = any(_on_gpus(run.cfg, kind) for run in submission.of(kind))
    job = cluster if with_gpus else cluster.cpu_jobs
    size = max((judging(run.cfg) for run in submission.of(kind)), default=1)
    parts = max(1, cluster.gpus // size) if kind == "verify" and with_gpus else 1
    warn_s = cluster.warn_s if kind in ("settle", "generate") else 0
    limit = resources.seconds(job.time or "") or 0
    hung = min(_HUNG_S, warn_s // 2) or _HUNG_S
    return {
        "partition": job.partition,
        "qos": cluster.qos if with_gpus else None,
        "cpus": max(1, job.cpus // parts),
        "memory": resources.share(job.memory, parts) if job.memory and parts > 1 else job.memory,
        "gpus": cluster.gpus // parts if with_gpus else 0,
        "max_running": cluster.max_running if with_gpus else None,
        "warn_s": warn_s,
        "options": job.options,
        "time": job.time,
        # A stop before that time cannot be due to the time limit.
        "usable_s": max(1, limit - max(warn_s, hung) - _EARLY_S) if limit else None,
        "step_minutes": (limit - hung) // 60 if limit > 10 * hung else None,
    }


def absolute(run: Run) -> Path:
    """Return the absolute path of a run."""
    return Path(os.path.abspath(run.path))


def submit(settings: list[str], dry_run: bool = False) -> None:
    """Queue the pending work of runs on Slurm: generate, grade, verify, score, report.

    Args:
        settings: those of `run`, where several values make several runs; or run folders, or folders
            of runs, with settings to change.
        dry_run: print the scripts and write nothing.

    Raises UserError: a setting or a run is not valid, or Slurm failed; jobs queued before are
    listed.
    """
    queue([Run(cfg) for cfg in _configurations(settings)], settings, dry_run)


def queue(
    runs: list[Run], settings: list[str], dry_run: bool, race: Path | None = None, open_: int = 0
) -> None:
    """Queue the pending work of runs.

    Args:
        runs: the runs; in a race the open ones first.
        settings: as typed, for the record.
        dry_run: print the scripts and write nothing.
        race: folder of `settle`, if its open models are to be sampled until it is decided.
        open_: number of open runs of the race.

    Raises UserError: see `submit`.
    """
    if not dry_run and shutil.which("sbatch") is None:
        query("sbatch")  # raises with the remedy
    _check(runs)
    hardware, estimates = estimate.cluster_hardware(runs[0].cfg.cluster), {}
    for run in runs:
        if dry_run or (race and (run.path / "questions.parquet").exists()):
            built = questions_table.build(run)
            runfolder.check_same(run, built.identity, raising=True)
            if dry_run:
                estimates[str(run.path)] = estimate.estimate(run, built.rows(), hardware)
        else:
            stage.prepare(run)
    submission = _planned(runs, race, open_)
    if not submission.kinds:
        more = "another until= continues" if race else "sampling.trials=N adds trials"
        note(f"nothing to submit: {plural(len(runs), 'run')} complete ({more})")
        return
    if dry_run:
        _show_scripts(submission)
        for line in estimate.summary(estimates, hardware):
            results.print(line)
    else:
        _submit(submission, settings)


def _configurations(settings: list[str]) -> list[RunConfig]:
    """Return the configuration of every selected run, with the engines of a task."""
    folders, others = compose.folders_of(settings)
    [others] = compose.split(others, RunConfig)
    if folders:
        cfgs = _from_folders(folders, others)
    else:
        cfgs = [compose.load(combination) for combination in compose.expand(others)]
    for cfg in cfgs:
        place_engines(cfg, fixed=any(one.startswith("engine.replicas=") for one in others))
    return cfgs


def _from_folders(folders: list[str], settings: list[str]) -> list[RunConfig]:
    """Return the configurations of the runs in folders, with changed settings.

    A setting `cluster=NAME` replaces all cluster settings of a folder.
    """
    site = []
    if any(setting.startswith("cluster=") for setting in settings):
        site = [setting for setting in settings if setting.startswith(("cluster=", "cluster."))]
    others = [setting for setting in settings if setting not in site]
    cfgs = []
    for folder in map(Path, folders):
        if folder.name.startswith("_") and len(folders) > 1:
            continue  # results, included by a shell's runs/DATASET/*
        for run in selection.runs_in(folder):
            cfgs.append(load_folder(run, others, "run prepare" if site else "submit"))
            if site:
                cfgs[-1].cluster = compose.load(site).cluster
    return cfgs


def place_engines(cfg: RunConfig, fixed: bool) -> None:
    """Set `engine.replicas` to fill the GPUs of a task, unless it is `fixed` by the user.

    Raises UserError: the engines do not match the GPUs.
    """
    engine, gpus = cfg.engine, cfg.cluster.gpus
    if program.kind(engine.name).in_process:
        raise UserError(f"{cfg.model.name}: a function runs in its Python program, not in jobs")
    size = engine.tensor_parallel_size
    if not fixed:  # a number stored in a folder is of another machine
        engine.replicas = AUTO
    if size != AUTO and gpus and not program.kind(engine.name).served:
        used = replicas(cfg) * size
        if used > gpus or (used < gpus and not fixed):
            raise UserError(
                f"cluster.gpus={gpus}: {cfg.model.name} with engine.tensor_parallel_size={size} and"
                f" engine.replicas={replicas(cfg)} uses {used}; change one of the three"
            )
    judge = cfg.verifier.engine
    size, used = judge.tensor_parallel_size, judging(cfg)
    if gpus and used > gpus and cfg.verifier.id is not None:
        raise UserError(
            f"cluster.gpus={gpus}: verifier.engine.tensor_parallel_size={size} and"
            f" verifier.engine.replicas={judge.replicas} use {used}; change one of the three"
        )


def query(*command: str, timeout_s: float = 60) -> str:
    """Run a client command of Slurm with a time limit; return its standard output.

    Raises UserError: it is not installed, failed or did not answer; with its message.
    """
    # Variables of the job that this process may run in are not meant for a new one.
    outside = {k: v for k, v in os.environ.items() if k[:6] != "SLURM_" or k == "SLURM_CONF"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=timeout_s, env=outside, check=False
        )
    except FileNotFoundError:
        remedy = "submit on a node with Slurm's clients (a login node), or use --dry-run"
        raise UserError(f"{command[0]}: no such command; {remedy}") from None
    except subprocess.TimeoutExpired:
        remedy = "is Slurm's controller up? (scontrol ping)"
        raise UserError(f"{command[0]} did not answer within {timeout_s:.0f} s; {remedy}") from None
    if done.returncode:
        reason = " ".join(done.stderr.split()) or f"exit status {done.returncode}"
        raise UserError(f"{command[0]} failed: {reason[:400]}")
    return done.stdout


def _check(runs: list[Run]) -> None:
    """Raise UserError if runs cannot be in one submission."""
    for key in ("cluster", "stages"):
        if any(getattr(run.cfg, key) != getattr(runs[0].cfg, key) for run in runs):
            raise UserError(f"{key}: must be the same for all runs of one submission")
    paths = [*map(absolute, runs)]
    if len({*paths}) < len(paths):
        path = max(paths, key=paths.count)
        raise UserError(f"{path}: two of these runs share this folder; give one a tag=NAME")


def _planned(runs: list[Run], race: Path | None = None, open_: int = 0) -> Submission:
    """Return the submission of what is pending, with the name of its folder."""
    pending = runs[:open_] if race else [run for run in runs if _is_pending(run)]
    unscored = [run for run in runs if run in pending or not _scored(run)]
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    root = Path(os.path.commonpath([absolute(run) for run in runs]))
    folder = root / "_slurm" / f"{stamp}-{secrets.token_hex(2)}"
    return Submission(runs, pending, unscored, root / "_report", folder, race)


def _is_pending(run: Run) -> bool:
    """Return whether `generate` has something to do."""
    if not (run.path / "questions.parquet").exists():  # possible with --dry-run only
        return True
    raised = runfolder.raised(run, provenance.identity(run.cfg))  # with --dry-run only
    return bool(raised or runfolder.pending(run) or runfolder.missing_prompt_logprobs(run))


def _scored(run: Run) -> bool:
    """Return whether every attempt is scored, with outcomes by the present grader or verifier."""
    scores = runfolder.read_json(run.path / "scores.json")
    by = scores.get("judge", {}).get("by")
    return scores.get("attempts") == len(run.keys) and by == outcomes.judge_settings(run)


def _show_scripts(submission: Submission) -> None:
    ids: dict[str, str] = {}
    for kind in submission.kinds:
        results.print(f"# ---- {shlex.join(_command(submission, kind, ids))}")
        results.print(render(submission, kind))
        ids[kind] = f"ID_OF_{kind.upper()}"
    runs = plural(len(submission.runs), "run")
    note(f"{runs}; nothing was written or submitted: {', '.join(ids)}")


def _command(submission: Submission, kind: str, ids: dict[str, str]) -> list[str]:
    """Return the command that submits a job after the last of `ids`, the earlier jobs by kind."""
    command = ["sbatch", "--parsable", f"--chdir={submission.folder}"]
    if ids:
        # Task by task if both are arrays over the same runs. Other jobs start in any case and do
        # what they can, so that one failing run, or a verifier, does not cancel the rest.
        before, number = list(ids.items())[-1]
        by_task = kind in ("verify", "score") and before == "grade"
        command.append(f"--dependency={'aftercorr' if by_task else 'afterany'}:{number}")
    return [*command, str(submission.folder / f"{kind}.sbatch")]


def _submit(submission: Submission, settings: list[str]) -> None:
    """Write the scripts and submit them one by one; every submitted job is recorded."""
    record: dict[str, Any] = {
        "id": submission.folder.name,
        "arguments": settings,
        "cwd": os.getcwd(),
        "python": sys.executable,
        "made_with": describe(),
        "runs": [str(absolute(run)) for run in submission.runs],
        "jobs": {},
    }
    submission.folder.mkdir(parents=True)
    for kind in submission.kinds:
        (submission.folder / f"{kind}.sbatch").write_text(render(submission, kind))
    _queue(submission, record)
    _show_jobs(submission, record)


def _queue(submission: Submission, record: dict[str, Any]) -> None:
    """Submit every script, each to start after the one before."""
    for kind in submission.kinds:
        ids = {before: job["id"] for before, job in record["jobs"].items()}
        try:
            number = query(*_command(submission, kind, ids)).strip().split(";")[0]
            record["jobs"][kind] = {"id": number, "tasks": submission.tasks(kind)}
        except UserError as error:
            record["error"] = f"{kind}: {error}"
            numbers = " ".join(ids.values())
            queued = f"jobs queued before that continue: {numbers} (scancel {numbers} ends them)"
            raise UserError(
                f"{error}; {queued if ids else 'nothing was queued'}. The same command submits what"
                f" is pending; scripts are in {submission.folder}"
            ) from error
        finally:
            runfolder.write_json(submission.folder / "submission.json", record)


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
    note(f"progress: {PROGRAM} status RUN_FOLDER; jobs: squeue --me")
