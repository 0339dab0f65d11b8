"""The study of rankings by scorio's methods, against plain loops."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import run_of
from scipy.stats import kendalltau

from bayes_at_n import scoring
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort as cohorts
from bayes_at_n.pipeline.compare.cohort import Cohort, from_arrays
from bayes_at_n.pipeline.compare.rankings import replicates
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.paper import methods
from bayes_at_n.pipeline.paper.studies import Result


def preferences(tensor: Any) -> Any:
    """How many questions prefer one model to another; a tie counts half."""
    right = tensor.sum(axis=2)
    more, same = (f(right[:, None], right).sum(axis=2) for f in (np.greater, np.equal))
    return np.where(np.eye(len(tensor)), 0, more + same / 2)


def borda(tensor: Any) -> Any:
    return scoring.ranks(preferences(tensor).sum(axis=1), "dense")


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


def test_the_tables_are_those_of_plain_loops() -> None:
    size = (5, 6, 8)
    tensor, models = known(*size), range(size[0])
    asked = plan("ranking=borda,hodge_rank", "ranking.replicates=12", "ranking.seconds=600")
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


def test_without_an_order_there_is_no_gold() -> None:
    with pytest.raises(UserError, match="one score"):
        methods.agreement(plan(), [cohort(np.ones((3, 4, 5), np.int8))])
