"""The progress of runs: what is done and pending, its workers, its cost and the time left."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bayes_at_n.pipeline.cluster.jobs import UNKNOWN, Job
from bayes_at_n.pipeline.prepare import raised_cap
from bayes_at_n.pipeline.status.counts import Counts, RunningScore
from bayes_at_n.pipeline.store import sessions
from bayes_at_n.pipeline.store.outcomes import price
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.records import Worker, workers

_SUMMED = ["done", "total", "pending", "in_flight", "workers_alive", "workers_dead", "tokens"]
_SUMMED += ["tokens_per_s", "gpu_hours", "attempts_per_s", "ungraded"]
_RECENT_S = 1800  # the rate is that of the latest attempts, none from days ago


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The figures of one run at one moment, or of several added up; with --json its fields."""

    run: str = ""  # its folder
    model: str = ""
    dataset: str = ""
    done: int = 0
    total: int = 0
    pending: int = 0
    in_flight: int = 0
    workers_alive: int = 0
    workers_dead: int = 0
    tokens: int = 0  # sampled, of the attempts that are there
    truncated: float = 0.0  # share of these attempts
    tokens_per_s: float = 0.0
    # Until all is done, at the latest rate; None while nobody finishes anything. Several runs end
    # together if the workers of one go on to the next.
    seconds_left: float | None = 0
    gpu_hours: float = 0.0
    gpu_hours_left: float | None = 0.0  # at the GPU time of an attempt so far; None: not known
    price: float | None = None  # of the attempts that are there; None: none set, or not known
    price_total: float | None = None  # of all, if those pending are as long; None: not known
    budget: dict[str, Any] = field(default_factory=dict)  # as of `workers.spent.account`
    score: RunningScore | None = None
    workers: list[Worker] = field(default_factory=list)
    jobs: list[Job] = field(default_factory=list)  # of Slurm
    fault: str | None = None  # why there are no figures
    name: str = ""  # that tells it from others
    ungraded: int = 0  # attempts that are there without an outcome
    stale: str = ""  # why grades do not count
    continues: str = ""  # of attempts: truncated ones that go on, suspect ones; in words
    attempts_per_s: float = 0.0  # of workers that are alive

    @property
    def over(self) -> bool:
        """Say whether nothing will change any more."""
        return self.fault is None and not (self.pending or self.workers_alive)

    def record(self) -> dict[str, Any]:
        """Return it as plain JSON values; without price and budget where there is none."""
        absent = {"price", "price_total"} if self.price is None else set()
        absent |= set() if self.budget else {"budget"}
        return {key: value for key, value in asdict(self).items() if key not in absent}


def progress_of(
    name: str, counts: Counts, jobs: list[Job], score: RunningScore | None = None
) -> Progress:
    """Make the figures of a run from what was read of it.

    Raises OSError: when a folder is there and cannot be read.
    """
    run, done, everyone = counts.run, counts.done, workers(counts.run.path)
    pending, alive = int((~done).sum()), [worker for worker in everyone if worker.alive]
    attempts = sum(worker.attempts for worker in everyone)
    gpu_hours = sum(worker.gpu_s for worker in everyone) / 3600
    gpu_hours_left = pending * gpu_hours / attempts if attempts and gpu_hours else None
    paid, rate = _price(counts), _rate(counts, alive)
    continues = raised_cap.described(run.cfg, counts.tokens[counts.short].tolist())
    return Progress(
        name=name,
        run=str(run.path),
        model=run.cfg.model.name,
        dataset=run.cfg.dataset.name,
        done=done.size - pending,
        total=done.size,
        pending=pending,
        in_flight=min(sum(worker.in_flight for worker in alive), pending),
        workers_alive=len(alive),
        workers_dead=sum(worker.state == "dead" for worker in everyone),
        tokens=int(counts.tokens.sum()),
        truncated=float(counts.truncated[done].mean()) if done.any() else 0.0,
        tokens_per_s=round(sum(worker.tokens_per_s for worker in alive), 1),
        seconds_left=_seconds(pending, rate),
        gpu_hours=round(gpu_hours, 4),
        gpu_hours_left=gpu_hours_left and round(gpu_hours_left, 4) if pending else 0.0,
        price=paid,
        price_total=None if paid is None or not done.any() else paid * done.size / done.sum(),
        budget=spent.account(run.cfg, spent.spent([run])) if run.cfg.budget.given else {},
        score=score,
        workers=everyone,
        jobs=jobs,
        ungraded=int((done & ~counts.graded).sum()),
        stale=counts.stale,
        continues="; ".join(filter(None, (continues, sessions.suspects(run)))),
        attempts_per_s=rate,
    )


def _seconds(pending: int, rate: float) -> float | None:
    return 0 if not pending else round(pending / rate) if rate else None


def _price(counts: Counts) -> float | None:
    """Price the attempts that are there; None where some do not say their tokens."""
    prompts, completions = counts.prompt[counts.done], counts.tokens[counts.done]
    if not (prompts.all() and completions.all()):  # both are at least 1 where they are known
        return None
    return price(counts.run.cfg.engine, int(prompts.sum()), int(completions.sum()))


def _rate(counts: Counts, alive: Iterable[Worker]) -> float:
    """Return attempts a second of workers that are alive, each over its part of the last while."""
    latest = max((float(times.max(initial=0.0)) for times in counts.finished.values()), default=0.0)
    now, rate = max(time.time(), latest), 0.0  # nodes' clocks may be ahead
    for worker in alive:
        times = counts.finished.get(worker.name)
        if times is not None and (times := times[times > now - _RECENT_S]).size:
            began = (worker.updated or now) - worker.wall_s if worker.wall_s else times.min()
            seconds = now - max(now - _RECENT_S, min(began, times.min()))
            rate += times.size / max(seconds, 1.0)
    return rate


def added(runs: Sequence[Progress]) -> Progress:
    """Add up several runs, without a score; a lone one stays as it is."""
    if len(runs) == 1:
        return runs[0]
    sums = {name: sum(getattr(run, name) for run in runs) for name in _SUMMED}
    return Progress(
        name=f"{len(runs)} runs",
        **sums,
        seconds_left=_seconds(sums["pending"], sums["attempts_per_s"]),
        **{name: _sum(name, runs) for name in ("gpu_hours_left", "price", "price_total")},
        fault=runs[0].fault if all(run.fault is not None for run in runs) else None,
    )


def _sum(name: str, runs: Iterable[Progress]) -> Any:
    """Add up a figure; None where some run that has figures lacks this one."""
    parts = [getattr(run, name) for run in runs if run.fault is None]
    return sum(parts) if parts and None not in parts else None


def by_state(runs: Iterable[Progress]) -> str:
    """Count Slurm jobs by state, each job once; or say why nobody knows.

    >>> job = Job("generate", "7_0", "RUNNING", "n1", "", "")
    >>> by_state([Progress(jobs=[job])])
    '1 running'
    """
    jobs = {job.id: job for run in runs for job in run.jobs}
    if lost := [job.reason for job in jobs.values() if job.state == UNKNOWN]:
        return lost[0]
    counts = Counter(job.state.lower() for job in jobs.values())
    return ", ".join(f"{number} {state}" for state, number in counts.most_common())
