"""The course of a race: every look so far, and its record, to which lines are only added.

looks.jsonl    a JSON object a look: trials, tokens, e-values, intervals, who left
"""

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.adaptive import RECORD, data
from bayes_at_n.pipeline.adaptive.data import Outcomes
from bayes_at_n.pipeline.adaptive.plan import Contender, Goal
from bayes_at_n.pipeline.adaptive.race import Ints, State, order, states
from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.settle import SettleConfig
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import opened
from bayes_at_n.scoring.sequential import Look

FILE = "looks.jsonl"


class Course(NamedTuple):
    """The L looks at K models."""

    goal: Goal
    states: list[State]
    tokens: Ints  # (L, K) of each model by then; 0 where not known
    questions: int


def course(seen: list[State], known: Outcomes, goal: Goal) -> Course:
    """The course of what was seen in outcomes."""
    tokens = np.array([known.spent(state.spent.tolist()) for state in seen], np.int64)
    return Course(goal, seen, tokens.reshape(-1, len(goal.names)), known.codes.shape[1])


def load(folder: Path) -> Course:
    """The course that is on record in a folder, without a look at the runs.

    Raises UserError: there is none, or it cannot be read.
    """
    plan = runfolder.read_json(folder / RECORD)
    if not plan:
        raise UserError(f"{folder}: holds no {RECORD}; name a folder that `settle` made")
    try:
        asked = {key: plan[key] for key in ("until", "confidence", "margin", "method")}
        goal = Goal(SettleConfig(**asked), plan["models"], plan["looks"][-1], plan["looks"][0])
        rows = read(folder)
        states = [_state(one, goal) for one in rows]
        tokens = [[model["tokens"] for model in one["models"]] for one in rows]
        questions = rows[-1]["questions"] if rows else 0
    except (LookupError, TypeError, ValueError) as error:
        raise UserError(f"{folder}: {RECORD} or {FILE} is damaged ({error})") from error
    return Course(goal, states, np.array(tokens, np.int64).reshape(-1, len(goal.names)), questions)


def stale(folder: Path, seen: Course) -> str:
    """Say why the looks on record are not those that the runs give now; nothing where they are."""
    plan = runfolder.read_json(folder / RECORD)
    try:
        contenders = [
            Contender(name, [opened(Path(plan["cwd"], run)) for run in runs], [])
            for name, runs in zip(seen.goal.names, plan["runs"], strict=True)
        ]
        known = data.of_contenders(contenders, seen.goal.trials)
        now = course([*states(known.codes, seen.goal)], known, seen.goal)
        _agreed(folder, [row(now, i) for i in range(len(now.states))])
    except (UserError, LookupError, TypeError, ValueError) as error:
        return f"stale: {error}"
    if (there := len(now.states)) < len(seen.states):
        return f"stale: look {there + 1} is on record, and its outcomes are not in the runs now"
    return ""


def read(folder: Path) -> list[dict[str, Any]]:
    """The looks on record; a line that was cut by a crash is none.

    Raises UserError: a line is damaged.
    """
    try:
        lines = (folder / FILE).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    try:
        return [json.loads(line) for line in lines[:-1]]
    except (ValueError, RecursionError) as error:
        raise UserError(
            f"{folder / FILE}: a damaged line ({error}); move the file away, and the same command"
            " records every look anew, from the runs"
        ) from error


def record(folder: Path, seen: Course) -> list[dict[str, Any]]:
    """Add the looks that are not on record yet; all that are on record now.

    Raises UserError: what is on record was seen with other outcomes. OSError: the disk is full.
    """
    rows = [row(seen, i) for i in range(len(seen.states))]
    there = _agreed(folder, rows)
    if len(there) >= len(rows):
        return there
    with lease.held(folder / "looks.lease", "recording a look", wait=True):
        _mend(folder / FILE)
        there = _agreed(folder, rows)
        with (folder / FILE).open("ab") as file:
            for new in rows[len(there) :]:
                new["time"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                file.write(json.dumps(new, ensure_ascii=False).encode() + b"\n")
                there.append(new)
            file.flush()
            os.fsync(file.fileno())
    return there


def _agreed(folder: Path, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The looks on record, which were seen with the same outcomes as those of now."""
    there = read(folder)
    for old, new in zip(there, rows, strict=False):
        same = all(old.get(key) == new[key] for key in ("trials", "open", "order", "settled"))
        if not same or not np.allclose(_means(old), _means(new), atol=1e-9):
            raise UserError(
                f"{folder / FILE}: look {new['look']} is on record with other outcomes than the"
                " runs hold now (graded anew?); what was known then stays, so settle anew with"
                " out=FOLDER"
            )
    return there


def _means(look: dict[str, Any]) -> list[float]:
    return [model["mean"] for model in look["models"]]


def _mend(path: Path) -> None:
    """Drop the half line that a crash left at the end."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)


def row(seen: Course, i: int) -> dict[str, Any]:
    """A look as it is recorded, by model names; differences and e-values by pair."""
    goal, state = seen.goal, seen.states[i]
    known, names = state.known, goal.names
    pairs = [
        {
            "pair": [names[a], names[b]],
            "log_e": [float(known.log_e[a, b]), float(known.log_e[b, a])],
            "difference": [float(known.difference_low[a, b]), float(known.difference_high[a, b])],
            "decided": _decided(known, a, b),
        }
        for a in range(len(names))
        for b in range(a + 1, len(names))
    ]
    models = [
        model
        | {"log_out": float(known.log_out[k]), "sampled": bool(state.sampled[k])}
        | {"placed": int(known.placed[k])}
        for k, model in enumerate(of_models(seen, i))
    ]
    return {
        "look": state.look,
        "trials": state.trials,
        "questions": seen.questions,
        "log_needed": float(known.log_needed) if np.isfinite(known.log_needed) else None,
        "models": models,
        "pairs": [] if goal.until.kind == "width" else pairs,
        "open": [names[k] for k in np.flatnonzero(known.open)],
        "order": order(known, goal),
        "best": None if known.best is None else names[known.best],
        "settled": bool(known.settled),
    }


def of_models(seen: Course, i: int) -> list[dict[str, Any]]:
    """What is known of each model after a look."""
    state, known = seen.states[i], seen.states[i].known
    return [
        {
            "model": name,
            **{key: float(getattr(known, key)[k]) for key in ("mean", "low", "high")},
            "trials": int(state.spent[k]),
            "tokens": int(seen.tokens[i][k]),
        }
        for k, name in enumerate(seen.goal.names)
    ]


def _state(row: dict[str, Any], goal: Goal) -> State:
    """What :func:`row` made a line of."""
    place, models = {name: k for k, name in enumerate(goal.names)}, row["models"]
    if [model["model"] for model in models] != goal.names:
        raise ValueError(f"look {row['look']} is of other models")
    column = {key: np.array([of[key] for of in models]) for key in models[0]}
    log_e, better, tied = np.zeros((3, len(models), len(models)))
    low = np.full(log_e.shape, -1.0)
    for pair in row["pairs"]:
        a, b = (place[name] for name in pair["pair"])
        log_e[a, b], log_e[b, a] = pair["log_e"]
        low[a, b], low[b, a] = pair["difference"][0], -pair["difference"][1]
        better[a, b], better[b, a] = (pair["decided"] == side for side in ("first", "second"))
        tied[a, b] = tied[b, a] = pair["decided"] == "tied"
    known = Look(
        round=row["trials"],
        rounds=column["trials"],
        **{key: column[key] for key in ("mean", "low", "high", "log_out", "placed")},
        log_e=log_e,
        log_needed=np.inf if row["log_needed"] is None else row["log_needed"],
        difference_low=low,
        difference_high=-low.T,
        better=better > 0,
        tied=tied > 0,
        open=np.isin(goal.names, row["open"]),
        groups=[[place[name] for name in group] for group in row["order"]],
        best=None if row["best"] is None else place[row["best"]],
        settled=row["settled"],
    )
    return State(row["look"], row["trials"], column["trials"], column["sampled"], known)


def _decided(known: Any, a: int, b: int) -> str | None:
    if known.better[a, b] or known.better[b, a]:
        return "first" if known.better[a, b] else "second"
    return "tied" if known.tied[a, b] else None
