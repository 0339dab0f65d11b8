"""Labels that were imported, of a whole cohort: read and stacked, since no signals made them."""

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort, Member
from pipeline.config.analysis import AnalysisConfig
from pipeline.rubrics import categories as rubrics
from pipeline.rubrics import rubric as rubric_of
from pipeline.rubrics.rubric import Rubric
from pipeline.store import rowkeys, runfolder, shards

Categories = npt.NDArray[np.int8]


def categories(cohort: Cohort, cfg: AnalysisConfig) -> dict[str, tuple[Rubric, Categories]]:
    """Every attempt's imported category, under each rubric that all runs have alike.

    Args:
        cohort: with members.
        cfg: `rubric` names rubrics (none: all) and may give other weights.

    Returns:
        Per rubric name the rubric and the categories, int8 (L, M, N), -1 where there is none. What
        some runs lack, or have with other names or weights, is left out with a warning.

    Raises:
        UserError: such a rubric was named; its weights do not fit; a file is damaged.
    """
    told = [_told(member) for member in cohort.members]
    made = {}
    for name in sorted({name for part in told for name in part}):
        if cfg.rubric.names and name not in cfg.rubric.names:
            continue
        if why := _unlike(cohort, name, told):
            if cfg.rubric.names:
                raise UserError(f"rubric={name}: {why}")
            warn(f"{cohort.dataset}: {name} is left out: {why}")
            continue
        try:
            rubric = _rubric(told[0][name])
            if name in cfg.rubric.weights:
                rubric = rubric_of.with_weights(rubric, cfg.rubric.weights[name])
        except (ValueError, KeyError, TypeError) as error:
            raise UserError(f"rubric {name}, imported: {shards.first_line(error)}") from error
        found = np.full(cohort.outcomes.shape, -1, np.int8)
        for part, member in zip(found, cohort.members, strict=True):
            _read(part, member, name, len(rubric.weights))
        made[name] = rubric, found
    return made


def own(cfg: AnalysisConfig, imported: dict[str, Any]) -> AnalysisConfig | None:
    """The settings of the rubrics that are not imported; None where only imported are named."""
    names = [name for name in cfg.rubric.names if name not in imported]
    if cfg.rubric.names and not names:
        return None
    weights = {name: w for name, w in cfg.rubric.weights.items() if name not in imported}
    return replace(cfg, rubric=replace(cfg.rubric, names=names, weights=weights))


def _told(member: Member) -> dict[str, dict[str, Any]]:
    """Per rubric that was imported into a run its name and categories."""
    paths = sorted((member.run.path / "categories").glob("[!._]*.json"))
    told = {path.stem: runfolder.read_json(path) for path in paths}
    return {name: one for name, one in told.items() if one.get("imported")}


def _unlike(cohort: Cohort, name: str, told: list[dict[str, dict[str, Any]]]) -> str:
    """What keeps a rubric from being compared, in words."""
    lacking = [m.name for m, part in zip(cohort.members, told, strict=True) if name not in part]
    if lacking:
        return f"{', '.join(lacking[:5])} of {len(told)} runs have no such labels"
    first = told[0][name].get("categories")
    other = [
        member.name
        for member, part in zip(cohort.members, told, strict=True)
        if part[name].get("categories") != first
    ]
    if other:
        return (
            f"categories of {', '.join(other[:5])} have other names or weights than those of"
            f" {cohort.names[0]}; import them together, or with equal category_names"
        )
    return ""


def _rubric(told: dict[str, Any]) -> Rubric:
    # A rubric wants conditions; of labels nobody evaluates them.
    rows = [dict(one) | {"when": "correct"} for one in told["categories"]]
    keys = ("name", "description")
    return rubric_of.parse({key: told[key] for key in keys} | {"categories": rows})


def _read(found: Categories, member: Member, name: str, number: int) -> None:
    """Fill one run's (M, N) from its table of categories."""
    path = member.run.path / "categories" / f"{name}.parquet"
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            table = file.read().cast(rubrics.CATEGORIES)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UserError(f"{path}: unreadable ({shards.first_line(error)}); import again") from error
    keys = rowkeys.encode(table, pa.array(member.question_ids, pa.string()))
    category = table["category"].to_numpy()
    trials = min(found.shape[1], member.run.cfg.sampling.trials)
    kept = (keys >= 0) & ((keys & 0xFFFFFFFF) < trials) & (category >= 0) & (category < number)
    found[keys[kept] >> 32, keys[kept] & 0xFFFFFFFF] = category[kept]
