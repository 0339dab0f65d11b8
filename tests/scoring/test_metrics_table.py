"""The table of metrics: every entry against its function, fractions, and repetitions."""

import itertools
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from helpers import close, ragged
from scipy.stats import beta, binom

from bayes_at_n import scoring
from bayes_at_n.scoring.metrics import DEFAULT
from bayes_at_n.scoring.metrics.metric import Metric
from bayes_at_n.scoring.metrics.table import FAMILIES, parse, parse_all
from bayes_at_n.scoring.numerics.results import normal_quantile

ROWS = [[0, 1, 1, 0, 1, 0], [1, 1, 0, 1], [0] * 5, [1] * 7]
# Every family, and the function of the package that it stands for.
FUNCTIONS = {
    "bayes": lambda R: scoring.bayes(R)[0],
    "bayes-uniform": lambda R: scoring.bayes(R)[0],
    "avg": lambda R: scoring.avg(R)[0],
    "pass@3": lambda R: scoring.pass_at_k(R, 3),
    "pass^3": lambda R: scoring.pass_hat_k(R, 3),
    "g-pass@4": lambda R: scoring.g_pass_at_k(R, 4),
    "g-pass@4:0.6": lambda R: scoring.g_pass_at_k_tau(R, 4, 0.6),
    "mg-pass@4": lambda R: scoring.mg_pass_at_k(R, 4),
    "maj@4": lambda R: scoring.maj_at_k(R, 4),
    "max@2": lambda R: scoring.max_at_k(R, 2),
    "auc@4": lambda R: scoring.auc_at_k(R, 4),
    "naive-pass@3": lambda R: scoring.naive_pass_at_k(R, 3),
    "spectrum@3:0.2:0.3:0.1": lambda R: scoring.threshold_spectrum_at_k(R, 3, [0.2, 0.3, 0.1]),
    "tailpass@4:3": lambda R: scoring.threshold_spectrum_at_k_ci(R, 4, [0, 0, 1, 0]).value,
    "tailpass-empirical@4:3": lambda R: scoring.g_pass_at_k_tau(R, 4, 0.75),
    "geom@3:0.3:1": lambda R: scoring.geom_at_k(R, 3, 0.3, 1.0),
    "geom-ds@3": lambda R: scoring.geom_ds_at_k(R, 3),
    "geo-spectrum@4:0.3": lambda R: scoring.geo_spectrum_at_k(R, 4, 0.3),
}


# Of answers and not of outcomes; tested in test_votes.py.
VOTES = {"cons@3", "cons-confidence@3", "cons-verifier@3", "best-confidence@3", "best-verifier@3"}


def test_every_family_is_tested() -> None:
    names = [*FUNCTIONS, *VOTES]
    assert {parse(name).name.split(":")[0].rstrip("0123456789") for name in names} == {*FAMILIES}
    assert {name for name in names if parse(name).of != ("outcomes",)} == VOTES


def reach(metric: Metric, confidence: float) -> tuple[float, float, float]:
    """How far the questions' own intervals take a score, and its largest sigma, by SciPy."""
    tail, below, above, near = (1 - confidence) / 2, 0.0, 0.0, 0.0
    for row in ROWS:
        right, n = sum(row), len(row)
        rate = beta(right + 0.5, n - right + 0.5)
        low = rate.ppf(tail) if right else 0.0
        high = rate.isf(tail) if right < n else 1.0
        table = np.array([float(score) for score in metric.tables(n)[0]])
        below += (table[right] - binom(n, low).pmf(range(n + 1)) @ table) ** 2
        above += (binom(n, high).pmf(range(n + 1)) @ table - table[right]) ** 2
        rates = (binom(n, (right + half) / (n + 1)).pmf(range(n + 1)) for half in (0, 0.5, 1))
        near += max(pmf @ table**2 - (pmf @ table) ** 2 for pmf in rates)
    return tuple(math.sqrt(x) / len(ROWS) for x in (below, above, near))  # type: ignore[return-value]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_score_is_that_of_its_function(name: str) -> None:
    metric, function = parse(name), FUNCTIONS[name]
    close(metric.estimate(ragged(ROWS)), function(ragged(ROWS)))
    summary = metric.summary(ragged(ROWS), confidence=0.9)
    assert summary.value == metric.estimate(ragged(ROWS))
    z = normal_quantile(0.9)
    below, above, near = reach(metric, 0.9) if metric.credit is not None else (0.0, 0.0, 0.0)
    half = z * max(summary.sigma, near)
    close(summary.low, max(0.0, summary.value - max(half, below)), 1e-8)
    close(summary.high, min(1.0, summary.value + max(half, above)), 1e-8)
    stack = np.random.default_rng(3).integers(0, 2, (2, 3, 5, 6))
    for of_stack in (metric.estimate(stack), metric.summary(stack).value):
        close(of_stack, function(stack))
    assert metric.summary(stack).sigma.shape == (2, 3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_its_exact_tables_give_the_same_score(name: str) -> None:
    metric, n = parse(name), 6
    for correct in itertools.combinations_with_replacement(range(n + 1), 2):
        means = [float(sum(part[c] for c in correct)) / 2 for part in metric.tables(n)]
        score = math.prod(mean**power for mean, power in zip(means, metric.powers, strict=True))
        close(metric.estimate([[1] * c + [0] * (n - c) for c in correct]), score)


def test_posteriors_keep_their_own_intervals() -> None:
    R = ragged(ROWS)
    assert parse("bayes").summary(R) == scoring.bayes_ci(R, bounds=(0.0, 1.0))
    assert parse("avg").summary(R) == scoring.avg_ci(R, bounds=(0.0, 1.0))
    assert parse("bayes").k == 0 and parse("avg").k == 1
    assert parse("bayes-uniform").summary(R) == parse("bayes", "uniform").summary(R)
    R = np.random.default_rng(1).integers(0, 2, (6, 5))
    metric = parse("bayes", "estimated")
    assert metric.summary(R, 0.9) == scoring.score_ci(R, confidence=0.9)
    assert metric.estimate(R) == scoring.score_ci(R).value != parse("bayes").estimate(R)
    assert parse("avg", "estimated").summary(R) == parse("avg").summary(R)
    with pytest.raises(ValueError, match="bayes-uniform"):
        metric.tables(5)


@pytest.mark.parametrize(("k", "t", "trials"), [(1, 1, 3), (4, 1, 6), (4, 3, 6), (5, 5, 2)])
def test_tailpass_over_all_new_attempts(k: int, t: int, trials: int) -> None:
    """Exactly, with fractions: attempts one after the other, each as the posterior has it by then.

    Its square, the second moment, is the chance that two sets of k attempts both get there.
    """
    metric = parse(f"tailpass@{k}:{t}")
    assert metric.title() == f"TailPass@{k} ({t})" and metric.k == 1

    def chance(correct: int, seen: int, left: tuple[int, ...], right: tuple[int, ...]) -> Fraction:
        at = next((i for i, n in enumerate(left) if n), None)
        if at is None:
            return Fraction(int(all(n >= t for n in right)))
        p, rest = Fraction(correct + 1, seen + 2), (*left[:at], left[at] - 1, *left[at + 1 :])
        more = (*right[:at], right[at] + 1, *right[at + 1 :])
        hit = chance(correct + 1, seen + 1, rest, more)
        return p * hit + (1 - p) * chance(correct, seen + 1, rest, right)

    table = metric.tables(trials)[0]
    for c in range(trials + 1):
        mean = chance(c, trials, (k,), (0,))
        assert table[c] == mean
        found = metric.summary([[1] * c + [0] * (trials - c)])
        close(found.value, float(mean))
        close(found.sigma**2, float(chance(c, trials, (k, k), (0, 0)) - mean**2))


def test_a_metric_of_a_users_own_is_the_mean_over_questions_of_its_function(tmp_path: Path) -> None:
    code = tmp_path / "my-own.py"
    code.write_text("""
from fractions import Fraction
from pathlib import Path
from math import comb

def any_of_two(correct, trials):
    return 1 - Fraction(comb(trials - correct, 2), comb(trials, 2))

def outside(correct, trials):
    return 1 + correct

def fails(correct, trials):
    return 1 / 0
""")
    metric, pair = parse(f"{code}:any_of_two"), parse("pass@2")
    assert (metric.key, metric.title()) == ("my_own.py_any_of_two", "any_of_two")
    close(metric.summary(ragged(ROWS))[:2], pair.summary(ragged(ROWS))[:2])
    assert metric.tables(6) == pair.tables(6)
    for name, why in (("outside", "return 0 to 1"), ("fails", "ZeroDivision"), ("no", "KeyError")):
        with pytest.raises(ValueError, match=f"{code}:{name}: .*{why}"):
            parse(f"{code}:{name}").estimate([[0, 1]])
    with pytest.raises(ValueError, match="No such file"):
        parse(f"{tmp_path}/none.py:f").estimate([[0, 1]])


@pytest.mark.parametrize("name", ["pass^2", "g-pass@3:0.5", "mg-pass@4", "naive-pass@2", "geom@2"])
def test_sigma_is_that_of_the_score_over_all_repetitions(name: str) -> None:
    """Summed over every number of correct trials that a repetition may bring, with fractions."""
    metric, variance = parse(name), Fraction(0)
    for row in ROWS:
        n, p = len(row), (sum(row) + Fraction(1, 2)) / (len(row) + 1)
        chance = [math.comb(n, c) * p**c * (1 - p) ** (n - c) for c in range(n + 1)]
        scores = [Fraction(score) for score in metric.tables(n)[0]]
        mean = sum(a * b for a, b in zip(chance, scores, strict=True))
        variance += sum(a * (b - mean) ** 2 for a, b in zip(chance, scores, strict=True))
    close(metric.summary(ragged(ROWS)).sigma, math.sqrt(variance) / len(ROWS))


def test_names_are_read_generously_and_written_one_way() -> None:
    names = [" Pass@08", "pass@8", "G-pass@8:.50", "PASS^4"]
    assert [metric.name for metric in parse_all(names)] == ["pass@8", "g-pass@8:0.5", "pass^4"]
    assert [metric.name for metric in parse_all(DEFAULT)] == list(DEFAULT)
    assert parse("g-pass@8:0.5").title(80) == "G-Pass@8 (0.5)"
    assert (parse("bayes").title(80), parse("avg").title("N")) == ("Bayes@80", "avg@N")


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pas@8", "pass@8"),
        ("pass@0", "at least 1"),
        ("tailpass@4", "tailpass@4:T"),
        ("tailpass@4:5", "5"),
        ("g-pass@8:2", "from 0 to 1"),
        ("spectrum@2:0.6:0.6", "at most 1"),
    ],
)
def test_what_is_no_metric(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parse(name)
    assert "\n" not in str(caught.value) and str(caught.value).startswith(name)
