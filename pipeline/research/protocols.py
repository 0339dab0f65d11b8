"""Protocols of evaluation: metrics, greedy decoding beside them, and what their trials cost."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

import scoring
from pipeline.config.trajectory import PriceSettings
from pipeline.store import outcomes
from pipeline.store.runfolder import Run
from scoring.metrics import cost, table
from scoring.metrics.table import Metric

AVG, BAYES, GREEDY = "avg", "bayes", "greedy"
PASS = "pass@"  # begins the names of Pass@k
_MILLION = 1e6  # tokens that prices are for


class Tokens(NamedTuple):
    """Mean tokens of an evaluation; None where some run does not say it, as imported ones may."""

    prompt: float | None
    completion: float | None  # of an attempt


def metrics(names: Iterable[str]) -> list[Metric]:
    """avg and bayes, with which all others are compared, and then those named.

    >>> [metric.title(80) for metric in metrics(["pass@2", "avg", "maj@4"])]
    ['avg@80', 'Bayes@80', 'Pass@2', 'Maj@4']
    """
    return table.parse_all([AVG, BAYES, *names])


def title(metric: Metric | None, trials: int | str) -> str:
    """A metric's name in tables; None is greedy decoding."""
    return GREEDY if metric is None else metric.title(trials)


def greedy(R: Any) -> table.Summary:
    """Share of questions that one attempt without chance gets right, so without an interval.

    Args:
        R: outcomes 1 or 0, shape (..., M, 1).
    """
    return table.Summary(np.asarray(scoring.avg(R)[0]), None, None, None)


def passes(chosen: Iterable[Metric], trials: int) -> list[int]:
    """The k of every Pass@k that so many trials are enough for, smallest first."""
    return sorted(m.k for m in chosen if m.name.startswith(PASS) and m.k <= trials)


def tokens(runs: Sequence[Run]) -> Tokens:
    """Means over runs of the tokens of their prompts and their completions."""
    usages = [outcomes.usage(run) for run in runs]
    return Tokens(
        _mean([usage.prompt_mean for usage in usages]),
        _mean([usage.completion_mean for usage in usages]),
    )


def _mean(means: Sequence[float | None]) -> float | None:
    known = [mean for mean in means if mean is not None]
    return float(np.mean(known)) if known and len(known) == len(means) else None


def evaluation_cost(
    used: Tokens, questions: int, trials: float, prices: PriceSettings
) -> float | None:
    """What `trials` attempts at every question by one model cost, at prices per million tokens.

    None where the tokens are not known. Source: MaP, appendix C.
    """
    if used.prompt is None or used.completion is None:
        return None
    one = cost.sampling_cost(used.prompt, used.completion, trials, **vars(prices))
    return float(one * questions / _MILLION)
