"""The looks of a race: computed from grades, and kept in a log to which lines are only added.

looks.jsonl    a JSON object a look: trials, tokens, e-values, intervals, who left

Nothing is decided from the log.
"""

import itertools
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bayes_at_n.pipeline.adaptive import data, luck
from bayes_at_n.pipeline.adaptive.data import Outcomes
from bayes_at_n.pipeline.adaptive.plan import Contender, Goal
from bayes_at_n.pipeline.adaptive.race import Course, ended, evidence, order, states
from bayes_at_n.pipeline.base import lease

FILE = "looks.jsonl"


def look(contenders: Sequence[Contender], goal: Goal) -> tuple[Course, Outcomes]:
    """Compute every look so far from the grades of runs. Raises UserError: as `of_contenders`."""
    known = data.of_contenders(contenders, goal.trials)
    return course(known, goal), known


def course(known: Outcomes, goal: Goal) -> Course:
    """Compute every look that outcomes reach."""
    seen = [*states(known.codes, goal)]
    spent = [[int(of[:n].sum()) for of, n in zip(known.tokens, s.spent, strict=True)] for s in seen]
    tokens = np.array(spent, np.int64).reshape(-1, len(goal.names))
    basis = None
    if seen and ended(seen[-1], goal):
        basis = luck.basis(known, seen[-1].spent, seen[-1].known.best)
    return Course(goal, seen, tokens, known.codes.shape[1], basis)


def record(folder: Path, seen: Course) -> None:
    """Add the looks that are not in the log yet; other processes may have logged more.

    Half a line of a crash is written anew. Raises OSError: the disk is full.
    """
    path = folder / FILE
    with lease.held(folder / "looks.lease", "recording a look", wait=True), path.open("ab+") as log:
        log.seek(0)
        there = log.read()
        log.truncate(there.rfind(b"\n") + 1)
        for i in range(there.count(b"\n"), len(seen.states)):
            one = row(seen, i) | {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z")}
            log.write(json.dumps(one, ensure_ascii=False).encode() + b"\n")
        log.flush()
        os.fsync(log.fileno())


def row(seen: Course, i: int) -> dict[str, Any]:
    """Return what is known after a look, by model names; differences and e-values by pair."""
    goal, state = seen.goal, seen.states[i]
    known, names, decides = state.known, goal.names, evidence(state, goal)
    models = [
        {
            "model": name,
            **{key: float(getattr(known, key)[k]) for key in ("mean", "low", "high", "log_out")},
            "trials": int(state.spent[k]),
            "tokens": int(seen.tokens[i][k]),
            "log_e": float(decides[k]) if np.isfinite(decides[k]) else None,
            "open": bool(known.open[k]),
            "placed": int(known.placed[k]),
            "sampled": bool(state.sampled[k]),
        }
        for k, name in enumerate(names)
    ]
    pairs = [
        {
            "pair": [names[a], names[b]],
            "log_e": [float(known.log_e[a, b]), float(known.log_e[b, a])],
            "difference": [float(known.difference_low[a, b]), float(known.difference_high[a, b])],
            "decided": "first"
            if known.better[a, b]
            else "second"
            if known.better[b, a]
            else "tied"
            if known.tied[a, b]
            else None,
        }
        for a, b in itertools.combinations(range(len(names)), 2)
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
