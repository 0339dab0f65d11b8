"""Show a race: the leaderboard, sentences, the JSON object, the files."""

from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.adaptive import looks, race
from bayes_at_n.pipeline.adaptive.plan import DECISION, Goal
from bayes_at_n.pipeline.adaptive.race import Course, Outcomes, State, ended, progress
from bayes_at_n.pipeline.base.console import joined, percent, plural, si
from bayes_at_n.pipeline.compare.conclusion import chance_in_words
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.store import selection

_NAMED = 6  # models that a sentence names, unless they are the result


def question(goal: Goal) -> str:
    """Say what is to be decided, and how surely.

    >>> from bayes_at_n.pipeline.config.multirun import SettleConfig
    >>> question(Goal(SettleConfig(until="top:2"), ["a", "b", "c"], trials=80, block=8))
    'Which 2 are the best? 95% sure'
    """
    questions = {
        "best": "Which is the best",
        "top": f"Which {goal.until.k} are the best" if goal.until.k > 1 else "Which is the best",
        "order": "In which order are they",
        "above": f"Which are better than {goal.until.model}",
        "width": f"How good are they, within an interval of {goal.until.width:g}",
    }
    return f"{questions[goal.until.kind]}? {percent(goal.cfg.confidence)} sure"


def leaderboard(seen: Course) -> Table:
    """Tabulate models in the order of their means: intervals, spending, savings, who is open."""
    goal, state = seen.goal, seen.states[-1]
    look, tokens = state.known, seen.tokens[-1]
    ranked = [model for group in look.groups for model in group]
    level = percent(goal.cfg.confidence)
    columns = {
        Column("model", "model", align="left"): [goal.names[k] for k in ranked],
        Column("group", "group", short="#", wide=goal.until.kind != "order"): [
            number for number, group in enumerate(look.groups, 1) for _ in group
        ],
        Column("mean", "mean of rounds", format="{:.3f}", short="mean"): look.mean[ranked],
        Column("low", "low", format="{:.3f}", group=level): look.low[ranked],
        Column("high", "high", format="{:.3f}", group=level): look.high[ranked],
        Column("trials", "trials", wide=True): state.spent[ranked],
        Column("tokens", "tokens", wide=not tokens.any()): [*map(si, tokens[ranked])],
        Column("saved", "saved", format="{:.0%}"): 1 - state.spent[ranked] / goal.trials,
        Column("state", "outcome", align="left"): [_standing(state, goal, k) for k in ranked],
    }
    alike = "; models of one group (#) are not separated" * (goal.until.kind == "order")
    notes = [
        f"valid at any number of looks{alike}",
        f"saved: share of {plural(goal.trials, 'trial')} per question that was not needed",
    ]
    return of_columns(question(goal), columns, notes)


def _standing(state: State, goal: Goal, model: int) -> str:
    """Say whether a model is open and how far it is decided, or what became of it and when."""
    look, kind = state.known, goal.until.kind
    if look.open[model]:
        share = progress(state, goal)[model]
        return "open" if np.isnan(share) or ended(state, goal) else f"open, {share:.0%} there"
    if look.best == model and kind == "best":
        return "best"
    if kind == "above" and model == goal.baseline:
        return "the baseline"
    spent = int(state.spent[model])
    return f"{_fate(state, goal, model)} at {plural(spent, 'trial')}"


def _fate(state: State, goal: Goal, model: int) -> str:
    """Return what was decided of a model that is not open: in, out, above, below, tied or done."""
    if goal.until.kind in ("order", "width"):
        return "done"
    words = ("tied", "above", "below") if goal.until.kind == "above" else ("tied", "in", "out")
    return words[state.known.placed[model]]


def verdict(seen: Course) -> str:
    """Say what is decided, on which questions, and what is not."""
    state, goal, basis = seen.states[-1], seen.goal, seen.basis
    look, names, kind = state.known, goal.names, goal.until.kind
    word = "settled" if settled(seen) else "ahead"
    here = f" on these {plural(seen.questions, 'question')}"
    ordered = " > ".join(" = ".join(names[model] for model in group) for group in look.groups)
    if not look.settled:
        used = ", all trials are used" if ended(state, goal) else ""
        left = [names[model] for model in np.flatnonzero(look.open)]
        text = f"not settled{used}: {joined(left, _NAMED)} {_are(left)} open"
        partly = kind == "order" and len(look.groups) > 1
        return f"{text}; so far {ordered} (=: not separated)" if partly else text
    if kind == "width":
        word = word if settled(seen) else "not settled, though"
        which = "every interval is" if len(names) > 1 else "the interval is"
        return f"{word}: {which} at most {goal.until.width:g} wide{here}"
    elsewhere = ""
    if basis and basis.nearest is not None and look.best is not None:
        pair = f"{names[look.best]} is better than {names[basis.nearest]}"
        sure = chance_in_words(basis.elsewhere)
        elsewhere = f"; on similar questions {pair} with probability {sure}"
    near = f"less than {plural(goal.cfg.margin, 'point')}"
    if kind == "order":
        tied = f" (=: {near} apart)" if len(look.groups) < len(names) else ""
        return f"{word}{here}, from the best: {ordered}{tied}{elsewhere}"
    ranked = [model for group in look.groups for model in group if model != goal.baseline]
    words = {"above": f"better than {goal.until.model}", "tied": f"{near} from {goal.until.model}"}
    words["below"] = f"worse than {goal.until.model}"
    if kind != "above" and goal.until.k > 1:
        words = {"in": f"in the top {goal.until.k}"}
        words["tied"] = f"tied for the remaining places, {near} apart"
    elif kind != "above":
        words = {"in": "the best", "tied": f"the best, {near} apart"}
    parts = []
    for fate, how in words.items():
        if of := [names[model] for model in ranked if _fate(state, goal, model) == fate]:
            parts.append(f"{joined(of)} {_are(of)} {how}")
    return f"{word}{here}: {'; '.join(parts)}{elsewhere}"


def settled(seen: Course) -> bool:
    """Return whether the error of what is decided holds, as far as its attempts tell."""
    decided, basis = seen.states[-1].known.settled, seen.basis
    sound = basis and (seen.goal.cfg.independent == "trials" or not basis.dependent)
    return bool(decided and sound)


def _are(names: list[str]) -> str:
    return "are" if len(names) > 1 else "is"


def spending(seen: Course, known: Outcomes | None = None) -> dict[str, Any]:
    """Count attempts and tokens, of the matrices at the most trials and of those that were needed.

    Without complete matrices in `known` tokens of the most trials are those of a trial so far.
    """
    goal, spent = seen.goal, seen.states[-1].spent
    whole = known is not None and known.codes.shape[2] >= goal.trials and (known.codes >= 0).all()
    per_trial = seen.tokens[-1] / np.maximum(spent, 1)
    fixed = known.tokens.sum() if known is not None and whole else per_trial.sum() * goal.trials
    return {
        "attempts": int(spent.sum()) * seen.questions,
        "fixed": len(goal.names) * seen.questions * goal.trials,
        "tokens": int(seen.tokens[-1].sum()),
        "fixed_tokens": round(float(fixed)),
    }


def spent_line(spent: dict[str, Any]) -> str:
    """Say what was spent against a fixed number of trials."""
    share = spent["attempts"] / spent["fixed"]
    text = f"{spent['attempts']:,} of {spent['fixed']:,} attempts ({share:.1%})"
    if spent["tokens"]:
        of_fixed = spent["tokens"] / spent["fixed_tokens"]
        text += f", {si(spent['tokens'])} of {si(spent['fixed_tokens'])} tokens ({of_fixed:.1%})"
    return text


def line(seen: Course) -> str:
    """Say the last look in a line."""
    state = seen.states[-1]
    words = f"{verdict(seen)}; {spent_line(spending(seen))}"
    return f"look {state.look}, {state.trials} trials: {words}"


def record(seen: Course, known: Outcomes | None = None) -> dict[str, Any]:
    """Return the JSON object: the last look, what it cost, and how sure it is.

    `settled` needs attempts that do not share luck; `decided` is what the race ended by.
    """
    return {
        **{key: getattr(seen.goal.cfg, key) for key in DECISION},
        **looks.row(seen, -1),
        **spending(seen, known),
        "looks": len(seen.states),
        "decided": bool(seen.states[-1].known.settled),
        "settled": settled(seen),
        **({} if seen.basis is None else {"basis": race.basis_record(seen.basis, seen.goal)}),
    }


def write(folder: Path, seen: Course, known: Outcomes) -> list[Path]:
    """Write the leaderboard and the record. Raises OSError: the folder cannot be written."""
    tables = {"leaderboard": leaderboard(seen)}
    return selection.write_results(folder, "settle", record(seen, known), tables, {})
