"""Categories of imported attempts: one rubric a data set, the same for all of its models."""

from typing import Any, NamedTuple

import pyarrow as pa

from pipeline.config.imports import ImportConfig
from pipeline.imports import names
from pipeline.rubrics import categories
from pipeline.rubrics.categories import Mapped
from pipeline.store import shards
from pipeline.store.columns import GRADES
from pipeline.store.runfolder import Run

Columns = dict[str, list[Any]]  # question_id, trial, category


class Labels(NamedTuple):
    """The categories of one run, and the rubric that they are of."""

    columns: Columns
    rubric: str
    names: list[str]  # of categories 0..C
    weights: list[float]


def shared(cfg: ImportConfig, found: dict[str, Columns]) -> dict[str, Labels]:
    """The labels of every run, with the categories that its data set has in the whole source.

    A model that never reached the best category is still scored by it: names, weights and the
    prior, which has one count a category, must be those of the models beside it.

    Args:
        cfg: names and weights of categories 0..C, where they are given.
        found: per DATASET/MODEL its columns.
    """
    most: dict[str, int] = {}
    for run, columns in found.items():
        dataset = run.split("/")[0]
        most[dataset] = max(most.get(dataset, 1), max(columns["category"]))
    made = {}
    for run, columns in found.items():
        number = len(cfg.category_names) or most[run.split("/")[0]] + 1
        weights = [float(w) for w in cfg.category_weights] or [float(i) for i in range(number)]
        called = cfg.category_names or [f"category {i}" for i in range(len(weights))]
        made[run] = Labels(columns, cfg.rubric, called, weights)
    return made


def grade(run: Run, labels: Labels) -> None:
    """Where a source has categories and no outcomes, the category of most weight is correct."""
    if run.grades.is_dir():
        return
    best = max(labels.weights)
    rows = [
        {
            "question_id": question,
            "trial": trial,
            "outcome": "correct" if labels.weights[category] == best else "wrong",
            "layer": "imported",
            "reason": f"category {category}",
        }
        for question, trial, category in zip(*labels.columns.values(), strict=True)
    ]
    table = pa.Table.from_pylist(rows, schema=GRADES)
    shards.write_part(run.grades / "import-00000.parquet", table)


def save(run: Run, labels: Labels) -> None:
    """Keep the categories as a rubric of the run."""
    told = {
        "name": labels.rubric,
        "description": "labels that were imported",
        "order": [],
        "categories": [
            {"index": i, "name": name, "when": "imported", "weight": weight}
            for i, (name, weight) in enumerate(zip(labels.names, labels.weights, strict=True))
        ],
        "imported": True,  # no condition of ours made them: they rest on no signals
        "thresholds": {},
        "signals": "",
        "labels": [],
    }
    table = pa.Table.from_pydict(labels.columns, schema=categories.CATEGORIES)
    categories.save(run, names.safe_name(labels.rubric), Mapped(table, told))
