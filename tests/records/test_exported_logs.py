"""Every Eval Ever and lm-evaluation-harness in and out; what all logs have in common."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import Capsys, make_run, outcome_words, run_of
from record_files import QWEN, boxed, bring, folders, opened, out, rows_of, write_lines

from bayes_at_n.pipeline.base import untrusted
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.store import outcomes
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.scoring import avg, uncertainty
from bayes_at_n.scoring.metrics.table import parse

UNEQUAL = {"a": "11.01", "b": "~-", "c": ".(+u"}  # pending at both ends, cut off, not graded
# What a reader in UTF-8 stumbles over: ends of lines that only Unicode knows, planes, controls.
TEXTS = ["<think>x\u2028y</think>\\boxed{2}", "é😀\x85\x1c", '"\\', "\\boxed{2}"]


def two_runs(tmp_path: Path) -> list[Run]:
    """A whole one, of odd texts; one with pending and ungraded trials, cut off and undecided."""
    names = ("dataset.name=sums", "model.name=x", "model.id=/nowhere/x")
    marks = {"a": "1011", "b": "0000", "c": "~1-0"}
    whole = make_run(tmp_path / "sums" / "x", marks, *names, texts={"a": TEXTS})
    return [whole, run_of(tmp_path, "y", UNEQUAL)]


def same(run: Run, again: Run, codes: bool) -> None:
    """A run came back: matrix with its mask, questions, texts; where there is room also codes."""
    first, back = outcomes.read(run), outcomes.read(again)
    order = [back.question_ids.index(name) for name in first.question_ids]
    assert {q["problem"] for q in run.questions} == {q["problem"] for q in again.questions}
    trials = back.codes.shape[1]
    assert (first.codes[:, trials:] == outcomes.PENDING).all()
    ours, theirs = first.codes[:, :trials], back.codes[order]
    assert (outcomes.correct(ours).filled(-1) == outcomes.correct(theirs).filled(-1)).all()
    assert (ours == theirs).all() or not codes
    assert graded_texts(run) == graded_texts(again)


def graded_texts(run: Run) -> list[str]:
    ids, codes = outcomes.read(run).question_ids, outcomes.read(run).codes
    return sorted(
        row["text"]
        for row in rows_of(run, "attempts", ATTEMPTS)
        if codes[ids.index(row["question_id"]), row["trial"]] != outcomes.PENDING
    )


@pytest.mark.parametrize("form", ["eee", "lm_eval"])
def test_logs_are_imported_again_with_equal_matrices(tmp_path: Path, form: str) -> None:
    runs = [*two_runs(tmp_path), run_of(tmp_path, "y", {"d": "0-1"}, dataset="terms")]
    out(tmp_path, f"to={form}")
    made = bring(tmp_path / "back", tmp_path / f"_export-{form}-all")
    for run in runs:
        same(run, opened(made / run.path.relative_to(tmp_path)), codes=True)


def test_scores_with_intervals_and_attempts(tmp_path: Path) -> None:
    run = two_runs(tmp_path)[0]
    out(tmp_path, "to=eee", "model=x", f"out={tmp_path / 'out'}")
    [path] = (tmp_path / "out").glob("data/sums/local/x/*.json")
    samples = path.with_name(f"{path.stem}_samples.jsonl")
    whole = json.loads(path.read_text())
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    detailed = whole["detailed_evaluation_results"]
    assert detailed["checksum"] == hashlib.sha256(samples.read_bytes()).hexdigest()
    assert (whole["schema_version"], detailed["total_rows"]) == ("0.3.0", 12)
    R = outcomes.correct(outcomes.read(run).codes)
    results = {
        result["metric_config"]["metric_id"]: result for result in whole["evaluation_results"]
    }
    assert {"accuracy", "bayes_at_n_uniform", "pass_at_k"} <= {*results}
    score = results["accuracy"]["score_details"]
    ends = score["uncertainty"]["confidence_interval"]
    assert (ends["lower"], ends["upper"]) == parse("avg").summary(R)[2:]
    stated = (score["score"], score["uncertainty"]["standard_error"]["value"])
    assert stated == pytest.approx(avg(R))
    assert float(score["details"]["standard_error_over_questions"]) == uncertainty(R).clustered
    assert [line["metadata"]["trial"] for line in lines] == [*"0123"] * 3
    of = {line["evaluation_result_id"] for line in lines}
    assert of == {results["accuracy"]["evaluation_result_id"]}
    made = lines[0]["output"]
    assert (made["reasoning_trace"], made["raw"]) == (["<think>x\u2028y"], ["\\boxed{2}"])


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


def test_secrets_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_API_KEY", "sk-of-mine-123456")
    given = "engine.args={effort: high, api_key: abcdefgh, extra: {h: sk-of-mine-123456}}"
    run_of(tmp_path, "x", {"a": "10"}, "engine=openai", "engine.url=[http://inner:8000]", given)
    out(tmp_path, "to=eee")
    written = next(tmp_path.rglob("_export-eee-all/data/**/*.json")).read_text()
    assert '"engine.args.effort": "high"' in written
    assert not any(text in written for text in ("sk-of", "abcdefgh", "inner"))


@pytest.mark.soak
@pytest.mark.extras
def test_their_validator_finds_nothing(tmp_path: Path) -> None:
    program = shutil.which("every_eval_ever")
    if program is None:
        pytest.skip("no every_eval_ever in PATH: make extras, where python3.12 is")
    two_runs(tmp_path)
    out(tmp_path, "to=eee", f"out={tmp_path / 'out'}")
    command = [program, "validate", "data/*/*/*/*.json*"]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0 and "4 passed" in done.stdout, done.stdout


def test_a_run_without_grades_is_left_out_or_refused(tmp_path: Path, capsys: Capsys) -> None:
    run_of(tmp_path, "x", {"a": "++"})
    with pytest.raises(UserError, match=r"nothing graded yet; run `.* grade`"):
        out(tmp_path, "to=eee")
    assert not [*tmp_path.rglob("*export*")]
    run_of(tmp_path, "y", {"a": "10"})
    out(tmp_path, "to=lm_eval")
    assert "x is skipped: " in capsys.readouterr().err
    assert [path.parent.name for path in tmp_path.rglob("samples_*.jsonl")] == ["y"]


def sample(doc: int, texts: list[str], right: float | list[float] | None, **more: Any) -> Any:
    """A line as lm-evaluation-harness 0.4 writes it."""
    return {
        "doc_id": doc,
        "doc": {"question": f"What is {doc}+{doc}?", "answer": str(2 * doc)},
        "target": str(2 * doc),
        "arguments": {"gen_args_0": {"arg_0": f"Q: {doc}+{doc}\nA:", "arg_1": {"until": []}}},
        "resps": [texts],
        "filtered_resps": [texts[0]] if len(texts) == 1 else [texts],
        "filter": "none",
        "metrics": ["exact_match"],
        "exact_match": right,
    } | more


def test_a_results_folder(tmp_path: Path, capsys: Capsys) -> None:
    folder = tmp_path / "out" / "Qwen__Qwen3-4B-Thinking-2507"
    old = "samples_aime25_2026-01-01T00-00-00.000001.jsonl"
    new = "samples_aime25_2026-02-01T00-00-00.000001.jsonl"
    write_lines(folder / old, [sample(0, ["old"], 0.0)])
    rows = [sample(i, [boxed(2 * i if i % 2 else 99)], float(i % 2)) for i in range(6)]
    rows[1]["exact_match"] = 0.0  # its own metric was wrong; the grader knows better
    rows += [row | {"filter": "flexible", "exact_match": 1.0} for row in rows]
    write_lines(folder / new, rows)
    about = json.dumps({"model_name": QWEN, "results": {}})
    (folder / "results_2026-02-01T00-00-00.000001.json").write_text(about)
    runs = bring(tmp_path, tmp_path / "out")
    err = capsys.readouterr().err
    assert "is older than" in err and "not flexible (6)" in err
    assert folders(runs) == ["aime25/qwen3-4b"]
    run = opened(runs / "aime25" / "qwen3-4b")
    assert outcome_words(run).ravel().tolist() == ["wrong"] * 3 + ["correct", "wrong", "correct"]
    assert run.questions[3]["problem"] == "What is 3+3?"
    assert run.questions[3]["prompt"] == "Q: 3+3\nA:"
    grade(run)
    assert outcome_words(run)[1, 0] == "correct"
    assert "1 of 6 outcomes changed" in capsys.readouterr().out
    for setting, there in (("metric=nope", "exact_match"), ("filter=nope", "'none'|flexible")):
        with pytest.raises(UserError, match=f"{setting}: .*({there})"):
            bring(tmp_path / "b", tmp_path / "out", setting)


def test_logs_of_version_0_4_13(tmp_path: Path, capsys: Capsys) -> None:
    """As it writes them with `repeats: 3` and take_first, and for multiple choice; no boxes."""
    folder, date = tmp_path / "org__tiny", "2026-11-01T10-00-00.000001"
    texts = [[f"the answer is {i + k}." for k in range(3)] for i in range(4)]
    rows = [
        sample(i, of, 0.0, target=str(i + 1), filtered_resps=[f"{i}"], filter="first")
        | {"arguments": {"gen_args_0": {"arg_0": [f"{i}+1?"], "arg_1": {"until": []}}}}
        for i, of in enumerate(texts)
    ]
    write_lines(folder / f"samples_sums_{date}.jsonl", rows)
    answers = [["-0.8", "False"], ["-0.1", "False"]]
    choice = {"resps": [[answers[0]], [answers[1]]], "metrics": ["acc", "acc_norm"]}
    choice |= {"filtered_resps": answers, "acc": 1.0, "acc_norm": 0.0}
    rows = [{k: v for k, v in row.items() if k != "exact_match"} | choice for row in rows]
    unscored = {"doc_id": 4, "target": "5", "acc": None, "metrics": ["other"], "other": 1.0}
    write_lines(folder / f"samples_choice_{date}.jsonl", [*rows, rows[0] | unscored])
    runs = bring(tmp_path, tmp_path)
    assert "4 samples of several answers with one value" in capsys.readouterr().err
    run = opened(runs / "sums" / "tiny")
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 12 and not run.grades.exists()
    assert run.questions[2]["prompt"] == "2+1?"
    grade(Run(load_folder(run.path, ["dataset.answer=number"])))
    right = [g["trial"] for g in rows_of(run, "grades", GRADES) if g["outcome"] == "correct"]
    assert right == [1] * 4
    run = opened(runs / "choice" / "tiny")
    grades = rows_of(run, "grades", GRADES)
    assert [(g["outcome"], g["answer"]) for g in grades] == [("correct", None)] * 4


def test_hostile_lines(tmp_path: Path, capsys: Capsys) -> None:
    good = json.dumps(sample(0, [boxed(0)], 1.0))
    bomb = '{"doc_id": 1, "doc": ' + "[" * 100_000 + "]" * 100_000 + "}"
    huge = '{"doc_id": 2, "resps": [["' + "x" * 300_000 + '"]]}'
    number = '{"doc_id": 3, "exact_match": ' + "9" * 10_000 + "}"
    surrogate = json.dumps(sample(4, ["\ud800"], 1.0))
    path = tmp_path / "samples_x.jsonl"
    lines = [good, bomb, "[1]", huge, number, '{"doc_id": [', surrogate, '{"resps": 3}']
    path.write_bytes("\n".join(lines).encode() + b"\n\xff\xfe{}\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(untrusted, "MOST_LINE", 250_000)
        runs = bring(tmp_path, path, "model=tiny")
    err = capsys.readouterr().err
    assert "5 damaged lines skipped: samples_x.jsonl, line 2" in err
    assert "skipped: samples_x.jsonl, line 4\n" in err
    assert "1 damaged row skipped: samples_x.jsonl, line 8 (no question)" in err
    run = opened(runs / "x" / "tiny")
    assert (outcome_words(run) == "correct").sum() == 2
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 1


def test_an_export_has_the_repeats_of_a_question_and_its_mean(tmp_path: Path) -> None:
    ragged = run_of(tmp_path, "y", UNEQUAL)
    out(tmp_path, "to=lm_eval", f"out={tmp_path / 'out'}")
    [results] = (tmp_path / "out" / "y").glob("results_*.json")
    [samples] = results.parent.glob("samples_sums_*.jsonl")
    whole, codes = json.loads(results.read_text()), outcomes.read(ragged).codes
    for line in map(json.loads, samples.read_text(encoding="utf-8").splitlines()):
        right = outcomes.correct(codes[line["doc_id"]])
        assert line["exact_match"] == right.compressed().tolist()
        assert line["acc"] == pytest.approx(right.mean())
        assert len(line["resps"][0]) == len(right.compressed())
        kept = np.flatnonzero(~np.ma.getmaskarray(right)).tolist()
        assert line.get("trials", [*range(len(kept))]) == kept
    scores, R = whole["results"]["sums"], outcomes.correct(codes)
    assert scores["acc,none"] == pytest.approx(avg(R)[0])
    assert scores["acc_stderr,none"] == uncertainty(R).clustered
    assert whole["configs"]["sums"]["repeats"] == codes.shape[1]
