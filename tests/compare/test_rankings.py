"""Rankings by scorio's methods beside our own: the same as theirs, in bounds, and what is said."""

import inspect
import re
import sys
from typing import Any

import numpy as np
import pytest
from scipy.stats import kendalltau
from scorio import rank

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare.cohort import complete, from_arrays
from bayes_at_n.pipeline.compare.comparison import tables_of
from bayes_at_n.pipeline.compare.rankings import method_scores
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.analysis import METHODS
from bayes_at_n.pipeline.display.table import Table

TENSOR = (np.random.default_rng(3).random((3, 6, 5)) < [[[0.4]], [[0.5]], [[0.7]]]).astype(np.int8)
DEAR = {"rasch_mml", "rasch_mml_credible", "thompson", "bayesian_mcmc"}


OURS = {"avg", "bayes", "pass_at_k", "pass_hat_k", "g_pass_at_k_tau", "mg_pass_at_k"}


def test_every_function_is_listed() -> None:
    functions = {name for name in rank.__all__ if inspect.isfunction(getattr(rank, name))}
    assert functions == {*METHODS, *OURS}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.soak] * (n in DEAR)) for n in METHODS]
)
def test_scores_are_theirs(name: str) -> None:
    given = METHODS[name].parameters
    try:
        theirs = getattr(rank, name)(TENSOR, return_scores=True, **given)[1]
    except Exception as error:
        assert str(method_scores(name, TENSOR)).startswith(f"{type(error).__name__}: ")
    else:
        np.testing.assert_allclose(method_scores(name, TENSOR), theirs, rtol=METHODS[name].error)


def test_only_complete_trials_count() -> None:
    """Trials that all models made of all questions; one of them is enough."""
    data = np.full((2, 2, 4), 1)
    data[0, 1, 2] = data[1, 0, 0] = -1
    cohort = from_arrays("gaps", ["a", "b"], ["1", "2"], data)
    kept, notes = complete(cohort)
    assert kept.shape == (2, 2, 2) and "2 of 4 trials" in notes[0]
    assert complete(cohort, least=1)[0].shape == (2, 2, 2)
    data[0, 0, 1] = -1
    with pytest.raises(UserError, match="1 of 4 trials"):
        complete(from_arrays("gaps", ["a", "b"], ["1", "2"], data))
    assert method_scores("borda", np.ma.masked_equal(data, -1)) == "some trials are missing"
    assert "at least 2 models" in str(method_scores("borda", TENSOR[:1]))


def test_questions_that_say_nothing_are_not_asked() -> None:
    flat = np.repeat(np.array([0, 1], np.int8)[None, :, None], 5, axis=2).repeat(3, axis=0)
    both = np.concatenate([TENSOR, flat], axis=1)
    with pytest.raises(ValueError, match="all-correct or all-wrong question"):
        rank.rasch(both)
    np.testing.assert_array_equal(method_scores("rasch", both), method_scores("rasch", TENSOR))
    assert isinstance(method_scores("rasch", flat), str)


def forever(*_: Any, **__: Any) -> Any:
    while True:
        pass


def tabled(data: Any, *asked: str) -> dict[str, Table]:
    models, questions = ([*"abcdefgh"[:size]] for size in np.shape(data)[:2])
    return tables_of(from_arrays("made", models, questions, data), analysis.load([*asked]))


def test_nothing_of_scorio_without_ranking(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "scorio", None)
    assert "ranking_methods" not in tabled(TENSOR)
    with pytest.raises(UserError, match=r'pip install "bayes-at-n\[rank\]"'):
        tabled(TENSOR, "ranking=borda")


def test_methods_are_chosen_by_name_or_all() -> None:
    assert analysis.load(["ranking=borda,all"]).ranking.chosen() == [*METHODS]
    assert analysis.load(["ranking=borda,rasch,borda"]).ranking.chosen() == ["borda", "rasch"]
    for wrong, named in (
        ("ranking=bradly_terry", "methods=bradly_terry: .*bradley_terry"),
        ("ranking=borda,avg", "methods=avg"),
        ("ranking.seconds=0", "seconds=0"),
    ):
        with pytest.raises(UserError, match=named):
            analysis.load([wrong])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (forever, "no ranks: more than 0.1 s"),
        (lambda tensor, **_: (None, np.full(len(tensor), np.nan)), "no ranks: .*nan"),
    ],
)
def test_what_cannot_be_done_is_said(what: Any, said: str, monkeypatch: Any) -> None:
    monkeypatch.setattr(rank, "borda", what)
    found = tabled(TENSOR, "ranking=borda", "ranking.seconds=0.1")["ranking_methods"]
    assert [row["method"] for row in found.rows] == ["avg@N"]
    assert re.search(said, " ".join(found.notes))


def test_a_table_has_their_ranks_beside_the_default() -> None:
    """And what a method would refuse, all right or all wrong, is left out for it."""
    data = np.concatenate([TENSOR, np.ones((3, 1, 5), np.int8)], axis=1)
    found = tabled(data, "ranking=copeland,rasch_map,nanson")["ranking_methods"]
    ours, *rows = found.rows
    assert ours["method"] == "avg@N" and "tau_b" not in ours
    assert [row["method"] for row in rows] == ["copeland", "rasch_map", "nanson"]
    assert "left out for rasch_map: 1 question with" in " ".join(found.notes)
    plain = [ours[f"{model}_rank"] for model in "abc"]
    for row in rows:
        own = TENSOR if row["method"] == "rasch_map" else data
        ranks, scores = getattr(rank, row["method"])(own, return_scores=True, method="dense")
        assert [row[f"{model}_rank"] for model in "abc"] == [*ranks]
        assert [row[f"{model}_score"] for model in "abc"] == pytest.approx([*scores])
        assert row["tau_b"] == pytest.approx(kendalltau(ranks, plain).statistic)
