"""Define evaluation protocols: metrics, greedy decoding, their cost, and stacks of runs."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.console import console, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare.cohort import Cohort, protocol
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.config.trajectory import PriceSettings
from bayes_at_n.pipeline.score.likelihood import accuracy
from bayes_at_n.pipeline.store import outcomes, selection, shards
from bayes_at_n.pipeline.store.runfolder import Run, open_run
from bayes_at_n.scoring.metrics import cost, table
from bayes_at_n.scoring.metrics.options import question_mean
from bayes_at_n.scoring.metrics.table import Metric, Summary

TWIN = "-greedy"  # ends the name of a greedy run beside a sampled one
AVG, BAYES = "avg", "bayes"
PASS = "pass@"  # begins the names of Pass@k
AVERAGES = (AVG, BAYES, f"{PASS}1")
"""Metrics that order models alike if all questions have the same number of trials."""
AVERAGE = table.parse(AVG)


def _without_interval(R: Any, **_: Any) -> Summary:
    return Summary(np.asarray(AVERAGE.estimate(R)), None, None, None)


GREEDY = replace(AVERAGE, name="greedy", label="greedy", interval=_without_interval)
"""The share of correct greedy attempts, (..., M, 1); not random, so without an interval."""


def _over_questions(R: Any, confidence: float, **_: Any) -> Summary:
    if R.dtype.kind != "f":
        return accuracy(R[..., 0], confidence, None)
    found = question_mean(R[..., 0], confidence)
    return found._replace(high=np.minimum(found.high, 0.0))  # minus bits per byte


ONCE = replace(AVERAGE, label="accuracy", interval=_over_questions)  # not random, (n, M, 1)
BITS = replace(ONCE, label="-bits per byte")


def metrics(names: Iterable[str]) -> list[Metric]:
    """List avg and bayes, with which all others are compared, and then the metrics in `names`.

    >>> [metric.title(80) for metric in metrics(["pass@2", "avg", "maj@4"])]
    ['avg@80', 'Bayes@80', 'Pass@2', 'Maj@4']
    """
    return table.parse_all([AVG, BAYES, *names])


def largest_k(names: Iterable[str]) -> int:
    """Return the largest k of Pass@k among names of metrics; 1 without any.

    >>> largest_k(["avg", "pass@2", "pass@16", "maj@64"])
    16
    """
    return max((int(m.removeprefix(PASS)) for m in names if m.startswith(PASS)), default=1)


class Tokens(NamedTuple):
    """Mean tokens of an evaluation; None if some run, such as an imported one, has no record."""

    prompt: float | None
    completion: float | None  # per attempt


def tokens(runs: Sequence[Run]) -> Tokens:
    """Average the tokens of prompts and of completions over runs."""
    usages = [outcomes.usage(run) for run in runs]
    return Tokens(
        _mean([usage.prompt_mean for usage in usages]),
        _mean([usage.completion_mean for usage in usages]),
    )


def _mean(means: Sequence[float | None]) -> float | None:
    recorded = [mean for mean in means if mean is not None]
    return float(np.mean(recorded)) if recorded and len(recorded) == len(means) else None


def evaluation_cost(
    used: Tokens, questions: int, trials: float, prices: PriceSettings
) -> float | None:
    """Compute the cost of `trials` attempts by one model at every question.

    Prices are per million tokens. None if tokens are not recorded. Source: MaP, appendix C.
    """
    if used.prompt is None or used.completion is None:
        return None
    per_question = cost.sampling_cost(used.prompt, used.completion, trials, **vars(prices))
    return float(per_question * questions / outcomes.MILLION)


def stacked(folders: Sequence[Path], like: Cohort | None = None) -> Cohort:
    """Read runs as one stack of outcomes, in the order of their folders.

    `like`: a stack that must have the same questions. Raises UserError: runs of several datasets;
    a run that cannot be read, is not graded, or has other questions than the rest.
    """
    with console.capture():  # a run that is left out raises below, and one line is enough
        stacks = cohorts.load(AnalysisConfig(folders=[str(folder) for folder in folders]))
    if len(stacks) > 1:
        raise UserError(
            f"the runs are of several datasets ({', '.join(stack.dataset for stack in stacks)});"
            " name runs of one dataset"
        )
    [stack] = stacks
    if left_out := [line for line in stack.warnings if " is left out: " in line]:
        raise UserError(left_out[0])
    first = (like or stack).members[0].run
    expected = {row["question_hash"] for row in first.questions}
    for run in (member.run for member in stack.members):
        hashes = {row["question_hash"] for row in run.questions}
        if hashes != expected:
            raise UserError(
                f"{run.path}: {len(hashes & expected)} of its {len(hashes)} questions are among the"
                f" {len(expected)} of {first.path}; evaluate all models on the same questions"
            )
    for line in stack.warnings:
        warn(line)
    return stack


def greedy_twins(sampled: Sequence[Path]) -> list[Path] | None:
    """Return the graded greedy runs beside run folders; None unless each has one."""
    folders = [path.with_name(path.name + TWIN) for path in sampled]
    if not all(map(selection.is_run, folders)):
        return None
    runs = [open_run(folder) for folder in folders]
    # Imported records may not state it: None
    temperatures = [protocol(run)["sampling.temperature"] for run in runs]
    greedy = not any(temperatures) and all(shards.files(run.grades) for run in runs)
    return folders if greedy else None
