"""A race as people and programs read it: the leaderboard, the JSON object, the files."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.base.console import count, percent
from pipeline.display import files
from pipeline.display.table import Column, Table, of_columns
from pipeline.settle.data import Outcomes
from pipeline.settle.plan import Goal
from pipeline.settle.race import State, ended, order

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_METHODS = {
    "anytime": "the error holds however often one looks",
    "looks": "planned looks with O'Brien-Fleming-like spending, asymptotic",
}


def leaderboard(state: State, tokens: list[int], goal: Goal) -> Table:
    """The models in the order of their means: intervals, what was spent, who is still open."""
    known = state.known
    ranked = [model for group in known.groups for model in group]
    level = percent(goal.cfg.confidence)

    def standing(model: int) -> str:
        if known.best == model:
            return "best"
        if known.open[model] and not known.settled:
            return "open"
        return f"decided at {state.spent[model]} trials"

    return of_columns(
        f"until={goal.cfg.until}, {level} sure",
        {
            Column("model", "model", align="left"): [goal.names[k] for k in ranked],
            Column("group", "group"): [
                number for number, group in enumerate(known.groups, 1) for _ in group
            ],
            Column("mean", "mean of rounds", format="{:.4f}"): known.mean[ranked],
            Column("interval", f"{level} sequence"): [
                f"{known.low[k]:.4f} to {known.high[k]:.4f}" for k in ranked
            ],
            Column("trials", "trials"): state.spent[ranked],
            Column("tokens", "tokens"): [count(tokens[k]) for k in ranked],
            Column("state", "", align="left"): [standing(k) for k in ranked],
        },
        notes=[
            f"{goal.cfg.method}: {_METHODS[goal.cfg.method]}; those of a group are not told apart"
        ],
    )


def verdict(state: State, goal: Goal) -> str:
    """What is decided, and what is not, in words."""
    known, names = state.known, goal.names
    if not known.settled:
        left = ", ".join(names[k] for k in np.flatnonzero(known.open))
        used = "all trials are used" if ended(state, goal) else f"after {state.trials} trials"
        return f"not settled, {used}: {left} {'are' if known.open.sum() > 1 else 'is'} open"
    if goal.until.kind == "width":
        return f"settled: every interval is at most {goal.until.width:g} wide"
    if known.best is not None:
        return f"settled: {names[known.best]} is the best"
    groups = " > ".join(" = ".join(group) for group in order(known, goal))
    return f"settled, the same group within {goal.cfg.margin:g} points or not asked: {groups}"


def spending(state: State, data: Outcomes, goal: Goal) -> dict[str, Any]:
    """Attempts and tokens, of the matrices at the most trials and of those that were needed."""
    questions = data.codes.shape[1]
    tokens = data.spent(state.spent.tolist())
    per_trial = [used / max(1, n) for used, n in zip(tokens, state.spent, strict=True)]
    whole = data.codes.shape[2] >= goal.trials and bool((data.codes >= 0).all())
    fixed = int(data.tokens.sum()) if whole else round(sum(per_trial) * goal.trials)
    return {
        "attempts": int(state.spent.sum()) * questions,
        "fixed": len(goal.names) * questions * goal.trials,
        "tokens": sum(tokens),
        "fixed_tokens": fixed,
    }


def spent_line(spent: dict[str, Any]) -> str:
    """What was spent against a fixed number of trials, in words."""
    share = spent["attempts"] / spent["fixed"]
    text = f"{spent['attempts']:,} of {spent['fixed']:,} attempts ({share:.1%})"
    if spent["tokens"]:
        of_fixed = spent["tokens"] / spent["fixed_tokens"]
        text += (
            f", {count(spent['tokens'])} of {count(spent['fixed_tokens'])} tokens ({of_fixed:.1%})"
        )
    return text


def record(seen: list[State], data: Outcomes, goal: Goal) -> dict[str, Any]:
    """The JSON object: what is settled, what it cost, and every model's estimate."""
    state = seen[-1]
    known = state.known
    tokens = data.spent(state.spent.tolist())
    return {
        "until": goal.cfg.until,
        "settled": bool(known.settled),
        "best": None if known.best is None else goal.names[known.best],
        "order": order(known, goal),
        **spending(state, data, goal),
        "confidence": goal.cfg.confidence,
        "margin": goal.cfg.margin,
        "method": goal.cfg.method,
        "looks": len(seen),
        "trials": state.trials,
        "questions": data.codes.shape[1],
        "shared_seeds": data.shared_seeds,
        "models": [
            {
                "model": name,
                "mean": float(known.mean[k]),
                "low": float(known.low[k]),
                "high": float(known.high[k]),
                "trials": int(state.spent[k]),
                "tokens": tokens[k],
                "open": bool(known.open[k]) and not known.settled,
            }
            for k, name in enumerate(goal.names)
        ],
    }


def write(folder: Path, seen: list[State], data: Outcomes, goal: Goal) -> list[Path]:
    """The leaderboard, the record and the picture, as files.

    Raises OSError: the folder cannot be written.
    """
    state = seen[-1]
    board = leaderboard(state, data.spent(state.spent.tolist()), goal)
    made, figures = record(seen, data, goal), {"race": picture(seen, data, goal)}
    return files.write(folder, "settle", made, {"leaderboard": board}, figures)


def picture(seen: list[State], data: Outcomes, goal: Goal) -> "Figure":
    """Estimates and evidence over what was spent: tokens, or attempts where those are not known."""
    from pipeline.plots import settle as plots  # matplotlib takes half a second

    known = [state.known for state in seen]
    spent = np.array([sum(data.spent(state.spent.tolist())) for state in seen])
    unit = "tokens"
    if not spent.any():
        unit, spent = "attempts", np.array([s.spent.sum() for s in seen]) * data.codes.shape[1]
    leader = known[-1].groups[0][0]
    evidence = np.array([look.log_e[leader] for look in known])
    evidence[:, leader] = np.nan
    return plots.race(
        goal.names,
        (
            np.array([look.mean for look in known]),
            np.array([look.low for look in known]),
            np.array([look.high for look in known]),
        ),
        evidence,
        [state.sampled for state in seen],
        spent,
        unit,
        f"until={goal.cfg.until}: {verdict(state=seen[-1], goal=goal)}",
    )
