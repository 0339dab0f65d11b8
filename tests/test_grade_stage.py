"""grade on run folders made by hand and on plain files: cache, changes, review list, --file."""

import itertools
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from helpers import Capsys, add_grades, again, grades, make_run, write_questions

from bayes_at_n import verifiers
from bayes_at_n.pipeline.base import atomic
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config import compose
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.config.records import RecordsConfig
from bayes_at_n.pipeline.grade import attempts, review, stage
from bayes_at_n.pipeline.records.importing import import_records
from bayes_at_n.pipeline.store import graded, parquet, tables
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.guard import Moved
from bayes_at_n.verifiers.answers import grading

# Per question the completions; the gold answers are 2, 1/2 and x+1.
TEXTS = {
    "q1": [r"\boxed{2}", r"\boxed{3}", "</think>no box", r"\boxed{2"],
    "q2": [r"\boxed{\frac{2}{4}}", r"\boxed{0.4}", r"\boxed{0.4}", r"\boxed{0.5}"],
    "q3": [r"\boxed{1+x}", r"\boxed{x+2}", r"\boxed{(x^2-1)/(x-1)}", r"so \boxed{x+1}"],
}
GOLD = {"q1": "2", "q2": r"\frac{1}{2}", "q3": "x+1"}
MARKS = {"q1": "++++", "q2": "++++", "q3": "+++~"}  # the last attempt was cut off


def ungraded_run(folder: Path, *overrides: str, texts: dict[str, list[str]] = TEXTS) -> Run:
    marks = MARKS if texts is TEXTS else {q: "+" * len(line) for q, line in texts.items()}
    gold = GOLD if texts is TEXTS else {}
    run = make_run(folder, marks, "grading.workers=1", *overrides, gold=gold, texts=texts)
    shutil.rmtree(run.grades, ignore_errors=True)
    return run


@pytest.mark.parametrize("replaced", [False, True])
def test_a_renamed_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, replaced: bool) -> None:
    run, moved, read = ungraded_run(tmp_path / "run"), tmp_path / "moved", parquet.read

    def moving(*arguments: Any) -> Any:
        yield from read(*arguments)
        if not moved.exists():
            run.path.rename(moved)
            if replaced:
                run.path.mkdir()

    monkeypatch.setattr(parquet, "read", moving)
    with pytest.raises(Moved, match="renamed"):
        stage.grade(run)
    assert [*tmp_path.rglob("run/*")] == [] and run.path.exists() == replaced
    monkeypatch.undo()
    run.cfg.run_dir = str(moved)
    stage.grade(run)
    assert len(grades(run)) == 12


def outcomes(run: Run) -> dict[str, list[str]]:
    by_key = grades(run)
    return {q: [by_key[q, i]["outcome"] for i in range(len(TEXTS[q]))] for q in TEXTS}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def no_work(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(pairs: Any, **_: Any) -> None:
        raise AssertionError(f"asked again about {list(pairs)}")

    monkeypatch.setattr(verifiers, "grade", refuse)


EXPECTED = {
    "q1": ["correct", "wrong", "no_answer", "no_answer"],
    "q2": ["correct", "wrong", "wrong", "correct"],
    "q3": ["correct", "wrong", "correct", "no_answer"],
}


def test_equal_pairs_are_compared_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stage.grade(ungraded_run(tmp_path / "one"))
    no_work(monkeypatch)
    two = ungraded_run(tmp_path / "two")
    stage.grade(two)
    assert outcomes(two) == EXPECTED


NESTED = r"\boxed{" * 1_100 + "2" + "}" * 1_100


def test_no_response_ends_a_command(tmp_path: Path, capsys: Capsys) -> None:
    hostile = [NESTED, r"\boxed{2" * 1_100, r"\boxed{" + "{" * 10**5, "(" * 10**5, r"\boxed{2}"]
    rows = [
        {"model": "m", "question": f"q{i}", "trial": 0, "gold": "2", "text": text}
        for i, text in enumerate(hostile)
    ]
    settings = [
        f"source={write_questions(tmp_path / 'in.jsonl', rows)}",
        f"runs={tmp_path / 'runs'}",
    ]
    assert main(["import", "dataset=d", *settings]) == 0
    [folder] = (path.parent for path in tmp_path.glob("runs/*/*/config.yaml"))
    assert main(["grade", str(folder)]) == 0
    run = Run(load_folder(folder, []))
    assert [grades(run)[f"q{i}", 0]["outcome"] for i in (0, 4)] == ["correct", "correct"]
    assert main(["score", str(folder)]) == 0


def test_grader_exceptions(tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    run, find, decide = ungraded_run(tmp_path / "run"), verifiers.find, grading.decide

    def finding(text: str, **more: Any) -> Any:
        if "no box" in text:
            raise RecursionError("too deep")
        return find(text, **more)

    def deciding(gold: str, answer: str, *more: Any) -> Any:
        if answer == "x+2":
            raise ZeroDivisionError("by zero")
        return decide(gold, answer, *more)

    monkeypatch.setattr(verifiers, "find", finding)
    monkeypatch.setattr(grading, "decide", deciding)
    monkeypatch.setattr(attempts, "_cache", {})
    assert main(["grade", str(run.path)]) == 0
    err = " ".join(capsys.readouterr().err.split())
    assert "failed on 2 attempts, first on q1 trial 2: RecursionError: too deep" in err
    rows = grades(run)
    assert rows["q3", 1]["reason"] == "ZeroDivisionError: by zero"
    of = {key for key, row in rows.items() if row["outcome"] == "error"}
    assert of == {("q1", 2), ("q3", 1)} and rows["q1", 2]["box"] == "error"
    assert lines(review.path(run))[0]["kind"] == "error"
    assert main(["score", str(run.path), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["shares"]["error"], report["shares"]["correct"]) == (2 / 12, 5 / 12)


def test_other_settings_grade_anew_and_show_what_changed(tmp_path: Path, capsys: Capsys) -> None:
    texts = {"q1": [r"\boxed{200\%}", r"\boxed{2\%}", r"\boxed{7}"]}
    run = ungraded_run(tmp_path / "run", texts=texts)
    stage.grade(run)
    capsys.readouterr()
    either = again(run, "dataset.conventions.percent=either")
    stage.grade(either)
    [change] = lines(run.grades / "_changes.jsonl")
    assert (change["trial"], change["from"], change["to"]) == (1, "wrong", "correct")
    assert (change["gold"], change["answer"]) == ("2", r"2\%") and change["reason"]
    out, err = capsys.readouterr()
    assert "1 of 3 outcomes changed" in out and "wrong → correct" in out
    assert "(conventions)" in err
    stage.grade(again(run, "dataset.conventions.percent=either", "grading.timeout_s=2"))
    assert "no outcome changed" in capsys.readouterr().err
    assert (run.grades / "_changes.jsonl").read_text() == ""


def test_a_regrade_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capsys) -> None:
    run = ungraded_run(tmp_path / "run", texts={"q1": [r"\boxed{2}", r"\boxed{2\%}"]})
    [part] = run.attempts.glob("*.parquet")
    rows = parquet.read_whole(part, ATTEMPTS).to_pylist()
    for number, row in enumerate(rows):
        table = pa.Table.from_pylist([row], ATTEMPTS)
        parquet.write_part(run.attempts / f"{number}.parquet", table)
    part.unlink()
    stage.grade(run)
    judge, calls = attempts.grade, iter(range(2))

    def dying(*arguments: Any) -> Any:
        if next(calls):
            raise KeyboardInterrupt
        return judge(*arguments)

    other = again(run, "dataset.conventions.percent=either")
    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(attempts, "grade", dying)
        stage.grade(other)
    for one in (run, other):
        with pytest.raises(tables.Stale, match="conventions"):
            graded.ruled(one, [])
    stage.grade(other)
    assert [row["outcome"] for row in grades(run).values()] == ["correct", "correct"]
    [change] = lines_of_changes(run)
    assert (change["trial"], change["from"], change["to"]) == (1, "wrong", "correct")


@pytest.mark.parametrize("number", range(6))
def test_a_kill_at_any_replacement_loses_and_leaves_nothing(tmp_path: Path, number: int) -> None:
    run, calls, replace = ungraded_run(tmp_path / "run"), itertools.count(), Path.replace
    if not (pid := os.fork()):

        def dying(path: Path, target: Path) -> Path:
            if next(calls) == number:
                os.kill(os.getpid(), signal.SIGKILL)
            return replace(path, target)

        Path.replace = dying  # type: ignore[method-assign]
        stage.grade(run)
        os._exit(0)
    os.waitpid(pid, 0)
    atomic.sweep.cache_clear()
    stage.grade(again(run))
    stems = {path.stem for path in run.grades.glob("*.parquet")}
    assert outcomes(run) == EXPECTED and not [*run.path.rglob(".*.tmp")]
    assert stems == {path.stem for path in run.attempts.glob("*.parquet")}


def test_plain_math_verify_judges_whole_texts(tmp_path: Path) -> None:
    texts = {"q1": ["The answer is 2.", r"\boxed{3}", r"\boxed{3} or rather \boxed{2}", "no idea"]}
    run = ungraded_run(tmp_path / "run", texts=texts)
    stage.grade(run)
    stage.grade(again(run, "grading.compat=math_verify"))
    rows_of_q1 = [grades(run)["q1", i] for i in range(4)]
    assert [row["outcome"] for row in rows_of_q1[:2]] == ["correct", "wrong"]
    assert all(row["layer"] in ("plain", "limits") for row in rows_of_q1)
    assert "no_answer" not in {row["outcome"] for row in rows_of_q1}
    changed = [(change["trial"], change["from"], change["to"]) for change in lines_of_changes(run)]
    assert (0, "no_answer", "correct") in changed
    cut_off = ungraded_run(tmp_path / "cut", "grading.compat=math_verify")
    stage.grade(cut_off)
    last = grades(cut_off)["q3", 3]  # judged like any other
    assert (last["outcome"], last["box"], last["answer"]) == ("correct", "truncated", None)


def lines_of_changes(run: Run) -> list[dict[str, Any]]:
    return lines(run.grades / "_changes.jsonl")


def test_the_review_list(tmp_path: Path, capsys: Capsys) -> None:
    texts = {
        "q1": [rf"\boxed{{{a}}}" for a in ("2", "2", "3", "4", "4", "5", "6", "2")],
        "q2": [rf"\boxed{{{a}}}" for a in ("9",) * 76 + ("2", "", "", "")],
        "q3": [rf"\boxed{{{a}}}" for a in ("2",) * 8],
    }
    run = ungraded_run(tmp_path / "run", texts=texts)
    stage.grade(run)
    entries = lines(run.path / "review.jsonl")
    doubt = entries[0]
    assert (doubt["kind"], doubt["question_id"], doubt["gold"]) == ("common_wrong", "q2", "2")
    assert (doubt["answer"], doubt["count"], doubt["share"]) == ("9", 76, 0.95)
    assert doubt["gold_in_doubt"] and doubt["correct"] == 1 and doubt["trials"] == [0, 1, 2, 3, 4]
    [blank] = [entry for entry in entries if entry["kind"] == "unparsable"]
    assert (blank["question_id"], blank["count"], blank["answer"]) == ("q2", 3, "")
    usual = [e for e in entries if e["kind"] == "common_wrong" and e["question_id"] == "q1"]
    assert [e["count"] for e in usual] == [2, 1, 1] and usual[0]["answer"] == "4"
    assert not usual[0]["gold_in_doubt"] and {e["question_id"] for e in entries} == {"q1", "q2"}
    err = capsys.readouterr().err
    assert "common_wrong 4, unparsable 1" in err and str(run.path / "review.jsonl") in err
    # Which attempt was finished first says nothing.
    [part] = run.grades.glob("*.parquet")
    add_grades(run, part.stem, parquet.read_whole(part, GRADES).to_pylist()[::-1])
    review.write(run)
    assert lines(run.path / "review.jsonl") == entries


ROWS = [
    {"completion": r"<think>\boxed{1}</think>\boxed{\frac12}", "gold": "0.5", "id": 7, "x": [None]},
    {"completion": r"\boxed{3}", "gold": "2", "finish_reason": "stop"},
    {"completion": r"\boxed{2}", "gold": "2", "finish_reason": "length"},
    {"completion": r"\boxed{2}", "gold": "2", "finish_reason": "repetition"},
    {"completion": r"\boxed{2}", "gold": "2", "truncated": True},
    {"completion": "two", "gold": "2", "truncated": False, "finish_reason": None},
    {"completion": "\ud800 é \\boxed{ }", "gold": "2"},
]


def test_a_file_comes_out_row_for_row(tmp_path: Path, capsys: Capsys) -> None:
    source, target = write_questions(tmp_path / "in.jsonl", ROWS), tmp_path / "out.jsonl"
    assert main(["grade", "--file", str(source), "--out", str(target)]) == 0
    graded = lines(target)
    assert [{k: row[k] for k in old} for row, old in zip(graded, ROWS, strict=True)] == ROWS
    assert [row["outcome"] for row in graded] == [
        *("correct", "wrong", "no_answer", "no_answer", "no_answer", "no_answer", "unparsable")
    ]
    assert [row["answer"] for row in graded] == [r"\frac12", "3", *[None] * 4, ""]
    assert all(row["layer"] and row["reason"] for row in graded)
    assert "7 rows, no_answer 4, " in capsys.readouterr().err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["in.jsonl", "out.jsonl"]
    again = tmp_path / "again.jsonl"  # the result can be graded again
    assert main(["grade", "--file", str(target), "--out", str(again)]) == 0
    assert lines(again) == graded


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ('{"completion": "a", "gold"', "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[1, 2]", "not an object"),
        ('{"gold": "2", "text": "a"}', "completion"),
        ('{"completion": "a"}', "gold"),
        ('{"completion": null, "gold": "2"}', "completion: "),
        ('{"completion": "a", "gold": 2}', "gold: "),
        ('{"completion": "a", "gold": "2", "truncated": "no"}', "truncated: "),
        ('{"completion": "a", "gold": "2", "finish_reason": 3}', "finish_reason"),
    ],
)
def test_a_bad_row_stops_all(tmp_path: Path, capsys: Capsys, line: str, named: str) -> None:
    source = write_questions(tmp_path / "in.jsonl", ROWS[:2])
    source.write_text(source.read_text() + line + "\n")
    assert main(["grade", "--file", str(source), "--out", str(tmp_path / "out.jsonl")]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and f"{source}, line 3: " in err and named in err
    assert not (tmp_path / "out.jsonl").exists()


def test_files_that_cannot_be_used(tmp_path: Path, capsys: Capsys) -> None:
    source = write_questions(tmp_path / "in.jsonl", ROWS[:1])
    before = source.read_bytes()
    for arguments, named in (
        (["--file", source], "--out OUT"),
        (["--out", source], "--file IN"),
        (["--file", source, "--out", f"{tmp_path}/./in.jsonl"], "--out"),
        (["--file", tmp_path / "no.jsonl", "--out", tmp_path / "out"], "no such file"),
        (["--file", tmp_path, "--out", tmp_path / "out"], "no such file"),
        (["--file", source, "--out", tmp_path / "no" / "out"], "--out"),
        (["--file", source, "--out", tmp_path / "out", "--complete"], "--complete"),
    ):
        assert main(["grade", *map(str, arguments)]) == 2
        err = capsys.readouterr().err
        assert named in err and err.count("\n") == 1
    assert source.read_bytes() == before and [p.name for p in tmp_path.iterdir()] == ["in.jsonl"]


def test_everything_that_decides_a_grade_is_its_identity() -> None:
    def of(*overrides: str) -> str:
        return json.dumps(graded.settings(compose.load(list(overrides))), sort_keys=True)

    changes = (
        "dataset.conventions.lists=ordered",
        "grading.timeout_s=2",
        "grading.memory_mb=2048",
        "grading.compat=math_verify",
    )
    assert len({of(), *(of(change) for change in changes)}) == 5
    assert of() == of("grading.workers=3", "model=qwen3-4b")


def test_a_gold_is_in_doubt_by_other_models_too(tmp_path: Path) -> None:
    nine, mixed = ([rf"\boxed{{{a}}}"] * n for a, n in (("9", 8), ("7", 8)))
    texts = {"q1": nine, "q2": [*nine[:5], *mixed[:3]], "q3": [*nine[:4], *mixed[:4]]}
    for name in ("a", "b"):
        other = ungraded_run(tmp_path / name, f"model.id=/nowhere/{name}", texts=texts)
        assert not review.gold_suspect(
            other
        )  # alone, or nothing graded: eight attempts are too few
        stage.grade(other)
    assert review.gold_suspect(other) == {"q1"}  # of q2 62 % agree, of at least 67
    (tmp_path / "b" / "questions.parquet").write_bytes(b"")  # a sick folder is not counted
    assert not review.gold_suspect(Run(load_folder(tmp_path / "a", [])))


@pytest.mark.parametrize(
    ("models", "precision", "recall"), [(1, 0.9, 0.2), (2, 0.85, 0.5), (4, 0.85, 0.5)]
)
def test_golds_broken_on_purpose_are_found(models: int, precision: float, recall: float) -> None:
    """Wrong answers that models share: the commonest of twenty is half of all on average."""
    rng, found, broken = np.random.default_rng(7), [], []
    for _ in range(1000):
        right, trap = 1 / (1 + np.exp(-1.5 - rng.normal(0, 2))), rng.dirichlet(np.full(20, 0.1))
        bad = rng.random() < 0.05
        gold = rng.choice([22, trap.argmax() + 1]) if bad else 0  # nobody's, or the commonest wrong
        counts: list[dict[str | None, int]] = []
        for _ in range(models):
            wrong = (1 - right) * (0.8 * trap + 0.2 * rng.dirichlet(np.full(20, 0.1)))
            drawn = rng.multinomial(80, [0.97 * right, *(0.97 * wrong), 0.03])
            name = {gold: review.RIGHT, 21: review.NONE}
            counts.append({name.get(i, str(i)): int(n) for i, n in enumerate(drawn) if n})
        found.append(review.contradiction(counts) is not None)
        broken.append(bad)
    hits = np.array(found) & np.array(broken)
    assert hits.sum() >= precision * sum(found) and hits.sum() >= recall * sum(broken)


@pytest.mark.parametrize(("said", "warned"), [("so {}.", True), (r"\boxed{{{}}}", False)])
def test_answers_without_boxes(tmp_path: Path, capsys: Capsys, said: str, warned: bool) -> None:
    texts = {q: [said.format(n) for n in (2, 2, 3, 4)] for q in ("q1", "q2")}
    stage.grade(ungraded_run(tmp_path / "run", texts=texts))
    assert ("8 of 8 attempts have no box" in capsys.readouterr().err) == warned


@pytest.mark.parametrize("right", [True, False])
def test_answers_without_boxes_that_another_tool_judged(
    tmp_path: Path, capsys: Capsys, right: bool
) -> None:
    """Without boxes in its way of reading either, as its outcomes show, there is nothing to try."""
    rows = [{"question_id": i, "is_correct": right, "gold": "2", "text": "so 2"} for i in range(3)]
    path = tmp_path / "x.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    settings = [f"source={path}", f"runs={tmp_path}", "dataset=d", "model=m"]
    import_records(compose.load_as(RecordsConfig, settings))
    stage.grade(Run(load_folder(tmp_path / "d" / "m", [])))
    assert ("3 of 3 attempts have no box" in capsys.readouterr().err) == right
