"""categorize: every attempt becomes a category of every rubric; no model is asked.

Thresholds are quantiles over a data set: of this run, of the whole cohort of runs beside it, or
frozen in a file. `thresholds.json` in the run folder says which, of which runs, and when they were
computed; nothing but `categorize` renews them. Everything is computed before the first file is
replaced.
"""

import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.console import listed, mention, note, results, warn
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.rubrics import categories, signals, variables
from bayes_at_n.pipeline.rubrics import rubric as rubric_of
from bayes_at_n.pipeline.rubrics.categories import Recorded
from bayes_at_n.pipeline.rubrics.conditions import is_number
from bayes_at_n.pipeline.rubrics.rubric import Rubric, Unsound
from bayes_at_n.pipeline.store import origin, runfolder, tables, verdicts
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.runfolder import Run, opened

VERSION = 1  # raise it whenever thresholds or categories change
Signals = Mapping[str, Any]
_MISSING = {
    "prompt_bpt": "log-probs of prompts: sampling.prompt_logprobs=true and an engine with them",
    "completion_bpt": "log-probs of completions: sample with sampling.logprobs=true",
    **dict.fromkeys("ABC", "a verifier's probabilities: `run` with verifier=NAME"),
}
FALLBACK = "invalid is repeated_pattern alone: not every attempt has a verdict"
_BY_GRADER = "depends on the grader, whose outcomes verifier.calibration=graded reads"
_ALONE = (
    "* own thresholds: quantiles of this run alone, by which the same share of any model's attempts"
    " is confident, or short; `compare` takes those of all models together"
)


def categorize(run: Run) -> None:
    """Map every graded attempt of a run into each rubric: `categories/NAME.parquet`.

    Rubrics that need what the run lacks (a verifier, log-probs) are left out and named, or refused
    when they were asked for by name. Where a run has verdicts, attempts without one are left out.
    Raises UserError, and replaces nothing: nothing is graded, a rubric with a hole or an undeclared
    overlap, thresholds of another data set. DamagedData: as `signals.make`.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    began, rubrics = time.monotonic(), categories.load(run.cfg)
    if not run.questions or not (run.attempts.exists() or run.grades.exists()):
        raise UserError(f"{run.path}: no attempts yet; run `{PROGRAM} generate`")
    signals.make(run)
    asked, limits = _asked(run, rubrics), categories.thresholds(run)
    mapped = categories.current(run, quiet=True)
    if limits.get("asked") == asked and {*limits["rubrics"]} <= mapped.keys():
        mention("categorize: nothing owed, thresholds and rubrics are as they were")
    else:
        limits = _renew(run, rubrics) | {"made": time.strftime("%Y-%m-%d"), "asked": asked}
        runfolder.write_json(run.path / categories.THRESHOLDS, limits)
        mapped = categories.current(run)
        rows = max((one.table.num_rows for one in mapped.values()), default=0)
        seconds = time.monotonic() - began
        mention(f"categorize: {rows} attempts, {len(mapped)} rubrics in {seconds:.2f} s")
    _show(run, limits, mapped)


def _asked(run: Run, rubrics: Mapping[str, Rubric]) -> str:
    """A hash of all that categories rest on: signals, settings, rubrics, other runs, a file."""
    cfg, beside = run.cfg.thresholds, dict[str, Any]()
    if cfg.file is not None:
        beside = tables.marks(Path.cwd(), str(Path(cfg.file).expanduser()))
    elif cfg.scope == "cohort":
        others = sorted(path.parent for path in run.path.resolve().parent.glob("*/signals"))
        beside = {path.name: tables.marks(path, *signals.SOURCES) for path in others}
    own = [signals.made_from(run), asdict(cfg), run.cfg.rubric.names, run.cfg.sampling.trials]
    definitions = {name: rubric.model_dump() for name, rubric in rubrics.items()}
    return origin.hashed([VERSION, own, definitions, beside])


def _renew(run: Run, rubrics: Mapping[str, Rubric]) -> dict[str, Any]:
    """Replace the categories of all rubrics; returns thresholds, and which rubrics they serve."""
    table, found = scored(run)
    limits = thresholds(run, found)
    values = variables.variables(found, limits["values"])
    of = {"thresholds": limits, "made_from": signals.made_from(run)}
    mapped, left_out = dict[str, Recorded](), dict[str, str]()
    for name, rubric in rubrics.items():
        if lacking := _lacking(rubric, found, values):
            if run.cfg.rubric.names:
                raise UserError(f"rubric={name}: needs {lacking}")
            left_out[name] = lacking
            continue
        try:
            category = pa.array(rubric_of.assign(rubric, values))
        except Unsound as error:
            row = table.slice(error.example, 1).to_pylist()[0]
            where = f"attempt {row['question_id']}, trial {row['trial']}"
            raise UserError(f"rubric={name}: {error}: {where}") from error
        labels = {"labels": _labels(rubric, found, limits) + dependence([rubric], [run])}
        rows = table.select(KEY).append_column("category", category)
        mapped[name] = Recorded(rows, rubric.model_dump() | of | labels)
    for old in [*(run.path / "categories").glob("*.p[nd][gf]")]:
        old.unlink(missing_ok=True)  # pictures of the categories before
    for name in left_out:
        (run.path / "categories" / f"{name}.parquet").unlink(missing_ok=True)
    for name, one in mapped.items():
        categories.save(run, name, one)
    return limits | {"rubrics": [*mapped], "left_out": left_out}


def scored(run: Run) -> tuple[pa.Table, dict[str, Any]]:
    """The signals of attempts that can have a category: as a table, and as scoring's arrays.

    Raises UserError: no signals; no graded attempt.
    """
    table = signals.read(run)
    graded, verified, ended = (
        table[name].is_valid().to_numpy() for name in ("is_correct", "c", "repeated_pattern")
    )
    if not graded.any():
        raise UserError(f"{run.path}: no graded attempts; run `{PROGRAM} grade`")
    graded &= table["trial"].to_numpy() < run.cfg.sampling.trials
    scored = graded & ended
    if (scored & verified).any():
        scored &= verified
    if not scored.any():
        raise UserError(f"{run.path}: no attempt says how it ended, which every rubric asks")
    if lacking := int((graded & ~scored).sum()):
        text = f"{lacking} attempts have no verdict or finish_reason, so rubrics leave them out"
        warn(f"{run.path}: {text}")
    table = table.filter(pa.array(scored)).combine_chunks()
    return table, {
        name.upper() if name in "abc" else name: table[name].to_numpy().astype(np.float64)
        for name in table.column_names[2:]
        if table[name].null_count < table.num_rows  # else nothing of it is known
    }


def thresholds(run: Run, found: Signals) -> dict[str, Any]:
    """The thresholds to use, with what they were computed on.

    Raises UserError: thresholds.file cannot be used for this run. Source: arXiv 2510.04265, Table
    4; the pooling of models is our reading (docs/rubrics.md).
    """
    cfg = run.cfg.thresholds
    population = {
        "dataset": run.cfg.dataset.name,
        "questions": question_set(run),
        "verifier": "C" in found,
    }
    if cfg.file is not None:
        return _frozen(Path(cfg.file).expanduser(), population)
    pool = {str(run.path): found}
    if cfg.scope == "cohort":
        pool |= _siblings(run, population)
    unknown = {path: np.full(of["is_correct"].size, np.nan) for path, of in pool.items()}
    pooled = {  # what is not known enters no quantile
        name: np.concatenate([of.get(name, unknown[path]) for path, of in pool.items()])
        for name in found
    }
    return {
        **population,
        "scope": "cohort" if len(pool) > 1 else "model",
        "runs": sorted(pool),
        "attempts": int(pooled["is_correct"].size),
        "include_invalid": cfg.include_invalid,
        "frozen": None,
        "values": variables.thresholds(pooled, cfg.include_invalid),
    }


def question_set(run: Run) -> str:
    """A hash of a run's questions (problems and gold answers), whatever their order."""
    return runfolder.short_hash(" ".join(sorted(q["question_hash"] for q in run.questions)))


def _siblings(run: Run, population: Mapping[str, Any]) -> dict[str, Signals]:
    """Signals of the other runs of the same questions, beside this one."""
    siblings, others = dict[str, Signals](), list[str]()  # those that do not count, and why
    here, (dataset, questions, verifier) = run.path.resolve(), population.values()
    for folder in sorted({path.parent for path in here.parent.glob("*/signals")} - {here}):
        try:
            other = opened(folder)
            if (other.cfg.dataset.name, question_set(other)) != (dataset, questions):
                raise UserError("other questions")
            _, found = scored(other)
            if ("C" in found) != verifier and not run.cfg.thresholds.include_invalid:
                raise UserError("only one of the two has verdicts")
            siblings[str(run.path.parent / folder.name)] = found
        except UserError as error:
            others.append(f"{folder.name} ({error})")
    if others:
        note(f"thresholds: beside this run, and not counted: {listed(others, 3)}")
    return siblings


def _frozen(path: Path, population: Mapping[str, Any]) -> dict[str, Any]:
    """Thresholds that a file holds. Raises UserError: none, or those of other questions."""
    try:
        frozen = foreign.read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"thresholds={path}: cannot be read ({one_line(error)})") from error
    values: dict[str, Any] = frozen.get("values", {})
    if set(values) != set(variables.THRESHOLDS):
        raise UserError(f"thresholds={path}: holds no thresholds, as of `categorize`")
    for name, value in values.items():
        if value is not None and not is_number(value):
            raise UserError(f"thresholds={path}: {name} must be a finite number, or null")
    for key in ("dataset", "questions"):
        if frozen.get(key) != population[key]:
            raise UserError(f"thresholds={path}: {key} is {frozen.get(key)}, not {population[key]}")
    known = {key: frozen.get(key) for key in ("scope", "runs", "attempts", "include_invalid")}
    return {**population, **known, "frozen": str(path), "values": values}


def _lacking(rubric: Rubric, found: Signals, values: Mapping[str, Any]) -> str:
    """Return what a rubric needs and the run has not, empty when it has all."""
    needs = variables.needed(rubric.names - set(values))
    limits = sorted(needs & variables.THRESHOLDS.keys())
    needs |= {variables.THRESHOLDS[limit][0] for limit in limits}
    for signal in sorted(needs & set(variables.SIGNALS) - set(found)):
        return _MISSING.get(signal, signal)
    null = [limit for limit in limits if limit not in values]
    return f"the threshold {null[0]}, which is null; name another file" if null else ""


def dependence(rubrics: Iterable[Rubric], runs: Iterable[Run]) -> list[str]:
    """What to say of rubrics that ask for A or B where a run's are calibrated to the grader."""
    models = ", ".join(
        run.cfg.model.name for run in runs if verdicts.made_of(run).get("calibration") == "graded"
    )
    asking = [rubric.name for rubric in rubrics if {"A", "B"} & variables.needed(rubric.names)]
    return [f"{name} of {models} {_BY_GRADER}" for name in asking if models]


def _labels(rubric: Rubric, found: Signals, limits: Mapping[str, Any]) -> list[str]:
    """What to say beside the scores of a rubric."""
    alone = limits["scope"] == "model" and not limits["frozen"]
    labels = [_ALONE] if alone and variables.needed(rubric.names) & {*variables.THRESHOLDS} else []
    if "C" not in found:
        labels.append(FALLBACK)
    elif {"A_high", "B", "C"} <= rubric.names:
        a = found["A"]
        shy = (a < variables.HIGH_A) & (a > np.maximum(found["B"], found["C"]))
        labels.append(
            f"{rubric.name}: A is the largest but under {variables.HIGH_A} in {int(shy.sum())} of"
            f" {a.size} attempts ({shy.mean():.2%}); there the larger of B and C decides"
        )
    return labels


def _show(run: Run, limits: dict[str, Any], mapped: Mapping[str, Recorded]) -> None:
    """Print the thresholds, and what to know of the rubrics."""
    left_out = limits["left_out"]
    values = ", ".join(
        f"{name} none" if value is None else f"{name} {value:.4g}"
        for name, value in limits["values"].items()
    )
    results.print(f"thresholds ({categories.basis(run)}): {values}")
    for label in sorted({label for of in mapped.values() for label in of.record["labels"]}):
        results.print(label)
    for lacking in sorted(set(left_out.values())):
        names = [name for name in sorted(left_out) if left_out[name] == lacking]
        warn(f"{', '.join(names)}: left out for want of {lacking}")
    answer({"run": run.path, "rubrics": [*mapped], "left_out": left_out, "thresholds": limits})
