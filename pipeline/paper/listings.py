"""Tables of the paper that hold no measurement: 3 (what each method gives) and 6 (the models)."""

from typing import Any

from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config.analysis import StudyPlan
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import Result, paper, shared


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Table 3, and Table 6 where there are runs."""
    content = paper.read("table3")
    columns = {"method": "method", "who": "according to"} | {key: key for key in content["columns"]}
    rows = [
        dict(zip(columns, (method, who, *cells), strict=True))
        for method, by in content["methods"].items()
        for who, cells in by.items()
    ]
    title = "Table 3: what each method gives"
    tables = {"table3": Table(title, [shared.text(*column) for column in columns.items()], rows)}
    if cohorts:
        tables["table6"] = _models(cohorts)
    return Result(tables)


def _models(cohorts: list[Cohort]) -> Table:
    """The paper's pool of models, and which runs at hand are of them."""
    short_names = paper.short_names()
    columns: dict[Column, list[Any]] = {
        Column("id", "ID"): list(short_names),
        shared.text("short", "short name"): list(short_names.values()),
    }
    for cohort in cohorts:
        names = dict(zip(shared.paper_numbers(cohort), cohort.names, strict=True))
        column = shared.text(cohort.dataset, cohort.dataset)
        columns[column] = [names.get(number) for number in short_names]
    notes = ["a run is one of these models when its folder's or its model's name says so"]
    return of_columns("Table 6: the paper's models and the runs at hand", columns, notes)
