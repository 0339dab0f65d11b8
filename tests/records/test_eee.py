"""Every Eval Ever in and out; and what all logs that are exported have in common."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from helpers import Capsys, make_run, run_of
from record_files import bring, opened, out

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.store import outcomes, shards, tables
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
    responses = []
    for each in (run, again):
        keys, damage = (
            tables.encode(tables.streamed(each, "attempts", []), tables.question_ids(each)),
            shards.Damage(),
        )
        graded = outcomes.read(each).codes[keys >> 32, keys & 0xFFFFFFFF] != outcomes.PENDING
        read = tables.responses(each, keys, damage)
        responses.append(sorted(text for i, text in read if graded[i]))
    assert responses[0] == responses[1]


@pytest.mark.parametrize("form", ["eee", "lm_eval"])
def test_logs_are_imported_again_with_equal_matrices(tmp_path: Path, form: str) -> None:
    runs = [*two_runs(tmp_path), run_of(tmp_path, "y", {"d": "0-1"}, dataset="terms")]
    out(tmp_path, f"to={form}")
    made = bring(tmp_path / "back", tmp_path / f"_export-{form}-all")
    for run in runs:
        same(run, opened(made / run.path.relative_to(tmp_path)), codes=form == "eee")


def test_scores_with_intervals_and_attempts(tmp_path: Path) -> None:
    run = two_runs(tmp_path)[0]
    where = ["to=eee", "model=x", f"out={tmp_path / 'out'}"]
    out(tmp_path, *where)
    [path] = (tmp_path / "out").glob("data/sums/local/x/*.json")
    samples = path.with_name(f"{path.stem}_samples.jsonl")
    whole = json.loads(path.read_text())
    lines = [json.loads(line) for line in samples.read_text(encoding="utf-8").splitlines()]
    assert whole["schema_version"] == "0.3.0"
    detailed = whole["detailed_evaluation_results"]
    assert detailed["checksum"] == hashlib.sha256(samples.read_bytes()).hexdigest()
    listed = (detailed["file_path"], detailed["total_rows"])
    assert listed == (f"data/sums/local/x/{samples.name}", 12)
    R = outcomes.correct(outcomes.read(run).codes)
    results = {
        result["metric_config"]["metric_id"]: result for result in whole["evaluation_results"]
    }
    assert {"accuracy", "bayes_at_n_uniform", "pass_at_k"} <= {*results}
    score = results["accuracy"]["score_details"]
    ends = score["uncertainty"]["confidence_interval"]
    stated = (score["score"], score["uncertainty"]["standard_error"]["value"])
    assert stated == pytest.approx(avg(R))
    assert (ends["lower"], ends["upper"]) == parse("avg").summary(R)[2:]
    assert float(score["details"]["standard_error_over_questions"]) == uncertainty(R).clustered
    for line in lines:
        assert all(isinstance(value, str) for value in line["metadata"].values())
        assert line["evaluation_result_id"] == results["accuracy"]["evaluation_result_id"]
    assert [line["metadata"]["trial"] for line in lines] == [*"0123"] * 3
    made = lines[0]["output"]
    assert (made["reasoning_trace"], made["raw"]) == (["<think>x\u2028y"], ["\\boxed{2}"])
    back = bring(tmp_path / "back", tmp_path / "out")
    out(back, "to=eee")
    [path] = (back / "sums" / "_export-eee-all").glob("data/sums/local/x/*.json")
    details = [
        of["model_info"]["additional_details"] for of in (whole, json.loads(path.read_text()))
    ]
    assert [of.get("dtype") for of in details] == [run.cfg.model.dtype, None]  # not known of it


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
