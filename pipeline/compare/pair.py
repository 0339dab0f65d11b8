"""Two runs of the same questions: which of their trials belong together, what attempts hold."""

import hashlib
import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.compare.cohort import padded
from bayes_at_n.pipeline.rubrics.signals import bits_per_token
from bayes_at_n.pipeline.store import find, outcomes, parquet, rowkeys, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, KEY
from bayes_at_n.pipeline.store.outcomes import CORRECT, OWED, Codes
from bayes_at_n.pipeline.store.runfolder import Run, opened
from bayes_at_n.scoring.numerics.inputs import Floats, Ints

_UNKNOWN = -1  # a seed that no record tells


class Attempts(NamedTuple):
    """The attempts of a run: M questions in the pair's order, T trials of each."""

    lengths: Floats  # (M, T) tokens of the completion; NaN where no record says it
    logprobs: Floats  # (M, T) their mean log-prob, natural; NaN likewise
    seeds: Ints  # (T,) one number for those of a trial's questions, -1 where one has none
    rows: Ints  # (M, T) where in `token_ids` its tokens are; -1: nowhere
    token_ids: pa.ListArray

    def tokens(self, question: int, trial: int) -> npt.NDArray[np.int32]:
        """The tokens of one attempt that has some."""
        found: npt.NDArray[np.int32] = self.token_ids[self.rows[question, trial]].values.to_numpy()
        return found


class Pair(NamedTuple):
    """Runs A and B, and N trials of each that belong together."""

    names: list[str]  # of the folders, each once
    runs: list[Run]
    questions: list[list[int]]  # M rows of each run's questions, in one order
    codes: Codes  # (2, M, most trials) of all attempts, see pipeline.store.outcomes
    attempts: list[Attempts]
    trials: list[Ints]  # (N,) of each
    shared: int  # the first so many have the same seeds in both runs

    def correct(self) -> Floats:
        """1 correct, 0 not, of the trials that belong together: (2, M, N)."""
        pairs = zip(self.codes, self.trials, strict=True)
        return np.stack([codes[:, of] == CORRECT for codes, of in pairs]).astype(float)


def load(folders: list[str]) -> Pair:
    """The runs in two folders, side by side.

    Trials whose questions have the same seeds in both runs are a pair; what is left over is paired
    in its order. Only trials count that are graded for every question. Raises UserError: one folder
    twice, no run in it, other questions, no trial that is complete.
    """
    paths = [Path(folder).expanduser() for folder in folders]
    if paths[0].resolve() == paths[1].resolve():
        raise UserError(f"{folders[1]}: is both runs; name two run folders")
    runs = [opened(path) for path in paths]
    read = [outcomes.read(run) for run in runs]
    first, second = (of_run.positions() for of_run in read)
    if first.keys() != second.keys():
        raise UserError(
            f"{paths[1] / 'questions.parquet'}: question_hash: {len(first.keys() & second.keys())}"
            f" of its {len(second)} questions are among the {len(first)} of {paths[0]}; sample the"
            " same questions in both runs (dataset=NAME dataset.limit=N)"
        )
    questions = [list(first.values()), [second[mark] for mark in first]]
    codes = [of_run.codes[rows] for of_run, rows in zip(read, questions, strict=True)]
    attempts = [_attempts(run, rows) for run, rows in zip(runs, questions, strict=True)]
    complete = [np.flatnonzero((of_run != OWED).all(axis=0)) for of_run in codes]
    for path, whole in zip(paths, complete, strict=True):
        if not whole.size:
            raise UserError(
                f"{path / 'grades'}: outcome: no trial is graded for every question; run"
                f" `{PROGRAM} run {path}`"
            )
    seeds = [of.seeds[whole] for of, whole in zip(attempts, complete, strict=True)]
    *at, shared = paired(seeds[0], seeds[1])
    trials = [whole[places] for whole, places in zip(complete, at, strict=True)]
    if len(first) * trials[0].size < 2:
        raise UserError(f"{paths[0]}: one attempt tells nothing; sample with sampling.trials=8")
    most = max(of_run.shape[1] for of_run in codes)
    stack = np.stack([padded(of_run, most) for of_run in codes])
    return Pair(find.names(paths), runs, questions, stack, attempts, trials, shared)


def paired(first: Ints, second: Ints) -> tuple[Ints, Ints, int]:
    """Which trials belong together, by their seeds: positions in both, (N,); the first share them.

    No seed is then in two pairs, so that pairs are independent draws.

    >>> paired(np.array([7, 8, 9]), np.array([8, 9, 10, 11]))
    (array([1, 2, 0]), array([0, 1, 2]), 2)
    """
    shared, a, b = np.intersect1d(first, second, return_indices=True)
    known = shared != _UNKNOWN
    a, b = np.stack([a[known], b[known]])[:, np.argsort(a[known])]
    rest = [np.setdiff1d(np.arange(of.size), at) for of, at in ((first, a), (second, b))]
    n = min(len(places) for places in rest)
    return np.append(a, rest[0][:n]), np.append(b, rest[1][:n]), a.size


def _attempts(run: Run, questions: list[int]) -> Attempts:
    """What the attempts of a run hold; what cannot be read is left out, and a warning says so."""
    ids = rowkeys.question_ids(run).take(pa.array(questions))
    shape = len(ids), run.cfg.sampling.trials
    lengths, logprobs = np.full(shape, np.nan), np.full(shape, np.nan)
    seeds, rows = np.full(shape, _UNKNOWN), np.full(shape, -1)
    parts = [pa.array([], ATTEMPTS.field("token_ids").type)]
    number, damage = 0, parquet.Damage()
    columns = [*KEY, "seed", "completion_tokens", "token_ids", "logprobs"]
    for whole in shards.batches(run.attempts, ATTEMPTS, columns, damage):
        kept, _ = rowkeys.cells(rowkeys.encode(whole, ids), shape[1])
        batch = whole.filter(pa.array(kept))
        _, cell = rowkeys.cells(rowkeys.encode(batch, ids), shape[1])
        lengths[cell] = pc.cast(batch["completion_tokens"], pa.float64()).to_numpy(
            zero_copy_only=False
        )
        logprobs[cell] = -bits_per_token(batch["logprobs"]) * math.log(2)
        seeds[cell] = pc.fill_null(batch["seed"], _UNKNOWN).to_numpy()
        there = pc.is_valid(batch["token_ids"]).to_numpy(zero_copy_only=False)
        rows[cell] = np.where(there, number + np.cumsum(there) - 1, -1)
        parts.append(batch["token_ids"].filter(pa.array(there)))
        number += int(there.sum())
    if damage.lines:
        warn(f"{run.path}: attempts: {damage}; they do not count; run `generate` to make them")
    return Attempts(lengths, logprobs, _as_one(seeds), rows, pa.concat_arrays(parts))


def _as_one(seeds: Ints) -> Ints:
    """One number for each column of seeds (M, T): the same where all of them are; -1 with a -1."""
    columns = np.ascontiguousarray(seeds.T)
    digests = (hashlib.blake2b(column, digest_size=8).digest() for column in columns)
    numbers = np.array([int.from_bytes(digest) >> 1 for digest in digests], np.int64)
    return np.where((seeds == _UNKNOWN).any(axis=0), _UNKNOWN, numbers)


def first_differences(pair: Pair) -> tuple[Ints, Ints]:
    """Where the tokens of attempts with the same seed part.

    Returns, per attempt of both runs that has tokens, its question and the position of the first
    token that differs, from 0; -1 where all are the same.
    """
    a, b = pair.attempts
    questions, positions = [], []
    trials = np.stack(pair.trials)[:, : pair.shared].T.tolist()
    for question in range(len(a.rows)):
        for of_a, of_b in trials:
            if a.rows[question, of_a] >= 0 and b.rows[question, of_b] >= 0:
                questions.append(question)
                both = a.tokens(question, of_a), b.tokens(question, of_b)
                positions.append(first_difference(*both))
    return np.array(questions, np.int64), np.array(positions, np.int64)


def first_difference(a: npt.NDArray[np.int32], b: npt.NDArray[np.int32]) -> int:
    """The first position at which two lists of tokens differ; -1 where they are the same.

    >>> a, b = np.array([1, 2, 3]), np.array([1, 2])
    >>> first_difference(a, b), first_difference(a, a)
    (2, -1)
    """
    n = min(len(a), len(b))
    unlike = np.flatnonzero(a[:n] != b[:n])
    return int(unlike[0]) if unlike.size else -1 if len(a) == len(b) else n
