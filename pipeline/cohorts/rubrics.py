"""Rubrics of a whole cohort, computed anew with one set of thresholds; no file is touched.

What `categorize` left in the run folders may come from thresholds of one run each, and categories
of different thresholds are never mixed. So a comparison takes the signals, computes the thresholds
of all models together (or takes frozen ones) and assigns categories again, in memory. Labels that
were imported rest on no signals: they are read as they are.
"""

from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

import scoring
from pipeline.base.console import warn
from pipeline.base.errors import UserError
from pipeline.cohorts.cohort import Cohort, Member
from pipeline.config.analysis import AnalysisConfig
from pipeline.config.scoring import RubricConfig
from pipeline.display.table import Column, Table
from pipeline.rubrics import categories as rubrics
from pipeline.rubrics import categorize, variables
from pipeline.rubrics import rubric as rubric_of
from pipeline.rubrics.categories import Mapped
from pipeline.rubrics.rubric import Rubric, Unsound
from pipeline.store import rowkeys, runfolder, shards
from pipeline.store.runfolder import Run

Categories = npt.NDArray[np.int8]
ByRubric: TypeAlias = dict[str, tuple[Rubric, Categories]]
Signals = dict[str, Any]


def categories(cohort: Cohort, cfg: AnalysisConfig) -> ByRubric:
    """Every attempt's category under each rubric that all runs of the cohort have signals for.

    Args:
        cohort: with members.
        cfg: `rubric` names rubrics (none: all of configs/rubric) and weights; `thresholds` says
            whose quantiles: `scope` cohort (all models together, the default) or model (each its
            own, which compares less), or a `file`; and whether invalid attempts enter.

    Returns:
        Per rubric name the rubric and the categories 0..C, int8, shape (L, M, N), with -1 where an
        attempt is owed, not graded or has no verdict. Rubrics that need what a run lacks are left
        out with a warning. Rubrics that were imported come first, where all runs have them with
        equal names and weights. Empty for a cohort without members.

    Raises:
        UserError: a run without current signals; a rubric that was named and cannot be made; one
            that leaves a hole or an undeclared overlap; frozen thresholds of another data set.

    Source: arXiv 2510.04265, appendix D and Table 4; pooling is our reading (docs/rubrics.md).
    """
    return _assigned(cohort, cfg)[0]


def scores(cohort: Cohort, cfg: AnalysisConfig) -> Table:
    """Bayes@N of every model under each rubric, with ranks by the rubric's avg.

    Raises:
        UserError: as for :func:`categories`.
    """
    assigned, judged = _assigned(cohort, cfg)
    rows: list[dict[str, Any]] = [{"model": name} for name in cohort.names]
    columns = [Column("model", "model", align="left")]
    for name, (rubric, of_attempts) in assigned.items():
        counted = counts(rubric, of_attempts)
        ends = (min(rubric.weights), max(rubric.weights))
        summary = scoring.bayes_ci(
            scoring.Counts(counted),
            rubric.weights,
            confidence=cfg.scoring.confidence,
            bounds=ends if ends[0] < ends[1] else None,
        )
        places = ranks(rubric, counted)
        keys = [name, *(f"{name}_{key}" for key in ("sigma", "low", "high"))]
        for i, row in enumerate(rows):
            row |= {key: float(part[i]) for key, part in zip(keys, summary, strict=True)}
            row[f"{name}_rank"] = None if places is None else int(places[i])
        columns += [
            Column(key, key.replace(f"{name}_", f"{name} "), format="{:.4f}", wide=key != name)
            for key in keys
        ]
        columns.append(Column(f"{name}_rank", f"{name} rank", wide=True))
    if assigned:
        first = next(iter(assigned))
        rows.sort(key=lambda row: -row[first])
    return Table(f"rubrics: {cohort.dataset}", columns, rows, _notes(cohort, cfg, judged))


def counts(rubric: Rubric, given: Categories) -> npt.NDArray[np.int64]:
    """How often each category was given: (L, M, N) codes, -1 for none, become (L, M, C + 1)."""
    return np.stack([(given == c.index).sum(axis=2) for c in rubric.categories], axis=-1)


def ranks(rubric: Rubric, counted: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Competition ranks (L,) by avg with the rubric's weights; None if a question has no category.

    Args:
        rubric: of which the weights.
        counted: what :func:`counts` returned.
    """
    if not counted.any(axis=-1).all():
        return None
    averages, _ = scoring.avg(scoring.Counts(counted), rubric.weights)
    return scoring.ranks(averages, method="competition")


def _assigned(cohort: Cohort, cfg: AnalysisConfig) -> tuple[ByRubric, bool | None]:
    """What :func:`categories` returns, and whether attempts have verdicts; None: nothing asks."""
    if not cohort.members:
        return {}, None
    imported = _imported(cohort, cfg.rubric)
    names = [name for name in cfg.rubric.names if name not in imported]
    if cfg.rubric.names and not names:
        return imported, None
    weights = {name: w for name, w in cfg.rubric.weights.items() if name not in imported}
    try:
        computed, judged = _computed(cohort, cfg, RubricConfig(names, weights))
    except UserError as error:
        if not imported or names:
            raise
        warn(f"{cohort.dataset}: rubrics other than {', '.join(imported)} are left out: {error}")
        return imported, None
    return imported | computed, judged


def _computed(cohort: Cohort, cfg: AnalysisConfig, wanted: RubricConfig) -> tuple[ByRubric, bool]:
    """The rubrics that are made of signals, and whether all attempts have verdicts."""
    where, signals = zip(*(_signals(member) for member in cohort.members), strict=True)
    signals = _alike(cohort, signals)
    values = [
        variables.variables(part, limits)
        for part, limits in zip(signals, _thresholds(cohort, cfg, signals), strict=True)
    ]
    computed, lacking = {}, {}
    for name, rubric in rubrics.load(replace(cohort.members[0].run.cfg, rubric=wanted)).items():
        if missing := sorted({part for known in values for part in rubric.names - set(known)}):
            lacking[name] = f"{name} ({', '.join(missing)})"
            continue
        codes = np.full(cohort.outcomes.shape, -1, np.int8)
        for i, (keys, known) in enumerate(zip(where, values, strict=True)):
            try:
                codes[i, keys >> 32, keys & 0xFFFFFFFF] = rubric_of.assign(rubric, known)
            except Unsound as error:
                raise UserError(f"rubric={name}: {cohort.names[i]}: {error}") from error
        computed[name] = rubric, codes
    if lacking:
        text = f"not all runs have what rubrics need: {', '.join(lacking.values())}"
        text += "; `verify` gives A, B and C, sampling with log-probs the bits per token"
        if wanted.names:
            raise UserError(f"rubric={','.join(lacking)}: {text}")
        warn(f"{cohort.dataset}: {text}; these are left out")
    return computed, "C" in signals[0]


def _notes(cohort: Cohort, cfg: AnalysisConfig, judged: bool | None) -> list[str]:
    if judged is None:
        return ["Bayes@N of each rubric, with its weights; categories as they were imported"]
    wanted = cfg.thresholds
    basis = "of all models together" if wanted.scope == "cohort" else "of each model alone"
    notes = [f"Bayes@N of each rubric; thresholds {wanted.file or basis}, computed for this table"]
    if not judged:
        notes.append(categorize.FALLBACK)
    own = [runfolder.read_json(m.run.path / "thresholds.json") for m in cohort.members]
    if any(part.get("values") != own[0].get("values") for part in own):
        notes.append("not alike: the runs' own thresholds.json; their rubric scores differ from it")
    return notes


def _signals(member: Member) -> tuple[npt.NDArray[np.int64], Signals]:
    """The signals of the attempts that are compared, and where in the cohort each belongs."""
    table, signals = categorize.scored(member.run)
    keys = rowkeys.encode(table, pa.array(member.question_ids, pa.string()))
    kept = keys >= 0
    return keys[kept], {name: values[kept] for name, values in signals.items()}


def _alike(cohort: Cohort, signals: tuple[Signals, ...]) -> tuple[Signals, ...]:
    """Only the signals that all runs have: `invalid` must mean the same for all of them."""
    shared = set.intersection(*(set(part) for part in signals))
    for name in sorted({name for part in signals for name in part} - shared):
        having = [m.name for m, part in zip(cohort.members, signals, strict=True) if name in part]
        warn(f"{cohort.dataset}: {name} is not used, only {', '.join(having)} of all runs have it")
    return tuple({name: part[name] for name in part if name in shared} for part in signals)


def _thresholds(
    cohort: Cohort, cfg: AnalysisConfig, signals: tuple[Signals, ...]
) -> list[dict[str, float | None]]:
    """The thresholds that each run's attempts are compared with."""
    wanted = cfg.thresholds
    if wanted.file is not None:
        runs = [Run(replace(m.run.cfg, thresholds=wanted)) for m in cohort.members]
        pairs = zip(runs, signals, strict=True)
        return [categorize.thresholds(run, part)["values"] for run, part in pairs]
    if wanted.scope == "model":
        return [variables.thresholds(part, wanted.include_invalid) for part in signals]
    pooled = {name: np.concatenate([part[name] for part in signals]) for name in signals[0]}
    return [variables.thresholds(pooled, wanted.include_invalid)] * len(signals)


def _imported(cohort: Cohort, wanted: RubricConfig) -> ByRubric:
    """Labels that were imported; what some runs lack or name otherwise is left out or an error."""
    of_runs = [rubrics.imported(member.run) for member in cohort.members]
    imported = {}
    for name in sorted({name for labels in of_runs for name in labels}):
        if wanted.names and name not in wanted.names:
            continue
        if why := _unlike(cohort, name, of_runs):
            if wanted.names:
                raise UserError(f"rubric={name}: {why}")
            warn(f"{cohort.dataset}: {name} is left out: {why}")
            continue
        record = of_runs[0][name].record
        # A rubric wants conditions; of labels nobody evaluates them.
        rows = [dict(row) | {"when": "correct"} for row in record["categories"]]
        definition = {key: record[key] for key in ("name", "description")} | {"categories": rows}
        try:
            rubric = rubric_of.parse(definition)
            if name in wanted.weights:
                rubric = rubric_of.with_weights(rubric, wanted.weights[name])
        except ValueError as error:
            raise UserError(f"rubric {name}, imported: {shards.first_line(error)}") from error
        codes = np.full(cohort.outcomes.shape, -1, np.int8)
        for i, (member, labels) in enumerate(zip(cohort.members, of_runs, strict=True)):
            table = labels[name].table
            keys = rowkeys.encode(table, pa.array(member.question_ids, pa.string()))
            trials = min(cohort.outcomes.shape[2], member.run.cfg.sampling.trials)
            kept, (question, trial) = rowkeys.cells(keys, trials)
            codes[i, question, trial] = table["category"].to_numpy()[kept]
        imported[name] = rubric, codes
    return imported


def _unlike(cohort: Cohort, name: str, of_runs: list[dict[str, Mapped]]) -> str:
    """What keeps imported labels from being compared, in words."""
    pairs = list(zip(cohort.names, of_runs, strict=True))
    lacking = [model for model, labels in pairs if name not in labels]
    if lacking:
        return f"{', '.join(lacking[:5])} of {len(pairs)} runs have no such labels"
    first = of_runs[0][name].record["categories"]
    others = [model for model, labels in pairs if labels[name].record["categories"] != first]
    if not others:
        return ""
    return (
        f"categories of {', '.join(others[:5])} have other names or weights than those of"
        f" {cohort.names[0]}; import them together, or with equal category_names"
    )
