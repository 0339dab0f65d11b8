"""import: logs of other harnesses; made by inspect_ai itself where it is installed."""

import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_import import bring, folders, opened, rows_of

from pipeline.base import jsonl
from pipeline.base.errors import UserError
from pipeline.imports import inspect_log
from pipeline.imports.formats import FORMATS
from pipeline.imports.source import Troubles
from pipeline.store.columns import ATTEMPTS, GRADES

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
            "usage": {"input_tokens": 9, "output_tokens": 40, "input_tokens_cache_read": 2},
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
        parts = list(inspect_log._parts(path, Troubles()))
        assert [json.dumps(part) for _, part in parts] == list(map(json.dumps, [HEAD, *SAMPLES]))
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
        list(inspect_log._parts(claiming("bomb.eval", 1 << 31), Troubles()))
    lying = claiming("lying.eval", 100)
    troubles = Troubles()
    assert len(list(inspect_log._parts(lying, troubles))) == 1  # the header
    assert troubles.counts == {"damaged rows skipped": 1}
    whole = eval_file(tmp_path / "whole.eval", SAMPLES)
    (tmp_path / "cut.eval").write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(zipfile.BadZipFile):
        list(inspect_log._parts(tmp_path / "cut.eval", Troubles()))
    with zipfile.ZipFile(tmp_path / "other.eval", "w") as other:
        other.writestr("samples/1_epoch_1.json", "{}")
    with pytest.raises(ValueError, match=r"header\.json"):
        list(inspect_log._parts(tmp_path / "other.eval", Troubles()))


def test_json_that_is_cut_off_says_so(tmp_path: Path) -> None:
    text = json.dumps({"a": [1, {"b": None}], "samples": [{"x": 1.5}, {}, "y"], "z": {"k": 12}})
    path = tmp_path / "a.json"
    for end in range(len(text)):
        path.write_text(text[:end])
        with pytest.raises(ValueError, match="cut off"):
            list(jsonl.parts(path, "samples"))
    path.write_text(text)
    got = [("a", [1, {"b": None}]), ("samples", {"x": 1.5}), ("samples", {})]
    assert list(jsonl.parts(path, "samples")) == [*got, ("samples", "y"), ("z", {"k": 12})]


def test_without_the_library_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "inspect_ai", None)
    inspect_log._library.cache_clear()
    with pytest.raises(UserError, match=r"pip install .bayes-at-n\[inspect\]"):
        bring(tmp_path, eval_file(tmp_path / "a.eval", SAMPLES))


@pytest.fixture
def library() -> Any:
    inspect_log._library.cache_clear()
    return pytest.importorskip("inspect_ai.log", reason="pip install inspect_ai")


@pytest.mark.soak
@pytest.mark.parametrize("make", [eval_file, json_file])
def test_epochs_become_trials(
    make: Any, library: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
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
    make(logs / f"new.{'eval' if make is eval_file else 'json'}", samples)
    older = HEAD | {"eval": HEAD["eval"] | {"created": "2026-10-01T10:00:00+00:00"}}
    make(logs / f"older.{'eval' if make is eval_file else 'json'}", SAMPLES, older)
    (logs / "logs.json").write_text('{"new.eval": {}}')  # the manifest of `inspect view bundle`
    runs = bring(tmp_path, logs)
    said = capsys.readouterr().err
    for line in ("older", "match counts, not other", "neither 0 nor 1", "ended by an error"):
        assert line in said
    assert folders(runs) == ["aime25/qwen3-4b"]
    run = opened(runs / "aime25" / "qwen3-4b")
    assert [q["question_id"] for q in run.questions] == ["aime25-00", "aime25-01"]
    assert run.questions[0]["problem"] == "What is 1?" and run.questions[1]["gold"] == "2"
    assert run.questions[0]["prompt"] == "What is 1? Box it."
    grades = {(g["question_id"], g["trial"]): g for g in rows_of(run, "grades", GRADES)}
    assert {key: grade["outcome"] for key, grade in grades.items()} == {
        ("aime25-00", 0): "wrong",
        ("aime25-00", 1): "correct",
        ("aime25-00", 2): "wrong",
        ("aime25-01", 0): "correct",
        ("aime25-01", 1): "no_answer",
        ("aime25-01", 4): "correct",
    }
    attempts = {(a["question_id"], a["trial"]): a for a in rows_of(run, "attempts", ATTEMPTS)}
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
