"""Pass@k's family and Bayes@N against fractions; all of scorio.eval's interface against it."""

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
from bayes_at_n.scoring import Counts, pass_at_k_sigma, sampling_cost

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


def moment(a: Fraction, b: Fraction, *credits: Credit) -> Fraction:
    """E g(p) h(p) for p ~ Beta(a, b), from E p^i q^j = (a)_i (b)_j / (a + b)_(i + j)."""
    total, n = Fraction(0), sum(len(credit) - 1 for credit in credits)
    for drawn in itertools.product(*map(enumerate, credits)):
        i, worth = sum(j for j, _ in drawn), math.prod(value for _, value in drawn)
        ways = math.prod(math.comb(len(c) - 1, j) for c, (j, _) in zip(credits, drawn, strict=True))
        total += worth * ways * rising(a, i) * rising(b, n - i) / rising(a + b, n)
    return total


def exact_summary(rows: Rows, credit: Credit, alpha0: Any, beta0: Any) -> tuple[float, float]:
    mean = variance = Fraction(0)
    for row in rows:
        a, b = alpha0 + sum(row), beta0 + len(row) - sum(row)
        mean += (first := moment(a, b, credit)) / len(rows)
        variance += (moment(a, b, credit, credit) - first**2) / len(rows) ** 2
    return float(mean), math.sqrt(variance)


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


@pytest.mark.parametrize(("estimate", "interval", "credit"), FAMILY)
@settings(max_examples=15, deadline=None)
@given(rows=binary_rows, k=st.integers(1, 4), alpha0=prior_parts, beta0=prior_parts)
def test_estimates_are_shares_of_all_subsets_and_posteriors_are_exact(
    estimate: Any, interval: Any, credit: Any, rows: Rows, k: int, alpha0: Any, beta0: Any
) -> None:
    close(estimate(ragged(rows), k), float(subset_mean(rows, credit(k))))
    got = interval(ragged(rows), k, alpha0=float(alpha0), beta0=float(beta0))
    close(got[:2], exact_summary(rows, credit(k), alpha0, beta0))


@settings(max_examples=25, deadline=None)
@given(rows=binary_rows, k=st.integers(1, 4), tau=st.fractions(0, 1, max_denominator=12))
def test_thresholds_in_between(rows: Rows, k: int, tau: Fraction) -> None:
    credit = at_least(max(1, math.ceil(tau * k)))(k)
    close(scoring.g_pass_at_k_tau(ragged(rows), k, float(tau)), float(subset_mean(rows, credit)))
    got = scoring.g_pass_at_k_tau_ci(ragged(rows), k, float(tau))
    close(got[:2], exact_summary(rows, credit, Fraction(1), Fraction(1)))


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
        exact = exact_summary(rows, at_least(j0)(k), Fraction(1), Fraction(1))
        got = scoring.g_pass_at_k_tau_ci(rows, k, j0 / k)
        np.testing.assert_allclose(got[:2], exact, rtol=1e-12)


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

ONE = ["pass_at_k", "pass_hat_k", "g_pass_at_k", "mg_pass_at_k", "maj_at_k", "auc_at_k", "max_at_k"]
ONE += ["geom_at_k", "geom_ds_at_k", "geo_spectrum_at_k", "geo_spectrum_star_at_k"]
CALLS: list[tuple[str, tuple[Any, ...]]] = [("naive_pass_at_k", (3,)), ("bayes", ()), ("avg", ())]
CALLS += [("bayes_ci", ()), ("avg_ci", ())]
CALLS += [(f"{name}{end}", (3,)) for name in ONE for end in ("", "_ci")]
CALLS += [(f"g_pass_at_k_tau{end}", (3, 0.6)) for end in ("", "_ci")]
CALLS += [(f"threshold_spectrum_at_k{end}", (3, [0.2, 0.3, 0.5])) for end in ("", "_ci")]


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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scoring.pass_at_k(ragged([[1, 0], [1]]), 2), "question 1 .* has 1 trials"),
        (lambda: scoring.pass_at_k([[1, 0]], True), "k is True"),
        (lambda: scoring.g_pass_at_k_tau([[1]], 1, 1.5), "tau is 1.5"),
        (lambda: scoring.threshold_spectrum_at_k([[1, 0]], 2, [1]), r"weights has shape \(1,\)"),
        (lambda: scoring.geom_at_k_ci([[0, 1, 1]], 2, 1e5, -1e5), "overflow"),
        (lambda: scoring.max_at_k_ci([[1]], 1, None, [[1], [0]]), "R0 has 2 questions"),
        (lambda: scoring.pass_at_k_ci([[1]], 1, alpha0=0.0), "alpha0 is 0.0"),
    ],
)
def test_bad_input_is_named(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()


def variance(c: int, n: int, k: int) -> Fraction:
    """The variance of the estimator over all numbers of correct trials, at the shrunk rate."""
    p, mean, square = Fraction(2 * c + 1, 2 * n + 2), Fraction(0), Fraction(0)
    for s in range(n + 1):
        chance = math.comb(n, s) * p**s * (1 - p) ** (n - s)
        value = 1 - Fraction(math.comb(n - s, k), math.comb(n, k))
        mean, square = mean + chance * value, square + chance * value**2
    return square - mean**2


@given(st.integers(1, 40), st.integers(0, 40), st.floats(0, 1))
def test_to_the_last_digits(k: int, more: int, share: float) -> None:
    """Relative, also where it is tiny: nothing cancels."""
    n = k + more
    c = round(share * n)
    found = pass_at_k_sigma(Counts([[n - c, c]]), k)
    np.testing.assert_allclose(found, math.sqrt(variance(c, n, k)), rtol=1e-11, atol=0)


def test_questions_with_other_numbers_of_trials_and_stacks() -> None:
    rows = [[0, 1, 1, 0, 1], [1, 1, 0, 1], [0, 0, 0], [1, 1, 1]]
    for k in (1, 2, 3):
        total = sum(variance(sum(row), len(row), k) for row in rows)
        close(pass_at_k_sigma(ragged(rows), k), math.sqrt(total) / 4)
    stack = [[[0, 1], [1, 1]], [[0, 1], [0, 1]], [[0, 0], [0, 0]]]
    close(pass_at_k_sigma(stack, 2), [pass_at_k_sigma(matrix, 2) for matrix in stack])
    for k in (1, 10_000):
        assert 0 < pass_at_k_sigma(Counts([[10_000, 0], [5_000, 5_000], [0, 10_000]]), k) < 0.2


def test_cost_is_that_of_table_6() -> None:
    """4 tokens in, 1 out; first prompt 4 x 1.25 = 5, each further 4 x 0.125 = 0.5, answers 10."""
    for n, cost in ((1, 15.0), (2, 25.5), (4, 46.5), (8, 88.5), (16, 172.5)):
        assert sampling_cost(4, 1, n) == 5 + 0.5 * (n - 1) + 10 * n == cost
    assert sampling_cost(100, 50, 3, cache_miss=2, cache_hit=1, output=4) == 200 + 200 + 600
    assert sampling_cost([[4.5], [8]], 1, [1, 2, 4]).shape == (2, 3)
    with pytest.raises(ValueError, match="n is 0"):
        sampling_cost(1, 1, 0)


# Bayes@N and avg@N, in fractions, straight from the printed formulas.


def exact_moments(row: list[int], w: list[Fraction], prior: list[int]) -> tuple[Fraction, Fraction]:
    """Mean and variance of w . pi for one question: first and second Dirichlet moments."""
    nu = [1 + row.count(k) + prior.count(k) for k in range(len(w))]
    total = sum(nu)
    mean = sum((wk * n for wk, n in zip(w, nu, strict=True)), Fraction(0)) / total
    second = Fraction(0)
    for j, k in itertools.product(range(len(w)), repeat=2):
        second += w[j] * w[k] * Fraction(nu[j] * (nu[k] + (j == k)), total * (total + 1))
    return mean, second - mean**2


def exact_bayes(rows: Rows, w: list[Fraction], priors: Rows) -> tuple[float, float]:
    parts = [exact_moments(row, w, prior) for row, prior in zip(rows, priors, strict=True)]
    mu = sum((mean for mean, _ in parts), Fraction(0)) / len(rows)
    variance = sum((var for _, var in parts), Fraction(0)) / len(rows) ** 2
    return float(mu), math.sqrt(variance)


def exact_avg(rows: Rows, w: list[Fraction]) -> tuple[float, float]:
    a, variance = Fraction(0), Fraction(0)
    for row in rows:
        a += sum((w[k] for k in row), Fraction(0)) / len(row)
        scale = Fraction(len(w) + len(row), len(row))
        variance += scale**2 * exact_moments(row, w, [])[1]
    return float(a / len(rows)), math.sqrt(variance / len(rows) ** 2)


@st.composite
def rubrics(draw: st.DrawFn, least: int = 0) -> tuple[Rows, list[Fraction], Rows]:
    """Ragged outcomes of at least ``least`` trials a question, weights, ragged prior outcomes."""
    top = draw(st.integers(0, 4))
    weight = st.integers(-40, 40).map(lambda n: Fraction(n, 8))
    w = draw(st.lists(weight, min_size=top + 1, max_size=top + 1))
    questions = draw(st.integers(1, 5))

    def rows(least: int) -> Rows:
        row = st.lists(st.integers(0, top), min_size=least, max_size=9)
        return draw(st.lists(row, min_size=questions, max_size=questions))

    return rows(least), w, rows(0)


@settings(max_examples=200, deadline=None)
@given(rubrics())
def test_bayes_is_exact_for_ragged_trials_and_priors(
    case: tuple[Rows, list[Fraction], Rows],
) -> None:
    rows, w, priors = case
    weights = [float(x) for x in w]
    close(scoring.bayes(ragged(rows), weights, ragged(priors)), exact_bayes(rows, w, priors))
    close(scoring.bayes(ragged(rows), weights), exact_bayes(rows, w, [[]] * len(rows)))


@settings(max_examples=200, deadline=None)
@given(rubrics(least=1))
def test_avg_is_exact_for_ragged_trials(case: tuple[Rows, list[Fraction], Rows]) -> None:
    rows, w, _ = case
    close(scoring.avg(ragged(rows), [float(x) for x in w]), exact_avg(rows, w))


def test_missing_trial_is_not_a_wrong_one() -> None:
    R = np.array([[1, 1, -1], [0, -1, -1]])
    masked = np.ma.masked_equal(R, -1)
    close(scoring.avg(masked)[0], 0.5)
    close(scoring.bayes(masked)[0], (3 / 4 + 1 / 3) / 2)
    assert scoring.bayes(masked)[0] > scoring.bayes(np.where(R < 0, 0, R))[0]
    # A list of masked rows, where np.asarray would drop the masks.
    close(scoring.bayes([masked[0], masked[1]]), scoring.bayes(masked))
    deep = scoring.avg([[masked, masked], (masked, masked)])[0]
    close(deep, np.full((2, 2), scoring.avg(masked)[0]))


def test_down_weighted_prior_keeps_proportions_and_total() -> None:
    R0 = ragged([[1, 1, 1, 0], [2, 0], [], [0] * 9])
    prior = scoring.down_weight(R0, strength=2.5, categories=3)
    totals = np.asarray(prior.values).sum(axis=1)
    close(totals, [2.5, 2.0, 0.0, 2.5])
    close(np.asarray(prior.values)[0], [0.625, 1.875, 0.0])
    # Strong enough, it is the prior run itself.
    R, w = [[1, 2], [0, 1], [1, 1], [2, 2]], [0.0, 0.5, 1.0]
    whole = scoring.down_weight(R0, strength=9, categories=3)
    close(scoring.bayes(R, w, whole), scoring.bayes(R, w, R0))


def test_interval_is_symmetric_until_it_meets_the_bounds() -> None:
    R = [[0, 1, 1, 0, 1], [1, 1, 0, 1, 1]]
    mu, sigma, lo, hi = scoring.bayes_ci(R, confidence=0.9)
    close((lo, hi), (mu - 1.6448536269514722 * sigma, mu + 1.6448536269514722 * sigma))
    assert scoring.bayes_ci(R, bounds=(0.7, 0.8))[2:] == (0.7, 0.8)
    assert scoring.bayes_ci(R, bounds=(2.0, 3.0))[2:] == (2.0, 2.0)
    almost_one = scoring.bayes_ci([[1, 0]], [0.5, 0.5], confidence=math.nextafter(1, 0))
    assert almost_one == (0.5, 0.0, 0.5, 0.5)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: scoring.bayes([[1, 2]]), r"R\[0, 1\].* is 2"),
        (lambda: scoring.bayes([[0, 1], [1, -1]]), r"R\[1, 1\].* is -1: .*masked_less"),
        (lambda: scoring.bayes([[0, np.nan]]), r"R\[0, 1\].* is nan: .*masked_invalid"),
        (lambda: scoring.bayes([[1], [1, 0]]), "not a rectangular"),
        (lambda: scoring.bayes([[1]], [0, np.inf]), "w holds inf"),
        (lambda: scoring.bayes([[1], [0]], None, [[1]]), "R0 has 1 questions, but R has 2"),
        (lambda: scoring.bayes_ci([[1]], confidence=95), "confidence is 95"),
        (lambda: scoring.bayes_ci([[1]], bounds=(1.0, 0.0)), "bounds is"),
        (lambda: scoring.avg(ragged([[1], []])), "question 1 .* has 0 trials"),
        (lambda: scoring.bayes(scoring.Counts([[1, -2]])), r"Counts\[0, 1\] is -2"),
        (lambda: scoring.down_weight([[2]], 1), "R0.* is 2"),
    ],
)
def test_bad_input_is_one_readable_line(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        call()
    assert "\n" not in str(caught.value)
