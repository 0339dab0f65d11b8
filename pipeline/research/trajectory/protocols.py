"""Evaluation protocols, a size of windows with a metric: their labels, scores and intervals."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from scipy.special import ndtri

import scoring
from pipeline.research.trajectory.tracks import Track
from scoring import Counts
from scoring.metrics.passk_variance import pass_at_k_sigma

GREEDY, AVG, BAYES, PASS = "greedy", "avg", "bayes", "pass"
INDEPENDENT = (
    "intervals of scores take trials as independent; seeds are shared across questions, which"
    " correlates trials of one index, so that they may be too narrow"
)
DRAWN = (
    "replicates draw whole trials, one index for all questions, checkpoints and windows, as trials"
    " of one index share their seed; where trials are missing, each question's by itself"
)
TIES = (
    "fewer trials mean more ties, which lower MaP's τ and down alike: few trials and greedy are not"
    " to be judged by these two alone, but by τ_b and flat beside them"
)


class Metric(NamedTuple):
    """How the attempts of one model become a score."""

    kind: str  # greedy, avg, bayes or pass
    k: int | None = None  # of Pass@k

    def label(self, trials: int | str) -> str:
        """Its name, with the number of trials where that is part of it.

        >>> Metric(BAYES).label(80), Metric(PASS, 16).label(80), Metric(GREEDY).label(80)
        ('Bayes@80', 'Pass@16', 'greedy')
        """
        names = {GREEDY: "greedy", AVG: f"avg@{trials}", BAYES: f"Bayes@{trials}"}
        return names.get(self.kind, f"Pass@{self.k}")


class Scores(NamedTuple):
    """A score along the steps of a track, each array (n,); None where there is no interval."""

    value: Any
    sigma: Any
    low: Any
    high: Any


def label(window: int, metric: Metric, trials: int | str) -> str:
    """A protocol as MaP names it.

    >>> label(4, Metric(PASS, 16), 80)
    'Merge@4, Pass@16'
    """
    return f"Merge@{window}, {metric.label(trials)}"


def trials_of(track: Track) -> int | str:
    """The number of trials as labels have it: N where questions do not have the same."""
    return track.trials if track.equal else "N"


def metrics(track: Track, pass_k: Sequence[int]) -> list[Metric]:
    """All metrics that a track has the attempts for, in the order of tables."""
    found = [Metric(GREEDY)] if track.greedy is not None else []
    found += [Metric(AVG), *(Metric(PASS, k) for k in pass_k if k <= track.trials)]
    return [*found, Metric(BAYES)]


def twins(track: Track, metric: Metric) -> Metric:
    """The metric that orders models as this one does, and is the one to compute.

    Pass@1 is avg@N; with the same number of trials everywhere Bayes@N is it on another scale.
    """
    same = metric == Metric(PASS, 1) or (track.equal and metric.kind == BAYES)
    return Metric(AVG) if same else metric


def scores(track: Track, metric: Metric, confidence: float) -> Scores:
    """A metric along the steps of a track, with its interval.

    greedy is the share of questions whose one attempt is right: it has no trials to vary, so no
    interval. Pass@k is the unbiased estimator -/+ z of its sampling sigma, within 0 and 1: the
    posterior's would be far too small for k near the number of trials.
    """
    if metric.kind == GREEDY:
        assert track.greedy is not None
        return Scores(track.greedy.mean(axis=-1), None, None, None)
    counts = Counts(track.counts)
    if metric.kind == AVG:
        return Scores(*scoring.avg_ci(counts, confidence=confidence, bounds=(0.0, 1.0)))
    if metric.kind == BAYES:
        return Scores(*scoring.bayes_ci(counts, confidence=confidence, bounds=(0.0, 1.0)))
    assert metric.k is not None
    value = np.asarray(scoring.pass_at_k(counts, metric.k))
    sigma = np.asarray(pass_at_k_sigma(counts, metric.k))
    z = float(ndtri((1 + confidence) / 2))
    return Scores(value, sigma, np.clip(value - z * sigma, 0, 1), np.clip(value + z * sigma, 0, 1))


def score(metric: Metric) -> Callable[[Any], Any]:
    """What reduces counts (..., M, 2) to scores (...), as `scoring.ranking.trajectory` takes it."""
    if metric.kind == BAYES:
        return lambda R: scoring.bayes(R)[0]
    k = metric.k or 1  # avg@N is Pass@1, which is faster without a sigma
    return lambda R: scoring.pass_at_k(R, k)


def drawn_from(track: Track) -> Any:
    """What the bootstrap draws from: outcomes, or counts where trials are missing."""
    return track.outcomes if track.complete else Counts(track.counts)


def seed(track: Track, first: int) -> int:
    """The seed of a track's replicates.

    One for all windows where trials are drawn as columns, so that merged and single ones are drawn
    jointly. Questions drawn by themselves are drawn independently in every window.
    """
    return first if track.complete else first + track.window - 1


def flat_share(values: Any) -> Any:
    """Share of the steps at which scores (..., n) go neither up nor down.

    >>> float(flat_share([0.1, 0.3, 0.1 + 0.2, 0.2, 0.2]))
    0.5
    """
    return np.mean(np.diff(scoring.ranks(values), axis=-1) == 0, axis=-1)


def shared_steps(track: Track, tracks: Sequence[Track]) -> list[int]:
    """Steps that all windows of a track's training have on its data set."""
    place = (track.training, track.dataset)
    return common_steps([one for one in tracks if (one.training, one.dataset) == place])


def common_steps(tracks: Sequence[Track]) -> list[int]:
    """Steps that all of some tracks have, in the order of training."""
    shared = set.intersection(*(set(track.steps.tolist()) for track in tracks))
    return [step for step in tracks[0].steps.tolist() if step in shared]
