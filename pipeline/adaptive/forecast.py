"""Forecast a race: before it by simulation (the verb `plan`), in it from the evidence so far.

Each simulation races models whose chances of solving each question are known, by what decides the
real race. Of graded runs a simulation draws the chances from their posterior, so that what is not
known of the models is in the shares; assumed accuracies are taken as true. A running race has
evidence, which a simulation from its estimates would forget: that is drawn out, for `status` and
for how far models are sampled ahead.
"""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy
from rich.console import Group
from rich.text import Text

from bayes_at_n.pipeline.adaptive import looks, tables
from bayes_at_n.pipeline.adaptive import plan as plans
from bayes_at_n.pipeline.adaptive.plan import Goal
from bayes_at_n.pipeline.adaptive.race import Course, ended, evidence, progress, states, target
from bayes_at_n.pipeline.adaptive.tables import question, spent_line
from bayes_at_n.pipeline.base.console import Meter, duration, percent, results, si
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.multirun import PlanConfig
from bayes_at_n.pipeline.config.resources import BudgetConfig
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.score import headline
from bayes_at_n.pipeline.status import watch
from bayes_at_n.pipeline.status.progress import Progress
from bayes_at_n.pipeline.status.watch import Header
from bayes_at_n.pipeline.store import outcomes, selection
from bayes_at_n.scoring import Counts, fit_prior, next_attempts, wilson_ci
from bayes_at_n.scoring.numerics.inputs import Floats, Ints
from bayes_at_n.scoring.sequential import Simulated, simulate

SIMULATIONS = 400  # seconds; a share is known to five points
WIDTHS = 20  # of until=width, which are slow and hardly differ
# Assumed accuracies spread over questions as Beta(s a, s (1 - a)): half of the variance of outcomes
# lies between questions, many of which are always or never solved.
CONCENTRATION = 1.0
UNITS = ("tokens", "gpu_hours", "money")
_PAIRS = 8  # open ones that are printed


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


def assumed(cfg: PlanConfig) -> Basis:
    """Assume accuracies on so many questions; what is hard is hard for all.

    Raises UserError: other numbers of values than models.

    >>> basis = assumed(PlanConfig(accuracies=[0.7, 0.5], tokens=[900], questions=5))
    >>> basis.p.round(2).tolist()
    [[0.15, 0.55, 0.84, 0.97, 1.0], [0.02, 0.21, 0.5, 0.79, 0.98]]
    >>> basis.accuracies.round(9).tolist(), basis.costs["tokens"].tolist()
    ([0.7, 0.5], [900, 900])
    """
    names = [f"model-{i}" for i, _ in enumerate(cfg.accuracies, 1)]
    mean = np.array(cfg.accuracies)[:, None]
    inner = np.clip(mean, 1e-6, 1 - 1e-6)
    places = (np.arange(cfg.questions) + 0.5) / cfg.questions
    p = scipy.special.betaincinv(CONCENTRATION * inner, CONCENTRATION * (1 - inner), places)
    found = np.clip(p.mean(axis=-1, keepdims=True), 1e-12, 1 - 1e-12)
    p = np.where(found > mean, p * mean / found, 1 - (1 - p) * (1 - mean) / (1 - found))
    unknown = np.full(len(names), np.nan)
    return Basis(names, p, _costs(cfg, names, unknown, unknown, unknown), "assumed")


def measured(cfg: PlanConfig) -> Basis:
    """Read all models of `cfg.folders` as their graded runs show them.

    A question's chance is drawn from Beta(s q + correct, s (1 - q) + not correct), where the prior
    that the model's questions share is fitted to them (`scoring.fit_prior`).
    """
    whole, cohorts = looks.matched(cfg.folders)
    names, codes = list(whole.names), whole.matrix()
    prior = fit_prior(codes)
    right = codes.sum(axis=-1).filled(0)
    wrong = codes.count(axis=-1) - right
    s = prior.concentration[:, None]
    a, b = (s * prior.mean[:, None, i] + n for i, n in ((1, right), (0, wrong)))
    p = np.random.default_rng(cfg.seed).beta(a, b, (SIMULATIONS, *right.shape))
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
    cfg: PlanConfig, names: Sequence[str], tokens: Floats, hours: Floats, money: Floats
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
    """Return a value for each model; one value is that of all. Raises UserError: another number."""
    if len(values) == 1:
        return [values[0]] * len(names)
    if len(values) != len(names):
        raise UserError(f"{key}={list(values)}: {len(values)} values for {len(names)} models")
    return list(values)


def expect(basis: Basis, goal: Goal, budget: BudgetConfig) -> Simulated:
    """Simulate races within the budget, as many as it takes to know shares well."""
    unit, limit = next(iter(budget.given.items()), ("", np.inf))
    cost = basis.costs[unit] if unit else np.ones(len(basis.names))
    if np.isnan(cost).any():
        least = {"tokens": "tokens=", "gpu_hours": "tokens= and speed=", "money": "price="}
        raise UserError(f"budget.{unit}: the cost of an attempt is unknown; set {least[unit]}")
    first = float(cost.sum()) * basis.p.shape[-1] * goal.looks[0]
    if first > limit:
        look = f"the first look, after {goal.looks[0]} trials, costs {first:.3g}"
        raise UserError(f"budget.{unit}={limit:g}: {look}; block=N looks sooner")
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


def plan(cfg: PlanConfig) -> None:
    """Say what a `settle` could decide within a budget; nothing is written."""
    basis = measured(cfg) if cfg.folders else assumed(cfg)
    goal, budget = plans.goal(cfg, basis.names, cfg.trials), cfg.budget
    result = expect(basis, goal, budget)
    table = _table(basis, goal, result)
    record = _record(basis, goal, budget, result) | {"models": table.rows}
    record["next_attempts"] = _next_attempts(basis, goal)
    display.print_json(record)
    display.show(table)
    low, high = record["settled_interval"]
    within = "".join(f" and budget.{key}={value:g}" for key, value in budget.given.items())
    results.print(
        f"settled within {goal.trials} trials{within}: {result.settled:.0%} of {len(result.total)}"
        f" simulations ({low:.0%} to {high:.0%}); decided wrongly: {result.wrong:.1%}"
    )
    low, high = record["share_quantiles"]
    more = "".join(
        f", {record[unit]:,.2f} of {record[f'fixed_{unit}']:,.2f} {words}"
        for unit, words in (("gpu_hours", "GPU-hours"), ("money", "in money"))
        if record[unit]
    )
    results.print(
        f"expected: {spent_line(record)}{more}; {percent(0.9)} of the simulations take {low:.0%} to"
        f" {high:.0%} of the attempts of {goal.trials} trials for all"
    )
    if more := record["next_attempts"]:
        results.print(f"with {goal.trials} trials for all, {more['sentence']}")
    for pair in record["pairs"][:_PAIRS]:
        results.print(f"open in {pair['open']:.0%}: {' and '.join(pair['pair'])}")


def _next_attempts(basis: Basis, goal: Goal) -> dict[str, Any] | None:
    """Weigh more trials against more questions where all trials of the best two are sampled."""
    chance = basis.p.reshape(-1, *basis.p.shape[-2:])[0]
    best = np.argsort(-basis.accuracies, kind="stable")[:2]
    if chance.shape[-1] < 2:
        return None
    hits = np.random.default_rng(goal.cfg.seed).binomial(goal.trials, chance[best])
    first, *others = (Counts(np.stack([goal.trials - of, of], axis=-1)) for of in hits)
    found = next_attempts(first, others[0] if others else None)
    return headline.next_attempts(found, [goal.names[i] for i in best])


def _table(basis: Basis, goal: Goal, result: Simulated) -> Table:
    """Tabulate each model, the most accurate first, and the share of simulations that decide it."""
    kind, shares = goal.until.kind, {}
    if kind in ("best", "top"):
        shares["best" if kind == "best" else f"in top {goal.until.k}"] = result.placed
    if kind == "above":
        above, below = result.better[:, goal.baseline], result.better[goal.baseline]
        shares = {"above": above, "below": below}
    columns = {
        Column("model", "model", align="left"): np.array(goal.names),
        Column("accuracy", "accuracy", format="{:.3f}"): basis.accuracies,
    }
    for title, share in {**shares, "open": result.open}.items():
        columns[Column(title, title, format="{:.0%}")] = share
    columns[Column("trials", "trials", format="{:.1f}")] = result.rounds
    for unit, digits in zip(UNITS, ("{:,.0f}", "{:.3g}", "{:.3g}"), strict=True):
        if not np.isnan(basis.costs[unit]).all():
            spent = result.attempts * basis.costs[unit]
            columns[Column(unit, unit.replace("gpu_", "GPU-"), format=digits)] = spent
    ranked = np.argsort(-basis.accuracies, kind="stable")
    notes = [
        f"accuracies: {basis.source}; open: share of simulations that end undecided",
        f"looks after {', '.join(map(str, goal.looks))} trials",
    ]
    return of_columns(question(goal), {c: of[ranked] for c, of in columns.items()}, notes)


def _record(basis: Basis, goal: Goal, budget: BudgetConfig, result: Simulated) -> dict[str, Any]:
    """Return chances, expected spending against that of all trials, and which pairs stay open."""
    runs, whole = len(result.total), basis.p.shape[-1] * goal.trials
    settled = round(result.settled * runs)
    interval = wilson_ci([[1] * settled + [0] * (runs - settled)])
    spent: dict[str, float] = {}
    for unit, each in basis.costs.items():  # 0 where it is not known, as in `spending`
        spent[unit] = float(np.nan_to_num((each * result.attempts).sum()))
        spent[f"fixed_{unit}"] = float(np.nan_to_num(each.sum() * whole))
    each = basis.costs[next(iter(budget.given))] if budget.given else np.ones(len(basis.names))
    undecided = 1 - result.better - result.better.T - result.tied
    pairs = [
        {"pair": [basis.names[b], basis.names[a]], "open": float(undecided[a, b])}
        for a, b in zip(*np.nonzero(np.tril(undecided > 0.005, -1)), strict=True)
    ]
    return {
        "until": goal.cfg.until,
        "settled": result.settled,
        "settled_interval": [float(interval.low), float(interval.high)],
        "right": result.right,
        "wrong": result.wrong,
        "simulations": runs,
        "attempts": round(float(result.attempts.sum())),
        "fixed": len(basis.names) * whole,
        **spent,
        "share_quantiles": np.quantile(result.total / (each.sum() * whole), [0.05, 0.95]).tolist(),
        "budget": budget.given,
        "trials": goal.trials,
        "looks": goal.looks,
        "questions": basis.p.shape[-1],
        "source": basis.source,
        "pairs": sorted(pairs, key=lambda of: -of["open"]) if goal.until.kind == "order" else [],
    }


def status(folder: Path, watching: bool, every: float | None) -> None:
    """Show a race once, or until it is decided or Ctrl-C; reads only, beside any workers."""

    def runs() -> list[Path]:
        planned = plans.opened(folder)
        paths = [run.path for contender in planned.contenders for run in contender.runs]
        return [path for path in paths if selection.is_run(path)]

    about = partial(_about, folder)
    about([])
    if watching:
        watch.watch(runs, every or watch.EVERY_S, about)
    else:
        watch.show(runs, about)


def _about(folder: Path, runs: Sequence[Progress]) -> Header:
    planned = plans.opened(folder)
    (seen, _), goal = looks.look(planned.contenders, planned.goal), planned.goal
    record = {"settle": str(folder), "until": goal.cfg.until, "settled": False, "looks": 0}
    if not seen.states:
        first = f"{tables.question(goal)}; first look after {goal.looks[0]} trials"
        return Header(Text(f"{folder}: {first}"), record, False)
    board, (left, words) = tables.leaderboard(seen), _left(seen, runs)
    lines = [f"{folder}: {tables.line(seen)}", *filter(None, [words])]
    record = {"settle": str(folder), **tables.record(seen), "left": left}
    drawn = Group(display.to_rich(board, results.width), *map(Text, lines), Text())
    return Header(drawn, display.plain(record), ended(seen.states[-1], goal))


def _left(seen: Course, running: Sequence[Progress]) -> tuple[dict[str, Any], str]:
    """Return what is left by the forecast, at the speed of the workers, also in words."""
    left, speed = forecast(seen), sum(s.tokens_per_s for s in running)
    if left is None or ended(seen.states[-1], seen.goal):
        return {}, ""
    last, most = int(left.trials.max()), seen.goal.trials
    seconds = left.tokens / speed if speed and left.tokens else None
    parts = [
        f"settled after about {last} of {most} trials" if last < most else f"up to {most} trials",
        f"{si(left.tokens)} more tokens" if left.tokens else "",
        f"{duration(seconds)} at the current speed" if seconds else "",
    ]
    trials = dict(zip(seen.goal.names, left.trials.tolist(), strict=True))
    words = f"forecast, if evidence keeps growing like this: {', '.join(filter(None, parts))}"
    return {"trials": trials, "tokens": left.tokens, "seconds": seconds}, words
