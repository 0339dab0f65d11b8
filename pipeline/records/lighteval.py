"""Details of lighteval, Parquet with a row per question, whose texts are trials."""

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.records import logs, trace
from bayes_at_n.pipeline.records.source import Records, Source

_STRUCTS = {"doc", "metric", "model_response"}  # in some versions between __
_DOC = ("query", "original_query", "choices", "gold_index", "id")
_RESPONSE = ("text", "reasonings", "output_tokens")


def looks(path: Path, head: bytes) -> bool:
    """Return whether a file is Parquet with lighteval's columns."""
    try:
        with untrusted.memory_limit(path.stat().st_size):
            names = pq.read_schema(path).names if head[:4] == b"PAR1" else ()
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return path.name.startswith("details_")
    return {name.strip("_") for name in names} >= _STRUCTS


def read(source: Source) -> Records:
    """Yield the texts of all files; of a model's files of one task, the latest.

    Raises UserError: dataset= or model= would name several; a row lacks the metric.
    """
    runs = {path: _run(path) for path in sorted(source.files)}  # dates sort as texts
    rows = functools.partial(_rows, source)
    yield from logs.read(source, runs, rows, _attempts)


def _run(path: Path) -> logs.Run:
    """Return task and model, from details/MODEL/DATE/details_TASK|SHOTS_DATE.parquet."""
    *above, date, _ = path.resolve().parts
    ours = above[::-1].index("details") if "details" in above else 1
    task = path.stem.removeprefix("details_").removesuffix(f"_{date}").split("|")
    named = next((part for part in reversed(task) if not part.isdigit()), task[0])
    return {"task": named, "model": "/".join(above[len(above) - ours :])}


def _rows(source: Source, path: Path) -> Iterator[tuple[str, Any]]:
    with untrusted.memory_limit(size := path.stat().st_size):
        own = {name.strip("_"): name for name in pq.read_schema(path).names}
    if missing := _STRUCTS - own.keys():
        raise ValueError(f"no column {', '.join(sorted(missing))}")
    leaves = [f"{own['doc']}.{name}" for name in _DOC]
    leaves += [own["metric"], *(f"{own['model_response']}.{name}" for name in _RESPONSE)]
    seen = 0
    for number, batch in trace.batches(path, leaves, source.skipped):
        with untrusted.memory_limit(size):  # a text may be stored once for many rows
            rows = batch.to_pylist() if batch else []
        for at, row in enumerate(rows, seen):
            yield (
                f"{source.skipped.file(path)}, row {at}",
                {name.strip("_"): row[name] for name in row},
            )
        seen += number


def _attempts(run: logs.Run, row: Any, outcomes: logs.Outcomes) -> Iterator[dict[str, Any]]:
    """Yield an attempt per text."""
    doc, response = row["doc"], row["model_response"]
    values = {name: value for name, value in row["metric"].items() if value is not None}
    texts, gold = response["text"] or [None], doc["gold_index"]
    thoughts, tokens = (response.get(name) or [None] * len(texts) for name in _RESPONSE[1:])
    for trial, outcome in enumerate(outcomes(values, len(texts))):
        text = texts[trial]
        yield outcome | {
            "question": doc["id"],
            "trial": trial,
            "text": text and logs.joined(thoughts[trial], text, run["model"]),
            "num_completion_tokens": text and tokens[trial] and len(tokens[trial]),
            "gold": doc["choices"][gold[0] if isinstance(gold, list) else gold],
            "problem": doc.get("original_query"),
            "prompt": doc["query"],
        }
