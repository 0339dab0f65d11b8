"""Table 2 of both versions and section 3.2: ranks with and without uncertainty, per data set."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtr

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import Result, paper, shared
from bayes_at_n.pipeline.paper.shared import Group
from bayes_at_n.scoring.numerics.inputs import Floats, Ints
from bayes_at_n.scoring.ranking.compare import pairwise_z

Z = 1.645  # the paper's "95 %": one-sided
HIGH, MEDIUM = 7, 9  # gpt-oss-20b-high and -medium in Table 6


class Ranked(NamedTuple):
    """Models of one data set that are ranked together; arrays of shape (models,)."""

    names: list[str]
    numbers: list[int | None]  # in Table 6
    z: Floats  # of every pair, signed
    plain: Ints
    ci: Ints


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """One table for each group of models, with a pair of columns a data set.

    Raises UserError: no data set holds two models.
    """
    by_group: dict[str, dict[str, Ranked]] = {}  # by stem and data set
    labels: dict[str, str] = {}
    faults = []
    for cohort in cohorts:
        if len(cohort.names) < 2:
            faults.append(f"{cohort.dataset}: one model; ranks need two or more")
            continue
        if np.ma.getmaskarray(cohort.matrix()).all(axis=2).any():  # type: ignore[no-untyped-call]
            faults.append(f"{cohort.dataset}: a model has no trial of some question")
            continue
        for group in shared.groups(cohort):
            stem = f"table2_{group.version or f'{len(group.models)}_models'}"
            labels[stem] = group.label
            by_group.setdefault(stem, {})[cohort.dataset] = _ranked(cohort, group)
    if not by_group:
        raise UserError("; ".join(faults) or "no runs found")
    result = Result(notes=[f"left out: {fault}" for fault in faults])
    for stem, by_dataset in by_group.items():
        result.tables[stem] = _table(labels[stem], by_dataset)
    for version in ("000", "001"):
        by_dataset = by_group.get(f"table2_{version}", {})
        by_task = {t: ranked for d, ranked in by_dataset.items() if (t := paper.task_of(d))}
        result.numbers |= _numbers(version, by_task)
    result.notes.append(
        f"Table 2: rule consecutive z, dense, z = {Z} (one-sided 95 %); without interval:"
        " competition ranks of the scores. With the same N for all, avg@N and Bayes@N rank alike"
        " and have the same z; avg@N also holds where N differs."
    )
    return result


def _ranked(cohort: Cohort, group: Group) -> Ranked:
    mean, sigma = scoring.avg(cohort.matrix()[group.models])
    numbers = shared.paper_numbers(cohort)
    return Ranked(
        group.names,
        [numbers[i] for i in group.models],
        pairwise_z(mean, sigma),
        scoring.ranks(mean),
        scoring.ranks_with_uncertainty(mean, sigma, "consecutive_z", Z, "dense"),
    )


def _table(label: str, by_dataset: Mapping[str, Ranked]) -> Table:
    first = by_dataset.get("aime25") or next(iter(by_dataset.values()))
    place = dict(zip(first.names, first.plain, strict=True))
    names = dict.fromkeys(name for ranked in by_dataset.values() for name in ranked.names)
    models = sorted(names, key=lambda name: place.get(name, len(names) + 1))
    columns: dict[Column, list[Any]] = {shared.text("model", "model"): models}
    for dataset, ranked in by_dataset.items():
        for key, title, ranks in (("ci", "w/ CI", ranked.ci), ("plain", "w/o CI", ranked.plain)):
            of_models = dict(zip(ranked.names, ranks.tolist(), strict=True))
            column = Column(f"{dataset}_{key}", title, group=dataset)
            columns[column] = [of_models.get(name) for name in models]
    notes = [f"w/ CI: consecutive z >= {Z}, dense ranks; w/o CI: competition ranks"]
    return of_columns(f"Table 2: ranks, {label}", columns, notes)


def _numbers(version: str, by_task: Mapping[str, Ranked]) -> dict[str, float]:
    """What the paper prints of its own models, by task; see `paper.rows_001` for names of rows."""
    names: dict[int | None, str] = dict(paper.short_names().items())
    if version == "001":
        named, others = paper.rows_001()
        names = dict(named.items())
        if "aime25" in by_task:  # the other rows by their order there
            first = by_task["aime25"]
            order = [first.numbers[i] for i in np.argsort(first.plain, kind="stable")]
            names |= zip((n for n in order if n not in named), others, strict=True)
    numbers: dict[str, float] = {}
    for task, ranked in by_task.items():
        for number, ci, plain in zip(ranked.numbers, ranked.ci, ranked.plain, strict=True):
            if number in names:
                start = f"ranks.{version}.{names[number]}.{task}"
                numbers |= {f"{start}.ci": int(ci), f"{start}.plain": int(plain)}
        _, sizes = np.unique(ranked.ci, return_counts=True)
        numbers[f"ranks.{version}.ties.{task}"] = int((sizes > 1).sum())
        numbers[f"ranks.{version}.distinct.{task}"] = sizes.size
        if HIGH in ranked.numbers and MEDIUM in ranked.numbers:
            i, j = ranked.numbers.index(HIGH), ranked.numbers.index(MEDIUM)
            z = abs(float(ranked.z[i, j]))
            numbers |= {f"ranks.z.{task}": z, f"ranks.rho.{task}": float(ndtr(z))}
    return numbers
