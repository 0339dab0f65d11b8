"""The verbs `study` and `reproduce`: the paper's experiments, and a page that compares them.

A study is a function of a plan and the available cohorts, one per dataset; STUDIES names them.
Studies that the available runs do not suffice for are skipped with a note.
"""

import gc
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bayes_at_n.pipeline.base.console import duration, note, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort
from bayes_at_n.pipeline.compare.cohort import Cohort
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.analysis import SIMULATED, AnalysisConfig, StudyPlan, study_plan
from bayes_at_n.pipeline.display import table as tabular
from bayes_at_n.pipeline.display.table import Column, Table, of_columns
from bayes_at_n.pipeline.paper import (
    index,
    methods,
    ordering,
    printed,
    schemata,
    simulated,
    spending,
    studies,
)
from bayes_at_n.pipeline.paper.index import Section
from bayes_at_n.pipeline.paper.studies import Result, text
from bayes_at_n.pipeline.store import selection


class Study(NamedTuple):
    """One of the paper's experiments."""

    title: str  # on the page
    make: Callable[[StudyPlan, list[Cohort]], Result]  # raises UserError: cohorts do not suffice


STUDIES = {
    "coins": Study("Table 1, Fig. 2 of version 000: biased coins as models", simulated.coins),
    "separation": Study("Fig. 3: trials to tell two close models apart", simulated.separation),
    "priors": Study("Fig. 2 of version 001: older models as a prior", simulated.priors),
    "ranks": Study("Table 2: ranks with and without uncertainty", ordering.ranks),
    "tau": Study("Fig. 4: Kendall's tau with the gold ranking", ordering.tau),
    "convergence": Study("Figs. 1, 5, 6, 9, Tables 8 to 10: convergence@n", ordering.convergence),
    "rubrics": Study("Fig. 7: ranks under each rubric, all datasets", schemata.rubrics),
    "cost": Study("Table 7, Fig. 8: GPU-hours and tokens", spending.cost),
    "rankings": Study("Rankings by other methods", methods.agreement),
}


def listings(cohorts: list[Cohort]) -> Result:
    """Build the tables without measurements: Table 3 and, if there are runs, Table 6."""
    content = printed.read("table3")
    heads = {"method": "method", "who": "according to"} | {key: key for key in content["columns"]}
    rows = [
        dict(zip(heads, (method, who, *cells), strict=True))
        for method, by in content["methods"].items()
        for who, cells in by.items()
    ]
    title = "Table 3: what each method gives"
    tables = {"table3": Table(title, [text(*head) for head in heads.items()], rows)}
    if cohorts:
        short_names = printed.short_names()
        columns: dict[Column, list[Any]] = {
            Column("id", "ID"): list(short_names),
            text("short", "short name"): list(short_names.values()),
        }
        for one in cohorts:
            names = dict(zip(studies.paper_numbers(one), one.names, strict=True))
            columns[text(one.dataset, one.dataset)] = [names.get(number) for number in short_names]
        notes = ["runs are matched with models by the name of their folder or model"]
        title = "Table 6: the paper's models and the available runs"
        tables["table6"] = of_columns(title, columns, notes)
    return Result(tables)


def study(cfg: AnalysisConfig) -> None:
    """Run the studies in `study.name`: save tables and figures in `out`, print tables.

    Raises UserError: a named study, or every study, cannot be made (once the others are saved);
    named runs are missing.
    """
    plan = study_plan(cfg)
    names = cfg.study.names()
    cohorts, no_runs = ([], "") if {*names} <= {*SIMULATED} else _loaded(cfg)
    folder = Path(cfg.out or f"{cfg.runs}/_studies").expanduser()
    saved: dict[str, Any] = {}
    faults: dict[str, str] = {}
    for section in _each(names, plan, cohorts, folder, faults):
        for table in section.tables.values():
            tabular.show(table)
        for line in section.notes:
            note(line)
        tables = {stem: table.rows for stem, table in section.tables.items()}
        saved[section.name] = {"numbers": section.numbers, "tables": tables, "notes": section.notes}
    tabular.print_json({"folder": str(folder), "studies": saved, "left_out": faults})
    if saved:
        note(f"saved {', '.join(saved)} in {folder}")
    if not faults:
        return
    by_fault: dict[str, list[str]] = {}
    for name, fault in faults.items():
        by_fault.setdefault(fault or no_runs, []).append(name)
    lines = "; ".join(f"{', '.join(names)}: {fault}" for fault, names in by_fault.items())
    if cfg.study.name or not saved:
        raise UserError(f"not made: {lines}")
    warn(f"left out: {lines}")


def reproduce(cfg: AnalysisConfig) -> None:
    """Run every study, and write `index.html` with printed numbers beside ours.

    Raises UserError: no study can be made, or named runs are missing.
    """
    began = time.monotonic()
    plan = study_plan(cfg)
    cohorts, no_runs = _loaded(cfg)
    left_out = [f"all that needs runs: {no_runs}"] if no_runs else []
    reproduced(cohorts, plan, cfg.study.names(), Path(cfg.out or "paper"), left_out)
    note(f"reproduce took {duration(time.monotonic() - began)}")


def reproduced(
    cohorts: list[Cohort], plan: StudyPlan, names: list[str], folder: Path, left_out: list[str]
) -> dict[str, float]:
    """Write studies of cohorts and the page into a folder: `reproduce` after runs are read.

    Without `cohorts`, one per dataset, only simulated studies are made. Studies that cannot be made
    are appended to `left_out`. Returns our numbers by their ids in configs/paper/printed.yaml.
    Raises UserError: no study can be made.
    """
    folder = folder.expanduser()
    faults: dict[str, str] = {}
    sections = list(_each(names, plan, cohorts, folder, faults))
    numbers = {key: value for section in sections for key, value in section.numbers.items()}
    left_out += [f"{name}: {fault}" for name, fault in faults.items() if fault]
    if not sections:
        raise UserError(f"no study can be made: {'; '.join(left_out)}")
    sections.append(_save(folder, "listings", "Tables 3 and 6", listings(cohorts)))
    # Studies without any runs count as lacking records, not as left out.
    made = {section.name for section in sections} | {n for n, fault in faults.items() if not fault}
    compared = index.comparison(numbers, {*analysis.STUDIES} - made)
    texts = {"index.html": index.page(sections, compared, left_out)}
    selection.write_results(
        folder, "reproduce", {"numbers": numbers}, {"printed": compared}, texts=texts
    )
    for finding, number, records in index.counts(compared):
        note(f"{finding}: {number} printed numbers, {records} of them need the authors' records")
    results.print(str(folder / "index.html"))
    tabular.print_json(
        {"page": str(folder / "index.html"), "numbers": numbers, "left_out": left_out}
    )
    return numbers


def _loaded(cfg: AnalysisConfig) -> tuple[list[Cohort], str]:
    """Read cohorts; if there are none, return the reason, or raise it if runs were named."""
    try:
        return cohort.load(cfg), ""
    except UserError as error:
        if cfg.dataset or cfg.model or cfg.folders:
            raise
        warn(f"all that needs runs is left out: {error}; only the simulated studies are made")
        return [], str(error)


def _each(
    names: list[str], plan: StudyPlan, cohorts: list[Cohort], folder: Path, faults: dict[str, str]
) -> Iterator[Section]:
    """Run and save studies; `faults` gets why one cannot be made: "" if there are no runs."""
    for name in names:
        if not cohorts and name not in SIMULATED:
            faults[name] = ""
            continue
        try:
            result = STUDIES[name].make(plan, cohorts)
        except UserError as error:
            faults[name] = str(error)
            warn(f"study {name} is left out: {error}")
            continue
        section = _save(folder, name, STUDIES[name].title, result)
        result.figures.clear()
        gc.collect()  # figures are reference cycles, and a study may have drawn forty
        yield section


def _save(folder: Path, name: str, title: str, result: Result) -> Section:
    tables = {selection.file_stem(key): table for key, table in result.tables.items()}
    figures = {selection.file_stem(key): figure for key, figure in result.figures.items()}
    record = {"numbers": result.numbers, "notes": result.notes}
    selection.write_results(folder, name, record, tables, figures)
    return Section(name, title, result.notes, tables, list(figures), result.numbers)
