"""Shared by the studies: their result, groups of models, metrics, columns."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Bits as Bits
from bayes_at_n.pipeline.compare.cohort import Cohort, complete
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.paper import printed
from bayes_at_n.scoring.metrics.table import Metric, parse
from bayes_at_n.scoring.studies.convergence import Resample, TauCurve

SCHEMES: tuple[Resample, ...] = ("columns", "rows")
BAYES = parse("bayes")
NAIVE = (
    'Naive Pass@k: section 2.7 writes "naive Pass^k" as 1 - (1 - p)^k, p being the share of correct'
    " trials of a question. That is Pass@k with p put in (a plug-in), not the unbiased Pass@k, and"
    " not Pass^k (all k correct), which it cites; all three are drawn under these names."
)
UNDEFINED = "undefined: replicates, over all N, where all models tie; they enter no mean"


@dataclass
class Result:
    """Tables and figures by the stems of their files, numbers, and notes for the reader."""

    tables: dict[str, Table] = field(default_factory=dict)
    figures: dict[str, Figure] = field(default_factory=dict)
    numbers: dict[str, float] = field(default_factory=dict)
    """By the ids of configs/paper/printed.yaml; NaN if no replicate converged. If known,
    ID.low and ID.high are a spread, and ID.other is the number by another reading of the paper."""
    notes: list[str] = field(default_factory=list)
    """Choices that the paper leaves open, and omissions."""


class Group(NamedTuple):
    """Models of a cohort that are ranked together."""

    label: str
    version: str | None  # of the paper: 000 ranks eleven models, 001 twenty; None: other models
    models: list[int]  # positions in the cohort
    names: list[str]
    title: str  # with the dataset
    stem: str  # of files
    paper_id: str | None  # VERSION.TASK; None of other models or datasets


def showcase(trials: int) -> list[Metric]:
    """Return Bayes@N and those of Pass@2/4/8 for which there are enough trials."""
    return _metrics(("bayes", "pass@{}"), trials)


def judged(trials: int) -> list[Metric]:
    """Return the metrics of the tau figures for which there are enough trials; see `NAIVE`."""
    families = ("bayes", "pass@{}", "naive-pass@{}", "pass^{}", "g-pass@{}:0.5", "mg-pass@{}")
    return _metrics(families, trials)


def _metrics(families: Sequence[str], trials: int) -> list[Metric]:
    names = dict.fromkeys(family.format(k) for family in families for k in (2, 4, 8))
    return [metric for metric in map(parse, names) if metric.k <= trials]


def groups(cohort: Cohort) -> list[Group]:
    """Group all models of a cohort and, where there are more, the paper's twenty and first eleven.

    >>> names = [*printed.short_names().values(), "another"]
    >>> from bayes_at_n.pipeline.compare.cohort import from_arrays
    >>> [(g.label, g.version) for g in groups(from_arrays("d", names, ["q"], [[[1, 0]]] * 21))]
    [('21 models', None), ("the paper's 20", '001'), ("the paper's first 11", '000')]
    """
    numbers, task = paper_numbers(cohort), printed.task_of(cohort.dataset)
    pools = {
        "the paper's 20": ("001", printed.TWENTY),
        "the paper's first 11": ("000", printed.ELEVEN),
    }
    version = next((v for v, pool in pools.values() if {n or 0 for n in numbers} == {*pool}), None)
    ranked = [(f"{len(numbers)} models", version, list(range(len(numbers))))]
    ranked += [
        (label, version, [numbers.index(n) for n in pool])
        for label, (version, pool) in pools.items()
        if {*pool} < {*numbers}  # None is the number of another model
    ]
    return [
        Group(
            label,
            version,
            models,
            [cohort.names[i] for i in models],
            f"{cohort.dataset}, {label}",
            f"{cohort.dataset}_{len(models)}",
            f"{version}.{task}" if version and task else None,
        )
        for label, version, models in ranked
    ]


def paper_numbers(cohort: Cohort) -> list[int | None]:
    """Return each model's number in Table 6, by name of its folder or model; None for others."""
    if not cohort.members:
        return printed.numbers_of([[name] for name in cohort.names])
    models = [(member.name, member.run.cfg.model) for member in cohort.members]
    return printed.numbers_of([[name, model.name, model.id] for name, model in models])


def each_complete(cohorts: Iterable[Cohort]) -> tuple[list[tuple[Cohort, Bits]], list[str]]:
    """Return the complete outcomes of cohorts, and notes on gaps and on cohorts left out.

    Raises UserError: none is left.
    """
    usable, faults, notes = [], [], []
    for cohort in cohorts:
        try:
            outcomes, gaps = complete(cohort)
        except UserError as error:
            faults.append(str(error))
        else:
            usable.append((cohort, outcomes))
            notes += gaps
    if not usable:
        raise UserError("; ".join(faults) or "no runs found")
    return usable, [*(f"left out: {fault}" for fault in faults), *notes]


def tabulated(trials: int) -> list[int]:
    """Return the numbers of trials for which tables have τ."""
    return sorted({n for n in (1, 2, 4, 8, 10, 20, 40, 80) if n < trials} | {trials})


def text(key: str, title: str) -> Column:
    """Return a column of text."""
    return Column(key, title, align="left")


def fixed(key: str, title: str, digits: int = 3, group: str = "") -> Column:
    """Return a column of numbers with a fixed number of decimals."""
    return Column(key, title, format=f"{{:.{digits}f}}", group=group)


def value(masked: Any) -> float | None:
    """Return an element of a masked array, None if it is masked."""
    return None if masked is np.ma.masked else float(masked)


def tau_columns(
    curves: Sequence[TauCurve], trials: Iterable[int], group: str, prefix: str = "n"
) -> dict[Column, list[Any]]:
    """Return columns of Kendall's tau at some numbers of trials, with a row per curve."""
    return {
        fixed(f"{prefix}{n}", f"N = {n}", group=group): [value(c.tau[n - 1]) for c in curves]
        for n in trials
    }
