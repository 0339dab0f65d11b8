"""import of lighteval's details: texts of a row are trials; several versions; what swells."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys
from record_files import bring, by_key, folders, opened, rows_of

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES


def detail(question: int, texts: list[str], value: float, **more: Any) -> dict[str, Any]:
    """A row of details in the layout of lighteval 0.13.0."""
    doc = {"query": f"Solve: {question}?", "choices": ["7", str(question)], "gold_index": 1}
    return {
        "doc": doc | {"original_query": None, "id": str(question), "instruction": None},
        "metric": {"pass@k:k=1": value, "avg@n:n=2": value},
        "model_response": {
            "text": texts,
            "input_tokens": [1, 2],
            "output_tokens": [[1] * len(text) for text in texts],
            "reasonings": ["Thinking.", None][: len(texts)],
            "logprobs": [],
        },
    } | more


def details(path: Path, rows: list[dict[str, Any]], marks: str = "") -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    rows = [{f"{marks}{name}{marks}": value for name, value in row.items()} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), path)
    return path


def test_details_of_lighteval(tmp_path: Path, capsys: Capsys) -> None:
    made, date = tmp_path / "details" / "Qwen" / "Qwen3-4B-Thinking-2507", "2026-11-01T10-00-00"
    rows = [detail(i, [f"\\boxed{{{i}}}"], float(i % 2)) for i in range(3)]
    for row in rows:
        del row["model_response"]["reasonings"]  # before version 0.11
    details(made / date / f"details_aime25|0_{date}.parquet", rows)
    details(made / "2026-10-01" / "details_lighteval|aime25|0_2026-10-01.parquet", rows, "__")
    several = [detail(i, [f"\\boxed{{{i}}}", "None."], 0.5) for i in range(3)]
    details(made / date / f"details_aime24_avg|0_{date}.parquet", several)
    (made / date / f"details_aime24|0_{date}.parquet").write_bytes(b"PAR1 and no more")
    runs = bring(tmp_path, tmp_path / "details")
    err = capsys.readouterr().err
    assert "10-01.parquet is older" in err and "1 damaged file" in err
    assert "3 samples of several answers with one value" in err
    assert "6 values of avg@n:n=2 left out: pass@k:k=1 counts, or metric=NAME\n" in err
    assert folders(runs) == ["aime24/qwen3-4b", "aime25/qwen3-4b"]
    run = opened(runs / "aime25" / "qwen3-4b")
    grades = {g["question_id"]: g["outcome"] for g in rows_of(run, "grades", GRADES)}
    assert grades == {"aime25-00": "wrong", "aime25-01": "correct", "aime25-02": "wrong"}
    assert [q["gold"] for q in run.questions] == ["0", "1", "2"]
    assert run.questions[1]["prompt"] == "Solve: 1?"
    run = opened(runs / "aime24" / "qwen3-4b")
    assert not run.grades.exists()
    attempts = by_key(run, "attempts", ATTEMPTS)
    assert attempts["aime24-02", 0]["text"] == r"Thinking.</think>\boxed{2}"
    assert [attempts["aime24-02", i]["completion_tokens"] for i in (0, 1)] == [9, 5]
    bring(tmp_path, tmp_path / "details")
    assert "nothing pending" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"no such value, but pass@k:k=1, avg@n:n=2"):
        bring(tmp_path / "b", tmp_path / "details", "metric=f1")


def test_lists_of_texts_that_unfold_are_bounded(tmp_path: Path) -> None:
    """A small file in which a row holds the same long text, many times over; and another's."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(2000, np.int32), ["x" * (1 << 20)])
    response = [pa.ListArray.from_arrays([0, 2000], texts), pa.nulls(1), pa.nulls(1)]
    response = pa.StructArray.from_arrays(response, ["text", "reasonings", "output_tokens"])
    doc = {"query": "q", "original_query": "q", "choices": ["1"], "gold_index": 0, "id": "0"}
    table = pa.table({"doc": [doc], "metric": [{"em": 1.0}], "model_response": response})
    path = tmp_path / "details_a_b.parquet"
    pq.write_table(table, path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(UserError, match="1 damaged row skipped"):
        bring(tmp_path, path)
    pq.write_table(pa.table({"doc": [1], "other": ["x"]}), path)
    with pytest.raises(UserError, match="has no usable record"):
        bring(tmp_path, path, "kind=lighteval")
