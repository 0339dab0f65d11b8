"""Runs and races that hold drawn outcomes, for the tests of `settle`."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from helpers import run_of

from bayes_at_n.pipeline.adaptive import live, looks
from bayes_at_n.pipeline.adaptive.data import Outcomes
from bayes_at_n.pipeline.adaptive.plan import Contender, Goal, Plan
from bayes_at_n.pipeline.adaptive.race import Course, states
from bayes_at_n.pipeline.config.settle import SettleConfig

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
