"""import of Parquet as columns: every layout of the authors, damage, what swells; as of JSON."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys, outcome_words
from record_files import (
    NAMES,
    bring,
    by_key,
    csv_of,
    folders,
    opened,
    records,
    rows_of,
    write,
    write_lines,
)

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.records import runs as imported_runs
from bayes_at_n.pipeline.records.columns import MOST_TEXT
from bayes_at_n.pipeline.records.runs import dataset_name
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, MEANS, VERDICTS

LOW = "gpt-oss-20b_low"


def lite(task: str, question: int, seed: int, **more: Any) -> dict[str, Any]:
    """A row as the notebooks of scorio-lite and scorio-math print it (bayes-kit, 25e105f)."""
    right = seed % 2
    top = [[{"token": "a", "token_id": 1, "logprob": -0.5, "rank": 1}]] * 2
    return {
        "task": task,
        "model": "openai/gpt-oss-20b",
        "model_key": LOW,
        "data_id": question,
        "seed": seed,
        "prompt": f"Problem {question}?",
        "trigger": "Put it in a box.",
        "sampling": {"temperature": 1.0, "top_p": 1.0, "n": 80},
        "text": rf"So \boxed{{{question + right}}}",
        "finish_reason": "stop",
        "num_prompt_tokens": 21,
        "num_completion_tokens": 2,
        "ground_truth": str(question + 1),
        "schema_version": "2",
        "evalscope_extracted_answer": str(question + right),
        "evalscope_is_correct": right,
        "extracted_answer": str(question + right),
        "has_box": True,
        "cv3b_label": "A",
        "cv3b_abc_A": 0.5,
        "cv3b_abc_B": 0.25,
        "cv3b_abc_C": 0.25,
        "cv3b_ctx_A": 0.75,
        "cv3b_ctx_B": 0.125,
        "cv3b_ctx_C": 0.125,
        "llmv_model": "m",
        "tokens": {
            "prompt_avg_logprob": -2.0,
            "prompt_logprob_list": [None, -2.0],
            "completion_avg_logprob": -0.25,
            "completion_logprob_list": [-0.5, 0.0],
            "completion_rank_list": [1, 1],
            "completion_token_list": ["So", " x"],
            "completion_topk_logprobs_list": top,
        },
    } | more


def test_scorio_math_and_lite(tmp_path: Path, capsys: Capsys) -> None:
    tasks = ("hmmt_feb_2026", "hmmt_nov_2025", "cmimc_2025", "smt_2025")
    assert [dataset_name(t) for t in tasks] == ["hmmt26", "hmmt-nov25", "cmimc25", "smt25"]
    rows = [lite("aime_2026", q, s) for q in range(2) for s in range(3)]
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows, group=3))
    assert folders(runs) == ["aime26/gpt-oss-20b-low"]
    err = capsys.readouterr().err
    [line] = [line for line in err.splitlines() if "columns not imported" in line]
    for name in ("sampling", "trigger", "llmv_model", "tokens.completion_topk_logprobs_list"):
        assert name in line
    assert "1 column left out" in err and "completion_token_list" in err  # texts of tokens
    run = opened(runs / "aime26" / "gpt-oss-20b-low")
    assert outcome_words(run).tolist() == [["wrong", "correct", "wrong"]] * 2
    assert [q["question_id"] for q in run.questions] == ["aime26-01", "aime26-02"]
    attempts = rows_of(run, "attempts", ATTEMPTS)
    assert {(row["trial"], row["seed"]) for row in attempts} == {(0, 0), (1, 1), (2, 2)}
    assert attempts[0]["logprobs"] == [-0.5, 0.0] and attempts[0]["token_ids"] is None
    verdicts = rows_of(run, "verdicts", VERDICTS)
    assert {(v["a"], v["direct_a"], v["label"]) for v in verdicts} == {(0.75, 0.5, "A")}
    assert {tuple(m.values())[2:4] for m in rows_of(run, "means", MEANS)} == {(-2.0, -0.25)}


def test_scorio_gpqa_is_multiple_choice(tmp_path: Path) -> None:
    """Its data_id is of a stage only, full_data_id of all; answers are letters."""
    rows = [
        lite("super_gpqa", 0, s, full_data_id=q, uuid=f"u{q}", field="Law", difficulty="hard")
        | {"text": f"Answer: ({'AC'[s]})", "ground_truth": "C", "extracted_answer": "AC"[s]}
        for q in (0, 50)
        for s in (0, 1)
    ]
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    run = opened(runs / "supergpqa" / "gpt-oss-20b-low")
    assert (run.cfg.dataset.name, run.cfg.dataset.answer) == ("supergpqa", "choice")
    assert [q["question_id"] for q in run.questions] == ["supergpqa-00", "supergpqa-50"]
    grade(run)
    assert outcome_words(run).tolist() == [["wrong", "correct"]] * 2


def arena(question: int, trial: int, right: Any, **more: Any) -> dict[str, Any]:
    """A row of a dataset MathArena/*_outputs, in the order of its card."""
    answer = str(question) if right else "None"
    return {
        "problem_idx": str(question),
        "problem": f"Problem {question}?",
        "model_name": "o4-mini (high)",
        "model_config": "openai/o4-mini--high",
        "idx_answer": trial,
        "all_messages": [{"role": "user", "content": "q", "type": None}],
        "user_message": f"Box it.\n\nProblem {question}?",
        "answer": rf"So it is \boxed{{{answer}}}.",
        "input_tokens": 100,
        "output_tokens": 2000,
        "cost": 0.01,
        "gold_answer": str(question),
        "parsed_answer": answer,
        "correct": right,
    } | more


def test_outputs_of_matharena(tmp_path: Path) -> None:
    rows = [arena(q, t, (q + t) % 2 == 0) for q in (1, 2, 3) for t in (0, 1)]
    rows += [arena(1, t, False, model_name="other", model_config="x/other") for t in (0, 1)]
    source = write(tmp_path / "hmmt_feb_2025_outputs" / "train-00000-of-00001.parquet", rows)
    made = bring(tmp_path, source, "dataset=hmmt25")
    assert sorted(p.name for p in (made / "hmmt25").iterdir()) == ["o4-mini-high-b0c15b", "other"]
    run = opened(made / "hmmt25" / "o4-mini-high-b0c15b")
    assert [q["question_id"] for q in run.questions] == ["hmmt25-01", "hmmt25-02", "hmmt25-03"]
    first = run.questions[0]
    assert (first["problem"], first["gold"]) == ("Problem 1?", "1")
    assert first["prompt"] == "Box it.\n\nProblem 1?"
    assert (outcome_words(run) == "correct").tolist() == [[0, 1], [1, 0], [0, 1]]
    attempt = rows_of(run, "attempts", ATTEMPTS)[0]
    assert attempt["text"] == r"So it is \boxed{None}."
    assert (attempt["prompt_tokens"], attempt["completion_tokens"]) == (100, 2000)
    answers = {key: g["answer"] for key, g in by_key(run, "grades", GRADES).items()}
    assert (answers["hmmt25-01", 0], answers["hmmt25-01", 1]) == (None, "1")


ODD: list[dict[str, Any]] = [
    {},
    {"seed": None, "reason": "because", "text": ""},
    {"extracted_answer": "x" * 100_001, "finish_reason": "y" * 101},
    {"num_completion_tokens": -1, "completion_avg_logprob": math.nan},
    {"num_completion_tokens": 1 << 40, "completion_avg_logprob": -math.inf},
    {"has_box": False, "extracted_answer": "NotFound", "is_correct": "wrong"},
    {"has_box": False, "finish_reason": "length", "is_correct": "timeout"},
    {"cv3b_ctx_A": 0.5, "cv3b_ctx_B": 0.75, "cv3b_ctx_C": -0.25},
    {"cv3b_ctx_B": None, "prompt_avg_logprob": None},
    {"data_id": "no\nquestion", "ground_truth": "9"},
    {"data_id": None, "is_correct": "perhaps"},
    {"is_correct": "perhaps", "ground_truth": "['7', '7']", "data_id": "I-3"},
    {"completion_logprob_list": [-1.0, None], "completion_token_list": [1, None]},
    {"completion_logprob_list": [], "completion_token_list": [5, 1 << 40], "text": '²\\"\n\t'},
    {"finish_reason": "é" * 60, "extracted_answer": "é" * 60_000},  # longer in bytes
]


def odd(i: int, more: dict[str, Any]) -> dict[str, Any]:
    row = lite("mine", i % 2, 7 + i) | {"data_id": str(i % 2)}
    row |= {name: None for name in ("completion_logprob_list", "completion_token_list")}
    row |= {"is_correct": "true"}
    row |= {"prompt_avg_logprob": -2.0, "completion_avg_logprob": -1.0, "reason": None}
    return {key: value for key, value in (row | more).items() if key not in ("tokens", "sampling")}


def test_a_value_means_the_same_in_parquet_and_json(tmp_path: Path, capsys: Capsys) -> None:
    rows = [odd(i, more) for i, more in enumerate(ODD)]
    read = []
    for source in (
        write(tmp_path / "x.parquet", rows, group=4),
        write_lines(tmp_path / "x.jsonl", rows),
    ):
        run = opened(bring(tmp_path / source.suffix, source) / "mine" / "gpt-oss-20b-low")
        tables = {"attempts": ATTEMPTS, "grades": GRADES, "verdicts": VERDICTS, "means": MEANS}
        made = {
            name: sorted(map(repr, rows_of(run, name, columns))) for name, columns in tables.items()
        }
        questions = [{k: q[k] for k in ("question_id", "gold", "prompt")} for q in run.questions]
        left_out = json.loads((run.path / "manifest.json").read_text())["imported"]["left_out"]
        plain = [line.replace("x.jsonl, line", "x.parquet, row") for line in left_out]
        numbers = sorted(line.split(":")[0] for line in plain)
        read.append((made, questions, numbers))
    assert read[0] == read[1]
    assert "3 damaged rows skipped" in capsys.readouterr().err
    assert any("1 value of finish_reason left out" in line for line in read[0][2])


def test_damaged_parquet_is_counted_named_and_skipped(tmp_path: Path, capsys: Capsys) -> None:
    folder = tmp_path / "in"
    sound = write(folder / "a.parquet", records(questions=2))
    whole = write(folder / "b.parquet", records(("aime24",)), group=5)
    data = bytearray(whole.read_bytes())
    group = pq.ParquetFile(whole).metadata.row_group(1)
    [column] = [
        group.column(i)
        for i in range(group.num_columns)
        if group.column(i).path_in_schema == "text"
    ]
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 60] = b"\xff" * 60
    whole.write_bytes(data)
    (folder / "c.parquet").write_bytes(sound.read_bytes()[:-400])
    runs = bring(tmp_path, folder)
    err = capsys.readouterr().err
    assert "1 damaged file, of which the rest is skipped: c.parquet" in err
    assert "5 damaged rows skipped: b.parquet, 5 rows of group 1" in err
    run = opened(runs / "aime24" / "qwen3-4b")
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 15  # of the groups around it
    assert json.loads((run.path / "manifest.json").read_text())["imported"]["left_out"]


def small(**more: Any) -> dict[str, Any]:
    two = {"task": ["aime25"] * 2, "model": ["m/x"] * 2, "data_id": [0, 1]}
    return two | {"is_correct": [True, False]} | more


def test_parquet_of_odd_columns(tmp_path: Path, capsys: Capsys) -> None:
    source = tmp_path / "x.parquet"
    pq.write_table(pa.table(small(extracted_answer=[["1"], ["2"]])), source)
    run = opened(bring(tmp_path / "1", source) / "aime25" / "x")
    err = capsys.readouterr().err
    assert "2 values of extracted_answer left out: x.parquet, row 0 (not ['1'])" in err
    assert outcome_words(run).ravel().tolist() == ["correct", "wrong"]
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    bad = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"\xff7"))
    for name in ("ground_truth", "text"):
        pq.write_table(pa.table(small(**{name: bad})), source)
        bring(tmp_path / name, source)
        left_out = f"1 value of {name} left out: x.parquet, row 0 (not UTF-8)"
        assert left_out in capsys.readouterr().err
    table = pa.table(small())
    pq.write_table(table.append_column("task", table["task"]), source)
    twice = csv_of(tmp_path / "x.csv", "question_id,correct,correct", "0,1,0")
    for path, name in ((source, "task"), (twice, "correct")):
        with pytest.raises(UserError, match=f"column.* {name}"):
            bring(tmp_path, path, *NAMES)


def test_what_a_small_parquet_repeats_is_bounded(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four hundred rows that share one text of 1 MB come some at a time; longer ones not at all."""
    fixed = pa.array([b"z" * (1 << 20)] * 9, pa.binary(1 << 20))  # 41 GB of a file of 1 KB
    table = pa.Table.from_pylist(records(questions=1, trials=9)).append_column("reason", fixed)
    pq.write_table(table, tmp_path / "f.parquet", compression="zstd", store_schema=False)
    bring(tmp_path / "f", tmp_path / "f.parquet")
    left_out = "column left out, neither values nor lists of numbers: "
    assert left_out in capsys.readouterr().err
    table = pa.Table.from_pylist([row | {"text": "t"} for row in records(questions=1)])
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 5), ["x" * (MOST_TEXT + 1)])
    at = table.column_names.index("text")
    pq.write_table(table.set_column(at, "text", long.cast(pa.string())), tmp_path / "l.parquet")
    run = opened(bring(tmp_path / "l", tmp_path / "l.parquet") / "aime25" / "qwen3-4b")
    assert [row["text"] for row in rows_of(run, "attempts", ATTEMPTS)] == [None] * 5
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(400, np.int32)), ["x" * (1 << 20)])
    shared = {"question_id": range(400), "correct": [1] * 400, "text": texts}
    pq.write_table(pa.table(shared), tmp_path / "x.parquet", store_schema=False)
    monkeypatch.setattr(imported_runs, "MOST_BYTES", 16 << 20)
    run = opened(bring(tmp_path, tmp_path / "x.parquet", *NAMES) / "d" / "m")
    assert len([*run.attempts.iterdir()]) > 20  # each of about 16 MiB
    assert outcome_words(run).tolist() == [["correct"]] * 400
