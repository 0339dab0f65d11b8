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
from pipeline.config.studies import Plan
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


def study(plan: Plan, sound: Sequence[tuple[Cohort, Bits]]) -> Result:
    """Every subset of every data set.

    Args:
        plan: seed and counts.
        sound: data sets with their complete outcomes, as of `shared.each_sound`.
    """
    work, notes = [], []
    for cohort, data in sound:
        chosen, said = _chosen(plan, cohort)
        notes += said
        work.append((cohort, data, chosen))
    found: dict[tuple[int, int], dict[str, Convergence]] = defaultdict(dict)
    figures = {}
    judged = [shared.BAYES]
    with Meter("subsets", sum(len(chosen) + 1 for _, _, chosen in work)) as meter:
        for cohort, data, chosen in work:
            sizes: dict[int, list[npt.NDArray[Any]]] = defaultdict(list)
            everything = list(range(len(cohort.names)))
            for subset, models in [*chosen, (None, everything)]:
                [one] = convergence.convergence_at(
                    data, judged, plan.subset_replicates, seed=plan.seed, models=models
                )
                sizes[len(models)].append(_points(one))
                if subset is not None:
                    found[len(models), subset.row][cohort.dataset] = one
                meter.advance(1)
            figures[f"fig6_{cohort.dataset}"] = plots.subsets(
                sorted(sizes),
                {size: np.concatenate(parts) for size, parts in sizes.items()},
                f"convergence@n by the number of models: {cohort.dataset}",
                data.shape[-1],
            )
    results = [
        _of_data_sets([cohort for cohort, _, _ in of_kind], of_kind[0][2], found, plan)
        for of_kind in _alike(work)
        if of_kind[0][2]
    ]
    return merged(*results, Result({}, figures, {}, notes))


def _alike(work: Sequence[Any]) -> list[list[Any]]:
    """Data sets with the same models in the same subsets share tables."""
    kinds: dict[Any, list[Any]] = defaultdict(list)
    for cohort, data, chosen in work:
        names = tuple(tuple(cohort.names[i] for i in models) for _, models in chosen)
        kinds[names].append((cohort, data, chosen))
    return list(kinds.values())


def _chosen(plan: Plan, cohort: Cohort) -> tuple[list[tuple[Subset, list[int]]], list[str]]:
    """Subsets, with the positions of their models in the cohort, and what to say of them."""
    numbers = shared.paper_numbers(cohort)
    where = {number: i for i, number in enumerate(numbers) if number}
    printed = [s for s in paper.subsets() if all(number in where for number in s.models)]
    if len(printed) == len(paper.subsets()):
        return [(s, [where[number] for number in s.models]) for s in printed], []
    drawn = _drawn(plan.seed, len(cohort.names))
    sizes = ", ".join(str(size) for size in dict.fromkeys(len(s.models) for s in drawn))
    said = (
        f"Subsets of {cohort.dataset}: these are not the paper's twenty models; drawn at random,"
        f" seed {plan.seed}, sizes {sizes or 'none (too few models)'}."
    )
    return [(s, [number - 1 for number in s.models]) for s in drawn], [said]


def _drawn(seed: int, models: int) -> list[Subset]:
    """Distinct random subsets of the paper's sizes; of all smaller ones where there are few models.

    >>> [s.models for s in _drawn(0, 3)]
    [(1, 2), (1, 3), (2, 3)]
    """
    sizes = {size: count for size, count in DRAWN.items() if size < models}
    sizes = sizes or {size: 20 for size in range(2, models)}
    rng = np.random.default_rng([seed, models])
    found = []
    for size, count in sizes.items():
        if math.comb(models, size) <= count:
            chosen = list(itertools.combinations(range(1, models + 1), size))
        else:
            distinct: set[tuple[int, ...]] = set()
            while len(distinct) < count:
                distinct.add(tuple(sorted(1 + int(i) for i in rng.permutation(models)[:size])))
            chosen = sorted(distinct)
        found += [Subset(row, one, {}) for row, one in enumerate(chosen, 1)]
    return found


def _points(found: Convergence) -> npt.NDArray[np.float32]:
    """convergence@n of every replicate, NaN where it did not converge; in no order."""
    n = np.arange(1, found.counts.size + 1, dtype=np.float32)
    made = np.repeat(n, found.counts)
    return np.concatenate([made, np.full(found.failed, np.nan, np.float32)])


def _of_data_sets(
    cohorts: list[Cohort],
    chosen: list[tuple[Subset, list[int]]],
    found: dict[tuple[int, int], dict[str, Convergence]],
    plan: Plan,
) -> Result:
    """One table a size of subsets, with a pair of columns a data set."""
    tables, numbers = {}, {}
    by_size: dict[int, list[tuple[Subset, list[int]]]] = defaultdict(list)
    for subset, models in chosen:
        by_size[len(models)].append((subset, models))
    for size, of_size in by_size.items():
        rows = []
        for subset, models in of_size:
            names = ", ".join(cohorts[0].names[i] for i in models)
            row: dict[str, Any] = {"row": subset.row, "models": names}
            for cohort in cohorts:
                one, task = found[size, subset.row][cohort.dataset], paper.task_of(cohort.dataset)
                capped = shared.capped_mean(one)
                row[f"{cohort.dataset}_mean"] = one.mean
                row[f"{cohort.dataset}_capped"] = capped
                row[f"{cohort.dataset}_failed"] = one.share_failed
                if subset.printed and task:
                    numbers[subset.id(task)] = capped
                    if one.mean is not None:
                        numbers[f"{subset.id(task)}.other"] = one.mean
            rows.append(row)
        paper_stem = chosen[0][0].printed and TABLES[size]
        sets = "_".join(cohort.dataset for cohort in cohorts)
        stem = paper_stem or f"subsets{size}_{sets}"
        tables[stem] = _table(size, cohorts, rows, plan)
    return Result(tables, {}, numbers, [])


def _table(size: int, cohorts: list[Cohort], rows: list[dict[str, Any]], plan: Plan) -> Table:
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
