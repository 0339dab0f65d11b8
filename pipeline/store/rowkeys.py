"""Rows of tables of attempts found and joined by their key, as numbers instead of Python objects.

The key (question_id, trial) becomes one whole number, `question << 32 | trial`, where the question
is its position among the run's. Hundreds of thousands of attempts are then sorted, looked up and
counted in arrays.
"""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.store import parquet, shards
from bayes_at_n.pipeline.store.columns import (
    ATTEMPTS,
    CONTINUED,
    DIGEST,
    KEY,
    MEANS,
)
from bayes_at_n.pipeline.store.runfolder import Run, read_manifest

Ints = npt.NDArray[np.int64]

TABLES = {
    "attempts": (ATTEMPTS, "generate"),
    "means": (MEANS, "import"),
}
"""Per table of attempts, by its folder in a run, its columns and the verb that makes its rows."""


def question_ids(run: Run) -> pa.Array:
    """The ids of a run's questions, in their order."""
    return pa.array([q["question_id"] for q in run.questions], pa.string())


def encode(rows: Any, ids: pa.Array) -> Ints:
    """One number per row of a table or batch: question (position in `ids`) and trial.

    Unknown questions get -1. `key >> 32` is the question, `key & 0xffffffff` the trial.
    """
    questions = pc.fill_null(pc.index_in(rows[KEY[0]], value_set=ids), -1)
    number = questions.to_numpy().astype(np.int64)
    trial = pc.fill_null(rows[KEY[1]], -1).to_numpy().astype(np.int64)
    return np.where((number < 0) | (trial < 0), -1, (number << 32) | trial)


def cells(keys: Ints, trials: int) -> tuple[npt.NDArray[np.bool_], tuple[Ints, Ints]]:
    """Which keys are of known questions and of the first `trials` trials, and where those are.

    Returns a mask of the keys' shape, and question and trial of the kept ones.

    >>> kept, (question, trial) = cells(np.array([-1, 7, 2 << 32 | 3]), 5)
    >>> kept.tolist(), question.tolist(), trial.tolist()
    ([False, False, True], [2], [3])
    """
    trial = keys & 0xFFFFFFFF
    kept = (keys >= 0) & (trial < trials)
    return kept, (keys[kept] >> 32, trial[kept])


def placed(rows: Any, ids: pa.Array, values: Any, shape: tuple[int, ...], unknown: Any) -> Any:
    """Values of the rows of a table as a matrix of questions and trials, `unknown` without a row.

    >>> rows = pa.table({"question_id": ["b", "a", "c"], "trial": [0, 1, 0]})
    >>> placed(rows, pa.array(["a", "b"]), np.array([7, 8, 9]), (2, 2), -1).tolist()
    [[-1, 8], [7, -1]]
    """
    kept, cell = cells(encode(rows, ids), shape[1])
    matrix = np.full(shape, unknown, values.dtype)
    matrix[cell] = values[kept]
    return matrix


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
    run: Run,
    table: str,
    names: Sequence[str],
    keys: Ints,
    damage: parquet.Damage | None = None,
) -> dict[str, pa.Array]:
    """Columns of a table, as for :func:`streamed`, in the order of `keys`; null without a row."""
    rows, known = keyed(run, table, names, damage)
    return in_order(rows, known, names, keys)


def in_order(rows: pa.Table, known: Ints, names: Sequence[str], keys: Ints) -> dict[str, pa.Array]:
    """Columns of a table whose rows have the keys `known`, in the order of `keys`, else null."""
    at = rows_of(keys, known)
    places = pa.array(at, mask=at < 0)
    return {name: rows[name].take(places).combine_chunks() for name in names}


def keyed(
    run: Run, table: str, names: Sequence[str], damage: parquet.Damage | None = None
) -> tuple[pa.Table, Ints]:
    """What :func:`streamed` gives of the questions that the run has, and the key of each row."""
    rows = streamed(run, table, names, damage)
    keys = encode(rows, question_ids(run))
    return rows.filter(pa.array(keys >= 0)).combine_chunks(), keys[keys >= 0]


def streamed(
    run: Run, table: str, names: Sequence[str], damage: parquet.Damage | None = None
) -> pa.Table:
    """The key and some columns of a table of attempts, in memory.

    `table` is one of `TABLES`, and `damage` gets what could not be read; without it a warning says
    so, and what to run. Rows that were made of what an attempt no longer holds (it was continued,
    or lost and made anew) are left out; `damage.outdated` counts them.
    """
    (columns, verb), names = TABLES[table], [*KEY, *names]
    unreadable, old = parquet.Damage() if damage is None else damage, [np.empty(0, np.int64)]
    keep = None if columns is ATTEMPTS else _keep(run, old)
    batches = shards.batches(run.path / table, columns, names, unreadable, keep=keep)
    rows = pa.Table.from_batches(batches, pa.schema([columns.field(name) for name in names]))
    if (gone := np.unique(np.concatenate(old))).size:  # others of them are made anew by now
        unreadable.outdated = np.setdiff1d(gone, encode(rows, question_ids(run))).size
    told = [str(unreadable)] * bool(unreadable.lines)
    if unreadable.outdated:
        told.append(f"{unreadable.outdated} are of attempts that have changed or are gone")
    if damage is None and told:
        verb = verb if run.attempts.exists() else "generate"
        told.append(f"they do not count; run `{verb}` to make them again")
        warn(f"{run.path}: {table}: {'; '.join(told)}")
    return rows.combine_chunks()


class Contents(NamedTuple):
    """What the attempts of a run are now, n of them, in the order of question and trial."""

    keys: Ints  # (n,) see encode
    states: Ints  # (n,) see state
    hashed: bool  # whether each says its digest; older ones do not


def contents(run: Run) -> Contents:
    """What the attempts of a run are now; read once while their files stay as they are."""
    files = tuple((path.name, parquet.fingerprint(path)) for path in shards.files(run.attempts))
    return _contents(run.attempts, files, tuple(question_ids(run).to_pylist()))


@lru_cache(maxsize=4)
def _contents(
    folder: Path, files: tuple[tuple[str, str], ...], question_ids: tuple[str, ...]
) -> Contents:
    columns = pa.schema([ATTEMPTS.field(name) for name in (*KEY, CONTINUED.name, DIGEST.name)])
    batches = shards.batches(folder, ATTEMPTS, columns.names, parquet.Damage())
    rows = pa.Table.from_batches(batches, columns).combine_chunks()
    keys = encode(rows, pa.array(question_ids, pa.string()))
    order = np.argsort(keys)[np.count_nonzero(keys < 0) :]  # of the run's questions
    return Contents(keys[order], state(rows)[order], not rows[DIGEST.name].null_count)


def _keep(run: Run, old: list[Ints]) -> parquet.Keep:
    """Which rows of another table are of what attempts are now.

    The keys of other rows are added to `old`. Rows without an attempt count where a record was
    imported without one, also while it is: a manifest comes last.
    """
    ids, now = question_ids(run), contents(run)
    order, states = np.arange(now.keys.size), np.append(now.states, 0)

    def keep(batch: Any) -> pa.Array:
        keys = encode(batch, ids)
        at = rows_of(keys, now.keys, order)
        alone = (at < 0) & batch[DIGEST.name].is_null().to_numpy(False)
        if alone.any():
            made = read_manifest(run)
            alone &= "imported" in made or not (made or run.attempts.exists())
        same = np.where(at < 0, alone, states[at] == state(batch))
        old.append(keys[~same & (keys >= 0)])
        return pa.array(same)

    return keep


def state(rows: Any) -> Ints:
    """A number for what an attempt holds, by the columns of it or of what was made of it."""
    both: Ints = rows[DIGEST.name].fill_null(-1).to_numpy().astype(np.int64)
    if CONTINUED.name in rows.schema.names:  # what is imported lacks it, and never goes on
        both = both + 31 * (rows[CONTINUED.name].fill_null(-1).to_numpy().astype(np.int64) + 1)
    return both


def responses(run: Run, keys: Ints, damage: parquet.Damage) -> Iterator[tuple[int, str]]:
    """Stream the texts of attempts: each with its position in `keys`; others are passed over."""
    ids, order = question_ids(run), np.argsort(keys)
    for batch in shards.batches(run.attempts, ATTEMPTS, [*KEY, "text"], damage):
        at = rows_of(encode(batch, ids), keys, order)
        texts = batch["text"].filter(pa.array(at >= 0)).fill_null("")
        yield from zip(at[at >= 0].tolist(), texts.to_pylist(), strict=True)
