"""signals on run folders made by hand, against plain Python over the same rows."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import add_attempts, digests, make_run
from hypothesis import given
from hypothesis import strategies as st

from bayes_at_n.pipeline.base.errors import DamagedData, UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.rubrics import signals, signals_table
from bayes_at_n.pipeline.rubrics.signals import bits_per_token
from bayes_at_n.pipeline.store import parquet
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, QUESTIONS, SIGNALS, VERDICTS, digest
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


def rewrite(path: Path, columns: pa.Schema, change: Any) -> None:
    rows = parquet.read_table(path, columns)
    parquet.write_part(path, pa.Table.from_pylist([change(row) for row in rows], columns))


def made(folder: Path, marks: dict[str, str] = MARKS) -> Run:
    run = make_run(folder, marks)

    def logprobs(row: dict[str, Any]) -> dict[str, Any]:
        found = LOGPROBS[row["question_id"], row["trial"]]
        row |= {"logprobs": found, "completion_tokens": len(found or []) or 4096}
        held[row["question_id"], row["trial"]] = digest(row)
        return row | {"digest": digest(row)}

    def of(row: dict[str, Any]) -> dict[str, Any]:
        return row | {"digest": held[row["question_id"], row["trial"]]}

    held: dict[tuple[str, int], int] = {}
    rewrite(run.attempts / "00000.parquet", ATTEMPTS, logprobs)
    rewrite(run.grades / "00000.parquet", GRADES, of)
    rewrite(
        folder / "questions.parquet",
        QUESTIONS,
        lambda row: row | {"prompt_logprobs": PROMPTS[row["question_id"]]},
    )
    return Run(run.cfg)


def judge(run: Run, keys: list[tuple[str, int]], part: str = "v0") -> None:
    held = digests(run)
    rows = [
        dict.fromkeys(VERDICTS.names)
        | {"question_id": q, "trial": t, "a": 0.1 * t, "b": 0.25, "c": 0.75 - 0.1 * t}
        | {"digest": held[q, t]}
        for q, t in keys
    ]
    table = pa.Table.from_pylist(rows, VERDICTS)
    parquet.write_part(run.path / "verdicts" / f"{part}.parquet", table)


def rows(run: Run) -> dict[tuple[str, int], dict[str, Any]]:
    found = signals_table.current(run)
    assert found.schema.equals(SIGNALS)
    return {(row["question_id"], row["trial"]): row for row in found.to_pylist()}


def mean_bits(values: list[float] | None) -> float | None:
    kept = [-value / math.log(2) for value in values or [] if math.isfinite(value)]
    return math.fsum(kept) / len(kept) if kept else None


def test_the_nine_signals_of_every_attempt(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "run")
    judge(run, [(q, t) for q in MARKS for t in range(4)])
    signals.signals(run)
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
    said = capsys.readouterr().err
    assert "4 log-probs" in said
    assert "1 prompt log-probs" in said
    zero = found["q2", 1]["completion_bpt"]
    assert zero == 0 and math.copysign(1, zero) == 1


def test_what_was_made_is_not_made_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "run")
    signals.signals(run)
    before = signals_table.path(run).stat().st_mtime_ns
    signals.signals(Run(run.cfg))
    assert "nothing owed" in capsys.readouterr().err
    assert signals_table.path(run).stat().st_mtime_ns == before


def test_new_grades_and_verdicts_are_joined_without_reading_log_probs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = made(tmp_path / "run")
    signals.signals(run)
    before = rows(run)

    def refuse(*_: Any) -> None:
        raise AssertionError("log-probs were read again")

    monkeypatch.setattr(signals, "_measured", refuse)
    rewrite(
        run.grades / "00000.parquet",
        GRADES,
        lambda row: row | {"outcome": "correct" if row["outcome"] == "wrong" else "wrong"},
    )
    with pytest.raises(UserError, match="older than the run's grades"):
        signals_table.current(run)
    judge(run, [("q1", 1)])
    signals.signals(run)
    after = rows(run)
    for key, row in after.items():
        same = {k: v for k, v in row.items() if k not in ("is_correct", "a", "b", "c")}
        assert same == {k: before[key][k] for k in same}
        assert row["is_correct"] == (MARKS[key[0]][key[1]] == "0")
        assert (row["c"] is not None) == (key == ("q1", 1))


def test_new_attempts_are_owed_and_an_ungraded_one_is_null(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path / "run", {"q1": "10", "q2": "1."}, "sampling.trials=3")
    signals.signals(run)
    assert len(rows(run)) == 3
    add_attempts(run, {"q2": ".+1"}, part="00001")
    signals.signals(run)
    found = rows(run)
    assert len(found) == 5 and found["q2", 2]["is_correct"] is True
    assert found["q2", 1]["is_correct"] is None and found["q2", 1]["has_box"] is None
    assert found["q2", 1]["completion_bpt"] == pytest.approx(0.5 / math.log(2))
    assert "1 of 5 attempts" in capsys.readouterr().err


def test_a_copied_run_folder_is_current(tmp_path: Path) -> None:
    import shutil

    from bayes_at_n.pipeline.config.folder import load_folder

    run = made(tmp_path / "run")
    signals.signals(run)
    shutil.copytree(run.path, tmp_path / "copy", copy_function=shutil.copyfile)
    assert len(rows(Run(load_folder(tmp_path / "copy", [])))) == 8


def test_a_damaged_table_is_made_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = made(tmp_path / "run")
    signals.signals(run)
    whole = rows(run)
    path = signals_table.path(run)
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="no signals yet"):
        signals_table.current(run)
    signals.signals(run)
    assert rows(run) == whole and "unreadable" in capsys.readouterr().err
    pq.write_table(pa.table({"x": [1]}), path)
    signals.signals(run)
    assert rows(run) == whole


def test_damaged_attempts_are_set_aside_and_owed_again(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    [part] = run.attempts.glob("*.parquet")
    file = pq.ParquetFile(part)
    column = file.metadata.row_group(0).column(file.schema_arrow.names.index("logprobs"))
    data = bytearray(part.read_bytes())
    data[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
    part.write_bytes(data)
    with pytest.raises(DamagedData, match="owed again"):
        signals.signals(run)
    assert not signals_table.path(run).exists()
    with pytest.raises(UserError, match="no attempts yet"):
        signals.signals(run)


def test_a_run_without_attempts_or_grades_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="pipeline generate"):
        signals.signals(make_run(tmp_path / "a", {"q": ".."}))
    with pytest.raises(UserError, match="pipeline grade"):
        signals.signals(make_run(tmp_path / "b", {"q": "++"}))
    run = make_run(tmp_path / "c", {"q": "11"})
    (run.path / "questions.parquet").unlink()
    with pytest.raises(UserError, match="not prepared yet"):
        signals.signals(Run(run.cfg))


def test_a_folder_that_cannot_be_written_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = made(tmp_path / "run")
    (run.path / "signals").write_text("in the way")
    assert main(["signals", str(run.path)]) == 1
    last = capsys.readouterr().err.splitlines()[-1]
    assert str(run.path / "signals") in last and "move the file" in last


def test_the_table_reads_as_plain_parquet_and_says_its_sources(tmp_path: Path) -> None:
    run = made(tmp_path / "run")
    signals.signals(run)
    table = pq.read_table(signals_table.path(run))
    assert table.schema.names == SIGNALS.names
    told = json.loads(table.schema.metadata[b"sources"])
    assert set(told) == {"attempts", "questions", "grades", "verdicts", "judge"}
    assert told["verdicts"] is None and told["judge"] is None


@given(
    st.lists(
        st.none()
        | st.lists(st.floats(-80, 0, width=32) | st.sampled_from([-INF, INF, NAN]), max_size=6),
        max_size=8,
    ),
    st.booleans(),
)
def test_bits_per_token_is_the_mean_over_finite_log_probs(
    lists: list[list[float] | None], skip_first: bool
) -> None:
    found, left_out = bits_per_token(pa.array(lists, pa.list_(pa.float32())), skip_first)
    kept = [(values or [])[skip_first:] for values in lists]
    expected = [mean_bits(values) for values in kept]
    assert found.tolist() == pytest.approx(
        [NAN if e is None else e for e in expected], rel=1e-9, abs=1e-12, nan_ok=True
    )
    assert left_out == sum(not math.isfinite(v) for values in kept for v in values)


def test_a_sliced_list_column_is_read_from_its_offsets() -> None:
    column = pa.array([[-9.0], [-1.0, -3.0], None, [-2.0]], pa.list_(pa.float32())).slice(1)
    found, _ = bits_per_token(column)
    assert (found * math.log(2)).tolist() == pytest.approx([2.0, NAN, 2.0], nan_ok=True)
