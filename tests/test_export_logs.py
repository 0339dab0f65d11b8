"""export: logs of other programs, as they read them, and taken back by import."""

import hashlib
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys, make_run, run_of
from test_export import back, opened, out

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.records import inspect_log
from bayes_at_n.pipeline.records.about import About, _moment, questions, texts
from bayes_at_n.pipeline.records.eee import _portable
from bayes_at_n.pipeline.records.reading import RunTable as Source
from bayes_at_n.pipeline.store import outcomes, parquet, rowkeys
from bayes_at_n.pipeline.store.columns import QUESTIONS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring import avg, uncertainty
from bayes_at_n.scoring.metrics.table import parse

# What a reader in UTF-8 stumbles over: ends of lines that only Unicode knows, planes, controls.
UNEQUAL = {"a": "11.01", "b": "~-", "c": ".(+u"}  # owed at both ends, cut off, not graded
SAID = ["<think>x\u2028y</think>\\boxed{2}", "é😀\x85\x1c", '"\\', "\\boxed{2}"]


def jsonl(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def two_runs(tmp_path: Path) -> list[Run]:
    """One that is whole, of odd texts; one with owed and ungraded trials, cut off and undecided."""
    names = ("dataset.name=sums", "model.name=x", "model.id=/nowhere/x")
    marks = {"a": "1011", "b": "0000", "c": "~1-0"}
    whole = make_run(tmp_path / "sums" / "x", marks, *names, texts={"a": SAID})
    return [whole, run_of(tmp_path, "y", UNEQUAL)]


@pytest.mark.parametrize("form", ["eee", "lm_eval"])
def test_logs_are_imported_again_with_equal_matrices(tmp_path: Path, form: str) -> None:
    runs = [*two_runs(tmp_path), run_of(tmp_path, "y", {"d": "0-1"}, dataset="terms")]
    out(tmp_path, f"to={form}")
    back(tmp_path / f"_export-{form}-all", tmp_path / "back")
    for run in runs:
        again = opened(tmp_path / "back" / run.path.relative_to(tmp_path))
        same(run, again, codes=form == "eee")


def same(run: Run, again: Run, codes: bool) -> None:
    """A run came back: matrix with its mask, questions, texts; where there is room also codes."""
    first, found = outcomes.read(run), outcomes.read(again)
    order = [found.question_ids.index(name) for name in first.question_ids]
    assert {q["problem"] for q in run.questions} == {q["problem"] for q in again.questions}
    trials = found.codes.shape[1]
    assert (first.codes[:, trials:] == outcomes.OWED).all()
    ours, theirs = first.codes[:, :trials], found.codes[order]
    assert (outcomes.correct(ours).filled(-1) == outcomes.correct(theirs).filled(-1)).all()
    assert (ours == theirs).all() or not codes
    texts = []
    for each in (run, again):
        keys = rowkeys.keyed(each, "attempts", [])[1]
        damage = parquet.Damage()
        graded = outcomes.read(each).codes[keys >> 32, keys & 0xFFFFFFFF] != outcomes.OWED
        texts.append(sorted(text for i, text in rowkeys.responses(each, keys, damage) if graded[i]))
    assert texts[0] == texts[1]


# The keys that the schemas of Every Eval Ever 0.3.0 require, and the types of their values.
AGGREGATE: dict[str, Any] = {
    "schema_version": str,
    "evaluation_id": str,
    "evaluation_timestamp": str,
    "retrieved_timestamp": str,
    "source_metadata": {
        "source_type": str, "source_organization_name": str, "evaluator_relationship": str
    },
    "eval_library": {"name": str, "version": str},
    "model_info": {
        "name": str, "id": str,
        "additional_details": {"deployment_type": str, "model_availability": str},
    },
    "detailed_evaluation_results": {
        "format": str, "file_path": str, "hash_algorithm": str, "checksum": str, "total_rows": int
    },
}  # fmt: skip
RESULT: dict[str, Any] = {
    "evaluation_result_id": str,
    "evaluation_name": str,
    "source_data": {"dataset_name": str, "source_type": str},
    "metric_config": {"lower_is_better": bool, "min_score": float, "max_score": float},
    "score_details": {
        "score": float,
        "uncertainty": {
            "standard_error": {"value": float, "method": str},
            "confidence_interval": {
                "lower": float, "upper": float, "confidence_level": float, "method": str
            },
            "num_samples": int,
        },
    },
    "generation_config": {"generation_args": dict, "additional_details": dict},
}  # fmt: skip
LINE: dict[str, Any] = {
    "schema_version": str,
    "evaluation_id": str,
    "evaluation_result_id": str,
    "model_id": str,
    "evaluation_name": str,
    "sample_id": str,
    "interaction_type": str,
    "input": {"raw": str, "reference": list},
    "output": {"raw": list},
    "answer_attribution": list,
    "evaluation": {"score": float, "is_correct": bool},
    "token_usage": {"input_tokens": int, "output_tokens": int, "total_tokens": int},
    "metadata": {"trial": str, "seed": str},
}


def unlike(value: Any, shape: Any, at: str = "") -> Iterator[str]:
    """Where a value lacks a key, or has another type."""
    if not isinstance(shape, dict):
        if not isinstance(value, shape):
            yield f"{at} is {value!r}"
        return
    for key, of in shape.items():
        if key in value:
            yield from unlike(value[key], of, f"{at}.{key}")
        else:
            yield f"{at}.{key} is missing"


def test_every_eval_ever_has_scores_with_intervals_and_attempts(tmp_path: Path) -> None:
    run = two_runs(tmp_path)[0]
    where = ["to=eee", "model=x", f"out={tmp_path / 'out'}"]
    out(tmp_path, *where)
    [path] = (tmp_path / "out").glob("data/sums/local/x/*.json")
    samples = path.with_name(f"{path.stem}_samples.jsonl")
    whole, lines = json.loads(path.read_text()), jsonl(samples)
    assert not [*unlike(whole, AGGREGATE)] and whole["schema_version"] == "0.3.0"
    told = whole["detailed_evaluation_results"]
    assert told["checksum"] == hashlib.sha256(samples.read_bytes()).hexdigest()
    assert (told["file_path"], told["total_rows"]) == (f"data/sums/local/x/{samples.name}", 12)
    R = outcomes.correct(outcomes.read(run).codes)
    results = {
        result["metric_config"]["metric_id"]: result for result in whole["evaluation_results"]
    }
    assert {"accuracy", "bayes_at_n", "pass_at_k"} <= {*results}
    for result in whole["evaluation_results"]:
        assert not [*unlike(result, RESULT)]
    score = results["accuracy"]["score_details"]
    ends = score["uncertainty"]["confidence_interval"]
    found = (score["score"], score["uncertainty"]["standard_error"]["value"])
    assert found == pytest.approx(avg(R))
    assert (ends["lower"], ends["upper"]) == parse("avg").summary(R)[2:]
    assert float(score["details"]["standard_error_over_questions"]) == uncertainty(R).clustered
    for line in lines:
        assert not [*unlike(line, LINE)]
        assert all(isinstance(value, str) for value in line["metadata"].values())
        assert line["evaluation_result_id"] == results["accuracy"]["evaluation_result_id"]
    assert [line["metadata"]["trial"] for line in lines] == [*"0123"] * 3
    made = lines[0]["output"]
    assert (made["reasoning_trace"], made["raw"]) == (["<think>x\u2028y"], ["\\boxed{2}"])
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*.json*")}
    shutil.rmtree(tmp_path / "out")
    out(tmp_path, *where)
    again = {path.name: path.read_bytes() for path in (tmp_path / "out").rglob("*.json*")}
    assert {**before, "export.json": b""} == {**again, "export.json": b""}
    back(tmp_path / "out", tmp_path / "back")
    out(tmp_path / "back", "to=eee")
    [path] = (tmp_path / "back" / "sums" / "_export-eee").glob("data/sums/local/x/*.json")
    details = [
        of["model_info"]["additional_details"] for of in (whole, json.loads(path.read_text()))
    ]
    assert [of.get("dtype") for of in details] == [run.cfg.model.dtype, None]  # nobody said it


def test_lm_eval_has_the_repeats_of_a_question_and_its_mean(tmp_path: Path) -> None:
    _, ragged = two_runs(tmp_path)
    out(tmp_path, "to=lm_eval", f"out={tmp_path / 'out'}")
    [results] = (tmp_path / "out" / "y").glob("results_*.json")
    date = results.stem.partition("_")[2]
    lines = jsonl(results.with_name(f"samples_sums_{date}.jsonl"))
    whole = json.loads(results.read_text())
    codes = outcomes.read(ragged).codes
    for line in lines:
        i = line["doc_id"]
        right = outcomes.correct(codes[i])
        assert line["exact_match"] == right.compressed().tolist()
        assert line["acc"] == pytest.approx(right.mean())
        assert len(line["resps"][0]) == len(line["filtered_resps"][0]) == len(right.compressed())
        kept = np.flatnonzero(~np.ma.getmaskarray(right)).tolist()
        assert line.get("trials", [*range(len(kept))]) == kept
        assert {f"{what}_hash" for what in ("doc", "prompt", "target")} < {*line}
    scores = whole["results"]["sums"]
    assert (
        scores["acc,none"]
        == scores["exact_match,none"]
        == pytest.approx(avg(outcomes.correct(codes))[0])
    )
    assert scores["acc_stderr,none"] == uncertainty(outcomes.correct(codes)).clustered
    assert whole["model_name"] == "y" and whole["configs"]["sums"]["repeats"] == codes.shape[1]
    assert {*whole["bayes-at-n"]["scores"]["avg"]} == {"value", "sigma", "low", "high"}


def test_models_are_called_by_what_says_which_run_it_is(tmp_path: Path) -> None:
    for name in ("gpt-oss-20b-low", "gpt-oss-20b-high"):
        hub_id = ["model.name=" + name, "model.id=openai/gpt-oss-20b"]
        make_run(tmp_path / "sums" / name, {"a": "10"}, "dataset.name=sums", *hub_id)
    out(tmp_path, "to=eee", f"out={tmp_path / 'eee'}")
    assert len([*(tmp_path / "eee" / "data/sums/openai/gpt-oss-20b").glob("*.json")]) == 2
    out(tmp_path, "to=lm_eval", f"out={tmp_path / 'lm_eval'}")
    back(tmp_path / "lm_eval", made := tmp_path / "back")
    assert {path.name for path in (made / "sums").glob("[!_]*")} == {
        "gpt-oss-20b-low", "gpt-oss-20b-high",
    }  # fmt: skip


def test_hostile_names_stay_in_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "sums" / "x"
    run = make_run(folder, {"../../up": "10"}, "dataset.name=sums", "model.name=x")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("id: ", 'id: "../../../x" #', 1))
    manifest = json.loads(run.manifest.read_text())
    manifest |= {"created_with": {"time": "yesterday", "packages": ["vllm"]}, "imported": "yes"}
    run.manifest.write_text(json.dumps(manifest))
    for form in ("eee", "lm_eval"):
        out(tmp_path, f"to={form}", f"out={tmp_path / 'here' / form}")
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"sums", "here"} and not [*(tmp_path / "here").glob("*up*")]
    assert [_portable(name) for name in ("con", "data", "../../x", "CON.x")] == [
        "con_", "data_", "x-9cdf6a", "CON.x_",
    ]  # fmt: skip
    stated = "2026-11-23T02:41:58+0000"
    times = [(1e300, stated), (float("nan"), 7), (None, "x"), (None, None), (None, stated)]
    assert [_moment(*time).year for time in times] == [1970] * 4 + [2026]
    assert texts({"a": None, "b": 1.5, "c": "d"}) == {"b": "1.5", "c": "d"}


def test_secrets_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-of-mine-123456")
    given = "engine.args={effort: high, api_key: abcdefgh, extra: {h: sk-of-mine-123456}}"
    run_of(tmp_path, "x", {"a": "10"}, "engine=openai", "engine.url=[http://inner:8000]", given)
    out(tmp_path, "to=eee")
    written = next(tmp_path.rglob("_export-eee-all/data/**/*.json")).read_text()
    assert '"engine.args.effort": "high"' in written
    assert not any(text in written for text in ("sk-of", "abcdefgh", "inner"))


def test_a_run_without_grades_is_left_out_or_refused(tmp_path: Path, capsys: Capsys) -> None:
    run_of(tmp_path, "x", {"a": "++"})
    with pytest.raises(UserError, match=r"nothing graded yet; run `.* grade`"):
        out(tmp_path, "to=eee")
    with pytest.raises(UserError, match="to=lm_eval has no room for lists; use to=parquet"):
        out(tmp_path, "to=lm_eval", "logprobs=true")
    assert not [*tmp_path.rglob("*export*")]
    run_of(tmp_path, "y", {"a": "10"})
    out(tmp_path, "to=lm_eval")
    assert "x is left out: " in capsys.readouterr().err
    assert [path.parent.name for path in tmp_path.rglob("samples_*.jsonl")] == ["y"]


@pytest.mark.soak
@pytest.mark.extras
def test_their_validator_finds_nothing(tmp_path: Path) -> None:
    program = shutil.which("every_eval_ever")
    if program is None:
        pytest.skip("no every_eval_ever in PATH: make extras, where python3.12 is")
    two_runs(tmp_path)
    out(tmp_path, "to=eee", f"out={tmp_path / 'out'}")
    command = [program, "validate", "data/*/*/*/*.json*"]
    found = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert found.returncode == 0 and "4 passed" in found.stdout, found.stdout


def test_without_inspect_ai_one_line_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path, "x")
    monkeypatch.setitem(sys.modules, "inspect_ai", None)
    with pytest.raises(UserError, match=r"to=inspect needs .* pip install .bayes-at-n\[inspect\]"):
        out(tmp_path, "to=inspect")
    assert not [*tmp_path.rglob("*.eval")]


def test_questions_of_which_little_is_known_have_empty_texts() -> None:
    row = dict.fromkeys(("problem", "gold", "prompt", "choices"), None) | {"question_id": "a"}
    run: Any = SimpleNamespace(questions=[row])
    assert questions(Source("sums", "x", run)) == {
        "a": row | {"problem": "", "gold": "", "prompt": ""}
    }


def test_chat_turns_of_a_server_are_messages_again() -> None:
    turns = [{"role": "system", "content": "Box it."}, {"role": "user", "content": "1 + 1?"}]
    row = {"question_id": "a", "problem": "1 + 1?", "gold": "2", "choices": None}
    for prompt, ids, said in (
        (json.dumps(turns), None, turns),
        ("[1, 2]: which?", [1], [{"role": "user", "content": "[1, 2]: which?"}]),
        ("", None, [{"role": "user", "content": "1 + 1?"}]),
    ):
        question = inspect_log._question(row | {"prompt": prompt, "prompt_token_ids": ids})
        assert question["messages"] == [turn | {"id": f"a-{i}"} for i, turn in enumerate(said)]


def test_samples_of_several_runs_have_ids_of_their_own(tmp_path: Path) -> None:
    lib = MagicMock()
    lib.log.EvalSample = SimpleNamespace
    of_runs = [About(Source("sums", name, run_of(tmp_path, name))) for name in "abcd"] * 2
    rows = [defaultdict(str, question_id=q, trial=t) for q in "ab" for t in range(3)]
    turns = {"messages": []}
    ids = [inspect_log._sample(lib, row, turns, of).uuid for of in of_runs for row in rows]
    assert ids[:24] == ids[24:] and len(set(ids)) == 24


@pytest.mark.soak
@pytest.mark.extras
def test_inspect_reads_its_logs_and_computes_the_same_scores(tmp_path: Path) -> None:
    log = pytest.importorskip("inspect_ai.log", reason="no inspect_ai: make extras")
    runs = two_runs(tmp_path)
    out(tmp_path, "to=inspect")
    folder = tmp_path / "sums" / "_export-inspect-all"
    paths = sorted(folder.glob("*.eval"))
    logs = {of.eval.model: of for of in map(log.read_eval_log, map(str, paths))}
    for run in runs:
        of, codes = logs[run.path.name], outcomes.read(run).codes
        R = outcomes.correct(codes)
        score = of.results.scores[0]
        stated = {name: metric.value for name, metric in score.metrics.items()}
        assert stated == pytest.approx({"accuracy": avg(R)[0], "stderr": uncertainty(R).clustered})
        assert score.metadata["avg"] == parse("avg").summary(R)._asdict()
        assert (of.eval.config.epochs, of.results.total_samples) == (R.shape[1], R.size)
        assert of.results.completed_samples == len(of.samples) == R.count()
        rows = {q["question_id"]: i for i, q in enumerate(run.questions)}
        for sample in of.samples:
            code = codes[rows[sample.id], sample.epoch - 1]
            assert sample.scores["grade"].value == ("C" if code == outcomes.CORRECT else "I")
            assert sample.metadata["outcome"] == outcomes.OUTCOMES[code]
            assert sample.output.stop_reason in ("stop", "max_tokens")
        log.recompute_metrics(of)
        assert {n: m.value for n, m in of.results.scores[0].metrics.items()} == pytest.approx(
            stated
        )
    first = next(s for s in logs["x"].samples if (s.id, s.epoch) == ("a", 1))
    thought, said = first.output.choices[0].message.content
    assert (thought.reasoning, said.text) == ("<think>x\u2028y", "\\boxed{2}")
    assert len(log.read_eval_log_sample_summaries(str(paths[0]))) == len(
        log.read_eval_log(str(paths[0])).samples
    )
    before = {path.name: path.read_bytes() for path in paths}
    shutil.rmtree(folder)
    out(tmp_path, "to=inspect")
    rows = pq.read_table(runs[0].path / "questions.parquet").to_pylist()
    torn = [row | {"prompt": '["no turn"]', "prompt_token_ids": None} for row in rows]
    (tmp_path / "torn" / "x").mkdir(parents=True)
    shutil.copytree(runs[0].path, tmp_path / "torn" / "x", dirs_exist_ok=True)
    path = tmp_path / "torn" / "x" / "questions.parquet"
    pq.write_table(pa.Table.from_pylist(torn, schema=QUESTIONS), path)
    with pytest.raises(UserError, match="no log of inspect_ai"):
        out(tmp_path, "to=inspect", "dataset=torn")
    assert before == {path.name: path.read_bytes() for path in folder.glob("*.eval")}
    back(folder, tmp_path / "back")
    for run in runs:
        again = opened(tmp_path / "back" / run.path.relative_to(tmp_path))
        same(run, again, codes=True)
        seeds = [
            {row["seed"] for row in pq.read_table(r.attempts).to_pylist()} for r in (run, again)
        ]
        assert seeds[1] <= seeds[0]


def test_damaged_and_other_lines_of_every_eval_ever_are_counted(
    tmp_path: Path, capsys: Capsys
) -> None:
    path = tmp_path / "x_samples.jsonl"
    line: dict[str, Any] = {
        "evaluation_id": "e", "evaluation_name": "sums", "model_id": "me/m", "sample_id": "a",
        "interaction_type": "single_turn", "input": {"raw": "1 + 1?", "reference": ["2"]},
        "output": {"raw": ["2"]}, "answer_attribution": [], "evaluation": {"is_correct": True},
    }  # fmt: skip
    lines: list[Any] = [line, line | {"evaluation": {"is_correct": False}}]
    lines += [line | {"evaluation_result_id": "other"}, 7, line | {"input": None}]
    lines += [line | {"output": {"raw": 7}}, {**line, "evaluation_name": []}, {"evaluation_id": 1}]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    back(path, tmp_path / "back")
    [folder] = (tmp_path / "back" / "sums").glob("m*")
    assert outcomes.read(opened(folder)).codes.tolist() == [[0, 1]]
    said = capsys.readouterr().err
    for count in ("1 line of other results", "4 damaged rows", "2 damaged lines"):
        assert count in said
