"""The table of looks: what was known when. Lines are added and never rewritten.

looks.jsonl    a JSON object a look: trials, tokens, e-values of pairs, intervals, who left
"""

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.base.errors import UserError
from pipeline.settle.plan import Goal
from pipeline.settle.race import State, order
from pipeline.store import lease

FILE = "looks.jsonl"


def read(folder: Path) -> list[dict[str, Any]]:
    """The looks on record; a line that was cut by a crash is none."""
    try:
        lines = (folder / FILE).read_bytes().split(b"\n")
    except FileNotFoundError:
        return []
    return [json.loads(line) for line in lines[:-1] if line.strip(b"\0")]


def record(
    folder: Path, seen: Sequence[tuple[State, list[int]]], goal: Goal
) -> list[dict[str, Any]]:
    """Add the looks that are not on record yet; all that are on record now.

    Args:
        seen: every look since the first, with the tokens of each model by then.

    Raises UserError: what is on record was seen with other outcomes. OSError: the disk is full.
    """
    with lease.held(folder / "looks.lease", "recording a look", wait=True):
        _mend(folder / FILE)
        there = read(folder)
        rows = [row(state, tokens, goal) for state, tokens in seen]
        for old, new in zip(there, rows, strict=False):
            if any(old[key] != new[key] for key in ("trials", "open", "order", "settled")):
                raise UserError(
                    f"{folder / FILE}: look {old['look']} is on record with other outcomes than the"
                    " runs hold now (graded anew?); what was known then stays, so settle anew with"
                    " out=FOLDER"
                )
        with (folder / FILE).open("ab") as file:
            for new in rows[len(there) :]:
                new["time"] = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                file.write(json.dumps(new, ensure_ascii=False).encode() + b"\n")
                there.append(new)
            file.flush()
            os.fsync(file.fileno())
    return there


def _mend(path: Path) -> None:
    """Drop the half line that a crash left at the end."""
    if path.exists():
        data = path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.truncate(path, whole)


def row(state: State, tokens: Sequence[int], goal: Goal) -> dict[str, Any]:
    """A look as it is recorded, by model names; differences and e-values by pair."""
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
        {
            "model": name,
            "mean": float(known.mean[k]),
            "low": float(known.low[k]),
            "high": float(known.high[k]),
            "trials": int(state.spent[k]),
            "tokens": int(tokens[k]),
            "sampled": bool(state.sampled[k]),
        }
        for k, name in enumerate(names)
    ]
    return {
        "look": state.look,
        "trials": state.trials,
        "models": models,
        "pairs": [] if goal.until.kind == "width" else pairs,
        "open": [names[k] for k in np.flatnonzero(known.open)],
        "order": order(known, goal),
        "best": None if known.best is None else names[known.best],
        "settled": bool(known.settled),
    }


def _decided(known: Any, a: int, b: int) -> str | None:
    if known.better[a, b] or known.better[b, a]:
        return "first" if known.better[a, b] else "second"
    return "tied" if known.tied[a, b] else None
