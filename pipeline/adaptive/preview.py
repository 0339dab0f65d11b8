"""The verb `plan` and `settle --dry-run`: say what to expect before anything is spent."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bayes_at_n.pipeline.adaptive import forecast
from bayes_at_n.pipeline.adaptive.forecast import UNITS, Basis
from bayes_at_n.pipeline.adaptive.plan import Goal, Plan, goal
from bayes_at_n.pipeline.adaptive.tables import question, spent_line
from bayes_at_n.pipeline.base.console import note, percent, results
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.resources import BudgetConfig
from bayes_at_n.pipeline.config.settings import RunConfig
from bayes_at_n.pipeline.config.settle import Assumed, PlanConfig
from bayes_at_n.pipeline.display import table as display
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.prepare import estimate, questions
from bayes_at_n.pipeline.store import find
from bayes_at_n.scoring import wilson_ci
from bayes_at_n.scoring.sequential import Simulated

_PAIRS = 8  # open ones that are printed


def plan(cfg: PlanConfig) -> None:
    """Say what a `settle` could decide within a budget; nothing is written.

    Raises UserError: folders that hold no graded runs, a target that these models cannot have, or
    a budget of what is not known.
    """
    if cfg.folders:
        basis = forecast.measured(cfg.folders, cfg, None, cfg.seed)
    else:
        names = [f"model-{i}" for i in range(1, len(cfg.accuracies) + 1)]
        basis = forecast.assumed(cfg, names, cfg.questions)
    _tell(basis, goal(cfg, basis.names, cfg.trials), cfg.budget)


def dry_run(planned: Plan, asked: Assumed) -> None:
    """Say what a `settle` will take, from what its runs hold or what is assumed.

    Nothing is written and no engine is loaded. Raises UserError: nothing is known of a model, or a
    data set cannot be read.
    """
    goal = planned.goal
    runs = [run for contender in planned.contenders for run in contender.runs]
    begun = [str(run.path) for run in runs if find.is_run(run.path)]
    engine = runs[0].cfg.engine
    if asked.price is None and engine.price_out:
        asked.price = engine.price_out
    if asked.accuracies:
        loaded = [questions.load(run.cfg.dataset)[0] for run in planned.contenders[0].runs]
        attempts = sum(map(len, loaded)) * goal.trials
        _estimate(asked, [contender.runs[0].cfg for contender in planned.contenders], attempts)
        basis = forecast.assumed(asked, goal.names, sum(map(len, loaded)))
    elif asked.folders or begun:
        basis = forecast.measured(asked.folders or begun, asked, goal.names, goal.cfg.seed)
    else:
        raise UserError(
            "--dry-run: what are these models like? assume=[0.6,0.5] names an accuracy for each,"
            " assume.folders=FOLDER graded runs of models with the same names"
        )
    given = runs[0].cfg.budget
    if given.until or len(given.given) > 1:
        raise UserError("budget: a dry run takes one, of gpu_hours, tokens or money")
    _tell(basis, goal, given)


def _estimate(asked: Assumed, cfgs: Sequence[RunConfig], attempts: int) -> None:
    """Tokens and speed that are not said, by the sizes of models and hardware."""
    if asked.tokens and asked.speed:
        return
    hardware = estimate.local_hardware(cfgs[0])  # engines of a race are alike
    found = [estimate.sampling_cost(cfg, [], attempts, hardware) for cfg in cfgs]
    asked.tokens = asked.tokens or [one.tokens / attempts for one in found]
    if not asked.speed and all(one.seconds for one in found):
        seconds = [(one.seconds or 0.0) * max(1, hardware.gpus) for one in found]
        asked.speed = [one.tokens / s for one, s in zip(found, seconds, strict=True)]
    note(f"cost of {cfgs[0].model.name} on {hardware.name}: {found[0].basis}; {found[0].how}")


def _tell(basis: Basis, goal: Goal, budget: BudgetConfig) -> None:
    """Simulate, and print a table and sentences or one JSON object."""
    found = forecast.expect(basis, goal, budget)
    table = _table(basis, goal, found)
    record = _record(basis, goal, budget, found) | {"models": table.rows}
    display.answer(record)
    display.show(table)
    low, high = record["settled_interval"]
    within = "".join(f" and budget.{key}={value:g}" for key, value in budget.given.items())
    results.print(
        f"settled within {goal.trials} trials{within}: {found.settled:.0%} of {len(found.total)}"
        f" simulations ({low:.0%} to {high:.0%}); decided wrongly: {found.wrong:.1%}"
    )
    low, high = record["share_quantiles"]
    more = "".join(
        f", {record[unit]:,.2f} of {record[f'fixed_{unit}']:,.2f} {words}"
        for unit, words in (("gpu_hours", "GPU-hours"), ("money", "in money"))
        if record[unit]
    )
    results.print(
        f"expected: {spent_line(record)}{more}; {percent(0.9)} of the simulations take {low:.0%} to"
        f" {high:.0%} of what {goal.trials} trials of all take"
    )
    for pair in record["pairs"][:_PAIRS]:
        results.print(f"open in {pair['open']:.0%}: {' and '.join(pair['pair'])}")


def _table(basis: Basis, goal: Goal, found: Simulated) -> Table:
    """Tabulate each model, the most accurate first, and the share of simulations that decide it."""
    kind, shares = goal.until.kind, {}
    if kind in ("best", "top"):
        shares["best" if kind == "best" else f"in top {goal.until.k}"] = found.placed
    if kind == "above":
        shares = {"above": found.better[:, goal.baseline], "below": found.better[goal.baseline]}
    columns = {
        Column("model", "model", align="left"): np.array(goal.names),
        Column("accuracy", "accuracy", format="{:.3f}"): basis.accuracies,
    }
    for title, share in {**shares, "open": found.open}.items():
        columns[Column(title, title, format="{:.0%}")] = share
    columns[Column("trials", "trials", format="{:.1f}")] = found.rounds
    for unit, digits in zip(UNITS, ("{:,.0f}", "{:.3g}", "{:.3g}"), strict=True):
        if not np.isnan(basis.costs[unit]).all():
            spent = found.attempts * basis.costs[unit]
            columns[Column(unit, unit.replace("gpu_", "GPU-"), format=digits)] = spent
    ranked = np.argsort(-basis.accuracies, kind="stable")
    notes = [
        f"accuracies: {basis.source}; open: share of simulations that end without a decision",
        f"looks after {', '.join(map(str, goal.looks))} trials",
    ]
    return of_columns(question(goal), {c: of[ranked] for c, of in columns.items()}, notes)


def _record(basis: Basis, goal: Goal, budget: BudgetConfig, found: Simulated) -> dict[str, Any]:
    """Return chances, expected spending against that of all trials, and which pairs stay open."""
    runs, whole = len(found.total), basis.p.shape[-1] * goal.trials
    settled = round(found.settled * runs)
    interval = wilson_ci([[1] * settled + [0] * (runs - settled)])
    spent: dict[str, float] = {}
    for unit, each in basis.costs.items():  # 0 where it is not known, as in `spending`
        spent[unit] = float(np.nan_to_num((each * found.attempts).sum()))
        spent[f"fixed_{unit}"] = float(np.nan_to_num(each.sum() * whole))
    each = basis.costs[next(iter(budget.given))] if budget.given else np.ones(len(basis.names))
    undecided = 1 - found.better - found.better.T - found.tied
    pairs = [
        {"pair": [basis.names[b], basis.names[a]], "open": float(undecided[a, b])}
        for a, b in zip(*np.nonzero(np.tril(undecided > 0.005, -1)), strict=True)
    ]
    return {
        "until": goal.cfg.until,
        "settled": found.settled,
        "settled_interval": [float(interval.low), float(interval.high)],
        "right": found.right,
        "wrong": found.wrong,
        "simulations": runs,
        "attempts": round(float(found.attempts.sum())),
        "fixed": len(basis.names) * whole,
        **spent,
        "share_quantiles": np.quantile(found.total / (each.sum() * whole), [0.05, 0.95]).tolist(),
        "budget": budget.given,
        "trials": goal.trials,
        "looks": goal.looks,
        "questions": basis.p.shape[-1],
        "source": basis.source,
        "pairs": sorted(pairs, key=lambda of: -of["open"]) if goal.until.kind == "order" else [],
    }
