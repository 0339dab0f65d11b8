"""The Pass@k family, Max@k and the blends: fractions, enumeration, and the authors' own library."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from helpers import close, ragged
from hypothesis import given, settings
from hypothesis import strategies as st

from bayes_at_n import scoring

Rows = list[list[int]]
Credit = list[Fraction]

# Credits for j of k correct attempts, from the definitions.


def at_least(j0: int) -> Callable[[int], Credit]:
    return lambda k: [Fraction(int(j >= j0)) for j in range(k + 1)]


def majority(k: int) -> Credit:
    return [Fraction(int(2 * j > k)) for j in range(k + 1)]


def unanimous(k: int) -> Credit:
    return [Fraction(int(j == k)) for j in range(k + 1)]


def closed_form_mg(k: int) -> Credit:
    return [Fraction(2, k) * max(j - math.ceil(k / 2), 0) for j in range(k + 1)]


def area(k: int) -> Credit:
    """The trapezoids over Pass@1..Pass@k of k attempts of which j are correct."""
    credit = []
    for j in range(k + 1):
        passes = [1 - Fraction(math.comb(k - j, i), math.comb(k, i)) for i in range(1, k + 1)]
        halves = [(x + y) / 2 for x, y in itertools.pairwise(passes)]
        credit.append(sum(halves, Fraction(0)) / (k - 1) if k > 1 else passes[0])
    return credit


# Exact expectations of a credit.


def subset_mean(rows: Rows, credit: Credit) -> Fraction:
    """Over all k-subsets, listed one by one."""
    k, total = len(credit) - 1, Fraction(0)
    for row in rows:
        scores = [credit[sum(subset)] for subset in itertools.combinations(row, k)]
        total += sum(scores, Fraction(0)) / len(scores)
    return total / len(rows)


def rising(x: Fraction, n: int) -> Fraction:
    return math.prod((x + i for i in range(n)), start=Fraction(1))


def product_moment(a: Fraction, b: Fraction, one: Credit, two: Credit) -> Fraction:
    """E g(p) h(p) for p ~ Beta(a, b), from E p^i q^j = (a)_i (b)_j / (a + b)_(i + j)."""
    m, n = len(one) - 1, len(two) - 1
    total = Fraction(0)
    for i, j in itertools.product(range(m + 1), range(n + 1)):
        if one[i] and two[j]:
            chance = math.comb(m, i) * math.comb(n, j)
            power = rising(a, i + j) * rising(b, m + n - i - j) / rising(a + b, m + n)
            total += one[i] * two[j] * chance * power
    return total


def posterior(rows: Rows, one: Credit, two: Credit, prior: tuple[Fraction, Fraction]) -> Any:
    """Per question: E g, E h, Var g, Var h, Cov(g, h)."""
    found = []
    unit = [Fraction(1)]
    for row in rows:
        a, b = prior[0] + sum(row), prior[1] + len(row) - sum(row)
        g, h = product_moment(a, b, one, unit), product_moment(a, b, two, unit)
        vg = product_moment(a, b, one, one) - g * g
        vh = product_moment(a, b, two, two) - h * h
        found.append((g, h, vg, vh, product_moment(a, b, one, two) - g * h))
    return found


def exact_summary(rows: Rows, credit: Credit, prior: Any) -> tuple[float, float]:
    found = posterior(rows, credit, [Fraction(0)], prior)
    variance = sum(x[2] for x in found) / len(rows) ** 2
    return float(sum(x[0] for x in found) / len(rows)), math.sqrt(variance)


def delta(x: float, y: float, vx: float, vy: float, cov: float, a: float, b: float) -> Any:
    if x**a * y**b == 0:
        return 0.0, 0.0
    dx, dy = a * x ** (a - 1) * y**b, b * x**a * y ** (b - 1)
    return x**a * y**b, dx * dx * vx + dy * dy * vy + 2 * dx * dy * cov


# Every estimator of the family that is a credit: point estimate, posterior, credit.
FAMILY: list[tuple[Any, Any, Callable[[int], Credit]]] = [
    (scoring.pass_at_k, scoring.pass_at_k_ci, at_least(1)),
    (scoring.pass_hat_k, scoring.pass_hat_k_ci, unanimous),
    (scoring.g_pass_at_k, scoring.g_pass_at_k_ci, unanimous),
    (scoring.unanimous_at_k, scoring.unanimous_at_k_ci, unanimous),
    (scoring.mg_pass_at_k, scoring.mg_pass_at_k_ci, closed_form_mg),
    (scoring.maj_at_k, scoring.maj_at_k_ci, majority),
    (scoring.auc_at_k, scoring.auc_at_k_ci, area),
]
binary_rows = st.lists(st.lists(st.integers(0, 1), min_size=4, max_size=9), min_size=1, max_size=4)
prior_parts = st.fractions(Fraction(1, 8), 4, max_denominator=8)


@pytest.mark.parametrize(("estimate", "_", "credit"), FAMILY)
@settings(max_examples=15, deadline=None)
@given(rows=binary_rows, k=st.integers(1, 4))
def test_estimates_are_shares_of_all_subsets(
    estimate: Any, _: Any, credit: Any, rows: Rows, k: int
) -> None:
    close(estimate(ragged(rows), k), float(subset_mean(rows, credit(k))))


@pytest.mark.parametrize(("_", "interval", "credit"), [f for f in FAMILY if f[1]])
@settings(max_examples=15, deadline=None)
@given(rows=binary_rows, k=st.integers(1, 4), alpha0=prior_parts, beta0=prior_parts)
def test_posteriors_are_exact(
    _: Any, interval: Any, credit: Any, rows: Rows, k: int, alpha0: Fraction, beta0: Fraction
) -> None:
    got = interval(ragged(rows), k, alpha0=float(alpha0), beta0=float(beta0))
    close(got[:2], exact_summary(rows, credit(k), (alpha0, beta0)))


@settings(max_examples=25, deadline=None)
@given(rows=binary_rows, k=st.integers(1, 4), tau=st.fractions(0, 1, max_denominator=12))
def test_thresholds_in_between(rows: Rows, k: int, tau: Fraction) -> None:
    credit = at_least(max(1, math.ceil(tau * k)))(k)
    close(scoring.g_pass_at_k_tau(ragged(rows), k, float(tau)), float(subset_mean(rows, credit)))
    got = scoring.g_pass_at_k_tau_ci(ragged(rows), k, float(tau))
    close(got[:2], exact_summary(rows, credit, (Fraction(1), Fraction(1))))


@settings(max_examples=25, deadline=None)
@given(
    rows=binary_rows,
    parts=st.lists(st.integers(0, 8), min_size=1, max_size=4),
    lam=st.sampled_from([0.0, 0.25, 0.5, 0.9, 1.0]),
)
def test_spectrum_and_its_blend(rows: Rows, parts: list[int], lam: float) -> None:
    k, total = len(parts), max(1, sum(parts))
    credit = [Fraction(sum(parts[:j]), total) for j in range(k + 1)]
    w, R, one = [x / total for x in parts], ragged(rows), (Fraction(1), Fraction(1))
    spectrum, passed = subset_mean(rows, credit), subset_mean(rows, at_least(1)(k))
    close(scoring.threshold_spectrum_at_k(R, k, w), float(spectrum))
    close(scoring.threshold_spectrum_at_k_ci(R, k, w)[:2], exact_summary(rows, credit, one))
    expected = float(passed) ** lam * float(spectrum) ** (1 - lam)
    close(scoring.geo_spectrum_at_k(R, k, lam, w), expected)
    close(scoring.geo_spectrum_at_k(R, k, lambda_=lam, weights=w), expected)
    moments = np.array(posterior(rows, at_least(1)(k), credit, one), dtype=float).T
    x, y = moments[:2].mean(axis=1)
    spreads = moments[2:].sum(axis=1) / len(rows) ** 2
    mu, variance = delta(x, y, *spreads, lam, 1 - lam)
    got = scoring.geo_spectrum_at_k_ci(R, k, lam, w)
    close(got[0], mu)
    close(got[1], math.sqrt(variance), 1e-9)


@settings(max_examples=25, deadline=None)
@given(
    rows=binary_rows,
    k=st.integers(1, 4),
    a=st.sampled_from([0.5, 1.0, 0.0, 0.3]),
    b=st.sampled_from([0.5, 2.0, 0.1]),
)
def test_geometric_blends(rows: Rows, k: int, a: float, b: float) -> None:
    R, one = ragged(rows), (Fraction(1), Fraction(1))
    pairs = [
        [float(subset_mean([row], credit(k))) for credit in (at_least(1), unanimous)]
        for row in rows
    ]
    close(scoring.geom_at_k(R, k, a, b), np.mean([x**a * y**b for x, y in pairs]))
    x, y = np.mean(pairs, axis=0)
    close(scoring.geom_ds_at_k(R, k, a, b), x**a * y**b)
    found = posterior(rows, at_least(1)(k), unanimous(k), one)
    questions = [delta(*(float(part) for part in question), a, b) for question in found]
    mu, variance = np.mean([q[0] for q in questions]), sum(q[1] for q in questions)
    close(scoring.geom_at_k_ci(R, k, a, b)[:2], (mu, math.sqrt(variance) / len(rows)), 1e-11)
    moments = np.array(found, dtype=float).T
    means, spreads = moments[:2].mean(axis=1), moments[2:].sum(axis=1) / len(rows) ** 2
    mu, variance = delta(*means, *spreads, a, b)
    close(scoring.geom_ds_at_k_ci(R, k, a, b)[:2], (mu, math.sqrt(variance)), 1e-11)


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_best_of_k_is_exact(data: st.DataObject) -> None:
    top, k = data.draw(st.integers(0, 3)), data.draw(st.integers(1, 3))
    row = st.lists(st.integers(0, top), min_size=3, max_size=6)
    rows = data.draw(st.lists(row, min_size=1, max_size=3))
    weight = st.integers(-16, 16).map(lambda n: Fraction(n, 8))
    w = data.draw(st.lists(weight, min_size=top + 1, max_size=top + 1))
    weights = [float(x) for x in w]
    total = Fraction(0)
    for row_ in rows:
        best = [max(w[i] for i in subset) for subset in itertools.combinations(row_, k)]
        total += sum(best, Fraction(0)) / len(best)
    close(scoring.max_at_k(ragged(rows), k, weights), float(total / len(rows)))

    def best_moments(nu: list[int]) -> tuple[Fraction, Fraction]:
        """Over all k and 2k categories of new attempts, with their Polya urn chances."""
        draws = range(len(nu))

        @functools.cache
        def of_counts(counts: tuple[int, ...]) -> Fraction:
            ways = [rising(Fraction(n), count) for n, count in zip(nu, counts, strict=True)]
            return math.prod(ways, start=Fraction(1)) / rising(Fraction(sum(nu)), sum(counts))

        def chance(attempts: tuple[int, ...]) -> Fraction:
            return of_counts(tuple(map(attempts.count, draws)))

        first = second = Fraction(0)
        for attempts in itertools.product(draws, repeat=k):
            first += chance(attempts) * max(w[i] for i in attempts)
        for attempts in itertools.product(draws, repeat=2 * k):
            left, right = attempts[:k], attempts[k:]
            value = max(w[i] for i in left) * max(w[i] for i in right)
            second += chance(attempts) * value
        return first, second - first**2

    moments = [best_moments([1 + row_.count(i) for i in range(top + 1)]) for row_ in rows]
    mu = float(sum(m for m, _ in moments) / len(rows))
    sigma = math.sqrt(sum(v for _, v in moments)) / len(rows)
    close(scoring.max_at_k_ci(ragged(rows), k, weights)[:2], (mu, sigma))


# Many trials, many attempts.


@pytest.mark.filterwarnings("error")
def test_extremes_are_numbers() -> None:
    """Ten thousand trials of very hard to very easy questions, a thousand attempts: no NaN."""
    c = np.array([0, 1, 2, 10, 5_000, 9_999, 10_000])
    R = scoring.Counts(np.stack([10_000 - c, c], axis=-1)[:, None, :])
    half = {"g_pass_at_k_tau": (0.5,), "g_pass_at_k_tau_ci": (0.5,)}
    half |= {f"threshold_spectrum_at_k{end}": ([1e-3] * 1000,) for end in ("", "_ci")}
    for name, arguments in CALLS:
        k = (1000,) if arguments else ()
        found = np.array(getattr(scoring, name)(R, *k, *half.get(name, ())))
        assert np.isfinite(found).all(), name
        in_range = (found >= 0).all() and (found <= 1 + 1e-12).all()
        assert in_range or name in ("bayes_ci", "avg_ci"), name


def test_tiny_spread_keeps_its_digits() -> None:
    """E g^2 - (E g)^2 has lost all digits here; the exact sigma is 1.7e-6 and smaller."""
    for c, N, k, j0 in ((28, 29, 21, 2), (1, 60, 12, 6), (59, 60, 12, 1)):
        rows = [[1] * c + [0] * (N - c)]
        exact = exact_summary(rows, at_least(j0)(k), (Fraction(1), Fraction(1)))
        got = scoring.g_pass_at_k_tau_ci(rows, k, j0 / k)
        np.testing.assert_allclose(got[:2], exact, rtol=1e-12)


# The authors' library, where both apply: equal numbers of trials.


def peer() -> Any:
    return pytest.importorskip("scorio", reason="scorio, the test oracle, is not installed").eval


def random_calls(rng: np.random.Generator) -> list[tuple[str, tuple[Any, ...]]]:
    """Every function of the peer's documented interface, on random matrices."""
    M, N, D, top = (int(x) for x in rng.integers([1, 1, 0, 1], [9, 31, 6, 6]))
    R = (rng.random((M, N)) < rng.beta(0.5, 0.5, (M, 1))).astype(int)
    k, any_k = int(rng.integers(1, N + 1)), int(rng.integers(1, 2 * N + 1))
    w, any_w = rng.dirichlet(np.ones(k)), rng.dirichlet(np.ones(any_k)) * rng.random()
    tau, lam, a, b = rng.random(4).tolist()
    end = (float(rng.uniform(0.01, 0.999)), (0.0, float(rng.uniform(0.5, 1))))
    prior = tuple(rng.uniform(0.2, 4, 2).tolist())
    rubric, R0 = rng.integers(0, top + 1, (M, N)), rng.integers(0, top + 1, (M, D))
    weights = rng.normal(scale=3, size=top + 1)
    same_k = ["pass_at_k", "pass_hat_k", "unanimous_at_k", "g_pass_at_k", "mg_pass_at_k"]
    same_k += ["maj_at_k", "auc_at_k"]
    calls: list[tuple[str, tuple[Any, ...]]] = [(name, (R, k)) for name in same_k]
    calls += [(name + "_ci", (R, k, *end, *prior)) for name in same_k]
    calls += [("g_pass_at_k_tau", (R, k, tau)), ("g_pass_at_k_tau_ci", (R, k, tau, *end, *prior))]
    calls += [("geom_at_k", (R, k, a, b)), ("geom_ds_at_k", (R, k, a, b))]
    calls += [("geom_at_k", (R, k)), ("geom_ds_at_k", (R, k)), ("geo_spectrum_at_k", (R, k))]
    calls += [("threshold_spectrum_at_k", (R, k, w)), ("geo_spectrum_at_k", (R, k, lam, w))]
    calls += [("geo_spectrum_star_at_k", (R, k)), ("geo_spectrum_at_k", (R, k, 0.5, w, None))]
    calls += [("geom_at_k_ci", (R, any_k, a, b, *end, *prior))]
    calls += [("geom_ds_at_k_ci", (R, any_k, a, b, *end, *prior))]
    calls += [("threshold_spectrum_at_k_ci", (R, any_k, any_w, *end, *prior))]
    calls += [("geo_spectrum_at_k_ci", (R, any_k, lam, any_w, None, *end, *prior))]
    calls += [("geo_spectrum_star_at_k_ci", (R, any_k, *end, *prior))]
    calls += [("max_at_k", (rubric, k, weights)), ("max_at_k_ci", (rubric, any_k, weights, R0))]
    calls += [("bayes", (rubric, weights, R0)), ("avg", (rubric, weights))]
    calls += [("bayes_ci", (rubric, weights, R0, end[0], (-1.0, 1.0)))]
    calls += [("avg_ci", (rubric, weights, end[0])), ("bayes_ci", (R,)), ("max_at_k", (R, k))]
    return calls


@pytest.mark.parametrize("matrices", [150, pytest.param(10_000, marks=pytest.mark.soak)])
def test_agrees_with_scorio_on_random_matrices(matrices: int) -> None:
    other = peer()
    rng = np.random.default_rng(2510)
    called = set()
    for matrix in range(matrices):
        calls = random_calls(rng)
        for name, arguments in (calls[matrix % len(calls)], calls[(7 * matrix) % len(calls)]):
            called.add(name)
            ours, theirs = getattr(scoring, name)(*arguments), getattr(other, name)(*arguments)
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-10, err_msg=name)
    documented = {name for name in other.__all__ if not name.startswith("tailpass")}
    assert called == documented


def test_signatures_are_scorios() -> None:
    """Same names, order and defaults; ours may have more arguments behind theirs."""
    import inspect

    other = peer()
    for name in (n for n in other.__all__ if not n.startswith("tailpass")):
        theirs = inspect.signature(getattr(other, name)).parameters.values()
        ours = list(inspect.signature(getattr(scoring, name)).parameters.values())
        expected = [(p.name, p.default) for p in theirs]
        assert [(p.name, p.default) for p in ours][: len(expected)] == expected, name


# Stacks, counts and missing trials give what one call for each matrix gives.

CALLS: list[tuple[str, tuple[Any, ...]]] = [
    *((name, (3,)) for name in ("pass_at_k", "pass_hat_k", "g_pass_at_k", "mg_pass_at_k")),
    *((name, (3,)) for name in ("maj_at_k", "auc_at_k", "geom_at_k")),
    *((name, (3,)) for name in ("geom_ds_at_k", "geo_spectrum_at_k", "geo_spectrum_star_at_k")),
    *((name, (3,)) for name in ("naive_pass_at_k", "max_at_k", "max_at_k_ci", "pass_at_k_ci")),
    *((name, (3,)) for name in ("pass_hat_k_ci", "g_pass_at_k_ci", "mg_pass_at_k_ci")),
    *((name, (3,)) for name in ("maj_at_k_ci", "auc_at_k_ci", "geom_at_k_ci", "geom_ds_at_k_ci")),
    *((name, (3,)) for name in ("geo_spectrum_at_k_ci", "geo_spectrum_star_at_k_ci")),
    ("g_pass_at_k_tau", (3, 0.6)),
    ("g_pass_at_k_tau_ci", (3, 0.6)),
    ("threshold_spectrum_at_k", (3, [0.2, 0.3, 0.5])),
    ("threshold_spectrum_at_k_ci", (3, [0.2, 0.3, 0.5])),
    *((name, ()) for name in ("bayes", "bayes_ci", "avg", "avg_ci")),
]


@pytest.mark.parametrize(("name", "arguments"), CALLS)
def test_stacks_counts_and_masks(name: str, arguments: tuple[Any, ...]) -> None:
    rng = np.random.default_rng(8)
    function = getattr(scoring, name)
    p = rng.beta(0.7, 0.7, size=(2, 4, 6, 1))
    R = (rng.random((2, 4, 6, 11)) < p).astype(np.int8)
    missing = np.arange(11) >= rng.integers(3, 12, size=(2, 4, 6, 1))
    masked = np.ma.masked_array(R, missing)
    counts = np.stack([((i == R) & ~missing).sum(axis=-1) for i in (0, 1)], axis=-1)
    stacked = np.array(function(masked, *arguments))
    assert stacked.shape[-2:] == (2, 4)
    close(function(scoring.Counts(counts), *arguments), stacked)
    for i, j in np.ndindex(2, 4):
        rows = [row.compressed().tolist() for row in masked[i, j]]
        close(stacked[..., i, j], function(ragged(rows), *arguments))
    # A missing trial is not a wrong one.
    assert not np.allclose(function(np.where(missing, 0, R), *arguments), stacked)


BAD: list[tuple[Callable[[], object], str]] = [
    (lambda: scoring.pass_at_k(ragged([[1, 0], [1]]), 2), "question 1 .* has 1 trials, but Pass@2"),
    (lambda: scoring.pass_at_k([[1, 0]], True), "k is True"),
    (lambda: scoring.g_pass_at_k_tau([[1]], 1, 1.5), "tau is 1.5: pass a number from 0 to 1"),
    (lambda: scoring.threshold_spectrum_at_k([[1, 0]], 2, [1]), r"weights has shape \(1,\)"),
    (lambda: scoring.threshold_spectrum_at_k([[1, 0]], 2, [-0.1, 0.2]), "weights holds -0.1"),
    (lambda: scoring.threshold_spectrum_at_k([[1, 0]], 2, [0.6, 0.6]), "weights sum to 1.2"),
    (lambda: scoring.geo_spectrum_at_k([[1]], 1, 2.0), "lam is 2.0"),
    (lambda: scoring.geom_at_k([[1]], 1, 0.0, 0.0), "are both 0"),
    (lambda: scoring.geom_at_k([[0]], 1, -1.0, 0.0), "its power negative"),
    (lambda: scoring.geom_at_k_ci([[0, 1, 1]], 2, 1e5, -1e5), "overflow"),
    (lambda: scoring.geom_at_k_ci([[0, 1]], 2, [0.5]), "pass_power is"),  # type: ignore[arg-type]
    (lambda: scoring.max_at_k_ci([[1]], 1, None, [[1], [0]]), "R0 has 2 questions, but R has 1"),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_bad_input_is_one_readable_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)


def test_the_plug_in_estimate_and_the_best_reward() -> None:
    rng = np.random.default_rng(2)
    R = (rng.random((40, 9)) < rng.random((40, 1))).astype(int)
    close(scoring.naive_pass_at_k(R, 3), np.mean(1 - (1 - R.mean(axis=1)) ** 3))
    close(scoring.max_at_k_ci(R, 4), scoring.pass_at_k_ci(R, 4))
