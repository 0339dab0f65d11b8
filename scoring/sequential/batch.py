"""Many runs of one race side by side; :class:`scoring.sequential.Race` is one of them.

What decides is here once, so that simulations try exactly what runs.
"""

import numpy as np

from scoring.numerics.inputs import Bools, Floats, Ints
from scoring.sequential import decisions, wealth
from scoring.sequential.boundaries import Boundaries
from scoring.sequential.decisions import Target

MOST_RIVALS = 4


class Batch:
    """The state of R races between K models on M questions.

    ``open``: models that still matter (R, K). ``settled`` (R,). ``best`` (R,), -1 for none.
    ``better``, ``tied``: claims (R, K, K). ``placed``, ``out``: in the best, and out of it (R, K).
    """

    def __init__(
        self,
        shape: tuple[int, int, int],
        target: Target,
        error: float,
        tie: float,
        looks: tuple[int, ...] | None,
    ) -> None:
        runs, models, _ = shape
        self.target, self.tie, self.looks = target, tie, looks
        self.needed = decisions.needed(target, models, error, pairs=looks is not None)
        self.successes, self.attempts = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        self.inverse = np.zeros(shape)  # sum over rounds of 1 / attempts
        self.sums = np.zeros((runs, models))  # of round means
        self.round = 0
        self.rounds = np.zeros((runs, models), np.int64)
        stakes = wealth.EFFECTS.size
        self.pairs = np.zeros((runs, models, models, stakes))
        self.slopes = np.zeros((runs, models, models, stakes))
        self.leaving = np.zeros((runs, models, stakes))  # bets that a model is not the best
        self.up, self.down = np.zeros((2, runs, models, stakes))
        self.own_slopes = np.zeros((runs, models, stakes))
        self.open = np.ones((runs, models), bool)
        self.placed, self.out = np.zeros((2, runs, models), bool)
        self.better, self.tied = np.zeros((2, runs, models, models), bool)
        self.settled = np.zeros(runs, bool)
        self.best = np.full(runs, -1)
        if looks is not None:
            self.boundaries = Boundaries(self.needed, error, looks)

    @property
    def mean(self) -> Floats:
        """The average of round means (R, K)."""
        found: Floats = self.sums / np.maximum(self.rounds, 1)
        return found

    def add(self, successes: Ints, attempts: Ints) -> None:
        """Take one round's counts (R, K, M), and decide."""
        sampled = attempts[..., 0] > 0
        self._bet(successes, attempts, sampled)
        share = 1 / np.maximum(attempts, 1)
        self.sums += (successes * share).mean(axis=-1)
        self.inverse += np.where(attempts > 0, share, 0.0)
        self.successes += successes
        self.attempts += attempts
        self.rounds += sampled
        self.round += 1
        if self.looks is None:
            self.claim()
        elif self.round in self.looks:
            self.claim_at_look()
        else:
            return
        self.decide()

    def _bet(self, successes: Ints, attempts: Ints, sampled: Bools) -> None:
        guessed = wealth.guess(self.successes, self.attempts)
        stake = wealth.stakes(guessed, attempts)
        up, down = np.empty((2, *self.up.shape))
        wealth.gains(successes, attempts, guessed.mean, stake, up, down)
        slope = stake * attempts.shape[-1]
        both = (sampled[:, :, None] & sampled[:, None, :])[..., None]
        self.pairs += np.where(both, up[:, :, None] + down[:, None], 0.0)
        self.slopes += np.where(both, slope[:, None, None], 0.0)
        self.up += up
        self.down += down
        self.own_slopes += np.where(sampled[..., None], slope[:, None], 0.0)
        if self.target.kind == "best" and self.looks is None:
            self._bet_on_rivals(successes, attempts, guessed, stake, down)

    def _bet_on_rivals(
        self, successes: Ints, attempts: Ints, guessed: wealth.Guess, stake: Floats, down: Floats
    ) -> None:
        """Bet for each model that the best 1..m of the others are better on average.

        Under "this one is among the best" no average of others is better, whichever they are, as
        long as they were chosen before the round. More rivals have a smaller gap but also a mean
        with less noise; the number with the largest expected growth is taken.
        """
        runs, models, _ = guessed.mean.shape
        sampled = attempts[..., 0] > 0
        most = min(MOST_RIVALS, models - 1)
        level = np.where(sampled, guessed.mean.mean(axis=-1), -1.0)
        noise = np.where(sampled, guessed.within.sum(axis=-1), 0.0)
        order = np.argsort(-level, axis=-1, kind="stable")[:, : most + 1]
        up = np.empty((most, *down.shape))
        for m in range(most):
            wealth.gains(
                successes, attempts, guessed.mean, stake / (m + 1), up[m], np.empty_like(down)
            )
        rows = np.arange(runs)
        for j in range(models):
            # The best others, in order: j itself is passed over.
            others = order[:, :most] + 0
            after = np.cumsum(order == j, axis=-1)[:, :most] > 0
            others = np.where(after, order[:, 1 : most + 1], others)
            usable = sampled[rows[:, None], others] & sampled[:, j, None]
            count = np.arange(1, most + 1)
            gap = np.cumsum(level[rows[:, None], others], axis=-1) / count - level[:, j, None]
            spread = noise[:, j, None] + np.cumsum(noise[rows[:, None], others], axis=-1) / count**2
            growth = np.where(gap > 0, gap**2 / np.maximum(spread, 1e-12), -1.0)
            growth = np.where(usable, growth, -2.0)
            m = np.argmax(growth, axis=-1)
            chosen = (np.arange(most) <= m[:, None])[..., None]
            added = np.where(chosen, up[m[:, None], rows[:, None], others], 0.0).sum(axis=1)
            self.leaving[:, j] += np.where(usable[:, :1], added + down[:, j], 0.0)

    def claim(self) -> None:
        """Claims that wealth has earned; what was claimed once stays."""
        better = wealth.log_wealth(self.pairs) >= np.log(self.needed.better)
        above = wealth.log_wealth(self.pairs + self.slopes * self.tie)
        apart = above >= np.log(self.needed.tied)  # A - B > -tie
        self.tied |= apart & apart.swapaxes(-1, -2)
        if self.target.kind != "best":
            self.better |= better
        else:
            gone = wealth.log_wealth(self.leaving) >= np.log(self.needed.better)
            alive = ~self.out & ~gone
            stay = alive.any(axis=-1, keepdims=True)  # nobody left is a contradiction: keep all
            self.out |= gone & stay

    def claim_at_look(self) -> None:
        """Claims at a planned look, by the difference of means over its standard error."""
        limit = self.boundaries.at(self.round)
        difference, error, current = self.differences()
        better = difference >= limit.better * error
        apart = difference + self.tie >= limit.tied * error
        self.better |= better & current
        self.tied |= apart & apart.swapaxes(-1, -2) & current

    def differences(self) -> tuple[Floats, Floats, Bools]:
        """Differences of means, their standard errors, and pairs sampled until now (R, K, K)."""
        guessed = wealth.guess(self.successes, self.attempts)
        error = (guessed.within * self.inverse).sum(axis=-1)
        error /= (np.maximum(self.rounds, 1) * guessed.mean.shape[-1]) ** 2
        mean, now = self.mean, self.rounds == self.round
        return (
            mean[:, :, None] - mean[:, None],
            np.sqrt(error[:, :, None] + error[:, None]),
            now[:, :, None] & now[:, None],
        )

    def decide(self) -> None:
        """From claims to who is open, and whether all is settled."""
        kind = self.target.kind
        if kind in ("best", "top"):
            if kind == "top" or self.looks is not None:
                k = self.target.k if kind == "top" else 1
                self.placed, self.out = decisions.place_top(self.better, self.placed, self.out, k)
            else:
                last = (~self.out).sum(axis=-1, keepdims=True) == 1
                self.placed |= ~self.out & last
            open_ = ~self.placed & ~self.out
            if kind == "best":
                found = self.placed.any(axis=-1)
                self.best = np.where(found, np.argmax(self.placed, axis=-1), -1)
                self.better |= self.placed[:, :, None] & self.out[:, None]
            done = decisions.all_tied(self.tied, open_)
        else:
            self.better = decisions.implied(self.better)
            open_ = decisions.undecided(self.better, self.tied, self.target)
            done = np.asarray(~open_.any(axis=-1))
            if kind == "order":
                first = self.better.sum(axis=-1) == self.better.shape[-1] - 1
                self.best = np.where(first.any(axis=-1), np.argmax(first, axis=-1), -1)
        self.settled = done
        self.open = open_ & ~done[:, None]
