"""Intervals: the exact posterior against quadrature and exact formulas, the classical by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy import integrate, stats
from scipy.special import betainc, betaincinv

from bayes_at_n.scoring import Counts, bayes, bayes_ci
from bayes_at_n.scoring.intervals.classical import bootstrap_ci, clustered_ci, wald_ci, wilson_ci
from bayes_at_n.scoring.intervals.exact import bayes_exact_ci
from bayes_at_n.scoring.numerics.fourier import characteristic, mean_quantiles

Beta = tuple[float, float]
NODES, GAUSS = np.polynomial.legendre.leggauss(200)
Z95 = 1.959963984540054


def binary(correct: Any, trials: Any) -> Counts:
    correct = np.asarray(correct)
    return Counts(np.stack([trials - correct, correct], axis=-1))


def every_quantile(laws: list[Beta], quantiles: Any) -> Any:
    """What `bayes_exact_ci` takes its two ends from: one density serves them all."""
    states = np.array([[(wrong, right) for right, wrong in laws]], float)
    return mean_quantiles(states, np.array([0.0, 1.0]), quantiles)[0]


# Independent computations: densities convolved by quadrature, which is exact for polynomials.


def gauss(f: Callable[[Any], Any], a: float, b: float) -> float:
    """Integral from a to b, exact for polynomials of a degree below 400."""
    return float((b - a) / 2 * (GAUSS * f((a + b) / 2 + (b - a) / 2 * NODES)).sum())


def sum_of_two(s: float, p: Beta, q: Beta) -> float:
    """P(X + Y <= s) for two independent Beta variables."""
    if not 0 < s < 2:
        return float(s >= 2)
    sure = float(stats.beta.cdf(s - 1, *q))
    return sure + gauss(
        lambda y: stats.beta.cdf(s - y, *p) * stats.beta.pdf(y, *q), max(0.0, s - 1), min(1.0, s)
    )


def sum_of_three(s: float, p: Beta, q: Beta, r: Beta) -> float:
    ends = sorted({0.0, 1.0, *(min(max(s - i, 0.0), 1.0) for i in range(3))})
    return sum(
        gauss(
            lambda y: np.array([sum_of_two(s - t, p, q) for t in y]) * stats.beta.pdf(y, *r), a, b
        )
        for a, b in pairwise(ends)
    )


def irwin_hall(x: Fraction, n: int) -> Fraction:
    """P(mean of n uniform variables <= x), exactly."""
    terms = [(-1) ** k * math.comb(n, k) * max(n * x - k, Fraction(0)) ** n for k in range(n + 1)]
    return sum(terms, Fraction(0)) / math.factorial(n)


def inverted(points: list[float], correct: Any, N: int) -> list[float]:
    """P(mean <= x) by Gil-Pelaez inversion, characteristic functions by Gauss-Legendre."""
    M = len(correct)
    mu = sigma2 = 0.0
    densities = []
    for c in correct:
        law = stats.beta(c + 1, N - c + 1)
        low, high = law.ppf(1e-17), law.isf(1e-17)
        y = (low + high) / 2 + (high - low) / 2 * NODES
        densities.append((y, GAUSS * law.pdf(y) * (high - low) / 2))
        mu, sigma2 = mu + law.mean() / M, sigma2 + law.var() / M**2
    v = 5 / math.sqrt(sigma2) * (NODES + 1)
    phi = np.ones(v.size, dtype=complex)
    for y, density in densities:
        phi = phi * (np.exp(1j * np.outer(v, y - mu) / M) @ density)
    weight = GAUSS * 5 / math.sqrt(sigma2) / v
    return [0.5 - float((weight * (np.exp(-1j * v * (x - mu)) * phi).imag).sum()) / math.pi
            for x in points]  # fmt: skip


# The exact posterior.


@pytest.mark.parametrize(("c", "N"), [(0, 0), (3, 5), (80, 80), (9999, 10_000)])
def test_one_question_is_a_beta_posterior(c: int, N: int) -> None:
    R = np.ma.masked_all((1, 1), dtype=int) if N == 0 else binary([c], N)
    *_, lo, hi = bayes_exact_ci(R, confidence=0.9)
    expected = betaincinv(c + 1, N - c + 1, [0.05, 0.95])
    np.testing.assert_allclose((lo, hi), expected, rtol=1e-13)


@pytest.mark.parametrize("nu", [(41.0, 41.0), (300.0, 10.0), (3000.5, 7000.25), (3e9, 7e9)])
def test_the_series_agrees_with_a_beta_where_it_is_not_needed(nu: Beta) -> None:
    """With a third category of hardly any weight the general method has to find the Beta."""
    wrong, right = nu
    q = np.array([1e-6, 0.025, 0.5, 0.975])
    state = np.array([[[wrong, 1e-300, right]]])
    found = mean_quantiles(state, np.array([0.0, 0.5, 1.0]), q)
    np.testing.assert_allclose(betainc(right, wrong, found[0]), q, rtol=0, atol=1e-11)


@pytest.mark.parametrize(
    ("p", "q", "tolerance"),
    [
        ((5, 3), (2, 6), 1e-13),
        ((41, 41), (81, 1), 1e-12),
        ((1, 3), (3, 1), 1e-9),
        ((1, 1), (1, 1), 1e-9),
        ((81, 1), (1, 1), 1e-8),
        ((81, 1), (81, 1), 1e-7),
        ((81, 1), (1, 81), 1e-7),
    ],
)
def test_two_questions_agree_with_a_convolution(p: Beta, q: Beta, tolerance: float) -> None:
    right, wrong = np.transpose([p, q]) - 1
    R = Counts(np.stack([wrong, right], axis=-1).astype(int))
    if (right + wrong == 0).any():
        R = np.ma.masked_equal([[-1] * 80, [-1] * 80], -1)
        R[0, : int(right[0])] = 1
    tails = np.array([1e-5, 1e-3, 0.02, 0.1, 0.25, 0.49])
    quantiles = np.concatenate([tails, 1 - tails])
    ends = every_quantile([p, q], quantiles)
    found = bayes_exact_ci(R, confidence=1 - 2 * tails[2])[2:]
    np.testing.assert_allclose(found, ends[[2, 8]], rtol=1e-12)
    found = [sum_of_two(2 * end, p, q) for end in ends]
    np.testing.assert_allclose(found, quantiles, atol=tolerance)


def test_three_questions_agree_with_a_convolution() -> None:
    for laws in ([(81, 1)] * 3, [(3, 4), (2, 7), (9, 1)], [(81, 1), (81, 1), (1, 81)]):
        right, wrong = np.transpose(laws) - 1
        R = Counts(np.stack([wrong, right], axis=-1))
        quantiles = np.array([1e-5, 0.025, 0.3, 0.7, 0.975, 1 - 1e-5])
        ends = every_quantile(laws, quantiles)
        np.testing.assert_allclose(bayes_exact_ci(R)[2:], ends[[1, 4]], rtol=1e-12)
        found = [sum_of_three(3 * end, *laws) for end in ends]
        np.testing.assert_allclose(found, quantiles, atol=1e-10)


@pytest.mark.parametrize("M", [2, 3, 4, 7])
def test_no_trials_at_all_is_a_mean_of_uniform_variables(M: int) -> None:
    quantiles = np.array([1e-5, 0.01, 0.025, 0.25, 0.49, 0.9, 0.975, 1 - 1e-5])
    ends = every_quantile([(1, 1)] * M, quantiles)
    found = bayes_exact_ci(np.ma.masked_all((M, 3), dtype=int))[2:]
    np.testing.assert_allclose(found, ends[[2, 6]], rtol=1e-12)
    found = [float(irwin_hall(Fraction(end), M)) for end in ends]
    np.testing.assert_allclose(found, quantiles, atol=1e-9 if M == 2 else 1e-12)


@pytest.mark.parametrize("N", [80, 10_000])
def test_many_questions_and_many_trials_agree_with_an_inversion(N: int) -> None:
    rng = np.random.default_rng(4)
    correct = rng.binomial(N, np.concatenate([rng.uniform(size=80), np.ones(20), np.zeros(20)]))
    for tail in (1e-7, 1e-4, 0.025, 0.2):
        *score, lo, hi = bayes_exact_ci(binary(correct, N), confidence=1 - 2 * tail)
        np.testing.assert_allclose(score, bayes(binary(correct, N)), rtol=1e-14)
        np.testing.assert_allclose(inverted([lo, hi], correct, N), [tail, 1 - tail], atol=1e-9)


def test_fractional_prior_counts() -> None:
    prior = Counts([[0.25, 1.5], [2.75, 0.125]])
    R = binary([2, 1], 3)
    (a, b), (c, d) = (3.0 + 1.5, 2.0 + 0.25), (2.0 + 0.125, 3.0 + 2.75)
    *_, lo, hi = bayes_exact_ci(R, None, prior)
    for x, q in ((lo, 0.025), (hi, 0.975)):
        value, _ = integrate.quad(
            lambda y, x=x: stats.beta.cdf(2 * x - y, a, b) * stats.beta.pdf(y, c, d),
            *(0, 1), points=[max(2 * x - 1, 0), min(2 * x, 1)], epsabs=1e-12, limit=200,
        )  # fmt: skip
        assert abs(value - q) < 1e-9
    *_, lo, hi = bayes_exact_ci([1, 0, 1], None, Counts([[0.5, 0.25]]))
    np.testing.assert_allclose((lo, hi), betaincinv(3.25, 2.5, [0.025, 0.975]), rtol=1e-13)


def test_one_question_with_three_weights_is_a_spline() -> None:
    """Uniform on the triangle: x^2 / w below the middle weight, 1 - (1 - x)^2 / (1 - w) above."""
    nothing, tails = np.ma.masked_all((1, 2), dtype=int), np.geomspace(1e-6, 0.49, 20)
    probabilities = np.concatenate([tails, 1 - tails])
    for middle, tolerance in ((0.5, 1e-9), (0.1, 1e-9), (1e-3, 1e-7), (1e-9, 2e-5)):
        w = np.array([0.0, middle, 1.0])
        [x] = mean_quantiles(np.ones((1, 1, 3)), w, probabilities)  # one density serves them all
        assert bayes_exact_ci(nothing, w, confidence=1 - 2 * tails[-1])[2:] == (x[19], x[39])
        below, above = x**2 / middle, 1 - (1 - x) ** 2 / (1 - middle)
        found = np.where(x < middle, np.minimum(below, 1), above)
        np.testing.assert_allclose(found, probabilities, atol=tolerance)


def test_rubrics_agree_with_dirichlet_samples() -> None:
    rng = np.random.default_rng(17)
    w = np.array([0.2, -1.0, 2.0, 0.3])
    counts = np.array([[0, 3, 1, 0], [7, 0, 0, 0], [20, 30, 10, 5]])
    prior = np.array([[0, 0, 0.5, 0], [0, 1, 0, 0], [0, 0, 0, 0]])
    samples = 400_000
    metric = sum(rng.dirichlet(nu, size=samples) @ w for nu in counts + prior + 1) / 3
    for confidence in (0.5, 0.95, 0.999):
        *_, lo, hi = bayes_exact_ci(Counts(counts), w, Counts(prior), confidence)
        for end, q in ((lo, (1 - confidence) / 2), (hi, (1 + confidence) / 2)):
            stderr = math.sqrt(q * (1 - q) / samples)
            assert abs(float(np.mean(metric <= end)) - q) < 4 * stderr


def test_symmetries() -> None:
    rng = np.random.default_rng(8)
    R = rng.integers(0, 3, size=(6, 9))
    w = np.array([0.0, 0.3, 1.0])
    mu, sigma, lo, hi = bayes_exact_ci(R, w)
    assert lo < mu < hi
    assert not np.isclose(mu - lo, hi - mu, rtol=1e-3)
    np.testing.assert_allclose(
        bayes_exact_ci(R, 3 - 2 * w), (3 - 2 * mu, 2 * sigma, 3 - 2 * hi, 3 - 2 * lo), rtol=1e-11
    )
    # A category split in two of the same weight, with its prior, changes nothing.
    counts = np.stack([(k == R).sum(axis=1) for k in range(3)], axis=-1)
    split = np.concatenate([counts, np.zeros((6, 1), dtype=int)], axis=-1)
    prior = np.array([[0, 0, 1.0]] * 6)
    expected = bayes_exact_ci(Counts(counts), w, Counts(prior))
    np.testing.assert_allclose(bayes_exact_ci(Counts(split), [0, 0.3, 1, 1]), expected, rtol=1e-11)
    balanced = [[0, 1], [1, 0], [0, 1]]
    assert abs(sum(bayes_exact_ci(balanced)[2:]) - 1) < 1e-12
    assert bayes_exact_ci(balanced, [0.25, 0.25]) == (0.25, 0.0, 0.25, 0.25)


def test_stacks_equal_one_call_each() -> None:
    rng = np.random.default_rng(2)
    R = np.ma.masked_array(
        rng.random((2, 3, 5, 12)) < rng.random((2, 3, 1, 1)), mask=rng.random((2, 3, 5, 12)) < 0.2
    ).astype(int)
    for ci in (bayes_exact_ci, wald_ci, wilson_ci, clustered_ci, bootstrap_ci):
        stacked = np.array(ci(R))
        assert stacked.shape == (4, 2, 3)
        for at in np.ndindex(2, 3):
            alone = ci(R[at])
            assert all(isinstance(x, float) for x in alone)
            np.testing.assert_allclose(stacked[(slice(None), *at)], alone, rtol=1e-9, atol=1e-12)


def test_more_matrices_and_states_than_one_pass_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayes_at_n.scoring.numerics.fourier.MOST_MATRICES", 3)
    monkeypatch.setattr("bayes_at_n.scoring.numerics.fourier.MOST_STATES", 4)
    rng = np.random.default_rng(6)
    correct = rng.integers(3, 158, size=(12, 2))
    levels, q = np.array([0.0, 1.0]), np.array([0.025, 0.5, 0.975])
    nu = np.stack([161.0 - correct, correct + 1.0], axis=-1)
    nu[:3] = [[[2, 3], [4, 3]], [[161, 4], [161, 3]], [[1, 161], [50, 60]]]
    ends = mean_quantiles(nu, levels, q)
    for row, state in zip(ends, nu, strict=True):
        (wrong1, right1), (wrong2, right2) = state
        found = [sum_of_two(2 * end, (right1, wrong1), (right2, wrong2)) for end in row]
        np.testing.assert_allclose(found, q, atol=1e-10)


def test_a_narrow_posterior_does_not_suffer_from_a_wide_one_beside_it() -> None:
    nu = np.array([[[161.0, 1.0], [161.0, 1.0]], [[1.0, 1.0], [1.0, 1.0]]])
    ends = mean_quantiles(nu, np.array([0.0, 1.0]), np.array([0.025, 0.975]))
    for end, probability in zip(ends[0], [0.025, 0.975], strict=True):
        assert abs(sum_of_two(2 * end, (1, 161), (1, 161)) - probability) < 1e-9


@pytest.mark.parametrize("nu", [(0.5, 0.5), (1, 1), (0.3, 40.7), (1, 81), (60, 22), (500, 501)])
def test_characteristic_function_of_a_beta_is_kummers(nu: Beta) -> None:
    v = np.array([0.0, 0.7, 9.0, 40.0, 150.0, 170.0, 400.0, 3000.0])
    found = characteristic(np.array([nu], dtype=float), np.array([0.0, 1.0]), v)[0]
    with mpmath.workdps(30):
        expected = [complex(mpmath.hyp1f1(nu[1], sum(nu), 1j * x)) for x in v]
    np.testing.assert_allclose(found, expected, atol=2e-13)


def test_the_normal_approximation_and_the_exact_interval_meet_for_many_trials() -> None:
    rng = np.random.default_rng(0)
    R = (rng.random((60, 200)) < 0.5).astype(int)
    np.testing.assert_allclose(bayes_exact_ci(R), bayes_ci(R), atol=2e-6)


# The classical intervals.

RAGGED = [[1, 1, 0], [0, 0], [1, 1, 1, 1], [1, 0, 1, 1]]


def ragged() -> Any:
    data = np.full((4, 4), -1)
    for i, row in enumerate(RAGGED):
        data[i, : len(row)] = row
    return np.ma.masked_equal(data, -1)


def test_wald_is_the_stratified_standard_error() -> None:
    a, variance = Fraction(0), Fraction(0)
    for row in RAGGED:
        values = [Fraction(3) * x - 1 for x in row]
        mean = sum(values, Fraction(0)) / len(row)
        a += mean / 4
        squares = sum(((x - mean) ** 2 for x in values), Fraction(0))
        variance += squares / (len(row) - 1) / len(row) / 16
    stderr = math.sqrt(variance)
    expected = (float(a), stderr, float(a) - Z95 * stderr, float(a) + Z95 * stderr)
    np.testing.assert_allclose(wald_ci(ragged(), [-1.0, 2.0]), expected, rtol=1e-13)
    assert wald_ci([[1, 1], [0, 0]]) == (0.5, 0.0, 0.5, 0.5)


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
    a, stderr, lo, hi = wilson_ci(ragged())
    share = (2 / 3 + 0 + 1 + 3 / 4) / 4
    n = 16 / (1 / 3 + 1 / 2 + 1 / 4 + 1 / 4)
    np.testing.assert_allclose((a, stderr), (share, math.sqrt(share * (1 - share) / n)))
    # The ends are where the score test of p just rejects: (a - p)^2 = z^2 p (1 - p) / n.
    for p in (lo, hi):
        assert abs((a - p) ** 2 - Z95**2 * p * (1 - p) / n) < 1e-14


def test_clustered_is_the_sample_formula_over_questions() -> None:
    means = [2 / 3, 0.0, 1.0, 0.75]
    a = sum(means) / 4
    stderr = math.sqrt(sum((x - a) ** 2 for x in means) / 3 / 4)
    expected = (a, stderr, a - Z95 * stderr, a + Z95 * stderr)
    np.testing.assert_allclose(clustered_ci(ragged()), expected, rtol=1e-13)


def test_bootstrap_of_trials_has_the_exact_distribution() -> None:
    """Two questions with 3 of 4 and 1 of 4 correct: the sum is Bin(4, 3/4) + Bin(4, 1/4)."""
    R = [[1, 1, 1, 0], [0, 0, 1, 0]]
    total = np.convolve(stats.binom.pmf(range(5), 4, 0.75), stats.binom.pmf(range(5), 4, 0.25))
    below = np.cumsum(total)
    replicates = 20_000
    a, stderr, lo, hi = bootstrap_ci(R, confidence=0.8, replicates=replicates)
    assert a == 0.5
    exact = math.sqrt(2 * 4 * 0.75 * 0.25) / 8
    assert abs(stderr / exact - 1) < 5 / math.sqrt(2 * replicates)
    assert (lo, hi) == (np.searchsorted(below, 0.1) / 8, np.searchsorted(below, 0.9) / 8)
    assert bootstrap_ci([[1, 1], [0, 0]]) == (0.5, 0.0, 0.5, 0.5)


def test_bootstrap_of_questions_has_the_exact_variance() -> None:
    replicates = 20_000
    means = np.array([2 / 3, 0.0, 1.0, 0.75]) * 3 - 1
    a, stderr, lo, hi = bootstrap_ci(ragged(), [-1, 2], 0.9, replicates, 1, "questions")
    np.testing.assert_allclose(a, means.mean())
    assert abs(stderr / (means.std() / 2) - 1) < 5 / math.sqrt(2 * replicates)
    every = np.sort(np.stack(np.meshgrid(*[means] * 4), -1).reshape(-1, 4).mean(axis=1))
    for end, q in ((lo, 0.05), (hi, 0.95)):
        low = float(np.mean(every < end - 1e-9))
        high = float(np.mean(every <= end + 1e-9))
        assert low - 0.01 < q < high + 0.01


def test_bootstrap_is_reproducible_and_bounded_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(3)
    R = rng.integers(0, 3, size=(40, 15))
    w = [0.0, 0.5, 1.0]
    first = bootstrap_ci(R, w, replicates=500, seed=4)
    assert bootstrap_ci(R, w, replicates=500, seed=4) == first
    assert bootstrap_ci(R, w, replicates=500, seed=5) != first
    # In pieces the draws come in another order, from the same distribution.
    monkeypatch.setattr("bayes_at_n.scoring.intervals.classical.MOST_DRAWS", 1000)
    for resample, sigma in (("trials", wald_ci(R, w)[1]), ("questions", clustered_ci(R, w)[1])):
        pieces = bootstrap_ci(R, w, replicates=2000, resample=resample)  # type: ignore[arg-type]
        assert pieces[0] == first[0]
        assert abs(pieces[1] / sigma - 1) < 0.12


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: bayes_exact_ci([[0, 2]]), r"R\[0, 1\].* is 2"),
    (lambda: bayes_exact_ci([[0, 1]], [0, np.nan]), "w holds nan"),
    (lambda: bayes_exact_ci([[0, 1]], None, Counts([[0, -1]])), "R0: .* is -1"),
    (lambda: bayes_exact_ci([[0, 1]], None, Counts([[0, 1], [1, 1]])), "R0 has 2 questions"),
    (lambda: bayes_exact_ci([[0, 1]], confidence=1.0), "confidence is 1.0"),
    (
        lambda: bayes_exact_ci([[0, 1]], confidence=1 - 1e-9),
        "confidence is 0.99.*at most 1 - 2e-07",
    ),
    (lambda: wald_ci([[0], [1]]), "question 0 .* has 1 trials, but the Wald interval"),
    (lambda: wald_ci([[0, 1]], confidence=0), "confidence is 0"),
    (lambda: wilson_ci([[0, 2]]), r"R\[0, 1\].* is 2: .*the Wilson interval takes"),
    (lambda: wilson_ci(np.ma.masked_equal([[-1], [1]], -1)), "question 0 .* has 0 trials"),
    (lambda: wilson_ci([[0, 1]], confidence=95), "confidence is 95"),
    (lambda: clustered_ci([[0, 1]]), "R has 1 question"),
    (lambda: clustered_ci([[0], [1]], confidence=np.nan), "confidence is nan"),
    (lambda: bootstrap_ci(np.ma.masked_equal([[-1], [1]], -1)), "question 0 .* has 0 trials"),
    (lambda: bootstrap_ci([[0, 1]], confidence=-1), "confidence is -1"),
    (lambda: bootstrap_ci([[0, 1]], replicates=1), "replicates is 1"),
    (lambda: bootstrap_ci([[0, 1]], seed=-1), "seed is -1"),
    (lambda: bootstrap_ci([[0, 1]], resample="rows"), "resample is 'rows'"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_one_readable_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_hundreds_of_millions_of_trials() -> None:
    """Where SciPy's inverse of the Beta distribution gives an upper end below the lower one."""
    _, _, lo, hi = bayes_exact_ci(Counts([[300_000_000, 999]]))
    expected = stats.gamma(1000).ppf([0.025, 0.975]) / 300_001_001
    np.testing.assert_allclose([lo, hi], expected, rtol=1e-6)


def test_wilson_holds_its_own_estimate() -> None:
    for n in range(1, 200):
        a, _, lo, hi = wilson_ci(Counts([[[n, 0]], [[0, n]]]))
        assert (lo <= a).all() and (a <= hi).all() and (lo >= 0).all() and (hi <= 1).all()
