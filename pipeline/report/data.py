"""What one data set's part of the page shows in numbers: tables, and counts for its map."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from pipeline.cohorts import leaderboard, neighbours
from pipeline.cohorts import rubrics as cohort_rubrics
from pipeline.cohorts.cohort import Cohort
from pipeline.config.analysis import AnalysisConfig
from pipeline.display import table as tabular
from pipeline.display.table import Column, Table
from pipeline.store.outcomes import CORRECT, OWED

Lengths = tuple[float, float]  # mean tokens of correct, of other attempts; NaN without any
_ENDS = ("low", "mu", "high")


def counts(cohort: Cohort) -> dict[str, Any]:
    """Correct and graded attempts of each model and question, for the page's map.

    Returns:
        `name`, `questions` (M), `correct` and `graded` (L lists of M numbers).
    """
    return {
        "name": cohort.dataset,
        "questions": cohort.question_ids,
        "correct": (cohort.outcomes == CORRECT).sum(axis=2).tolist(),
        "graded": (cohort.outcomes != OWED).sum(axis=2).tolist(),
    }


def tables(cohort: Cohort, cfg: AnalysisConfig, labelled: Cohort | None) -> list[Table]:
    """The tables of a data set, the leaderboard first.

    Args:
        cohort: L models.
        cfg: settings.
        labelled: those of them that have categories, if any.

    Raises:
        UserError: a question that some model has no graded trial of.
    """
    board = leaderboard.leaderboard(cohort, cfg)
    listed = [board, leaderboard.metrics(board, cfg), leaderboard.attempts(board)]
    if len(cohort.names) > 1:
        listed += [neighbours.order_of_neighbours(cohort, cfg)]
        listed += [neighbours.posterior_ranks(cohort, cfg)]
    if labelled is not None:
        listed += [cohort_rubrics.scores(labelled, cfg)]
    return [one for one in listed if one is not None]


def summary(cohorts: Sequence[Cohort]) -> str:
    """How much there is, in a line.

    >>> from pipeline.cohorts.cohort import from_arrays
    >>> summary([from_arrays("coins", ["a", "b"], ["q1"], [[[1, 0]], [[1, -1]]])])
    '2 models, 1 question, 3 graded attempts'
    """
    models = {name for cohort in cohorts for name in cohort.names}
    questions = sum(len(cohort.question_ids) for cohort in cohorts)
    graded = sum(int((cohort.outcomes != OWED).sum()) for cohort in cohorts)
    parts = {"model": len(models), "data set": len(cohorts), "question": questions}
    parts |= {"graded attempt": graded}
    if len(cohorts) == 1:
        del parts["data set"]
    return ", ".join(f"{n:,} {noun}{'s' * (n != 1)}" for noun, n in parts.items())


def table(source: Table, sorted_by: str = "mu") -> dict[str, Any]:
    """A table as the template takes it: cells with what is shown, what sorts, and interval bars."""
    columns = [
        column
        for column in source.columns
        if not column.wide and any(row.get(column.key) is not None for row in source.rows)
    ]
    ends = {column.key for column in columns} & set(_ENDS)
    scale = _scale(source.rows) if len(ends) == len(_ENDS) else None
    order = [float(row[sorted_by]) for row in source.rows if row.get(sorted_by) is not None]
    is_sorted = len(order) == len(source.rows) and order == sorted(order, reverse=True)
    kinds = {column.key: _is_text(column, source.rows) for column in columns}
    return {
        "title": source.title.partition(":")[0].capitalize(),
        "notes": list(source.notes),
        "columns": [
            {
                "title": f"{column.group} {column.title}".strip(),
                "text": kinds[column.key],
                "brief": len(f"{column.group} {column.title}".strip()) < 7,
                "sorted": "descending" if is_sorted and column.key == sorted_by else None,
            }
            for column in columns
        ],
        "rows": [
            [_cell(column, row, kinds[column.key], scale) for column in columns]
            for row in source.rows
        ],
    }


def mean_lengths(index: dict[str, Any]) -> Lengths:
    """Mean completion tokens of correct and of all other graded attempts of one model.

    Args:
        index: what :func:`pipeline.report.attempts.index` returned.
    """
    outcomes = np.array([*index["outcome"]["values"], "owed"])[index["outcome"]["codes"]]
    tokens: Any = np.ma.masked_invalid(np.array(index["tokens"], float))  # type: ignore[no-untyped-call]
    correct = outcomes == "correct"
    sides = (tokens[correct], tokens[~correct & (outcomes != "owed")])
    good, bad = (float(side.mean()) if side.count() else math.nan for side in sides)
    return good, bad


def _cell(
    column: Column, row: Any, is_text: bool, scale: tuple[float, float] | None
) -> dict[str, Any]:
    value = row.get(column.key)
    sort = "" if tabular.plain(value) is None else str(value).replace("inf", "Infinity")
    bar = None
    if scale and column.key == "mu" and all(row.get(key) is not None for key in _ENDS):
        low, width = scale
        bar = [round(100 * (row[key] - low) / width, 2) for key in _ENDS]
    return {"text": tabular.shown(column, value), "sort": sort, "is_text": is_text, "bar": bar}


def _scale(rows: Sequence[Any]) -> tuple[float, float] | None:
    """Where the bars of a column begin, and how much they span."""
    seen = [row for row in rows if all(row.get(key) is not None for key in _ENDS)]
    if not seen:
        return None
    low, high = min(row["low"] for row in seen), max(row["high"] for row in seen)
    return low, max(high - low, 1e-12)


def _is_text(column: Column, rows: Sequence[Any]) -> bool:
    return column.align == "left" or any(isinstance(row.get(column.key), str) for row in rows)
