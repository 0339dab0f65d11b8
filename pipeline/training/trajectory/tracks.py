"""What the finished runs of a trajectory hold, as arrays along the steps of training."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from bayes_at_n.pipeline.base.console import warn
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.score import votes
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.training import protocols
from bayes_at_n.pipeline.training.protocols import GREEDY, Tokens
from bayes_at_n.pipeline.training.tables import Row
from bayes_at_n.pipeline.training.trajectory.plan import Evaluation, TrajectoryPlan
from bayes_at_n.scoring.metrics.table import Metric, Summary
from bayes_at_n.scoring.numerics.inputs import Ints


class Track(NamedTuple):
    """One training run on one data set with one size of windows: n models along training."""

    training: str
    dataset: str
    window: int  # 1: single checkpoints
    steps: Ints  # (n,)
    names: list[str]  # of the models, n
    R: Any  # outcomes (n, M, N), 1 correct, 0 not
    greedy: Any  # (n, M, 1), of greedy attempts; None without greedy runs
    tokens: Tokens
    greedy_tokens: Tokens
    votes: Mapping[str, Any] = {}  # what votes are counted from, (n, M, N), if all have it

    @property
    def trials(self) -> int:
        """N."""
        return int(self.R.shape[-1])

    def at(self, steps: Sequence[int]) -> "Track":
        """The same at some of its steps."""
        places = np.flatnonzero(np.isin(self.steps, steps))
        return self._replace(
            steps=self.steps[places],
            names=[self.names[i] for i in places],
            R=self.R[places],
            greedy=None if self.greedy is None else self.greedy[places],
            votes={name: of[places] for name, of in self.votes.items()},
        )

    def metrics(self, names: Sequence[str]) -> list[Metric]:
        """Metrics that there are attempts for; greedy decoding comes first."""
        enough = [
            metric
            for metric in protocols.metrics(names)
            if metric.k <= self.trials and {*metric.of} <= {"outcomes", *self.votes}
        ]
        return [*[GREEDY] * (self.greedy is not None), *enough]

    def summary(self, metric: Metric, confidence: float) -> Summary:
        """A metric along the steps, (n,) each, with its interval where it has one."""
        R = self.greedy if metric is GREEDY else self.R
        return metric.summary(metric.given({"outcomes": R, **self.votes}), confidence)

    def place(self, metric: Metric, trials: int | str | None = None) -> Row:
        """The cells that say of which protocol a row is; `trials` in place of its own number."""
        return {
            "training": self.training,
            "dataset": self.dataset,
            "window": self.window,
            "metric": metric.name,
            "protocol": f"Merge@{self.window}, {metric.title(trials or self.trials)}",
        }


def read(plan: TrajectoryPlan, metrics: Sequence[Metric] = ()) -> list[Track]:
    """The tracks of a plan whose runs are complete: by training, data set and size of windows.

    With what votes among `metrics` are counted from; a warning says what is not there. Raises
    UserError: two runs do not hold the same questions; an attempt without a grade.
    """
    trainings = [training.name for training in plan.trainings]

    def place(of: Evaluation) -> tuple[int, int, int]:
        window = of.window
        return trainings.index(window.training), plan.datasets.index(of.dataset), window.size

    orders: dict[str, list[str]] = {}  # hashes of a data set's questions, alike in all tracks
    groups = itertools.groupby(sorted(plan.evaluations, key=place), place)
    return [_track([*evaluations], orders, metrics) for _, evaluations in groups]


def _track(
    evaluations: Sequence[Evaluation], orders: dict[str, list[str]], metrics: Sequence[Metric]
) -> Track:
    sampled, greedy = ([e.run for e in evaluations if e.greedy is kind] for kind in (False, True))
    windows = list(dict.fromkeys(evaluation.window for evaluation in evaluations))
    dataset = evaluations[0].dataset
    order = orders.setdefault(dataset, [*outcomes.read(sampled[0]).positions()])
    return Track(
        windows[0].training,
        dataset,
        windows[0].size,
        np.array([window.step for window in windows]),
        [window.name for window in windows],
        np.stack([_outcomes(run, order) for run in sampled]),
        np.stack([_outcomes(run, order) for run in greedy]) if greedy else None,
        protocols.tokens(sampled),
        protocols.tokens(greedy),
        _votes(sampled, order, metrics) if any(metric.votes for metric in metrics) else {},
    )


def _votes(runs: Sequence[Run], order: Sequence[str], metrics: Sequence[Metric]) -> dict[str, Any]:
    of_runs = []
    for run in runs:
        positions = outcomes.read(run).positions()
        ids = [run.questions[positions[mark]]["question_id"] for mark in order]
        of_runs.append(votes.read(run, ids))
    for of in of_runs:
        for name, why in votes.left_out(metrics, of).items():
            warn(f"{name} is left out: {why}")
    names = set.intersection(*(set(of.arrays) for of in of_runs))
    return {name: np.ma.stack([of.arrays[name] for of in of_runs]) for name in names}


def _outcomes(run: Run, order: Sequence[str]) -> Any:
    """Outcomes (M, N) of a run, in the order of the hashes of questions."""
    graded = outcomes.read(run)
    positions = graded.positions()
    if {*positions} != {*order}:
        raise UserError(
            f"{run.path}: holds other questions than the runs beside it; dataset.limit and the data"
            " set must be the same for all"
        )
    codes = graded.codes[[positions[mark] for mark in order]]
    if (codes == outcomes.OWED).any():
        raise UserError(f"{run.path}: not every attempt has a grade; run `grade` on it")
    return outcomes.correct(codes).data


def together(tracks: Sequence[Track]) -> list[list[Track]]:
    """All windows of each training run on each data set."""
    by_place = itertools.groupby(tracks, lambda track: (track.training, track.dataset))
    return [[*windows] for _, windows in by_place]


def common_steps(tracks: Sequence[Track]) -> list[int]:
    """Steps that all of some tracks have, in the order of training."""
    shared = set.intersection(*(set(track.steps.tolist()) for track in tracks))
    return [step for step in tracks[0].steps.tolist() if step in shared]
