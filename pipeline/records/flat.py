"""One attempt per row, as CSV, JSON Lines or Parquet; exports can be imported again."""

import itertools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.records.reading import Export, RunTable
from bayes_at_n.pipeline.records.source import BLANK, Records, Source, json_lines, lines
from bayes_at_n.pipeline.store import parquet

# Our columns in order; `_CALLED` maps them to their names in `columns.COLUMNS`, if these differ.
_NAMES = "dataset model question_id trial seed outcome answer gold problem prompt finish_reason"
_NAMES += " has_box prompt_tokens completion_tokens a b c"
_SHARED = ("dataset", "model", "gold", "problem", "prompt")
_CALLED = {label: f"verdict_{label}" for label in "abc"}
_CALLED |= {f"{part}_tokens": f"num_{part}_tokens" for part in ("prompt", "completion")}
_CALLED |= {"token_ids": "completion_token_list", "logprobs": "completion_logprob_list"}


def is_json(path: Path, head: bytes) -> bool:
    """Return whether a file is JSON Lines or a JSON list, by its name or its beginning."""
    first = head.lstrip(BLANK).splitlines()[0].rstrip()
    return path.suffix == ".jsonl" or first[:1] == b"[" or (first[:1] + first[-1:]) == b"{}"


def is_csv(_: Path, head: bytes) -> bool:
    """Return whether a file may be CSV, by its beginning."""
    return b"\0" not in head.splitlines()[0] and head.lstrip(BLANK)[:1] not in b"{["


def read_json(source: Source) -> Records:
    """Yield the objects of files of JSON Lines, or of a JSON list."""
    for path in source.files:
        yield from json_lines(path, source.skipped)


def read_csv(source: Source) -> Records:
    """Yield the rows of CSV files with a header. Raises UserError: a header cannot be read."""
    for path in source.files:
        try:
            names, rows = untrusted.csv_table(lines(path, source.skipped))
        except ValueError as error:
            raise UserError(f"{path}: not valid CSV ({error})") from error
        source.skipped.columns.update(names)
        for place, record, damage in rows:
            if record is None:
                source.skipped.damaged(place, damage)
            else:
                yield place, {name: _unescaped(cell) for name, cell in record.items()}


def _unescaped(cell: str) -> str:
    """Return a cell without the apostrophe that keeps a spreadsheet from evaluating it.

    >>> _unescaped("'=1+1"), _unescaped("''-x"), _unescaped("'tis"), _unescaped("=1")
    ('=1+1', "'-x", "'tis", '=1')
    """
    return cell[1:] if cell[:1] == "'" and re.match(untrusted.FORMULA, cell) else cell


def write_csv(export: Export, folder: Path) -> None:
    """Write `attempts.csv` of all runs: texts in quotes, unknown values empty.

    A text that a spreadsheet would evaluate as a formula gets an apostrophe, which `import`
    removes, unless `guard` is none.
    """
    from pyarrow.csv import CSVWriter

    guarded = export.cfg.guard != "none"
    batches = (_escaped(table, guarded) for table in tables(export, export.sources))
    write_rows(batches, folder / "attempts.csv", CSVWriter)


def write_parquet(export: Export, folder: Path) -> None:
    """Write `attempts.parquet` of all runs."""
    write_rows(tables(export, export.sources), folder / "attempts.parquet")


def write_rows(batches: Iterator[pa.Table], path: Path, writer: Any = parquet.writer) -> None:
    """Write one or more tables as one file."""
    first = next(batches)
    with path.open("wb") as file, writer(file, first.schema) as written:
        for batch in itertools.chain([first], batches):
            written.write(batch)


def tables(export: Export, sources: list[RunTable]) -> Iterator[pa.Table]:
    """Yield the attempts of some runs in batches, with the columns that all runs have together."""
    long = ["text"] * export.cfg.texts + ["token_ids", "logprobs"] * export.cfg.logprobs
    heads = sorted({head for source in export.sources for head in source.categories})
    names = [*_NAMES.split(), *heads, *long]
    for source in sources:
        called = {"dataset": source.dataset, "model": source.name}
        questions = [row | called for row in source.run.questions]
        rows = source.table
        for head in heads:
            unknown = pa.nulls(rows.num_rows, pa.int8())
            rows = rows.append_column(head, source.categories.get(head, unknown))
        known = {key: pa.array([row[key] for row in questions], pa.string()) for key in _SHARED}
        for batch in export.batches(source, *long, table=rows):
            question = pa.array(batch["key"].to_numpy() >> 32)
            for name, texts in known.items():
                batch = batch.append_column(name, texts.take(question))
            yield batch.select(names).rename_columns([_CALLED.get(name, name) for name in names])


def _escaped(table: pa.Table, guarded: bool = True) -> pa.Table:
    r"""Return a table safe for CSV: an apostrophe before texts that a spreadsheet would evaluate.

    >>> rows = ["-1", "-1 + 5", "-x", "-2+cmd|' /C calc'!A0", "'=1", "a\0"]
    >>> _escaped(pa.table({"answer": rows}))["answer"].to_pylist()
    ['-1', '-1 + 5', "'-x", "'-2+cmd|' /C calc'!A0", "''=1", 'a�']
    """
    for at, column in enumerate(table.columns):
        if pa.types.is_string(column.type):
            texts = pc.replace_substring(column, "\0", "\ufffd")
            if guarded:
                texts = pc.replace_substring_regex(texts, f"^({untrusted.FORMULA})", r"'\1")
            table = table.set_column(at, table.field(at), texts)
    return table
