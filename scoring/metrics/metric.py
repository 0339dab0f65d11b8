"""What a metric is: its estimate, its spread over repeated trials, and its exact tables.

With n trials of each of M questions most scores are the mean over questions of a number that
depends only on c, the correct trials of that question: a table over c = 0..n. Scores of k attempts
follow from credits A_0..A_k, what k attempts earn when j of them are correct; here both are exact
fractions, so that ties of two models are ties. A blend over the dataset has two tables.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, TypeAlias

import numpy as np
import scipy

from bayes_at_n.scoring.metrics.votes import Ballots
from bayes_at_n.scoring.numerics.credit import (
    Credit,
    binomial,
    blend,
    blend_sigma,
    by_state,
    subset_mean,
    subset_scores,
)
from bayes_at_n.scoring.numerics.inputs import UNIT, Counts, Floats, Ints, Outcomes, binary_counts
from bayes_at_n.scoring.numerics.results import (
    Summary,
    normal_quantile,
    normal_summary,
    question_sigma,
    result,
    within,
)

Value: TypeAlias = Fraction | float
FEW = 200  # trials, up to which half a one more or less matters
OUTCOMES, ANSWERS, CONFIDENCE, VERIFIER = "outcomes", "answers", "confidence", "verifier"


@dataclass(frozen=True, eq=False)
class Metric:
    """A score of outcomes 0 and 1: of one part, or of two parts X and Y as X^a Y^b."""

    label: str  # "G-Pass@8 (0.5)", "Bayes@{trials}"
    k: int  # trials that every question needs at least
    parts: tuple[Callable[[Outcomes], Any], ...]  # each a mean over questions
    # For n trials the scores of a question with c = 0..n correct, larger is better: n + 1 numbers
    # for each part. With a float among them scores are tied within `bootstrap.TOLERANCE`.
    tables: Callable[[int], tuple[list[Value], ...]]
    powers: tuple[float, ...] = (1.0,)  # or (a, b), 0 or more, of two means in [0, 1]
    sigma: Callable[[Outcomes], Any] | None = None  # None: `sampling_sigma`
    interval: Callable[..., Summary] | None = None  # a posterior's own
    name: str = ""  # as settings have it: "g-pass@8:0.5"
    own: str = ""  # the file of a user's own
    of: tuple[str, ...] = (OUTCOMES,)  # what it takes, see `given`
    error: Callable[[Any], Any] | None = None  # Monte Carlo error, which sigma holds
    credit: Floats | None = None  # of a score of one credit (k + 1,)

    @property
    def key(self) -> str:
        """Name it as a column: letters, digits, points and underscores.

        >>> from bayes_at_n.scoring.metrics.table import parse
        >>> parse("pass@8").key, parse("pass^4").key, parse("g-pass@8:0.5").key
        ('pass_at_8', 'pass_hat_4', 'g_pass_at_8_0.5')
        """
        short = self.name.rpartition("/")[2].replace("@", "_at_").replace("^", "_hat_")
        return re.sub(r"[^\w.]", "_", short)

    def title(self, trials: int | str = "N") -> str:
        """Write its label, with the number of trials where that is part of it."""
        return self.label.format(trials=trials)

    @property
    def votes(self) -> bool:
        """Say whether it takes answers."""
        return ANSWERS in self.of

    def given(self, evidence: Mapping[str, Any]) -> Any:
        """Select what the other methods take as R, from arrays (..., M, N) by name.

        Most metrics take "outcomes"; votes take "answers" (:func:`scoring.cons_at_k`), some
        together with scores, "confidence" or "verifier". Raises KeyError: a name is missing.
        """
        first, *scores = (evidence[name] for name in self.of)
        return Ballots(first, *scores) if scores else first

    def estimate(self, R: Any) -> Any:
        """Compute the score, a float or an array (...); R and errors: :func:`scoring.pass_at_k`."""
        scores = [part(R) for part in self.parts]
        return result(blend(*scores, *self.powers)) if len(scores) > 1 else scores[0]

    def summary(self, R: Any, confidence: float = 0.95) -> Summary:
        """Compute the score, its sigma and interval, at a confidence in (0, 1), moved into 0 to 1.

        Bayes@N has the posterior's, avg@N that of :func:`scoring.avg_ci`. All else is the unbiased
        estimate -/+ z times its standard deviation over repetitions of the trials.

        That is short where the variance is near its maximum, and where a few questions decide and
        the distribution is skewed. So ends of a score with one credit are as far as two others, if
        these are farther: with the largest of each question's variances at half a correct trial
        less, as many, and half a one more (up to `FEW` trials); and where each question's own
        interval takes them. Its ends are what the score would be at those of Jeffreys' interval for
        its rate (0 and 1 at 0 and N correct), and distances from its estimate add up in squares.
        Raises ValueError: as :meth:`estimate`; a confidence that cannot be. Source: Zou and Donner
        (2008); Brown, Cai and DasGupta (2001).
        """
        if self.interval is not None:
            return self.interval(R, confidence=confidence, bounds=UNIT)
        value, sigma = self.estimate(R), (self.sigma or self.sampling_sigma)(R)
        if self.credit is None:
            return normal_summary(value, sigma, confidence, UNIT)
        arguments = self.credit.tobytes(), confidence
        counted = binary_counts(R, self.title())
        parts = by_state(_reach, arguments, *counted, max(self.k, FEW) + 1)
        below, above, near = map(question_sigma, parts)
        reach = normal_quantile(confidence) * np.maximum(sigma, near)
        ends = value - np.maximum(reach, below), value + np.maximum(reach, above)
        return Summary(value, sigma, *(within(end, UNIT) for end in ends))

    def sampling_sigma(self, R: Outcomes) -> Any:
        """Compute sigma over repetitions of the trials, at the rates (c + 1/2) / (N + 1).

        What :func:`scoring.pass_at_k_sigma` is for Pass@k; of a blend to first order.
        """
        correct, trials = binary_counts(R, self.title())
        spread = by_state(_spread, (self.parts,), correct, trials, 4 * (int(trials.max()) + 1))
        if len(spread) == 1:
            return result(question_sigma(spread[0]))
        x, y = (np.asarray(part(R)) for part in self.parts)
        return result(blend_sigma(x, y, spread, *self.powers))


def _spread(parts: Any, correct: Ints, trials: Ints) -> tuple[Floats, ...]:
    """Variance of each part over repetitions of a question's trials; of two, covariance last."""
    from scipy.stats import binom  # half a second, which no other metric and no start should pay

    pairs = [(0, 0), (1, 1), (0, 1)] if len(parts) > 1 else [(0, 0)]
    spread = np.empty((len(pairs), correct.size))
    for n in np.unique(trials).tolist():
        at, c = trials == n, np.arange(n + 1)
        every = Counts(np.stack([n - c, c], axis=-1)[:, None, :])
        chance = binom.pmf(c, n, (correct[at, None] + 0.5) / (n + 1))
        scores = [np.asarray(part(every)) for part in parts]
        centred = [score - (chance @ score)[:, None] for score in scores]
        for row, (i, j) in zip(spread, pairs, strict=True):
            row[at] = (chance * centred[i] * centred[j]).sum(axis=-1)
    return tuple(spread)


def _reach(credit: bytes, confidence: float, correct: Ints, trials: Ints) -> tuple[Floats, ...]:
    """Square how far below and above its estimate a question's score may be, by its rate's ends.

    Third: the largest variance of the estimate near its count; 0 beyond `FEW` trials.
    """
    values, tail = np.frombuffer(credit), (1 - confidence) / 2
    beta = correct + 0.5, trials - correct + 0.5
    low = np.where(correct > 0, scipy.special.betaincinv(*beta, tail), 0.0)
    high = np.where(correct < trials, scipy.special.betainccinv(*beta, tail), 1.0)
    ends = [binomial(values.size - 1, rate) @ values for rate in (low, high)]
    score = subset_scores(values, correct, trials)
    off = score - np.minimum(*ends), np.maximum(*ends) - score
    near = np.zeros(correct.size)
    for n in (n for n in np.unique(trials).tolist() if n <= FEW):
        at, every = trials == n, np.arange(n + 1)
        table = subset_scores(values, every, np.full(n + 1, n))
        pmf = binomial(n, np.arange(2 * n + 3) / (2 * n + 2))
        variance = pmf @ table**2 - (pmf @ table) ** 2
        near[at] = np.maximum(variance[2 * correct[at] + [[0], [1], [2]]].max(axis=0), 0.0)
    return (*(np.maximum(one, 0.0) ** 2 for one in off), near)


def of_count(
    label: str,
    k: int,
    score: Callable[[Outcomes], Any],
    value: Callable[[int, int], Value],
    interval: Callable[..., Summary] | None = None,
) -> Metric:
    """Make the metric ``score``, which is the mean over questions of ``value(c, n)``."""
    return Metric(
        label, k, (score,), lambda n: ([value(c, n) for c in range(n + 1)],), interval=interval
    )


def of_votes(
    label: str,
    k: int,
    score: Callable[..., Any],
    sigma: Callable[..., Any],
    *scores: str,
    error: Callable[..., Any] | None = None,
) -> Metric:
    """Make the metric ``score`` of answers, and of scores of the attempts if any are named."""

    def tables(n: int) -> Any:
        raise ValueError(f"{label}: depends on more than how many of {n} trials are correct")

    parts, of = (partial(score, k=k),), (ANSWERS, *scores)
    return Metric(label, k, parts, tables, sigma=partial(sigma, k=k), of=of, error=error)


def of_credit(
    label: str, *credits: Credit, powers: tuple[float, ...] = (1.0,), sigma: Any = None
) -> Metric:
    """Make the metric with these credits; of two, the blend with these powers of both means.

    A credit is k + 1 numbers, what k attempts earn when 0..k of them are correct.
    """
    exact = [[Fraction(str(value)) for value in credit] for credit in credits]
    floats = [np.array(credit, dtype=np.float64) for credit in credits]
    parts = tuple(partial(subset_mean, what=label, credit=x) for x in floats)

    def tables(n: int) -> tuple[list[Value], ...]:
        return tuple(expected(credit, n) for credit in exact)

    single = floats[0] if len(floats) == 1 else None
    return Metric(label, len(credits[0]) - 1, parts, tables, powers, sigma, credit=single)


def expected(credit: Sequence[Fraction], n: int) -> list[Value]:
    """Compute the expected credit of k of n trials, c = 0..n of them correct; hypergeometric.

    >>> [str(score) for score in expected([Fraction(0), Fraction(1), Fraction(1)], 4)]
    ['0', '1/2', '5/6', '1', '1']
    """
    k = len(credit) - 1
    # Only credits that differ from the commonest need a term: one for Pass@k, whatever k is.
    usual = max(credit, key=credit.count)
    below = math.lcm(*((value - usual).denominator for value in credit))
    terms = [(j, int((value - usual) * below)) for j, value in enumerate(credit) if value != usual]
    comb, subsets = math.comb, math.comb(n, k) * below
    sums = [sum(a * comb(c, j) * comb(n - c, k - j) for j, a in terms) for c in range(n + 1)]
    return [usual + Fraction(above, subsets) for above in sums]
