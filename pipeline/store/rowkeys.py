"""Rows of tables of attempts found and joined by their key, as numbers instead of Python objects.

The key (question_id, trial) becomes one whole number, `question << 32 | trial`, where the question
is its position among the run's. Hundreds of thousands of attempts are then sorted, looked up and
counted in arrays.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.base.console import warn
from pipeline.store import shards
from pipeline.store.columns import KEY
from pipeline.store.runfolder import Run

Ints = npt.NDArray[np.int64]


def question_ids(run: Run) -> pa.Array:
    """The ids of a run's questions, in their order."""
    return pa.array([q["question_id"] for q in run.questions], pa.string())


def encode(rows: Any, ids: pa.Array) -> Ints:
    """One number per row of a table or batch: question (position in `ids`) and trial.

    Unknown questions get -1. `key >> 32` is the question, `key & 0xffffffff` the trial.
    """
    questions = pc.fill_null(pc.index_in(rows[KEY[0]], value_set=ids), -1)
    number = questions.to_numpy().astype(np.int64)
    trial = rows[KEY[1]].to_numpy().astype(np.int64)
    return np.where((number < 0) | (trial < 0), -1, (number << 32) | trial)


def cells(keys: Ints, trials: int) -> tuple[npt.NDArray[np.bool_], tuple[Ints, Ints]]:
    """Which keys are of known questions and of the first `trials` trials, and where those are.

    Returns:
        A mask of the keys' shape, and question and trial of the kept ones.

    >>> kept, (question, trial) = cells(np.array([-1, 7, 2 << 32 | 3]), 5)
    >>> kept.tolist(), question.tolist(), trial.tolist()
    ([False, False, True], [2], [3])
    """
    trial = keys & 0xFFFFFFFF
    kept = (keys >= 0) & (trial < trials)
    return kept, (keys[kept] >> 32, trial[kept])


def rows_of(keys: Ints, known: Ints, order: Ints | None = None) -> Ints:
    """For each of `keys` its position in `known` (each there once), or -1.

    For many calls with one `known`, pass what ``np.argsort(known)`` gave as `order`.

    >>> rows_of(np.array([5, 7, 9]), np.array([9, 5])).tolist()
    [1, -1, 0]
    """
    if not known.size:
        return np.full(keys.shape, -1, np.int64)
    order = np.argsort(known) if order is None else order
    at = order[np.minimum(np.searchsorted(known, keys, sorter=order), known.size - 1)]
    return np.where(known[at] == keys, at, -1)


def aligned(
    folder: Path, columns: pa.Schema, names: Sequence[str], keys: Ints, ids: pa.Array, verb: str
) -> dict[str, pa.Array]:
    """Columns of a table of attempts in the order of `keys`; null where it has no row.

    Args:
        folder: where the table's shards are.
        columns: the table's.
        names: which of them.
        keys: the rows wanted, as from :func:`encode`.
        ids: the run's question ids, as for :func:`encode`.
        verb: the command that makes damaged rows again.
    """
    table = streamed(folder, columns, [*KEY, *names], verb)
    rows = rows_of(keys, encode(table, ids))
    at = pa.array(rows, mask=rows < 0)
    return {name: table[name].take(at).combine_chunks() for name in names}


def streamed(folder: Path, columns: pa.Schema, names: Sequence[str], verb: str | None) -> pa.Table:
    """Some columns of a table of attempts, in memory; a warning says which rows are damaged.

    The warning names the verb that makes them again; without one there is none.
    """
    damage = shards.Damage()
    batches = list(shards.batches(folder, columns, names, damage))
    if damage.lines and verb:
        where = f"{folder.parent}: {folder.name}"
        warn(f"{where}: {damage}; they do not count; run `{verb}` to make them again")
    schema = pa.schema([columns.field(name) for name in names])
    return pa.Table.from_batches(batches, schema).combine_chunks()
