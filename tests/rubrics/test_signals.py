"""Signals of run folders made by hand, against plain Python over the same rows."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import Capsys, add_attempts, add_verdicts, change_attempts, make_run
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.rubrics.signals import bits_per_token
from bayes_at_n.pipeline.store import shards
from bayes_at_n.pipeline.store.columns import QUESTIONS, SIGNALS
from bayes_at_n.pipeline.store.runfolder import Run

MARKS = {"q1": "110-", "q2": "0~t1"}
INF, NAN = math.inf, math.nan
LOGPROBS: dict[tuple[str, int], list[float] | None] = {
    ("q1", 0): [-0.5, -1.5, -0.25],
    ("q1", 1): [-INF, -1.0, NAN, -3.0],
    ("q1", 2): [],
    ("q1", 3): None,
    ("q2", 0): [-INF, -INF],
    ("q2", 1): [0.0, 0.0],
    ("q2", 2): [-2.0],
    ("q2", 3): [-0.125] * 1000,
}
PROMPTS = {"q1": [NAN, -1.0, -2.0, -INF], "q2": [NAN]}


def made(folder: Path) -> Run:
    """A run with these log-probs, without verdicts."""
    run = make_run(folder, MARKS)

    def with_logprobs(row: dict[str, Any]) -> dict[str, Any]:
        found = LOGPROBS[row["question_id"], row["trial"]]
        return row | {"logprobs": found, "completion_tokens": len(found or []) or 4096}

    change_attempts(run, with_logprobs)
    questions = [row | {"prompt_logprobs": PROMPTS[row["question_id"]]} for row in run.questions]
    path = folder / "questions.parquet"
    shards.write_part(path, pa.Table.from_pylist(questions, QUESTIONS))
    return Run(run.cfg)


def judge(run: Run, keys: list[tuple[str, int]]) -> None:
    names = ("question_id", "trial", "a", "b", "c")
    rows = [(q, t, 0.1 * t, 0.25, 0.75 - 0.1 * t) for q, t in keys]
    add_verdicts(run, [dict(zip(names, row, strict=True)) for row in rows])


def rows(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    found = signals.read(run)
    assert found.schema.equals(SIGNALS)
    return {(row["question_id"], row["trial"]): row for row in found.to_pylist()}


def mean_bits(values: list[float] | None) -> float | None:
    kept = [-value / math.log(2) for value in values or [] if math.isfinite(value)]
    return math.fsum(kept) / len(kept) if kept else None


def test_the_nine_signals_of_every_attempt(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    judge(run, [(q, t) for q in MARKS for t in range(4)])
    signals.make(run)
    found = rows(run)
    assert list(found) == [(q, t) for q in MARKS for t in range(4)]
    for (q, t), row in found.items():
        mark, logprobs = MARKS[q][t], LOGPROBS[q, t]
        assert row["has_box"] == (mark not in "-~")
        assert row["is_correct"] == (mark == "1")
        assert row["repeated_pattern"] == (mark == "~")
        assert row["token_ratio"] == np.float32((len(logprobs or []) or 4096) / 32768)
        bits = mean_bits(logprobs)
        assert row["completion_bpt"] == (None if bits is None else pytest.approx(bits, rel=1e-6))
        prompt = mean_bits(PROMPTS[q][1:])
        assert row["prompt_bpt"] == (None if prompt is None else pytest.approx(prompt, rel=1e-6))
        assert row["a"] == pytest.approx(0.1 * t) and row["b"] == 0.25
    zero = found["q2", 1]["completion_bpt"]
    assert zero == 0 and math.copysign(1, zero) == 1


def test_new_attempts_are_pending(tmp_path: Path, capsys: Capsys) -> None:
    run = make_run(tmp_path / "run", {"q1": "10", "q2": "1."}, "sampling.trials=3")
    with pytest.raises(UserError, match="pipeline categorize"):
        rows(run)
    signals.make(run)
    assert len(rows(run)) == 3
    add_attempts(run, {"q2": ".+1"}, part="00001")
    assert len(rows(run)) == 3 and "2 attempts are pending" in capsys.readouterr().err
    signals.make(run)
    found = rows(run)
    assert len(found) == 5 and found["q2", 2]["is_correct"] is True
    assert found["q2", 1]["is_correct"] is None and found["q2", 1]["has_box"] is None
    assert found["q2", 1]["completion_bpt"] == pytest.approx(0.5 / math.log(2))


@given(
    st.lists(
        st.none()
        | st.lists(st.floats(-80, 0, width=32) | st.sampled_from([-INF, INF, NAN]), max_size=6),
        max_size=8,
    ),
    st.booleans(),
)
def test_bits_per_token_are_a_mean(lists: list[list[float] | None], skip_first: bool) -> None:
    found = bits_per_token(pa.array(lists, pa.list_(pa.float32())), skip_first)
    kept = [(values or [])[skip_first:] for values in lists]
    expected = [mean_bits(values) for values in kept]
    assert found.tolist() == pytest.approx(
        [NAN if e is None else e for e in expected], rel=1e-9, abs=1e-12, nan_ok=True
    )
