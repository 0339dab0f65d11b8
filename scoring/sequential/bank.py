"""The score on a large bank of questions of which a sample is asked, once each.

M questions are too many to ask. Questions are drawn one after the other without replacement, with
known probabilities pi, and X in [0, 1] is what an attempt at question q earns. Before each draw
anybody may predict the outcomes of all questions that are left, m. Then

    Z = 1/M (sum of X that are known + sum of m over what is left + (X_q - m_q) / pi_q)

has the expectation S, what one attempt at every question of the bank would score on average,
whatever was asked and found before: a bad prediction costs time, never validity (the doubly robust
estimate of Robins, Rotnitzky and Zhao 1994, drawn as by Shekhar et al., "Risk-limiting financial
audits via weighted sampling without replacement", 2023). Bets on Z are those of
:mod:`scoring.sequential.wealth`: with a guess g and a stake l, both fixed before the draw,
exp(log(1 + l (Z - g)) + l g - l S) has an expectation of at most 1.

S is that of one pass over the bank, so the interval closes when all questions are asked. The mean
of the chances of success is apart from it by (mean of p (1 - p) / M)^.5, .002 at 26,529 questions.

Predictions are learnt from what was asked: a logistic regression on factors of the questions, which
the records of earlier models give. Draws go where outcomes are uncertain, with a share for all.
"""

import numpy as np
import numpy.typing as npt
import scipy

from bayes_at_n.scoring.numerics.inputs import (
    Floats,
    Ints,
    bounded_array,
    check_confidence,
    check_positive,
    check_whole,
    finite_array,
)
from bayes_at_n.scoring.sequential import wealth

STEPS: Floats = np.array([0.5, 0.7, 1.0, 1.4, 2.0, 4.0, 10.0])  # of half the width, to bet on
WEIGHTS: Floats = np.array([2, 4, 6, 4, 2, 1, 1]) / 20
EVERYWHERE = 0.5  # share of the draws that goes to all questions alike: simulated, .4 to .8 do
RIDGE = 0.1  # of the regression on factors of spread 1
LARGEST = 0.9  # share of its wealth that a bet may lose
PRIOR = 20  # outcomes that the belief in the regression's own noise is worth


def question_factors(records: npt.ArrayLike, rank: int = 2) -> Floats:
    """Describe questions by the outcomes of earlier models: factors (M, 1 + rank).

    The first is the logit of the share of models that were right, the others are the directions in
    which models differ beyond their means (singular vectors). ``records`` are outcomes in [0, 1],
    (K, M), masked where a model was not asked. Raises ValueError: others.

    >>> found = question_factors([[1, 0, 1, 0], [1, 0, 1, 0], [1, 0, 0, 1]], rank=1)
    >>> found[:, 0].round(1).tolist(), abs(found[:, 1]).round(1).tolist()
    ([1.4, -1.4, 0.4, -0.4], [0.1, 0.1, 0.7, 0.7])
    """
    known = ~np.ma.getmaskarray(records)  # type: ignore[no-untyped-call]
    x = bounded_array(np.ma.filled(records, 0.0), "records", 0.0, 1.0, "outcomes lie in [0, 1]")
    level = x.sum(axis=1, keepdims=True) / np.maximum(known.sum(axis=1, keepdims=True), 1)
    share = (x.sum(axis=0) + 2 * x.sum() / known.sum()) / (known.sum(axis=0) + 2)
    left = np.where(known, x - share - level + level.mean(), 0.0)
    *_, directions = np.linalg.svd(left, full_matrices=False)
    return np.column_stack([scipy.special.logit(np.clip(share, 0.01, 0.99)), *directions[:rank]])


class BankSequence:
    """A confidence sequence for the score on a bank of M questions, a few of which are asked.

    :meth:`draw` names the questions to ask next, :meth:`add` takes what they earned, and
    :meth:`interval` holds the score at all times together with a chance of at least ``confidence``:
    what one attempt at every question of the bank would score. Bets are sized for an interval of
    ``width``; it holds at any.

    ``factors`` (M, F) describe questions (:func:`question_factors`); without any, draws are
    uniform. Raises ValueError: numbers that cannot be.

    >>> rng = np.random.default_rng(0)
    >>> hard = rng.normal(size=(5000, 1))
    >>> outcomes = rng.random(5000) < scipy.special.expit(-4 * hard[:, 0])
    >>> bank = BankSequence(5000, hard, width=0.05)
    >>> while np.ptp(bank.interval()) > 0.05:
    ...     bank.add(outcomes[bank.draw(100)])
    >>> bank.asked, [round(end, 3) for end in bank.interval()], float(outcomes.mean().round(3))
    (900, [0.479, 0.528], 0.504)
    """

    def __init__(
        self,
        questions: int,
        factors: npt.ArrayLike | None = None,
        confidence: float = 0.95,
        width: float = 0.02,
        seed: int = 0,
    ) -> None:
        self.questions = check_whole(questions, "questions", 1)
        given = np.empty((questions, 0)) if factors is None else finite_array(factors, "factors")
        if given.shape[:1] != (questions,) or given.ndim != 2:
            raise ValueError(f"factors has shape {given.shape}: pass ({questions}, factors)")
        spread = np.maximum(given.std(axis=0), 1e-12)
        self._factors = np.column_stack([np.ones(questions), (given - given.mean(axis=0)) / spread])
        self._needed = float(np.log(2 / (1 - check_confidence(confidence))))
        self._bets = STEPS * check_positive(width, "width", most=1.0) / 2
        self._rng = np.random.default_rng(seed)
        self._asked, self._outcomes = np.empty(0, np.int64), np.empty(0)
        self._drawn = np.empty(0, np.int64)
        self._up, self._down, self._slope = np.zeros((3, STEPS.size))
        self._mean = np.zeros(2)  # weighted sum of Z, and of weights
        self._slopes = np.zeros(self._factors.shape[1])
        self._low, self._high = 0.0, 1.0
        self._fit()

    @property
    def asked(self) -> int:
        """Return how many questions were asked."""
        return self._asked.size

    @property
    def estimate(self) -> float:
        """Return the average of Z, weighted by its precision; 0.5 before the first."""
        if self.asked == self.questions:
            return float(self._outcomes.mean())
        return float(self._mean[0] / self._mean[1]) if self.asked else 0.5

    def interval(self) -> tuple[float, float]:
        """Return the interval of all draws so far; it never grows."""
        return self._low, self._high

    def draw(self, count: int) -> Ints:
        """Draw the questions to ask next, in their order, at most as many as are left."""
        left = np.flatnonzero(self._weight > 0)
        keys = self._rng.exponential(size=left.size) / self._weight[left]
        count = min(check_whole(count, "count", 1), left.size)
        self._drawn = left[np.argsort(keys)[:count]]
        return self._drawn.copy()

    def add(self, outcomes: npt.ArrayLike) -> None:
        """Add what the questions drawn last earned, in [0, 1], (count,). Raises ValueError."""
        x = bounded_array(outcomes, "outcomes", 0.0, 1.0, "outcomes lie in [0, 1]")
        if x.shape != self._drawn.shape or not x.size:
            raise ValueError(f"outcomes has shape {x.shape}: pass {self._drawn.shape}, as drawn")
        q, m, w, total = self._drawn, self._predicted, self._weight, self.questions
        left = w > 0
        weight = w.sum() - _before(w[q])
        known = self._outcomes.sum() + _before(x) + m[left].sum() - _before(m[q])
        z = known / total + (x - m[q]) * weight / w[q] / total
        each = self._noise[left] / w[left]
        noise = weight * np.maximum(each.sum() - _before(self._noise[q] / w[q]), 1e-12) / total**2
        guess = self.estimate if self.asked else known[0] / total
        reach = weight / total * (np.maximum(m, 1 - m)[left] / w[left]).max()
        reach = reach + np.abs(known / total - guess)
        stake = np.minimum(self._bets[:, None] / noise, LARGEST / reach)
        self._up += np.log1p(stake * (z - guess)).sum(axis=1) + stake.sum(axis=1) * guess
        self._down += np.log1p(-stake * (z - guess)).sum(axis=1) - stake.sum(axis=1) * guess
        self._slope += stake.sum(axis=1)
        self._mean += ((z / noise).sum(), (1 / noise).sum())
        self._asked, self._outcomes = np.append(self._asked, q), np.append(self._outcomes, x)
        self._drawn = np.empty(0, np.int64)
        if self.asked == total:
            self._low = self._high = self.estimate
            return
        bets = WEIGHTS, self._slope, self._needed
        low = max(self._low, float(wealth.bound(self._up, *bets, 0.0, 1.0)))
        high = min(self._high, -float(wealth.bound(self._down, *bets, -1.0, 0.0)))
        if low <= high:  # else something rarer than the error has happened: the old one stays
            self._low, self._high = low, high
        self._fit()

    def _fit(self) -> None:
        """Predict outcomes and their noise from what was asked, and choose weights of draws."""
        x, f = self._outcomes, self._factors[self._asked]
        for _ in range(4 if x.size else 0):  # Newton's steps, from where the last fit ended
            p = scipy.special.expit(f @ self._slopes)
            curve = (f.T * (p * (1 - p))) @ f + RIDGE * np.eye(self._slopes.size)
            self._slopes += np.linalg.solve(curve, f.T @ (x - p) - RIDGE * self._slopes)
        m = np.clip(scipy.special.expit(self._factors @ self._slopes), 0.001, 0.999)
        expected = m * (1 - m)
        # What residuals were, beside what the fit expects of them: more where it fits badly.
        missed = (x - m[self._asked]) ** 2 - expected[self._asked]
        excess = max(0.0, float(missed.sum() / (x.size + PRIOR)))
        self._predicted, self._noise = m, expected + excess
        weight = np.sqrt(self._noise)
        weight = (1 - EVERYWHERE) * weight / weight.mean() + EVERYWHERE
        weight[self._asked] = 0.0
        self._weight = weight


def _before(values: Floats) -> Floats:
    """Sum up what comes before each."""
    return np.cumsum(values) - values
