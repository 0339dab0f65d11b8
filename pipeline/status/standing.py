"""Where runs stand: what is done and owed, who works on it, what it costs and when it is done."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from bayes_at_n.pipeline.cluster.jobs import UNKNOWN, Job
from bayes_at_n.pipeline.prepare import raised_cap
from bayes_at_n.pipeline.status.tally import RunningScore, Tally
from bayes_at_n.pipeline.store import sessions
from bayes_at_n.pipeline.store.outcomes import price
from bayes_at_n.pipeline.workers import spent
from bayes_at_n.pipeline.workers.records import Worker, workers

_SUMMED = ("done", "total", "in_flight", "tokens", "tokens_per_s", "rate", "gpu_h")
_RECENT_S = 1800  # the rate is that of the latest attempts, none from days ago


@dataclass(frozen=True)
class RunStanding:
    """The figures of one run at one moment, or of several added up."""

    name: str
    path: str
    model: str = ""
    dataset: str = ""
    done: int = 0
    total: int = 0
    ungraded: int = 0  # attempts that are there without an outcome
    stale: str = ""  # why grades do not count
    continues: str = ""  # of attempts: truncated ones that go on, suspect ones; in words
    in_flight: int = 0
    tokens: int = 0  # sampled, of the attempts that are there
    truncated: float = 0.0  # share of these attempts
    tokens_per_s: float = 0.0
    rate: float = 0.0  # attempts a second, of workers that are alive
    gpu_h: float = 0.0
    gpu_h_left: float | None = 0.0  # at the GPU time of an attempt so far; None: not known
    price: float | None = None  # of the attempts that are there; None: none set, or not known
    price_total: float | None = None  # of all, if those owed are as long; None: not known
    workers: list[Worker] = field(default_factory=list)
    score: RunningScore | None = None
    jobs: list[Job] = field(default_factory=list)  # of Slurm
    budget: dict[str, Any] = field(default_factory=dict)  # as of `workers.spent.account`
    fault: str | None = None  # why there are no figures

    @property
    def owed(self) -> int:
        return self.total - self.done

    @property
    def alive(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.alive]

    @property
    def dead(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.state == "dead"]

    @property
    def left_s(self) -> float | None:
        """Seconds until all is done, at the latest rate; None while nobody finishes anything.

        Runs end together if the workers of one go on to the next.
        """
        if not self.owed:
            return 0.0
        return self.owed / self.rate if self.rate else None

    @property
    def over(self) -> bool:
        """Whether nothing will change any more."""
        return self.fault is None and not (self.owed or self.alive)


def of(name: str, tally: Tally, jobs: list[Job]) -> RunStanding:
    """The figures of a run from what was read of it, without its score.

    Raises OSError: when a folder is there and cannot be read.
    """
    run, done, everyone = tally.run, tally.done, workers(tally.run.path)
    owed = int((~done).sum())
    alive = [worker for worker in everyone if worker.alive]
    attempts = sum(worker.attempts for worker in everyone)
    gpu_h = sum(worker.gpu_s for worker in everyone) / 3600
    gpu_h_left = owed * gpu_h / attempts if attempts and gpu_h else None
    price = _price(tally)
    continues = raised_cap.described(run.cfg, tally.tokens[tally.short].tolist())
    return RunStanding(
        name=name,
        path=str(run.path),
        model=run.cfg.model.name,
        dataset=run.cfg.dataset.name,
        done=done.size - owed,
        total=done.size,
        ungraded=int((done & ~tally.graded).sum()),
        stale=tally.stale,
        continues="; ".join(filter(None, (continues, sessions.suspects(run)))),
        in_flight=min(sum(worker.in_flight for worker in alive), owed),
        tokens=int(tally.tokens.sum()),
        truncated=float(tally.truncated[done].mean()) if done.any() else 0.0,
        tokens_per_s=sum(worker.tokens_per_s for worker in alive),
        rate=_rate(tally, alive),
        gpu_h=gpu_h,
        gpu_h_left=gpu_h_left if owed else 0.0,
        price=price,
        price_total=None if price is None or not done.any() else price * done.size / done.sum(),
        workers=everyone,
        jobs=jobs,
        budget=spent.account(run.cfg, spent.spent([run])) if run.cfg.budget.given else {},
    )


def _price(tally: Tally) -> float | None:
    """What the attempts that are there cost; None where some do not say their tokens."""
    prompts, completions = tally.prompt[tally.done], tally.tokens[tally.done]
    if not (prompts.all() and completions.all()):  # both are at least 1 where they are known
        return None
    return price(tally.run.cfg.engine, int(prompts.sum()), int(completions.sum()))


def _rate(tally: Tally, alive: Iterable[Worker]) -> float:
    """Attempts a second of the workers that are alive, each over its own part of the last while."""
    now = max(time.time(), float(tally.finished.max(initial=0.0)))  # nodes' clocks may be ahead
    rate = 0.0
    for worker in alive:
        times = tally.finish_times(worker.name)
        times = times[times > now - _RECENT_S]
        if times.size:
            began = (worker.updated or now) - worker.wall_s if worker.wall_s else times.min()
            seconds = now - max(now - _RECENT_S, min(began, times.min()))
            rate += times.size / max(seconds, 1.0)
    return rate


def added(standings: Sequence[RunStanding]) -> RunStanding:
    """Several runs as one, without a score; a lone one as it is."""
    if len(standings) == 1:
        return standings[0]
    return RunStanding(
        f"{len(standings)} runs",
        "",
        **{name: sum(getattr(s, name) for s in standings) for name in _SUMMED},
        gpu_h_left=_sum("gpu_h_left", standings),
        price=_sum("price", standings),
        price_total=_sum("price_total", standings),
        workers=[worker for s in standings for worker in s.workers],
        fault=standings[0].fault if all(s.fault is not None for s in standings) else None,
    )


def _sum(name: str, standings: Iterable[RunStanding]) -> float | None:
    """None where some run that has figures lacks this one."""
    parts = [getattr(s, name) for s in standings if s.fault is None]
    return sum(parts) if parts and None not in parts else None


def as_json(standing: RunStanding) -> dict[str, Any]:
    """A standing as plain JSON values."""
    s, plain = standing, ("model", "dataset", "done", "total", "owed", "in_flight")
    return {
        "run": s.path,
        **{name: getattr(s, name) for name in plain},
        "workers_alive": len(s.alive),
        "workers_dead": len(s.dead),
        "tokens": s.tokens,
        "truncated": s.truncated,
        "tokens_per_s": round(s.tokens_per_s, 1),
        "seconds_left": None if s.left_s is None else round(s.left_s),
        "gpu_hours": round(s.gpu_h, 4),
        "gpu_hours_left": None if s.gpu_h_left is None else round(s.gpu_h_left, 4),
        **({} if s.price is None else {"price": s.price, "price_total": s.price_total}),
        **({"budget": s.budget} if s.budget else {}),
        "score": None if s.score is None else s.score._asdict(),
        "workers": [asdict(worker) for worker in s.workers],
        "jobs": [asdict(job) for job in s.jobs],
        "fault": s.fault,
    }


def by_state(standings: Iterable[RunStanding]) -> str:
    """How many Slurm jobs are in which state, each job once; or why nobody knows.

    >>> job = Job("generate", "7_0", "RUNNING", "n1", "", "")
    >>> by_state([RunStanding("a", "runs/a", jobs=[job])])
    '1 running'
    """
    jobs = {job.id: job for s in standings for job in s.jobs}
    if lost := [job.reason for job in jobs.values() if job.state == UNKNOWN]:
        return lost[0]
    counts = Counter(job.state.lower() for job in jobs.values())
    return ", ".join(f"{number} {state}" for state, number in counts.most_common())
