"""The conclusion on a cohort, against drawn posteriors and cohorts whose truth is known."""

import itertools
import re
from pathlib import Path

import numpy as np
import pytest
from helpers import run_of

from bayes_at_n.pipeline.compare import pairwise
from bayes_at_n.pipeline.compare.cohort import Cohort, from_arrays, load, pooled
from bayes_at_n.pipeline.compare.conclusion import Conclusion, conclude
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.store import runfolder

CFG = analysis.load([])


def drawn(rng: np.random.Generator, rates: np.ndarray, trials: int) -> Cohort:
    """A cohort of models a, b, ... with these rates of being correct, (L, M)."""
    R = (rng.random((*rates.shape, trials)) < rates[..., None]).astype(int)
    models, questions = rates.shape
    return from_arrays("d", [*"abcdefgh"[:models]], [f"q{i}" for i in range(questions)], R)


@pytest.mark.parametrize(("questions", "trials"), [(2, 30), (30, 80)])
def test_chances_are_those_of_drawn_posteriors(questions: int, trials: int) -> None:
    rng = np.random.default_rng(questions)
    cohort = drawn(rng, np.array([[0.58], [0.55], [0.6], [0.35]]) * np.ones(questions), trials)
    found = conclude(cohort, CFG)
    # Bayes@N with equal N is avg on another scale, so that its exact posterior has the same order.
    right = cohort.matrix().sum(axis=2)
    scores = rng.beta(right + 1, trials - right + 1, (40_000, 4, questions)).mean(axis=2)
    share = np.bincount(scores.argmax(axis=1), minlength=4) / len(scores)
    at = {name: share[i] for i, name in enumerate(cohort.names)}
    assert found.probability == pytest.approx(at[found.models[0]], abs=0.01)
    assert found.probability_tied == pytest.approx(sum(at[name] for name in found.tied), abs=0.01)
    # The largest sets in which every pair has z below 1.645, by going through all sets.
    mean, sd = scores.mean(axis=0), scores.std(axis=0)
    z = np.abs(mean[:, None] - mean) / np.hypot(sd[:, None], sd)
    alike = [
        {cohort.names[i] for i in some}
        for n in range(1, 5)
        for some in itertools.combinations(range(4), n)
        if all(z[i, j] < 1.645 for i, j in itertools.combinations(some, 2))
    ]
    largest = [group for group in alike if not any(group < other for other in alike)]
    assert sorted(map(sorted, found.groups)) == sorted(map(sorted, largest))
    assert found.tied[0] == found.models[0] and set(found.tied) in largest
    row = pairwise.adjacent_pairs(cohort, CFG).rows[0]
    assert (row["above"], row["below"]) == (found.tied[0], found.tied[1])
    ends = [found.trials, found.fewest, found.most]
    planned = [row[key] for key in ("trials", "trials_fewest", "trials_most")]
    assert ends == [None if np.isinf(trials) else trials for trials in planned]


@pytest.mark.parametrize(("questions", "trials"), [(2, 4), (5, 4), (5, 20), (30, 4)])
def test_what_is_settled_between_near_equals_is_rarely_wrong(questions: int, trials: int) -> None:
    rng, wrong = np.random.default_rng(7), 0
    for _ in range(30):
        rates = np.clip(rng.beta(2, 2, questions) + rng.normal(0, 0.003, (3, 1)), 0, 1)
        found = conclude(drawn(rng, rates, trials), CFG)
        assert not found.settled or found.probability >= 0.95
        wrong += found.settled and found.models[0] != "abc"[rates.mean(axis=1).argmax()]
    # The order is a coin's: at 95 % one in twenty is wrong, and one in 300 such tests has six.
    assert wrong <= 5


def sentence(found: Conclusion) -> str:
    text = found.sentence()
    assert text.endswith(".") and "\n" not in text and len(text) < 500
    return text


def test_sentences_claim_what_the_numbers_say() -> None:
    rng = np.random.default_rng(3)
    clear = drawn(rng, np.array([[0.9], [0.5], [0.1]]) * np.ones(5), 40)
    found = conclude(clear, CFG)
    assert found.settled and found.tied == ["a"] and found.trials is None
    text = sentence(found)
    assert "a is the best of 3 with probability above .99 on these 5 questions" in text
    assert re.search(
        r"on others of their kind it would beat b with probability (above )?\.\d\d", text
    )
    assert "one question says nothing of others" in sentence(
        conclude(drawn(rng, clear.matrix().mean(axis=2).data[:, :1], 40), CFG)
    )

    # All equal: nothing is claimed, and no number of trials would help.
    same = from_arrays("d", [*"abcdefgh"], ["p", "q"], np.ones((8, 2, 3), int))
    found = conclude(same, CFG)
    assert not found.settled and found.probability == pytest.approx(1 / 8)
    assert len(found.tied) == 8 and found.trials is None
    assert "a, b, c, d, e and 3 more cannot be told apart" in sentence(found)
    assert "no number of trials is known to tell a from b" in found.sentence()

    alone = from_arrays("d", ["a"], ["p", "q"], np.array([[[1, 1, 0, 1], [0, 0, 1, -1]]]))
    found = conclude(alone, CFG)
    assert not found.settled and found.other_questions is None
    assert "avg@4 = 0.5417" in sentence(found) and "best" not in found.sentence()


def test_a_conclusion_says_that_outcomes_decided_the_trials(tmp_path: Path) -> None:
    run = run_of(tmp_path, "a", {"q": "1100"})
    manifest = runfolder.read_json(run.manifest) | {"stopped": {"until": "best", "trials": 4}}
    runfolder.write_json(run.manifest, manifest)
    run_of(tmp_path, "b", {"q": "0000"})
    cfg = analysis.load([f"runs={tmp_path}"])
    found = conclude(load(cfg)[0], cfg)
    assert found.stopped and "outcomes decided how many trials there are" in sentence(found)


def test_several_data_sets_are_judged_pooled() -> None:
    rng = np.random.default_rng(4)
    parts = [drawn(rng, np.array([[0.6], [0.5]]) * np.ones(20), 8) for _ in range(2)]
    found = conclude(pooled(parts), CFG)
    R = np.concatenate([part.matrix().data for part in parts], axis=1)
    together = conclude(from_arrays("all", ["a", "b"], [f"{i}" for i in range(40)], R), CFG)
    assert found == together and found.questions == 40
