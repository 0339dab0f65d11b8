"""The batch scripts of a submission, rendered from `slurm/array.sbatch`."""

import os
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from bayes_at_n.pipeline.base import program
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.config import compose, resources
from bayes_at_n.pipeline.config.checks import AUTO
from bayes_at_n.pipeline.config.settings import RunConfig, verifier_engine
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
