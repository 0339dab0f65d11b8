"""Foretell a race: before it by simulation, while it runs from the evidence so far.

Each simulation races models whose chances of solving each question are known, by what decides the
real race. Of graded runs a simulation draws the chances from their posterior, so that what is not
known of the models is in the shares; assumed accuracies are taken as true. A running race has
evidence, which a simulation from its estimates would forget: that is drawn out.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy

from bayes_at_n.pipeline.adaptive import data
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.adaptive.race import (
    Course,
    Floats,
    Ints,
    ended,
    evidence,
    progress,
    states,
    target,
)
from bayes_at_n.pipeline.base.console import Meter
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.resources import BudgetConfig
from bayes_at_n.pipeline.config.settle import Assumed
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.scoring import fit_prior
from bayes_at_n.scoring.sequential import Simulated, simulate

SIMULATIONS = 400  # seconds; a share is known to five points
WIDTHS = 20  # of until=width, which are slow and hardly differ
# Assumed accuracies spread over questions as Beta(s a, s (1 - a)): half of the variance of outcomes
# lies between questions, many of which are always or never solved.
CONCENTRATION = 1.0
UNITS = ("tokens", "gpu_hours", "money")


class Basis(NamedTuple):
    """What is known or assumed of K models."""

    names: list[str]
    p: Floats  # (K, M) of solving each question, or (SIMULATIONS, K, M)
    costs: dict[str, Floats]  # of an attempt, (K,) by unit; NaN where not known
    source: str  # where that is from

    @property
    def accuracies(self) -> Floats:
        """The mean chance of each model (K,)."""
        return np.asarray(self.p.reshape(-1, *self.p.shape[-2:]).mean(axis=(0, -1)))


def assumed(cfg: Assumed, names: Sequence[str], questions: int) -> Basis:
    """Assume accuracies on so many questions; what is hard is hard for all.

    Raises UserError: other numbers of values than models.

    >>> basis = assumed(Assumed([0.7, 0.5], tokens=[900]), ["a", "b"], questions=5)
    >>> basis.p.round(2).tolist()
    [[0.15, 0.55, 0.84, 0.97, 1.0], [0.02, 0.21, 0.5, 0.79, 0.98]]
    >>> basis.accuracies.round(9).tolist(), basis.costs["tokens"].tolist()
    ([0.7, 0.5], [900, 900])
    """
    mean = np.array(of_models("accuracies", cfg.accuracies, names))[:, None]
    inner = np.clip(mean, 1e-6, 1 - 1e-6)
    places = (np.arange(questions) + 0.5) / questions
    p = scipy.special.betaincinv(CONCENTRATION * inner, CONCENTRATION * (1 - inner), places)
    found = np.clip(p.mean(axis=-1, keepdims=True), 1e-12, 1 - 1e-12)
    p = np.where(found > mean, p * mean / found, 1 - (1 - p) * (1 - mean) / (1 - found))
    unknown = np.full(len(names), np.nan)
    return Basis(list(names), p, _costs(cfg, names, unknown, unknown, unknown), "assumed")


def measured(folders: Sequence[str], cfg: Assumed, names: Sequence[str] | None, seed: int) -> Basis:
    """Read models as their graded runs show them: all in the folders, or those named.

    A question's chance is drawn from Beta(s q + correct, s (1 - q) + not correct), where the prior
    that the model's questions share is fitted to them (`scoring.fit_prior`).

    Raises UserError: folders that hold no runs that can be compared, or nothing of a model.
    """
    whole, cohorts = data.matched(folders)
    names, matrix = list(whole.names if names is None else names), whole.matrix()
    graded = [name for name, one in zip(whole.names, matrix, strict=True) if one.count()]
    if lacks := [name for name in names if name not in graded]:
        raise UserError(
            f"{', '.join(lacks)}: no graded attempts; give runs of these models"
            " (assume.folders=FOLDER) or accuracies (assume=[0.6,0.5])"
        )
    codes = matrix[[whole.names.index(name) for name in names]]
    prior = fit_prior(codes)
    right = codes.sum(axis=-1).filled(0)
    wrong = codes.count(axis=-1) - right
    s = prior.concentration[:, None]
    a, b = (s * prior.mean[:, None, i] + n for i, n in ((1, right), (0, wrong)))
    p = np.random.default_rng(seed).beta(a, b, (SIMULATIONS, *right.shape))
    used = {name: [m.usage for c in cohorts for m in c.members if m.name == name] for name in names}
    costs = _costs(cfg, names, *np.array([_each(used[name]) for name in names]).T)
    return Basis(names, p, costs, f"{int(codes.count())} graded attempts")


def _each(usages: Sequence[outcomes.Usage]) -> tuple[float, float, float]:
    """Return tokens, GPU-hours and money of an attempt; a process without a GPU counts as one."""
    attempts = sum(usage.attempts for usage in usages) or np.nan
    known = sum(usage.completions_known for usage in usages) or np.nan
    tokens = sum(usage.completion_tokens for usage in usages) / known
    hours = sum(usage.spent.gpu_s or usage.spent.wall_s for usage in usages) / 3600 or np.nan
    money = sum(np.nan if usage.price is None else usage.price for usage in usages)
    return tokens, hours / attempts, money / attempts


def _costs(
    cfg: Assumed, names: Sequence[str], tokens: Floats, hours: Floats, money: Floats
) -> dict[str, Floats]:
    """Return what an attempt costs, where assumptions go before what was measured."""
    if cfg.tokens:
        new = np.array(of_models("tokens", cfg.tokens, names))
        hours, money, tokens = hours * new / tokens, money * new / tokens, new
    if cfg.speed:
        hours = tokens / np.array(of_models("speed", cfg.speed, names)) / 3600
    if cfg.price is not None:
        money = tokens * cfg.price / outcomes.MILLION
    return dict(zip(UNITS, (tokens, hours, money), strict=True))


def of_models(key: str, values: Sequence[float], names: Sequence[str]) -> list[float]:
    """Return a value for each model; one value, but of accuracies, is that of all.

    Raises UserError: another number of values.
    """
    if len(values) == 1 and key != "accuracies":
        return [values[0]] * len(names)
    if len(values) != len(names):
        raise UserError(f"{key}={list(values)}: {len(values)} values for {len(names)} models")
    return list(values)


def expect(basis: Basis, goal: Goal, budget: BudgetConfig) -> Simulated:
    """Simulate races within the budget, as many as it takes to know shares well.

    Raises UserError: what an attempt costs in the budget's unit is not known, or the budget ends
    before the first look.
    """
    unit, limit = next(iter(budget.given.items()), ("", np.inf))
    cost = basis.costs[unit] if unit else np.ones(len(basis.names))
    if np.isnan(cost).any():
        least = {"tokens": "tokens=", "gpu_hours": "tokens= and speed=", "money": "price="}
        raise UserError(f"budget.{unit}: the cost of an attempt is unknown; set {least[unit]}")
    first = float(cost.sum()) * basis.p.shape[-1] * goal.looks[0]
    if first > limit:
        raise UserError(
            f"budget.{unit}={limit:g}: the first look, after {goal.looks[0]} trials, costs"
            f" {first:.3g}; block=N looks sooner"
        )
    requested = target(goal)
    if requested is None:
        return _widths(basis, goal, cost, float(limit))
    with Meter("simulations", SIMULATIONS) as meter:
        return simulate(
            basis.p,
            requested,
            trials=goal.trials,
            runs=SIMULATIONS,
            seed=goal.cfg.seed,
            confidence=goal.cfg.confidence,
            tie=goal.margin,
            looks=goal.looks,
            independent=goal.cfg.independent,  # type: ignore[arg-type]
            cost=cost[:, None],
            budget=float(limit),
            done=meter.advance,
        )


def _widths(basis: Basis, goal: Goal, cost: Floats, budget: float) -> Simulated:
    """Race to until=width, by the looks of a settle."""
    rng, shape = np.random.default_rng(goal.cfg.seed), basis.p.shape[-2:]
    spent, open_ = np.zeros((WIDTHS, shape[0]), np.int64), np.ones((WIDTHS, shape[0]), bool)
    with Meter("simulations", WIDTHS) as meter:
        for i, p in enumerate(np.broadcast_to(basis.p, (SIMULATIONS, *shape))[:WIDTHS]):
            for state in states(rng.random((*shape, goal.trials)) < p[..., None], goal):
                if (state.spent * cost).sum() * shape[1] > budget:
                    break
                spent[i], open_[i] = state.spent, state.known.open
            meter.advance(1)
    settled = float((~open_).all(axis=-1).mean())
    none = np.zeros((len(cost), len(cost)))
    fields: dict[str, Any] = dict.fromkeys(Simulated._fields, none)
    fields |= {"settled": settled, "right": settled, "wrong": 0.0, "open": open_.mean(axis=0)}
    fields |= {"rounds": spent.mean(axis=0), "attempts": spent.mean(axis=0) * shape[1]}
    return Simulated(**fields | {"total": (spent * cost).sum(axis=-1) * shape[1]})


class Forecast(NamedTuple):
    """What is left if evidence grows on as it did over the last half of the trials."""

    trials: Ints  # (K,) that each model will have had in the end
    tokens: int  # that are left


def forecast(seen: Course) -> Forecast | None:
    """Return the trials and tokens until it is decided, at most those of all trials.

    The evidence of each open model is drawn out straight, at its growth over the last half of the
    trials, to the look after it is enough (an interval's width falls with the root of trials). Who
    has no evidence of its own, as the leader, goes on as long as the last of the others. None where
    nothing is known: before the first look.
    """
    goal = seen.goal
    if not seen.states:
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
