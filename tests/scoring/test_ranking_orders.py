"""Rankings as numbers, their agreement and their ties: against enumeration and scorio.utils."""

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scorio import utils

from bayes_at_n import scoring
from bayes_at_n.scoring.ranking.orders import (
    compare_rankings,
    lehmer_hash,
    lehmer_unhash,
    rank_scores,
    ranking_hash,
    unhash_ranking,
)

CLOSE = st.integers(-3, 3).map(lambda i: i * 0.6e-12) | st.integers(0, 4).map(float)


def same(ours: dict[str, object], theirs: dict[str, object]) -> None:
    assert ours.keys() == theirs.keys()
    for key, values in theirs.items():
        np.testing.assert_array_equal(ours[key], values)
        assert np.asarray(ours[key]).dtype == np.asarray(values).dtype


@given(
    st.lists(st.tuples(CLOSE, st.sampled_from([0.1, 0.5, 1.0, 2.0])), max_size=7),
    st.sampled_from([0.5, 0.8, 0.95]),
    st.sampled_from(["zscore_adjacent", "ci_overlap_adjacent"]),
)
@settings(max_examples=25)
def test_ranks_are_theirs(pairs: list[tuple[float, float]], level: float, rule: str) -> None:
    scores, sigmas = [score for score, _ in pairs], [sigma for _, sigma in pairs]
    same(rank_scores(scores), utils.rank_scores(scores))
    same(rank_scores(scores, 0.7), utils.rank_scores(scores, 0.7))
    with_ci = utils.rank_scores(scores, 1e-12, sigmas, level, rule)
    same(rank_scores(scores, 1e-12, sigmas, level, rule), with_ci)


def test_ranks_by_counting() -> None:
    for scores in itertools.product(range(3), repeat=4):
        found = rank_scores(scores)
        above = [sum(other > score for other in scores) for score in scores]
        tied = [scores.count(score) for score in scores]
        assert found["competition"].tolist() == [1 + a for a in above]
        assert found["competition_max"].tolist() == [
            a + t for a, t in zip(above, tied, strict=True)
        ]
        assert found["avg"].tolist() == [a + (1 + t) / 2 for a, t in zip(above, tied, strict=True)]
        assert found["dense"].tolist() == scoring.ranks(scores, "dense").tolist()


def test_ties_that_they_break() -> None:
    """Two equal scores without uncertainty, below one with some, are two ranks of theirs."""
    given_ = ([1.0, 0.9, 0.9], 1e-12, [1.0, 0.0, 0.0])
    assert utils.rank_scores(*given_)["competition_ci"].tolist() == [1, 1, 3]
    assert rank_scores(*given_)["competition_ci"].tolist() == [1, 1, 1]


def test_equal_scores_of_other_sigmas_are_in_the_order_given_as_theirs() -> None:
    last = []
    for sigmas in ([0.01, 0.9, 0.1], [0.9, 0.01, 0.1]):
        ours = rank_scores([1.0, 1.0, 0.7], sigmas_in_id_order=sigmas)["dense_ci"].tolist()
        last.append(ours[2])
        theirs = utils.rank_scores([1.0, 1.0, 0.7], sigmas_in_id_order=sigmas)["dense_ci"]
        assert ours == theirs.tolist()
    assert last == [1, 2]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=9))
@settings(max_examples=15)
def test_agreement_is_theirs(pairs: list[tuple[int, int]]) -> None:
    a, b = ([pair[i] for pair in pairs] for i in (0, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for method in ("kendall", "spearman", "weighted_kendall"):
            theirs = utils.compare_rankings(a, b, method)
            np.testing.assert_array_equal(compare_rankings(a, b, method), theirs)
        same(compare_rankings(a, b), utils.compare_rankings(a, b))


def test_lehmer_codes_are_places() -> None:
    for n in range(6):
        for place, order in enumerate(itertools.permutations(range(n))):
            assert lehmer_hash(order) == utils.lehmer_hash(order) == place
            assert lehmer_unhash(place, n) == list(order)
    many = [*np.random.default_rng(0).permutation(30)]
    assert lehmer_hash(many) == utils.lehmer_hash(many)
    assert lehmer_unhash(lehmer_hash(many), 30) == many


def test_hashes_are_places() -> None:
    """All rankings with ties, listed: by size of the first tie, its members, and then the rest."""

    def listed(items: list[int], first: int) -> list[dict[int, int]]:
        return [
            dict.fromkeys(top, first) | rest
            for size in range(1, len(items) + 1)
            for top in itertools.combinations(items, size)
            for rest in listed([i for i in items if i not in top], first + size)
        ] or [{}]

    for n in range(6):
        for place, ranking in enumerate(listed([*range(n)], 1)):
            ranks = [ranking[i] for i in range(n)]
            assert ranking_hash(ranks) == utils.ranking_hash(ranks) == place
            assert unhash_ranking(place, n) == utils.unhash_ranking(place, n) == ranks
    many = np.random.default_rng(0).integers(9, size=25)
    assert ranking_hash(many) == utils.ranking_hash(many)
    assert ranking_hash([2.0, 2 + 0.6e-12, 2 + 1.2e-12]) == 12  # in a chain, as theirs
    assert unhash_ranking(ranking_hash(many), 25) == rank_scores(-many)["competition"].tolist()


@pytest.mark.parametrize(
    "call",
    [
        lambda: rank_scores([1.0, math.nan]),
        lambda: rank_scores([[1.0]]),
        lambda: rank_scores([1.0, 2.0], sigmas_in_id_order=[1.0]),
        lambda: rank_scores([1.0], ci_tie_method="other"),  # type: ignore[arg-type]
        lambda: compare_rankings([1, 2], [1]),
        lambda: compare_rankings([], []),
        lambda: compare_rankings([1], [math.inf]),
        lambda: compare_rankings([1], [1], "tau"),  # type: ignore[arg-type]
        lambda: lehmer_hash([0, 0]),
        lambda: lehmer_unhash(6, 3),
        lambda: lehmer_unhash(-1, 3),
        lambda: unhash_ranking(13, 3),
        lambda: ranking_hash([1, math.nan]),
    ],
)
def test_what_is_no_ranking(call) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError):
        call()
