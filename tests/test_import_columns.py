"""import of Parquet as columns: the authors' newer layouts, and the same rows as of any format."""

import contextlib
import json
import math
from pathlib import Path
from typing import Any

import httpx2
import huggingface_hub
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys, outcome_words
from huggingface_hub.errors import RepositoryNotFoundError
from test_import import NAMES, bring, folders, opened, rows_of, write, write_lines

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.records import formats, trace
from bayes_at_n.pipeline.records import runs as run_folders
from bayes_at_n.pipeline.records.names import dataset_name
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, MEANS, VERDICTS

pytestmark = pytest.mark.usefixtures("undrawn")
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
        "llmv_problem_understanding_expected": 20.0,
        "llmv_reasoning_validity_expected": 10.5,
        "llmv_conclusion_support_expected": 15.25,
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
    said = capsys.readouterr().err
    [line] = [line for line in said.splitlines() if "no place for the columns" in line]
    for name in ("sampling", "trigger", "llmv_model", "tokens.completion_topk_logprobs_list"):
        assert name in line
    assert "1 column left out" in said and "completion_token_list" in said  # texts of tokens
    run = opened(runs / "aime26" / "gpt-oss-20b-low")
    assert outcome_words(run).tolist() == [["wrong", "correct", "wrong"]] * 2
    assert [q["question_id"] for q in run.questions] == ["aime26-01", "aime26-02"]
    attempts = rows_of(run, "attempts", ATTEMPTS)
    assert {(row["trial"], row["seed"]) for row in attempts} == {(0, 0), (1, 1), (2, 2)}
    assert attempts[0]["logprobs"] == [-0.5, 0.0] and attempts[0]["token_ids"] is None
    [verdict] = {(row["a"], row["direct_a"], row["label"])
                 for row in rows_of(run, "verdicts", VERDICTS)}  # fmt: skip
    assert verdict == (0.75, 0.5, "A")
    [mean] = {tuple(row.values())[2:4] for row in rows_of(run, "means", MEANS)}
    assert mean == (-2.0, -0.25)


def test_scorio_gpqa_is_multiple_choice(tmp_path: Path) -> None:
    """Its data_id is of a stage only, full_data_id of all; answers are letters."""
    rows = [
        lite("super_gpqa", 0, s, full_data_id=q, uuid=f"u{q}", field="Law", difficulty="hard")
        | {"text": f"Answer: ({'AC'[s]})", "ground_truth": "C", "extracted_answer": "AC"[s]}
        for q in (0, 50)
        for s in (0, 1)
    ]
    rows[0] |= {"evalscope_is_correct": 1}  # which the grader sees
    for row in rows:
        del row["cv3b_ctx_A"], row["cv3b_ctx_B"], row["cv3b_ctx_C"]
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    run = opened(runs / "supergpqa" / "gpt-oss-20b-low")
    assert (run.cfg.dataset.name, run.cfg.dataset.answer) == ("supergpqa", "choice")
    assert [q["question_id"] for q in run.questions] == ["supergpqa-00", "supergpqa-50"]
    # Without labels, the mean of the three scores of 1 to 20.
    score = ((20 + 10.5 + 15.25) / 3 - 1) / 19
    [verdict] = {(row["a"], row["b"], row["c"], row["label"])
                 for row in rows_of(run, "verdicts", VERDICTS)}  # fmt: skip
    assert verdict == (np.float32(score), np.float32(1 - score), 0, "A")
    assert outcome_words(run).tolist() == [["correct", "correct"], ["wrong", "correct"]]
    grade(run)
    assert outcome_words(run).tolist() == [["wrong", "correct"]] * 2


ODD: list[dict[str, Any]] = [
    {},
    {"seed": None, "reason": "because", "text": ""},
    {"extracted_answer": "x" * 100_001, "finish_reason": "y" * 101},
    {"num_completion_tokens": -1, "completion_avg_logprob": math.nan},
    {"num_completion_tokens": 1 << 40, "completion_avg_logprob": -math.inf},
    {"has_box": False, "extracted_answer": "NotFound", "is_correct": "wrong"},
    {"has_box": False, "finish_reason": "length", "is_correct": "timeout"},
    {"cv3b_ctx_A": 0.5, "cv3b_ctx_B": 0.75, "cv3b_ctx_C": -0.25},
    {"cv3b_ctx_B": None, "prompt_avg_logprob": None, "prompt_sum_logprob": -40.0},
    {"data_id": "no\nquestion", "ground_truth": "9"},
    {"data_id": None, "is_correct": "perhaps"},
    {"is_correct": "perhaps", "ground_truth": "['7', '7']", "data_id": "I-3"},
    {"completion_logprob_list": [-1.0, None], "completion_token_list": [1, None]},
    {"completion_logprob_list": [], "completion_token_list": [5, 1 << 40], "text": '²\\"\n\t'},
    {"completion_ppl": 2.0, "completion_avg_logprob": None, "completion_token_list": [5, 6]},
]


def odd(i: int, more: dict[str, Any]) -> dict[str, Any]:
    row = lite("mine", i % 2, 7 + i) | {"data_id": str(i % 2)}
    row |= {name: None for name in ("completion_logprob_list", "completion_token_list")}
    row |= {"is_correct": "true", "prompt_sum_logprob": None, "completion_ppl": None,
            "prompt_avg_logprob": -2.0, "completion_avg_logprob": -1.0, "reason": None}  # fmt: skip
    return {
        name: value for name, value in (row | more).items() if name not in ("tokens", "sampling")
    }


def test_a_value_means_the_same_in_parquet_and_json(tmp_path: Path, capsys: Capsys) -> None:
    rows = [odd(i, more) for i, more in enumerate(ODD)]
    found = []
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
        numbers = sorted(line.split(":")[0] for line in plain if "has no column" not in line)
        found.append((made, questions, numbers))
    assert found[0] == found[1]
    assert "3 damaged rows skipped" in capsys.readouterr().err
    assert any("finish_reason left out" in line for line in found[0][2])


def test_order_of_rows_and_size_of_parts_change_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two runs in turns; texts of which some are one; a writer that once finds no memory."""
    rows = [
        lite("aime_2026", q, s, model_key=key, text=f"{'same' if s % 3 else s} {'x' * 500}")
        for s in range(16)
        for q in range(3)
        for key in (LOW, "gpt-oss-20b_high")
    ]
    source, texts = write(tmp_path / "x.parquet", rows, group=7), []
    for name, size in (("large", 1 << 30), ("small", 30_000)):
        monkeypatch.setattr(run_folders, "MOST_BYTES", size)
        monkeypatch.setattr(trace, "_MOST_ROWS", 20)
        real, failed = run_folders.parquet.write_part, []

        def write_part(*given: Any, real: Any = real, failed: list[int] = failed) -> None:
            if not failed:
                failed.append(1)
                raise MemoryError
            real(*given)

        monkeypatch.setattr(run_folders.parquet, "write_part", write_part)
        runs = bring(tmp_path / name, source)
        monkeypatch.setattr(run_folders.parquet, "write_part", real)
        found = {
            (run, row["question_id"], row["trial"]): (row["text"], row["logprobs"])
            for run in ("gpt-oss-20b-low", "gpt-oss-20b-high")
            for row in rows_of(opened(runs / "aime26" / run), "attempts", ATTEMPTS)
        }
        assert len(found) == len(rows)
        assert len(list(runs.rglob("attempts/*.parquet"))) > 3 * (name == "small")
        texts.append(found)
    assert texts[0] == texts[1]
    assert texts[0]["gpt-oss-20b-low", "aime26-01", 3][0] == f"3 {'x' * 500}"


def test_a_long_text_in_every_row_is_unfolded_a_piece_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four hundred rows that share one text of 1 MB: 400 MB of a small file."""
    texts = pa.DictionaryArray.from_arrays(pa.array(np.zeros(400, np.int32)), ["x" * (1 << 20)])
    table = {"question_id": range(400), "correct": [1] * 400, "text": texts}
    pq.write_table(pa.table(table), tmp_path / "x.parquet", store_schema=False)
    held, before = list[int](), pa.total_allocated_bytes()

    def measure(*_: Any) -> None:
        held.append(pa.total_allocated_bytes() - before)

    monkeypatch.setattr(run_folders, "_write", measure)
    with pytest.raises(UserError, match="no outcome and no text"):  # none is written
        bring(tmp_path, tmp_path / "x.parquet", *NAMES)
    assert len(held) > 4 and max(held) < 250 << 20


def test_columns_of_other_types(tmp_path: Path) -> None:
    """Texts and lists of Arrow's other kinds, categories, small floats, a column of nothing."""
    n = 4
    keys = pa.array(["a/b"] * n).dictionary_encode()
    table = {
        "question_id": pa.array(range(n), pa.float32()),
        "model": keys,
        "seed": pa.array(range(n), pa.uint64()),
        "correct": pa.array([1.0, 0.0, math.nan, 1.0], pa.float16()),
        "text": pa.array(["a", None, "c", "d"], pa.large_string()),
        "answer": pa.array(["1", "2", None, "4"], pa.string_view()),
        "completion_logprob_list": pa.array(
            [[-1.0], None, [], [-2.0]], pa.large_list(pa.float64())
        ),
        "num_prompt_tokens": pa.nulls(n),
    }
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    run = opened(bring(tmp_path, tmp_path / "x.parquet", "dataset=d") / "d" / "b")
    assert outcome_words(run).tolist() == [["correct"], ["wrong"], ["owed"], ["correct"]]
    attempts = {row["question_id"]: row for row in rows_of(run, "attempts", ATTEMPTS)}
    assert [attempts[f"d-0{i}"]["text"] for i in (0, 2, 3)] == ["a", "c", "d"]
    assert attempts["d-02"]["logprobs"] == []


def test_a_bucket_of_the_hub_or_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def snapshot_download(name: str, **given: Any) -> str:
        if name == "harimo/scorio-lite":
            asked.append(given["allow_patterns"])
            write(tmp_path / "hub" / "abc" / "meta" / "x.parquet", [lite("aime_2026", 0, 0)])
            return str(tmp_path / "hub" / "abc")
        request = httpx2.Request("GET", "http://x")
        raise RepositoryNotFoundError("none", response=httpx2.Response(404, request=request))

    def sync_bucket(there: str, here: str, **given: Any) -> None:
        asked.append(there)
        write(Path(here) / "q00.parquet", [lite("aime_2026", 0, 0)])

    monkeypatch.setattr(formats, "from_hub", lambda *_: contextlib.nullcontext())
    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.setattr(huggingface_hub, "sync_bucket", sync_bucket)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    run = bring(tmp_path / "1", Path("harimo/scorio-lite/meta")) / "aime26" / "gpt-oss-20b-low"
    made = json.loads((run / "manifest.json").read_text())["imported"]
    assert made["revision"] == "abc" and asked == [["meta/*.parquet"]]
    runs = bring(tmp_path / "2", Path("harimo/scorio-math/data/a_b/aime_2026"))
    assert asked[1:] == ["hf://buckets/harimo/scorio-math/data/a_b/aime_2026"]
    assert folders(runs) == ["aime26/gpt-oss-20b-low"]
    with pytest.raises(RepositoryNotFoundError):  # a bucket has no commits
        bring(tmp_path / "3", Path("harimo/scorio-math"), "revision=abc")
    with pytest.raises(UserError, match="no hub id"):
        bring(tmp_path / "3", Path("harimo/scorio-math/../x"), *NAMES)
