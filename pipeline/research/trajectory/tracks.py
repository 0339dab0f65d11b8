"""What the finished runs of a trajectory hold, as arrays along the steps of training."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from pipeline.base.errors import UserError
from pipeline.generate.stage import mean_tokens
from pipeline.research.trajectory.plan import Evaluation, TrajectoryPlan
from pipeline.score.stage import MISSING, outcome_matrix
from pipeline.store.runfolder import Run

Ints = npt.NDArray[np.int64]
NONE = -1  # in place of the outcome of a trial that is missing


class Track(NamedTuple):
    """One training run on one data set with one size of windows: n models along training."""

    training: str
    dataset: str
    window: int  # 1: single checkpoints
    steps: Ints  # (n,)
    names: list[str]  # of the models, n
    outcomes: npt.NDArray[np.int8]  # (n, M, N), 1 correct, 0 not, -1 missing
    greedy: Ints | None  # (n, M), 1 where the greedy attempt is right
    prompt_tokens: float | None  # mean of a question
    completion_tokens: float | None  # mean of an attempt
    greedy_tokens: float | None  # mean of a greedy attempt

    @property
    def counts(self) -> Ints:
        """Wrong and right trials of each question, (n, M, 2)."""
        return np.stack([(self.outcomes == mark).sum(axis=-1) for mark in (0, 1)], axis=-1)

    @property
    def complete(self) -> bool:
        """Whether no trial is missing."""
        return not (self.outcomes == NONE).any()

    @property
    def trials(self) -> int:
        """Trials that every question of every model has."""
        return int(self.counts.sum(axis=-1).min())

    @property
    def equal(self) -> bool:
        """Whether all questions of all models have the same number of trials."""
        return bool(np.ptp(self.counts.sum(axis=-1)) == 0)

    def at(self, steps: Sequence[int] | Ints) -> "Track":
        """The same at some of its steps."""
        kept = np.flatnonzero(np.isin(self.steps, steps))
        return self._replace(
            steps=self.steps[kept],
            names=[self.names[i] for i in kept],
            outcomes=self.outcomes[kept],
            greedy=None if self.greedy is None else self.greedy[kept],
        )


def read(plan: TrajectoryPlan) -> list[Track]:
    """The tracks of a plan whose runs are complete: by training, data set and size of windows.

    Raises:
        UserError: two runs do not hold the same questions; a question without a graded attempt.
    """
    groups: dict[tuple[str, str, int], tuple[list[Evaluation], list[Evaluation]]] = {}
    order = {training.name: i for i, training in enumerate(plan.trainings)}
    for one in plan.evaluations:
        of = groups.setdefault((one.window.training, one.dataset, one.window.size), ([], []))
        of[one.greedy].append(one)
    marks: dict[str, list[str]] = {}  # hashes of a data set's questions, in the order of all tracks
    ordered = sorted(groups, key=lambda g: (order[g[0]], plan.datasets.index(g[1]), g[2]))
    return [_track(*group, *groups[group], marks) for group in ordered]


def _track(
    training: str,
    dataset: str,
    window: int,
    sampled: Sequence[Evaluation],
    greedy: Sequence[Evaluation],
    marks: dict[str, list[str]],
) -> Track:
    order = marks.setdefault(dataset, [q["question_hash"] for q in sampled[0].run.questions])
    once = [(_outcomes(one.run, order) == 1).any(axis=-1).astype(np.int64) for one in greedy]
    lengths = [len(q["prompt_token_ids"]) for q in sampled[0].run.questions]
    return Track(
        training,
        dataset,
        window,
        np.array([one.window.step for one in sampled]),
        [one.window.name for one in sampled],
        np.stack([_outcomes(one.run, order) for one in sampled]),
        np.stack(once) if once else None,
        float(np.mean(lengths)) if all(lengths) else None,
        _mean([mean_tokens(one.run.attempts) for one in sampled]),
        _mean([mean_tokens(one.run.attempts) for one in greedy]),
    )


def _outcomes(run: Run, order: Sequence[str]) -> npt.NDArray[np.int8]:
    """Outcomes (M, N) of a run's questions, in the order of their hashes."""
    outcomes = outcome_matrix(run)
    at = {question["question_hash"]: i for i, question in enumerate(run.questions)}
    if sorted(at) != sorted(order):
        raise UserError(
            f"{run.path}: holds other questions than the runs beside it; dataset.limit and the data"
            " set must be the same for all"
        )
    rows = outcomes[[at[mark] for mark in order]]
    if (rows == MISSING).all(axis=-1).any():
        raise UserError(f"{run.path}: a question has no graded attempt; run `grade` on it")
    return np.where(rows == MISSING, NONE, rows == "correct").astype(np.int8)


def _mean(values: Sequence[Any]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None
