"""The score on a large bank from a sample of its questions: fair bets, draws, and coverage."""

import copy
import itertools

import numpy as np
import pytest

from bayes_at_n.scoring.sequential import BankSequence, question_factors

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
