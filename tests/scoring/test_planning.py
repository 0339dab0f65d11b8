"""Planning: expectations by enumeration in fractions, simulated runs, the paper's coins."""

import itertools
import math
import statistics
from fractions import Fraction

import numpy as np

from bayes_at_n.scoring.numerics.inputs import Counts
from bayes_at_n.scoring.ranking.compare import TrialPlan, trials_to_separate

NORMAL = statistics.NormalDist()
Table = list[list[int]]


def outcomes(N: int, K: int) -> list[tuple[int, ...]]:
    """All ways in which N trials fall into K categories."""
    if K == 1:
        return [(N,)]
    return [(n, *rest) for n in range(N + 1) for rest in outcomes(N - n, K - 1)]


def rising(x: int, n: int) -> int:
    return math.prod(range(x, x + n))


def expected_variance(pilot: Table, w: list[Fraction], N: int) -> Fraction:
    """Mean of Bayes@N's variance over every outcome of N trials, as the pilot expects them."""
    total = Fraction(0)
    for row in pilot:
        nu = [1 + n for n in row]
        for new in outcomes(N, len(w)):
            chance = Fraction(math.factorial(N), rising(sum(nu), N))
            for k, n in enumerate(new):
                chance *= Fraction(rising(nu[k], n), math.factorial(n))
            q = [Fraction(1 + n, N + len(w)) for n in new]
            mean = sum(a * b for a, b in zip(q, w, strict=True))
            square = sum(a * b * b for a, b in zip(q, w, strict=True))
            total += chance * (square - mean**2) / (N + len(w) + 1)
    return total / len(pilot) ** 2


BINARY = [Fraction(0), Fraction(1)]


def expected_z(a: Table, b: Table, gap: float, N: int) -> float:
    variance = expected_variance(a, BINARY, N) + expected_variance(b, BINARY, N)
    return gap * N / (N + 2) / math.sqrt(variance)


def test_separation_is_reached_in_expectation() -> None:
    a, b = [[1, 9], [2, 10], [0, 4]], [[5, 5], [6, 6], [2, 6]]
    means = [[Fraction(n, m + n) for m, n in rows] for rows in (a, b)]
    gap = float(sum(means[0]) - sum(means[1])) / 3
    sigma = math.sqrt(sum((m + 1) * (n + 1) / (m + n + 3) / (m + n) ** 2 for m, n in a + b) / 9)
    confidence = 0.9
    half = NORMAL.inv_cdf(0.95) * sigma
    assert gap - half > 0
    for power, more in ((0.5, 0.0), (0.9, NORMAL.inv_cdf(0.9))):
        how = {"confidence": confidence, "power": power}
        plan = trials_to_separate(Counts(a), Counts(b), **how)
        for N, d in zip(plan, (gap, gap + half, gap - half), strict=True):
            assert 1 <= N < 200
            assert expected_z(a, b, d, int(N)) >= NORMAL.inv_cdf(confidence) + more
            assert N == 1 or expected_z(a, b, d, int(N) - 1) < NORMAL.inv_cdf(confidence) + more
        assert plan == trials_to_separate(Counts(b), Counts(a), **how)


def test_what_cannot_be_separated_is_infinite() -> None:
    a, b = [[5, 5], [3, 7]], [[4, 6], [3, 7]]
    plan = trials_to_separate(Counts(a), Counts(b))
    assert plan.fewest < plan.trials < plan.most == math.inf
    same = trials_to_separate(Counts(a), Counts(a))
    assert same.trials == same.most == math.inf and same.fewest < math.inf
    assert trials_to_separate(Counts(a), Counts(b), [0.3, 0.3]) == TrialPlan(*[math.inf] * 3)


def test_stacks_equal_one_call_each() -> None:
    rng = np.random.default_rng(7)
    A, B = rng.integers(0, 2, size=(3, 1, 6, 9)), rng.integers(0, 2, size=(4, 6, 12))
    plans = trials_to_separate(A, B)
    for i, j in itertools.product(range(3), range(4)):
        assert [part[i, j] for part in plans] == list(trials_to_separate(A[i, 0], B[j]))
