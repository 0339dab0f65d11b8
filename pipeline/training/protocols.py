"""Protocols of evaluation: metrics, greedy decoding beside them, and what their trials cost."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np

from bayes_at_n.pipeline.config.trajectory import PriceSettings
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.training.stacks import Tokens
from bayes_at_n.scoring.metrics import cost, table
from bayes_at_n.scoring.metrics.table import Metric, Summary

AVG, BAYES = "avg", "bayes"
PASS = "pass@"  # begins the names of Pass@k
AVERAGES = (AVG, BAYES, f"{PASS}1")
"""What orders models alike where all questions have the same number of trials."""
AVERAGE = table.parse(AVG)


def _without_interval(R: Any, **_: Any) -> Summary:
    return Summary(np.asarray(AVERAGE.estimate(R)), None, None, None)


GREEDY = replace(AVERAGE, name="greedy", label="greedy", interval=_without_interval)
"""The share of greedy attempts, (..., M, 1): one a question, without chance and so no interval."""


def metrics(names: Iterable[str]) -> list[Metric]:
    """avg and bayes, with which all others are compared, and then those named.

    >>> [metric.title(80) for metric in metrics(["pass@2", "avg", "maj@4"])]
    ['avg@80', 'Bayes@80', 'Pass@2', 'Maj@4']
    """
    return table.parse_all([AVG, BAYES, *names])


def passes(names: Iterable[str], trials: int) -> list[int]:
    """The k of every Pass@k among metrics that so many trials are enough for, smallest first."""
    return sorted(m.k for m in metrics(names) if m.name.startswith(PASS) and m.k <= trials)


def largest_k(names: Iterable[str]) -> int:
    """The largest k of Pass@k among names of metrics; 1 without any.

    >>> largest_k(["avg", "pass@2", "pass@16", "maj@64"])
    16
    """
    return max((int(m.removeprefix(PASS)) for m in names if m.startswith(PASS)), default=1)


def evaluation_cost(
    used: Tokens, questions: int, trials: float, prices: PriceSettings
) -> float | None:
    """What `trials` attempts at every question by one model cost, at prices per million tokens.

    None where the tokens are not known. Source: MaP, appendix C.
    """
    if used.prompt is None or used.completion is None:
        return None
    each = cost.sampling_cost(used.prompt, used.completion, trials, **vars(prices))
    return float(each * questions / outcomes.MILLION)
