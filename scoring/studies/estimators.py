"""Estimators for ranking models many times over, and their tables as integers.

With n trials of each of M questions an estimator is a table over c = 0..n, the correct trials of a
question, and scoring a model is M look-ups; a blend over a whole data set has two such tables
(:mod:`scoring.metrics.forms`). Every metric of :mod:`scoring.metrics.table` is one.

>>> [estimator] = named("pass@2")
>>> [[str(score) for score in table] for table in estimator.tables(4)]
[['0', '1/2', '5/6', '1', '1']]

For rankings the tables are scaled to integers (:func:`scaled`), so that ties are ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from scoring.metrics.forms import Estimator as Estimator
from scoring.metrics.forms import Value
from scoring.metrics.table import parse
from scoring.numerics.inputs import Floats, Ints

# Sums over questions stay below this in size, so that the difference of two is an int64.
LARGEST_SUM = 2**62
# Blends X^a Y^b, from 0 to 1, in these units.
BLEND_UNITS = 2**60
# Scores from floats are tied when they differ by less than this share of their range.
TOLERANCE = 1e-12


def named(*names: str) -> list[Estimator]:
    """Metrics as estimators, in their order.

    Args:
        names: as :func:`scoring.metrics.table.parse` takes them: ``named("bayes", "pass@8")``.

    Raises:
        ValueError: no such metric.
    """
    return [parse(name).estimator for name in names]


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

    >>> [estimator] = named("pass@2")
    >>> scaled(estimator, 4, questions=30).values.tolist()
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
