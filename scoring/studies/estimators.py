"""Estimators as tables, for ranking models by them many times over.

With n trials of each of M questions, every estimator here is the mean over questions of a number
that depends only on c, the correct trials of that question; so it is a table over c = 0..n, and
scoring a model is M look-ups. The two blends over a whole data set have two such tables, X and Y,
and score X^a Y^b. Tables are exact fractions where the estimator is rational: ties of two models
are then ties, not a matter of rounding.

>>> from scoring.studies import estimators
>>> [[str(score) for score in table] for table in estimators.pass_at_k(2).tables(4)]
[['0', '1/2', '5/6', '1', '1']]

For rankings the tables are scaled to integers (:func:`scaled`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from scoring.metrics.forms import Estimator as Estimator
from scoring.metrics.forms import Value as Value
from scoring.metrics.thresholds import needed
from scoring.numerics.checks import check_finite, check_k, check_share
from scoring.numerics.inputs import Floats, Ints

# Sums over questions stay below this in size, so that the difference of two is an int64.
LARGEST_SUM = 2**62
# Blends X^a Y^b, from 0 to 1, in these units.
BLEND_UNITS = 2**60
# Scores from floats are tied when they differ by less than this share of their range.
TOLERANCE = 1e-12


def bayes() -> Estimator:
    """Bayes@N with the uniform prior, (c + 1) / (n + 2); avg@N ranks in the same way.

    Source: arXiv 2510.04265, equation 14 and section 2.6.

    >>> [str(score) for score in bayes().tables(2)[0]]
    ['1/4', '1/2', '3/4']
    """
    return Estimator("Bayes@N", 1, lambda n: ([Fraction(c + 1, n + 2) for c in range(n + 1)],))


def pass_at_k(k: int) -> Estimator:
    """Pass@k, unbiased: at least one of k correct; equation 21."""
    return _of_credit(f"Pass@{check_k(k)}", _at_least(1, k))


def pass_hat_k(k: int) -> Estimator:
    """Pass^k, unbiased: all of k correct; equation 22."""
    return _of_credit(f"Pass^{check_k(k)}", _at_least(k, k))


def naive_pass_at_k(k: int) -> Estimator:
    """The plug-in 1 - (1 - c/n)^k, which section 2.7 calls naive Pass^k; from n = k, as Pass@k.

    >>> [str(score) for score in naive_pass_at_k(2).tables(2)[0]]
    ['0', '3/4', '1']
    """
    k = check_k(k)

    def tables(n: int) -> tuple[list[Value], ...]:
        return ([Fraction(n**k - (n - c) ** k, n**k) for c in range(n + 1)],)

    return Estimator(f"naive Pass@{k}", k, tables)


def g_pass_at_k_tau(k: int, tau: float) -> Estimator:
    """G-Pass@k: at least max(1, ceil(tau k)) of k correct; equation 23."""
    least = needed(check_share(tau, "tau"), check_k(k))
    return _of_credit(f"G-Pass@{k} (tau {tau:g})", _at_least(least, k))


def mg_pass_at_k(k: int) -> Estimator:
    """mG-Pass@k in its published closed form, credits 2/k max(j - ceil(k/2), 0); equation 24.

    For k = 1 it is 0 for every model, and all are tied.
    """
    return _of_credit(f"mG-Pass@{check_k(k)}", _upper_half(k))


def mg_pass_at_k_integral(k: int) -> Estimator:
    """mG-Pass@k as the integral that equation 24 approximates, credits max(2 j/k - 1, 0)."""
    credit = [max(Fraction(2 * j, check_k(k)) - 1, Fraction(0)) for j in range(k + 1)]
    return _of_credit(f"mG-Pass@{k} (integral)", credit)


def maj_at_k(k: int) -> Estimator:
    """Maj@k: more than half of k correct."""
    return _of_credit(f"Maj@{check_k(k)}", _at_least(k // 2 + 1, k))


def auc_at_k(k: int) -> Estimator:
    """AUC@k: Pass@j over j = 1..k by the trapezoidal rule; Pass@1 for k = 1.

    >>> [str(score) for score in auc_at_k(2).tables(2)[0]]
    ['0', '3/4', '1']
    """
    k = check_k(k)
    ends = Fraction(1, 2 * (k - 1)) if k > 1 else Fraction(1)
    shares = [ends if j in (1, k) else 2 * ends for j in range(1, k + 1)]
    credit = [
        sum(
            (
                share * (1 - Fraction(math.comb(k - right, j), math.comb(k, j)))
                for j, share in enumerate(shares, 1)
            ),
            Fraction(0),
        )
        for right in range(k + 1)
    ]
    return _of_credit(f"AUC@{k}", credit)


def threshold_spectrum_at_k(k: int, weights: Sequence[float]) -> Estimator:
    """The sum over r = 1..k of weights[r - 1] times the chance that r or more of k are correct.

    Args:
        k: attempts.
        weights: k numbers, 0 or more, of sum at most 1; each is taken as the shortest decimal
            number that prints like it, so that 0.1 is one tenth.
    """
    return _of_credit(f"threshold spectrum@{check_k(k)}", _spectrum(k, weights))


def geom_at_k(k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Estimator:
    """Geom@k: the mean over questions of (Pass@k)^a (Pass^k)^b."""
    k, (a, b) = check_k(k), _powers(pass_power, unanimous_power)

    def tables(n: int) -> tuple[list[Value], ...]:
        some, every = _expected(_at_least(1, k), n), _expected(_at_least(k, k), n)
        return ([float(x) ** a * float(y) ** b for x, y in zip(some, every, strict=True)],)

    return Estimator(f"Geom@{k}", k, tables)


def geom_ds_at_k(k: int, pass_power: float = 0.5, unanimous_power: float = 0.5) -> Estimator:
    """Geom@k of the data set: (Pass@k)^a (Pass^k)^b of the two means over questions."""
    powers = _powers(pass_power, unanimous_power)
    return _blend(f"Geom-DS@{check_k(k)}", _at_least(k, k), powers)


def geo_spectrum_at_k(
    k: int, lam: float = 0.5, weights: Sequence[float] | None = None
) -> Estimator:
    """(Pass@k)^lam S^(1 - lam), where S is the threshold spectrum of the data set.

    Args:
        k: attempts.
        lam: from 0 to 1.
        weights: as for :func:`threshold_spectrum_at_k`; None makes S mG-Pass@k.
    """
    lam = check_share(lam, "lam")
    credit = _upper_half(check_k(k)) if weights is None else _spectrum(k, weights)
    return _blend(f"GeoSpectrum@{k}", credit, (lam, 1 - lam))


def geo_spectrum_star_at_k(k: int) -> Estimator:
    """GeoSpectrum*@k, the square root of Pass@k times mG-Pass@k."""
    return _blend(f"GeoSpectrum*@{check_k(k)}", _upper_half(k), (0.5, 0.5))


class Scaled(NamedTuple):
    """The tables of an estimator at one n as integers.

    A single table may have lost a constant and a factor, which no ranking sees. Of a blend,
    values times units sum over questions to the means.
    """

    values: Ints  # (tables, n + 1)
    units: Floats  # (tables,)
    tolerance: int  # scores are tied if they differ by this or less; 0: they are exact


def scaled(estimator: Estimator, n: int, questions: int) -> Scaled:
    """Return the tables of an estimator for n trials as integers whose sums fit int64.

    Fractions are brought to their common denominator, and scores are exact, if the sum over
    questions fits. Otherwise they are rounded to the finest units that fit, and scores are tied
    that differ by no more than rounding may have added, M units (for M = 30 questions 2e-16 of
    the range of scores). With floats and in blends the tolerance is ``TOLERANCE`` of the range.

    >>> scaled(pass_at_k(2), 4, questions=30).values.tolist()
    [[0, 3, 5, 6, 6]]
    """
    tables = estimator.tables(n)
    limit = LARGEST_SUM // questions
    if len(tables) == 1:
        low = min(tables[0])
        values, unit, exact = _integers([value - low for value in tables[0]], limit)
        tolerance = 0
        if not exact:
            whole = all(isinstance(value, Fraction) for value in tables[0])
            tolerance = questions if whole else int(TOLERANCE * limit * questions)
        return Scaled(np.array([values]), np.array([unit / questions]), tolerance)
    parts = [_integers(table, limit) for table in tables]
    units = np.array([unit / questions for _, unit, _ in parts])
    return Scaled(np.array([x for x, _, _ in parts]), units, int(TOLERANCE * BLEND_UNITS))


def _integers(values: Sequence[Value], limit: int) -> tuple[list[int], float, bool]:
    """Integers and a unit, values = integers * unit, and whether that is exact."""
    exact = [value for value in values if isinstance(value, Fraction)]
    if len(exact) == len(values):
        below = math.lcm(*(value.denominator for value in exact))
        whole = [value.numerator * (below // value.denominator) for value in exact]
        factor = math.gcd(*whole) or 1
        if max(whole) // factor <= limit:
            return [value // factor for value in whole], factor / below, True
    top = max(values) or 1.0
    return [round(value / top * limit) for value in values], float(top / limit), False


def _of_credit(label: str, credit: list[Fraction]) -> Estimator:
    """Mean credit over k-subsets of the trials; credit[j] is for j of k correct."""
    return Estimator(label, len(credit) - 1, lambda n: (_expected(credit, n),))


def _blend(label: str, credit: list[Fraction], powers: tuple[float, float]) -> Estimator:
    """Pass@k^a Y^b over a data set, where Y is the mean of another credit."""
    k = len(credit) - 1
    some = _at_least(1, k)
    return Estimator(label, k, lambda n: (_expected(some, n), _expected(credit, n)), powers)


def _expected(credit: list[Fraction], n: int) -> list[Value]:
    """Expected credit of k of n trials, c = 0..n of them correct; hypergeometric."""
    k = len(credit) - 1
    # Only credits that differ from the commonest need a term: one for Pass@k, whatever k is.
    usual = max(credit, key=credit.count)
    below = math.lcm(*((value - usual).denominator for value in credit))
    terms = [(j, int((value - usual) * below)) for j, value in enumerate(credit) if value != usual]
    comb, subsets = math.comb, math.comb(n, k) * below
    sums = [sum(a * comb(c, j) * comb(n - c, k - j) for j, a in terms) for c in range(n + 1)]
    return [usual + Fraction(above, subsets) for above in sums]


def _at_least(least: int, k: int) -> list[Fraction]:
    return [Fraction(int(j >= least)) for j in range(k + 1)]


def _upper_half(k: int) -> list[Fraction]:
    return [Fraction(2 * max(j - (k + 1) // 2, 0), k) for j in range(k + 1)]


def _spectrum(k: int, weights: Sequence[float]) -> list[Fraction]:
    """Credits A_j, the sum of the first j weights."""
    found = [Fraction(repr(check_finite(weight, "a weight"))) for weight in weights]
    # Decimal weights such as ten times 0.1 sum to 1; the slack is for thirds and the like.
    if len(found) != k or min(found) < 0 or sum(found) > 1 + Fraction(1, 10**12):
        raise ValueError(
            f"weights is {list(weights)!r}: pass {k} numbers, 0 or more, whose sum is at most 1"
        )
    return [sum(found[:j], Fraction(0)) for j in range(k + 1)]


def _powers(a: float, b: float) -> tuple[float, float]:
    a, b = check_finite(a, "pass_power"), check_finite(b, "unanimous_power")
    if min(a, b) < 0 or a == b == 0:
        raise ValueError(f"the powers are {a:g} and {b:g}: pass two of 0 or more, and one above 0")
    return a, b
