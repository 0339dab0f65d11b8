"""What the metrics of ``table.py`` are made of: credits, exact tables, and the spread of trials.

With n trials of each of M questions most scores are the mean over questions of a number that
depends only on c, the correct trials of that question: a table over c = 0..n. Scores of k attempts
follow from credits A_0..A_k, what k attempts earn when j of them are correct; here both are exact
fractions, so that ties of two models are ties. A blend over the data set has two tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from scoring.metrics.bayes import avg, avg_ci, bayes, bayes_ci
from scoring.metrics.geom import blend, blend_sigma, check_powers, geom_at_k
from scoring.metrics.passk import naive_pass_at_k
from scoring.metrics.thresholds import check_spectrum
from scoring.numerics.credit import by_state
from scoring.numerics.estimate import subset_mean
from scoring.numerics.inputs import Counts, Floats, Ints, Outcomes, binary_counts
from scoring.numerics.results import Summary, question_sigma, result

Value: TypeAlias = Fraction | float
Credit: TypeAlias = list[Fraction]


@dataclass(frozen=True)
class Estimator:
    """A score by which models can be ranked."""

    label: str  # in tables and figures
    first: int  # smallest number of trials n for which it is defined
    # For n, the scores of a question with c = 0..n correct trials, larger is better: a list of
    # n + 1 numbers, or two for a blend; the model's score is the mean over questions. Scores with a
    # float among them are tied within `scoring.studies.estimators.TOLERANCE` of their range.
    tables: Callable[[int], tuple[list[Value], ...]]
    powers: tuple[float, ...] = (1.0,)  # or (a, b), 0 or more, for X^a Y^b of two means in [0, 1]


def expected(credit: Credit, n: int) -> list[Value]:
    """Expected credit of k of n trials, c = 0..n of them correct; hypergeometric.

    >>> [str(score) for score in expected(at_least(1, 2), 4)]
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


def at_least(least: int, k: int) -> Credit:
    """Credits of "this many of k attempts are correct, or more"."""
    return [Fraction(int(j >= least)) for j in range(k + 1)]


def upper_half(k: int) -> Credit:
    """Credits of mG-Pass@k in its published form, 2/k max(j - ceil(k/2), 0); equation 24."""
    return [Fraction(2 * max(j - (k + 1) // 2, 0), k) for j in range(k + 1)]


def upper_ramp(k: int) -> Credit:
    """Credits max(2 j/k - 1, 0) of the integral that equation 24 approximates."""
    return [max(Fraction(2 * j, k) - 1, Fraction(0)) for j in range(k + 1)]


def area(k: int) -> Credit:
    """Credits of AUC@k: Pass@j over j = 1..k by the trapezoidal rule; Pass@1 for k = 1.

    >>> [str(value) for value in area(2)]
    ['0', '3/4', '1']
    """
    end = Fraction(1, 2 * (k - 1)) if k > 1 else Fraction(1)
    weights = [end if j in (1, k) else 2 * end for j in range(1, k + 1)]

    def miss(j: int, correct: int) -> Fraction:
        """The chance that none of j of the k attempts is correct."""
        return Fraction(math.comb(k - correct, j), math.comb(k, j))

    return [
        1 - sum((w * miss(j, correct) for j, w in enumerate(weights, 1)), Fraction(0))
        for correct in range(k + 1)
    ]


def spectrum(weights: Sequence[float], k: int) -> Credit:
    """Credits w_1 + ... + w_j; a weight is the shortest decimal number that prints like it."""
    exact = [Fraction(repr(weight)) for weight in check_spectrum(weights, k).tolist()]
    return [sum(exact[:j], Fraction(0)) for j in range(k + 1)]


class Form(NamedTuple):
    """How a score is computed: from one part, or from two parts X and Y as X^a Y^b."""

    parts: tuple[Callable[[Outcomes], Any], ...]  # each a mean over questions
    tables: Callable[[int], tuple[list[Value], ...]]  # the parts exactly, as `Estimator` has them
    powers: tuple[float, ...] = (1.0,)
    sigma: Callable[[Outcomes], Any] | None = None  # None: `sampling_sigma`
    interval: Callable[..., Summary] | None = None  # a posterior's own

    def estimate(self, R: Outcomes) -> Any:
        """The score, of shape (...)."""
        scores = [part(R) for part in self.parts]
        return result(blend(*scores, *self.powers)) if len(scores) > 1 else scores[0]

    def sampling_sigma(self, R: Outcomes) -> Any:
        """Standard deviation over repetitions of the trials, at the rates (c + 1/2) / (N + 1).

        What :func:`scoring.pass_at_k_sigma` is for Pass@k; of a blend to first order.
        """
        correct, trials = binary_counts(R, "this score")
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


def of_credit(
    *credits: Sequence[Value], powers: tuple[float, ...] = (1.0,), sigma: Any = None
) -> Form:
    """The form of a score with these credits; of two, the blend with these powers of both means.

    A credit is k + 1 numbers, what k attempts earn when 0..k of them are correct. ``sigma`` is a
    function of outcomes, None for the spread over repetitions of the trials.
    """
    what = f"a score of {len(credits[0]) - 1} attempts"
    exact = [[Fraction(str(value)) for value in credit] for credit in credits]
    floats = [np.array(credit, dtype=np.float64) for credit in credits]
    parts = tuple(partial(subset_mean, what=what, credit=x, short="raise") for x in floats)
    return Form(parts, lambda n: tuple(expected(credit, n) for credit in exact), powers, sigma)


def of_count(
    score: Callable[[Outcomes], Any], value: Callable[[int, int], Value], interval: Any = None
) -> Form:
    """The form of a score that is the mean over questions of ``value(c, n)``."""
    return Form((score,), lambda n: ([value(c, n) for c in range(n + 1)],), interval=interval)


def bayes_form() -> Form:
    """Bayes@N under the uniform prior; equation 14. avg@N ranks in the same way."""
    return of_count(lambda R: bayes(R)[0], lambda c, n: Fraction(c + 1, n + 2), bayes_ci)


def avg_form() -> Form:
    """avg@N, the share of correct trials."""
    return of_count(lambda R: avg(R)[0], Fraction, avg_ci)


def naive_form(k: int) -> Form:
    """The plug-in 1 - (1 - c/n)^k, which section 2.7 calls naive Pass^k; from n = k, as Pass@k."""
    return of_count(partial(naive_pass_at_k, k=k), lambda c, n: 1 - Fraction(n - c, n) ** k)


def geom_form(k: int, a: float = 0.5, b: float = 0.5) -> Form:
    """The mean over questions of (Pass@k)^a (Pass^k)^b."""

    def tables(n: int) -> tuple[list[Value], ...]:
        any_, all_ = expected(at_least(1, k), n), expected(at_least(k, k), n)
        return ([float(x) ** a * float(y) ** b for x, y in zip(any_, all_, strict=True)],)

    nonnegative_powers(a, b)
    return Form((partial(geom_at_k, k=k, pass_power=a, unanimous_power=b),), tables)


def nonnegative_powers(a: float, b: float) -> tuple[float, float]:
    """Return the powers of a blend, which may be 0 but not negative, and not both 0."""
    if min(check_powers(a, b)) < 0:
        raise ValueError(f"the powers are {a:g} and {b:g}: pass two of 0 or more")
    return a, b
