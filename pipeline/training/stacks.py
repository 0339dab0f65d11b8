"""Runs as stacks of outcomes: those of a trajectory, of `prr`, and their greedy twins."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.console import console, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare import differences
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.store import find, outcomes, shards
from bayes_at_n.pipeline.store.runfolder import Run, opened

TWIN = "-greedy"  # ends the name of a greedy run beside a sampled one


class Tokens(NamedTuple):
    """Mean tokens of an evaluation; None where some run does not record it, as imported ones."""

    prompt: float | None
    completion: float | None  # of an attempt


def tokens(runs: Sequence[Run]) -> Tokens:
    """Average over runs the tokens of their prompts and their completions."""
    usages = [outcomes.usage(run) for run in runs]
    return Tokens(
        _mean([usage.prompt_mean for usage in usages]),
        _mean([usage.completion_mean for usage in usages]),
    )


def _mean(means: Sequence[float | None]) -> float | None:
    known = [mean for mean in means if mean is not None]
    return float(np.mean(known)) if known and len(known) == len(means) else None


def stacked(folders: Sequence[Path], like: Cohort | None = None) -> Cohort:
    """Read runs as one stack of outcomes, in the order of their folders.

    `like`: a stack that must be of the same questions. Raises UserError: runs of several data sets;
    a run that cannot be read, is not graded, or holds other questions than the others.
    """
    with console.capture():  # a run that is left out is an error here, and one line is enough
        stacks = cohorts.load(AnalysisConfig(folders=[str(folder) for folder in folders]))
    if len(stacks) > 1:
        raise UserError(
            f"the runs are of several data sets ({', '.join(stack.dataset for stack in stacks)});"
            " name runs of one"
        )
    [stack] = stacks
    if left_out := [line for line in stack.warnings if " is left out: " in line]:
        raise UserError(left_out[0])
    first = (like or stack).members[0].run
    others = {row["question_hash"] for row in first.questions}
    for run in (member.run for member in stack.members):
        own = {row["question_hash"] for row in run.questions}
        if own != others:
            raise UserError(
                f"{run.path}: of its {len(own)} questions {len(own & others)} are among the"
                f" {len(others)} of {first.path}; evaluate all models on the same questions"
            )
    for line in stack.warnings:
        warn(line)
    return stack


def greedy_twins(sampled: Sequence[Path]) -> list[Path] | None:
    """Find the greedy runs beside run folders; None unless each has one that is graded."""
    folders = [path.with_name(path.name + TWIN) for path in sampled]
    if not all(map(find.is_run, folders)):
        return None
    runs = [opened(folder) for folder in folders]
    # None: of imported records that do not state it
    temperatures = [differences.protocol(run)["sampling.temperature"] for run in runs]
    greedy = not any(temperatures) and all(shards.files(run.grades) for run in runs)
    return folders if greedy else None
