"""Parquet records in the layout of `harimo/scorio-trace`: one row an attempt, streamed twice.

The first pass reads keys and says which row becomes which attempt; the second reads everything, a
few rows at a time.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from pipeline import shards
from pipeline.console import Meter, warn
from pipeline.errors import UserError
from pipeline.imports import columns as convert
from pipeline.imports import staging as stage
from pipeline.imports.columns import Batch
from pipeline.imports.plan import MOST_RECORDS, NO_SEED, Plan
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
_NEAR = 32 << 20  # bytes of rows that are read together
_MOST_ROWS = 2048


def read_keys(source: Source, plan: Plan, troubles: Troubles) -> None:
    """First pass: note run, question, seed and answer of every record.

    Raises:
        UserError: columns that are indispensable are missing, or no file can be read.
    """
    files = _sound_files(source, troubles)
    _check_columns(source, files)
    wanted = (*_KEYS, "extracted_answer", "ground_truth", "prompt")
    with Meter("import: keys", sum(rows for _, rows in files)) as meter:
        for number, batch, place in _batches(files, wanted, troubles):
            if batch is None:
                damaged = np.full(number, -1)
                plan.add(damaged, damaged, damaged, damaged)
            else:
                _note(plan, batch, place, troubles)
            meter.advance(number)


def read_rows(source: Source, plan: Plan, staging: Staging) -> Troubles:
    """Second pass: attempts, grades, verdicts and means of every record that the plan keeps."""
    troubles = Troubles()
    files = _sound_files(source, Troubles())
    at, ids = 0, convert.QuestionIds(plan)
    with Meter("import", sum(rows for _, rows in files)) as meter:
        for number, batch, place in _batches(files, convert.ALL, troubles):
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
        task, model, key, level, number, seed, outcome = (found[name][i] for name in _KEYS)
        number = convert.whole(number) if not isinstance(number, str) else convert.named(number)
        if not task or not (model or key) or number is None:
            troubles.add("damaged rows skipped", f"{place} + {i} (no task, model or data_id)")
            continue
        run = plan.run_of(str(task), str(model or ""), str(key or ""), str(level or ""))
        if run < 0:
            continue
        dataset = plan.runs[run].dataset
        question = plan.question_of(dataset, number)
        _learn(plan, dataset, run, question, golds[i], batch, i, troubles)
        told = convert.whole(seed)
        kept[:, i] = (
            run,
            question,
            NO_SEED if told is None else told,
            hash((convert.truth(outcome), answers[i])) >> 1,
        )
    plan.add(*kept)


def _learn(
    plan: Plan,
    dataset: str,
    run: int,
    question: int,
    gold: Any,
    batch: pa.RecordBatch,
    row: int,
    troubles: Troubles,
) -> None:
    """Gold answer and prompt of a question, from the first record that has them."""
    known = plan.questions[dataset][question]
    if isinstance(gold, str | int | float) and gold == gold:
        text = str(gold).strip()
        if known.gold is None:
            known.gold = text
        elif known.gold != text:
            troubles.add("other gold answers, the first counts", f"{known.id}: {shown(text)[:40]}")
    if run not in known.prompts and "prompt" in batch.schema.names:
        prompt = convert.texts(batch["prompt"].slice(row, 1), convert.MOST_PROMPT)[0].as_py()
        known.prompts[run] = prompt or ""


def _sound_files(source: Source, troubles: Troubles) -> list[tuple[Path, int]]:
    """The files that can be opened, with their numbers of rows."""
    found, why = [], ""
    for path in source.files:
        try:
            with pq.ParquetFile(path) as file:
                found.append((path, file.metadata.num_rows))
        except (pa.ArrowException, OSError, ValueError) as error:
            why = f"{path.name} ({shards.first_line(error)})"
            troubles.add("damaged files skipped", why)
    if not found:
        raise UserError(f"{source.path}: no Parquet file can be read: {why}; fetch it again")
    rows = sum(number for _, number in found)
    if rows > MOST_RECORDS:
        raise UserError(f"{source.path}: {rows} rows; at most {MOST_RECORDS} are read, split it")
    return found


def _check_columns(source: Source, files: list[tuple[Path, int]]) -> None:
    there: set[str] | None = None
    for path, _ in files:
        names = set(pq.read_schema(path).names)
        there = names if there is None else there & names
    assert there is not None
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


def _batches(
    files: list[tuple[Path, int]], wanted: tuple[str, ...], troubles: Troubles
) -> Iterator[tuple[int, pa.RecordBatch | None, str]]:
    """Rows in their order: how many, the batch or None where they are damaged, and their place."""
    for path, rows in files:
        seen = 0
        schema = pq.read_schema(path)
        names = [name for name in wanted if name in schema.names]
        folded = [n for n in names if n in convert.REPEATED and schema.field(n).type == pa.string()]
        with pq.ParquetFile(path, read_dictionary=folded) as file:
            for group in range(file.num_row_groups):
                for number, batch in _group(file, path, group, names, troubles):
                    number = min(number, rows - seen)  # a hostile file may hold more than it says
                    batch = batch if batch is None else batch.slice(0, number)
                    yield number, batch, f"{path.name}, row {seen}"
                    seen += number
        if seen < rows:
            troubles.add("damaged rows skipped", f"{path.name}, rows {seen} to {rows}", rows - seen)
            yield rows - seen, None, path.name


def _group(
    file: pq.ParquetFile, path: Path, group: int, names: list[str], troubles: Troubles
) -> Iterator[tuple[int, pa.RecordBatch | None]]:
    told = file.metadata.row_group(group)
    together = max(1, min(_MOST_ROWS, _NEAR * told.num_rows // max(told.total_byte_size, 1)))
    done = 0
    batches = _guarded(lambda: file.iter_batches(together, [group], names))
    for batch, why in batches:
        if batch is None:
            left = told.num_rows - done
            place = f"{path.name}, {left} rows of group {group} ({why})"
            troubles.add("damaged rows skipped", place, left)
            yield left, None
            return
        done += batch.num_rows
        yield batch.num_rows, batch


def _guarded(
    start: Callable[[], Iterator[pa.RecordBatch]],
) -> Iterator[tuple[pa.RecordBatch | None, str]]:
    """Batches until one cannot be read, which is said; a failing disk is an error of its own."""
    try:
        batches = start()
        while (batch := next(batches, None)) is not None:
            yield batch, ""
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        yield None, shards.first_line(error)
