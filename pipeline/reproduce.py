"""study and reproduce: the paper's experiments as files, and one page that compares them.

Each study is a module of :mod:`pipeline.studies`. What cannot be made from the runs at hand is left
out and said; the rest goes on.
"""

import gc
import re
import time
from importlib import import_module
from pathlib import Path

from pipeline import cohort, studies, tabular
from pipeline.analysis import AnalysisConfig
from pipeline.cohort import Cohort
from pipeline.console import clock, note, results, warn
from pipeline.errors import UserError
from pipeline.plots import style
from pipeline.studies import Result, listings, page, settings
from pipeline.studies.page import Section


def study(cfg: AnalysisConfig) -> None:
    """Make the studies that `study.name` names: tables and figures in `out`, tables printed.

    Raises:
        UserError: a study cannot be made from the runs at hand, or nothing can be written.
    """
    plan, names = _plan(cfg), settings.wanted(cfg.study)
    cohorts = [] if set(names) <= set(settings.SIMULATED) else cohort.load(cfg)
    folder = Path(cfg.out or f"{cfg.runs}/_studies").expanduser()
    for name in names:
        try:
            found = studies.run(name, plan, cohorts)
        except UserError as error:
            if cfg.study.name:
                raise
            warn(f"study {name} is left out: {error}")
            continue
        for table in found.tables.values():
            results.print(tabular.to_rich(table))
        for line in found.notes:
            note(line)
        _save(folder, name, found)
    note(f"saved {', '.join(names)} in {folder}")


def reproduce(cfg: AnalysisConfig) -> None:
    """Make every study, and `index.html` and `index.md` with printed numbers beside ours.

    Raises:
        UserError: no study at all can be made, or nothing can be written.
    """
    began, plan = time.monotonic(), _plan(cfg)
    left_out: list[str] = []
    try:
        cohorts = cohort.load(cfg)
    except UserError as error:
        if cfg.dataset or cfg.model or cfg.folders:
            raise
        cohorts = []
        left_out.append(f"all that needs runs: {error}")
        warn(f"{left_out[0]}; only the simulated studies are made")
    reproduced(cohorts, plan, settings.wanted(cfg.study), Path(cfg.out or "paper"), left_out)
    note(f"reproduce took {clock(time.monotonic() - began)}")


def reproduced(
    cohorts: list[Cohort],
    plan: settings.Plan,
    names: list[str],
    folder: Path,
    left_out: list[str],
) -> dict[str, float]:
    """Make studies of cohorts, and the page, in a folder: `reproduce` once runs are read.

    Args:
        cohorts: one per data set; none: only simulated studies.
        plan: seed and counts.
        names: studies.
        folder: where files go.
        left_out: what was left out before; studies that cannot be made are added.

    Returns:
        Our numbers by their ids in configs/paper/printed.yaml.

    Raises:
        UserError: no study at all can be made, or nothing can be written.
    """
    folder = folder.expanduser()
    sections: list[Section] = []
    numbers: dict[str, float] = {}
    for name in names:
        if not cohorts and name not in settings.SIMULATED:
            continue
        try:
            found = studies.run(name, plan, cohorts)
        except UserError as error:
            left_out.append(f"{name}: {error}")
            warn(f"study {name} is left out: {error}")
            continue
        sections.append(_save(folder, name, found))
        numbers |= found.numbers
        del found
        gc.collect()  # figures hold cycles, and a study may have drawn forty
    if not sections:
        raise UserError(f"no study can be made: {'; '.join(left_out)}")
    lists = {"table3": listings.table_3()}
    if cohorts:
        lists["table6"] = listings.table_6(cohorts)
    sections.append(_save(folder, "listings", Result(lists, {}, {}, [])))
    compared = page.comparison(numbers)
    try:
        tabular.save(compared, folder, "printed")
        page.write(folder, sections, compared, left_out)
    except OSError as error:
        raise _unwritable(folder, error) from error
    for verdict, number, records in page.counts(compared):
        note(f"{verdict}: {number} printed numbers, {records} of them need the authors' records")
    results.print(str(folder / "index.html"))
    return numbers


def _plan(cfg: AnalysisConfig) -> settings.Plan:
    return settings.plan(cfg.study, cfg.schema, cfg.thresholds)


def _save(folder: Path, name: str, found: Result) -> Section:
    """Write a study's files, under stems that are safe as file names and links."""
    tables = {_stem(key): table for key, table in found.tables.items()}
    figures = {_stem(key): figure for key, figure in found.figures.items()}
    try:
        for stem, table in tables.items():
            tabular.save(table, folder, stem)
        for stem, figure in figures.items():
            style.save(figure, folder / stem)
    except OSError as error:
        raise _unwritable(folder, error) from error
    title = (import_module(f"pipeline.studies.{name}").__doc__ or name).split("\n")[0].rstrip(".")
    return Section(name, title, found.notes, tables, list(figures))


def _stem(key: str) -> str:
    """A key as a file name: data sets may be called anything.

    >>> _stem("fig4_my set/2_20")
    'fig4_my_set_2_20'
    """
    return re.sub(r"[^\w.-]", "_", key)


def _unwritable(folder: Path, error: OSError) -> UserError:
    return UserError(f"out={folder}: {error.strerror or error}; name a folder that can be written")
