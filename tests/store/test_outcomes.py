"""Outcomes, lengths and what attempts took: read as they were written, and counted by hand."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, add_verdicts, change_attempts, make_run

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.verifier import template_file
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.columns import KEY, VERDICTS
from bayes_at_n.pipeline.store.outcomes import BOXES, CORRECT, PENDING, WRONG
from bayes_at_n.pipeline.store.provenance import short_hash
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.store.tables import Stale, parts

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
    assert "verifier demo: 5" in line and "rule grader: 4" in line
    assert "accepts 2" in line and "rejects 1" in line and "; 2 " in line
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


def decided(run: Run, *names: str) -> list[tuple[Any, ...]]:
    rows = outcomes.graded(run, names).sort_by("trial").select(["outcome", *names])
    return [*zip(*rows.to_pydict().values(), strict=True)]


def test_verdicts_decide_what_the_settings_say(tmp_path: Path) -> None:
    """The rules find 1-0~ and one is pending; verdicts are B, C, A, and A of a truncated one."""
    run = make_run(tmp_path, {"a": "1-0~."}, "dataset.judge=all", "verifier=demo")
    rows = [
        {"question_id": "a", "trial": trial, "label": label} for trial, label in enumerate("BCAA")
    ]
    add_verdicts(run, rows)
    assert decided(run) == [("wrong",), ("no_answer",), ("correct",), ("no_answer",)]
    [first, *_, last] = decided(run, "layer", "reason")
    assert first[1] == "verifier" and first[2].startswith("verifier: B; rule grader: correct, ")
    assert last[1] != "verifier" and not last[2].startswith("verifier")
    found = outcomes.read(run)
    assert found.judged is not None and found.judged.tolist() == [[1, 1, 1, 0, 0]]
    settings = outcomes.judge_settings(run)
    assert settings and settings["judge"] == "all" and settings["id"] == run.cfg.verifier.id
    run.cfg.dataset.judge = "unmatched"
    assert decided(run)[0] == ("correct",)
    shutil.rmtree(run.path / "verdicts")
    assert outcomes.graded(run, quiet=True)["outcome"].null_count == 2
    with pytest.raises(UserError, match="2 attempts wait"):
        outcomes.graded(run)
    run.cfg.dataset.judge = None
    assert outcomes.judge_settings(run) is None and decided(run)[2] == ("wrong",)


def test_points_of_a_judge_that_writes(tmp_path: Path) -> None:
    run = make_run(tmp_path, {"a": "1-0"}, "dataset.judge=all", "verifier=judge-proof")
    votes = [("3", 3, ["3", "", "4"]), ("U", None, []), ("7", 7, ["7"])]
    rows = [{"label": n, "points": p, "votes": v} for n, p, v in votes]
    add_verdicts(run, [{"question_id": "a", "trial": t, **row} for t, row in enumerate(rows)])
    said = [reason.partition(";")[0] for _, reason in decided(run, "reason")]
    assert said == ["verifier: 3  4 of 7 points", "verifier: undecided", "verifier: 7 of 7 points"]
    assert outcomes.read(run).matrix.tolist() == [[3, None, 7]]
    run.cfg.dataset.judge = "unmatched"  # the rules' own correct one has all points
    assert outcomes.read(run).matrix.tolist() == [[7, None, 7]]


def test_stale_verdicts_do_not_count(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path, {"a": "1-"}, "dataset.judge=all", "verifier=demo")
    add_verdicts(run, [{"question_id": "a", "trial": 0, "label": "B"}])
    [part] = parts(run.attempts)
    rows = outcomes.read_verdicts(run, [n for n in VERDICTS.names if n not in KEY]).table
    inputs = outcomes.verdict_inputs(run, of_grades=True)
    template = template_file(inputs["request"]["prompt"]).read_text().rstrip("\n")
    inputs["template"] = short_hash(template)
    outcomes.VERDICTS_TABLE.write(run.path, part.stem, rows, inputs, part.mark)
    assert outcomes.verdicts_made_of(run) == inputs and outcomes.stale(run) == {}
    assert outcomes.read_verdicts(run, ["label"]).table["label"].to_pylist() == ["B"]
    run.cfg.verifier.temperature = 9
    assert [*outcomes.stale(run)] == [run.path / "verdicts" / f"{part.stem}.parquet"]
    with pytest.raises(Stale):
        outcomes.read_verdicts(run, ["label"])
    hidden, warned = (outcomes.read_verdicts(run, ["label"], how) for how in ("hide", "warn"))
    assert (len(hidden.table), hidden.pending, warned) == (0, 0, hidden)
    assert "temperature" in capsys.readouterr().err
