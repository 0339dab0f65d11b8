"""Many runs of one race side by side; :class:`scoring.sequential.Race` is one of them.

What decides is here once, so that simulations try exactly what runs. Functions have a leading axis
of runs: claims (R, K, K), models (R, K).
"""

from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from bayes_at_n.scoring.numerics.inputs import (
    Bools,
    Floats,
    Ints,
    check_positive,
    check_whole,
    finite_array,
)
from bayes_at_n.scoring.sequential import wealth

Kind = Literal["best", "top", "order", "above"]
KINDS = ("best", "top", "order", "above")
# Share of the error that goes to calling survivors of `best` and `top` tied.
TIED_SHARE = 0.1


class Target(NamedTuple):
    """What is to be settled: the best model, the best k, the order of all, who beats a baseline."""

    kind: Kind
    k: int = 1
    baseline: int | None = None


class Needed(NamedTuple):
    """Wealth at which something is claimed; see :func:`needed`."""

    better: float
    tied: float
    differences: float  # of intervals of all of them together


def check_target(target: Target, models: int) -> None:
    """Check that the target makes sense for so many models.

    Raises ValueError: it does not.
    """
    if target.kind not in KINDS:
        raise ValueError(f"target is {target.kind!r}: pass one of {', '.join(KINDS)}")
    if target.kind == "top" and check_whole(target.k, "k", least=1) >= models:
        raise ValueError(
            f"k is {target.k}: of {models} models, at most {models - 1} can be the top"
        )
    if target.kind == "above":
        baseline = check_whole(target.baseline, "baseline", least=0)
        if baseline >= models:
            raise ValueError(f"baseline is {baseline}: pass an index below {models}")


def needed(target: Target, models: int, error: float, rivals: bool) -> Needed:
    """Compute the wealth each claim needs for all to be true with a chance of 1 - error.

    The number of claims that could be wrong, over the error; which these are is proved in
    docs/adaptive.md. ``rivals``: the best is found by bets on the leader, not by pairs.
    """
    every = max(models * (models - 1), 2) / error
    if models <= 2 or target.kind in ("order", "above"):
        claims = 2 * (models - 1) / error if target.kind == "above" else every
        return Needed(claims, claims, every)
    k = target.k if target.kind == "top" else 1
    claims = k * (models - k) + models - 1 if not rivals else 2
    ties = models - 1 if target.kind == "best" else models * (models - 1) / 2
    return Needed(claims / ((1 - TIED_SHARE) * error), ties / (TIED_SHARE * error), every)


def implied(better: Bools) -> Bools:
    """Close claims under what follows from them: A over B and B over C is A over C."""
    closed = better.copy()
    for k in range(better.shape[-1]):
        closed |= closed[..., :, k, None] & closed[..., None, k, :]
    return closed


def place_top(better: Bools, placed: Bools, out: Bools, k: int) -> tuple[Bools, Bools]:
    """Place models in the best k, or out, from who was (R, K) and claims on pairs.

    With k' places left, an open model that beats all but k' - 1 of the other open ones is in,
    and one that k' of them beat is out; then those are fewer, and it starts again.
    """
    placed, out = placed.copy(), out.copy()
    while True:
        open_ = ~placed & ~out
        left = k - placed.sum(axis=-1, keepdims=True)
        among = better & open_[..., :, None] & open_[..., None, :]
        others = open_.sum(axis=-1, keepdims=True)
        enters = open_ & ((among.sum(axis=-1) >= others - left) | (others <= left))
        leaves = open_ & ~enters & ((among.sum(axis=-2) >= left) | (left <= 0))
        # Contradicting claims, which are wrong ones, fill no more places than there are.
        enters &= np.cumsum(enters, axis=-1) <= left
        if not (enters | leaves).any():
            return placed, out
        placed |= enters
        out |= leaves


def all_tied(tied: Bools, models: Bools) -> Bools:
    """Check whether each two of the models (R, K) are tied: (R,)."""
    both = models[..., :, None] & models[..., None, :]
    same = np.eye(models.shape[-1], dtype=bool)
    return np.asarray((tied | same | ~both).all(axis=(-1, -2)))


def tested_pairs(target: Target, models: int) -> Bools:
    """Select the pairs (K, K) with a share of the error: of `above` those with the baseline."""
    pairs = ~np.eye(models, dtype=bool)
    if target.kind == "above":
        baseline = np.arange(models) == target.baseline
        pairs &= baseline[:, None] | baseline
    return pairs


def ordered_groups(order: list[int], better: Bools) -> list[list[int]]:
    """Group models so that all above are better than all below, by claims (K, K).

    >>> ordered_groups([2, 0, 1], np.array([[0, 1, 1], [0, 0, 0], [0, 0, 0]], dtype=bool))
    [[0], [2, 1]]
    """
    places = {model: place for place, model in enumerate(order)}
    score = better.sum(axis=0) - better.sum(axis=1)
    ranked = sorted(order, key=lambda model: (int(score[model]), places[model]))
    consistent = better & ~better.T  # claims that contradict each other show nothing
    groups: list[list[int]] = [[]]
    for i, model in enumerate(ranked):
        if groups[-1] and consistent[np.ix_(ranked[:i], ranked[i:])].all():
            groups.append([])
        groups[-1].append(model)
    return [sorted(group, key=places.__getitem__) for group in groups]


def claimed(log_e: npt.ArrayLike, level: float) -> Bools:
    """Choose which of D claims are made so that any is wrong with a chance of at most ``level``.

    ``log_e`` (D,) are natural logs of the largest e-value of each claim so far, of independent
    data. The k largest are claimed where the k-th is at least (D - k + 1) / level: all D where each
    reaches 1 / level, one by itself at D / level. That holds at all looks together (the proof is in
    docs/compare.md). Raises ValueError: numbers that are not finite, a level not in (0, 1]. Source:
    Hochberg, "A sharper Bonferroni procedure for multiple tests of significance", Biometrika 1988.

    >>> claimed(np.log([45, 41, 50, 44]), 0.025).tolist()
    [True, True, True, True]
    >>> claimed(np.log([45, 39, 170, 44]), 0.025).tolist()
    [False, False, True, False]
    """
    values = finite_array(log_e, "log_e")
    check_positive(level, "level", most=1.0)
    order = np.argsort(-values, kind="stable")
    needed = np.log(np.arange(values.size, 0, -1) / level)
    passed = np.flatnonzero(values[order] >= needed)
    found = np.zeros(values.size, bool)
    found[order[: passed[-1] + 1 if passed.size else 0]] = True
    return found


class Batch:
    """The state of R races between K models on M questions.

    ``open``: models that still matter (R, K); ``placed`` and ``out``: those in the best k, and not
    (R, K); ``better`` and ``tied``: claims (R, K, K); ``best`` (R,), -1 for none; ``settled`` (R,).
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        target: Target,
        error: float,
        tie: float,
        by_trial: bool = False,
    ) -> None:
        runs, models, _ = shape
        self.by_trial = by_trial  # bets on whole rounds, whose attempts may hang together
        self.target, self.tie = target, tie
        # Of two models one is better: no rival is chosen.
        self.rivals = target.kind == "best" and models > 2
        self.needed = needed(target, models, error, self.rivals)
        self.tested = tested_pairs(target, models)
        self.successes, self.attempts = np.zeros(shape), np.zeros(shape, np.int64)
        self.sums = np.zeros((runs, models))  # of round means
        self.round, self.rounds = 0, np.zeros((runs, models), np.int64)
        self.weights = wealth.TRIAL_WEIGHTS if by_trial else wealth.WEIGHTS  # of stakes
        self.rival_weights = wealth.TRIAL_WEIGHTS if by_trial else wealth.RIVAL_WEIGHTS
        own = (runs, models, self.weights.size)
        self.up, self.down, self.own_slopes = np.zeros((3, *own))
        self.leaving = np.zeros((runs, models, self.rival_weights.size))  # of "is not the best"
        self.pairs, self.slopes = np.zeros((2, runs, models, *own[1:]))
        self.open = np.ones((runs, models), bool)
        self.placed, self.out = np.zeros((2, runs, models), bool)
        self.wins, self.not_worse = np.zeros((2, runs, models, models), bool)  # claims on pairs
        self.better, self.tied = np.zeros((2, runs, models, models), bool)
        self.settled, self.best = np.zeros(runs, bool), np.full(runs, -1)

    @property
    def mean(self) -> Floats:
        """Return the average of round means (R, K)."""
        return np.asarray(self.sums / np.maximum(self.rounds, 1))

    def add(self, successes: Floats, attempts: Ints) -> None:
        """Take one round's sums of outcomes and counts (R, K, M), and decide."""
        sampled = attempts[..., 0] > 0
        share = 1 / np.maximum(attempts, 1)
        mean = (successes * share).mean(axis=-1)
        both = sampled[:, :, None] & sampled[:, None]
        if self.by_trial:
            self._bet_on_rounds(mean, sampled, both)
        else:
            self._bet(successes, attempts, sampled, both)
        self.sums += mean
        self.successes += successes
        self.attempts += attempts
        self.rounds += sampled
        self.round += 1
        self._claim()
        self._decide()

    def _bet(self, successes: Floats, attempts: Ints, sampled: Bools, both: Bools) -> None:
        guessed = wealth.guess(self.successes, self.attempts)
        stake = wealth.stakes(guessed, attempts)
        up, down = np.empty((2, *self.up.shape))
        wealth.gains(successes, attempts, guessed.mean, stake, up, down)
        slope = stake * attempts.shape[-1]
        self.pairs += np.where(both[..., None], up[:, :, None] + down[:, None], 0.0)
        self.slopes += np.where(both[..., None], slope[:, None, None], 0.0)
        self.up += up
        self.down += down
        self.own_slopes += np.where(sampled[..., None], slope[:, None], 0.0)
        if self.rivals:
            rivals = self._leading(guessed.mean.mean(axis=-1), both)
            stake = wealth.rival_stakes(guessed, attempts, rivals)
            wealth.rival_gains(
                successes, attempts, guessed.mean, rivals, stake, gained=self.leaving
            )

    def _bet_on_rounds(self, mean: Floats, sampled: Bools, both: Bools) -> None:
        guessed = (self.sums + 0.5) / (self.rounds + 1)
        here, pair = sampled[..., None], both[..., None]
        gained, slope = wealth.trial_gains(mean, guessed)
        self.up += np.where(here, gained, 0.0)
        self.own_slopes += np.where(here, slope, 0.0)
        self.down += np.where(here, wealth.trial_gains(-mean, -guessed)[0], 0.0)
        apart, expected = (of[:, :, None] - of[:, None] for of in (mean, guessed))
        gained, slope = wealth.trial_gains(apart, expected)
        self.pairs += np.where(pair, gained, 0.0)
        self.slopes += np.where(pair, slope, 0.0)
        if self.rivals:
            rivals = self._leading(guessed, both)
            apart, expected = ((rivals @ of[..., None])[..., 0] - of for of in (mean, guessed))
            playing = rivals.any(axis=-1, keepdims=True)
            self.leaving += np.where(playing, wealth.trial_gains(apart, expected)[0], 0.0)

    def _leading(self, level: Floats, both: Bools) -> Floats:
        """Choose whom one bets to be better than each row: who led the others before the round.

        Under "this one is among the best" no rival is better, whoever is chosen before the round.
        Rivals that lead together share the stake. In the first round nobody leads, and no bet on
        anybody is worth its loss where the row itself is good.
        """
        other = both & ~np.eye(both.shape[1], dtype=bool) & (self.rounds > 0)[:, None]
        level = np.where(other, level[:, None], -1.0)
        leads = other & (level == level.max(axis=-1, keepdims=True))
        return np.asarray(leads / np.maximum(leads.sum(axis=-1, keepdims=True), 1))

    def _claim(self) -> None:
        """Claims that wealth has earned; what was claimed once stays."""
        needed = float(np.log(self.needed.better))
        if self.rivals:
            gone = wealth.reached(self.leaving, self.rival_weights, None, 0.0, needed)
            # Everybody gone is a contradiction, so some of that is wrong: all stay.
            self.out |= gone & (~self.out & ~gone).any(axis=-1, keepdims=True)
        else:
            self.wins |= wealth.reached(self.pairs, self.weights, None, 0.0, needed)
        # A - B > -tie
        needed = float(np.log(self.needed.tied))
        self.not_worse |= wealth.reached(self.pairs, self.weights, self.slopes, -self.tie, needed)

    def _decide(self) -> None:
        """From claims to who is open, and whether all is settled."""
        self.tied = self.not_worse & self.not_worse.swapaxes(-1, -2)
        kind = self.target.kind
        if kind in ("order", "above"):
            # A pair that is not tested makes no claim, nor is it a step to one that is.
            self.tied &= self.tested
            self.better = implied(self.wins & self.tested)
            decided = self.better | self.better.swapaxes(-1, -2) | self.tied
            self.open = (self.tested & ~decided).any(axis=-1)
            self.settled = np.asarray(~self.open.any(axis=-1))
            consistent = self.better & ~self.better.swapaxes(-1, -2)
            first = consistent.sum(axis=-1) == self.better.shape[-1] - 1
        else:
            k = self.target.k if kind == "top" else 1
            if self.rivals:
                self.placed = ~self.out & ((~self.out).sum(axis=-1, keepdims=True) == 1)
            else:
                self.placed, self.out = place_top(self.wins, self.placed, self.out, k)
            rest = ~self.placed & ~self.out
            self.settled = all_tied(self.tied, rest)
            self.open = rest & ~self.settled[:, None]
            # Other pairs have no share of the error.
            self.tied &= (self.settled[:, None] & rest)[:, :, None] & rest[:, None]
            self.better = self.placed[:, :, None] & self.out[:, None]
            first = self.placed & (k == 1)
        self.best = np.where(first.any(axis=-1), np.argmax(first, axis=-1), -1)
