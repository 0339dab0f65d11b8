"""From outcomes to decisions: what every look sees, trial by trial."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.scoring.sequential import Look, MeanSequence, Race, Target

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class State(NamedTuple):
    """What is known after a look, of K models."""

    look: int  # counted from 1
    trials: int  # of a question, of the models that were sampled for this look
    spent: Ints  # (K,) trials of each model that counted
    sampled: Bools  # (K,) models that were sampled for this look
    known: Look


class _Widths:
    """until=width: each model by itself, until its interval is as narrow as asked."""

    def __init__(self, models: int, questions: int, confidence: float, width: float) -> None:
        self.sequences = [MeanSequence(questions, confidence) for _ in range(models)]
        self.rounds, self.width = np.zeros(models, np.int64), width

    def add(self, successes: Ints, attempts: Ints) -> None:
        for k, sequence in enumerate(self.sequences):
            if attempts[k].any():
                sequence.add(successes[k], attempts[k])
                self.rounds[k] += 1

    def look(self) -> Look:
        low, high = np.array([sequence.interval() for sequence in self.sequences]).T
        mean = np.array([sequence.mean for sequence in self.sequences])
        open_, apart = high - low > self.width, np.ones((len(mean), len(mean)))
        return Look(
            round=int(self.rounds.max()),
            rounds=self.rounds.copy(),
            mean=mean,
            low=low,
            high=high,
            log_e=np.zeros_like(apart),
            log_out=np.zeros_like(mean),
            log_needed=np.inf,
            difference_low=-apart,
            difference_high=apart,
            better=apart < 0,
            tied=apart < 0,
            open=open_,
            placed=np.zeros(len(mean), np.int64),
            groups=[np.argsort(-mean, kind="stable").tolist()],
            best=None,
            settled=not open_.any(),
        )


def states(outcomes: npt.ArrayLike, goal: Goal) -> Iterator[State]:
    """What each look sees, the first to the last that the outcomes reach.

    Args:
        outcomes: (K, M, N) 1 correct, 0 not, -1 owed; trials beyond the goal's do not count. A
            model that has left needs no more of them.

    Example:
        >>> from bayes_at_n.pipeline.config.settle import SettleConfig
        >>> from bayes_at_n.pipeline.adaptive.plan import Goal
        >>> always = np.stack([np.ones((30, 80)), np.zeros((30, 80))])
        >>> *_, last = states(always, Goal(SettleConfig(), ["a", "b"], trials=80, block=1))
        >>> last.known.best, last.known.settled, last.trials < 8
        (0, True, True)
    """
    codes = np.asarray(outcomes)
    models, questions, _ = codes.shape
    if not questions:  # nothing is prepared
        return
    race = _race(goal, questions)
    live, spent, done = np.ones(models, bool), np.zeros(models, np.int64), 0
    for number, trials in enumerate(goal.looks, 1):
        if codes.shape[2] < trials or (codes[live, :, done:trials] < 0).any():
            return
        for trial in range(done, trials):
            attempts = np.repeat(live[:, None], questions, axis=1).astype(np.int64)
            race.add(codes[:, :, trial] * attempts, attempts)
        spent[live] += trials - done
        known = race.look()
        yield State(number, trials, spent.copy(), live, known)
        if known.settled:
            return
        live, done = known.open, trials


def target(goal: Goal) -> Target | None:
    """What is to be settled between the models; None of until=width, where each is by itself."""
    kind, k = goal.until.kind, goal.until.k
    return None if kind == "width" else Target(kind, k, goal.baseline)  # type: ignore[arg-type]


def _race(goal: Goal, questions: int) -> Any:
    level, asked = goal.cfg.confidence, target(goal)
    if asked is None:
        return _Widths(len(goal.names), questions, level, goal.until.width)
    return Race(
        len(goal.names),
        questions,
        asked,
        confidence=level,
        tie=goal.margin,
        method=goal.cfg.method,  # type: ignore[arg-type]
        looks=tuple(goal.looks),
    )


def order(known: Look, goal: Goal) -> list[list[str]]:
    """The names in groups that are not told apart, best first."""
    return [[goal.names[model] for model in group] for group in known.groups]


def ended(state: State, goal: Goal) -> bool:
    """Whether nothing more is sampled: all is decided, or all trials are used."""
    return state.known.settled or state.trials == goal.trials


def owed(state: State | None, goal: Goal) -> tuple[int, Bools]:
    """Up to which trial one samples next, and which models (K,); (0, none) where it has ended."""
    if state is None:
        return goal.looks[0], np.ones(len(goal.names), bool)
    if ended(state, goal):
        return 0, np.zeros(len(goal.names), bool)
    return goal.looks[state.look], state.known.open
