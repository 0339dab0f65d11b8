"""Both passes over Parquet in the layout of `harimo/scorio-trace`: one row an attempt.

The first pass reads keys and says which row becomes which attempt; the second reads everything, a
few rows at a time.
"""

from typing import Any

import numpy as np
import pyarrow as pa

from pipeline.base.console import Meter, warn
from pipeline.base.errors import UserError
from pipeline.imports import columns as convert
from pipeline.imports import parquet, values
from pipeline.imports import staging as stage
from pipeline.imports.columns import Batch
from pipeline.imports.plan import NO_SEED, Plan
from pipeline.imports.source import Source
from pipeline.imports.staging import Staging
from pipeline.imports.troubles import Troubles, shown

_NEEDED = (("task",), ("model", "model_key"), ("data_id",), ("is_correct",))
# What cannot be had without a column that is not indispensable.
_WITHOUT = {
    "seed": "trials are counted in the order of the rows",
    "prompt": "no prompts to read",
    "text": "no regrading, no verifier, nothing to read",
    "ground_truth": "no regrading",
    "finish_reason": "no signal repeated_pattern",
    "num_completion_tokens": "no signal token_ratio",
    "has_box": "no signal has_box",
    "extracted_answer": "no answers",
    "completion_avg_logprob": "no signal completion_bpt, unless there are lists",
    "prompt_avg_logprob": "no signal prompt_bpt",
    "cv3b_ctx_A": "no verdicts",
}
_KEYS = ("task", "model", "model_key", "reasoning_level", "data_id", "seed", "is_correct")
_NOTED = (*_KEYS, "extracted_answer", "ground_truth", "prompt")


def read_keys(source: Source, plan: Plan, troubles: Troubles) -> None:
    """First pass: note run, question, seed and answer of every record.

    Raises:
        UserError: columns that are indispensable are missing, or no file can be read.
    """
    files = parquet.sound_files(source, troubles)
    _check_columns(source, parquet.columns(files, {*_NOTED, *convert.ALL}))
    with Meter("import: keys", sum(rows for _, rows in files)) as meter:
        for number, batch, place in parquet.batches(files, _NOTED, troubles):
            if batch is None:
                damaged = np.full(number, -1)
                plan.add(damaged, damaged, damaged, damaged)
            else:
                _note(plan, batch, place, troubles)
            meter.advance(number)


def read_rows(source: Source, plan: Plan, staging: Staging) -> Troubles:
    """Second pass: attempts, grades, verdicts and means of every record that the plan keeps."""
    troubles = Troubles()
    files = parquet.sound_files(source, Troubles())
    at, ids = 0, convert.QuestionIds(plan)
    with Meter("import", sum(rows for _, rows in files)) as meter:
        for number, batch, place in parquet.batches(files, convert.ALL, troubles):
            if batch is not None:
                rows = slice(at, at + number)
                runs = plan.run[rows]
                made = convert.tables(Batch(batch, runs, plan, rows, ids, place), troubles)
                _distribute(staging, plan, runs, made)
            at += number
            meter.advance(number)
    return troubles


def _distribute(
    staging: Staging, plan: Plan, runs: np.ndarray[Any, Any], made: dict[str, pa.Table]
) -> None:
    """Each run's rows into its tables; a row that a table has nothing for is null in its key."""
    for run in np.unique(runs[runs >= 0]):
        rows = pa.array(np.flatnonzero(runs == run))
        folder = f"{plan.runs[run].dataset}/{plan.runs[run].model}"
        for name, table in made.items():
            part = table.take(rows)
            if part["trial"].null_count:
                part = part.filter(part["trial"].is_valid())
            stage.add(staging, folder, name, part)


def _note(plan: Plan, batch: pa.RecordBatch, place: str, troubles: Troubles) -> None:
    found = {name: convert.python(batch, name) for name in _KEYS}
    golds, answers = (convert.python(batch, n) for n in ("ground_truth", "extracted_answer"))
    kept = np.full((4, batch.num_rows), -1, np.int64)
    for i in range(batch.num_rows):
        *names, number, seed, outcome = (found[name][i] for name in _KEYS)
        task, model, key, level = (values.text(name, values.MOST_ANSWER) or "" for name in names)
        number = values.named(number)
        if not task or not (model or key) or number is None:
            troubles.add("damaged rows skipped", f"{place} + {i} (no task, model or data_id)")
            continue
        run = plan.run_of(task, model, key, level)
        if run < 0:
            continue
        question = plan.question_of(plan.runs[run].dataset, number)
        gold = values.text(golds[i], values.MOST_ANSWER)
        known = plan.learn(run, question, gold and gold.strip(), None, troubles)
        if run not in known.prompts and "prompt" in batch.schema.names:
            prompt = convert.texts(batch["prompt"].slice(i, 1), values.MOST_PROMPT)
            known.prompts[run] = prompt[0].as_py() or ""
        told = values.whole(seed, values.MOST_SEED)
        answer = values.text(answers[i], values.MOST_ANSWER)
        kept[:, i] = (
            run,
            question,
            NO_SEED if told is None else told,
            hash((values.truth(outcome), answer)) >> 1,
        )
    plan.add(*kept)


def _check_columns(source: Source, there: set[str]) -> None:
    lacking = ["/".join(names) for names in _NEEDED if not there & set(names)]
    if lacking:
        raise UserError(
            f"{source.path}: no column {', '.join(lacking)}; it has"
            f" {', '.join(map(shown, sorted(there)[:30])) or 'none'}. Records need keys (task,"
            " model, data_id) and an outcome (is_correct); rename yours"
        )
    missing = [f"{name} ({why})" for name, why in _WITHOUT.items() if name not in there]
    if missing:
        warn(f"import: {source.path} has no column {', '.join(missing)}")
