"""Outcomes and token counts of the runs on both sides."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from pipeline.base.console import console, warn
from pipeline.base.errors import UserError
from pipeline.cohorts import cohort as cohorts
from pipeline.cohorts.cohort import Cohort, Member
from pipeline.config.analysis import AnalysisConfig
from pipeline.store import find, shards
from pipeline.store.columns import ATTEMPTS


class Usage(NamedTuple):
    """Tokens of an evaluation, means over its models."""

    prompt_tokens: float  # of a question's prompt
    completion_tokens: float  # of an attempt


def stacked(folders: Sequence[Path]) -> Cohort:
    """Runs as one stack of outcomes, in the order of their folders.

    Raises:
        UserError: runs of several data sets; a run that cannot be read, or that lacks a question.
    """
    with console.capture():  # what is left out is an error here, and one line is enough
        found = cohorts.load(AnalysisConfig(folders=[str(folder) for folder in folders]))
    if len(found) > 1:
        raise UserError(
            f"the runs are of several data sets ({', '.join(one.dataset for one in found)});"
            " name runs of one"
        )
    [one] = found
    kept = {member.run.path.resolve() for member in one.members}
    for name, folder in zip(find.names(folders), folders, strict=True):
        if folder.resolve() not in kept:
            why = [line for line in one.warnings if line.startswith(f"{name} is left out")]
            raise UserError(why[0] if why else f"{folder}: cannot be compared with the others")
    for line in one.warnings:
        warn(line)
    return one


def usage(members: Sequence[Member]) -> Usage | None:
    """Measured tokens; None where some run does not tell (imported records may hold texts only)."""
    found = [_of_run(member) for member in members]
    if any(one is None for one in found):
        return None
    return Usage(*np.mean(np.array(found, dtype=np.float64), axis=0).tolist())


def _of_run(member: Member) -> tuple[float, float] | None:
    """Mean tokens of the prompts and of the completions of a run."""
    keys, damage = ("prompt_tokens", "completion_tokens"), shards.Damage()
    total, counted = np.zeros(2), np.zeros(2)
    for batch in shards.batches(member.run.attempts, ATTEMPTS, keys, damage):
        total += [pc.sum(batch[key]).as_py() or 0 for key in keys]
        counted += [pc.count(batch[key]).as_py() for key in keys]
    if not counted.all():
        return None
    prompt, completion = (total / counted).tolist()
    return prompt, completion
