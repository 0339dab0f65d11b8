"""Races between models, and the mean of one, looked at as often as one likes."""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.checks import (
    check_confidence,
    check_positive,
    check_whole,
    number_array,
)
from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints
from bayes_at_n.scoring.sequential import decisions, wealth
from bayes_at_n.scoring.sequential.batch import Batch
from bayes_at_n.scoring.sequential.decisions import Target

Independent = Literal["attempts", "trials"]


class Look(NamedTuple):
    """What is known after a round, of K models in the order in which they were given."""

    round: int
    rounds: Ints  # of each model, (K,)
    mean: Floats  # averages of round means (K,)
    low: Floats  # of each model's mean, at the confidence for each alone (K,)
    high: Floats
    log_e: Floats  # log e-value of "row is better than column" (K, K)
    log_out: Floats  # log e-value of "not the best", of best of 3 or more; else zeros (K,)
    log_needed: float  # what these must reach for a claim
    difference_low: Floats  # of mean of row - mean of column, for all pairs at once (K, K)
    difference_high: Floats
    better: Bools  # claimed: row is better than column (K, K)
    tied: Bools  # claimed: they differ by less than `tie` (K, K)
    open: Bools  # models that still matter (K,)
    placed: Ints  # 1 in the best k (or above the baseline), -1 not (or below), 0 open or tied (K,)
    groups: list[list[int]]  # best first; what is not separated shares a group
    best: int | None
    settled: bool


class Race:
    """A race between models on the same questions, until something is settled.

    Models are sampled in rounds, at least one attempt at every question each; :meth:`add` takes a
    round and :meth:`look` says what is known. An outcome is 0 or 1, or any weight between. All
    claims of all looks are true with a chance of at least ``confidence``, however often one looks
    and whatever decides about going on; no sample is too small for that. Attempts must be
    independent of each other, given the questions. Where those of a trial share luck
    (:func:`scoring.inflation`), ``independent="trials"`` bets on the mean of each whole round, and
    holds for any dependence within a round, also between models; it takes far more rounds.

    ``tie``: two models that are shown to differ by less than this are called tied. What is shown
    to be worse, or tied, need not be sampled on: :attr:`Look.open`. For the proof see
    docs/adaptive.md.

    Raises ValueError for what cannot be raced.

    >>> race = Race(models=2, questions=3, target=Target("best"))
    >>> while not race.look().settled:
    ...     race.add([[1, 1, 1], [0, 1, 0]], [[1, 1, 1], [1, 1, 1]])
    >>> look = race.look()
    >>> look.round, look.best, look.groups, look.mean.round(2).tolist()
    (4, 0, [[0], [1]], [1.0, 0.33])
    """

    def __init__(
        self,
        models: int,
        questions: int,
        target: Target,
        confidence: float = 0.95,
        tie: float = 0.01,
        independent: Independent = "attempts",
    ) -> None:
        self._shape = (check_whole(models, "models", 2), check_whole(questions, "questions", 1))
        self._error = 1 - check_confidence(confidence)
        check_positive(tie, "tie", most=1.0)
        by_trial = check_independent(independent)
        decisions.check_target(target, models)
        self._batch = Batch((1, *self._shape), target, self._error, tie, by_trial)
        self._low, self._high = np.zeros(models), np.ones(models)
        self._difference_low = np.eye(models) - 1

    def add(self, successes: npt.ArrayLike, attempts: npt.ArrayLike) -> None:
        """Add one round: sums of outcomes (K, M), and attempts, 0 for a model left out.

        A model that is sampled has at least one attempt at every question. How many may depend on
        earlier rounds, but not on this one. Raises ValueError: numbers that cannot be.
        """
        right, tried = _counts(successes, attempts, self._shape)
        sampled = (tried > 0).any(axis=-1)
        short = sampled & (tried == 0).any(axis=-1)
        if short.any():
            model = int(np.argmax(short))
            question = int(np.argmin(tried[model]))
            raise ValueError(
                f"attempts[{model}, {question}] is 0: a model that is sampled in a round needs at "
                "least one attempt at every question"
            )
        b = self._batch
        b.add(right[None], tried[None])
        self._low, self._high = _own(b, self._error, self._low, self._high)
        need, old = float(np.log(b.needed.differences)), self._difference_low
        lower = np.maximum(wealth.bound(b.pairs[0], b.weights, b.slopes[0], need, -1.0, 1.0), old)
        fits = lower <= -old.T
        self._difference_low = np.where(fits & fits.T, lower, old)
        np.fill_diagonal(self._difference_low, 0.0)

    def look(self) -> Look:
        """Return what is known now. Looking changes nothing."""
        b = self._batch
        return Look(
            round=b.round,
            rounds=b.rounds[0].copy(),
            mean=b.mean[0],
            low=self._low.copy(),
            high=self._high.copy(),
            log_e=wealth.log_wealth(b.pairs[0], b.weights),
            log_out=wealth.log_wealth(b.leaving[0], b.rival_weights),
            log_needed=float(np.log(b.needed.better)),
            difference_low=self._difference_low.copy(),
            difference_high=-self._difference_low.T,
            better=b.better[0].copy(),
            tied=b.tied[0].copy(),
            open=b.open[0].copy(),
            placed=self._placed(),
            groups=self._groups(),
            best=None if b.best[0] < 0 else int(b.best[0]),
            settled=bool(b.settled[0]),
        )

    def log_e_beyond(self, difference: npt.ArrayLike) -> Floats:
        """Compute the log e-value of "row is better than column by more than `difference`" (K, K).

        ``difference`` is a share, or one for each pair (K, K); all of them at once are valid.

        >>> race = Race(models=2, questions=4, target=Target("order"))
        >>> for _ in range(8):
        ...     race.add([[1, 1, 1, 1], [1, 0, 1, 0]], [[1, 1, 1, 1], [1, 1, 1, 1]])
        >>> [round(float(race.log_e_beyond(d)[0, 1]), 1) for d in (0, 0.1, 0.5, 0.6)]
        [12.5, 9.7, -0.2, -1.8]
        """
        b = self._batch
        at = number_array(difference, "difference")
        return wealth.log_wealth(b.pairs[0], b.weights, b.slopes[0], at)

    def _placed(self) -> Ints:
        b, base = self._batch, self._batch.target.baseline
        if b.target.kind == "above":
            return np.asarray(b.better[0][:, base].astype(int) - b.better[0][base])
        return np.asarray(b.placed[0].astype(int) - b.out[0])

    def _groups(self) -> list[list[int]]:
        b = self._batch
        order = [int(k) for k in np.argsort(-b.mean[0], kind="stable")]
        # Who is in, or out, was not compared with each of those that are open.
        if b.target.kind == "order" or not b.settled[0]:
            return decisions.ordered_groups(order, b.better[0])
        groups = [[k for k in order if self._placed()[k] == side] for side in (1, 0, -1)]
        return [group for group in groups if group]


class MeanSequence:
    """A confidence sequence for one model's mean over M questions, as narrow as wanted.

    :meth:`interval` holds the mean at all times together with a chance of at least
    ``confidence``, so that sampling may end when it is narrow enough. ``independent`` as of
    :class:`Race`.

    >>> sequence = MeanSequence(questions=4)
    >>> for _ in range(50):
    ...     sequence.add([1, 1, 0, 1], [1, 1, 1, 1])
    >>> sequence.mean, [round(end, 2) for end in sequence.interval()]
    (0.75, [0.73, 0.77])
    """

    def __init__(
        self, questions: int, confidence: float = 0.95, independent: Independent = "attempts"
    ) -> None:
        self._shape = (1, check_whole(questions, "questions", 1))
        self._error = 1 - check_confidence(confidence)
        by_trial = check_independent(independent)
        shape, target = (1, *self._shape), Target("order")
        self._batch = Batch(shape, target, self._error, 1.0, by_trial=by_trial)
        self._low, self._high = np.zeros(1), np.ones(1)

    def add(self, successes: npt.ArrayLike, attempts: npt.ArrayLike) -> None:
        """Add one round: sums of outcomes (M,), and attempts, at least 1 each.

        Raises ValueError: others.
        """
        right, tried = _counts(np.atleast_2d(successes), np.atleast_2d(attempts), self._shape)
        if (tried == 0).any():
            raise ValueError(f"attempts[{int(np.argmin(tried))}] is 0: pass at least 1 of each")
        self._batch.add(right[None], tried[None])
        self._low, self._high = _own(self._batch, self._error, self._low, self._high)

    @property
    def mean(self) -> float:
        """Return the average of round means."""
        return float(self._batch.mean[0, 0])

    def interval(self) -> tuple[float, float]:
        """Return the interval of all rounds so far; it never grows."""
        return float(self._low[0]), float(self._high[0])


def check_independent(independent: Independent) -> bool:
    """Check what is taken as independent; True of whole trials. Raises ValueError."""
    if independent not in ("attempts", "trials"):
        raise ValueError(f"independent is {independent!r}: pass 'attempts' or 'trials'")
    return independent == "trials"


def _counts(
    successes: npt.ArrayLike, attempts: npt.ArrayLike, shape: tuple[int, int]
) -> tuple[Floats, Ints]:
    """Sums of outcomes, and counts, of one round, checked."""
    for name, values in (("successes", successes), ("attempts", attempts)):
        array = number_array(values, name)
        if array.shape != shape:
            raise ValueError(f"{name} has shape {array.shape}: pass (models, questions) {shape}")
        if not (array >= 0).all():
            raise ValueError(f"{name} holds a number that is not at least 0")
    right, tried = np.asarray(successes, np.float64), np.asarray(attempts)
    if (tried != np.trunc(tried)).any():
        raise ValueError("attempts holds a count that is no whole number")
    if (right > tried).any():
        at = tuple(int(i) for i in np.argwhere(right > tried)[0])
        raise ValueError(f"successes{list(at)} is {right[at]:g}, of {tried[at]:g} attempts")
    return right, tried.astype(np.int64)


def _own(b: Batch, error: float, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Each model's interval (K,), both ends: what is left of the one before.

    Where nothing is left, which is rarer than the error, the old one stays.
    """
    need = float(np.log(2 / error))
    slopes = b.weights, b.own_slopes[0]
    lower = np.maximum(low, wealth.bound(b.up[0], *slopes, need, 0.0, 1.0))
    upper = np.minimum(high, -wealth.bound(b.down[0], *slopes, need, -1.0, 0.0))
    fits = lower <= upper
    return np.where(fits, lower, low), np.where(fits, upper, high)
