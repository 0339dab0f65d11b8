"""What one data set's part of the page shows in numbers: tables, and counts for its map."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import counted
from bayes_at_n.pipeline.compare import caps, comparison
from bayes_at_n.pipeline.compare import rubrics as cohort_rubrics
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import AnalysisConfig
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Column, Table
from bayes_at_n.pipeline.report.names import visible
from bayes_at_n.pipeline.store.outcomes import CORRECT, OWED

LONGEST = 300  # characters of a problem that the map shows
Lengths = tuple[float | None, float | None]  # mean tokens of correct, of other attempts


def counts(cohort: Cohort, texts: bool = True) -> dict[str, Any]:
    """Correct and graded attempts of each model and question, for the page's map.

    Returns `name`, `questions` (M), `correct` and `graded` (L lists of M numbers), and `asked`: how
    problems begin, none where no `texts` are wanted.
    """
    rows = cohort.members[0].run.questions if texts and cohort.members else []
    problems = {row["question_id"]: row["problem"] or "" for row in rows}
    ids = cohort.members[0].question_ids if cohort.members else []
    return {
        "name": cohort.dataset,
        "questions": cohort.question_ids,
        "asked": [visible(problems.get(qid, "")[:LONGEST]) for qid in ids],
        "correct": (cohort.outcomes == CORRECT).sum(axis=2).tolist(),
        "graded": (cohort.outcomes != OWED).sum(axis=2).tolist(),
    }


def tables(cohort: Cohort, cfg: AnalysisConfig, labelled: Cohort | None) -> dict[str, Table]:
    """The tables of a data set by name, the leaderboard first.

    `labelled`: those of them that have categories, if any. Raises UserError: a question that some
    model has no graded trial of.
    """
    found = comparison.tables_of(cohort, cfg)
    if not cfg.scoring.caps:
        found |= caps.tables(cohort, cfg)
    if "votes" not in found and (swings := comparison.swings_of(cohort)) is not None:
        found["votes"] = swings
    return found if labelled is None else found | {"rubrics": cohort_rubrics.scores(labelled, cfg)}


def summary(cohorts: Sequence[Cohort]) -> str:
    """How much there is, in a line.

    >>> from bayes_at_n.pipeline.compare.cohort import from_arrays
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
    return ", ".join(counted(n, noun) for noun, n in parts.items())


def table(source: Table) -> dict[str, Any]:
    """A table as the template takes it: cells with what is shown, and what sorts.

    By default it is sorted by the first of its scores, which is the headline.
    """
    columns = [
        column
        for column in tabular.rounded(source)
        if not column.wide and any(row.get(column.key) is not None for row in source.rows)
    ]
    texts = {column.key for column in columns if _is_text(column, source.rows)}
    titles = {column.key: f"{column.group} {column.title}".strip() for column in columns}
    scores = ("avg", "mu", "score", "mean")
    sorted_by = next((c.key for c in columns if c.key in scores), "")
    order = [float(row[sorted_by]) for row in source.rows if row.get(sorted_by) is not None]
    is_sorted = len(order) == len(source.rows) and order == sorted(order, reverse=True)
    return {
        "title": source.title.partition(":")[0].capitalize(),
        "notes": list(source.notes),
        "columns": [
            {
                "title": title,
                "text": key in texts,
                "brief": len(title) < 7,
                "sorted": "descending" if is_sorted and key == sorted_by else None,
            }
            for key, title in titles.items()
        ],
        "rows": [
            [
                {
                    "text": tabular.shown(column, row.get(column.key)),
                    "sort": _sort_key(row.get(column.key)),
                    "is_text": column.key in texts,
                }
                for column in columns
            ]
            for row in source.rows
        ],
    }


def mean_lengths(index: pa.Table) -> Lengths:
    """Mean completion tokens of correct and of all other graded attempts of one model.

    `index`: the table that :func:`pipeline.report.attempts.index` returned.
    """
    correct = pc.equal(pc.cast(index["outcome"], pa.string()), "correct")  # null where not graded
    sides = (correct, pc.invert(correct))
    good, bad = (pc.mean(index["tokens"].filter(side)).as_py() for side in sides)
    return good, bad


def _sort_key(value: Any) -> str:
    """A cell as JavaScript reads it; nothing where there is no value."""
    return "" if tabular.plain(value) is None else str(value).replace("inf", "Infinity")


def _is_text(column: Column, rows: Sequence[Any]) -> bool:
    return column.align == "left" or any(isinstance(row.get(column.key), str) for row in rows)
