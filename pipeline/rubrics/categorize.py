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
from typing import Any, NamedTuple

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
_MISSING = {
    "prompt_bpt": "log-probs of prompts: sampling.prompt_logprobs=true and an engine with them",
    "completion_bpt": "log-probs of completions: sample with sampling.logprobs=true",
    **dict.fromkeys("ABC", "a verifier's probabilities: `run` with verifier=NAME"),
}
_BY_GRADER = "depends on the grader, whose outcomes verifier.calibration=graded reads"
FALLBACK = "invalid is repeated_pattern alone: not every attempt has a verdict"
_ALONE = (
    "* own thresholds: quantiles of this run alone, by which the same share of any model's attempts"
    " is confident, or short; `compare` takes those of all models together"
)


class Scored(NamedTuple):
    """The attempts of a run that can have a category."""

    run: Run
    keys: pa.Table  # question_id and trial
    signals: Mapping[str, Any]  # arrays (n,) by name, of those that are known


def categorize(run: Run) -> None:
    """Map every graded attempt of a run into each rubric: `categories/NAME.parquet`.

    Where a run has verdicts, attempts without one are left out. Raises UserError, and replaces
    nothing: nothing is graded, a rubric that was named lacks something or has a hole or undeclared
    overlap, thresholds of another data set. DamagedData: as `signals.make`.
    """
    runfolder.check_same(run, runfolder.identity(run.cfg))
    rubrics = categories.load(run.cfg)
    if not run.questions or not (run.attempts.exists() or run.grades.exists()):
        raise UserError(f"{run.path}: no attempts yet; run `{PROGRAM} generate`")
    signals.make(run)
    file = run.path / categories.THRESHOLDS
    asked, limits = _asked(run, rubrics), runfolder.read_json(file)
    mapped = categories.current(run) if limits.get("asked") == asked else {}
    if mapped and {*limits["rubrics"]} <= mapped.keys():
        mention("categorize: nothing owed, thresholds and rubrics are as they were")
    else:
        limits = _renew(run, rubrics) | {"made": time.strftime("%Y-%m-%d"), "asked": asked}
        runfolder.write_json(file, limits)
        mapped = categories.current(run)
        rows = max((one.table.num_rows for one in mapped.values()), default=0)
        mention(f"categorize: {rows} attempts, {len(mapped)} rubrics")
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
    """Replace the categories of all rubrics; return thresholds, and which rubrics they serve."""
    attempts = scored(run)
    limits = _thresholds(attempts)
    made, left_out = assigned(attempts, rubrics, limits["values"])
    if run.cfg.rubric.names:
        leave_out(left_out, named=True)
    of = {"thresholds": limits, "made_from": signals.made_from(run)}
    folder = run.path / "categories"
    for old in [*folder.glob("*.p[nd][gf]"), *(folder / f"{name}.parquet" for name in left_out)]:
        old.unlink(missing_ok=True)  # pictures, and what can be made no more
    for name, category in made.items():
        rubric = rubrics[name]
        labels = _labels(rubric, attempts.signals, limits) + dependence([rubric], [run])
        rows = attempts.keys.append_column("category", pa.array(category))
        categories.save(run, name, Recorded(rows, rubric.model_dump() | of | {"labels": labels}))
    return limits | {"rubrics": [*made], "left_out": left_out}


def assigned(
    attempts: Scored, rubrics: Mapping[str, Rubric], limits: Mapping[str, float | None]
) -> tuple[dict[str, rubric_of.Categories], dict[str, str]]:
    """Return the category of each attempt under each rubric, and what the other rubrics lack.

    Raises UserError: an attempt of which a rubric makes no category, or several.
    """
    values = variables.variables(attempts.signals, limits)
    made, lacking = dict[str, rubric_of.Categories](), dict[str, str]()
    for name, rubric in rubrics.items():
        if why := _lacking(rubric, attempts.signals, values):
            lacking[name] = why
            continue
        try:
            made[name] = rubric_of.assign(rubric, values)
        except Unsound as error:
            [row] = attempts.keys.slice(error.example, 1).to_pylist()
            where = f"attempt {row['question_id']}, trial {row['trial']} of {attempts.run.path}"
            raise UserError(f"rubric={name}: {error}: {where}") from error
    return made, lacking


def leave_out(lacking: Mapping[str, str], named: bool) -> None:
    """Warn of rubrics that are left out. Raises UserError: they were asked for by name."""
    for why in sorted(set(lacking.values())):
        names = ", ".join(name for name in sorted(lacking) if lacking[name] == why)
        if named:
            raise UserError(f"rubric={names}: needs {why}")
        warn(f"{names}: left out for want of {why}")


def scored(run: Run) -> Scored:
    """Read the signals of attempts that can have a category.

    Raises UserError: no signals; no graded attempt.
    """
    table = signals.read(run)
    graded, verified, ended = (
        table[name].is_valid().to_numpy() for name in ("is_correct", "c", "repeated_pattern")
    )
    graded &= table["trial"].to_numpy() < run.cfg.sampling.trials
    kept = graded & ended
    if (kept & verified).any():
        kept &= verified
    if not kept.any():
        why = f"no attempt is graded (run `{PROGRAM} grade`) and says how it ended"
        raise UserError(f"{run.path}: {why}, which every rubric asks")
    if lacking := int((graded & ~kept).sum()):
        text = f"{lacking} attempts have no verdict or finish_reason, so rubrics leave them out"
        warn(f"{run.path}: {text}")
    table = table.filter(pa.array(kept)).combine_chunks()
    known = {
        name.upper() if name in "abc" else name: table[name].to_numpy().astype(np.float64)
        for name in table.column_names[2:]
        if table[name].null_count < table.num_rows  # else nothing of it is known
    }
    return Scored(run, table.select(KEY), known)


def _thresholds(attempts: Scored) -> dict[str, Any]:
    """Return the thresholds to use, with what they were computed on; raises as `frozen`.

    Source: arXiv 2510.04265, Table 4; the pooling of models is our reading (docs/rubrics.md).
    """
    run, cfg, verifier = attempts.run, attempts.run.cfg.thresholds, "C" in attempts.signals
    if cfg.file is not None:
        return frozen(cfg.file, run) | {"verifier": verifier}
    pool = [attempts, *(_siblings(attempts) if cfg.scope == "cohort" else [])]
    of_runs = [one.signals for one in pool]
    return {
        "dataset": run.cfg.dataset.name,
        "questions": question_set(run),
        "verifier": verifier,
        "scope": "cohort" if len(pool) > 1 else "model",
        "runs": sorted(str(run.path.parent / one.run.path.name) for one in pool),
        "attempts": sum(one.keys.num_rows for one in pool),
        "include_invalid": cfg.include_invalid,
        "frozen": None,
        "values": variables.thresholds(of_runs, cfg.include_invalid),
    }


def question_set(run: Run) -> str:
    """A hash of a run's questions (problems and gold answers), whatever their order."""
    return runfolder.short_hash(" ".join(sorted(q["question_hash"] for q in run.questions)))


def _siblings(attempts: Scored) -> list[Scored]:
    """Read the other runs of the same questions, beside this one."""
    siblings, others = list[Scored](), list[str]()  # those that do not count, and why
    run, here = attempts.run, attempts.run.path.resolve()
    same = run.cfg.dataset.name, question_set(run)
    for folder in sorted({path.parent for path in here.parent.glob("*/signals")} - {here}):
        try:
            other = opened(folder)
            if (other.cfg.dataset.name, question_set(other)) != same:
                raise UserError("other questions")
            of_other = scored(other)
            alike = ("C" in of_other.signals) == ("C" in attempts.signals)
            if not alike and not run.cfg.thresholds.include_invalid:
                raise UserError("only one of the two has verdicts")
            siblings.append(of_other)
        except UserError as error:
            others.append(f"{folder.name} ({error})")
    if others:
        note(f"thresholds: beside this run, and not counted: {listed(others, 3)}")
    return siblings


def frozen(file: str, run: Run) -> dict[str, Any]:
    """Read thresholds from a file. Raises UserError: none, or those of other questions."""
    path = Path(file).expanduser()
    try:
        limits = foreign.read_json(path)
    except (OSError, ValueError) as error:
        raise UserError(f"thresholds={path}: cannot be read ({one_line(error)})") from error
    values: dict[str, Any] = limits.get("values", {})
    if set(values) != set(variables.THRESHOLDS):
        raise UserError(f"thresholds={path}: holds no thresholds, as of `categorize`")
    for name, value in values.items():
        if value is not None and not is_number(value):
            raise UserError(f"thresholds={path}: {name} must be a finite number, or null")
    population = {"dataset": run.cfg.dataset.name, "questions": question_set(run)}
    for key, ours in population.items():
        if limits.get(key) != ours:
            raise UserError(f"thresholds={path}: {key} is {limits.get(key)}, not {ours}")
    known = {key: limits.get(key) for key in ("scope", "runs", "attempts", "include_invalid")}
    return {**population, **known, "frozen": str(path), "values": values}


def _lacking(rubric: Rubric, found: Mapping[str, Any], values: Mapping[str, Any]) -> str:
    """Return what a rubric needs and the run has not, empty when it has all."""
    needs = variables.needed(rubric.names - set(values))
    limits = sorted(needs & variables.THRESHOLDS.keys())
    needs |= {variables.THRESHOLDS[limit][0] for limit in limits}
    for signal in sorted(needs & set(variables.SIGNALS) - set(found)):
        return _MISSING.get(signal, signal)
    null = [limit for limit in limits if limit not in values]
    return (
        f"the threshold {null[0]}, which is null; take others with thresholds=FILE" if null else ""
    )


def dependence(rubrics: Iterable[Rubric], runs: Iterable[Run]) -> list[str]:
    """What to say of rubrics that ask for A or B where a run's are calibrated to the grader."""
    models = ", ".join(
        run.cfg.model.name for run in runs if verdicts.made_of(run).get("calibration") == "graded"
    )
    asking = [rubric.name for rubric in rubrics if {"A", "B"} & variables.needed(rubric.names)]
    return [f"{name} of {models} {_BY_GRADER}" for name in asking if models]


def _labels(rubric: Rubric, found: Mapping[str, Any], limits: Mapping[str, Any]) -> list[str]:
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
    results.print(f"thresholds ({categories.basis(limits)}): {values}")
    for label in sorted({label for of in mapped.values() for label in of.record["labels"]}):
        results.print(label)
    leave_out(left_out, named=False)
    answer({"run": run.path, "rubrics": [*mapped], "left_out": left_out, "thresholds": limits})
