"""One row an attempt, as CSV or Parquet, with names of columns that `import` takes back."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.records.reading import Export, Source
from bayes_at_n.pipeline.store import parquet

# Our columns in order; `_CALLED` are those that `records.row.COLUMNS` calls otherwise.
_NAMES = "dataset model question_id trial seed outcome answer gold problem prompt finish_reason"
_NAMES += " has_box prompt_tokens completion_tokens a b c"
_ASKED = ("dataset", "model", "gold", "problem", "prompt")
_CALLED = {label: f"verdict_{label}" for label in "abc"}
_CALLED |= {f"{part}_tokens": f"num_{part}_tokens" for part in ("prompt", "completion")}
_CALLED |= {"token_ids": "completion_token_list", "logprobs": "completion_logprob_list"}


def write_csv(export: Export, folder: Path) -> None:
    """Write `attempts.csv` of all runs: texts in quotes, nothing where a value is not known.

    A text that a spreadsheet would take for a formula has an apostrophe in front, which `import`
    takes away again.
    """
    from pyarrow.csv import CSVWriter

    batches = map(_guarded, tables(export, export.sources))
    write_rows(batches, folder / "attempts.csv", CSVWriter)


def write_parquet(export: Export, folder: Path) -> None:
    """Write `attempts.parquet` of all runs."""
    write_rows(tables(export, export.sources), folder / "attempts.parquet")


def write_rows(batches: Iterator[pa.Table], path: Path, writer: Any = parquet.writer) -> None:
    """Write tables, of which there is one at least, as one file."""
    first = next(batches)
    with path.open("wb") as file, writer(file, first.schema) as written:
        for batch in itertools.chain([first], batches):
            written.write(batch)


def tables(export: Export, sources: list[Source]) -> Iterator[pa.Table]:
    """The attempts of some runs, some rows at a time, with the same columns of all of them."""
    long = ["text"] * export.cfg.texts + ["token_ids", "logprobs"] * export.cfg.logprobs
    heads = sorted({head for source in export.sources for head in source.categories})
    names = [*_NAMES.split(), *heads, *long]
    for source in sources:
        called = {"dataset": source.dataset, "model": source.name}
        asked = [row | called for row in source.run.questions]
        rows = source.table
        for head in heads:
            unknown = pa.nulls(rows.num_rows, pa.int8())
            rows = rows.append_column(head, source.categories.get(head, unknown))
        said = {name: pa.array([row[name] for row in asked], pa.string()) for name in _ASKED}
        for batch in export.batches(source, *long, table=rows):
            question = pa.array(batch["key"].to_numpy() >> 32)
            for name, texts in said.items():
                batch = batch.append_column(name, texts.take(question))
            yield batch.select(names).rename_columns([_CALLED.get(name, name) for name in names])


def _guarded(table: pa.Table) -> pa.Table:
    r"""A table as CSV can have it, with an apostrophe before texts that a spreadsheet would run.

    >>> _guarded(pa.table({"answer": ["-1", "-x", "'=1", "a\0"]}))["answer"].to_pylist()
    ['-1', "'-x", "''=1", 'a�']
    """
    for at, column in enumerate(table.columns):
        if pa.types.is_string(column.type):
            said = pc.replace_substring_regex(column, f"^({foreign.FORMULA})", r"'\1")
            said = pc.replace_substring(said, "\0", "\ufffd")
            table = table.set_column(at, table.field(at), said)
    return table
