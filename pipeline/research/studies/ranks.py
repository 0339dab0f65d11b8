"""Table 2 of both versions and section 3.2: ranks with and without uncertainty, per data set."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

import scoring
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.research.studies import Result, paper, shared
from scoring.ranking.compare import pairwise_z
from scoring.ranking.ranks import ranks, ranks_with_uncertainty

Z = 1.645  # the paper's "95 %": one-sided
HIGH, MEDIUM = 7, 9  # gpt-oss-20b-high and -medium in Table 6


class Ranked(NamedTuple):
    """Models of one data set that are ranked together; arrays of shape (models,)."""

    names: list[str]
    numbers: list[int | None]  # in Table 6
    z: npt.NDArray[np.float64]  # of every pair, signed
    plain: npt.NDArray[np.int64]
    ci: npt.NDArray[np.int64]


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """One table for each group of models, with a pair of columns a data set.

    Raises:
        UserError: no data set holds two models.
    """
    groups: dict[str, dict[str, Ranked]] = {}
    labels: dict[str, str] = {}
    notes = []
    for cohort in cohorts:
        if len(cohort.names) < 2:
            notes.append(f"left out: {cohort.dataset}: one model; ranks need two or more")
            continue
        if np.ma.getmaskarray(cohort.matrix()).all(axis=2).any():  # type: ignore[no-untyped-call]
            notes.append(f"left out: {cohort.dataset}: a model has no trial of some question")
            continue
        for group in shared.groups(cohort):
            key = group.version or str(len(group.models))
            labels[key] = group.label
            groups.setdefault(key, {})[cohort.dataset] = _ranked(cohort, group.models)
    if not groups:
        raise UserError("; ".join(notes).replace("left out: ", "") or "no runs found")
    tables: dict[str, Table] = {}
    numbers: dict[str, float] = {}
    for key, of_key in groups.items():
        stem = f"table2_{key}" if key in ("000", "001") else f"table2_{key}_models"
        tables[stem] = _table(labels[key], of_key)
        if key in ("000", "001"):
            by_task = {t: r for d, r in of_key.items() if (t := paper.task_of(d))}
            numbers |= _numbers(key, by_task)
    notes.append(
        f"Table 2: rule consecutive z, dense, z = {Z} (one-sided 95 %); without interval:"
        " competition ranks of the scores. With the same N for all, avg@N and Bayes@N rank alike"
        " and have the same z; avg@N also holds where N differs."
    )
    return Result(tables, {}, numbers, notes)


def _ranked(cohort: Cohort, models: Sequence[int]) -> Ranked:
    matrix = cohort.matrix()[list(models)]
    mean, sigma = scoring.avg(matrix)
    numbers = shared.paper_numbers(cohort)
    return Ranked(
        [cohort.names[i] for i in models],
        [numbers[i] for i in models],
        pairwise_z(mean, sigma),
        ranks(mean),
        ranks_with_uncertainty(mean, sigma, "consecutive_z", Z, "dense"),
    )


def _table(label: str, by_dataset: dict[str, Ranked]) -> Table:
    names = list(dict.fromkeys(name for ranked in by_dataset.values() for name in ranked.names))
    first = by_dataset.get("aime25") or next(iter(by_dataset.values()))
    place = dict(zip(first.names, first.plain, strict=True))
    columns = [shared.text("model", "model")]
    rows: list[dict[str, Any]] = [
        {"model": name} for name in sorted(names, key=lambda name: place.get(name, len(names) + 1))
    ]
    for dataset, ranked in by_dataset.items():
        columns.append(Column(f"{dataset}_ci", "w/ CI", group=dataset))
        columns.append(Column(f"{dataset}_plain", "w/o CI", group=dataset))
        at = {name: i for i, name in enumerate(ranked.names)}
        for row in rows:
            if row["model"] in at:
                row[f"{dataset}_ci"] = int(ranked.ci[at[row["model"]]])
                row[f"{dataset}_plain"] = int(ranked.plain[at[row["model"]]])
    notes = [f"w/ CI: consecutive z >= {Z}, dense ranks; w/o CI: competition ranks"]
    return Table(f"Table 2: ranks, {label}", columns, rows, notes)


def _numbers(version: str, by_task: dict[str, Ranked]) -> dict[str, float]:
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
