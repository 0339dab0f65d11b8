"""What docs/ranking.md says of scorio's methods, on the installed version; and the study of them.

The claims are about scorio itself. Where one no longer holds scorio has changed: mend the page too.
"""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import run_of
from scipy.optimize import minimize
from scipy.stats import kendalltau
from scorio import rank

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare.cohort import Cohort, from_arrays
from bayes_at_n.pipeline.compare.rankings import replicates, scores
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.analysis import METHODS
from bayes_at_n.pipeline.paper import methods
from bayes_at_n.pipeline.paper.studies import Result
from bayes_at_n.scoring.metrics.table import parse
from bayes_at_n.scoring.studies.convergence import tau_curve

MANY = [pytest.param(200, marks=pytest.mark.soak), 6]


def ranked(name: str, tensor: Any) -> Any:
    """Ranks of its scores; None where it has none."""
    found = scores(name, tensor)
    return None if isinstance(found, str) else scoring.ranks(found, "dense")


def theirs(name: str, tensor: Any) -> list[int]:
    found: list[int] = getattr(rank, name)(np.asarray(tensor)).tolist()
    return found


def tensors(count: int, seed: int = 0) -> Iterator[Any]:
    """Outcomes of two to five models; every fifth has a model twice."""
    rng = np.random.default_rng(seed)
    for i in range(count):
        shape = rng.integers(2, 6), rng.integers(2, 8), rng.choice([1, 2, 4])
        made = (rng.random(shape) < rng.beta(1, 1, (*shape[:2], 1))).astype(np.int8)
        if i % 5 == 0:
            made[-1] = made[0]
        yield made


# What does not depend on the order of models, questions or trials, and what does.

# Three models with three of six right each: A before B before C before A, by two questions to one.
CYCLE = [[[1, 1], [0, 0], [1, 0]], [[1, 0], [1, 1], [0, 0]], [[0, 0], [1, 0], [1, 1]]]
NOISY = ("bradley_terry_map", "bradley_terry_davidson_map", "rao_kupper_map", "plackett_luce_map")


def test_equal_margins_of_ranked_pairs_are_taken_in_the_order_of_models() -> None:
    assert theirs("ranked_pairs", CYCLE) == [1, 2, 3]
    assert theirs("ranked_pairs", [CYCLE[1], CYCLE[2], CYCLE[0]]) == [1, 2, 3]
    for name in ("schulze", "kemeny_young", "copeland", "minimax", "borda"):
        assert theirs(name, CYCLE) == [1, 1, 1]


def test_serial_rank_sets_two_equal_models_apart() -> None:
    assert sorted(theirs("serial_rank", [[0], [0]])) == [1, 2]
    assert sorted(theirs("serial_rank", [[1, 0], [1, 0]])) == [1, 2]


@pytest.mark.parametrize("name", NOISY)
def test_noise_of_an_optimiser_breaks_ties(name: str) -> None:
    """By symmetry the last two tie; which of them is first depends on the order of models."""
    broken = 0
    for wrong, questions in itertools.product((1, 2, 3), (2, 3)):
        tensor = np.zeros((wrong + 2, questions), dtype=np.int8)
        tensor[-2, 0] = tensor[-1, 1] = 1
        ranks, scores = getattr(rank, name)(tensor, return_scores=True)
        assert scores[-2] == pytest.approx(scores[-1], rel=1e-4)
        broken += ranks[-2] != ranks[-1]
    assert broken


@pytest.mark.parametrize("name", ["elo", "glicko", "trueskill"])
def test_ratings_favour_what_was_solved_last(name: str) -> None:
    assert theirs(name, [[1, 0], [0, 1]]) == [2, 1]
    assert theirs(name, [[0, 1], [1, 0]]) == [1, 2]


def test_trials_are_matched_by_their_numbers() -> None:
    """B's trials in another order reverse A and C; nothing else has changed."""
    before = [[[0, 0, 1]], [[0, 1, 1]], [[1, 0, 0]]]
    after = [[[0, 0, 1]], [[1, 1, 0]], [[1, 0, 0]]]
    for name in ("bradley_terry", "bradley_terry_map"):
        assert [theirs(name, of) for of in (before, after)] == [[3, 1, 2], [2, 1, 3]]
    assert theirs("avg", before) == theirs("avg", after) == [2, 1, 2]


def test_mirt_prefers_a_model_that_solved_nothing() -> None:
    assert theirs("mirt", [[0, 0], [0, 1], [0, 1], [1, 0]]) == [2, 3, 3, 1]
    assert theirs("mirt", [[0, 1], [0, 1], [0, 1], [1, 0]])[0] == 1
    assert theirs("mirt", [[1, 1], [0, 1], [0, 1], [1, 0]])[0] == 3  # and one more right harms


@pytest.mark.soak
def test_many_trials_collapse_abilities_to_one_place_of_the_grid() -> None:
    tensor = np.zeros((3, 20, 100), dtype=np.int8)
    for question in range(20):
        for model, more in enumerate((-10, 0, question % 2)):
            tensor[model, question, : 10 + 4 * question + more] = 1
    assert tensor.sum(axis=(1, 2)).tolist() == [760, 960, 970]
    assert (theirs("rasch", tensor), theirs("rasch_mml", tensor)) == ([3, 2, 1], [3, 1, 1])


SAME_AS_AVG = (
    *("rasch", "rasch_map", "dynamic_irt", "hodge_rank", "rank_centrality", "pagerank", "spectral"),
    *("alpharank", "nash"),
)


@pytest.mark.parametrize("count", MANY)
def test_several_methods_are_the_average_in_other_words(count: int) -> None:
    ranks = dict.fromkeys(SAME_AS_AVG, 0)
    for tensor in tensors(count, 1):
        for name in SAME_AS_AVG:
            if (found := ranked(name, tensor)) is not None:
                ranks[name] += 1
                expected = scoring.ranks(tensor.sum(axis=(1, 2)), "dense")
                np.testing.assert_array_equal(found, expected)
    assert min(ranks.values()) >= count // 5


DEPENDS = {
    *("elo", "glicko", "trueskill", "ranked_pairs", "serial_rank", "bayesian_mcmc", "mirt"),
    *("rasch_2pl", "rasch_2pl_map", "rasch_3pl", "rasch_3pl_map"),  # of optima, the first found
    *("bradley_terry_davidson", "davidson_luce", "davidson_luce_map"),  # rarely
}


@pytest.mark.soak
@pytest.mark.parametrize("name", sorted(METHODS.keys() - DEPENDS))
def test_another_order_of_models_and_questions_changes_nothing(name: str) -> None:
    """As shown here, with `ranked`; and models that are the same tie."""
    rng, made = np.random.default_rng(2), 0
    for tensor in itertools.islice(tensors(200, 3), 20 if METHODS[name].grows != "L M N" else 60):
        models, questions, trials = (rng.permutation(size) for size in tensor.shape)
        first = ranked(name, tensor)
        other = ranked(name, tensor[models][:, questions][:, :, trials])
        if first is None or other is None:
            continue
        made += 1
        np.testing.assert_array_equal(first[models], other)
        if (tensor[0] == tensor[-1]).all():
            assert first[0] == first[-1]
    assert made


# Against independent computations.


def preferences(tensor: Any) -> Any:
    """How many questions prefer one model to another; a tie counts half."""
    right = tensor.sum(axis=2)
    more, same = (f(right[:, None], right).sum(axis=2) for f in (np.greater, np.equal))
    return np.where(np.eye(len(tensor)), 0, more + same / 2)


def levels(above: Any) -> list[int]:
    """Who is above nobody left comes last: the first level has nobody above."""
    ranks, left = [0] * len(above), set(range(len(above)))
    for level in itertools.count(1):
        if not left:
            return ranks
        top = {i for i in left if not any(above[j][i] for j in left)}
        for i in top:
            ranks[i] = level
        left -= top
    return ranks


def borda(tensor: Any) -> Any:
    return scoring.ranks(preferences(tensor).sum(axis=1), "dense")


def copeland(tensor: Any) -> Any:
    wins = preferences(tensor)
    return scoring.ranks(np.sign(wins - wins.T).sum(axis=1), "dense")


def schulze(tensor: Any) -> Any:
    """Every path of every length."""
    wins, models = preferences(tensor), range(len(tensor))
    won = np.where(wins > wins.T, wins, 0)

    def strength(i: int, j: int) -> float:
        between = [k for k in models if k not in (i, j)]
        paths = ((i, *p, j) for n in range(len(models)) for p in itertools.permutations(between, n))
        return max(min(won[a, b] for a, b in itertools.pairwise(path)) for path in paths)

    strong = [[strength(i, j) if i != j else 0 for j in models] for i in models]
    return levels(np.array(strong) > np.array(strong).T)


def kemeny(tensor: Any) -> Any:
    """Every order; above is who is above in all the best."""
    wins, models = preferences(tensor), range(len(tensor))
    of = {
        order: sum(wins[a, b] for a, b in itertools.combinations(order, 2))
        for order in itertools.permutations(models)
    }
    best = [order for order, votes in of.items() if votes > max(of.values()) - 1e-9]
    return levels([[all(o.index(i) < o.index(j) for o in best) for j in models] for i in models])


@pytest.mark.parametrize("count", MANY)
def test_votes_are_those_of_every_order_and_path(count: int) -> None:
    for tensor in tensors(count):
        for vote in (borda, copeland, schulze, kemeny):
            name = "kemeny_young" if vote is kemeny else vote.__name__
            np.testing.assert_array_equal(ranked(name, tensor), vote(tensor), name)


def bradley_terry(tensor: Any) -> Callable[[Any], float]:
    wins = ((tensor[:, None] == 1) & (tensor == 0)).sum(axis=(2, 3))
    return lambda x: float((wins * np.logaddexp(0, x - x[:, None])).sum())


def rasch(tensor: Any) -> Callable[[Any], float]:
    right, models, trials = tensor.sum(axis=2), len(tensor), tensor.shape[2]

    def loss(x: Any) -> float:
        z = x[:models, None] - x[models:]
        return float((trials * np.logaddexp(0, z) - right * z).sum())

    return loss


@pytest.mark.parametrize("count", MANY)
def test_scores_are_those_of_greatest_likelihood(count: int) -> None:
    made = {bradley_terry: 0, rasch: 0}
    for tensor in tensors(count, 4):
        kept = tensor[:, np.ptp(tensor, axis=(0, 2)) > 0]
        for model in made:
            if isinstance(found := scores(model.__name__, tensor), str):
                continue
            size = len(tensor) + kept.shape[1] * (model is rasch)
            best = minimize(model(kept), np.zeros(size), method="BFGS", options={"gtol": 1e-8}).x
            own = found if model is rasch else np.log(found)
            if np.abs(best).max() < 8:  # beyond that the likelihood is flat
                made[model] += 1
                best = best[: len(tensor)]
                np.testing.assert_allclose(own - own.mean(), best - best.mean(), atol=2e-3)
    assert min(made.values()) >= count // 5


# The study.


def plan(*overrides: str) -> analysis.StudyPlan:
    return analysis.study_plan(analysis.load(["study.preset=quick", *overrides]))


def known(models: int = 6, questions: int = 10, trials: int = 20, seed: int = 0) -> Any:
    """Outcomes of models whose chances are known: the last is the best."""
    rng = np.random.default_rng(seed)
    able, hard = np.linspace(-1.2, 1.2, models), rng.normal(0, 1.2, questions)
    chance = 1 / (1 + np.exp(hard - able[:, None] - rng.normal(0, 0.3, (models, questions))))
    return (rng.random((models, questions, trials)) < chance[..., None]).astype(np.int8)


def cohort(tensor: Any) -> Cohort:
    names = [
        [f"{kind}{i}" for i in range(size)]
        for kind, size in zip("mq", tensor.shape[:2], strict=True)
    ]
    return from_arrays("made", *names, tensor)


def rows(result: Result, stem: str = "rankings_made", key: str = "method") -> Any:
    return {row[key]: row for row in result.tables[stem].rows}


@pytest.mark.parametrize(
    ("size", "more"), [((5, 6, 8), ""), pytest.param((20, 30, 80), ",elo", marks=pytest.mark.soak)]
)
def test_the_tables_are_those_of_plain_loops(size: tuple[int, int, int], more: str) -> None:
    """And for Bayes@N, of many models, those of `study name=tau`."""
    tensor, models = known(*size), range(size[0])
    asked = plan(f"ranking=borda,hodge_rank{more}", "ranking.replicates=12", "ranking.seconds=600")
    found = methods.agreement(asked, [cohort(tensor)])
    table, gold = rows(found), scoring.ranks(tensor.sum(axis=(1, 2)))
    own, last = borda(tensor), size[-1]
    drawn = list(replicates(tensor, 12, asked.seed))
    for n in (1, 4, last):
        sums = [
            kendalltau(one[:, :, :n].sum(axis=(1, 2)), tensor.sum(axis=(1, 2))) for one in drawn
        ]
        mean = pytest.approx(np.nanmean([tau.statistic for tau in sums]))
        assert table["bayes"][f"n{n}"] == table["hodge_rank"][f"n{n}"] == mean
        taus = [kendalltau(borda(one[:, :, :n]), gold).statistic for one in drawn]
        assert table["borda"][f"n{n}"] == pytest.approx(np.nanmean(taus))
        assert table["borda"][f"sd{n}"] == pytest.approx(np.nanstd(taus, ddof=1))
    assert table["borda"]["whole"] == pytest.approx(kendalltau(own, gold).statistic)
    ranks = [borda(one).tolist() for one in drawn]
    same = [{i for i in models if (of[i] == 1) != (own[i] == 1)} == set() for of in ranks]
    pairs = [
        np.sign(of[i] - of[j]) == np.sign(own[i] - own[j])
        for of in ranks
        for i, j in itertools.combinations(models, 2)
    ]
    two = [kendalltau(a, b).statistic for a, b in zip(ranks[:6], ranks[6:], strict=True)]
    expected = np.mean(same), np.mean(pairs), np.nanmean(two)
    assert [table["borda"][key] for key in ("first", "pairs", "two")] == pytest.approx(expected)
    assert found.numbers["rankings_made.exact"] == sum(row["exact"] for row in table.values()) - 1
    assert "rankings_made" in found.figures
    if more:
        [curve] = tau_curve(tensor, [parse("bayes")], 12, "columns", asked.seed, 1)
        assert [table["bayes"][f"n{n}"] for n in (1, 4, last)] == pytest.approx(
            [curve.tau[n - 1] for n in (1, 4, last)]
        )
        again = rows(methods.agreement(asked, [cohort(tensor)]))
        assert all(again[name]["n4"] == row["n4"] for name, row in table.items())


def test_a_greedy_prior_is_one_more_trial_that_is_never_drawn_again(tmp_path: Path) -> None:
    tensor, once = known(6, 5, 8, seed=1)[2:4], np.random.default_rng(5).integers(2, size=(2, 5))
    for name, of, greedy in zip("ab", tensor, once, strict=True):
        texts = {f"q{i}": "".join("01"[x] for x in line) for i, line in enumerate(of)}
        run_of(tmp_path, name, texts)
        one = {f"q{i}": "01"[x] for i, x in enumerate(greedy)}
        greedily = ("sampling.trials=1", "sampling.temperature=0", "sampling.seed=null")
        run_of(tmp_path, f"{name}-greedy", one, *greedily)
    loaded = cohorts.load(analysis.load([f"runs={tmp_path}"]))
    asked = plan("ranking=borda", "ranking.replicates=12")
    found = methods.agreement(asked, loaded)
    assert {*rows(found, "rankings_sums")} == {"bayes", "borda"}  # of two models, not of four
    table = rows(found, "rankings_sums_greedy", "N")
    gold = scoring.ranks(tensor.sum(axis=(1, 2)))
    drawn = list(replicates(tensor, 12, asked.seed))
    for n in (1, 8):
        right = [one[:, :, :n].sum(axis=(1, 2)) for one in drawn]
        for key, totals in (("uniform", right), ("greedy", [r + once.sum(axis=1) for r in right])):
            taus = [kendalltau(scoring.ranks(of), gold).statistic for of in totals]
            assert table[n][f"{key}_tau"] == pytest.approx(np.nanmean(taus))
            assert table[n][f"{key}_sd"] == pytest.approx(np.nanstd(taus, ddof=1))
        plain, prior = (
            scoring.bayes(drawn[0][:, :, :n], R0=R0)[0] for R0 in (None, once[..., None])
        )
        assert scoring.ranks(plain).tolist() == scoring.ranks(right[0]).tolist()
        assert scoring.ranks(prior).tolist() == scoring.ranks(right[0] + once.sum(axis=1)).tolist()
    ratio = table[1]["greedy_sd"] / table[1]["uniform_sd"]
    assert table[1]["less_variance"] == pytest.approx(1 - ratio**2)


def test_what_takes_too_long_is_cut_off_and_said() -> None:
    asked = plan("ranking=borda,davidson_luce_map", "ranking.seconds=0.1", "ranking.replicates=2")
    found = methods.agreement(asked, [cohort(known(14, 6, 8))])
    table = rows(found)
    assert [table[name]["replicates"] for name in ("borda", "davidson_luce_map")] == [2, 0]
    assert table["davidson_luce_map"]["n1"] is None
    assert any("davidson_luce_map: " in n for n in found.tables["rankings_made"].notes)
    assert any("nothing on a greedy prior" in note for note in found.notes)


def test_without_the_library_the_extra_is_named(monkeypatch: Any) -> None:
    monkeypatch.setitem(__import__("sys").modules, "scorio.rank", None)
    with pytest.raises(UserError, match=r"bayes-at-n\[rank\]"):
        methods.agreement(plan(), [cohort(known())])


def test_without_an_order_there_is_no_gold() -> None:
    with pytest.raises(UserError, match="one score"):
        methods.agreement(plan(), [cohort(np.ones((3, 4, 5), np.int8))])
