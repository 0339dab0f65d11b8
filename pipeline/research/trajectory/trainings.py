"""The training runs whose checkpoints are looked at: what they are called, their steps."""

import itertools
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.research.checkpoints import folders
from pipeline.research.checkpoints.folders import Checkpoint

LEAST = 2  # checkpoints, or windows, without which nothing can go up or down


class Training(NamedTuple):
    """One training run."""

    name: str  # "" where there is one of no name
    checkpoints: list[Checkpoint]  # in the order of training
    steps: list[int]  # of each checkpoint


def find(patterns: Mapping[str, Sequence[str]], sizes: Sequence[int]) -> list[Training]:
    """The training runs that settings name, in the order named.

    Args:
        patterns: folders or globs of checkpoints by training run.
        sizes: of the windows to be merged.

    Raises:
        UserError: no checkpoint there, too few of them for a window, two of one name.
    """
    found = {name: folders.find(of) for name, of in patterns.items()}
    for name, checkpoints in found.items():
        _check(name, checkpoints, sizes)
    known = {name: _steps(name, checkpoints) for name, checkpoints in found.items()}
    counted = None in known.values()
    return [
        Training(name, of, [*range(1, len(of) + 1)] if counted else known[name] or [])
        for name, of in found.items()
    ]


def _check(name: str, checkpoints: Sequence[Checkpoint], sizes: Sequence[int]) -> None:
    key, count = f"checkpoints.{name}" if name else "checkpoints", len(checkpoints)
    paths: dict[str, Checkpoint] = {}
    for one in checkpoints:
        if one.name in paths:
            raise UserError(
                f"{key}: {paths[one.name].path} and {one.path} are both called {one.name};"
                " training runs that share names are told apart by checkpoints.NAME=FOLDER"
            )
        if not re.fullmatch(r"[\w.+-]+", one.name):
            raise UserError(
                f"{one.path}: the folder's name becomes that of its run; rename it to letters,"
                " digits, - . + and _"
            )
        paths[one.name] = one
    if count < LEAST:
        raise UserError(f"{key}: holds {count} checkpoint; a trajectory needs {LEAST} or more")
    for size in sizes:
        if size > count:
            raise UserError(
                f"merge={size}: {key} holds {count} checkpoints, fewer than one window takes;"
                f" merge={count - 1} is the largest that leaves {LEAST} windows"
                if count > LEAST
                else f"merge={size}: {key} holds {count} checkpoints; merge=[] leaves windows out"
            )
        if count - size + 1 < LEAST:
            raise UserError(
                f"merge={size}: of {count} checkpoints ({key}) that is one window, and one point"
                " has no order of training to agree with; "
                + (f"merge={size - 1} leaves {LEAST}" if size > LEAST else "merge=[] leaves it out")
            )


def _steps(name: str, checkpoints: Sequence[Checkpoint]) -> list[int] | None:
    """The steps in the folders' names, or None where they do not tell the order."""
    steps = [one.step for one in checkpoints]
    known = [step for step in steps if step is not None]
    of = f"checkpoints.{name}" if name else "checkpoints"
    if len(known) < len(steps):
        unread = next(one.name for one in checkpoints if one.step is None)
        warn(f"{of}: {unread} has no step in its name; they are numbered 1 to {len(steps)}")
        return None
    for before, after in itertools.pairwise(checkpoints):
        assert before.step is not None and after.step is not None
        if after.step <= before.step:
            warn(
                f"{of}: {after.name} comes after {before.name} and its step is not larger; the"
                f" order given counts, numbered 1 to {len(steps)}"
            )
            return None
    return known
