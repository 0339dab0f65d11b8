"""import: records of others become run folders; files are real, many of them hostile."""

import gzip
import json
import math
import signal
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import Capsys, outcome_words

from bayes_at_n.pipeline.base import foreign
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.compare import cohort
from bayes_at_n.pipeline.compare import rubrics as cohort_rubrics
from bayes_at_n.pipeline.config import analysis, compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.records import runs as imported_runs
from bayes_at_n.pipeline.records.importing import import_records
from bayes_at_n.pipeline.rubrics import signals
from bayes_at_n.pipeline.rubrics.categories import categorize
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.store import parquet, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, MEANS, VERDICTS
from bayes_at_n.pipeline.store.runfolder import Run

pytestmark = pytest.mark.usefixtures("undrawn")
ROOT = Path(__file__).resolve().parent.parent
QWEN, OSS = "Qwen/Qwen3-4B-Thinking-2507", "openai/gpt-oss-20b"


def record(task: str, model: str, question: int, seed: int, **more: Any) -> dict[str, Any]:
    """One row in the layout of harimo/scorio-trace, without token lists."""
    right = (question + seed) % 3 != 0
    answer = str(question + 10) if right else "7"
    return {
        "task": task,
        "model": model,
        "model_key": model.split("/")[-1].lower(),
        "reasoning_level": None,
        "data_id": question,
        "seed": seed,
        "prompt": f"<|{model}|>Problem {question} of {task}?\nPut it in a box.<end>",
        "num_prompt_tokens": 21,
        "text": rf"Thinking.</think> So \boxed{{{answer}}}.",
        "finish_reason": "stop",
        "num_completion_tokens": 3000,
        "ground_truth": str(question + 10),
        "extracted_answer": answer,
        "has_box": True,
        "is_correct": right,
        "cv3b_label": "A" if right else "B",
        "cv3b_prob": 0.75,
        "cv3b_ctx_A": 0.75 if right else 0.125,
        "cv3b_ctx_B": 0.125 if right else 0.75,
        "cv3b_ctx_C": 0.125,
        "prompt_sum_logprob": -40.0,
        "prompt_avg_logprob": -2.0,
        "prompt_ppl": math.exp(2.0),
        "completion_sum_logprob": -750.0,
        "completion_avg_logprob": -0.25,
        "completion_ppl": math.exp(0.25),
    } | more


def records(
    tasks: tuple[str, ...] = ("aime25",),
    models: tuple[str, ...] = (QWEN,),
    questions: int = 4,
    trials: int = 5,
) -> list[dict[str, Any]]:
    return [
        record(task, model, question, 1234 + trial)
        for task in tasks
        for model in models
        for question in range(questions)
        for trial in range(trials)
    ]


def write(path: Path, rows: list[dict[str, Any]], group: int = 8) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows), path, row_group_size=group)
    return path


def bring(tmp_path: Path, source: Path, *settings: str) -> Path:
    """Import into tmp_path/runs; returns that folder."""
    runs = tmp_path / "runs"
    import_records(compose.load_as(RecordsConfig, [f"source={source}", f"runs={runs}", *settings]))
    return runs


def opened(folder: Path) -> Run:
    return Run(load_folder(folder, []))


def rows_of(run: Run, name: str, columns: pa.Schema) -> list[dict[str, Any]]:
    damage = parquet.Damage()
    batches = shards.batches(run.path / name, columns, columns.names, damage)
    found = [row for batch in batches for row in batch.to_pylist()]
    assert not damage.lines
    return found


def by_key(run: Run, name: str, columns: pa.Schema) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["question_id"], row["trial"]): row for row in rows_of(run, name, columns)}


def folders(runs: Path) -> list[str]:
    return sorted(
        str(p.relative_to(runs)) for p in runs.glob("[!._]*/[!._]*") if (p / "config.yaml").exists()
    )


def test_trace_becomes_runs_that_every_verb_works_on(tmp_path: Path, capsys: Capsys) -> None:
    rows = records(("aime25", "hmmt25_feb"), (QWEN, OSS, "some/one"))
    for row in rows:
        if row["model"] == OSS:
            row["reasoning_level"] = "high"
    rows[3] |= {"is_correct": not rows[3]["is_correct"]}  # the grader will disagree
    rng = np.random.default_rng(1)
    source = write(tmp_path / "part.parquet", [rows[i] for i in rng.permutation(len(rows))])
    runs = bring(tmp_path, source)
    assert folders(runs) == [
        f"{dataset}/{model}"
        for dataset in ("aime25", "hmmt25")
        for model in ("gpt-oss-20b-high", "one", "qwen3-4b")
    ]
    run = opened(runs / "aime25" / "qwen3-4b")
    assert (run.cfg.model.id, run.cfg.sampling.trials, run.cfg.sampling.seed) == (QWEN, 5, 1234)
    assert [q["question_id"] for q in run.questions] == [f"aime25-0{i}" for i in (0, 1, 2, 3)] or (
        sorted(q["question_id"] for q in run.questions) == [f"aime25-0{i}" for i in range(4)]
    )
    assert run.questions[0]["prompt"].startswith(f"<|{QWEN}|>")
    mine = [r for r in rows if (r["task"], r["model"]) == ("aime25", QWEN)]
    wanted = {(f"aime25-{r['data_id']:02d}", r["seed"] - 1234): r for r in mine}
    attempts = by_key(run, "attempts", ATTEMPTS)
    assert attempts.keys() == wanted.keys()
    for key, row in wanted.items():
        assert attempts[key]["text"] == row["text"]
        assert attempts[key]["seed"] == row["seed"]
        assert attempts[key]["completion_tokens"] == 3000
    grades = by_key(run, "grades", GRADES)
    assert {k: g["outcome"] == "correct" for k, g in grades.items()} == {
        k: r["is_correct"] for k, r in wanted.items()
    }
    assert {g["layer"] for g in grades.values()} == {"imported"}
    hmmt = opened(runs / "hmmt25" / "one")
    assert {q["question_id"] for q in hmmt.questions} == {f"hmmt25-0{i}" for i in range(1, 5)}

    signals.make(run)
    table = signals.read(run).to_pylist()
    assert len(table) == 20
    for row in table:
        assert row["completion_bpt"] == pytest.approx(0.25 / math.log(2))
        assert row["prompt_bpt"] == pytest.approx(2 / math.log(2))
        assert row["token_ratio"] == pytest.approx(3000 / 32768)
        assert row["a"] == (0.75 if wanted[row["question_id"], row["trial"]]["cv3b_label"] == "A"
                            else 0.125)  # fmt: skip
    run = Run(load_folder(run.path, ["rubric=verifier-only,concision-high-conf"]))
    categorize(run)
    score(run)
    scores = json.loads((run.path / "scores.json").read_text())
    share = sum(r["is_correct"] for r in mine) / 20
    assert scores["uniform_prior"]["avg"]["mean"] == pytest.approx(share)
    assert set(scores["rubrics"]) == {"verifier-only", "concision-high-conf"}
    capsys.readouterr()
    grade(run)
    assert "1 of 20 outcomes changed" in capsys.readouterr().out
    changes = [
        json.loads(line) for line in (run.grades / "_changes.jsonl").read_text().splitlines()
    ]
    [change] = changes
    assert (change["question_id"], change["trial"]) == ("aime25-00", 3)


def test_import_again_does_nothing_and_sources_do_not_mix(tmp_path: Path, capsys: Capsys) -> None:
    source = write(tmp_path / "a" / "x.parquet", records())
    runs = bring(tmp_path, tmp_path / "a")
    before = {p: p.stat().st_mtime_ns for p in runs.rglob("*") if p.is_file()}
    bring(tmp_path, tmp_path / "a")
    assert "nothing owed" in capsys.readouterr().err
    assert {p: p.stat().st_mtime_ns for p in runs.rglob("*") if p.is_file()} == before
    write(source, records(trials=6))
    with pytest.raises(UserError, match=r"tag=NAME"):
        bring(tmp_path, source)
    bring(tmp_path, source, "tag=more")
    assert folders(runs) == ["aime25/qwen3-4b", "aime25/qwen3-4b-more"]
    assert opened(runs / "aime25" / "qwen3-4b-more").cfg.sampling.trials == 6


def test_killed_import_leaves_no_run_and_the_next_removes_the_rest(tmp_path: Path) -> None:
    rows = records(("aime25", "aime24"), (QWEN, OSS), questions=3, trials=4)
    source = write(tmp_path / "x.parquet", rows)
    program = (
        "import os, signal, sys\n"
        "from bayes_at_n.pipeline.config import compose\n"
        "from bayes_at_n.pipeline.config.records import RecordsConfig\n"
        "from bayes_at_n.pipeline.records import importing, runs\n"
        "runs.complete = lambda *given: os.kill(os.getpid(), signal.SIGKILL)\n"
        "importing.import_records(compose.load_as(RecordsConfig, sys.argv[1:]))\n"
    )
    runs = tmp_path / "runs"
    command = [sys.executable, "-c", program, f"source={source}", f"runs={runs}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, timeout=600)
    assert done.returncode == -signal.SIGKILL
    [left] = runs.iterdir()
    assert list(left.glob("*/*/attempts/*.parquet"))
    bring(tmp_path, write(source, [*rows, rows[0]]))  # any import
    assert len(folders(runs)) == 4 and not left.exists()
    assert len(rows_of(opened(runs / "aime24" / "qwen3-4b"), "attempts", ATTEMPTS)) == 12


def test_killed_between_two_renames_goes_on(tmp_path: Path) -> None:
    source = write(tmp_path / "x.parquet", records(models=(QWEN, OSS)))
    runs = bring(tmp_path, source)
    kept, lost = runs / "aime25" / "qwen3-4b", runs / "aime25" / "gpt-oss-20b"
    lost.rename(tmp_path / "away")
    before = (kept / "manifest.json").stat().st_mtime_ns
    bring(tmp_path, source)
    assert (kept / "manifest.json").stat().st_mtime_ns == before
    assert len(rows_of(opened(lost), "grades", GRADES)) == 20


def test_seeds_duplicates_and_second_answers(tmp_path: Path, capsys: Capsys) -> None:
    rows = records(questions=2, trials=3)
    rows += [rows[0], record("aime25", QWEN, 0, 1235, extracted_answer="99", text="other")]
    # Another model with seeds of its own: they count in their order.
    rows += [record("aime25", "a/other", q, seed) for q in (0, 1) for seed in (50, 7, 5000)]
    rows += [
        record("aime25", "a/unseeded", 0, 0) | {"seed": None, "text": str(i)} for i in range(3)
    ]
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    said = capsys.readouterr().err
    assert "1 duplicate left out: qwen3-4b, aime25-00, seed 1234" in said
    assert "1 second answer" in said
    run = opened(runs / "aime25" / "qwen3-4b")
    texts = {key: r["text"] for key, r in by_key(run, "attempts", ATTEMPTS).items()}
    assert len(texts) == 6
    assert texts["aime25-00", 1] != "other"
    other = rows_of(opened(runs / "aime25" / "other"), "attempts", ATTEMPTS)
    assert {(r["seed"], r["trial"]) for r in other} == {(7, 0), (50, 1), (5000, 2)}
    unseeded = rows_of(opened(runs / "aime25" / "unseeded"), "attempts", ATTEMPTS)
    assert {(r["text"], r["trial"]) for r in unseeded} == {("0", 0), ("1", 1), ("2", 2)}
    assert outcome_words(opened(runs / "aime25" / "unseeded")).shape == (2, 3)


def test_nulls_infinities_and_means(tmp_path: Path, capsys: Capsys) -> None:
    rows = records(questions=1, trials=6)
    rows[0] |= {"prompt_avg_logprob": -math.inf, "prompt_sum_logprob": -math.inf,
                "prompt_ppl": math.inf}  # fmt: skip
    rows[1] |= {"completion_avg_logprob": None}  # from the sum: -750 / 3000
    rows[2] |= {"completion_avg_logprob": math.nan, "completion_sum_logprob": None}  # from ppl
    rows[3] |= {"text": None, "extracted_answer": None, "is_correct": None}
    rows[4] |= {"has_box": False, "extracted_answer": "NotFound", "is_correct": False}
    rows[5] |= {"prompt_avg_logprob": None}  # -40 / (21 - 1)
    rows[5] |= {"cv3b_ctx_A": math.nan, "finish_reason": "length"}
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    run = opened(runs / "aime25" / "qwen3-4b")
    means = sorted(rows_of(run, "means", MEANS), key=lambda row: row["trial"])
    assert [row["prompt_mean_logprob"] for row in means] == [None, -2, -2, -2, -2, -2]
    assert [row["completion_mean_logprob"] for row in means] == pytest.approx([-0.25] * 6)
    assert "infinite" in capsys.readouterr().err
    grades = {row["trial"]: row for row in rows_of(run, "grades", GRADES)}
    assert sorted(grades) == [0, 1, 2, 4, 5]
    assert (grades[4]["outcome"], grades[4]["answer"]) == ("no_answer", None)
    verdicts = rows_of(run, "verdicts", VERDICTS)
    assert sorted(row["trial"] for row in verdicts) == [0, 1, 2, 3, 4]
    signals.make(run)
    table = {row["trial"]: row for row in signals.read(run).to_pylist()}
    assert table[0]["prompt_bpt"] is None
    assert table[5]["repeated_pattern"] and not table[4]["repeated_pattern"]


def test_lists_of_log_probs_come_before_means(tmp_path: Path) -> None:
    lists = {"completion_logprob_list": [-1.0, -3.0], "completion_token_list": [5, 6]}
    rows = [row | lists for row in records(questions=1, trials=2)]
    run = opened(bring(tmp_path, write(tmp_path / "x.parquet", rows)) / "aime25" / "qwen3-4b")
    attempts = rows_of(run, "attempts", ATTEMPTS)
    assert attempts[0]["logprobs"] == [-1.0, -3.0]
    assert attempts[0]["token_ids"] == [5, 6]
    signals.make(run)
    bits = [row["completion_bpt"] for row in signals.read(run).to_pylist()]
    assert bits == pytest.approx([2 / math.log(2)] * 2)


def test_missing_columns_are_named_with_what_they_cost(tmp_path: Path, capsys: Capsys) -> None:
    keys = ("task", "model", "data_id", "is_correct")
    rows = [{k: r[k] for k in keys} for r in records()]
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    [line] = [x for x in capsys.readouterr().err.splitlines() if "has no column" in x]
    assert "text (no regrading" in line and "seed (" in line
    run = opened(runs / "aime25" / "qwen3-4b")
    assert not run.attempts.exists()
    score(run)
    assert (outcome_words(run) != "owed").sum() == 20
    for name, what in (("is_correct", "an outcome"), ("data_id", "a question")):
        short = [{k: v for k, v in row.items() if k != name} for row in rows]
        with pytest.raises(UserError, match=f"no column for {what} .*{name}.*; it has"):
            bring(tmp_path, write(tmp_path / f"no-{name}.parquet", short))


def test_questions_of_the_users_give_problems_ids_and_hashes(tmp_path: Path) -> None:
    questions = tmp_path / "aime25.jsonl"
    questions.write_text(
        "".join(
            json.dumps(
                {"id": f"I-{i}", "problem": f"Problem {i} of aime25?", "answer": str(i + 10)}
            )
            + "\n"
            for i in range(4)
        )
    )
    source = write(tmp_path / "x.parquet", records())
    run = opened(bring(tmp_path, source, f"questions={tmp_path}") / "aime25" / "qwen3-4b")
    by_id = {q["question_id"]: q for q in run.questions}
    assert sorted(by_id) == ["I-0", "I-1", "I-2", "I-3"]
    assert by_id["I-2"]["problem"] == "Problem 2 of aime25?"
    from bayes_at_n.pipeline.prepare.questions import Question

    assert by_id["I-2"]["question_hash"] == Question("", "Problem 2 of aime25?", "12").hash
    assert {r["question_id"] for r in rows_of(run, "grades", GRADES)} == set(by_id)


@pytest.mark.parametrize(
    "name", ["../../x", "a\0b", "", "n" * 10_000, "/etc/passwd", "..", "a/../b"]
)
def test_names_cannot_leave_the_folder(tmp_path: Path, name: str) -> None:
    rows = [record(name, f"m/{name}", 0, 1234), record("aime25", f"{name}/..", 0, 1234)]
    rows += [record("aime25", QWEN, 0, 1234)]
    runs = bring(tmp_path, write(tmp_path / "in" / "x.parquet", rows))
    assert "aime25/qwen3-4b" in folders(runs)
    outside = [p for p in tmp_path.rglob("*") if not p.is_relative_to(runs)]
    assert sorted(p.name for p in outside) == ["in", "runs", "x.parquet"] or sorted(
        p.name for p in outside if p != runs
    ) == ["in", "x.parquet"]
    for folder in folders(runs):
        assert len(Path(folder).parts) == 2 and ".." not in folder
        score(opened(runs / folder))


def test_same_last_name_of_two_authors_is_two_runs(tmp_path: Path) -> None:
    rows = records(models=("a/model", "b/model"), questions=1, trials=2)
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    assert len(folders(runs)) == 2


def test_damaged_parquet_is_counted_named_and_skipped(tmp_path: Path, capsys: Capsys) -> None:
    folder = tmp_path / "in"
    sound = write(folder / "a.parquet", records(questions=2))
    whole = write(folder / "b.parquet", records(("aime24",)), group=5)
    data = bytearray(whole.read_bytes())
    where = pq.ParquetFile(whole).metadata.row_group(1)
    column = next(
        where.column(i)
        for i in range(where.num_columns)
        if where.column(i).path_in_schema == "text"
    )
    start = column.dictionary_page_offset or column.data_page_offset
    data[start : start + 60] = b"\xff" * 60
    whole.write_bytes(data)
    (folder / "c.parquet").write_bytes(sound.read_bytes()[:-400])
    runs = bring(tmp_path, folder)
    said = capsys.readouterr().err
    assert "1 damaged file skipped: c.parquet" in said
    assert "5 damaged rows skipped: b.parquet, 5 rows of group 1" in said
    run = opened(runs / "aime24" / "qwen3-4b")
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 15
    assert json.loads((run.path / "manifest.json").read_text())["imported"]["left_out"]
    (folder / "a.parquet").unlink()
    (folder / "b.parquet").unlink()
    with pytest.raises(UserError, match="no Parquet"):
        bring(tmp_path, folder)


def test_values_of_wrong_types_are_damaged_rows(tmp_path: Path, capsys: Capsys) -> None:
    rows = [r | {"data_id": str(r["data_id"]), "is_correct": "True"} for r in records(questions=1)]
    rows[0]["data_id"] = "x\ny"
    rows[1]["data_id"] = None
    rows[2]["is_correct"] = "perhaps"
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    said = capsys.readouterr().err
    assert "3 damaged rows skipped: x.parquet, row 0 (question: " in said
    assert "x.parquet, row 2 (outcome: not 'perhaps')" in said
    run = opened(runs / "aime25" / "qwen3-4b")
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 2
    assert len(rows_of(run, "grades", GRADES)) == 2


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
        "doc_hash": "0",
        "prompt_hash": "0",
        "target_hash": "0",
        "exact_match": right,
    } | more


def write_lines(path: Path, rows: list[Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def boxed(number: int) -> str:
    return rf"It is \boxed{{{number}}}"


def test_lm_eval_results_folder(tmp_path: Path, capsys: Capsys) -> None:
    folder = tmp_path / "out" / "Qwen__Qwen3-4B-Thinking-2507"
    old = "samples_aime25_2026-01-01T00-00-00.000001.jsonl"
    new = "samples_aime25_2026-02-01T00-00-00.000001.jsonl"
    write_lines(folder / old, [sample(0, ["old"], 0.0)])
    rows = [sample(i, [boxed(2 * i if i % 2 else 99)], float(i % 2)) for i in range(6)]
    rows[1]["exact_match"] = 0.0  # its own metric was wrong; the grader knows better
    rows += [row | {"filter": "flexible", "exact_match": 1.0} for row in rows]
    write_lines(folder / new, rows)
    (folder / "results_2026-02-01T00-00-00.000001.json").write_text(
        json.dumps({"model_name": QWEN, "results": {}})
    )
    runs = bring(tmp_path, tmp_path / "out")
    said = capsys.readouterr().err
    assert "is older than" in said and "not flexible (6)" in said
    assert folders(runs) == ["aime25/qwen3-4b"]
    run = opened(runs / "aime25" / "qwen3-4b")
    assert outcome_words(run).ravel().tolist() == ["wrong"] * 3 + ["correct", "wrong", "correct"]
    assert run.questions[3]["problem"] == "What is 3+3?"
    assert run.questions[3]["prompt"] == "Q: 3+3\nA:"
    grade(run)
    assert outcome_words(run)[1, 0] == "correct"
    assert "1 of 6 outcomes changed" in capsys.readouterr().out
    signals.make(run)
    [row] = [r for r in signals.read(run).to_pylist() if r["question_id"] == "aime25-03"]
    assert row["token_ratio"] is None and row["repeated_pattern"] is None
    assert row["is_correct"] is True
    score(run)
    with pytest.raises(UserError, match="says how it ended"):
        categorize(run)


def test_lm_eval_repeats(tmp_path: Path, capsys: Capsys) -> None:
    rows = [sample(1, [boxed(2), boxed(3)], [1.0, 0.0]), sample(2, [boxed(4), boxed(5)], 1.0)]
    rows += [sample(3, [], 1.0) | {"resps": [[["-1.5", "False"]], [["-0.5", "True"]]]}]
    source = write_lines(tmp_path / "s.jsonl", rows)
    runs = bring(tmp_path, source, "dataset=sums", "model=tiny")
    assert "several answers" in capsys.readouterr().err
    run = opened(runs / "sums" / "tiny")
    assert outcome_words(run).tolist() == [["correct", "wrong"], ["owed"] * 2, ["correct", "owed"]]
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 4
    grade(run)
    assert outcome_words(run)[:2].tolist() == [["correct", "wrong"]] * 2


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
        patch.setattr(foreign, "MOST_LINE", 250_000)
        runs = bring(tmp_path, path, "model=tiny")
    said = capsys.readouterr().err
    assert "5 damaged lines skipped: samples_x.jsonl, line 2" in said
    assert "skipped: samples_x.jsonl, line 4\n" in said
    assert "1 damaged row skipped: samples_x.jsonl, line 8 (no doc_id)" in said
    run = opened(runs / "x" / "tiny") if (runs / "x").exists() else opened(next(runs.glob("x*/*")))
    assert (outcome_words(run) == "correct").sum() == 2
    assert len(rows_of(run, "attempts", ATTEMPTS)) == 1


def test_csv_of_outcomes(tmp_path: Path, capsys: Capsys) -> None:
    path = tmp_path / "o.csv"
    path.write_text(
        "\ufeffmodel,question_id,trial,correct\n"
        'm,"=HYPERLINK(""http://x"",""y"")",0,1\n'
        "m,q2,0,wrong\nm,q2,1,1\nm,q2,1,0\nm,q2,1,1\nm,q3,zero,1\nm,q3\nm,,0,1\nm,q3,999999999,1\n"
        "m,q3,1,maybe\nm,q\0,1,1\n"
    )
    runs = bring(tmp_path, path, "dataset=mine")
    said = capsys.readouterr().err
    assert "6 damaged rows skipped: o.csv, " in said and "line 7 (trial: not 'zero')" in said
    assert "1 duplicate left out" in said and "1 second answer" in said
    run = opened(runs / "mine" / "m")
    ids = [q["question_id"] for q in run.questions]
    assert ids == ['=HYPERLINK("http://x","y")', "q2"]
    assert outcome_words(run).tolist() == [["correct", "owed"], ["wrong", "correct"]]
    score(run)
    with pytest.raises(UserError, match="no column for an outcome"):
        (tmp_path / "bad.csv").write_text("question,x\n1,2\n")
        bring(tmp_path, tmp_path / "bad.csv")


def test_categories_with_names_and_weights(tmp_path: Path) -> None:
    labels = {"q1": ["bad", "good", "good"], "q2": ["fair", "fair", "bad"]}
    rows = [
        {"question_id": q, "trial": t, "category": name}
        for q, names in labels.items()
        for t, name in enumerate(names)
    ]
    runs = bring(
        tmp_path,
        write_lines(tmp_path / "judge.jsonl", rows),
        "dataset=essays",
        "model=m",
        "rubric=judge",
        "category_names=[bad,fair,good]",
        "category_weights=[0,0.5,1]",
    )
    run = opened(runs / "essays" / "m")
    assert outcome_words(run).tolist() == [["wrong", "correct", "correct"], ["wrong"] * 3]
    score(run)
    found = json.loads((run.path / "scores.json").read_text())["rubrics"]["judge"]
    assert [part["count"] for part in found["categories"]] == [2, 2, 2]
    # Bayes@N with a uniform prior over three categories: (n + 1) / (N + 3) of each question.
    wanted = np.mean([(0 * 2 + 0.5 * 1 + 1 * 3) / 6, (0 * 2 + 0.5 * 3 + 1 * 1) / 6])
    assert found["bayes"]["mu"] == pytest.approx(wanted)
    assert found["categories"][1]["name"] == "fair"


def test_labels_beside_texts_outlive_our_own_rubrics(tmp_path: Path) -> None:
    rows = [
        {"question_id": "q", "trial": t, "category": t % 2, "text": boxed(2), "gold": "2"}
        | {"finish_reason": "stop"}
        for t in range(4)
    ]
    source = write_lines(tmp_path / "x.jsonl", rows)
    run = opened(bring(tmp_path, source, "dataset=d", "model=m") / "d" / "m")
    assert outcome_words(run).tolist() == [["wrong", "correct"] * 2]
    grade(run)
    assert outcome_words(run).tolist() == [["correct"] * 4]
    signals.make(run)
    run = Run(load_folder(run.path, ["rubric=exact-match"]))
    categorize(run)
    score(run)
    found = json.loads((run.path / "scores.json").read_text())["rubrics"]
    assert [part["count"] for part in found["labels"]["categories"]] == [2, 2]
    assert [part["count"] for part in found["exact-match"]["categories"]] == [0, 0, 4]


def test_npz_of_tasks(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    a, b = rng.integers(0, 2, (2, 5, 7)), rng.integers(0, 2, (2, 4, 7)).astype(float)
    a[0, 0, 6], b[1, 3, 0] = -1, np.nan
    path = tmp_path / "m.npz"
    np.savez(path, aime25=a, hmmt25_feb=b)
    runs = bring(tmp_path, path, "model=qwen3-4b,x")
    assert folders(runs) == ["aime25/qwen3-4b", "aime25/x", "hmmt25/qwen3-4b", "hmmt25/x"]
    run = opened(runs / "aime25" / "qwen3-4b")
    outcomes = outcome_words(run)
    assert outcomes[0, 6] == "owed"
    assert ((outcomes == "correct") == (a[0] == 1)).all()
    signals_ = signals.read(run)
    assert signals_.num_rows == 34
    score(run)
    for verb, said in ((grade, "no attempts to grade"), (categorize, "says how it ended")):
        with pytest.raises(UserError, match=said):
            verb(run)
        assert (outcome_words(run) == outcomes).all()
    # The matrix that `score` writes comes back as it was.
    again = bring(tmp_path / "again", run.path / "matrix.npz", "dataset=aime25", "model=m")
    back = opened(again / "aime25" / "m")
    assert (outcome_words(back) == outcomes).all()
    assert [q["question_id"] for q in back.questions] == [q["question_id"] for q in run.questions]


def test_npz_of_categories_leaves_out_what_has_no_name(tmp_path: Path, capsys: Capsys) -> None:
    np.savez(tmp_path / "c.npz", essays=np.array([[[0, 1, 2], [2, 5, 1]]]))
    names = ("category_names=[a,b,c]", "model=m")
    run = opened(bring(tmp_path, tmp_path / "c.npz", *names) / "essays" / "m")
    assert "1 damaged row skipped: essays[0, 1, 1] (" in capsys.readouterr().err
    assert outcome_words(run).tolist() == [
        ["wrong", "wrong", "correct"],
        ["correct", "owed", "wrong"],
    ]


def test_names_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from bayes_at_n.pipeline.records import plan

    monkeypatch.setattr(plan, "MOST_RUNS", 2)
    rows = [{"model": f"m{i}", "question": i, "outcome": 1} for i in range(3)]
    with pytest.raises(UserError, match="over 2 models"):
        bring(tmp_path, write_lines(tmp_path / "x.jsonl", rows), "dataset=d")
    assert folders(tmp_path / "runs") == []


def test_hostile_npz(tmp_path: Path) -> None:
    pickled = tmp_path / "p.npz"
    np.savez(pickled, aime25=np.array([{"a": 1}], dtype=object))
    with pytest.raises(UserError, match="allow_pickle"):
        bring(tmp_path, pickled)
    short = tmp_path / "s.npz"
    np.savez(short, aime25=np.zeros((2, 3, 4)))
    short.write_bytes(short.read_bytes()[:-30])
    with pytest.raises(UserError, match="no NPZ"):
        bring(tmp_path, short)
    future = tmp_path / "f.npz"
    np.savez(future, aime25=np.zeros((2, 3, 4)))
    data = bytearray(future.read_bytes())
    data[data.index(b"PK\x01\x02") + 6] = 88  # a version of the format that nobody knows
    future.write_bytes(data)
    with pytest.raises(UserError, match="no NPZ"):
        bring(tmp_path, future)
    bomb = tmp_path / "b.npz"
    np.savez_compressed(bomb, aime25=np.zeros((30, 1000, 10_000), np.int8))
    with pytest.raises(UserError, match="20000000"):
        bring(tmp_path, bomb)
    named = tmp_path / "n.npz"
    np.savez(named, aime25=np.zeros((3, 2, 2)))
    with pytest.raises(UserError, match="3 models and 2 different names"):
        bring(tmp_path, named, "model=a,b")


@pytest.mark.parametrize(
    ("member", "kind", "shape", "said"),
    [
        ("R.npy", "|i1", (10**9, 1, 0), "R has 1000000000 models; at most 5000"),
        ("R.npy", "|i1", (6000, 1, 1), "expected 6000 bytes got 0"),
        ("R.npy", "|i1", (6000, 1, 0), "R has 6000 models; at most 5000"),
        ("models.npy", "<U100000000", (9,), "(Unable to allocate|EOF)"),
        ("models.npy", "<U1", (10**7, 0), "holds no array"),
        ("R.npy", "|O", (1, 1, 1), "allow_pickle=False"),
        ("R.txt", "|i1", (1, 1, 1), "R.txt is no array"),
    ],
)
def test_an_npz_is_measured_before_it_is_read(
    tmp_path: Path, member: str, kind: str, shape: tuple[int, ...], said: str
) -> None:
    path = tmp_path / "x.npz"
    header = {"descr": kind, "fortran_order": False, "shape": shape}
    with zipfile.ZipFile(path, "w") as archive, archive.open(member, "w") as file:
        np.lib.format.write_array_header_1_0(file, header)
    with pytest.raises(UserError, match=f"{path.name}: .*{said}"):
        bring(tmp_path, path)


def test_what_a_parquet_repeats_is_not_unfolded(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text of a fixed length has no dictionary here: 1 KB of a file would be 41 GB of memory."""
    monkeypatch.setattr("bayes_at_n.pipeline.records.columns.MOST_TEXT", 1000)
    rows = records(questions=1, trials=9)
    table = pa.Table.from_pylist([row | {"text": "t" * 4001} for row in rows])
    fixed = pa.array([b"z" * (1 << 20)] * 9, pa.binary(1 << 20))
    table = table.append_column("reason", fixed)
    pq.write_table(table, tmp_path / "x.parquet", compression="zstd", store_schema=False)
    assert (tmp_path / "x.parquet").stat().st_size < 40_000
    bring(tmp_path, tmp_path / "x.parquet")
    said = capsys.readouterr().err
    assert "column left out, neither values nor lists of numbers: " in said


# In a process of its own: what another one has freed would do for it.
BOUNDED = """
import resource
from bayes_at_n.pipeline.base import foreign
before = resource.getrlimit(resource.RLIMIT_AS)
def why(read):
    try:
        read()
    except (MemoryError, ValueError) as error:
        return str(error)
def much():
    with foreign.room(1 << 20):
        bytearray(1 << 31)
assert why(much) is not None and resource.getrlimit(resource.RLIMIT_AS) == before
foreign.ROOM = -(64 << 20)  # not a byte more than this process has
print(why(lambda: foreign.json_value(b"[" + b"{}," * 3_000_000 + b"{}]")))
print(why(lambda: foreign.json_value(b"[" * 200_000)))
"""


def test_memory_for_foreign_files_is_bounded() -> None:
    said = subprocess.run([sys.executable, "-c", BOUNDED], capture_output=True, text=True, cwd=ROOT)
    assert said.returncode == 0, said.stderr
    much, deep = said.stdout.splitlines()
    assert "take too much memory" in much and "without end" in deep


def test_a_line_without_end_of_a_data_set_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "MOST_LINE", 1 << 20)
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n{"a": "' + "x" * (1 << 20) + '"}\n{"a": 2}\n')
    with pytest.raises(UserError, match=r"x.jsonl, line 2: over 1 MiB"):
        list(foreign.json_lines(path))


def test_what_is_no_source(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "binary").write_bytes(b"\x00\xff\x02")
    (tmp_path / "folder").mkdir()
    (tmp_path / "list.json").write_text('[{"question": 1, "correct": 1}]')
    for name, said in (
        ("list.json", r"one JSON list, .*: jq -c '.\[\]' list.json > list.jsonl"),
        ("empty.csv", "is empty"),
        ("binary", "neither Parquet"),
        ("folder", r"no records as \*.csv, \*.eval, .* name the file"),
        ("nothing", "no such file or folder"),
    ):
        with pytest.raises(UserError, match=said):
            bring(tmp_path, tmp_path / name)
    (tmp_path / "folder" / "samples_a.jsonl").write_text('{"doc_id": 1}')
    with pytest.raises(UserError, match=r"kind=trace \(\*.parquet\), but 1 of lm_eval"):
        bring(tmp_path, tmp_path / "folder", "kind=trace")
    (tmp_path / "a.csv").write_text("question,correct\n1,1\n")
    wrong = {"model=m": "1 row without a name skipped, give dataset=NAME: a.csv, line 2"}
    with pytest.raises(UserError, match=r"1 damaged line skipped: binary, line 1 \(not UTF-8\)"):
        bring(tmp_path, tmp_path / "binary", "kind=jsonl", "model=m")
    with pytest.raises(UserError, match="questions=/nowhere: no such file or folder"):
        bring(tmp_path, tmp_path / "a.csv", "questions=/nowhere")
    for given, said in (wrong | {"kind=jsonl": "2 damaged lines"}).items():
        with pytest.raises(UserError, match=f"no record that can be used: {said}"):
            bring(tmp_path, tmp_path / "a.csv", given)
    with pytest.raises(UserError, match=r"source.kind=x: .*auto"):
        bring(tmp_path, tmp_path / "empty.csv", "kind=x")
    assert folders(tmp_path / "runs") == []


def test_the_same_import_twice_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys
) -> None:
    source, real = write(tmp_path / "x.parquet", records()), imported_runs.complete

    def write_after_another(*given: Any) -> None:
        monkeypatch.setattr(imported_runs, "complete", real)
        bring(tmp_path, source)
        real(*given)

    monkeypatch.setattr(imported_runs, "complete", write_after_another)
    there = bring(tmp_path, source)
    assert "aime25/qwen3-4b is complete, left as it is" in capsys.readouterr().err
    assert sorted(path.name for path in there.iterdir()) == ["_imports", "aime25"]


def test_one_text_in_every_row_is_no_bomb(tmp_path: Path) -> None:
    """Ten thousand rows that share one text of 17 MB take no 170 GB."""
    from bayes_at_n.pipeline.records.columns import MOST_TEXT

    rows = records(questions=1, trials=5)
    table = pa.Table.from_pylist([row | {"text": "t"} for row in rows])
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 5), ["x" * (MOST_TEXT + 1)])
    at = table.column_names.index("text")
    pq.write_table(table.set_column(at, "text", long.cast(pa.string())), tmp_path / "x.parquet")
    run = opened(bring(tmp_path, tmp_path / "x.parquet") / "aime25" / "qwen3-4b")
    assert [row["text"] for row in rows_of(run, "attempts", ATTEMPTS)] == [None] * 5


def csv_of(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


NAMES = ("dataset=d", "model=m")


def test_categories_are_those_of_the_data_set_and_compare_as_such(tmp_path: Path) -> None:
    """Model b never gets the best label, and is still scored on the same scale as a."""
    rows = ["dataset,model,question_id,trial,label"]
    rows += [f"essays,a,{q},{t},{(q + t) % 3}" for q in range(5) for t in range(4)]
    rows += [f"essays,b,{q},{t},1" for q in range(5) for t in range(4)]
    runs = bring(tmp_path, csv_of(tmp_path / "lab.csv", *rows))
    run = opened(runs / "essays" / "b")
    assert (outcome_words(run) == "wrong").all()
    score(run)
    found = json.loads((run.path / "scores.json").read_text())["rubrics"]["labels"]
    assert [part["count"] for part in found["categories"]] == [0, 20, 0]
    # (n + 1) / (N + 3) of three categories: ((0 + 1) * 0 + (4 + 1) * 1 + (0 + 1) * 2) / 7
    assert found["bayes"]["mu"] == pytest.approx(1.0)

    cfg = analysis.load([f"runs={runs}"])
    [one] = cohort.load(cfg)
    rubric, given = cohort_rubrics.categories(one, cfg)["labels"]
    assert rubric.weights == [0, 1, 2]
    wanted = [[[(q + t) % 3 for t in range(4)] for q in range(5)], [[1] * 4] * 5]
    assert given.tolist() == wanted
    for weights in ([0, 1, 2], [0, 0.5, 2]):
        named = ["rubric=labels", f"rubric.weights.labels={weights}"]
        table = cohort_rubrics.scores(one, analysis.load([f"runs={runs}", *named]))
        means = {row["model"]: row["labels"] for row in table.rows}
        for model, cells in zip(one.names, np.array(wanted), strict=True):
            shares = np.stack([(cells == k).sum(axis=1) + 1 for k in range(3)], axis=1) / 7
            assert means[model] == pytest.approx((shares @ weights).mean())
        assert "as they were imported" in table.notes[0]


def test_labels_of_other_names_are_not_compared(tmp_path: Path, capsys: Capsys) -> None:
    for model, most in (("a", 1), ("b", 2)):
        rows = [f"0,{t},{t % (most + 1)}" for t in range(4)]
        source = csv_of(tmp_path / f"{model}.csv", "question_id,trial,label", *rows)
        runs = bring(tmp_path, source, "dataset=d", f"model={model}")
    cfg = analysis.load([f"runs={runs}", "rubric=labels"])
    [one] = cohort.load(cfg)
    with pytest.raises(UserError, match="other names or weights"):
        cohort_rubrics.categories(one, cfg)


def test_questions_are_checked_by_their_gold_answers(tmp_path: Path, capsys: Capsys) -> None:
    known = [("K1", "1+1?", "2"), ("K2", "2+2?", "4")]
    lines = [{"id": i, "problem": p, "answer": a} for i, p, a in known]
    questions = write_lines(tmp_path / "known.jsonl", lines)
    named = (f"questions={questions}", "dataset=d")
    other = csv_of(tmp_path / "o.csv", "question_id,trial,correct,gold", "0,0,1,2", "1,0,1,222")
    with pytest.raises(UserError, match="4 there and 222"):
        bring(tmp_path, other, *named, "model=other")
    # As `grade` compares: 2.0 is 2.
    same = csv_of(tmp_path / "s.csv", "question_id,trial,correct,gold", "0,0,1,2.0", "1,0,1,4 ")
    run = opened(bring(tmp_path, same, *named, "model=same") / "d" / "same")
    assert [q["question_id"] for q in run.questions] == ["K1", "K2"]
    assert "by their number" not in capsys.readouterr().err
    few = csv_of(tmp_path / "f.csv", "question_id,trial,correct", "0,0,1")
    with pytest.raises(UserError, match="it has 2, the records 1"):
        bring(tmp_path, few, *named, "model=few")
    blind = csv_of(tmp_path / "b.csv", "question_id,trial,correct", "0,0,1", "1,0,1")
    bring(tmp_path, blind, *named, "model=blind")
    assert "2 questions" in capsys.readouterr().err


def test_texts_in_csv_keep_their_blank_lines(tmp_path: Path) -> None:
    text = "para one\n\npara two\n\n\\boxed{3}"
    source = csv_of(tmp_path / "b.csv", "question_id,trial,correct,text", "", f'0,0,1,"{text}"')
    run = opened(bring(tmp_path, source, *NAMES) / "d" / "m")
    assert rows_of(run, "attempts", ATTEMPTS)[0]["text"] == text


def test_a_record_that_cannot_be_parsed_is_skipped(tmp_path: Path, capsys: Capsys) -> None:
    lines = [f"{i},1,{chr(34) * (i in (1, 5, 998))}y" for i in range(1000)]
    source = csv_of(tmp_path / "s.csv", "question_id,correct,answer", *lines)
    runs = bring(tmp_path, source, *NAMES)
    said = capsys.readouterr().err
    assert "2 damaged rows skipped: s.csv, line 3 (" in said and "and 4 lines behind it" in said
    assert "s.csv, line 1000 (a quote that is not closed, and 1 lines behind it)" in said
    assert len(opened(runs / "d" / "m").questions) == 1000 - 5 - 2
    source.write_bytes(b"question_id,correct,answer\n0,1,\xff\n1,1,c\n")
    runs = bring(tmp_path / "again", source, *NAMES)
    assert "1 damaged row skipped: s.csv, line 2 (not UTF-8)" in capsys.readouterr().err
    assert len(opened(runs / "d" / "m").questions) == 1


def test_a_field_without_end_is_damage(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "MOST_FIELD", 1000)
    lines = ["0,1,x", "1,1," + "x" * 2000, "2,1,x"]
    source = csv_of(tmp_path / "s.csv", "question_id,correct,answer", *lines)
    runs = bring(tmp_path, source, *NAMES)
    assert "1 damaged row skipped: s.csv, line 3 (field larger" in capsys.readouterr().err
    assert len(opened(runs / "d" / "m").questions) == 2


def test_any_change_of_a_file_is_seen_and_no_spelling(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [f"{i:04d},0,0" for i in range(20_000)]
    source = csv_of(tmp_path / "s.csv", "question_id,trial,correct", *lines)
    runs = bring(tmp_path, source, *NAMES)
    monkeypatch.chdir(tmp_path)
    capsys.readouterr()
    bring(tmp_path, Path("s.csv"), *NAMES)
    assert "nothing owed" in capsys.readouterr().err
    lines[10_000] = "10000,0,1"
    csv_of(source, "question_id,trial,correct", *lines)
    with pytest.raises(UserError, match="not of this import"):
        bring(tmp_path, source, *NAMES)
    assert (outcome_words(opened(runs / "d" / "m")) == "wrong").all()


def test_lm_eval_names_are_not_overridden(tmp_path: Path) -> None:
    for task, model in (("aime", "a"), ("gsm", "a"), ("gsm", "b")):
        path = tmp_path / "in" / f"org__{model}" / f"samples_{task}_2025-01-01T00-00-00.0.jsonl"
        write_lines(path, [sample(0, [boxed(0)], 1.0)])
    with pytest.raises(UserError, match=r"dataset=mine.* aime, gsm"):
        bring(tmp_path, tmp_path / "in", "dataset=mine")
    with pytest.raises(UserError, match=r"model=mine.* org/a, org/b"):
        bring(tmp_path, tmp_path / "in", "model=mine")
    runs = bring(tmp_path, tmp_path / "in" / "org__b", "dataset=mine", "model=my")
    assert folders(runs) == ["mine/my"]


@pytest.mark.parametrize(
    ("setting", "said"),
    [("metric=nope", "but exact_match"), ("filter=nope", "which has 'none'")],
)
def test_lm_eval_metric_and_filter_must_be_there(tmp_path: Path, setting: str, said: str) -> None:
    source = write_lines(tmp_path / "samples_x.jsonl", [sample(0, [boxed(0)], 1.0)])
    with pytest.raises(UserError, match=f"{setting}: .*{said}"):
        bring(tmp_path, source, setting, "model=m")


def test_three_keys_of_one_model_are_three_runs(tmp_path: Path) -> None:
    rows = [record("aime25", QWEN, 0, 1234, model_key=f"k{i}", is_correct=i == 0) for i in range(3)]
    runs = bring(tmp_path, write(tmp_path / "x.parquet", rows))
    assert len(folders(runs)) == 3
    shares = [(outcome_words(opened(runs / f)) == "correct").sum() for f in folders(runs)]
    assert sorted(shares) == [0, 0, 1]


def test_a_number_and_a_name_are_two_questions(tmp_path: Path) -> None:
    source = csv_of(tmp_path / "q.csv", "question_id,trial,correct", "7,0,1", "aime25-07,0,0")
    run = opened(bring(tmp_path, source, "dataset=aime25", "model=m") / "aime25" / "m")
    ids = [q["question_id"] for q in run.questions]
    assert len(set(ids)) == 2 and "aime25-07" in ids
    assert outcome_words(run).ravel().tolist() == ["correct", "wrong"]


def small(**more: Any) -> dict[str, Any]:
    two = {"task": ["aime25"] * 2, "model": ["m/x"] * 2, "data_id": [0, 1]}
    return two | {"is_correct": [True, False]} | more


def test_parquet_of_odd_columns(tmp_path: Path, capsys: Capsys) -> None:
    source = tmp_path / "x.parquet"
    pq.write_table(pa.table(small(extracted_answer=[["1"], ["2"]])), source)
    run = opened(bring(tmp_path / "1", source) / "aime25" / "x")
    said = capsys.readouterr().err
    assert "1 column left out" in said and "extracted_answer" in said
    assert outcome_words(run).ravel().tolist() == ["correct", "wrong"]
    offsets = pa.py_buffer(np.array([0, 1, 2], np.int32).tobytes())
    bad = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"\xff7"))
    for name in ("ground_truth", "extracted_answer", "text", "prompt", "finish_reason"):
        pq.write_table(pa.table(small(**{name: bad})), source)
        run = opened(bring(tmp_path / name, source) / "aime25" / "x")
        said = capsys.readouterr().err
        assert f"1 value of {name} left out: x.parquet, row 0 (not UTF-8)" in said
    pq.write_table(pa.table(small(task=bad)), source)
    bring(tmp_path / "task", source)
    assert "1 damaged row skipped: x.parquet, row 0 (task: not UTF-8" in capsys.readouterr().err
    table = pa.table(small())
    pq.write_table(table.append_column("task", table["task"]), source)
    with pytest.raises(UserError, match="task is there twice"):
        bring(tmp_path, source)
    twice = csv_of(tmp_path / "x.csv", "question_id,correct,correct", "0,1,0")
    with pytest.raises(UserError, match="correct is there twice"):
        bring(tmp_path, twice, *NAMES)


def test_trials_from_one_and_a_row_without_trial(tmp_path: Path, capsys: Capsys) -> None:
    rows = [f"{q},{t},{t % 2}" for q in range(3) for t in range(1, 5)]
    source = csv_of(tmp_path / "o.csv", "question_id,trial,correct", *rows)
    run = opened(bring(tmp_path, source, *NAMES) / "d" / "m")
    assert outcome_words(run).tolist() == [["correct", "wrong"] * 2] * 3
    assert "trials are counted from 1" in capsys.readouterr().err
    rows = ["0,0,1", "0,0,1", "0,0,1", "0,3,0", "1,0,0", "1,,0"]
    source = csv_of(tmp_path / "e.csv", "question_id,trial,correct", *rows)
    run = opened(bring(tmp_path / "e", source, *NAMES) / "d" / "m")
    said = capsys.readouterr().err
    assert "2 duplicates left out: m, d-00, trial 0" in said
    assert "1 damaged row skipped: m, d-01 (no trial)" in said
    owed = ["owed"] * 3
    assert outcome_words(run).tolist() == [["correct", *owed[1:], "wrong"], ["wrong", *owed]]
    # The place of a cell in an array is its trial, whatever is owed.
    np.savez(tmp_path / "x.npz", d=np.array([[[-1, 1, 0]]]))
    run = opened(bring(tmp_path / "n", tmp_path / "x.npz", "model=m") / "d" / "m")
    assert outcome_words(run).tolist() == [["owed", "correct", "wrong"]]


def test_large_seeds_and_floats_of_pandas(tmp_path: Path) -> None:
    large = [2**53 + 1, 2**53, 3735928559]
    rows = [f"0,{seed},1,x" for seed in large]
    source = csv_of(tmp_path / "s.csv", "question_id,seed,correct,text", *rows)
    run = opened(bring(tmp_path, source, *NAMES) / "d" / "m")
    wanted = {(seed, trial) for trial, seed in enumerate(sorted(large))}
    assert {(r["seed"], r["trial"]) for r in rows_of(run, "attempts", ATTEMPTS)} == wanted
    rows_ = [record("aime25", QWEN, 0, seed) for seed in large]
    run = opened(bring(tmp_path, write(tmp_path / "x.parquet", rows_)) / "aime25" / "qwen3-4b")
    assert {(r["seed"], r["trial"]) for r in rows_of(run, "attempts", ATTEMPTS)} == wanted
    source = csv_of(tmp_path / "p.csv", "question_id,trial,label", "0,0.0,1.0", "1,1.0,2.0")
    run = opened(bring(tmp_path / "p", source, *NAMES) / "d" / "m")
    assert outcome_words(run).tolist() == [["wrong", "owed"], ["owed", "correct"]]


def test_what_was_asked_and_is_not_there_is_said(tmp_path: Path) -> None:
    words = csv_of(tmp_path / "w.csv", "question_id,trial,label", "0,0,good", "1,0,bad")
    with pytest.raises(UserError, match=r"'good'.*category_names=\["):
        bring(tmp_path, words, *NAMES)
    source = write(tmp_path / "x.parquet", records(models=(QWEN, "a/b")))
    for wrong, said in (("model=b,nope", "b, qwen3-4b"), ("dataset=aime99", "aime25")):
        with pytest.raises(UserError, match=f"not in .*; there are {said}$"):
            bring(tmp_path, source, wrong)
    plain = csv_of(tmp_path / "p.csv", "model,question_id,trial,correct", "org/b,0,0,1", "c,0,0,0")
    for wrong, said in (("model=x", "b, c"), ("model=b,x", "b, c"), ("dataset=d,e", "d")):
        with pytest.raises(UserError, match=f"not in .*; there are {said}$"):
            bring(tmp_path, plain, "dataset=d", wrong)
    for name, kinds in (("metric", "lighteval, .* and nemo_skills"), ("filter", "lm_eval")):
        with pytest.raises(UserError, match=f"{name}=x: is for {kinds}, and .* taken for csv"):
            bring(tmp_path, plain, f"{name}=x")
    assert folders(tmp_path / "runs") == []


def test_a_header_object_is_one_damaged_row(tmp_path: Path, capsys: Capsys) -> None:
    rows = [{"note": "header"}, {"question_id": 1, "correct": 1}]
    run = opened(bring(tmp_path, write_lines(tmp_path / "f.jsonl", rows), *NAMES) / "d" / "m")
    assert "1 damaged row skipped: f.jsonl, line 1 (no question)" in capsys.readouterr().err
    assert outcome_words(run).tolist() == [["correct"]]
    with pytest.raises(UserError, match=r"question .*note"):
        bring(tmp_path, write_lines(tmp_path / "g.jsonl", rows[:1]), *NAMES)


def test_gzip_is_refused_with_its_remedy(tmp_path: Path) -> None:
    for name in ("x.csv.gz", "x.jsonl.gz"):
        (tmp_path / name).write_bytes(gzip.compress(b"question_id,correct\n0,1\n"))
        with pytest.raises(UserError, match=f"gunzip {name}"):
            bring(tmp_path, tmp_path / name, *NAMES)


def test_texts_without_outcomes_are_attempts_to_grade(tmp_path: Path, capsys: Capsys) -> None:
    """What a user's own sampler writes: no outcome, and questions known by their problems."""
    asked = [("1+1?", "2"), ("2+2?", "4")]
    rows = [{"problem": p, "gold": g, "text": boxed(4)} for p, g in (*asked, asked[0])]
    runs = bring(tmp_path, write_lines(tmp_path / "own.jsonl", rows), *NAMES)
    assert "d: no attempt is graded; run `grade`" in capsys.readouterr().err
    run = opened(runs / "d" / "m")
    found = [(q["question_id"], q["problem"], q["gold"]) for q in run.questions]
    assert found == [("d-00", "1+1?", "2"), ("d-01", "2+2?", "4")]
    hashes = json.loads((run.path / "manifest.json").read_text())["imported"]["question_hashes"]
    assert hashes == "problem and gold answer"
    grade(run)
    assert outcome_words(run).tolist() == [["wrong", "wrong"], ["correct", "owed"]]
    capsys.readouterr()
    for row in rows:
        del row["gold"]
    bring(tmp_path / "b", write_lines(tmp_path / "own.jsonl", rows), *NAMES)
    assert "d: 2 questions without a gold answer; do not `grade`" in capsys.readouterr().err
    long = [{"question": p, "gold": "4", "text": "4"} for p in ("Add\n2, 2.", "q", "Add\n2, 2.")]
    csv = csv_of(tmp_path / "o.csv", "question,text", f'"{"Add. " * 30}",4')
    for source, most in ((write_lines(tmp_path / "long.jsonl", long), 2), (csv, 1)):
        run = opened(bring(tmp_path / source.stem, source, *NAMES) / "d" / "m")
        assert run.questions[0]["problem"][:3] == "Add"
        assert run.questions[0]["question_id"] == "d-00" and len(run.questions) == most
    with pytest.raises(UserError, match="no column for an outcome or text"):
        bring(tmp_path, write_lines(tmp_path / "p.jsonl", [{"problem": "1+1?"}]), *NAMES)


def test_a_folder_of_csv_is_read_and_names_choose(tmp_path: Path, capsys: Capsys) -> None:
    folder = tmp_path / "in"
    for name, right in (("a", 1), ("b", 0)):
        (folder / name).mkdir(parents=True)
        lines = [f"org/{name},{q},{right}" for q in "012"] + [f"org/{name},0,maybe"]
        csv_of(folder / name / "x.csv", "model,question_id,correct", *lines)
    (folder / "empty.csv").touch()
    write_lines(folder / "x.jsonl", [{"question_id": 1, "correct": 1}])
    runs = bring(tmp_path, folder, "dataset=d", "kind=csv")
    said = capsys.readouterr().err
    assert folders(runs) == ["d/a", "d/b"]
    assert "taken for csv (2 files *.csv)" in said
    assert "1 empty file left out: empty.csv" in said
    assert "2 damaged rows skipped: a/x.csv, line 5 (outcome: not 'maybe'); b/x.csv, line 5" in said
    assert folders(bring(tmp_path / "b", folder, "dataset=d", "kind=csv", "model=org/b")) == ["d/b"]
    capsys.readouterr()
    bring(tmp_path / "auto", folder, "dataset=d", "model=m")
    assert "also holds 2 files of csv, such as x.csv" in capsys.readouterr().err


def test_reasons_are_those(tmp_path: Path, capsys: Capsys) -> None:
    """What is said of odd values is why they cannot be used."""
    rows = [{"question_id": "q" * 2000, "correct": 1}, *[{"question_id": 1, "correct": 1}] * 4]
    bring(tmp_path, write_lines(tmp_path / "x.jsonl", rows), *NAMES)
    said = capsys.readouterr().err
    assert "(question: not 'qqqqqqqqqqqq...qqqqqqqqqqqqq', 2,000 characters)" in said
    assert "1 question, up to 4 trials" in said
    rows = [row | {"trial": 0} for row in rows[1:]]
    bring(tmp_path / "b", write_lines(tmp_path / "x.jsonl", rows), *NAMES)
    assert "3 duplicates left out: m, d-01, trial 0 ...\n" in capsys.readouterr().err
    labels = csv_of(tmp_path / "l.csv", "question_id,label", "0,a", "1,b", "1,2")
    bring(tmp_path / "c", labels, *NAMES, "category_names=[a,b]")
    assert "no category '2': there are 2, from 0" in capsys.readouterr().err
    np.savez(tmp_path / "x.npz", d=np.array([[[0, 2]]]))
    bring(tmp_path / "d", tmp_path / "x.npz", "model=m")
    assert "d: values up to 2 are categories, of which 2 is correct" in capsys.readouterr().err
    with pytest.raises(UserError, match="1 model and 2 different names"):
        bring(tmp_path, tmp_path / "x.npz", "model=a,b")
    odd = write_lines(tmp_path / "q.jsonl", [{"id": 1, "text": "1+1?"}])
    with pytest.raises(UserError, match="'answer'; found id, text; the fields are id, problem"):
        bring(tmp_path, labels, *NAMES, "category_names=[a,b]", f"questions={odd}")
    (tmp_path / "wide.csv").write_text("question_id,correct\n0,1\n", "utf-16")
    with pytest.raises(UserError, match="save text in UTF-8, not UTF-16"):
        bring(tmp_path, tmp_path / "wide.csv", *NAMES)


def test_too_many_trials_name_the_question(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bayes_at_n.pipeline.records.plan.MOST_TRIALS", 3)
    source = csv_of(tmp_path / "x.csv", "question_id,correct", "0,1", *["1,1"] * 4)
    with pytest.raises(UserError, match=r"d/m: 2 questions x 4 trials are too many; d-01 has most"):
        bring(tmp_path, source, *NAMES)
