"""Votes against enumeration in fractions, and on run folders."""

import itertools
import json
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, add_verdicts, again, close, make_run, ragged

from bayes_at_n import scoring
from bayes_at_n.pipeline.grade import stage
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.score import answers
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring import Ballots, Counts
from bayes_at_n.scoring.metrics.table import parse


def elected(answers: Any, weights: Any) -> Fraction:
    """What a vote is worth, in fractions."""
    votes: Counter[int] = Counter()
    for answer, weight in zip(answers, weights, strict=True):
        votes[int(answer)] += Fraction(float(weight)) * bool(answer)
    first = [answer for answer, cast in votes.items() if cast and cast == max(votes.values())]
    return Fraction(1, len(first)) if 1 in first else Fraction(0)


def best(answers: Any, scores: Any) -> Fraction:
    able = [(s, a) for a, s in zip(answers, scores, strict=True) if a]
    top = [a for s, a in able if s == max(able)[0]]
    return Fraction(top.count(1), len(top)) if top else Fraction(0)


def enumerated(rule: Any, answers: Any, scores: Any, k: int) -> float:
    """The mean of a rule over all k-subsets."""
    chosen = [*itertools.combinations(range(len(answers)), k)]
    values = [rule(*([of[i] for i in subset] for of in (answers, scores))) for subset in chosen]
    return float(sum(values) / len(values))


def small(rng: np.random.Generator, n: int) -> tuple[Any, Any]:
    """Answers and scores of one question, with ties of both."""
    return rng.integers(0, rng.integers(2, min(n, 5) + 2), n), rng.integers(0, 5, n) / 4


def test_all_are_what_enumeration_in_fractions_gives() -> None:
    rng = np.random.default_rng(1)
    for n in (1, 2, 3, 5, 6, 7, 7, 7, 8):
        answers, scores = small(rng, n)
        ballots = Ballots(answers[None], scores[None])
        for k in range(1, n + 1):
            close(scoring.cons_at_k([answers], k), enumerated(elected, answers, np.ones(n), k))
            found, error = scoring.weighted_cons_at_k(ballots, k)
            close(found, enumerated(elected, answers, scores, k))
            assert error == 0
            close(scoring.best_at_k(ballots, k), enumerated(best, answers, scores, k))


def test_stacks_ragged_questions_and_counts_are_means_of_their_questions() -> None:
    rng = np.random.default_rng(2)
    rows = [small(rng, n)[0].tolist() for n in (4, 7, 5)]
    each = [scoring.cons_at_k([row], 3) for row in rows]
    close(scoring.cons_at_k(ragged(rows), 3), np.mean(each))
    counts = Counts([[row.count(code) for code in range(7)] for row in rows])
    close(scoring.cons_at_k(counts, 3), np.mean(each))
    stack = rng.integers(0, 4, (2, 3, 6))
    close(scoring.cons_at_k(stack, 4), [scoring.cons_at_k(R, 4) for R in stack])
    ballots = Ballots(stack, rng.random(stack.shape))
    assert scoring.best_at_k(ballots, 2).shape == (2,)
    masked = np.ma.masked_array(stack, stack * 0 + np.arange(6) > 4)
    close(
        scoring.best_at_k(Ballots(masked, ballots.scores), 2),
        scoring.best_at_k(Ballots(stack[..., :5], np.asarray(ballots.scores)[..., :5]), 2),
    )


@pytest.mark.parametrize("k", [4, 12])
def test_sigma_is_that_of_repetitions(k: int) -> None:
    """Sampled anew from the shares that the bootstrap takes: scores with them for weights."""
    rng, N, M = np.random.default_rng(6), 12, 10
    shares = rng.dirichlet([3, 6, 4, 2, 1], M)
    drawn = [rng.choice(5, (60, N), p=p) for p in shares]
    R = np.stack(drawn, axis=1)  # (60, M, N)
    scores = np.where(R == 1, 0.2, 0) + rng.random(R.shape)
    arrays = {"answers": R, "confidence": scores, "verifier": scores}
    for name in (f"cons@{k}", f"cons-confidence@{k}", f"best-verifier@{k}"):
        metric = parse(name)
        values = metric.estimate(metric.given(arrays))
        few = {key: of[:4] for key, of in arrays.items()}
        sigma = metric.summary(metric.given(few)).sigma
        assert np.mean(sigma) == pytest.approx(values.std(), rel=0.35)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: scoring.cons_at_k([[0, 1, 9]], 1), "2 to N"),
        (lambda: scoring.cons_at_k([[0, 1, 2]], 4), "3 trials"),
        (lambda: scoring.best_at_k(Ballots([[1, 2]], [[0.5, np.nan]]), 1), "nan"),
        (lambda: scoring.weighted_cons_at_k(Ballots([[1, 2]], [[0.5, -1]]), 1), "-1"),
        (lambda: parse("cons@3").tables(8), "of 8"),
    ],
)
def test_what_cannot_be_is_refused(call: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        call()


# --- run folders -----------------------------------------------------------------------------

# Of q1 the gold answer is 2; 1/3 is written in three ways, of which one takes algebra.
SAID = {
    "q1": ["2", r"\frac13", r"\frac{2}{6}", "1/3", "2", "7", None, "2.0"],
    "q2": ["5", "x+1", "(x^2-1)/(x-1)", "x+1", "5", "5", "2", "2"],
}


def voted(root: Path, name: str = "a", *overrides: str, said: Any = None) -> Run:
    """A graded run with signals, whose attempts gave these answers."""
    said = SAID if said is None else said
    texts = {q: [rf"\boxed{{{x}}}" if x else "?" for x in line] for q, line in said.items()}
    run = make_run(
        root / "sums" / name,
        {q: "+" * len(line) for q, line in said.items()},
        "grading.workers=1",
        "dataset.name=sums",
        f"model.name={name}",
        *overrides,
        texts=texts,
    )
    stage.grade(run)
    return run


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    return voted(tmp_path_factory.mktemp("voted"))


def test_answers_are_classes_of_the_grader(run: Run) -> None:
    assert answers.classes_of(run).tolist() == [[1, 2, 2, 2, 1, 3, 0, 1], [2, 3, 3, 3, 2, 2, 1, 1]]


@pytest.mark.parametrize(
    ("kind", "texts", "codes"),
    [
        ("number", ["2", "$7.00", "7", "7.0", "8"], [1, 2, 2, 2, 3]),
        ("exact", ["2", "New  York", "New York.", "7", "7.0"], [1, 2, 2, 3, 4]),
        ("math", ["2", "New  York", "7", "7.0", "8"], [1, 4, 2, 2, 3]),
    ],
)
def test_answers_are_compared_as_their_kind_is(
    tmp_path: Path, kind: str, texts: list[str], codes: list[int]
) -> None:
    run = voted(tmp_path, kind, f"dataset.answer={kind}", said={"q1": texts})
    assert answers.classes_of(run).tolist() == [codes]


def test_score_shows_votes_and_says_what_they_lack(tmp_path: Path, capsys: Capsys) -> None:
    run = voted(tmp_path)
    asked = "scoring.metrics=[avg,cons@4,cons-confidence@8,best-verifier@2]"
    score(again(run, asked))
    told = capsys.readouterr()
    assert "Cons@4" in told.out and "signals" in told.err
    signals.make(run)
    score(again(run, asked))
    assert "best-verifier@2: left out" in capsys.readouterr().err.replace("\n", " ")
    certain = {"q1": [0.9, *[0.1] * 7], "q2": [0.9, 0.9, *[0.1] * 6]}
    keys = ((q, t, p) for q, line in certain.items() for t, p in enumerate(line))
    rows = [{"question_id": q, "trial": t, "a": p, "b": 0.0, "c": 1 - p} for q, t, p in keys]
    add_verdicts(run, rows)
    signals.make(run)
    score(again(run, asked))
    scores = json.loads((run.path / "scores.json").read_text())
    codes = answers.classes_of(run)
    close(scores["metrics"]["cons@4"]["value"], scoring.cons_at_k(codes, 4))
    # All attempts are equally confident: the vote of all is 1/2 of a tie, and lost.
    close(scores["metrics"]["cons-confidence@8"]["value"], 0.25)
    assert scores["metrics"]["cons-confidence@8"]["error"] == 0
    a = [certain["q1"], certain["q2"]]
    close(scores["metrics"]["best-verifier@2"]["value"], scoring.best_at_k(Ballots(codes, a), 2))
