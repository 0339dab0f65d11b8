"""Races between models, and the mean of one, looked at as often as one likes; what to expect."""

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.inputs import (
    Bools,
    Floats,
    Ints,
    check_confidence,
    check_positive,
    check_probabilities,
    check_whole,
    number_array,
)
from bayes_at_n.scoring.sequential import wealth
from bayes_at_n.scoring.sequential.batch import Batch, Target, check_target, ordered_groups

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
        check_target(target, models)
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
            return ordered_groups(order, b.better[0])
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


CHUNK = 100  # runs side by side: what fits into a processor's cache


class Simulated(NamedTuple):
    """What :func:`simulate` finds; averages over runs."""

    settled: float  # share of runs that were settled within the trials
    right: float  # of all runs, those whose decision is settled and true
    wrong: float  # of all runs, those with any final claim that is false
    best: Floats  # share of runs that name each model the best (K,)
    placed: Floats  # share of runs that place each model in the best k, of `best` and `top` (K,)
    open: Floats  # share of runs that end with each model open (K,)
    better: Floats  # share of runs that claim row to be better than column (K, K)
    tied: Floats  # share of runs that claim the two to be tied (K, K)
    rounds: Floats  # of each model (K,)
    attempts: Floats  # of each model (K,)
    cost: Floats  # of each model, in units of `cost` (K,); attempts without
    mean: Floats  # of the estimates (K,): averages of round means
    longest: Ints  # rounds of the last model in each run (runs,)
    total: Floats  # of each run, in units of `cost` (runs,)


_COLUMNS = Simulated._fields[:-2]


def simulate(
    p: npt.ArrayLike,
    target: Target,
    *,
    trials: int = 80,
    runs: int = 1000,
    seed: int = 0,
    confidence: float = 0.95,
    tie: float = 0.01,
    looks: Sequence[int] | None = None,
    independent: Independent = "attempts",
    cost: npt.ArrayLike | None = None,
    budget: float = np.inf,
    done: Callable[[int], None] | None = None,
) -> Simulated:
    """Race models with known chances p (K, M) of solving each question, many times.

    Of p (runs, K, M) each run has its own. Up to ``trials`` attempts at each question; models
    leave after the rounds of ``looks`` (default: every one). ``cost`` (M,) or (K, M) is that of one
    attempt; a run ends before a look that would make it cost more than ``budget``. ``done`` is told
    when so many more runs are done. Run r of a seed is the same whatever the number of runs. Raises
    ValueError: chances or numbers that cannot be.

    >>> found = simulate([[0.9] * 8, [0.2] * 8], Target("best"), runs=50, seed=1)
    >>> found.settled, found.right, found.best.tolist(), bool(found.rounds.max() < 10)
    (1.0, 1.0, [1.0, 0.0], True)
    """
    chance = check_probabilities(p, "p")
    each = (check_whole(runs, "runs", 1), *chance.shape[-2:])
    if len(each) < 3 or chance.shape not in (each, each[1:]) or each[1] < 2:
        raise ValueError(f"p has shape {chance.shape}: pass (models, questions), of two or more")
    check_target(target, each[1])
    error = 1 - check_confidence(confidence)
    check_positive(tie, "tie", most=1.0)
    check_whole(trials, "trials", 1)
    price = np.broadcast_to(number_array(1.0 if cost is None else cost, "cost"), each[1:])
    by_trial = check_independent(independent)
    at = range(1, trials) if looks is None else looks
    stops = [*(look for look in at if look < trials), trials]
    parts = []
    for start in range(0, runs, CHUNK):
        batch = Batch((CHUNK, *each[1:]), target, error, tie, by_trial)
        rng = np.random.default_rng([seed, start])
        own = np.broadcast_to(chance, each)[(start + np.arange(CHUNK)) % runs]
        _run(batch, own, rng, stops, price, budget)
        parts.append(_summary(batch, own, price, tie))
        if done:
            done(min(CHUNK, runs - start))
    columns = zip(*parts, strict=True)
    joined = {n: np.concatenate(column)[:runs] for n, column in zip(_COLUMNS, columns, strict=True)}
    means = {name: column.mean(axis=0) for name, column in joined.items()}
    for name in ("settled", "right", "wrong"):
        means[name] = float(means[name])
    longest = joined["rounds"].max(axis=-1).astype(np.int64)
    return Simulated(**means, longest=longest, total=joined["cost"].sum(axis=-1))


def _run(
    batch: Batch,
    chance: Floats,
    rng: np.random.Generator,
    stops: Sequence[int],
    price: Floats,
    budget: float = np.inf,
) -> None:
    """Sample until all runs are settled, or have nothing left until another look."""
    shape = batch.attempts.shape
    spent, going = 0, np.ones(shape[0], bool)
    for stop in stops:
        length, each = stop - spent, batch.open.astype(np.int64)
        coming = batch.attempts + length * each[..., None]
        going &= (coming * price).sum(axis=(-1, -2)) <= budget
        each *= going[:, None]
        if not each.any():
            return
        sampled = np.broadcast_to(each[..., None], shape)
        for _ in range(length):
            drawn = (rng.random(shape) < chance) & (sampled > 0)
            batch.add(drawn.astype(np.float64), sampled)
        spent = stop


def _summary(batch: Batch, chance: Floats, price: Floats, tie: float) -> tuple[Floats, ...]:
    """Columns of :class:`Simulated`, a row for each run."""
    truth = chance.mean(axis=-1)
    gap = truth[:, :, None] - truth[:, None]
    wrong = (batch.tied & (np.abs(gap) >= tie)).any(axis=(-1, -2))
    false = (batch.better & (gap <= 1e-12)).any(axis=(-1, -2))
    if batch.target.kind in ("best", "top"):
        k = batch.target.k if batch.target.kind == "top" else 1
        ordered = np.sort(truth)[:, ::-1, None]
        wrong |= (batch.out & (truth > ordered[:, k] + 1e-12)).any(axis=-1)
        wrong |= (batch.placed & (truth < ordered[:, k - 1] - 1e-12)).any(axis=-1)
        # To name k of models that tie is wrong, too; that some of them left is not.
        false &= batch.placed.sum(axis=-1) == k
    wrong |= false
    best = np.arange(truth.shape[-1]) == batch.best[:, None]
    attempts = batch.attempts.sum(axis=-1)
    spent = (batch.attempts * price).sum(axis=-1)
    right = batch.settled & ~wrong
    claims = (best, batch.placed, batch.open, batch.better, batch.tied)
    columns = (batch.settled, right, wrong, *claims, batch.rounds, attempts, spent, batch.mean)
    return tuple(np.asarray(column, dtype=np.float64) for column in columns)
