"""What the finished runs of a trajectory hold, as arrays along the steps of training."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import scoring
from pipeline.base.console import note, warn
from pipeline.base.errors import UserError
from pipeline.research import protocols
from pipeline.research.protocols import AVG, BAYES, Tokens
from pipeline.research.trajectory.plan import Evaluation, TrajectoryPlan
from pipeline.store import outcomes
from pipeline.store.runfolder import Run
from scoring.metrics.table import Metric, Summary
from scoring.ranking import trajectory as follow

Ints = npt.NDArray[np.int64]


class Track(NamedTuple):
    """One training run on one data set with one size of windows: n models along training."""

    training: str
    dataset: str
    window: int  # 1: single checkpoints
    steps: Ints  # (n,)
    names: list[str]  # of the models, n
    R: Any  # outcomes (n, M, N), 1 correct, 0 not, masked where missing
    greedy: Any  # (n, M, 1), of greedy attempts; None without greedy runs
    tokens: Tokens
    greedy_tokens: Tokens

    @property
    def had(self) -> Ints:
        """Trials of each question, (n, M)."""
        return np.ma.count(self.R, axis=-1)

    @property
    def trials(self) -> int:
        """Trials that every question of every model has."""
        return int(self.had.min())

    @property
    def equal(self) -> bool:
        """Whether all questions of all models have the same number of trials."""
        return bool(np.ptp(self.had) == 0)

    @property
    def size(self) -> int | str:
        """The number of trials as labels have it: N where questions do not have the same."""
        return self.trials if self.equal else "N"

    def at(self, steps: Sequence[int]) -> "Track":
        """The same at some of its steps."""
        kept = np.flatnonzero(np.isin(self.steps, steps))
        return self._replace(
            steps=self.steps[kept],
            names=[self.names[i] for i in kept],
            R=self.R[kept],
            greedy=None if self.greedy is None else self.greedy[kept],
        )

    def metrics(self, names: Sequence[str]) -> list[Metric | None]:
        """Metrics that there are attempts for; None for greedy decoding, which comes first."""
        enough = [metric for metric in protocols.metrics(names) if metric.k <= self.trials]
        return [*[None] * (self.greedy is not None), *enough]

    def is_average(self, metric: Metric | None) -> bool:
        """Whether a metric orders models as avg@N does: Pass@1 is the same number.

        Bayes@N is it on another scale where all questions have the same number of trials.
        """
        name = metric.name if metric else ""
        return name in (AVG, f"{protocols.PASS}1") or (self.equal and name == BAYES)

    def summary(self, metric: Metric | None, confidence: float) -> Summary:
        """A metric along the steps, (n,) each, with its interval where it has one."""
        return (
            protocols.greedy(self.greedy) if metric is None else metric.summary(self.R, confidence)
        )

    def seed(self, first: int) -> int:
        """The seed of replicates.

        One for all windows where trials are drawn as columns, so that merged and single ones are
        drawn jointly. Questions drawn by themselves are drawn independently in every window.
        """
        return first + self.window - 1 if np.ma.is_masked(self.R) else first


def read(plan: TrajectoryPlan) -> list[Track]:
    """The tracks of a plan whose runs are complete: by training, data set and size of windows.

    Raises:
        UserError: two runs do not hold the same questions; a question without a graded attempt.
    """
    trainings = [training.name for training in plan.trainings]
    groups: dict[tuple[int, int, int], list[Evaluation]] = {}
    for one in plan.evaluations:
        place = (trainings.index(one.window.training), plan.datasets.index(one.dataset))
        groups.setdefault((*place, one.window.size), []).append(one)
    orders: dict[str, list[str]] = {}  # hashes of a data set's questions, alike in all tracks
    return [_track(groups[place], orders) for place in sorted(groups)]


def _track(evaluations: Sequence[Evaluation], orders: dict[str, list[str]]) -> Track:
    sampled, greedy = ([e for e in evaluations if e.greedy is kind] for kind in (False, True))
    window, dataset = sampled[0].window, sampled[0].dataset
    order = orders.setdefault(dataset, [*outcomes.read(sampled[0].run).positions()])
    return Track(
        window.training,
        dataset,
        window.size,
        np.array([one.window.step for one in sampled]),
        [one.window.name for one in sampled],
        np.ma.stack([_outcomes(one.run, order) for one in sampled]),
        np.ma.stack([_outcomes(one.run, order) for one in greedy]) if greedy else None,
        protocols.tokens([one.run for one in sampled]),
        protocols.tokens([one.run for one in greedy]),
    )


def _outcomes(run: Run, order: Sequence[str]) -> Any:
    """Outcomes (M, N) of a run, in the order of the hashes of questions; masked where missing."""
    own = outcomes.read(run)
    positions = own.positions()
    if {*positions} != {*order}:
        raise UserError(
            f"{run.path}: holds other questions than the runs beside it; dataset.limit and the data"
            " set must be the same for all"
        )
    R = outcomes.correct(own.codes[[positions[mark] for mark in order]])
    if (np.ma.count(R, axis=-1) == 0).any():
        raise UserError(f"{run.path}: a question has no graded attempt; run `grade` on it")
    return R


def say_short(tracks: Sequence[Track], names: Sequence[str]) -> None:
    """Say which metrics need more trials, and where trials are not alike."""
    for dataset in dict.fromkeys(track.dataset for track in tracks):
        own = [track for track in tracks if track.dataset == dataset]
        trials = min(track.trials for track in own)
        short = [one.title() for one in protocols.metrics(names) if one.k > trials]
        if short:
            note(
                f"{dataset}: {', '.join(short)} left out, as some question has only {trials} trials"
            )
        if not all(track.equal for track in own):
            warn(
                f"{dataset}: some questions have fewer trials than others, the fewest {trials};"
                " grade or sample what is missing (the same command says what is owed)"
            )


class Judged(NamedTuple):
    """How steadily scores (..., n) follow training, each (...)."""

    tau: Any  # MaP's
    tau_b: Any  # masked where all steps tie
    down: Any
    flat: Any  # share of the steps at which the score goes neither up nor down

    def cells(self) -> dict[str, float | None]:
        """Of one curve; None where there is no τ_b.

        >>> judge([0.1, 0.3, 0.1 + 0.2, 0.2, 0.2]).cells()["flat"]
        0.5
        """
        parts = self._asdict().items()
        return {name: None if np.ma.is_masked(part) else float(part) for name, part in parts}


def judge(scores: Any) -> Judged:
    """How steadily scores (..., n) follow training."""
    flat = np.mean(np.diff(scoring.ranks(scores), axis=-1) == 0, axis=-1)
    taus = follow.monotone_tau(scores), follow.progress_tau_b(scores)
    return Judged(*taus, follow.down_share(scores), flat)


def shared_steps(track: Track, tracks: Sequence[Track]) -> list[int]:
    """Steps that all windows of a track's training have on its data set."""
    place = (track.training, track.dataset)
    return common_steps([one for one in tracks if (one.training, one.dataset) == place])


def common_steps(tracks: Sequence[Track]) -> list[int]:
    """Steps that all of some tracks have, in the order of training."""
    shared = set.intersection(*(set(track.steps.tolist()) for track in tracks))
    return [step for step in tracks[0].steps.tolist() if step in shared]
