"""The decision on two runs keeps its promises where the truth is known; its parts are exact."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import ndtri

from bayes_at_n.scoring.numerics.inputs import Floats
from bayes_at_n.scoring.ranking.equivalence import (
    LEVEL,
    POWER,
    equivalence,
    kl_terms,
    paired_trials,
    per_token,
)

Rng = np.random.Generator
PAIRS = 200
SURE = 0.001  # that a promise which is kept looks broken, in one assertion


def chances(rng: Rng, kind: str, shape: tuple[int, int]) -> Floats:
    """Questions of so many pairs: all alike, hard and easy ones, nearly all never or always."""
    if kind == "half":
        return np.full(shape, 0.5)
    if kind == "hard and easy":
        return rng.beta(0.5, 0.5, shape)
    if kind == "nearly always":
        return rng.beta(20, 0.2, shape)
    return np.where(rng.random(shape) < 0.9, 1e-9, 0.3)


def shifted(p: Floats, by: float) -> Floats:
    """Probabilities whose mean over questions lies so much nearer to 1/2."""
    mean = p.mean(axis=1, keepdims=True)
    return np.where(mean > 0.5, p * (1 - by / mean), p + (1 - p) * by / (1 - mean))


def sides(rng: Rng, p: Floats, q: Floats, trials: int, together: float, seeds: float) -> Any:
    """Outcomes of pairs of runs, (P, M, N) each, from probabilities (P, M) of both.

    A latent normal number decides an attempt. Of its variance `together` belongs to the trial, as
    if all its questions shared luck; with `seeds` above 0 both runs have the same such luck, and
    that share of the rest, too.
    """
    shape = (*p.shape, trials)
    luck, own = rng.standard_normal((len(p), 1, trials)), rng.standard_normal(shape)
    other_luck = luck if seeds else rng.standard_normal(luck.shape)
    other = np.sqrt(seeds) * own + np.sqrt(1 - seeds) * rng.standard_normal(shape)
    for chance, of_trial, rest in ((p, luck, own), (q, other_luck, other)):
        latent = np.sqrt(together) * of_trial + np.sqrt(1 - together) * rest
        yield latent < ndtri(chance)[..., None]


KINDS = ("half", "hard and easy", "nearly always", "nearly never")
MOST = [pytest.param(k, marks=[pytest.mark.soak] * (k in KINDS[::3])) for k in KINDS]
SIZES = ((30, 40), (30, 8), (60, 16), (5, 20))
LUCK = ((0.0, 0.0), (0.2, 0.0), (0.3, 0.5), (0.0, 0.95))  # together, seeds


@pytest.mark.parametrize("kind", MOST)
def test_two_hundred_null_pairs_have_at_most_ten_false_alarms(kind: str) -> None:
    rng, alarms = np.random.default_rng(1), []
    for (questions, trials), luck in itertools.product(SIZES, LUCK):
        p = chances(rng, kind, (PAIRS, questions))
        found = equivalence(*sides(rng, p, p, trials, *luck))
        alarms.append(int((found.conclusion == "different").sum()))
        assert alarms[-1] <= LEVEL * PAIRS, (kind, questions, trials, luck)
    n = PAIRS * len(alarms)
    assert sum(alarms) <= stats.binom.ppf(1 - SURE, n, LEVEL / 2)


@pytest.mark.parametrize("kind", MOST)
def test_runs_as_far_apart_as_the_margin_are_hardly_called_equivalent(kind: str) -> None:
    """Not where nearly all attempts come out alike and a shift comes in bursts of shared luck."""
    rng, margin, wrong, n = np.random.default_rng(2), 0.02, 0, 0
    lucks = LUCK if kind in KINDS[:2] else (LUCK[0], LUCK[3])
    for (questions, trials), luck in itertools.product(((30, 60), (100, 30)), lucks):
        p = chances(rng, kind, (PAIRS, questions))
        found = equivalence(*sides(rng, p, shifted(p, margin), trials, *luck), margin)
        wrong, n = wrong + int((found.conclusion == "equivalent").sum()), n + PAIRS
    assert wrong <= stats.binom.ppf(1 - SURE, n, LEVEL / 2)


@pytest.mark.parametrize(
    ("kind", "luck"),
    [("hard and easy", LUCK[1])]
    + [pytest.param(k, p, marks=pytest.mark.soak) for k in KINDS[:3] for p in LUCK]
    + [pytest.param(KINDS[3], p, marks=pytest.mark.soak) for p in (LUCK[0], LUCK[3])],
)
def test_the_trials_it_names_find_a_shift_of_two_points(
    kind: str, luck: tuple[float, float]
) -> None:
    """And show two runs without one to be equivalent; both looks have at most 5% false alarms."""
    rng, margin, first_look, again = np.random.default_rng(3), 0.02, 80, 4
    found, same, alarms = [], [], []
    for _ in range(50):
        p = chances(rng, kind, (1, 30))
        pilot = list(sides(rng, p, p, first_look, *luck))
        seen = equivalence(*(run[0] for run in pilot), margin)
        p = np.repeat(p, again, axis=0)
        trials = max(int(seen.trials), first_look + 1)
        moved = equivalence(*sides(rng, p, shifted(p, margin), trials, *luck), margin)
        alike = equivalence(*sides(rng, p, p, trials, *luck), margin)
        found += list(moved.conclusion == "different")
        same += list(alike.conclusion == "equivalent")
        more = sides(rng, p[:1], p[:1], trials - first_look, *luck)
        whole = [np.concatenate(of, axis=-1)[0] for of in zip(pilot, more, strict=True)]
        looks = seen.conclusion, equivalence(*whole, margin).conclusion
        alarms.append("different" in looks)
    least = stats.binom.ppf(SURE, len(found), POWER) / len(found)
    assert np.mean(found) >= least and np.mean(same) >= least
    assert sum(alarms) <= stats.binom.ppf(1 - SURE, len(alarms), LEVEL)


outcomes = st.integers(1, 4).flatmap(
    lambda m: st.integers(2, 6).flatmap(
        lambda n: st.lists(st.integers(0, 1), min_size=2 * m * n, max_size=2 * m * n).map(
            lambda values: np.reshape(values, (2, m, n))
        )
    )
)


@settings(max_examples=40)
@given(outcomes, st.sampled_from([0.01, 0.1, 0.5]))
def test_the_decision_is_that_of_student_s_t(both: Any, margin: float) -> None:
    a, b = both
    e = equivalence(a, b, margin)
    D = a.mean(axis=0) - b.mean(axis=0)
    sigma = np.sqrt(stats.sem(D) ** 2 + 4 / a.size**2)
    assert (e.difference, e.sigma) == pytest.approx((D.mean(), sigma))
    t = stats.t(D.size - 1, D.mean(), sigma)
    assert (e.lo, e.hi, e.outer_lo, e.outer_hi) == pytest.approx(
        (*t.interval(0.95), *t.interval(0.975))
    )
    inside, apart = max(-e.lo, e.hi) < margin, e.outer_lo > 0 or e.outer_hi < 0
    assert e.conclusion == ("equivalent" if inside else "different" if apart else "undecided")
    other = equivalence(b, a, margin)
    assert (other.difference, other.lo, other.trials) == pytest.approx((-D.mean(), -e.hi, e.trials))


@settings(max_examples=20)
@given(outcomes)
def test_trials_named_are_the_first_at_which_the_smallest_is_the_margin(both: Any) -> None:
    """As `smallest` says it of stacks that repeat the trials: equal variance, more of them."""
    margins = np.linspace(0.05, 0.95, 7)
    trials = [equivalence(*both, float(m)).trials for m in margins]
    assert trials == sorted(trials, reverse=True) and min(trials) >= 2
    e = equivalence(*both, 0.3)
    assert (e.trials <= both.shape[2]) == (e.smallest <= 0.3)


def test_runs_that_agree_throughout_prove_as_much_as_their_attempts() -> None:
    """Were a shift of a point there, none of 300 attempts would show it in 1 of 20 such runs."""
    same = np.ones((10, 20))
    assert equivalence(same, same).conclusion == "undecided"
    same = np.ones((30, 80))
    e = equivalence(same, same)
    assert e.conclusion == "equivalent" and 3 / same.size < e.hi < 5 / same.size
    other = same.copy()
    other[0, :4] = 0  # by a fair coin all of four on one side: 1 in 8
    assert equivalence(same, other, 0.001).conclusion == "undecided"
    other[0, :9] = 0
    assert equivalence(same, other, 0.001).conclusion == "different"


def test_paired_trials_are_student_s_t() -> None:
    a, b = np.random.default_rng(6).normal(size=(2, 5, 9))
    found = paired_trials(a, b, 0.9)
    expected = stats.ttest_rel(a.mean(axis=0), b.mean(axis=0)).confidence_interval(0.9)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_per_token_covers_the_truth_where_attempts_of_a_question_are_alike() -> None:
    rng, covered, n = np.random.default_rng(7), 0, 1000
    clusters = np.repeat(np.arange(30), 7)
    for _ in range(n):
        tokens = rng.integers(5, 60, clusters.size)
        rate = 1 + rng.normal(0, 0.3, 30)[clusters] + rng.normal(0, 0.3, clusters.size)
        found = per_token(rate * tokens, tokens, clusters)
        covered += found.low < 1 < found.high
    assert 0.92 <= covered / n <= 0.97
    assert per_token([3.0], [2], [0]) == (1.5, np.inf, -np.inf, np.inf)
    with pytest.raises(ValueError, match="there is none"):
        per_token([], [], [])


@given(st.lists(st.tuples(*[st.floats(0.01, 1)] * 2), min_size=2, max_size=6))
def test_kl_terms_have_the_expectation_of_the_divergence(weights: Any) -> None:
    """Over all tokens of a small vocabulary, each as often as A draws it."""
    p, q = (np.array(side) / np.sum(side) for side in zip(*weights, strict=True))
    terms = kl_terms(np.log(p), np.log(q))
    assert (terms >= 0).all()
    assert p @ terms == pytest.approx(stats.entropy(p, q), abs=1e-12)
