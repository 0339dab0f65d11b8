"""Look up and join rows of attempts by integer keys.

The key (question_id, trial) becomes one integer, `question << 32 | trial`, where `question` is the
index of the question in the run.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.store import parquet, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY, MEANS
from bayes_at_n.pipeline.store.runfolder import Run

Ints = npt.NDArray[np.int64]
TABLES = {"attempts": ATTEMPTS, "means": MEANS}  # sampled tables, by folder in a run


def question_ids(run: Run) -> pa.Array:
    """Return the ids of a run's questions in order."""
    return pa.array([q["question_id"] for q in run.questions], pa.string())


def encode(rows: Any, ids: pa.Array) -> Ints:
    """Return the key of each row of a table or batch, int64; -1 for questions not in `ids`.

    `key >> 32` is the index of the question in `ids`, `key & 0xffffffff` the trial.
    """
    questions = pc.fill_null(pc.index_in(rows[KEY[0]], value_set=ids), -1)
    number = questions.to_numpy().astype(np.int64)
    trial = pc.fill_null(rows[KEY[1]], -1).to_numpy().astype(np.int64)
    return np.where((number < 0) | (trial < 0), -1, (number << 32) | trial)


def cells(keys: Ints, trials: int) -> tuple[npt.NDArray[np.bool_], tuple[Ints, Ints]]:
    """Select the keys of known questions and the first `trials` trials.

    Returns a mask, and question and trial of the selected keys.

    >>> kept, (question, trial) = cells(np.array([-1, 7, 2 << 32 | 3]), 5)
    >>> kept.tolist(), question.tolist(), trial.tolist()
    ([False, False, True], [2], [3])
    """
    trial = keys & 0xFFFFFFFF
    kept = (keys >= 0) & (trial < trials)
    return kept, (keys[kept] >> 32, trial[kept])


def placed(rows: Any, ids: pa.Array, values: Any, shape: tuple[int, ...], unknown: Any) -> Any:
    """Return a matrix of questions and trials with the values of a table's rows, else `unknown`.

    >>> rows = pa.table({"question_id": ["b", "a", "c"], "trial": [0, 1, 0]})
    >>> placed(rows, pa.array(["a", "b"]), np.array([7, 8, 9]), (2, 2), -1).tolist()
    [[-1, 8], [7, -1]]
    """
    kept, cell = cells(encode(rows, ids), shape[1])
    matrix = np.full(shape, unknown, values.dtype)
    matrix[cell] = values[kept]
    return matrix


def rows_of(keys: Ints, known: Ints, order: Ints | None = None) -> Ints:
    """Return the index of each key in `known`, whose keys are unique, or -1.

    `order`: ``np.argsort(known)``, for repeated calls with one `known`.

    >>> rows_of(np.array([5, 7, 9]), np.array([9, 5])).tolist()
    [1, -1, 0]
    """
    if not known.size:
        return np.full(keys.shape, -1, np.int64)
    order = np.argsort(known) if order is None else order
    index = order[np.minimum(np.searchsorted(known, keys, sorter=order), known.size - 1)]
    return np.where(known[index] == keys, index, -1)


def in_order(rows: pa.Table, known: Ints, names: Sequence[str], keys: Ints) -> dict[str, pa.Array]:
    """Return columns of a table with the keys `known` in the order of `keys`, else null."""
    index = rows_of(keys, known)
    indices = pa.array(index, mask=index < 0)
    return {name: rows[name].take(indices).combine_chunks() for name in names}


def aligned(run: Run, rows: pa.Table, keys: Ints) -> dict[str, pa.Array]:
    """Return all columns but the key of a run's rows in the order of `keys`, else null."""
    names = [name for name in rows.column_names if name not in KEY]
    return in_order(rows, encode(rows, question_ids(run)), names, keys)


def keyed(run: Run, table: str, names: Sequence[str]) -> tuple[pa.Table, Ints]:
    """Read rows as `streamed`, those of known questions only; return them and their keys."""
    rows = streamed(run, table, names)
    keys = encode(rows, question_ids(run))
    return rows.filter(pa.array(keys >= 0)).combine_chunks(), keys[keys >= 0]


def streamed(run: Run, table: str, names: Sequence[str]) -> pa.Table:
    """Read key and columns of one of `TABLES`; warn about damaged rows."""
    columns, names, damage = TABLES[table], [*KEY, *names], parquet.Damage()
    batches = shards.batches(run.path / table, columns, names, damage)
    rows = pa.Table.from_batches(batches, pa.schema([columns.field(name) for name in names]))
    if damage.lines:
        remedy = f"`{PROGRAM} status --check {run.path}` sets them aside, `run` makes them again"
        warn(f"{run.path}: {table}: {damage}; they do not count; {remedy}")
    return rows.combine_chunks()


def responses(
    run: Run, keys: Ints, damage: parquet.Damage, few: bool = False
) -> Iterator[tuple[int, str]]:
    """Yield the texts of these attempts, each with its index in `keys`.

    `few`: skip row groups without any of them, if `keys` are few of the run's.
    """
    ids, order = question_ids(run), np.argsort(keys)
    keep = {(ids[key >> 32].as_py(), key & 0xFFFFFFFF) for key in keys.tolist()} if few else None
    for batch in shards.batches(run.attempts, ATTEMPTS, [*KEY, "text"], damage, keep):
        index = rows_of(encode(batch, ids), keys, order)
        texts = batch["text"].filter(pa.array(index >= 0)).fill_null("")
        yield from zip(index[index >= 0].tolist(), texts.to_pylist(), strict=True)
