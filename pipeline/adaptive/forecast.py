"""How far a race is: the evidence that decides each model, and what is left as it grows."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.pipeline.adaptive.looks import Course
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.adaptive.race import Ints, State, ended

Floats = npt.NDArray[np.float64]


class Forecast(NamedTuple):
    """What is left if evidence grows on as it did over the last half of the trials."""

    trials: Ints  # (K,) that each model will have had in the end
    tokens: int  # that are left


def leader(state: State) -> int:
    """The model that is ahead: the one with the highest mean among those that can be the best."""
    known = state.known
    return int(np.argmax(np.where(known.placed < 0, -1.0, known.mean)))


def evidence(state: State, goal: Goal) -> Floats:
    """Natural log of the e-value that decides each model (K,), NaN where none does.

    A model is decided when it reaches `state.known.log_needed`: until=best for "it is not the
    best", top:K for "it is in" or "it is out", above for "it differs from the baseline", and order
    for the least certain of its pairs. Planned looks (method=looks) decide without e-values.
    """
    known, kind, count = state.known, goal.until.kind, len(goal.names)
    if kind == "width":
        return np.full(count, np.nan)
    own = np.eye(count, dtype=bool)
    pairs = np.where(own, -np.inf, known.log_e)
    if kind == "best":
        found = known.log_out if goal.cfg.method == "anytime" else pairs[leader(state)]
        return np.where(np.arange(count) == leader(state), np.nan, found)
    if kind == "top":
        beaten_by, beats = -np.sort(-pairs, axis=0), -np.sort(-pairs, axis=1)
        found = np.maximum(beaten_by[goal.until.k - 1], beats[:, count - goal.until.k - 1])
        return np.asarray(found)
    either = np.maximum(pairs, pairs.T)
    if kind == "above":
        return np.where(own[goal.baseline], np.nan, either[goal.baseline])
    decided = known.better | known.better.T | known.tied
    certain = np.where(decided, np.maximum(either, known.log_needed), either)
    found = np.where(own, np.inf, certain).min(axis=1)
    return np.asarray(found)


def progress(state: State, goal: Goal) -> Floats:
    """How far each model is from being decided (K,): 1 is there; NaN where nothing says so."""
    known = state.known
    if goal.until.kind == "width":
        return np.minimum(1.0, goal.until.width / np.maximum(known.high - known.low, 1e-12))
    if goal.cfg.method != "anytime":
        return np.full(len(goal.names), np.nan)
    return np.clip(evidence(state, goal) / known.log_needed, 0.0, 1.0)


def forecast(seen: Course) -> Forecast | None:
    """The trials and tokens until the race is decided, at most those of all trials.

    The evidence of each open model is drawn out straight, at its growth over the last half of the
    trials, to the look after it is enough (an interval's width falls with the root of trials). Who
    has no evidence of its own, as the leader, goes on as long as the last of the others. None where
    nothing is known: before the first look, and of planned looks.
    """
    goal = seen.goal
    if not seen.states or (goal.cfg.method != "anytime" and goal.until.kind != "width"):
        return None
    state = seen.states[-1]
    open_ = state.known.open & (not ended(state, goal))
    n = state.trials
    if goal.until.kind == "width":
        needs = n / progress(state, goal) ** 2
    else:
        early = [one for one in seen.states if one.trials <= n / 2]
        now, then = evidence(state, goal), evidence(early[-1], goal) if early else 0.0
        growth = (now - then) / (n - (early[-1].trials if early else 0))
        missing = state.known.log_needed - now
        needs = n + np.where(growth > 0, missing / np.where(growth > 0, growth, 1.0), np.inf)
        needs = np.where(np.isnan(growth), np.nan, needs)
    looks = np.array([look for look in goal.looks if look > n] or [n])
    ends = looks[np.minimum(np.searchsorted(looks, np.nan_to_num(needs)), len(looks) - 1)]
    last = int(ends[open_ & ~np.isnan(needs)].max(initial=looks[0]))
    trials = np.where(open_, np.where(np.isnan(needs), last, ends), state.spent)
    per_trial = seen.tokens[-1] / np.maximum(state.spent, 1)
    return Forecast(trials, round(float((per_trial * (trials - state.spent)).sum())))
