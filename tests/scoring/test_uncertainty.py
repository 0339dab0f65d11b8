"""Wilson's interval, groups and macro averages: against scipy, fractions and sums by hand."""

import math
from fractions import Fraction

import numpy as np
import pytest
from helpers import ragged
from scipy import stats
from scipy.stats import t, ttest_ind

from bayes_at_n import scoring
from bayes_at_n.scoring.intervals.uncertainty import wilson_ci

Z95 = 1.959963984540054


@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_wilson_agrees_with_scipy(confidence: float) -> None:
    for c, n in ((0, 12), (12, 12), (7, 12), (1, 1200)):
        R = np.zeros((4, n // 4), dtype=int)
        R.flat[:c] = 1
        a, stderr, lo, hi = wilson_ci(R, confidence)
        peer = stats.binomtest(c, n).proportion_ci(confidence, method="wilson")
        np.testing.assert_allclose((lo, hi), (peer.low, peer.high), rtol=1e-12, atol=1e-15)
        np.testing.assert_allclose((a, stderr), (c / n, math.sqrt(c / n * (1 - c / n) / n)))


def test_wilson_of_unequal_trials_uses_the_effective_number() -> None:
    a, stderr, lo, hi = wilson_ci(ragged([[1, 1, 0], [0, 0], [1, 1, 1, 1], [1, 0, 1, 1]]))
    share = (2 / 3 + 0 + 1 + 3 / 4) / 4
    n = 16 / (1 / 3 + 1 / 2 + 1 / 4 + 1 / 4)
    np.testing.assert_allclose((a, stderr), (share, math.sqrt(share * (1 - share) / n)))
    # The ends are where the score test of p just rejects: (a - p)^2 = z^2 p (1 - p) / n.
    for p in (lo, hi):
        assert abs((a - p) ** 2 - Z95**2 * p * (1 - p) / n) < 1e-14


R = np.array([[1, 1, 0, 1], [0, 1, 0, 0], [1, 1, 1, 1], [0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 1, 0]])
SIDES = np.array([-1, 1])
APART = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]], bool)
SHARED = np.array([[1, 1, 1, 0, 0, 0], [0, 0, 1, 1, 1, 1]], bool)  # the third is in both


def variance(row: np.ndarray) -> Fraction:
    """The paper's variance of a question's mean: ((N + 2) / N)^2 times that of a Beta posterior."""
    a, b = 1 + int(row.sum()), 1 + len(row) - int(row.sum())
    return Fraction(a * b, (a + b) ** 2 * (a + b + 1)) * Fraction(a + b, len(row)) ** 2


def test_disjoint_groups_are_independent() -> None:
    found = scoring.group_scores(R, APART)
    each = [scoring.score_ci(R[of]) for of in APART]
    assert np.transpose(found.score).tolist() == [list(one) for one in each]
    assert found.macro.value == pytest.approx((each[0].value + each[1].value) / 2)
    sigma = np.hypot(each[0].sigma, each[1].sigma) / 2
    assert found.macro.sigma == pytest.approx(sigma)
    assert found.macro.low == pytest.approx(found.macro.value - 1.959964 * sigma)
    assert found.pool.low[1] == scoring.pool_ci(R[2:]).low


def test_a_question_of_two_groups_counts_in_both() -> None:
    # Two groups of the same two questions and one more: their scores are avg, as no prior is known.
    rows, members = R[:4], np.array([[1, 1, 0, 0], [0, 1, 0, 1]], bool)
    found = scoring.group_scores(rows, members)
    weights = [Fraction(1, 4), Fraction(1, 2), Fraction(0), Fraction(1, 4)]
    parts = zip(weights, rows, strict=True)
    value = sum(w * Fraction(int(row.sum()), 4) for w, row in parts)
    spread = sum(w**2 * variance(row) for w, row in zip(weights, rows, strict=True))
    assert found.macro.value == pytest.approx(float(value))
    assert found.macro.sigma == pytest.approx(float(spread) ** 0.5)


def test_the_pool_of_disjoint_groups_is_a_stratified_mean() -> None:
    one = np.repeat(R[:, :1], 40, axis=1)  # no spread of trials beside that of questions
    found = scoring.group_scores(one, APART).pool_macro
    x = one.mean(axis=1)
    parts = [x[of] for of in APART]
    sigma = sum(part.var(ddof=1) / len(part) for part in parts) ** 0.5 / 2
    assert found.value == pytest.approx(sum(part.mean() for part in parts) / 2)
    assert found.sigma == pytest.approx(sigma)
    own = [(part.var(ddof=1) / len(part), len(part) - 1) for part in parts]
    freedom = sum(v for v, _ in own) ** 2 / sum(v**2 / df for v, df in own)
    reach = t.ppf(0.975, freedom) * sigma
    assert [found.low, found.high] == pytest.approx(np.clip(found.value + reach * SIDES, 0, 1))


def test_clusters_are_drawn_whole_also_across_groups() -> None:
    one = np.repeat(R[:, :1], 40, axis=1)
    x, labels = one.mean(axis=1), "abacbc"  # each has questions of both groups, or of one
    sums = dict.fromkeys(labels, 0.0)
    for of in SHARED:
        many = len({label for label, inside in zip(labels, of, strict=True) if inside})
        for i in np.flatnonzero(of):
            gap = (x[i] - x[of].mean()) / of.sum() / 2
            sums[labels[i]] += (many / (many - 1)) ** 0.5 * gap
    found = scoring.group_scores(one, SHARED, clusters=labels)
    assert found.pool_macro.sigma == pytest.approx(sum(s**2 for s in sums.values()) ** 0.5)
    assert found.pool.sigma[1] == scoring.pool_ci(one[2:], clusters="acbc").sigma


def test_a_stack_is_scored_as_its_matrices_and_gaps_count_as_nothing() -> None:
    ragged = np.ma.masked_where(np.arange(24).reshape(6, 4) % 7 == 6, R)  # type: ignore[no-untyped-call]
    both = scoring.group_scores(np.ma.stack([R, ragged]), SHARED, 0.9, clusters="aabbcc")
    for i, matrix in enumerate((R, ragged)):
        alone = scoring.group_scores(matrix, SHARED, 0.9, clusters="aabbcc")
        for stacked, single in zip(both, alone, strict=True):
            np.testing.assert_allclose([part[i] for part in stacked], single)


def test_the_difference_of_two_sets_of_questions_is_welchs() -> None:
    rows = np.random.default_rng(3).random((26, 1)) < 0.5
    old, new = np.repeat(rows[:16], 60, axis=1), np.repeat(rows[16:], 60, axis=1)
    found = scoring.difference_ci(new, old, 0.9)
    a, b = new.mean(axis=1), old.mean(axis=1)
    by_hand = ttest_ind(a, b, equal_var=False).confidence_interval(0.9)
    assert found.value == pytest.approx(a.mean() - b.mean())
    assert [found.low, found.high] == pytest.approx([*by_hand])


def test_clusters_of_two_sets_count_as_draws() -> None:
    pair = scoring.difference_ci(R[:4], R[2:], clusters_a="aabb", clusters_b="abcd")
    parts = scoring.pool_ci(R[:4], clusters="aabb").sigma, scoring.pool_ci(R[2:]).sigma
    assert pair.sigma == pytest.approx(np.hypot(*parts))
    freedom = pair.sigma**4 / (parts[0] ** 4 / 1 + parts[1] ** 4 / 3)
    reach = t.ppf(0.975, freedom) * pair.sigma
    assert pair.high == pytest.approx(min(1, pair.value + reach))
