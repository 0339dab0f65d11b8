"""Runs and races that hold drawn outcomes, for the tests of `settle`."""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from helpers import run_of

from bayes_at_n.pipeline import engines
from bayes_at_n.pipeline.adaptive import live, looks
from bayes_at_n.pipeline.adaptive.plan import Contender, Goal, Plan
from bayes_at_n.pipeline.adaptive.race import Course, Outcomes, states
from bayes_at_n.pipeline.cli import main
from bayes_at_n.pipeline.config.multirun import SettleConfig
from bayes_at_n.pipeline.engines import Completion, Request
from bayes_at_n.pipeline.generate import stage
from bayes_at_n.pipeline.workers.resident import Order, Residents

QUESTIONS, TRIALS = 20, 40


def coins(*accuracies: float, trials: int = TRIALS) -> Any:
    """Outcomes (K, M, N) of models that are right so often at every question."""
    rng, shape = np.random.default_rng(7), (len(accuracies), QUESTIONS, trials)
    return (rng.random(shape) < np.array(accuracies)[:, None, None]).astype(np.int8)


def folders(root: Path, outcomes: Any, names: str = "abcdef") -> Path:
    """Complete runs that hold outcomes."""
    for name, of_model in zip(names, outcomes, strict=False):
        lines = {f"q{q:02d}": "".join(map(str, line)) for q, line in enumerate(of_model)}
        run_of(root, name, lines, "sampling.seeds=independent")
    return root / "sums"


def seen_in(outcomes: Any, goal: Goal) -> Course:
    """The course of a race through outcomes, of five tokens an attempt."""
    tokens = np.full((len(outcomes), outcomes.shape[2]), 5 * QUESTIONS)
    alone = [*map(str, range(outcomes.shape[1]))]
    known = Outcomes(goal.names, outcomes, tokens, "independent", alone)
    return looks.course(known, goal)


def begun(root: Path, until: str, accuracies: tuple[float, ...], trials: int) -> Path:
    """The folder of a race whose looks up to so many trials are on record, and its runs."""
    names, outcomes = [*"abcde"[: len(accuracies)]], coins(*accuracies)
    goal = Goal(SettleConfig(until=until), names, TRIALS, block=8)
    seen = [state for state in states(outcomes, goal) if state.trials <= trials]
    contenders = []
    for k, name in enumerate(names):
        made = int(seen[-1].spent[k]) if seen else 0
        lines = {
            f"q{q:02d}": "".join(map(str, line[:made])) + "." * (TRIALS - made)
            for q, line in enumerate(outcomes[k])
        }
        run = run_of(root, name, lines, "sampling.seeds=independent")
        contenders.append(Contender(name, [run], [], []))
    folder = root / "sums" / "_settle" / until.replace(":", "-")
    planned = Plan(goal, contenders, folder, [])
    live.begin(planned)
    course, _ = looks.look(contenders, goal)
    assert len(course.states) == len(seen)
    if seen:
        looks.record(folder, course)
    return folder


def logged(folder: Path) -> list[dict[str, Any]]:
    """The looks on record, without when they were."""
    lines = (folder / looks.FILE).read_text().splitlines()
    return [{k: v for k, v in json.loads(line).items() if k != "time"} for line in lines]


def chance(*of: object) -> float:
    """A number in [0, 1), the same whenever it is drawn."""
    return int(hashlib.sha256(repr(of).encode()).hexdigest()[:8], 16) / 2**32


class Drawn(engines.Engine):
    """An engine that is right where `is_right(question, trial)` says so, now and then late."""

    def __init__(self, is_right: Callable[[str, int], bool]) -> None:
        self.tokenizer, self.is_right = None, is_right

    def generate(self, requests: Iterable[Request | None]) -> Iterator[Completion | None]:
        running: list[tuple[float, Request]] = []
        source, more = iter(requests), True
        while more or running:
            if more:
                taken, more = engines.pull(source, 8 - len(running))
                for one in taken:
                    late = 0.2 * (chance(one.question_id, one.trial) < 0.1)
                    running.append((time.monotonic() + 0.01 + late, one))
            time.sleep(0.005)
            now = time.monotonic()
            for end, one in [of for of in running if of[0] <= now]:
                running.remove((end, one))
                text = rf"\boxed{{{2 if self.is_right(one.question_id, one.trial) else 3}}}"
                yield Completion(one, text, "stop", [1, 2, 3], [-0.5] * 3, now, now, now)
            yield None

    def describe(self) -> dict[str, Any]:
        return {"device": "cpu"}


def forked(is_right: Callable[[str, str, int], bool]) -> type[Residents]:
    """Commands in forked processes, each with an engine that knows `is_right(model, ...)`."""

    class Forked(Residents):
        def begin(self, order: Order) -> None:
            if pid := os.fork():
                vars(self).setdefault("children", {})[order.label] = pid
                return
            status = 1
            try:
                engines.load = lambda cfg, longest, rows: Drawn(
                    lambda question, trial: is_right(cfg.model.name, question, trial)
                )
                stage._fitted = lambda runs: [*runs]
                stage._supervised = lambda runs, *_: stage.work(runs)
                status = main.main([*order.command])
            finally:
                os._exit(status)

        def ended(self, order: Order, wait: bool = False) -> int | None:
            pid, status = os.waitpid(vars(self)["children"][order.label], 0 if wait else os.WNOHANG)
            return os.waitstatus_to_exitcode(status) if pid else None

        def run(self, order: Order) -> int:
            self.begin(order)
            return self.ended(order, wait=True) or 0

    return Forked
