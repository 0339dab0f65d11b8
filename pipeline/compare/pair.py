"""Two runs of the same questions: which of their trials belong together, what attempts hold."""

import math
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.program import PROGRAM
from bayes_at_n.pipeline.compare import cohort
from bayes_at_n.pipeline.compare.cohort import Cohort, Member
from bayes_at_n.pipeline.rubrics.signals import bits_per_token
from bayes_at_n.pipeline.store import tables
from bayes_at_n.pipeline.store.outcomes import CORRECT, PENDING
from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints

_UNKNOWN = -1  # a seed that no record has


class Attempts(NamedTuple):
    """The attempts of a run: M questions in the pair's order, T trials of each."""

    lengths: Floats  # (M, T) tokens of the completion; NaN where no record has it
    logprobs: Floats  # (M, T) their mean log-prob, natural; NaN likewise
    seeds: Ints  # (M, T), -1 where there is none
    rows: Ints  # (M, T) the row of `table` that has its tokens; -1: none
    table: pa.Table  # token_ids, logprobs

    def tokens(self, question: int, trial: int) -> npt.NDArray[np.int32]:
        """Return the tokens of one attempt that has some."""
        found = self.table["token_ids"][self.rows[question, trial]].values
        return np.asarray(found, np.int32)


class Pair(NamedTuple):
    """Runs A and B, and N trials of each that belong together."""

    cohort: Cohort  # of the two
    attempts: list[Attempts]
    trials: list[Ints]  # (N,) of each
    shared: int  # the first so many have the same seeds in both runs

    def correct(self) -> Floats:
        """Return 1 for correct and 0 for not, of the trials that belong together: (2, M, N)."""
        pairs = zip(self.cohort.outcomes, self.trials, strict=True)
        return np.stack([codes[:, of] == CORRECT for codes, of in pairs]).astype(float)


def load(folders: list[str]) -> Pair:
    """Read the runs in two folders, side by side.

    Trials whose questions have the same seeds in both runs are a pair; what is left over is paired
    in its order. Only trials count that are graded for every question. Raises UserError: one folder
    twice, no run in it, other questions, no trial that is complete.
    """
    paths = [Path(folder).expanduser() for folder in folders]
    if paths[0].resolve() == paths[1].resolve():
        raise UserError(f"{folders[1]}: named twice; name two different run folders")
    both = cohort.of_runs("equivalence", dict.fromkeys(paths), True, _refuse)
    sizes = [len(member.run.questions) for member in both.members]
    if max(sizes) > len(both.question_ids):
        raise UserError(
            f"{paths[1] / 'questions.parquet'}: question_hash: {len(both.question_ids)} of its"
            f" {sizes[1]} questions are among the {sizes[0]} of {paths[0]}; sample the same"
            " questions in both runs (dataset=NAME dataset.limit=N)"
        )
    attempts = [_attempts(member) for member in both.members]
    complete = [np.flatnonzero((codes != PENDING).all(axis=0)) for codes in both.outcomes]
    for path, whole in zip(paths, complete, strict=True):
        if not whole.size:
            raise UserError(
                f"{path / 'grades'}: outcome: no trial is graded for every question; run"
                f" `{PROGRAM} run {path}`"
            )
    seeds = [of.seeds[:, whole] for of, whole in zip(attempts, complete, strict=True)]
    *at, shared = paired(seeds[0], seeds[1])
    trials = [whole[positions] for whole, positions in zip(complete, at, strict=True)]
    if len(both.question_ids) * trials[0].size < 2:
        raise UserError(f"{paths[0]}: one attempt is not enough; sample with sampling.trials=8")
    return Pair(both, attempts, trials, shared)


def _refuse(name: str, why: object) -> None:
    raise UserError(f"{name}: {why}")


def paired(first: Ints, second: Ints) -> tuple[Ints, Ints, int]:
    """Pair trials by the seeds (M, T) of their questions: positions in both, (N,).

    The first pairs, as many as the number returned, share all their seeds. No seed is then in two
    pairs, so that pairs are independent draws.

    >>> paired(np.array([[7, 8, 9]]), np.array([[8, 9, 10, 11]]))
    (array([1, 2, 0]), array([0, 1, 2]), 2)
    """
    both = np.concatenate([first, second], axis=1)
    labels = np.unique(both, axis=1, return_inverse=True)[1].ravel()
    labels[(both == _UNKNOWN).any(axis=0)] = _UNKNOWN
    left, right = np.split(labels, [first.shape[1]])
    shared, a, b = np.intersect1d(left, right, return_indices=True)
    known = shared != _UNKNOWN
    a, b = np.stack([a[known], b[known]])[:, np.argsort(a[known])]
    rest = [np.setdiff1d(np.arange(of.size), at) for of, at in ((left, a), (right, b))]
    n = min(len(positions) for positions in rest)
    return np.append(a, rest[0][:n]), np.append(b, rest[1][:n]), a.size


def _attempts(member: Member) -> Attempts:
    """Read what the attempts of a run hold; a warning names what is unreadable."""
    ids = pa.array(member.question_ids, pa.string())
    names = ["seed", "completion_tokens", "token_ids", "logprobs"]
    table = tables.streamed(member.run, "attempts", names)
    stored = pc.is_valid(table["token_ids"]).to_numpy()
    columns = {
        "lengths": pc.cast(table["completion_tokens"], pa.float64()).to_numpy(),
        "logprobs": -bits_per_token(table["logprobs"].combine_chunks()) * math.log(2),
        "seeds": pc.fill_null(table["seed"], _UNKNOWN).to_numpy(),
        "rows": np.where(stored, np.arange(stored.size), -1),
    }
    blank = {"lengths": np.nan, "logprobs": np.nan, "seeds": _UNKNOWN, "rows": -1}
    shape = len(ids), member.run.cfg.sampling.trials
    matrices = {
        name: tables.placed(table, ids, values, shape, blank[name])
        for name, values in columns.items()
    }
    return Attempts(**matrices, table=table.select(["token_ids", "logprobs"]))


def unlike_tokens(pair: Pair) -> tuple[Ints, Bools]:
    """Compare the tokens of attempts with the same seed, of both runs, that have tokens.

    Returns the question of each such attempt, and whether its tokens differ.
    """
    a, b = pair.attempts
    trials = np.stack(pair.trials)[:, : pair.shared].T.tolist()
    found = [
        (question, not np.array_equal(a.tokens(question, of_a), b.tokens(question, of_b)))
        for question in range(len(a.rows))
        for of_a, of_b in trials
        if a.rows[question, of_a] >= 0 and b.rows[question, of_b] >= 0
    ]
    questions, differ = np.array(found, np.int64).reshape(-1, 2).T
    return questions, differ > 0
