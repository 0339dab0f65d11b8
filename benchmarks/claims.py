"""Sixty-four workers on one run folder: work done twice, idle time, and what a claim takes.

    python -m benchmarks.claims --workdir /dev/shm    4,000 attempts, batches of 1 and of 8
    python -m benchmarks.claims --batch 8 --workers 16 --workdir /lustre/me

Workers are processes that run the project's own worker on one folder; only the engine is not real:
it sleeps. An attempt takes an exponential time, one in twenty six times as long, none more than six
times the mean (as real ones are cut at a length); the same times in every run of this script. All
engines are ready at the same moment, which is the worst for claims.

  duplicates   attempts that were sampled once more than needed, of all attempts
  idle         of the time until the last attempt was begun, the share in which a worker had nothing
               in flight for more than a step: there was always an attempt that nobody began
  claim        a `take` that asked the folder for work and got some, with all its looks at the
               folder and the races that it lost
  coordinator  the same lengths, in the run's order, each to the first place that is free: what one
               process that knows everything would need

Two cores are enough for the default; on a disk, flushing the journals may be the limit.
"""

import argparse
import heapq
import itertools
import multiprocessing
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas  # noqa: F401  Arrow imports it with the first row: once here, not in every worker

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.generate import stage
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.claims import Claims
from bayes_at_n.pipeline.workers.session import Slot
from benchmarks import common, synthetic

MOST = {"duplicates": 0.01, "idle": 0.02, "claim median ms": 10.0}  # the targets
TRIALS, TOKENS = 80, 200
STEP_S = 0.05  # of the engine, and so of the worker's loop, at most
_LONG, _TIMES, _CUT = 0.05, 6.0, 6.0  # share of long attempts, how much longer, longest of all
_FORK = multiprocessing.get_context("fork")  # everything is imported once
Floats = npt.NDArray[np.float64]


def main() -> None:
    """Measure and report."""
    parser = common.parser(__doc__, workers=64)
    parser.add_argument(
        "--questions", type=int, default=50, metavar="M", help="of 80 trials; default %(default)s"
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 8], metavar="B")
    parser.add_argument(
        "--mean",
        type=float,
        default=1.0,
        metavar="S",
        help="seconds of an attempt, in the mean, at a batch of 1; B / 2 times as long at B;"
        " default %(default)s",
    )
    args = parser.parse_args()
    found = []
    with common.workdir(args) as folder:
        for batch in args.batch:
            lengths = _lengths(args.questions * TRIALS, args.mean * max(1, batch / 2))
            found.append(_measure(folder / f"batch-{batch}", args.workers, batch, lengths))
    _report(args, found)
    common.finish(args, {"workers": args.workers, "attempts": len(lengths), "batches": found})


def _lengths(attempts: int, mean: float) -> Floats:
    rng = np.random.default_rng(0)
    usual = mean / (1 - _LONG + _LONG * _TIMES)
    scale = np.where(rng.random(attempts) < _LONG, _TIMES * usual, usual)
    return np.minimum(rng.exponential(scale), _CUT * mean)


class Sleeper(engines.Engine):
    """An engine of so many places that sleeps instead of sampling; logs what it began and when.

    `batch`: attempts that run at once; others wait inside. `seconds`: what an attempt takes.
    `ready`: called once, before the first attempt.
    """

    def __init__(
        self, batch: int, seconds: Callable[[Request], float], ready: Callable[[], object]
    ) -> None:
        self.batch, self.seconds, self.ready = batch, seconds, ready
        self.began, self.tokenizer = 0.0, None
        self.log: list[tuple[str, int, float, float]] = []  # question, trial, begun, finished

    def generate(self, requests: Iterable[Request | None]) -> Generator[Completion | None]:
        """As :class:`pipeline.engines.Engine`."""
        waiting: deque[Request] = deque()
        running: list[tuple[float, int, Request, float]] = []  # finished, a number, what, begun
        source, more, numbers = iter(requests), True, itertools.count()
        self.ready()
        self.began = time.monotonic()
        while more or running or waiting:
            if more:
                taken, more = engines.pull(source, 3 * self.batch - len(running) - len(waiting))
                waiting.extend(taken)
            while waiting and len(running) < self.batch:
                request, now = waiting.popleft(), time.monotonic()
                end = now + self.seconds(request)
                heapq.heappush(running, (end, next(numbers), request, now))
                self.log.append((request.question_id, request.trial, now, end))
            until = min(time.monotonic() + STEP_S, running[0][0] if running else np.inf)
            time.sleep(max(0.0, until - time.monotonic()))
            while running and running[0][0] <= time.monotonic():
                end, _, request, now = heapq.heappop(running)
                yield _completion(request, now, end)
            yield None

    def describe(self) -> dict[str, Any]:
        """As :class:`pipeline.engines.Engine`."""
        return {"device": "cpu"}


def _completion(request: Request, began: float, ended: float) -> Completion:
    ids, logprobs = [7] * TOKENS, [-0.5] * TOKENS
    return Completion(request, "seven " * TOKENS, "stop", ids, logprobs, began, began, ended)


def _measure(folder: Path, workers: int, batch: int, lengths: Floats) -> dict[str, float]:
    """All workers once on a fresh folder, and what their logs say together."""
    settings = ["sampling=demo", f"sampling.trials={TRIALS}", f"engine.batch_size={batch}"]
    ids = [f"q-{i:04d}" for i in range(len(lengths) // TRIALS)]
    run = Run(compose.load([*settings, f"run_dir={folder}"]))
    barrier = _FORK.Barrier(workers)
    # This process starts no thread (Arrow has some) before all workers are forked from it.
    _all_well([_start(_prepare, folder, ids, settings)])
    _all_well([_start(_work, run, lengths, barrier) for _ in range(workers)])
    logs = [dict(np.load(path)) for path in sorted(folder.glob("*.npz"))]
    found = _evaluate(logs, batch, lengths)
    keys = shards.keys(run.attempts, ATTEMPTS, shards.Damage())
    if len(logs) != workers or len(keys) != len(lengths):
        raise common.UserError(f"{folder}: {len(logs)} logs, {len(keys)} attempts")
    return found


def _start(work: Callable[..., None], *arguments: Any) -> Any:
    process = _FORK.Process(target=work, args=arguments)
    process.start()
    return process


def _all_well(processes: list[Any]) -> None:
    for process in processes:
        process.join()
    if failed := [process.exitcode for process in processes if process.exitcode]:
        raise common.UserError(f"{len(failed)} processes failed, see above")


def _prepare(folder: Path, ids: list[str], settings: list[str]) -> None:
    run = synthetic.prepared(folder, ids, *settings, gold="7", max_tokens=TOKENS)
    run.attempts.mkdir()


def _work(run: Run, lengths: Floats, barrier: Any) -> None:
    """The project's own worker with an engine that sleeps; saves what both did."""
    place = {key: position for position, key in enumerate(run.keys)}

    def seconds(request: Request) -> float:
        return float(lengths[place[request.question_id, request.trial]])

    engine = Sleeper(run.cfg.engine.batch_size, seconds, barrier.wait)
    engines.load = lambda cfg, longest, rows: engine
    claims = _timed_claims()
    stage.work([run], slot=Slot(0, "0/0"))
    positions = [place[question, trial] for question, trial, _, _ in engine.log]
    np.savez(
        run.path / f"{shards.worker_id()}.npz",
        position=positions,
        begun=[begun for *_, begun, _ in engine.log],
        ended=[ended for *_, ended in engine.log],
        claim=claims,
        start=engine.began,
    )


def _timed_claims() -> list[float]:
    """From now on, the seconds of every `take` that asked the folder for work and got some."""
    take, append = Claims.take, Claims._append
    seconds, asked = list[float](), list[str]()

    def noted(self: Claims, worker: str, positions: Iterable[int]) -> bool:
        asked.append(worker)
        return append(self, worker, positions)

    def timed(self: Claims, in_flight: int, room: int, batch: int) -> int | None:
        asked.clear()
        began = time.perf_counter()
        position = take(self, in_flight, room, batch)
        if position is not None and asked:
            seconds.append(time.perf_counter() - began)
        return position

    Claims._append, Claims.take = noted, timed  # type: ignore[method-assign]
    return seconds


def _evaluate(logs: list[dict[str, Any]], batch: int, lengths: Floats) -> dict[str, float]:
    positions = np.concatenate([log["position"] for log in logs]).astype(int)
    first = np.full(len(lengths), np.inf)
    np.minimum.at(first, positions, np.concatenate([log["begun"] for log in logs]))
    start, last = max(float(log["start"]) for log in logs), float(first.max())
    end = max(float(log["ended"].max()) for log in logs if len(log["ended"]))
    gaps = [gap for log in logs for gap in _gaps(log["begun"], log["ended"], start, last)]
    claims = 1000 * np.concatenate([log["claim"] for log in logs])
    return {
        "batch": batch,
        "duplicates": len(positions) / len(lengths) - 1,
        "idle": sum(gap for gap in gaps if gap > STEP_S) / (len(logs) * (last - start)),
        "claims": len(claims),
        "claim median ms": float(np.median(claims)),
        "claim p99 ms": float(np.quantile(claims, 0.99)),
        "total s": end - start,
        "total / coordinator": (end - start) / _coordinator(lengths, len(logs) * batch),
    }


def _gaps(begun: Iterable[float], ended: Iterable[float], start: float, last: float) -> list[float]:
    """The stretches between `start` and `last` in which a worker had nothing in flight.

    >>> _gaps([1.0, 1.5, 4.0], [3.0, 2.0, 9.0], 0.5, 5.0)
    [0.5, 1.0]
    """
    gaps, free = [], start
    for one, end in sorted(zip(begun, ended, strict=True)):
        if min(one, last) > free:
            gaps.append(float(min(one, last) - free))
        free = max(free, end)
    return [*gaps, float(last - free)] if free < last else gaps


def _coordinator(lengths: Floats, places: int) -> float:
    """Seconds of the same work when each attempt goes to the first place that is free.

    >>> _coordinator(np.array([3.0, 1.0, 1.0, 2.0]), 2)
    4.0
    """
    free = [0.0] * places
    for length in lengths:
        heapq.heapreplace(free, free[0] + float(length))
    return max(free)


def _report(args: argparse.Namespace, found: list[dict[str, float]]) -> None:
    names = ["", *(f"batch of {one['batch']}" for one in found)]
    rows = [[key, *(one[key] for one in found)] for key in found[0] if key != "batch"]
    common.table(f"{args.questions * TRIALS} attempts, {args.workers} workers", names, rows)
    for one in found:
        for key, most in MOST.items():
            met = "met" if one[key] <= most else "NOT met"
            line = f"batch of {one['batch']}: {key} {one[key]:.4f}; target at most {most:g}: {met}"
            common.out.print(line)


if __name__ == "__main__":
    common.main(main)
