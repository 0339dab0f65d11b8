"""Overspend of a token budget: the project's own stopping rule on simulated workers and lengths.

    python -m benchmarks.budget                   12 runs of each, four minutes
    python -m benchmarks.budget --runs 100

Workers are the project's `Allowance`, each with so many places; engine, clock and run folder are
simulated. What a worker says reaches the others when it is written, every five seconds and at its
looks. Lengths are log-normal and cut at a limit; questions differ, too (half of the variance of the
logarithm). The limit is four times the mean of the usual ones and nine times that of the heavy
ones, whose coefficient of variation is 1.4.

  worst     of all runs the largest overspend, of the budget
  over 1 %  runs that spent over 1 % more than it
  mean      the same of all runs; below zero: left of it
  longer    what the run took more than the same attempts with all places filled to the last: near
            the end of a budget fewer attempts are under way at once
"""

import contextlib
import heapq
import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.config.resources import BudgetConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.generate import budget
from bayes_at_n.pipeline.generate.budget import MOST, Allowance
from bayes_at_n.pipeline.generate.record import SAVE_S
from bayes_at_n.pipeline.store import sessions
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import spent
from benchmarks import common

LIMIT, QUESTIONS = 2048, 30
TOKEN_S, STEP_S = 0.1, 0.5
SHAPES = {"usual": (400.0, 0.7), "heavy": (120.0, 1.2)}  # median, sigma of the logarithm
CASES = [  # attempts that the budget is for, workers, places of each
    (512, 1, 256),
    (2400, 1, 256),
    (512, 8, 32),
    (2400, 8, 256),
    (2400, 16, 16),
]
NOTHING = spent.made(Run(RunConfig(run_dir="none")))  # is stored


def main() -> None:
    """Simulate and report."""
    parser = common.parser(__doc__)
    parser.add_argument("--runs", type=int, default=12, metavar="R", help="default %(default)s")
    args = parser.parse_args()
    rows: list[list[Any]] = []
    for shape, case in itertools.product(SHAPES, CASES):
        over, longer = np.array([simulate(shape, *case, seed) for seed in range(args.runs)]).T
        passed = f"{(over > MOST - 1).mean():.1%}"
        shares = [f"{over.max():+.2%}", passed, f"{over.mean():+.2%}", f"{longer.mean():.0%}"]
        rows.append([shape, *case, *shares])
    names = ["lengths", "attempts", "workers", "places", "worst", "over 1 %", "mean", "longer"]
    common.table(f"{args.runs} runs each", names, rows)
    common.finish(args, {"columns": names, "rows": rows})


def simulate(shape: str, attempts: int, number: int, places: int, seed: int) -> tuple[float, float]:
    """One run with a budget for so many attempts: what it spent more, and what it took longer."""
    clock, said = SimpleNamespace(now=1e6), dict[str, dict[str, Any]]()
    with contextlib.ExitStack() as stack:
        for place, name, value in (
            (budget, "time", SimpleNamespace(time=lambda: clock.now, monotonic=lambda: clock.now)),
            (sessions, "sessions", lambda folder: dict(said)),
            (sessions, "alive", lambda folder: set(said)),
            (spent, "made", lambda run: NOTHING),
            (lease, "held", lambda path, work: contextlib.nullcontext()),
        ):
            stack.enter_context(mock.patch.object(place, name, value))
        return _simulate(np.random.default_rng(seed), clock, said, shape, attempts, number, places)


def _simulate(
    rng: np.random.Generator,
    clock: Any,
    said: dict[str, dict[str, Any]],
    shape: str,
    attempts: int,
    number: int,
    places: int,
) -> tuple[float, float]:
    lengths, began = _lengths(rng, shape, 2 * attempts), clock.now
    limit = float(attempts * lengths.mean())
    everyone = [_Worker(f"w{i:02}", said, clock, limit) for i in range(number)]
    waiting, numbers = iter(enumerate(lengths.tolist())), itertools.count()
    events: list[Any] = [(clock.now, next(numbers), one, None) for one in everyone]
    free = [0.0] * (number * places)  # when each place would be, without a budget
    while events:
        clock.now, _, one, ended = heapq.heappop(events)
        if ended is not None:
            one.end(*ended)
        while len(one.allowance.flying) < places and one.allowance.may_begin(places):
            position, tokens = next(waiting)
            one.allowance.began(position)
            seconds = TOKEN_S * tokens * rng.uniform(0.9, 1.1)
            heapq.heapreplace(free, free[0] + seconds)
            event = (clock.now + seconds, next(numbers), one, (position, tokens, seconds))
            heapq.heappush(events, event)
        if ended is None and not one.left():
            heapq.heappush(events, (clock.now + STEP_S, next(numbers), one, None))
    taken = sum(one.record["completion_tokens"] for one in everyone)
    return taken / limit - 1, (clock.now - began) / max(free) - 1


def _lengths(rng: np.random.Generator, shape: str, attempts: int) -> npt.NDArray[np.int64]:
    median, sigma = SHAPES[shape]
    part = sigma / 2**0.5
    questions = np.tile(rng.normal(0.0, part, QUESTIONS), attempts // QUESTIONS + 1)[:attempts]
    lengths = median * np.exp(questions + rng.normal(0.0, part, attempts))
    return np.clip(lengths, 1, LIMIT).astype(np.int64)


class _Worker:
    """The session of a worker, in its own hands and as others find it, and its allowance."""

    def __init__(self, worker: str, said: dict[str, Any], clock: Any, limit: float) -> None:
        self.worker, self.said, self.clock, self.saved = worker, said, clock, 0.0
        self.began = clock.now
        self.record: dict[str, Any] = {"completion_tokens": 0, "gpus": 1, "started": clock.now}
        self.record |= {"state": "sampling", "ended": False}
        cfg = RunConfig(budget=BudgetConfig(tokens=limit))
        questions = [{"max_tokens": LIMIT, "prompt_token_ids": [1]}]
        nowhere = Path("none")
        of = {"cfg": cfg, "questions": questions, "path": nowhere, "attempts": nowhere / "attempts"}
        run: Any = SimpleNamespace(**of, manifest=nowhere / "manifest.json")
        self.save()
        self.allowance = Allowance(run, self)  # type: ignore[arg-type]

    def save(self) -> None:
        """As `generate.record.Session`."""
        self.saved = self.clock.now
        self.said[self.worker] = self.record | {"updated": self.saved}

    def end(self, position: int, tokens: int, seconds: float) -> None:
        """An attempt ends."""
        request = Request("q", position, [1], LIMIT, None)
        now = self.clock.now
        self.allowance.ended(
            position,
            Completion(request, "", "stop", None, None, now - seconds, None, now, None, tokens),
        )
        self.record["completion_tokens"] += tokens

    def left(self) -> bool:
        """Whether it has ended; else it says what it does, every five seconds."""
        self.record["ended"] = self.allowance.over()
        if self.record["ended"] or self.clock.now - self.saved > SAVE_S:
            self.save()
        return bool(self.record["ended"])


if __name__ == "__main__":
    common.main(main)
