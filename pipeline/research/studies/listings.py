"""Tables of the paper that hold no measurement: 3 (what each method gives) and 6 (the models)."""

from pipeline.cohorts.cohort import Cohort
from pipeline.config.studies import StudyPlan
from pipeline.display.table import Column, Table
from pipeline.research.studies import Result, paper, shared


def study(plan: StudyPlan, cohorts: list[Cohort]) -> Result:
    """Table 3, and Table 6 where there are runs."""
    tables = {"table3": _table_3()}
    if cohorts:
        tables["table6"] = _table_6(cohorts)
    return Result(tables, {}, {}, [])


def _table_3() -> Table:
    """What the paper says that each method gives, and where this library has it."""
    table = paper.table_3()
    rows = [
        {"method": method, "who": who, **dict(zip(table["columns"], cells, strict=True))}
        for method, by in table["methods"].items()
        for who, cells in by.items()
    ]
    columns = [shared.text("method", "method"), shared.text("who", "according to")]
    columns += [shared.text(key, key) for key in table["columns"]]
    return Table("Table 3: what each method gives", columns, rows)


def _table_6(cohorts: list[Cohort]) -> Table:
    """The paper's pool of models, and which runs at hand are of them."""
    at = {}
    for cohort in cohorts:
        numbers = shared.paper_numbers(cohort)
        at[cohort.dataset] = dict(zip(numbers, cohort.names, strict=True))
    columns = [Column("id", "ID"), shared.text("short", "short name")]
    columns += [shared.text(dataset, dataset) for dataset in at]
    rows = [
        {"id": number, "short": short, **{d: names.get(number) for d, names in at.items()}}
        for number, short in paper.short_names().items()
    ]
    notes = ["a run is one of these models when its folder's or its model's name says so"]
    return Table("Table 6: the paper's models and the runs at hand", columns, rows, notes)
