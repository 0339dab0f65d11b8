"""study and reproduce: the paper's experiments as files, and one page that compares them.

Each study is a module of this package. What cannot be made from the runs at hand is left out and
said; the rest goes on.
"""

import gc
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

from pipeline.base.console import clock, note, results, warn
from pipeline.base.errors import UserError
from pipeline.cohorts import cohort
from pipeline.cohorts.cohort import Cohort
from pipeline.config import studies as settings
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.studies import StudyPlan
from pipeline.display import table as tabular
from pipeline.research import studies
from pipeline.research.studies import Result, listings, page
from pipeline.research.studies.page import Section


def study(cfg: AnalysisConfig) -> None:
    """Make the studies that `study.name` names: tables and figures in `out`, tables printed.

    Raises:
        UserError: a study that was named, or every study, cannot be made (after the others are
            saved); runs that were named are not there.
    """
    plan = settings.plan(cfg.study, cfg.rubric, cfg.thresholds)
    names = settings.wanted(cfg.study)
    simulated = set(names) <= set(settings.SIMULATED)
    cohorts, lacking = ([], "") if simulated else _loaded(cfg)
    folder = Path(cfg.out or f"{cfg.runs}/_studies").expanduser()
    saved: list[str] = []
    failed = dict.fromkeys(_without_runs(names, cohorts), lacking)
    for section, result in _each(names, plan, cohorts, folder, failed):
        for table in result.tables.values():
            tabular.show(table)
        for line in result.notes:
            note(line)
        saved.append(section.name)
    if saved:
        note(f"saved {', '.join(saved)} in {folder}")
    lines = [  # studies that lack the same are said in one go
        f"{', '.join(name for name in failed if failed[name] == why)}: {why}"
        for why in dict.fromkeys(failed.values())
    ]
    if failed and (cfg.study.name or not saved):
        raise UserError(f"not made: {'; '.join(lines)}")
    if failed:
        warn(f"left out: {'; '.join(lines)}")


def reproduce(cfg: AnalysisConfig) -> None:
    """Make every study, and `index.html` and `index.md` with printed numbers beside ours.

    Raises:
        UserError: no study at all can be made, or runs that were named are not there.
    """
    began = time.monotonic()
    plan = settings.plan(cfg.study, cfg.rubric, cfg.thresholds)
    cohorts, lacking = _loaded(cfg)
    left_out = [f"all that needs runs: {lacking}"] if lacking else []
    reproduced(cohorts, plan, settings.wanted(cfg.study), Path(cfg.out or "paper"), left_out)
    note(f"reproduce took {clock(time.monotonic() - began)}")


def reproduced(
    cohorts: list[Cohort],
    plan: StudyPlan,
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
        UserError: no study at all can be made.
    """
    folder = folder.expanduser()
    sections: list[Section] = []
    numbers: dict[str, float] = {}
    lacking = _without_runs(names, cohorts)
    failed = dict.fromkeys(lacking, "")
    for section, result in _each(names, plan, cohorts, folder, failed):
        sections.append(section)
        numbers |= result.numbers
    left_out += [f"{name}: {why}" for name, why in failed.items() if why]
    if not sections:
        raise UserError(f"no study can be made: {'; '.join(left_out)}")
    sections.append(_save(folder, "listings", listings.study(plan, cohorts)))
    known = {section.name for section in sections} | {*lacking}
    compared = page.comparison(numbers, {*settings.STUDIES} - known)
    texts = page.pages(sections, compared, left_out)
    tabular.write(folder, "reproduce", {"numbers": numbers}, {"printed": compared}, texts=texts)
    for finding, number, records in page.counts(compared):
        note(f"{finding}: {number} printed numbers, {records} of them need the authors' records")
    results.print(str(folder / "index.html"))
    return numbers


def _loaded(cfg: AnalysisConfig) -> tuple[list[Cohort], str]:
    """Cohorts, or none and why; raises where runs were named and cannot be read."""
    try:
        return cohort.load(cfg), ""
    except UserError as error:
        if cfg.dataset or cfg.model or cfg.folders:
            raise
        warn(f"all that needs runs is left out: {error}; only the simulated studies are made")
        return [], str(error)


def _without_runs(names: list[str], cohorts: list[Cohort]) -> list[str]:
    """Those of some studies that need runs where there are none."""
    return [name for name in names if not cohorts and name not in settings.SIMULATED]


def _each(
    names: list[str], plan: StudyPlan, cohorts: list[Cohort], folder: Path, failed: dict[str, str]
) -> Iterator[tuple[Section, Result]]:
    """Make and save studies, and give them without figures, which hold memory.

    Those that `failed` names are passed over; those that cannot be made are added, with why.
    """
    for name in names:
        if name in failed:
            continue
        try:
            result = studies.run(name, plan, cohorts)
        except UserError as error:
            failed[name] = str(error)
            warn(f"study {name} is left out: {error}")
            continue
        section = _save(folder, name, result)
        result.figures.clear()
        gc.collect()  # figures hold cycles, and a study may have drawn forty
        yield section, result


def _save(folder: Path, name: str, result: Result) -> Section:
    tables = {tabular.file_stem(key): table for key, table in result.tables.items()}
    figures = {tabular.file_stem(key): figure for key, figure in result.figures.items()}
    record = {"numbers": result.numbers, "notes": result.notes}
    tabular.write(folder, name, record, tables, figures)
    module = import_module(f"pipeline.research.studies.{name}")
    title = (module.__doc__ or name).split("\n")[0].rstrip(".")
    return Section(name, title, result.notes, tables, list(figures))
