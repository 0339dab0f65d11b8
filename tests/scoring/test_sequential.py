"""Sequential claims against enumeration in fractions, published boundaries, cases made by hand."""

import copy
import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from bayes_at_n.scoring.sequential import (
    BankSequence,
    MeanSequence,
    Race,
    batch,
    question_factors,
    simulate,
    wealth,
)
from bayes_at_n.scoring.sequential.batch import Batch, Target

Counts = np.ndarray[Any, Any]
Past = list[tuple[Counts, Counts]]

HALF, NINE = Fraction(1, 2), Fraction(9, 10)


def raced(past: Past) -> Batch:
    """The state after these rounds."""
    batch = Batch((1, *past[0][0].shape), Target("best"), 0.05, 0.01)
    for successes, attempts in past:
        batch.add(successes[None], attempts[None])
    return batch


def leaves(p: list[list[Fraction]], plan: Callable[[Past], Any]) -> list[tuple[Fraction, Past]]:
    """All outcomes of the planned rounds of models with chances p, and how likely they are."""
    done, going = [], [(Fraction(1), [])]
    while going:
        weight, past = going.pop()
        attempts = plan(past)
        if attempts is None:
            done.append((weight, past))
            continue
        attempts = np.array(attempts)
        for flat in itertools.product(*(range(n + 1) for n in attempts.ravel())):
            odds = weight
            for c, n, x in zip(flat, attempts.ravel(), itertools.chain(*p), strict=True):
                odds *= math.comb(int(n), c) * x**c * (1 - x) ** int(n - c)
            if odds:
                going.append((odds, [*past, (np.reshape(flat, attempts.shape), attempts)]))
    return done


def same_each_round(attempts: list[list[int]], rounds: int) -> Callable[[Past], Any]:
    return lambda past: attempts if len(past) < rounds else None


def more_where_it_failed(past: Past) -> Any:
    """Two rounds; a question has two attempts if the last round had no success there."""
    if not past:
        return [[1, 1], [1, 1]]
    return None if len(past) == 2 else (2 - (past[-1][0] > 0)).tolist()


@pytest.mark.parametrize(
    ("p", "plan"),
    [
        ([[HALF, HALF], [HALF, HALF]], same_each_round([[1, 1], [1, 1]], 2)),
        ([[NINE, 1 - NINE], [1 - NINE, NINE]], same_each_round([[1, 1], [1, 1]], 2)),
        ([[NINE, HALF], [HALF, NINE]], same_each_round([[2, 1], [1, 1]], 2)),
        ([[HALF, Fraction(1)], [NINE, NINE]], more_where_it_failed),
    ],
)
def test_expected_wealth_under_the_null(p: list[list[Fraction]], plan: Any) -> None:
    """At most 1 for the pair at its true difference, and for each mean, whatever was planned."""
    means, total = [float(sum(row)) / len(row) for row in p], np.zeros((3, len(wealth.WEIGHTS)))
    for weight, past in leaves(p, plan):
        batch = raced(past)
        total += float(weight) * np.exp(
            [
                batch.pairs[0, 0, 1] - batch.slopes[0, 0, 1] * (means[0] - means[1]),
                batch.up[0, 0] - batch.own_slopes[0, 0] * means[0],
                batch.down[0, 1] + batch.own_slopes[0, 1] * means[1],
            ]
        )
    assert (total > 0.1).all() and (total <= 1 + 1e-12).all(), total


def test_expected_wealth_of_whole_rounds_whose_attempts_share_all_luck() -> None:
    """One draw decides a trial of both models, and wealth is expected to be at most 1."""
    trials = [(0.5, [[1, 1], [1, 0]]), (0.25, [[0, 0.5], [0, 1]]), (0.25, [[0, 0], [1, 0]])]
    mean = sum(odds * np.mean(outcomes, axis=1) for odds, outcomes in trials)
    assert mean.tolist() == [0.5625, 0.5]
    totals = np.zeros(4)
    for path in itertools.product(trials, repeat=3):
        batch = Batch((1, 2, 2), Target("best"), 0.05, 0.01, by_trial=True)
        for _, outcomes in path:
            batch.add(np.array([outcomes]), np.ones((1, 2, 2), int))
        kernels = (
            batch.pairs[0, 0, 1] - batch.slopes[0, 0, 1] * (mean[0] - mean[1]),
            batch.up[0, 0] - batch.own_slopes[0, 0] * mean[0],
            batch.down[0, 1] + batch.own_slopes[0, 1] * mean[1],
            batch.leaving[0, 0],  # of the better one
        )
        odds = math.prod(odds for odds, _ in path)
        totals += [odds * (wealth.TRIAL_WEIGHTS @ np.exp(kernel)) for kernel in kernels]
    assert (totals > 0.8).all() and (totals <= 1 + 1e-12).all(), totals


def played(race: Race, p: Any, rounds: int, seed: int = 0) -> Race:
    """A race after rounds of models with these chances, all of them sampled."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        race.add(rng.random(np.shape(p)) < p, np.ones(np.shape(p), int))
    return race


P = np.random.default_rng(5).beta(1, 1, (4, 12)) * 0.5 + [[0.5], [0.3], [0.1], [0.0]]


def test_intervals_are_what_wealth_has_not_refuted() -> None:
    """Each end of a difference's interval, against wealth at shifts on either side of it."""
    race = played(Race(2, 12, Target("order"), tie=0.2), P[:2], 1)
    look, b = race.look(), race._batch
    low = look.difference_low[0, 1]
    for shift, refuted in ((low - 1e-6, True), (low + 1e-6, False)):
        found = sum(
            w * math.exp(g - s * shift)
            for w, g, s in zip(wealth.WEIGHTS, b.pairs[0, 0, 1], b.slopes[0, 0, 1], strict=True)
        )
        assert (found >= 2 / 0.05) == refuted
    assert look.difference_high[1, 0] == -low
    race = played(race, P[:2], 40)
    look = race.look()
    assert look.better[0, 1] and look.difference_low[0, 1] > 0
    assert look.low[0] < P[0].mean() < look.high[0]


def test_claims_nest_so_that_a_tie_needs_no_error_of_its_own() -> None:
    """What is claimed of a pair agrees with its interval, also where both claims are made."""
    p = np.full((2, 40), 0.98)
    p[1, :3] = 0.3  # 0.051 apart
    look = played(Race(2, 40, Target("order"), tie=0.2), p, 40).look()
    assert look.better[0, 1] and look.tied[0, 1] and look.settled
    assert 0 < look.difference_low[0, 1] < look.difference_high[0, 1] < 0.2


def test_decisions_from_claims_made_by_hand() -> None:
    better = np.zeros((1, 5, 5), bool)
    none = np.zeros((1, 5), bool)
    for over, under in ((0, 3), (0, 4), (1, 3), (1, 4), (2, 4), (3, 4)):
        better[0, over, under] = True
    placed, out = batch.place_top(better, none, none, 2)
    assert (placed[0].tolist(), out[0].tolist()) == ([False] * 5, [False] * 3 + [True] * 2)
    better[0, 0, 2] = True  # of 0, 1, 2 the first beats all but one
    placed, out = batch.place_top(better, none, none, 2)
    assert placed[0].tolist() == [True, False, False, False, False]
    better[0, 1, 2] = True  # the second is then in a race for one place
    placed, out = batch.place_top(better, none, none, 2)
    assert (placed[0].tolist(), out[0].tolist()) == (
        [True] * 2 + [False] * 3,
        [False] * 2 + [True] * 3,
    )
    closed = batch.implied(np.eye(4, k=1, dtype=bool)[None])
    assert closed[0].tolist() == np.triu(np.ones((4, 4), bool), 1).tolist()
    assert batch.ordered_groups([0, 1, 2, 3], closed[0]) == [[0], [1], [2], [3]]
    assert batch.ordered_groups([0, 1, 2], np.eye(3, k=2, dtype=bool)) == [[0, 1, 2]]
    # Claims that contradict each other put nothing apart, and a mean does not hide a claim.
    assert batch.ordered_groups([0, 1], ~np.eye(2, dtype=bool)) == [[0, 1]]
    assert batch.ordered_groups([1, 0], np.eye(2, k=1, dtype=bool)) == [[0], [1]]


def test_needed_wealth_counts_the_claims_that_may_be_wrong() -> None:
    def need(target: Target, models: int, rivals: bool = False) -> Any:
        found = batch.needed(target, models, 0.05, rivals)
        assert found.differences == pytest.approx(models * (models - 1) / 0.05)
        return found[:2]

    assert need(Target("best"), 2, True) == need(Target("order"), 2) == pytest.approx((40, 40))
    assert need(Target("best"), 20, True) == pytest.approx((2 / 0.045, 19 / 0.005))
    assert need(Target("top", k=3), 20)[0] == pytest.approx((3 * 17 + 19) / 0.045)
    assert need(Target("order"), 20) == pytest.approx((380 / 0.05,) * 2)
    assert need(Target("above", baseline=0), 20) == pytest.approx((38 / 0.05,) * 2)


def test_nothing_is_claimed_of_pairs_that_are_not_tested() -> None:
    """Above a baseline, other pairs have no share of the error: no claim, no group, no best."""
    p = np.repeat([[0.95], [0.6], [0.3], [0.05]], 30, axis=1)
    look = played(Race(4, 30, Target("above", baseline=2)), p, 20).look()
    assert look.better.tolist() == [[i < 2 < j or i < j == 2 or i == 2 < j for j in range(4)]
                                    for i in range(4)]  # fmt: skip
    assert (look.settled, look.groups, look.best) == (True, [[0, 1], [2], [3]], None)
    assert look.placed.tolist() == [1, 1, 0, -1] and look.log_e[0, 1] > look.log_needed
    look = played(Race(4, 30, Target("above", baseline=0)), p, 20).look()
    assert look.best == 0  # a baseline that beats all others
    # One is in the top 2 and one is out, but which of the others is better than these is open.
    p = np.repeat([[0.95], [0.6], [0.6], [0.05]], 30, axis=1)
    look = played(Race(4, 30, Target("top", k=2)), p, 8).look()
    assert look.placed.tolist() == [1, 0, 0, -1] and not look.settled
    assert [sorted(group) for group in look.groups] == [[0, 1, 2, 3]]
    assert played(Race(4, 30, Target("top", k=1)), p, 20).look().best == 0


def test_a_model_that_left_keeps_what_it_had() -> None:
    p = np.stack([P[0], P[0] - 0.04, P[3]])
    race = played(Race(3, 12, Target("best")), p, 10)
    before = race.look()
    assert before.open.tolist() == [True, True, False] and before.placed.tolist() == [0, 0, -1]
    assert before.groups == [[0, 1, 2]]  # that 2 is not the best says nothing of 1 and 2
    part = np.repeat([[1], [1], [0]], 12, axis=1)
    rng = np.random.default_rng(1)
    while not race.look().settled:
        race.add(rng.binomial(part, p), part)
    after = race.look()
    assert (after.best, after.groups[0], after.rounds[2]) == (0, [0], 10)
    assert after.log_e[0, 2] == before.log_e[0, 2] and after.mean[2] == before.mean[2]


@pytest.mark.parametrize("target", ["best", "order"])
def test_simulated_races_err_rarely_and_find_large_gaps(target: Any) -> None:
    p = np.random.default_rng(1).beta(0.5, 0.5, 10)
    equal = simulate([p, p, p], Target(target), runs=200, seed=1, trials=30)
    assert equal.wrong <= 0.05 and equal.mean == pytest.approx(p.mean(), abs=0.01)
    apart = simulate([[0.9] * 10, [0.5] * 10, [0.1] * 10], Target(target), runs=50, seed=1)
    assert apart.right == apart.settled == 1 and apart.rounds.max() < 12
    assert apart.attempts == pytest.approx(10 * apart.rounds)


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda: Race(1, 3, Target("best")), "models is 1"),
        (lambda: Race(3, 3, Target("top", k=3)), "k is 3"),
        (lambda: Race(2, 3, Target("best"), tie=0), "tie is 0"),
        (lambda: Race(2, 1, Target("best")).add([[1]], [[1]]), r"successes has shape \(1, 1\)"),
        (lambda: Race(2, 1, Target("best")).add([[2], [0]], [[1], [1]]), r"successes\[0, 0\] is 2"),
        (lambda: Race(2, 2, Target("best")).add([[0] * 2] * 2, [[1, 0], [0, 0]]), r"\[0, 1\] is 0"),
    ],
)
def test_wrong_inputs_are_named(call: Any, word: str) -> None:
    with pytest.raises(ValueError, match=word):
        call()


def test_the_mean_of_one_model() -> None:
    """The sequence is that of a race, never grows, and holds the mean all the time."""
    p, rng = P[0], np.random.default_rng(8)
    sequence, race, width = MeanSequence(12), Race(2, 12, Target("best")), 1.0
    for _ in range(60):
        outcomes = (rng.random(12) < p).astype(int)
        sequence.add(outcomes, np.ones(12, int))
        race.add([outcomes, outcomes], np.ones((2, 12), int))
        low, high = sequence.interval()
        assert low < p.mean() < high and high - low <= width
        width = high - low
    assert width < 0.1 and sequence.mean == race.look().mean[0]


FACTORS = np.array([[-1.0], [0.2], [0.3], [2.0]])


def paths(
    bank: BankSequence, outcomes: np.ndarray, batches: list[int]
) -> list[tuple[float, BankSequence]]:
    """Every order of draws, with its chance: weights are shares of what is left."""
    if not batches:
        return [(1.0, bank)]
    found = []
    left = np.flatnonzero(bank._weight > 0)
    for order in itertools.permutations(left.tolist(), batches[0]):
        weights, chance = bank._weight.copy(), 1.0
        for question in order:
            chance *= weights[question] / weights.sum()
            weights[question] = 0.0
        after = copy.deepcopy(bank)
        after._drawn = np.array(order)
        after.add(outcomes[[*order]])
        found += [(chance * p, one) for p, one in paths(after, outcomes, batches[1:])]
    return found


@pytest.mark.parametrize("batches", [[1, 1, 1], [2, 1], [3]])
def test_bets_are_fair_over_all_draws(batches: list[int]) -> None:
    outcomes = np.array([0.0, 1.0, 0.25, 1.0])
    every = paths(BankSequence(4, FACTORS, width=0.5), outcomes, batches)
    assert sum(chance for chance, _ in every) == pytest.approx(1)
    score = outcomes.mean()
    up = sum(chance * np.exp(one._up - one._slope * score) for chance, one in every)
    down = sum(chance * np.exp(one._down + one._slope * score) for chance, one in every)
    assert (up <= 1 + 1e-12).all() and (down <= 1 + 1e-12).all()
    assert (up > 0.5).all() and (down > 0.5).all()
    first = paths(BankSequence(4, FACTORS), outcomes, [1])
    assert sum(chance * one.estimate for chance, one in first) == pytest.approx(score)


def test_draws_have_the_chances_that_the_estimate_takes() -> None:
    bank = BankSequence(4, FACTORS, seed=1)
    bank._weight = np.array([1.0, 2.0, 0.0, 5.0])
    first = np.array([bank.draw(3)[0] for _ in range(4000)])
    shares = np.bincount(first, minlength=4) / 4000
    np.testing.assert_allclose(shares, [1 / 8, 2 / 8, 0, 5 / 8], atol=0.025)
    assert sorted(bank.draw(9)) == [0, 1, 3]


def test_the_whole_bank_is_its_score_and_errors_are_named() -> None:
    bank = BankSequence(3)
    assert bank.interval() == (0.0, 1.0) and bank.estimate == 0.5
    bank.add([1.0, 0.0, 0.5][: bank.draw(5).size])
    assert bank.asked == 3 and bank.interval() == (0.5, 0.5) == (bank.estimate,) * 2
    for call in (lambda: BankSequence(3, [[1.0]]), lambda: BankSequence(3).add([1.0])):
        with pytest.raises(ValueError):
            call()
    records = np.ma.masked_equal([[1, 0, -1], [1, -1, 0], [1, 0, 0]], -1)
    assert question_factors(records, rank=1).shape == (3, 2)
    assert question_factors(records)[0, 0] > question_factors(records)[1:, 0].max()
