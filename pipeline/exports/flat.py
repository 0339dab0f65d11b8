"""One row an attempt, as CSV or Parquet, with names of columns that `import` takes back."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base import csvs
from pipeline.exports.reading import LISTS, Export, Source
from pipeline.store import parquet

# Our columns in order, and what the file calls them: `imports.row.COLUMNS` has these names.
_NAMES = {name: name for name in ("dataset", "model", "question_id", "trial", "seed", "outcome")}
_NAMES |= {name: name for name in ("answer", "gold", "problem", "prompt")}
_NAMES |= {name: name for name in ("finish_reason", "has_box")}
_NAMES |= {f"{part}_tokens": f"num_{part}_tokens" for part in ("prompt", "completion")}
_NAMES |= {f"{part}_mean_logprob": f"{part}_avg_logprob" for part in ("prompt", "completion")}
_NAMES |= {label: f"verdict_{label}" for label in "abc"}
_LONG = {"text": "text"}
_LONG |= {"token_ids": "completion_token_list", "logprobs": "completion_logprob_list"}


def write_csv(export: Export, folder: Path) -> None:
    """Write `attempts.csv` of all runs: texts in quotes, nothing where a value is not known.

    A text that a spreadsheet would take for a formula has an apostrophe in front, which `import`
    takes away again.
    """
    from pyarrow import csv

    with (folder / "attempts.csv").open("wb") as file:
        batches = tables(export, export.sources)
        first = _guarded(next(batches))
        with csv.CSVWriter(file, first.schema) as lines:
            lines.write(first)
            for batch in batches:
                lines.write(_guarded(batch))


def write_parquet(export: Export, folder: Path) -> None:
    """Write `attempts.parquet` of all runs."""
    write_rows(export, export.sources, folder / "attempts.parquet")


def write_rows(export: Export, sources: list[Source], path: Path) -> None:
    """Write the attempts of some runs, which have any, as one Parquet file."""
    with path.open("wb") as file:
        batches = tables(export, sources)
        first = next(batches)
        with parquet.writer(file, first.schema) as groups:
            groups.write_table(first)
            for batch in batches:
                groups.write_table(batch)


def tables(export: Export, sources: list[Source]) -> Iterator[pa.Table]:
    """The attempts of some runs, some rows at a time, with the same columns of all of them."""
    cfg = export.cfg
    long = ["text"] * cfg.texts + [*LISTS] * cfg.logprobs
    rubrics = {name: of.record for s in export.sources for name, of in s.rubrics.items()}
    labels = [name for name, record in rubrics.items() if record.get("imported")]
    heads = {name: f"category_{name}" for name in sorted(rubrics)}
    if len(labels) == 1:  # the one that an import made, and makes again
        heads[labels[0]] = "category"
    names = _NAMES | {name: _LONG[name] for name in long} | {head: head for head in heads.values()}
    for source in sources:
        rows = _with_questions(source)
        for name, head in heads.items():
            rows = rows.append_column(head, source.categories(name))
        short = rows.select([name for name in names if name not in long])
        for batch in export.batches(source, *long, table=short):
            plain = [_plain(batch[name]) for name in names]
            yield pa.table(plain, names=[*names.values()])


def _with_questions(source: Source) -> pa.Table:
    """The rows of a run with what it is called, and what its questions say."""
    asked, question = source.run.questions, pa.array(source.keys >> 32, pa.int32())
    same = pa.array(np.zeros(source.keys.size, np.int32))
    columns = {
        "dataset": (same, [source.dataset]),
        "model": (same, [source.name]),
        "problem": (question, [row["problem"] for row in asked]),
        "prompt": (question, [row["prompt"] for row in asked]),
        "gold": (question, [row["gold"] for row in asked]),
    }
    rows = source.table
    for name, (places, texts) in columns.items():
        of_texts = pa.DictionaryArray.from_arrays(places, pa.array(texts, pa.string()))
        rows = rows.append_column(name, of_texts)
    return rows


def _plain(column: Any) -> Any:
    return column.cast(pa.string()) if pa.types.is_dictionary(column.type) else column


def _guarded(table: pa.Table) -> pa.Table:
    r"""A table with an apostrophe before texts that a spreadsheet would take for formulas.

    >>> _guarded(pa.table({"answer": ["-1", "-x", "'=1", "a\0"]}))["answer"].to_pylist()
    ['-1', "'-x", "''=1", 'a�']
    """
    columns = []
    for column in table.columns:
        if pa.types.is_string(column.type):
            start = pc.utf8_slice_codeunits(column, 0, 80)
            formula = pc.match_substring_regex(start, f"^'*({csvs.FORMULA})")
            number = pc.match_substring_regex(start, r"^[+-]?[0-9.]+$")
            marked = pc.binary_join_element_wise("'", column, "")
            column = pc.if_else(pc.and_not(formula, number), marked, column)
            column = pc.replace_substring(column, "\0", "\ufffd")  # no CSV has it
        columns.append(column)
    return pa.table(columns, names=table.column_names)
