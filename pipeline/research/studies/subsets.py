"""Fig. 6 and Tables 8 to 10: convergence@n of Bayes@N by the number of models that are ranked.

The paper's 90 subsets where the models are its twenty (configs/paper/subsets.yaml); of other
models, subsets drawn with the study's seed.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from pipeline.base.console import Meter
from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.plots import convergence as plots
from pipeline.research.studies import Result, merged, paper, shared
from pipeline.research.studies.paper import Subset
from pipeline.research.studies.shared import Bits
from scoring.studies import convergence
from scoring.studies.convergence import Convergence

TABLES = {5: "table8", 10: "table9", 15: "table10"}
DRAWN = {5: 50, 10: 20, 15: 20}
"""Sizes of subsets, and how many, as in the paper."""


def study(plan: StudyPlan, sound: Sequence[tuple[Cohort, Bits]]) -> Result:
    """Every subset of every data set.

    Args:
        plan: seed and counts.
        sound: data sets with their complete outcomes, as of `shared.each_sound`.
    """
    chosen = {cohort.dataset: _chosen(cohort, plan.seed) for cohort, _ in sound}
    notes = [
        f"Subsets of {name}: these are not the paper's twenty models; drawn at random, seed"
        f" {plan.seed}, sizes {', '.join(map(str, _sizes(of))) or 'none (too few models)'}."
        for name, of in chosen.items()
        if not any(subset.printed for subset, _ in of)
    ]
    points: dict[str, dict[tuple[int, int], Convergence]] = defaultdict(dict)
    figures = {}
    with Meter("subsets", sum(len(of) + 1 for of in chosen.values())) as meter:
        for cohort, data in sound:
            sizes: dict[int, list[npt.NDArray[Any]]] = defaultdict(list)
            everything = (Subset(0, (), {}), list(range(len(cohort.names))))
            for subset, models in [*chosen[cohort.dataset], everything]:
                [one] = convergence.convergence_at(
                    data, [shared.BAYES], plan.subset_replicates, seed=plan.seed, models=models
                )
                sizes[len(models)].append(_points(one))
                points[cohort.dataset][len(models), subset.row] = one
                meter.advance(1)
            figures[f"fig6_{cohort.dataset}"] = plots.subsets(
                sorted(sizes),
                {size: np.concatenate(parts) for size, parts in sizes.items()},
                f"convergence@n by the number of models: {cohort.dataset}",
                data.shape[-1],
            )
    alike: dict[Any, list[Cohort]] = defaultdict(list)  # the same models in the same subsets
    for cohort, _ in sound:
        of = chosen[cohort.dataset]
        alike[tuple(tuple(cohort.names[i] for i in models) for _, models in of)].append(cohort)
    results = [
        _of_size(size, cohorts, chosen[cohorts[0].dataset], points, plan)
        for cohorts in alike.values()
        for size in _sizes(chosen[cohorts[0].dataset])
    ]
    return merged(*results, Result({}, figures, {}, notes))


def _chosen(cohort: Cohort, seed: int) -> list[tuple[Subset, list[int]]]:
    """Subsets, with the positions of their models in the cohort."""
    where = {number: i for i, number in enumerate(shared.paper_numbers(cohort)) if number}
    if where.keys() >= {*paper.TWENTY}:
        return [(s, [where[number] for number in s.models]) for s in paper.subsets()]
    drawn = _drawn(seed, len(cohort.names))
    return [(s, [number - 1 for number in s.models]) for s in drawn]


def _sizes(chosen: Sequence[tuple[Subset, list[int]]]) -> list[int]:
    return list(dict.fromkeys(len(models) for _, models in chosen))


def _drawn(seed: int, models: int) -> list[Subset]:
    """Distinct random subsets of the paper's sizes; of all smaller ones where there are few models.

    >>> [s.models for s in _drawn(0, 3)]
    [(1, 2), (1, 3), (2, 3)]
    """
    sizes = {size: count for size, count in DRAWN.items() if size < models}
    sizes = sizes or {size: 20 for size in range(2, models)}
    rng = np.random.default_rng([seed, models])
    subsets = []
    for size, count in sizes.items():
        if math.comb(models, size) <= count:
            chosen = list(itertools.combinations(range(1, models + 1), size))
        else:
            distinct: set[tuple[int, ...]] = set()
            while len(distinct) < count:
                distinct.add(tuple(sorted(1 + int(i) for i in rng.permutation(models)[:size])))
            chosen = sorted(distinct)
        subsets += [Subset(row, one, {}) for row, one in enumerate(chosen, 1)]
    return subsets


def _points(of: Convergence) -> npt.NDArray[np.float32]:
    """convergence@n of every replicate, NaN where it did not converge; in no order."""
    n = np.arange(1, of.counts.size + 1, dtype=np.float32)
    return np.concatenate([np.repeat(n, of.counts), np.full(of.failed, np.nan, np.float32)])


def _of_size(
    size: int,
    cohorts: list[Cohort],
    chosen: list[tuple[Subset, list[int]]],
    points: dict[str, dict[tuple[int, int], Convergence]],
    plan: StudyPlan,
) -> Result:
    """The table of all subsets of one size, with columns for each data set."""
    numbers: dict[str, float] = {}
    rows = []
    for subset, models in chosen:
        if len(models) != size:
            continue
        names = ", ".join(cohorts[0].names[i] for i in models)
        row: dict[str, Any] = {"row": subset.row, "models": names}
        for name in (cohort.dataset for cohort in cohorts):
            one, task = points[name][size, subset.row], paper.task_of(name)
            capped = shared.capped_mean(one)
            row |= {f"{name}_mean": one.mean, f"{name}_failed": one.share_failed}
            row[f"{name}_capped"] = capped
            if subset.printed and task:
                numbers[subset.id(task)] = capped
                if one.mean is not None:
                    numbers[f"{subset.id(task)}.other"] = one.mean
        rows.append(row)
    sets = "_".join(cohort.dataset for cohort in cohorts)
    stem = TABLES[size] if chosen[0][0].printed else f"subsets{size}_{sets}"
    return Result({stem: _table(size, cohorts, rows, plan)}, {}, numbers, [])


def _table(size: int, cohorts: list[Cohort], rows: list[dict[str, Any]], plan: StudyPlan) -> Table:
    columns = [Column("row", "comb."), shared.text("models", "models")]
    for cohort in cohorts:
        columns.append(shared.fixed(f"{cohort.dataset}_mean", "mean n", 1, cohort.dataset))
        columns.append(shared.fixed(f"{cohort.dataset}_failed", "not conv.", 3, cohort.dataset))
        columns.append(shared.fixed(f"{cohort.dataset}_capped", "as N", 1, cohort.dataset))
    notes = [
        "mean convergence@n of Bayes@N without interval, over the replicates that converged; not"
        " conv.: the share that did not; as N: the mean over all replicates, where one that did not"
        " converge counts as N, which is most likely what the paper prints",
        f"{plan.subset_replicates:,} replicates, columns, seed {plan.seed}: the same replicates"
        " for all subsets",
    ]
    return Table(f"Subsets of {size} models: convergence@n", columns, rows, notes)
