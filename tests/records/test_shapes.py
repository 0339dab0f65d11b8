"""Rows of other programs, made up in their forms: outcomes, trials, texts and names."""

import html
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys, outcome_words
from record_files import boxed, bring, by_key, folders, opened, rows_of, write_lines

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.records.importing import locate
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES
from bayes_at_n.pipeline.store.runfolder import Run

ASKED = [{"role": "system", "content": "Use a box."}, {"role": "user", "content": "1 + 1?"}]


def dumped(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=2))
    return path


def texts(run: Run) -> list[str]:
    return [row["text"] for row in rows_of(run, "attempts", ATTEMPTS)]


def test_verifiers(tmp_path: Path, capsys: Capsys) -> None:
    tool = {"role": "tool", "content": r"\boxed{7}"}
    rows = [
        {
            "example_id": i // 2,
            "prompt": ASKED,
            "completion": [tool, {"role": "assistant", "content": boxed(i)}] * (i < 3),
            "answer": str(i // 2),
            "reward": [1.0, 0.0, 0.5, 0.0][i],
            "format_func": 1.0 - i % 2,
        }
        for i in range(4)
    ]
    folder = tmp_path / "evals" / "sums--owner--tiny" / "1f"
    source = write_lines(folder / "results.jsonl", rows).parent
    runs = bring(tmp_path, source)
    assert folders(runs) == ["sums/tiny"]
    assert "format_func" in capsys.readouterr().err
    run = opened(runs / "sums" / "tiny")
    assert outcome_words(run).tolist() == [["correct", "wrong"], ["pending", "wrong"]]
    assert texts(run) == [boxed(0), boxed(1), boxed(2)]  # neither tools nor users; one is empty
    assert [question["gold"] for question in run.questions] == ["0", "1"]
    dumped(folder / "metadata.json", {"env_id": "adding", "model": "a/b"})
    by = bring(tmp_path / "m", source, "metric=format_func") / "adding" / "b"
    assert outcome_words(opened(by)).tolist() == [["correct", "wrong"]] * 2


def test_nemo_gym(tmp_path: Path) -> None:
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    said = {"type": "message", "content": [{"type": "output_text", "text": boxed(2)}]}
    rows = [
        {
            "responses_create_params": {"input": ASKED},
            "response": {
                "model": "tiny",
                "output": [thought, said],
                "usage": {"input_tokens": 9, "output_tokens": 5},
            },
            "reward": float(i),
            "expected_answer": "2",
            "extracted_answer": "2",
        }
        for i in range(2)
    ]
    source = write_lines(tmp_path / "rollouts.jsonl", rows)
    with pytest.raises(UserError, match="dataset=NAME"):
        bring(tmp_path, source)
    run = opened(bring(tmp_path, source, "dataset=d") / "d" / "tiny")
    assert outcome_words(run).tolist() == [["wrong", "correct"]]
    assert texts(run) == [f"hm</think>{boxed(2)}"] * 2
    rows[0]["response"]["model"] = "mistralai/Magistral-Small-2509"  # ends reasoning otherwise
    rows[0]["response"]["output"] = [[thought], [said]]  # of an agent: a list a turn
    runs = bring(tmp_path / "other", write_lines(source, rows[:1]), "dataset=d")
    run = opened(runs / "d" / "magistral-small")
    assert texts(run) == [f"hm{run.cfg.model.reasoning_end}{boxed(2)}"]
    assert "</think>" not in texts(run)[0]
    assert rows_of(run, "attempts", ATTEMPTS)[0]["completion_tokens"] == 5


def test_nemo_evaluator(tmp_path: Path) -> None:
    rows = [
        {
            "problem_idx": i,
            "repeat": t,
            "reward": float(i == t),
            "model_response": boxed(t),
            "expected_answer": str(i),
            "scoring_details": {"correct": i == t},
        }
        for i in range(2)
        for t in range(2)
    ]
    source = write_lines(tmp_path / "x" / "results.jsonl", rows).parent
    dumped(source / "eval-x.json", {"config": {"benchmark": "gpqa", "model": "n"}})
    run = opened(bring(tmp_path, source) / "gpqa" / "n")
    assert outcome_words(run).tolist() == [["correct", "wrong"], ["wrong", "correct"]]
    for name in ("drop", "boolq"):  # a file may be called by its benchmark; two are two sources
        of = dumped(tmp_path / "y" / f"{name}.json", rows)
        assert opened(bring(tmp_path, of, "model=n") / name / "n").questions


@pytest.mark.parametrize("zipped", [False, True])
def test_mmlu_pro(tmp_path: Path, zipped: bool) -> None:
    rows = [
        {
            "question_id": 70 + i,
            "question": "Which?",
            "answer": "I",
            "cot_content": "",
            "category": "law",
            "pred": pred,
            "model_outputs": f"The answer is ({pred}).",
        }
        for i, pred in enumerate(["I", "H", None])
    ]
    source = dumped(tmp_path / "model_outputs_Tiny-1_5shots.json", rows)
    if zipped:
        with zipfile.ZipFile(source.with_suffix(".zip"), "w") as archive:
            archive.write(source, source.name)
            archive.writestr(f"__MACOSX/._{source.name}", "of macOS")
        source = source.with_suffix(".zip")
    run = opened(bring(tmp_path, source) / "mmlu-pro" / "Tiny-1")
    assert outcome_words(run).tolist() == [["correct"], ["wrong"], ["no_answer"]]
    assert run.questions[0]["gold"] == "I"


def test_livecodebench(tmp_path: Path) -> None:
    row = {"question_content": "Sort.", "question_id": "1_A", "output_list": ["a", "b"]}
    row |= {"code_list": ["a", "b"], "graded_list": [False, True], "pass@1": 0.5}
    source = dumped(tmp_path / "tiny" / "Scenario.codegeneration_2_0.2_eval_all.json", [row])
    run = opened(bring(tmp_path, source) / "livecodebench" / "tiny")
    assert outcome_words(run).tolist() == [["wrong", "correct"]]
    assert texts(run) == ["a", "b"]


def test_opencompass(tmp_path: Path) -> None:
    prompt = [{"role": "HUMAN", "prompt": "1 + 1?"}]
    rows = {
        str(i): {"origin_prompt": prompt, "prediction": boxed(i), "gold": "2"} for i in range(4)
    }
    source = dumped(tmp_path / "o" / "predictions" / "tiny" / "sums.json", rows)
    run = opened(bring(tmp_path, source.parents[2]) / "sums" / "tiny")
    assert outcome_words(run).tolist() == [["pending"]] * 4  # `grade` decides
    details = [{"correct": [True, False]}, {"correct": [False, True]}]
    dumped(tmp_path / "o" / "results" / "tiny" / "sums.json", {"accuracy": 50, "details": details})
    run = opened(bring(tmp_path / "r", source.parents[2]) / "sums" / "tiny")
    assert outcome_words(run).tolist() == [["correct", "wrong"], ["wrong", "correct"]]
    known = by_key(run, "attempts", ATTEMPTS)
    assert known["sums-01", 1]["text"] == boxed(3)  # the second two are the second repeat


def test_helm(tmp_path: Path) -> None:
    def stats(id: str, right: int, split: str, **more: Any) -> dict[str, Any]:
        named = [("num_output_tokens", 9), ("quasi_exact_match", 1), ("exact_match", right)]
        of = [{"name": {"name": n, "split": split}, "count": 1, "sum": x} for n, x in named]
        return {"instance_id": id, "train_trial_index": 0, "stats": of, **more}

    def state(id: str, split: str, **more: Any) -> dict[str, Any]:
        answers = [("no", []), ("yes", ["correct"])]
        references = [{"output": {"text": text}, "tags": tags} for text, tags in answers]
        asked = {"input": {"text": f"Is it {id}?"}, "references": references}
        return {
            "instance": {**asked, "id": id, "split": split, **more},
            "train_trial_index": 0,
            "output_mapping": {"A": "no", "B": "yes"},
            "request": {"prompt": "Is it?", "model": "owner/tiny"},
            "result": {"completions": [{"text": " B"}]},
        }

    odd = {"perturbation": {"name": "typos"}}
    folder = tmp_path / "mmlu:subject=law,method=joint,model=owner_tiny"
    states = [
        state("a", "test"),
        state("b", "test"),
        state("c", "valid"),
        state("a", "test", **odd),
    ]
    dumped(folder / "scenario_state.json", {"adapter_spec": {}, "request_states": states})
    every = [stats("a", 1, "test"), stats("b", 0, "test"), stats("c", 1, "valid")]
    dumped(folder / "per_instance_stats.json", [*every, stats("a", 0, "test", **odd)])
    spec = {"name": folder.name, "adapter_spec": {"model": "owner/tiny"}}
    dumped(folder / "run_spec.json", spec)
    [run] = [opened(path) for path in bring(tmp_path, folder).glob("mmlu*/tiny")]
    assert outcome_words(run).tolist() == [["correct"], ["wrong"]]
    assert [(q["question_id"], q["gold"]) for q in run.questions] == [("a", "B"), ("b", "B")]
    chosen = bring(tmp_path / "m", folder, "metric=quasi_exact_match", "dataset=law")
    assert outcome_words(opened(chosen / "law" / "tiny")).tolist() == [["correct"]] * 2


@pytest.mark.parametrize("odd", [[], {"0": "x"}, {"0": {"origin_prompt": 1}}])
def test_files_of_another_form_are_named(tmp_path: Path, odd: Any) -> None:
    dumped(tmp_path / "o" / "predictions" / "m" / "d.json", odd)
    helm = dumped(tmp_path / "h" / "scenario_state.json", {"request_states": [odd]})
    dumped(helm.with_name("per_instance_stats.json"), [odd])
    simple = dumped(tmp_path / "s" / "x_m_allresults.json", {"htmls": odd, "convos": [odd]})
    for kind, source in (("opencompass", tmp_path / "o"), ("helm", helm), ("simple_evals", simple)):
        with pytest.raises(UserError):
            bring(tmp_path, source, f"kind={kind}", "dataset=d", "model=m")


def test_simple_evals(tmp_path: Path) -> None:
    page = "<p>Correct Answer: {}</p>\n<p>Extracted Answer: {}</p>\n<p>Score: {}</p>"
    pages = [
        page.format(html.escape("x < 2"), answer, score) for answer, score in ((1, 0.0), (2, 1.0))
    ]
    chats = [[*ASKED, {"role": "assistant", "content": boxed(n)}] for n in (1, 2)]
    whole = {"score": 0.5, "metrics": {}, "htmls": pages, "convos": chats, "metadata": None}
    source = dumped(tmp_path / "math_gpt-4.1_20250801_101112_allresults.json", whole)
    run = opened(bring(tmp_path, source) / "math" / "gpt-4.1")
    assert outcome_words(run).tolist() == [["wrong", "correct"]]
    assert run.questions[0]["gold"] == "x < 2" and texts(run) == [boxed(1), boxed(2)]


NAME = "my_sums_Level 1.jsonl"


def review(layout: str, index: int, right: bool) -> dict[str, Any]:
    """A row of evalscope's reviews: of 1.14 or 1.0, of two repeats a question."""
    answer, value = str(index // 2), float(right)
    score = {"value": {"other": 0.5, "acc": value}, "extracted_prediction": answer}
    score |= {"prediction": f"It is \\boxed{{{answer}}}.", "main_score_name": "acc"}
    sampled = {"score": score, "sample_id": index, "group_id": index // 2}
    about = {"index": index, "sample_score": sampled}
    if layout == "1.0":
        return about | {"input": f"What is {index // 2}?", "target": "1"}
    sampled["generation_index"] = index % 2
    sent = {"role": "user", "content": f"What is {index // 2}?"}
    return about | {"target": ["1"], "messages": [sent, {"role": "assistant", "content": "It"}]}


def prediction(index: int) -> dict[str, Any]:
    content = [{"type": "reasoning", "reasoning": f"{index}"}, {"type": "text", "text": "2."}]
    choice = {"message": {"role": "assistant", "content": content}, "stop_reason": "max_tokens"}
    usage = {"input_tokens": 3, "output_tokens": 9, "total_tokens": 12}
    return {"index": index, "model": "m", "model_output": {"choices": [choice], "usage": usage}}


@pytest.mark.parametrize("layout", ["1.14", "1.0"])
def test_reviews_of_evalscope(layout: str, tmp_path: Path, capsys: Capsys) -> None:
    rows = [review(layout, index, index % 3 == 0) for index in (3, 0, 2, 1)]
    predicted = [prediction(index) for index in (1, 3, 0)]
    for date in ("20261001_100000", "20261101_100000"):
        made = tmp_path / "outputs" / date
        write_lines(made / "reports" / "served" / "my_sums.json", [{}])
        write_lines(made / "reviews" / "served" / NAME, [*rows, {"index": 9}])
        write_lines(made / "predictions" / "served" / NAME, predicted)
    runs = bring(tmp_path, tmp_path / "outputs", "dataset=sums")
    err = capsys.readouterr().err
    assert "read as evalscope" in err and "is older than" in err
    assert f"skipped: 20261101_100000/reviews/served/{NAME}, line 5" in err
    run = opened(runs / "sums" / "served")
    grades = {key: g["outcome"] for key, g in by_key(run, "grades", GRADES).items()}
    attempts = by_key(run, "attempts", ATTEMPTS)
    one = attempts["Level 1-0", 0]
    numbers = [one[key] for key in ("finish_reason", "prompt_tokens", "completion_tokens")]
    assert numbers == ["length", 3, 9]
    assert [q["gold"] for q in run.questions] == ["1"] * len(run.questions)
    assert "values of other left out: acc counts" in err
    alone = made / "reviews" / "served" / NAME
    source = compose.load_as(RecordsConfig, [f"source={alone}"])
    before = locate(source).fingerprint
    write_lines(made / "predictions" / "served" / NAME, predicted[1:])
    assert locate(source).fingerprint != before
    swapped = layout == "1.0"  # trials are in the order of the rows, of which 3 came first
    assert grades == {
        ("Level 1-0", 0): "correct",
        ("Level 1-0", 1): "wrong",
        ("Level 1-1", 0): "correct" if swapped else "wrong",
        ("Level 1-1", 1): "wrong" if swapped else "correct",
    }
    assert one["text"] == "0</think>2."
    assert attempts["Level 1-1", int(swapped)]["text"] == "It is \\boxed{1}."  # no prediction
    assert run.questions[0]["prompt"].startswith("What is")


def test_predictions_without_reviews_are_no_records(tmp_path: Path) -> None:
    write_lines(tmp_path / "predictions" / "m" / "sums_default.jsonl", [prediction(0)])
    with pytest.raises(UserError, match="predictions only"):
        bring(tmp_path, tmp_path / "predictions")


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
