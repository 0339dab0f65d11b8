"""Many runs of one race side by side; :class:`scoring.sequential.Race` is one of them.

What decides is here once, so that simulations try exactly what runs.
"""

import numpy as np

from bayes_at_n.scoring.numerics.inputs import Bools, Floats, Ints
from bayes_at_n.scoring.sequential import decisions, wealth
from bayes_at_n.scoring.sequential.decisions import Target


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
        self.needed = decisions.needed(target, models, error, self.rivals)
        self.tested = decisions.tested_pairs(target, models)
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
            self.better = decisions.implied(self.wins & self.tested)
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
                self.placed, self.out = decisions.place_top(self.wins, self.placed, self.out, k)
            rest = ~self.placed & ~self.out
            self.settled = decisions.all_tied(self.tied, rest)
            self.open = rest & ~self.settled[:, None]
            # Other pairs have no share of the error.
            self.tied &= (self.settled[:, None] & rest)[:, :, None] & rest[:, None]
            self.better = self.placed[:, :, None] & self.out[:, None]
            first = self.placed & (k == 1)
        self.best = np.where(first.any(axis=-1), np.argmax(first, axis=-1), -1)
