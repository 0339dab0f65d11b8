"""Rows on their way to the disk, as the tables of run folders, which are renamed at the end.

Everything is written under `runs/_import-HASH/`, which no verb takes for a run, and renamed when
the whole source has been read. A killed import leaves that folder; the same command clears it and
begins again.
"""

import contextlib
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from pipeline.imports.row import Row
from pipeline.store import lease, parquet
from pipeline.store.columns import ATTEMPTS, DIGEST, GRADES, MEANS, VERDICTS, digest

MOST_BYTES = 96 << 20  # of rows that wait to be written, about
_ROW_BYTES = 4000  # of a row without its texts and lists

# Per table its columns, and those of which a row that belongs there has one.
_TABLES = {
    "attempts": (ATTEMPTS, ("text", "finish_reason", "completion_tokens")),
    "grades": (GRADES, ("outcome",)),
    "verdicts": (VERDICTS, ("label",)),
    "means": (MEANS, ("prompt_mean_logprob", "completion_mean_logprob")),
}


class Staging:
    """Rows of all runs of an import that wait for the disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._waiting: dict[str, list[Row]] = defaultdict(list)  # by run, as in what follows
        self._bytes: Counter[str] = Counter()
        self._parts: Counter[str] = Counter()

    def add(self, run: str, row: Row) -> None:
        """Take a row of a run (DATASET/MODEL) under its question's id; much is written at once."""
        row["prompt"] = row["problem"] = row["gold"] = None  # the plan has them
        size = sum(len(row[name]) for name in ("text", "answer", "reason") if row[name])
        size += sum(row[name].nbytes for name in ("token_ids", "logprobs") if row[name] is not None)
        self._waiting[run].append(row)
        self._bytes[run] += _ROW_BYTES + size
        if self._bytes.total() > MOST_BYTES:
            self.flush(MOST_BYTES // 2)

    def flush(self, most: int = 0) -> None:
        """Write until at most so many bytes wait.

        The largest runs come first: few and large parts, whatever the records' order.
        """
        for run, _ in self._bytes.most_common():
            if self._bytes.total() <= most:
                return
            rows = self._waiting.pop(run)
            for name, (schema, marks) in _TABLES.items():
                of_table = [row for row in rows if any(row.get(mark) is not None for mark in marks)]
                if name == "attempts":  # the first: what else is told of them is of these
                    for row in of_table:
                        row[DIGEST.name] = digest(row)
                if of_table:
                    path = self.folder / run / name / f"import-{self._parts[run]:05d}.parquet"
                    path.parent.parent.mkdir(parents=True, exist_ok=True)
                    parquet.write_part(path, pa.Table.from_pylist(of_table, schema=schema))
            self._parts[run] += 1
            del self._bytes[run]


@contextlib.contextmanager
def opened(runs: Path, fingerprint: str) -> Iterator[Staging]:
    """An empty staging folder that is this process's alone; it goes when the import ends.

    Raises UserError: another process imports the same source.
    """
    folder = runs / f"_import-{fingerprint}"
    runs.mkdir(parents=True, exist_ok=True)
    with lease.held(folder.with_suffix(".lease"), "importing this source"):
        shutil.rmtree(folder, ignore_errors=True)
        try:
            yield Staging(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
