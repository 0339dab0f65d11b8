"""Fig. 6 and Tables 8 to 10: convergence@n of Bayes@N by the number of models that are ranked.

The paper's 90 subsets where the models are its twenty (configs/paper/subsets.yaml); of other
models, subsets drawn with the study's seed.
"""

import itertools
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from matplotlib.figure import Figure

from bayes_at_n.pipeline.base.console import Meter
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, of_columns
from bayes_at_n.pipeline.paper import Result, paper, shared
from bayes_at_n.pipeline.paper.paper import Subset
from bayes_at_n.pipeline.paper.shared import Bits
from bayes_at_n.pipeline.plots import convergence as plots
from bayes_at_n.scoring.studies import convergence
from bayes_at_n.scoring.studies.convergence import Convergence

TABLES = {5: "table8", 10: "table9", 15: "table10"}
DRAWN = {5: 50, 10: 20, 15: 20}
"""Sizes of subsets, and how many, as in the paper."""


def add(result: Result, plan: StudyPlan, sound: Sequence[tuple[Cohort, Bits]]) -> None:
    """Add every subset of every data set; `sound` holds them with their complete outcomes."""
    chosen = {cohort.dataset: _chosen(cohort, plan.seed) for cohort, _ in sound}
    measured: dict[str, list[Convergence]] = {}  # by data set, in the order of its subsets
    alike: dict[Any, list[str]] = defaultdict(list)  # data sets with the same names in all subsets
    with Meter("subsets", sum(len(of) + 1 for of in chosen.values())) as meter:
        for cohort, outcomes in sound:
            dataset, of_dataset = cohort.dataset, chosen[cohort.dataset]
            positions = [models for _, models in of_dataset]
            measured[dataset] = []
            for models in [*positions, list(range(len(cohort.names)))]:
                measured[dataset] += convergence.convergence_at(
                    outcomes[models], [shared.BAYES], plan.subset_replicates, seed=plan.seed
                )
                meter.advance(1)
            sizes = [*map(len, positions), len(cohort.names)]
            result.figures[f"fig6_{dataset}"] = _figure(dataset, sizes, measured[dataset])
            alike[tuple(tuple(cohort.names[i] for i in own) for own in positions)].append(dataset)
            if not any(subset.printed for subset, _ in of_dataset):
                known = ", ".join(map(str, dict.fromkeys(sizes[:-1]))) or "none (too few models)"
                result.notes.append(
                    f"Subsets of {dataset}: these are not the paper's twenty models; drawn at"
                    f" random, seed {plan.seed}, sizes {known}."
                )
    for names, datasets in alike.items():
        subsets = [subset for subset, _ in chosen[datasets[0]]]
        for size in dict.fromkeys(map(len, names)):
            _add_table(result, plan, size, names, subsets, {d: measured[d] for d in datasets})


def _chosen(cohort: Cohort, seed: int) -> list[tuple[Subset, list[int]]]:
    """Subsets, with the positions of their models in the cohort."""
    where = {number: i for i, number in enumerate(shared.paper_numbers(cohort)) if number}
    if where.keys() >= {*paper.TWENTY}:
        return [(s, [where[number] for number in s.models]) for s in paper.subsets()]
    drawn = _drawn(seed, len(cohort.names))
    return [(s, [number - 1 for number in s.models]) for s in drawn]


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
        subsets += [Subset(row, numbers, {}) for row, numbers in enumerate(chosen, 1)]
    return subsets


def _figure(dataset: str, sizes: list[int], measured: list[Convergence]) -> Figure:
    """Distributions of convergence@n by the number of models."""
    trials = measured[0].counts.size
    points: dict[int, list[npt.NDArray[np.float32]]] = defaultdict(list)
    for size, at in zip(sizes, measured, strict=True):
        points[size].append(np.repeat(np.arange(1, trials + 1, dtype=np.float32), at.counts))
        points[size].append(np.full(at.failed, np.nan, np.float32))
    return plots.subsets(
        sorted(points),
        {size: np.concatenate(parts) for size, parts in points.items()},
        f"convergence@n by the number of models: {dataset}",
        trials,
    )


def _add_table(
    result: Result,
    plan: StudyPlan,
    size: int,
    names: Sequence[Sequence[str]],
    subsets: Sequence[Subset],
    measured: Mapping[str, Sequence[Convergence]],
) -> None:
    """The table of all subsets of one size, with columns for each data set."""
    of_size = [i for i, own in enumerate(names) if len(own) == size]
    columns: dict[Column, list[Any]] = {
        Column("row", "comb."): [subsets[i].row for i in of_size],
        shared.text("models", "models"): [", ".join(names[i]) for i in of_size],
    }
    for dataset, of_dataset in measured.items():
        ats = [of_dataset[i] for i in of_size]
        capped = [at.capped_mean for at in ats]
        columns |= {
            shared.fixed(f"{dataset}_mean", "mean n", 1, dataset): [at.mean for at in ats],
            shared.fixed(f"{dataset}_failed", "not conv.", 3, dataset): [
                at.share_failed for at in ats
            ],
            shared.fixed(f"{dataset}_capped", "as N", 1, dataset): capped,
        }
        if (task := paper.task_of(dataset)) and subsets[0].printed:
            for i, at, mean in zip(of_size, ats, capped, strict=True):
                result.numbers[subsets[i].id(task)] = mean
                if at.mean is not None:
                    result.numbers[f"{subsets[i].id(task)}.other"] = at.mean
    notes = [
        "mean convergence@n of Bayes@N without interval, over the replicates that converged; not"
        " conv.: the share that did not; as N: the mean over all replicates, where one that did not"
        " converge counts as N, which is most likely what the paper prints",
        f"{plan.subset_replicates:,} replicates, columns, seed {plan.seed}: the same replicates"
        " for all subsets",
    ]
    stem = TABLES[size] if subsets[0].printed else f"subsets{size}_{'_'.join(measured)}"
    title = f"Subsets of {size} models: convergence@n"
    result.tables[stem] = of_columns(title, columns, notes)
