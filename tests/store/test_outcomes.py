"""Outcomes, lengths and what attempts took: read as they were written, and counted by hand."""

from pathlib import Path

import numpy as np
import pytest
from helpers import change_attempts, make_run

from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.outcomes import BOXES, CORRECT, PENDING, WRONG

MARKS = {"a": "10-~", "b": "ut(.", "c": "+1"}


def test_outcomes_and_boxes_are_those_of_the_grades(tmp_path: Path) -> None:
    found = outcomes.read(make_run(tmp_path, MARKS, gold={"b": "3"}))
    assert found.question_ids == ["a", "b", "c"] and len({*found.hashes}) == 3
    assert outcomes.words(found.codes).tolist() == [
        ["correct", "wrong", "no_answer", "no_answer"],
        ["unparsable", "timeout", "no_answer", "pending"],
        ["pending", "correct", "pending", "pending"],
    ]
    boxed, no_box, unclosed, truncated = range(len(BOXES))
    assert found.boxes.tolist() == [
        [boxed, boxed, no_box, truncated], [boxed, boxed, unclosed, -1], [-1, boxed, -1, -1]
    ]  # fmt: skip
    assert found.truncated.tolist() == [[0, 0, 0, 1], [0, 0, 0, -1], [-1, 0, -1, -1]]
    assert (found.ruled == found.codes).all() and found.codes.dtype == np.int8
    assert found.judged is None and found.deciders() == {}
    assert found.matrix.filled(9).tolist() == [[1, 0, 0, 0], [0, 0, 0, 9], [9, 1, 9, 9]]


def test_who_decided_is_counted(tmp_path: Path) -> None:
    """Of what a verifier decides, what the rules would not have accepted, and would have."""
    r, w, p = CORRECT, WRONG, PENDING
    codes = np.array([[r, r, w, w, w, p, p], [r, w, p, w, r, p, p]], np.int8)
    ruled = np.array([[r, w, r, w, w, r, w], [r, w, p, r, w, p, p]], np.int8)
    judged = np.array([[True] * 7, [False] * 7])
    found = outcomes.Outcomes(["a", "b"], ["x", "y"], codes, codes * 0, ruled, judged)
    counts = {"rule": 4, "verifier": 5, "accepted": 2, "rejected": 1, "pending": 2}
    assert found.deciders() == counts
    run = make_run(tmp_path, {"a": "1"}, "dataset.judge=all", "verifier=demo")
    line = outcomes.deciders_line(run, found)
    assert f"verifier {run.cfg.verifier.name}: 5" in line and "rule grader: 4" in line
    assert "accepts 2" in line and "rejects 1" in line and "; 2 " in line
    pending = found._replace(codes=np.where(codes == PENDING, np.int8(WRONG), codes))
    assert ";" not in outcomes.deciders_line(run, pending)
    assert outcomes.deciders_line(run, found._replace(judged=None)) == ""


def test_what_attempts_took(tmp_path: Path) -> None:
    """Three tokens of prompt and five of completion each; one attempt does not say its own."""
    run = make_run(tmp_path, {"a": "11", "b": "01"}, "engine.price_in=2", "engine.price_out=4")
    took = outcomes.usage(run)
    assert took[:5] == (4, 12, 20, 4, 4) and (took.prompt_mean, took.completion_mean) == (3, 5)
    assert took.price == pytest.approx((12 * 2 + 20 * 4) / 1e6)
    assert outcomes.usage(run, ["b"])[:3] == (2, 6, 10)
    run.cfg.sampling.trials = 1
    assert outcomes.usage(run)[:3] == (2, 6, 10)
    run.cfg.sampling.trials = 2
    change_attempts(run, lambda r: r | {"completion_tokens": [None, 7][r["trial"]]})
    took = outcomes.usage(run)
    assert took[:5] == (4, 12, 14, 4, 2) and (took.completion_mean, took.price) == (7, None)
    change_attempts(run, lambda row: row | {"completion_tokens": None, "prompt_tokens": None})
    took = outcomes.usage(run)
    assert took[:5] == (4, 0, 0, 0, 0) and took.prompt_mean is took.completion_mean is None


def test_lengths_and_up_to_which_limit_they_tell(tmp_path: Path) -> None:
    """Rooms of eight tokens; two attempts cut at their room, one below it, one says nothing."""
    run = make_run(tmp_path, {"a": "11", "b": "1."}, "sampling.max_tokens=20")
    told = {("a", 0): (8, "length"), ("a", 1): (6, None), ("b", 0): (8, "stop")}

    def read() -> outcomes.Lengths:
        def tell(row: dict[str, object]) -> dict[str, object]:
            n, end = told[row["question_id"], row["trial"]]  # type: ignore[index]
            return row | {"completion_tokens": n, "finish_reason": end}

        change_attempts(run, tell)
        return outcomes.lengths(run)

    found = read()
    assert found.tokens.tolist() == [[8, 6], [8, -1]] and found.limits.tolist() == [8, 8]
    assert found.cut.tolist() == [[True, False], [False, False]]
    assert (found.known, found.guessed) == (20, 1)
    told["a", 1], told["b", 0] = (6, "length"), (8, None)
    found = read()
    assert found.cut.tolist() == [[True, True], [True, False]]
    assert (found.known, found.guessed) == (6, 0)
    told.update(dict.fromkeys(told, (3, "stop")))
    assert read().known == np.inf
    told["a", 0] = (None, None)  # type: ignore[assignment]
    assert read().guessed == 0 and outcomes.lengths(run, ["b"]).tokens.tolist() == [[3, -1]]
