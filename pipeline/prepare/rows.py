"""Read the rows of a dataset: JSON Lines, a JSON array, CSV, Parquet, or one on the hub."""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import UserError, one_line
from bayes_at_n.pipeline.base.program import OFFLINE, find_local, from_hub
from bayes_at_n.pipeline.config.protocol import DatasetConfig

SUFFIXES = (".jsonl", ".json", ".csv", ".tsv", ".parquet")
# Common names of fields, in lower case; a longer list would sooner or later choose a wrong one.
_ALIASES = {"id": (), "problem": ("question", "prompt"), "answer": ("gold", "target")}
_BINARY = (b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"\x1f\x8b", b"\xff\xfe", b"\xfe\xff")
_ROWS = 256  # of Parquet that are read at a time
Rows = Iterator[tuple[str, dict[str, Any]]]  # each with its position, such as "line 3"


def open_rows(cfg: DatasetConfig) -> tuple[DatasetConfig, str, Rows]:
    """Return the dataset with the actual names of its fields, its source, and its rows.

    A field with its default name may have another common name, in any case; without an id column,
    `fields.id` becomes None. Raises UserError: no such file; while reading, a row is damaged.
    """
    local = find_local(cfg.path)
    if local is not None and not local.is_dir():
        source, rows = str(local), _read_file(local)
    elif Path(cfg.path).suffix in SUFFIXES:
        raise UserError(f"dataset.path={cfg.path}: no such file")
    else:
        source, rows = cfg.path, _read_hub(cfg, local)
    first = next(rows, None)
    if first is None:
        return cfg, source, rows
    return named(cfg, first[1]), source, itertools.chain([first], rows)


def named(cfg: DatasetConfig, row: dict[str, Any]) -> DatasetConfig:
    """Return the dataset with the actual names of its fields in a row; see `open_rows`."""
    by_case = {str(name).strip().casefold(): name for name in reversed(row)}
    fields = replace(cfg.fields)
    for field, aliases in _ALIASES.items():
        if getattr(fields, field) == field and field not in row:
            names = [by_case[name] for name in (field, *aliases) if name in by_case]
            setattr(fields, field, names[0] if names else None if field == "id" else field)
    return replace(cfg, fields=fields)


def _read_hub(cfg: DatasetConfig, local: Path | None) -> Rows:
    """Yield the rows of all subsets and splits on the hub, or in a `local` folder."""
    several = isinstance(cfg.subset, list) or isinstance(cfg.split, list)
    for subset, split in parts(cfg):
        rows = load_part(cfg, subset, split, local)
        where = f"{' '.join(filter(None, (subset, split)))}, " * several
        for number, row in enumerate(rows, 1):
            yield f"{where}row {number}", placed(row, subset, split, number)


def parts(cfg: DatasetConfig) -> Iterator[tuple[str | None, str]]:
    """Yield each subset and split of a dataset on the hub."""
    subsets, splits = (x if isinstance(x, list) else [x] for x in (cfg.subset, cfg.split))
    yield from itertools.product(subsets, splits)


def placed(row: dict[str, Any], subset: str | None, split: str, number: int) -> dict[str, Any]:
    """Return a row with the columns subset, split and row; its own of these names remain.

    >>> placed({"split": "a", "q": "1+1?"}, "en", "test", 3)
    {'split': 'a', 'q': '1+1?', 'subset': 'en', 'row': 3}
    """
    place = {"subset": subset, "split": split, "row": number}
    return row | {name: value for name, value in place.items() if name not in row}


def load_part(
    cfg: DatasetConfig, subset: str | None, split: str, local: Path | None, stream: bool = False
) -> Any:
    """Return the rows of one subset and split on the hub, or in a `local` folder.

    `stream`: do not download them before they are read. Raises UserError: it cannot be loaded.
    """
    import datasets

    datasets.disable_progress_bars()
    with from_hub(
        f"dataset.path={cfg.path} ({f'subset {subset}, ' if subset else ''}split {split})",
        "Check the id, dataset.subset and dataset.split;"
        f" {OFFLINE}, or use dataset=jsonl dataset.path=FILE",
        local is None,
    ):
        if local is not None and (local / "state.json").is_file():  # of Dataset.save_to_disk
            return datasets.load_from_disk(str(local))
        return datasets.load_dataset(
            str(local or cfg.path), subset, split=split, revision=cfg.revision, streaming=stream
        )


def _read_file(path: Path) -> Rows:
    """Return the rows of a file, whose format is detected by its first bytes."""
    untrusted.check(path)
    with path.open("rb") as file:
        head = file.read(1 << 16)
    if head.startswith(_BINARY):
        kind = "an Excel workbook, an archive or text in UTF-16"
        raise UserError(f"{path}: is {kind}; save the sheet as CSV UTF-8, or unpack the file")
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if head.startswith(b"PAR1") or path.suffix == ".parquet":
        return _parquet(path)
    if text.startswith(b"["):
        return _array(path)
    is_table = not text.startswith(b"{") and text and path.suffix not in (".jsonl", ".json")
    return _csv(path) if is_table else untrusted.json_lines(path)


def _csv(path: Path) -> Rows:
    """Yield rows as text: pyarrow and `datasets` guess types (007 becomes 7), without lines."""
    remedy = "save it as CSV UTF-8 with a header line, and commas and line breaks in double quotes"
    lines = ((f"line {number}", line or b"") for number, line in untrusted.lines(path))
    try:
        _, rows = untrusted.csv_table(lines)
    except ValueError as error:
        raise UserError(f"{path}, {error}; {remedy}") from error
    for position, row, fault in rows:
        if row is None:
            raise UserError(f"{path}, {position}: {fault}; {remedy}")
        yield position, row


def _array(path: Path) -> Rows:
    try:
        items = untrusted.json_value(untrusted.read_text(path, untrusted.MOST_LINE).encode())
    except ValueError as error:
        fault = f"not a JSON array in UTF-8 ({error}); write JSON Lines"
        raise UserError(f"{path}: {fault}") from error
    for number, item in enumerate(items, 1):
        if not isinstance(item, dict):
            raise UserError(f"{path}, item {number}: not an object, {{KEY: VALUE, ...}}")
        yield f"item {number}", item


def _parquet(path: Path) -> Rows:
    number, size = 0, path.stat().st_size
    try:
        with untrusted.memory_limit(size):  # whatever its metadata claim
            batches = pq.ParquetFile(path).iter_batches(_ROWS)
        while True:
            with untrusted.memory_limit(size):
                rows = [] if (batch := next(batches, None)) is None else batch.to_pylist()
            if batch is None:
                return
            for row in rows:
                number += 1
                yield f"row {number}", row
    except (pa.ArrowException, OSError, ValueError, KeyError, MemoryError) as error:
        fault = f"{path}, after row {number}: damaged Parquet ({one_line(error)})"
        raise UserError(f"{fault}; write the file again") from error
