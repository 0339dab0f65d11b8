"""categorize: every attempt becomes a category of every rubric; no model is asked.

Thresholds are quantiles over a data set (`thresholds.json` in the run folder): of this run, of the
whole cohort of runs beside it, or frozen in a file. Everything is computed before the first file is
replaced.
"""

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bayes_at_n.pipeline.base.console import listed, mention, note, results, warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.display.table import answer
from bayes_at_n.pipeline.rubrics import categories, signals_table, variables
from bayes_at_n.pipeline.rubrics import rubric as rubric_of
from bayes_at_n.pipeline.rubrics.rubric import Rubric, Unsound
from bayes_at_n.pipeline.store import runfolder, verdicts
from bayes_at_n.pipeline.store.columns import KEY
from bayes_at_n.pipeline.store.records import Recorded
from bayes_at_n.pipeline.store.runfolder import Run, opened

_COLUMNS = {"a": "A", "b": "B", "c": "C"}  # of the signals table, by what conditions call them
_MISSING = {
    "prompt_bpt": "log-probs of prompts: sampling.prompt_logprobs=true and an engine with them",
    "completion_bpt": "log-probs of completions: sample with sampling.logprobs=true",
    **dict.fromkeys("ABC", "a verifier's probabilities: `run` with verifier=NAME"),
}
FALLBACK = "invalid is repeated_pattern alone: not every attempt has a verdict"
_BY_GRADER = (
    "depends on the grader: verifier.calibration=graded reads its outcomes; for the verifier's own"
    " view `verify RUN verifier.calibration=contextual`"
)
_ALONE = (
    "* own thresholds: quantiles of this run alone, by which the same share of any model's attempts"
    " is confident, or short; `compare` takes those of all models together"
)


def categorize(run: Run) -> None:
    """Map every graded attempt of a run into each rubric: `categories/NAME.parquet` and `.json`.

    Rubrics that need what the run lacks (a verifier, log-probs) are left out and named, or refused
    when they were asked for by name. Where a run has verdicts, attempts without one are left out:
    two meanings of `invalid` are never mixed. Raises UserError: no current signals, a rubric that
    leaves a hole or an undeclared overlap (with an example attempt), thresholds of another data
    set. Nothing is replaced then.
    """
    began = time.monotonic()
    runfolder.check_same(run, runfolder.identity(run.cfg))
    rubrics = categories.load(run.cfg)
    table, signals = scored(run)
    limits = thresholds(run, signals)
    values = variables.variables(signals, limits["values"])
    origin = {"thresholds": limits, "signals": signals_table.identity(run)}
    mapped: dict[str, Recorded] = {}
    left_out: dict[str, str] = {}
    for name, rubric in rubrics.items():
        if lacking := _lacking(rubric, signals, values):
            if run.cfg.rubric.names:
                raise UserError(f"rubric={name}: needs {lacking}")
            left_out[name] = lacking
            continue
        category = _assign(name, rubric, values, table)
        rows = table.select(KEY).append_column("category", category)
        labels = {"labels": _labels(rubric, signals, limits) + dependence([rubric], [run])}
        mapped[name] = Recorded(rows, rubric.definition() | origin | labels)
    runfolder.write_json(run.path / "thresholds.json", limits)
    for name in mapped:
        categories.save(run, name, mapped[name])
    for name in left_out:
        categories.forget(run, name)
    answer({"run": run.path, "rubrics": [*mapped], "left_out": left_out, "thresholds": limits})
    _show(limits)
    for label in sorted({label for m in mapped.values() for label in m.record["labels"]}):
        results.print(label)
    for lacking in sorted(set(left_out.values())):
        names = [name for name in sorted(left_out) if left_out[name] == lacking]
        are, need = ("is", "it needs") if len(names) == 1 else ("are", "they need")
        warn(f"{', '.join(names)} {are} left out: {need} {lacking}")
    seconds = time.monotonic() - began
    mention(f"categorize: {table.num_rows} attempts, {len(mapped)} rubrics in {seconds:.2f} s")


def scored(run: Run) -> tuple[pa.Table, dict[str, Any]]:
    """The signals of attempts that can have a category: as a table, and as scoring's arrays.

    Raises UserError: no signals, or old ones; no graded attempt.
    """
    table = signals_table.current(run)
    graded, verified, ended = (
        table[name].is_valid().to_numpy() for name in ("is_correct", "c", "repeated_pattern")
    )
    scored = graded & (table["trial"].to_numpy() < run.cfg.sampling.trials)
    required = [("do not say how they ended, so rubrics leave them out", ended)]
    if (scored & verified).any():
        required.insert(0, ("have no verdict, so rubrics leave them out; run `verify`", verified))
    for lack, known in required:
        if lacking := int((scored & ~known).sum()):
            warn(f"{run.path}: {lacking} attempts {lack}")
        scored &= known
    if not graded.any():
        raise UserError(f"{run.path}: no graded attempts; run `grade`, then `signals`")
    if not scored.any():
        raise UserError(
            f"{run.path}: does not record how attempts ended (finish_reason), which every rubric"
            " asks; `score` needs no rubric"
        )
    table = table.filter(pa.array(scored)).combine_chunks()
    signals = {
        _COLUMNS.get(name, name): table[name].to_numpy().astype(np.float64)
        for name in table.column_names[2:]
        if table[name].null_count < table.num_rows  # else nothing of it is known
    }
    return table, signals


def thresholds(run: Run, signals: Mapping[str, Any]) -> dict[str, Any]:
    """The thresholds to use, with what they were computed on.

    Raises UserError: thresholds.file cannot be used for this run. Source: arXiv 2510.04265, Table
    4; the pooling of models is our reading (docs/rubrics.md).
    """
    cfg = run.cfg.thresholds
    population = {
        "dataset": run.cfg.dataset.name,
        "questions": signals_table.question_set(run),
        "verifier": "C" in signals,
    }
    if cfg.file is not None:
        return _frozen(Path(cfg.file).expanduser(), population)
    pool = {str(run.path): signals, **(_siblings(run, population) if cfg.scope == "cohort" else {})}
    pooled = {
        name: np.concatenate(
            [part.get(name, np.full(part["is_correct"].size, np.nan)) for part in pool.values()]
        )
        for name in signals  # what is not known enters no quantile
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


def _siblings(run: Run, population: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Signals of the other runs of the same questions, beside this one."""
    siblings: dict[str, dict[str, Any]] = {}
    others: list[str] = []  # that do not count, and why
    here = run.path.resolve()
    for folder in sorted(here.parent.iterdir()):
        if folder == here or not (folder / "signals").is_dir():
            continue
        try:
            other = opened(folder)
            theirs = (other.cfg.dataset.name, signals_table.question_set(other))
            if theirs != (population["dataset"], population["questions"]):
                others.append(f"{folder.name} (other questions)")
                continue
            _, signals = scored(other)
        except UserError as error:
            others.append(f"{folder.name} ({error})")
            continue
        if ("C" in signals) != population["verifier"] and not run.cfg.thresholds.include_invalid:
            others.append(f"{folder.name} (only one of the two has verdicts)")
            continue
        siblings[str(run.path.parent / folder.name)] = signals
    if others:
        note(f"thresholds: beside this run, and not counted: {listed(others, 3)}")
    return siblings


def _frozen(path: Path, population: Mapping[str, Any]) -> dict[str, Any]:
    try:
        frozen = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"thresholds={path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise UserError(f"thresholds={path}: not JSON ({error})") from error
    values = frozen.get("values") if isinstance(frozen, dict) else None
    if not isinstance(values, dict) or set(values) != set(variables.THRESHOLDS):
        raise UserError(
            f"thresholds={path}: holds no thresholds; name a thresholds.json of `categorize`"
        )
    for name, value in values.items():
        if value is not None and not (type(value) in (int, float) and abs(value) < 1e300):
            raise UserError(f"thresholds={path}: {name} must be a finite number, or null")
    for low, high in (("len_p33", "len_p66"), ("corr_p33", "corr_p66")):
        if None not in (values[low], values[high]) and values[low] > values[high]:
            raise UserError(f"thresholds={path}: {low} is above {high}; mend the file")
    for key, what in (("dataset", "data set"), ("questions", "set of questions")):
        if (other := frozen.get(key)) != population[key]:
            raise UserError(
                f"thresholds={path}: is of another {what}, {other} and not {population[key]};"
                " leave thresholds out to compute them from this run"
            )
    known = {key: frozen.get(key) for key in ("scope", "runs", "attempts", "include_invalid")}
    return {**population, **known, "frozen": str(path), "values": values}


def _lacking(rubric: Rubric, signals: Mapping[str, Any], values: Mapping[str, Any]) -> str | None:
    """What a rubric needs and the run has not; None when it has all."""
    for name in sorted(rubric.names - set(values)):
        needs = variables.needed({name})
        limits = sorted(needs & variables.THRESHOLDS.keys())
        needs |= {variables.THRESHOLDS[limit][0] for limit in limits}
        for signal in sorted(needs & set(variables.SIGNALS) - set(signals)):
            return _MISSING.get(signal, signal)
        limit = next(limit for limit in limits if limit not in values)
        return (
            f"the threshold {limit}, which is null: no"
            f" {variables.THRESHOLDS[limit][2] or 'fitting'} attempt was there to compute it from;"
            " leave thresholds out, or name another file"
        )
    return None


def _assign(name: str, rubric: Rubric, values: Mapping[str, Any], table: pa.Table) -> pa.Array:
    try:
        return pa.array(rubric_of.assign(rubric, values))
    except Unsound as error:
        row = table.slice(error.example, 1).to_pylist()[0]
        raise UserError(
            f"rubric={name}: {error}: attempt {row['question_id']}, trial {row['trial']}. Change"
            " the conditions, or name in `order` which category is tried first"
        ) from error


def dependence(rubrics: Iterable[Rubric], runs: Iterable[Run]) -> list[str]:
    """What to say of rubrics that ask for A or B where a run's are calibrated to the grader."""
    models = ", ".join(
        run.cfg.model.name for run in runs if verdicts.made_of(run).get("calibration") == "graded"
    )
    asking = [rubric.name for rubric in rubrics if {"A", "B"} & variables.needed(rubric.names)]
    return [f"{name} of {models} {_BY_GRADER}" for name in asking if models]


def _labels(rubric: Rubric, signals: Mapping[str, Any], limits: Mapping[str, Any]) -> list[str]:
    """What to say beside the scores of a rubric."""
    alone = limits["scope"] == "model" and not limits["frozen"]
    labels = [_ALONE] if alone and variables.needed(rubric.names) & {*variables.THRESHOLDS} else []
    if "C" not in signals:
        return [*labels, FALLBACK]
    if not {"A_high", "B", "C"} <= rubric.names:
        return labels
    a = signals["A"]
    shy = (a < variables.HIGH_A) & (a > np.maximum(signals["B"], signals["C"]))
    return [
        *labels,
        f"{rubric.name}: A is the largest but under {variables.HIGH_A} in {int(shy.sum())} of"
        f" {a.size} attempts ({shy.mean():.2%}); there the larger of B and C decides",
    ]


def _show(limits: Mapping[str, Any]) -> None:
    values = ", ".join(
        f"{name} none" if value is None else f"{name} {value:.4g}"
        for name, value in limits["values"].items()
    )
    basis = f"frozen in {limits['frozen']}"
    if not limits["frozen"]:
        runs, kinds = len(limits["runs"]), "" if limits["include_invalid"] else ", valid ones"
        basis = "this run alone" if runs == 1 else f"{runs} runs of the data set"
        basis += f", {limits['attempts']} attempts{kinds}"
    results.print(f"thresholds ({basis}): {values}")
