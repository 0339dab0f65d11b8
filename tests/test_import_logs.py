"""import: logs of other harnesses; made by inspect_ai itself where it is installed."""

import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys
from test_import import bring, by_key, folders, opened, rows_of, write_lines

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.records import inspect_log
from bayes_at_n.pipeline.records.formats import FORMATS, locate
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES
from bayes_at_n.pipeline.store.runfolder import Run

pytestmark = pytest.mark.usefixtures("undrawn")

HEAD = {
    "version": 2,
    "status": "success",
    "eval": {
        "created": "2026-11-01T10:00:00+00:00",
        "task": "inspect_evals/aime2025",
        "dataset": {"name": "aime_2025", "samples": 2, "sample_ids": [1, 2]},
        "model": "vllm/Qwen/Qwen3-4B-Thinking-2507",
        "config": {"epochs": 3},
    },
}


def sample(question: Any, epoch: int, value: Any, **more: Any) -> dict[str, Any]:
    """A sample in the layout of version 2, as inspect_ai 0.3.285 writes it."""
    content = [
        {"type": "reasoning", "reasoning": f"Epoch {epoch}."},
        {"type": "text", "text": f"It is \\boxed{{{question}}}."},
    ]
    message = {"role": "assistant", "content": content}
    return {
        "id": question,
        "epoch": epoch,
        "input": f"What is {question}?",
        "target": str(question),
        "messages": [{"role": "user", "content": f"What is {question}? Box it."}, message],
        "output": {
            "model": "served",
            "choices": [{"message": message, "stop_reason": "stop"}],
            "usage": {"input_tokens": 9, "output_tokens": 40, "total_tokens": 51},
        },
        "scores": {"match": {"value": value, "answer": str(question)}, "other": {"value": 0.5}},
        "events": [{"event": "not one that this version knows"}],
    } | more


def eval_file(path: Path, samples: list[dict[str, Any]], head: Any = HEAD) -> Path:
    """A zip as `.eval` files are, with a compression that needs no library."""
    path.parent.mkdir(exist_ok=True, parents=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as log:
        log.writestr("_journal/start.json", json.dumps(head))
        for one in samples:
            name = f"samples/{one['id']}_epoch_{one['epoch']}.json"
            log.writestr(name, json.dumps(one))
        log.writestr("header.json", json.dumps(head))
    return path


def json_file(path: Path, samples: list[dict[str, Any]], head: Any = HEAD) -> Path:
    path.parent.mkdir(exist_ok=True, parents=True)
    path.write_text(json.dumps(head | {"samples": samples, "reductions": []}, indent=2))
    return path


SAMPLES = [sample(q, e, "C" if (q + e) % 2 else "I") for q in (1, 2) for e in (1, 2, 3)]


def test_logs_of_inspect_are_known_by_their_content_and_read_part_by_part(tmp_path: Path) -> None:
    for make in (eval_file, json_file):
        path = make(tmp_path / "any.name", SAMPLES)
        kinds = [name for name, form in FORMATS.items() if form.looks(path, path.read_bytes())]
        assert kinds[0] == "inspect"
        parts = list(inspect_log._records(path))
        assert list(map(json.dumps, parts)) == list(map(json.dumps, [HEAD, *SAMPLES]))
    np.savez(tmp_path / "matrix.npz", aime25=np.zeros((2, 3)))
    assert not inspect_log.looks(tmp_path / "matrix.npz", (tmp_path / "matrix.npz").read_bytes())


def test_hostile_and_cut_off_logs_cost_no_more_than_they_hold(tmp_path: Path) -> None:
    def claiming(name: str, size: int) -> Path:
        """A log whose sample says that it unpacks to so many bytes."""
        path = eval_file(tmp_path / name, [sample(1, 1, "C", input="x" * (1 << 20))])
        data = path.read_bytes()
        at = data.rindex(b"PK\x01\x02", 0, data.rindex(b"PK\x01\x02"))
        path.write_bytes(data[: at + 24] + size.to_bytes(4, "little") + data[at + 28 :])
        return path

    with pytest.raises(ValueError, match="unpacks to 2147"):
        list(inspect_log._records(claiming("bomb.eval", 1 << 31)))
    lying = claiming("lying.eval", 100)
    assert isinstance(list(inspect_log._records(lying))[1], zipfile.BadZipFile)
    whole = eval_file(tmp_path / "whole.eval", SAMPLES)
    (tmp_path / "cut.eval").write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(zipfile.BadZipFile):
        list(inspect_log._records(tmp_path / "cut.eval"))
    with zipfile.ZipFile(tmp_path / "other.eval", "w") as other:
        other.writestr("samples/1_epoch_1.json", "{}")
    with pytest.raises(KeyError, match=r"start\.json"):
        list(inspect_log._records(tmp_path / "other.eval"))


def test_json_that_is_cut_off_says_so(tmp_path: Path) -> None:
    text = json.dumps({"a": [1, {"b": None}], "samples": [{"x": 1.5}, {}, "y"], "z": {"k": 12}})
    path = tmp_path / "a.json"
    for end in range(text.index("]", 30)):
        path.write_text(text[:end])
        with pytest.raises(ValueError, match="cut off"):
            list(inspect_log.parts(path, "samples"))
    path.write_text(text)
    head = {"a": [1, {"b": None}]}
    assert list(inspect_log.parts(path, "samples")) == [head, {"x": 1.5}, {}, "y"]
    assert list(inspect_log.parts(path, "none")) == [json.loads(text)]


def test_without_the_library_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(UserError, match=r"pip install .bayes-at-n\[inspect\]"):
        bring(tmp_path, eval_file(tmp_path / "a.eval", SAMPLES))


@pytest.fixture
def library() -> Any:
    return pytest.importorskip("inspect_ai.log", reason="no inspect_ai: make extras")


@pytest.mark.soak
@pytest.mark.extras
@pytest.mark.parametrize("make", [eval_file, json_file])
def test_epochs_become_trials(make: Any, library: Any, tmp_path: Path, capsys: Capsys) -> None:
    limit = {"limit": {"type": "token", "limit": 40}}
    failed = {"error": {"message": "m", "traceback": "t", "traceback_ansi": "t"}, "scores": None}
    logs = tmp_path / "logs"
    samples = [
        *SAMPLES[:-2],
        sample(2, 2, "N", **limit),
        sample(2, 3, "P"),
        sample(2, 4, "C", **failed),
        sample(2, 5, "C", output={}),
    ]
    samples += [SAMPLES[0]] if make is json_file else []
    make(logs / f"new.{'eval' if make is eval_file else 'json'}", samples)
    older = HEAD | {"eval": HEAD["eval"] | {"created": "2026-10-01T10:00:00+00:00"}}
    make(logs / f"older.{'eval' if make is eval_file else 'json'}", SAMPLES, older)
    (logs / "logs.json").write_text('{"new.eval": {}}')  # the manifest of `inspect view bundle`
    runs = bring(tmp_path, logs)
    said = capsys.readouterr().err
    for line in (
        "older",
        "values of other left out: match counts",
        "value other than 0 and 1",
        "ended by an error",
    ):
        assert line in said
    assert ("1 duplicate left out: qwen3-4b, aime25-00" in said) == (make is json_file)
    assert folders(runs) == ["aime25/qwen3-4b"]
    run = opened(runs / "aime25" / "qwen3-4b")
    assert [q["question_id"] for q in run.questions] == ["aime25-00", "aime25-01"]
    assert run.questions[0]["problem"] == "What is 1?" and run.questions[1]["gold"] == "2"
    assert run.questions[0]["prompt"] == "What is 1? Box it."
    grades = by_key(run, "grades", GRADES)
    assert {key: grade["outcome"] for key, grade in grades.items()} == {
        ("aime25-00", 0): "wrong",
        ("aime25-00", 1): "correct",
        ("aime25-00", 2): "wrong",
        ("aime25-01", 0): "correct",
        ("aime25-01", 1): "no_answer",
        ("aime25-01", 4): "correct",
    }
    attempts = by_key(run, "attempts", ATTEMPTS)
    assert attempts.keys() - grades.keys() == {("aime25-01", 2)}
    one = attempts["aime25-01", 0]
    assert one["text"] == "Epoch 1.</think>It is \\boxed{2}."
    assert (one["prompt_tokens"], one["completion_tokens"]) == (11, 40)
    ends = [attempts["aime25-01", trial]["finish_reason"] for trial in range(3)]
    assert ends == ["stop", "length", "stop"]
    bring(tmp_path, logs)
    assert "nothing owed" in capsys.readouterr().err
    with pytest.raises(UserError, match="no such value, but match, other"):
        bring(tmp_path / "again", logs, "metric=f1")


@pytest.mark.soak
@pytest.mark.extras
def test_what_inspect_wrote_itself_comes_in_whole(
    library: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An evaluation with the library's mock model: `.eval` (with its compression) and JSON."""
    import inspect_ai
    from inspect_ai.dataset import MemoryDataset, Sample
    from inspect_ai.model import ModelOutput, ModelUsage, get_model
    from inspect_ai.scorer import match
    from inspect_ai.solver import generate

    monkeypatch.chdir(tmp_path)
    asked = [Sample(input=f"{i} + 1?", target=str(i + 1), id=f"q-{i}") for i in range(5)]
    for kind in ("eval", "json"):
        outputs = [ModelOutput.from_content("mockllm/model", str(a % 6)) for a in range(20)]
        for output in outputs:
            output.usage = ModelUsage(output_tokens=1)  # else it fetches a tokenizer to count
        task = inspect_ai.Task(
            name="sums", dataset=MemoryDataset(asked), solver=generate(), scorer=match(), epochs=4
        )
        (log,) = inspect_ai.eval(
            task,
            model=get_model("mockllm/model", custom_outputs=outputs),
            log_format=kind,
            log_dir=kind,
            display="none",
        )
        runs = bring(tmp_path / f"of-{kind}", Path(kind))
        run = opened(runs / "sums" / "model")
        got = {
            (g["question_id"], g["trial"] + 1): g["outcome"] == "correct"
            for g in rows_of(run, "grades", GRADES)
        }
        assert got == {(s.id, s.epoch): s.scores["match"].value == "C" for s in log.samples}
        texts = {
            (a["question_id"], a["trial"] + 1): a["text"]
            for a in rows_of(run, "attempts", ATTEMPTS)
        }
        assert texts == {(s.id, s.epoch): s.output.completion for s in log.samples}
    data = next(Path("eval").glob("*.eval")).read_bytes()
    Path("cut.eval").write_bytes(data[: len(data) // 2])
    with pytest.raises(UserError, match="no log of inspect_ai can be read"):
        bring(tmp_path / "cut", Path("cut.eval"))


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
    said = capsys.readouterr().err
    assert "10-01.parquet is older" in said and "1 damaged file" in said
    assert "3 samples of several answers with one value" in said
    assert "6 values of avg@n:n=2 left out: pass@k:k=1 counts, or metric=NAME\n" in said
    assert folders(runs) == ["aime24/qwen3-4b", "aime25/qwen3-4b"]
    run = opened(runs / "aime25" / "qwen3-4b")
    got = {g["question_id"]: g["outcome"] for g in rows_of(run, "grades", GRADES)}
    assert got == {"aime25-00": "wrong", "aime25-01": "correct", "aime25-02": "wrong"}
    assert [q["gold"] for q in run.questions] == ["0", "1", "2"]
    assert run.questions[1]["prompt"] == "Solve: 1?"
    run = opened(runs / "aime24" / "qwen3-4b")
    assert not run.grades.exists()
    attempts = by_key(run, "attempts", ATTEMPTS)
    assert attempts["aime24-02", 0]["text"] == r"Thinking.</think>\boxed{2}"
    assert [attempts["aime24-02", i]["completion_tokens"] for i in (0, 1)] == [9, 5]
    bring(tmp_path, tmp_path / "details")
    assert "nothing owed" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"no such value, but pass@k:k=1, avg@n:n=2"):
        bring(tmp_path / "b", tmp_path / "details", "metric=f1")


def test_lists_of_texts_that_unfold_are_bounded(tmp_path: Path) -> None:
    """A small file in which a row holds the same long text, many times over."""
    texts = pa.DictionaryArray.from_arrays(np.zeros(2000, np.int32), ["x" * (1 << 20)])
    response = [pa.ListArray.from_arrays([0, 2000], texts), pa.nulls(1), pa.nulls(1)]
    response = pa.StructArray.from_arrays(response, ["text", "reasonings", "output_tokens"])
    doc = {"query": "q", "original_query": "q", "choices": ["1"], "gold_index": 0, "id": "0"}
    table = pa.table({"doc": [doc], "metric": [{"em": 1.0}], "model_response": response})
    path = tmp_path / "details_a_b.parquet"
    pq.write_table(table, path)
    assert path.stat().st_size < 1 << 20
    with pytest.raises(UserError, match="of which the rest is skipped"):
        bring(tmp_path, path)


def review(layout: str, index: int, right: bool) -> dict[str, Any]:
    """A row of evalscope's reviews: of 1.14 or 1.0, of two repeats a question, or of 0.17."""
    answer, value = str(index // 2), float(right)
    if layout == "0.17":
        message = {"role": "assistant", "content": f"It is \\boxed{{{answer}}}."}
        said = {"gold": "1", "pred": answer, "result": right}
        return {
            "choices": [{"finish_reason": "length", "message": message, "review": said}],
            "usage": {"completion_tokens": 9, "prompt_tokens": 3, "total_tokens": 12},
            "raw_input": {"problem": f"What is {index}?"},
            "index": index,
            "answer_id": "answer-0",
            "review_id": "review-0",
        }
    score = {"value": {"other": 0.5, "acc": value}, "extracted_prediction": answer}
    score |= {"prediction": f"It is \\boxed{{{answer}}}.", "main_score_name": "acc"}
    sampled = {"score": score, "sample_id": index, "group_id": index // 2}
    about = {"index": index, "sample_score": sampled}
    if layout == "1.0":
        return about | {"input": f"What is {index // 2}?", "target": "1"}
    sampled["generation_index"] = index % 2
    asked = {"role": "user", "content": f"What is {index // 2}?"}
    return about | {"target": ["1"], "messages": [asked, {"role": "assistant", "content": "It"}]}


def prediction(index: int) -> dict[str, Any]:
    content = [{"type": "reasoning", "reasoning": f"{index}"}, {"type": "text", "text": "2."}]
    choice = {"message": {"role": "assistant", "content": content}, "stop_reason": "max_tokens"}
    usage = {"input_tokens": 3, "output_tokens": 9, "total_tokens": 12}
    return {"index": index, "model": "m", "model_output": {"choices": [choice], "usage": usage}}


@pytest.mark.parametrize("layout", ["1.14", "1.0", "0.17"])
def test_reviews_of_evalscope(layout: str, tmp_path: Path, capsys: Capsys) -> None:
    rows = [review(layout, index, index % 3 == 0) for index in (3, 0, 2, 1)]
    for date in ("20261001_100000", "20261101_100000"):
        made = tmp_path / "outputs" / date
        for folder in ("reviews", "predictions", "reports"):
            (made / folder / "served").mkdir(parents=True)
        (made / "reports" / "served" / "my_sums.json").write_text("{}")
        write_lines(made / "reviews" / "served" / "my_sums_Level 1.jsonl", [*rows, {"index": 9}])
        if layout != "0.17":
            predicted = [prediction(index) for index in (1, 3, 0)]
            write_lines(made / "predictions" / "served" / "my_sums_Level 1.jsonl", predicted)
    runs = bring(tmp_path, tmp_path / "outputs", "dataset=sums")
    said = capsys.readouterr().err
    assert "taken for evalscope" in said and "is older than" in said
    assert "skipped: 20261101_100000/reviews/served/my_sums_Level 1.jsonl, line 5" in said
    run = opened(runs / "sums" / "served")
    grades = {key: g["outcome"] for key, g in by_key(run, "grades", GRADES).items()}
    attempts = by_key(run, "attempts", ATTEMPTS)
    one = attempts["Level 1-0", 0]
    assert (one["finish_reason"], one["prompt_tokens"], one["completion_tokens"]) == (
        "length",
        3,
        9,
    )
    assert [q["gold"] for q in run.questions] == ["1"] * len(run.questions)
    if layout == "0.17":
        assert {q for q, _ in grades} == {f"Level 1-{i}" for i in range(4)}
        assert run.questions[0]["problem"].startswith("What is") and one["text"][-4:] == "{0}."
        return
    assert "values of other left out: acc counts" in said
    alone = made / "reviews" / "served" / "my_sums_Level 1.jsonl"
    source = compose.load_as(RecordsConfig, [f"source={alone}"])
    before = locate(source).fingerprint
    write_lines(made / "predictions" / "served" / alone.name, predicted[1:])
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


def test_predictions_without_reviews_and_mixed_folders(tmp_path: Path, capsys: Capsys) -> None:
    made = tmp_path / "predictions" / "m" / "sums_default.jsonl"
    made.parent.mkdir(parents=True)
    write_lines(made, [prediction(0)])
    with pytest.raises(UserError, match="predictions only"):
        bring(tmp_path, tmp_path / "predictions")
    details(tmp_path / "predictions" / "details_a.parquet", [detail(0, ["x"], 1.0)])
    bring(tmp_path, tmp_path / "predictions", "model=m", "dataset=d")
    said = capsys.readouterr().err
    assert "also holds 1 file of evalscope, such as sums_default.jsonl" in said
    assert "kind=evalscope imports them" in said


def test_lm_eval_logs_of_version_0_4_13(tmp_path: Path, capsys: Capsys) -> None:
    """As it writes them with `repeats: 3` and take_first, and for multiple choice; no boxes."""
    folder, date = tmp_path / "org__tiny", "2026-11-01T10-00-00.000001"
    rows = [
        {
            "doc_id": i,
            "doc": {"question": f"{i}+1?"},
            "target": str(i + 1),
            "arguments": {"gen_args_0": {"arg_0": [f"{i}+1?"], "arg_1": {"until": []}}},
            "resps": [[f"the answer is {i + k}." for k in range(3)]],
            "filtered_resps": [f"{i}"],
            "filter": "first",
            "metrics": ["exact_match"],
            "exact_match": 0.0,
        }
        for i in range(4)
    ]
    write_lines(folder / f"samples_sums_{date}.jsonl", rows)
    choice = {"resps": [[["-0.8", "False"]], [["-0.1", "False"]]], "metrics": ["acc", "acc_norm"]}
    choice |= {
        "filtered_resps": [["-0.8", "False"], ["-0.1", "False"]],
        "acc": 1.0,
        "acc_norm": 0.0,
    }
    for row in rows:
        del row["exact_match"]
    rows += [row | {"doc_id": 4, "target": "5"} for row in rows[:1]]
    unscored = {"acc": None, "metrics": ["other"], "other": 1.0}
    made = [row | choice for row in rows]
    write_lines(folder / f"samples_choice_{date}.jsonl", [*made[:-1], made[-1] | unscored])
    runs = bring(tmp_path, tmp_path)
    said = capsys.readouterr().err
    assert "4 samples of several answers with one value" in said
    run = opened(runs / "sums" / "tiny")
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 12 and not run.grades.exists()
    assert run.questions[2]["prompt"] == "2+1?"
    grade(Run(load_folder(run.path, ["dataset.answer=number"])))
    right = [g["trial"] for g in rows_of(run, "grades", GRADES) if g["outcome"] == "correct"]
    assert right == [1] * 4
    run = opened(runs / "choice" / "tiny")
    assert [g["outcome"] for g in rows_of(run, "grades", GRADES)] == ["correct"] * 4
    assert {g["answer"] for g in rows_of(run, "grades", GRADES)} == {None}


@pytest.mark.parametrize("kind", ["lighteval", "evalscope", "lm_eval"])
def test_what_is_of_another_kind_than_said_is_refused(kind: str, tmp_path: Path) -> None:
    hostile = [{"index": [1]}, {"index": 0, "sample_score": 3}, {"doc_id": 1, "metrics": [[]]}, {}]
    path = write_lines(tmp_path / "reviews" / "m" / "a_default.jsonl", hostile)
    write_lines(tmp_path / "predictions" / "m" / "a_default.jsonl", [prediction(0), {"index": 1}])
    if kind == "lighteval":
        path = tmp_path / "details_a.parquet"
        pq.write_table(pa.table({"doc": [1], "other": ["x"]}), path)
    with pytest.raises(UserError, match="no record that can be used"):
        bring(tmp_path, path, f"kind={kind}")
