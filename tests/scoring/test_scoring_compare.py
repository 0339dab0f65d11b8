"""Comparing two models, and the two kinds of uncertainty, against fractions and known truth."""

import itertools
import math
import statistics
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers import close, ragged
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from bayes_at_n.scoring import avg, question_stderr
from bayes_at_n.scoring.intervals.uncertainty import next_attempts, pool_ci, uncertainty
from bayes_at_n.scoring.numerics.inputs import Counts
from bayes_at_n.scoring.ranking.compare import (
    TrialPlan,
    compare,
    compare_scores,
    paired_questions,
    pairwise_z,
    trials_to_separate,
)

PHI = statistics.NormalDist().cdf
Rows = list[list[int]]


def beta_moments(row: list[int]) -> tuple[Fraction, Fraction]:
    """Mean and variance of the posterior of one binary question under the uniform prior."""
    a, b = 1 + sum(row), 1 + len(row) - sum(row)
    return Fraction(a, a + b), Fraction(a * b, (a + b) ** 2 * (a + b + 1))


def average(rows: Rows) -> tuple[Fraction, Fraction]:
    """The mean of the questions' means, and the posterior's variance on that scale."""
    means = [Fraction(sum(row), len(row)) for row in rows]
    scaled = [Fraction(len(row) + 2, len(row)) ** 2 * beta_moments(row)[1] for row in rows]
    return sum(means, Fraction(0)) / len(rows), sum(scaled, Fraction(0)) / len(rows) ** 2


def matrices(least: int = 0, questions: int = 1) -> st.SearchStrategy[tuple[Rows, Rows]]:
    row = st.lists(st.integers(0, 1), min_size=least, max_size=7)
    return st.integers(questions, 5).flatmap(
        lambda M: st.tuples(*[st.lists(row, min_size=M, max_size=M)] * 2)
    )


@given(matrices(least=1))
def test_compare_is_exact(pair: tuple[Rows, Rows]) -> None:
    (mu_a, var_a), (mu_b, var_b) = (average(rows) for rows in pair)
    difference, sigma = float(mu_a - mu_b), math.sqrt(var_a + var_b)
    c = compare(ragged(pair[0]), ragged(pair[1]), confidence=0.9)
    close((c.difference, c.sigma), (difference, sigma))
    close(c.z, abs(difference) / sigma)
    close((c.rho, c.probability), (PHI(abs(difference) / sigma), PHI(difference / sigma)))
    close((c.lo, c.hi), (difference - 1.6448536269514722 * sigma, difference + c.hi - c.difference))
    close(c.hi - c.difference, c.difference - c.lo)
    assert all(isinstance(x, float) for x in c)


def test_no_uncertainty_is_a_tie_or_certain_and_never_nan() -> None:
    c = compare_scores([0.5, 0.5, 0.5], [0.0, 0.0, 0.1], [0.5, 0.6, 0.5], 0.0)
    assert c.z.tolist() == [0.0, math.inf, 0.0]
    assert c.rho.tolist() == [0.5, 1.0, 0.5]
    assert c.probability.tolist() == [0.5, 0.0, 0.5]
    assert (c.lo[1], c.hi[1]) == (c.difference[1], c.difference[1])
    same = compare([[0, 1]], [[1, 1]], w=[0.25, 0.25])
    assert (same.z, same.probability, same.lo, same.hi) == (0.0, 0.5, 0.0, 0.0)
    tiny = compare_scores(1e-300, 1e-320, 0.0, 0.0)
    assert tiny.z > 1e19 and tiny.probability == 1.0
    assert compare_scores(1e151, 1e-300, -1e151, 0.0).z == math.inf
    huge = compare_scores(1e151, 1e151, -1e151, 1e151)
    close((huge.z, huge.hi), (math.sqrt(2), 2e151 + 1.959963984540054 * math.sqrt(2) * 1e151))


def test_stacks_equal_one_call_each() -> None:
    rng = np.random.default_rng(1)
    A, B = rng.integers(0, 3, size=(3, 1, 6, 5)), rng.integers(0, 3, size=(4, 6, 8))
    w = [0.0, 0.3, 1.0]
    for function in (compare, paired_questions):
        stacked = function(A, B, w, confidence=0.8)
        for part in stacked:
            assert part.shape == (3, 4)
        for i, j in np.ndindex(3, 4):
            alone = function(A[i, 0], B[j], w, confidence=0.8)
            close([part[i, j] for part in stacked], list(alone))


def test_pairwise_z_is_every_pair() -> None:
    rng = np.random.default_rng(2)
    mu, sigma = rng.normal(size=(2, 5)), rng.uniform(0, 1, size=(2, 5))
    mu[0, 3], sigma[0, 3] = mu[0, 1], sigma[0, 1]
    sigma[1, :2] = 0.0
    z = pairwise_z(mu, sigma)
    assert z.shape == (2, 5, 5)
    for s, i, j in np.ndindex(2, 5, 5):
        c = compare_scores(mu[s, i], sigma[s, i], mu[s, j], sigma[s, j])
        close(z[s, i, j], math.copysign(c.z, c.difference))
        close(PHI(z[s, i, j]), c.probability)
    assert (z == -z.swapaxes(-1, -2)).all() and (np.diagonal(z, axis1=1, axis2=2) == 0).all()
    close(pairwise_z([1.0, 2.0], 0.5), pairwise_z([1.0, 2.0], [0.5, 0.5]))


def drawn_together(chance: float) -> float:
    """The chance of a difference above 0 where it is from a normal of half-Cauchy spread, in steps.

    ``chance``: what its likelihood says of it alone.
    """
    z, tau = stats.norm.ppf(chance), np.logspace(-6, 6, 4001)
    posterior = stats.halfcauchy(scale=2).pdf(tau) * stats.norm(0, np.hypot(1, tau)).pdf(z) * tau
    above = stats.norm.cdf(z * tau / np.hypot(1, tau))
    return float((posterior * above).sum() / posterior.sum())


@given(matrices(least=1, questions=2))
def test_paired_questions_is_exact(pair: tuple[Rows, Rows]) -> None:
    rows = zip(*pair, strict=True)
    gaps = [Fraction(sum(a), len(a)) - Fraction(sum(b), len(b)) for a, b in rows]
    sigma = math.sqrt(statistics.variance(gaps) / len(gaps))
    c, of_trials = (of(ragged(pair[0]), ragged(pair[1])) for of in (paired_questions, compare))
    close(c.difference, float(sum(gaps) / len(gaps)))
    close((c.sigma, c.z), (max(sigma, of_trials.sigma), abs(c.difference) / c.sigma), 1e-9)
    known = stats.t(len(gaps) - 1, c.difference, c.sigma)  # the t-test's, where sigma is the gaps'
    close((c.lo, c.hi), known.interval(0.95), 1e-9)
    close(c.probability, drawn_together(known.sf(0)), 1e-6)
    close(c.rho, max(c.probability, 1 - c.probability))
    assert abs(c.probability - 0.5) <= abs(of_trials.probability - 0.5)  # never surer


@given(matrices(least=1, questions=2), st.lists(st.sampled_from("abc"), min_size=9, max_size=9))
def test_clusters_are_drawn_as_one(pair: tuple[Rows, Rows], drawn: list[str]) -> None:
    """Sums within clusters, as a regression on a constant with clustered errors has them."""
    M, labels = len(pair[0]), [*"ab", *drawn][: len(pair[0])]
    means = [[Fraction(sum(row), len(row)) for row in rows] for rows in pair]

    def squared(values: list[Fraction]) -> float:
        mean, sums = sum(values) / M, dict.fromkeys(labels, Fraction(0))
        for label, value in zip(labels, values, strict=True):
            sums[label] += value - mean
        G = len(sums)
        return float(Fraction(G, G - 1) * sum(x**2 for x in sums.values()) / M**2)

    a, b = (ragged(rows) for rows in pair)
    close(question_stderr(a, clusters=labels) ** 2, squared(means[0]))
    close(uncertainty(a, clusters=labels).clustered, question_stderr(a, clusters=labels))
    c = paired_questions(a, b, clusters=labels)
    gaps = [x - y for x, y in zip(*means, strict=True)]
    close(c.sigma**2, max(squared(gaps), compare(a, b).sigma ** 2))
    known = stats.t(len({*labels}) - 1, c.difference, c.sigma)
    close(c.lo, known.ppf(0.025), 1e-9)
    close(c.probability, drawn_together(known.sf(0)), 1e-6)
    # Each question on its own is what no clusters are, and their order makes no difference.
    close(question_stderr(a, clusters=range(M)), question_stderr(a))
    close(question_stderr(a[::-1], clusters=labels[::-1]), question_stderr(a, clusters=labels))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: compare([[0, 1]], [[0, 1], [1, 1]]), "R_a has 1 questions, but R_b has 2"),
        (lambda: compare(np.zeros((2, 3, 4), int), np.zeros((3, 3, 4), int)), "broadcast"),
        (lambda: paired_questions([[0, 1]], [[0, 1]]), "at least 2"),
        (lambda: question_stderr([[0, 1], [1, 1]], clusters="aa"), "R has 1 cluster: "),
        (lambda: question_stderr([[0, 1], [1, 1]], clusters="abc"), "one label a question"),
    ],
)
def test_bad_input_is_named(call: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@given(matrices(least=1, questions=2))
def test_uncertainty_is_exact(pair: tuple[Rows, Rows]) -> None:
    rows = pair[0]
    M = len(rows)
    means = [Fraction(sum(row), len(row)) for row in rows]
    within = []
    for row, x in zip(rows, means, strict=True):
        if len(row) > 1:
            within.append(sum((k - x) ** 2 for k in row) / (len(row) - 1) / len(row))
        else:
            # The mean of p (1 - p) under Beta(2, 1) or Beta(1, 2).
            within.append(Fraction(1, 6))
    trials, clustered = float(sum(within) / M**2), float(statistics.variance(means) / M)
    u = uncertainty(ragged(rows))
    close((u.average, u.sigma), avg(ragged(rows)))
    close(u.clustered, question_stderr(ragged(rows)))
    close((u.trials**2, u.clustered**2), (trials, clustered))
    close((u.questions**2, u.total**2), (max(0.0, clustered - trials), max(clustered, trials)))


def test_next_attempts_are_what_sampling_them_gives() -> None:
    """The interval narrows as it does on average where the attempts are sampled."""
    rng, M, N, runs = np.random.default_rng(5), 40, 8, 400
    pool, other = (rng.beta(2, 2, size=(runs, 4 * M)) for _ in range(2))

    def spread(questions: int, trials: int) -> tuple[float, float, list[Any]]:
        hits = rng.binomial(trials, np.stack([pool, other])[..., :questions])
        both = np.stack([trials - hits, hits], axis=-1)
        gaps = (hits[0] - hits[1]) / trials
        here = (gaps - (pool - other)[:, :questions]).mean(axis=1).std()
        found = [next_attempts(Counts(a), Counts(b), attempts=640) for a, b in both.swapaxes(0, 1)]
        return here, gaps.mean(axis=1).std(), found

    here, elsewhere, found = spread(M, N)
    by = {name: np.mean([getattr(of, name) for of in found]) for name in found[0]._fields}
    assert (by["trials"], by["questions"], by["halving"]) == (8, 40, 120)
    close(by["here"], 1 - spread(M, 2 * N)[0] / here, 0.2)
    assert abs(by["elsewhere"] - (1 - spread(M, 2 * N)[1] / elsewhere)) < 0.08
    assert abs(by["questions_elsewhere"] - (1 - spread(2 * M, N)[1] / elsewhere)) < 0.08
    assert abs(1 - spread(M + 120, N)[1] / elsewhere - 0.5) < 0.06


def test_what_more_attempts_cannot_buy() -> None:
    sure, single = next_attempts([[1, 1], [0, 0]]), next_attempts([[1], [0], [1]])
    assert (sure.here, sure.elsewhere) == (0, 0) < (sure.questions_elsewhere,) * 2
    assert math.isnan(single.here) and math.isnan(single.elsewhere)
    assert (single.questions, single.halving) == (1000, 9)
    with pytest.raises(ValueError, match="R has 1 cluster"):
        next_attempts([[1, 0], [0, 1]], clusters="aa")


@given(matrices(least=1, questions=2))
def test_pool_ci_is_the_t_interval_with_two_questions_more(pair: tuple[Rows, Rows]) -> None:
    rows = pair[0]
    means = [sum(row) / len(row) for row in rows]
    more, (value, of_trials) = [*means, 0, 1], avg(ragged(rows))
    sigma = max(statistics.stdev(more) / math.sqrt(len(more)), of_trials)
    ends = stats.t(len(more) - 1, statistics.mean(more), sigma).interval(0.9)
    found = pool_ci(ragged(rows), confidence=0.9)
    close(found[:2], (value, max(question_stderr(ragged(rows)), of_trials)))
    close(found[2:], (max(min(ends[0], value), 0), min(max(ends[1], value), 1)), 1e-9)
    close(
        pool_ci(ragged(rows), [2, 5], 0.9),
        [2 + 3 * found[0], 3 * found[1], *(2 + 3 * x for x in found[2:])],
        1e-9,
    )


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


def test_plans_of_stacks_equal_one_call_each() -> None:
    rng = np.random.default_rng(7)
    A, B = rng.integers(0, 2, size=(3, 1, 6, 9)), rng.integers(0, 2, size=(4, 6, 12))
    plans = trials_to_separate(A, B)
    for i, j in itertools.product(range(3), range(4)):
        assert [part[i, j] for part in plans] == list(trials_to_separate(A[i, 0], B[j]))
