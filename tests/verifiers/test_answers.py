"""The rule grader against cases made to break it, and the readers of `benchmarks.answers`."""

import json

import pytest

from bayes_at_n.verifiers import Asked, compare, find, grade
from benchmarks import answers, made_answers

FAMILIES = answers.ADVERSARIAL.with_name("families.jsonl")  # golds, wrong and right answers


def test_families_of_wrong_and_right_answers() -> None:
    """What is wrong is not accepted the other way round, either."""
    rows = [json.loads(line) for line in FAMILIES.read_text("utf-8").splitlines()]
    wrong, right = ([(r["gold"], a) for r in rows for a in r[side]] for side in ("wrong", "right"))
    grades = grade([*wrong, *right], workers=2, timeout_s=60)
    assert [pair for pair in wrong if grades[pair].outcome == "correct"] == []
    assert [pair for pair in right if grades[pair].outcome != "correct"] == []
    assert [pair for pair in wrong if compare(*pair[::-1])] == []


def test_no_cheap_layer_accepts_an_adversarial_answer() -> None:
    cases = answers.adversarial()
    assert len([case for case in cases if not case.expected]) > 990
    accepted = [case for case in cases if not case.expected and _cheap(case)]
    assert not accepted


def test_no_cheap_layer_accepts_a_near_miss_and_most_rewritings_pass() -> None:
    right, wrong = made_answers.pairs(60, seed=5)
    assert not [pair for pair in wrong if compare(*pair[1:])]
    assert not [pair for pair in right if compare(*pair[1:]) is False]


@pytest.mark.soak
def test_adversarial_and_generated_answers() -> None:
    cases = answers.adversarial() + answers.generated(1_000, seed=6)
    accepted = answers.ours(cases)
    wrong = [c for c, said in zip(cases, accepted, strict=True) if said and not c.expected]
    assert not wrong
    rewritings = [
        bool(said) for case, said in zip(cases, accepted, strict=True) if case.set == "rewritings"
    ]
    assert sum(rewritings) >= answers.LEAST_RIGHT * len(rewritings)


def _cheap(case: answers.Case) -> bool | None:
    answer = find(case.completion, truncated=False, asked=Asked(gold=case.gold)).answer
    return answer is not None and compare(case.gold, answer)
