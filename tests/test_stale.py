"""What was made of another text counts for nothing and is owed; older folders count as before."""

import json
import os
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import digests, make_run, outcome_words

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.journal import Journal
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.cohorts import cohort
from bayes_at_n.pipeline.config import analysis
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.grade.stage import grade
from bayes_at_n.pipeline.rubrics import categories, categorize, signals, signals_table
from bayes_at_n.pipeline.score.stage import score
from bayes_at_n.pipeline.status import page
from bayes_at_n.pipeline.store import parquet, rowkeys, runfolder
from bayes_at_n.pipeline.store.columns import ATTEMPTS, GRADES, MEANS, digest
from bayes_at_n.pipeline.store.runfolder import Run

TEXTS = {"a": [r"\boxed{2}"] * 4, "b": [r"\boxed{2}", r"\boxed{3}", r"\boxed{2}", "none"]}
RIGHT = {"a": ["correct"] * 4, "b": ["correct", "wrong", "correct", "no_answer"]}


@pytest.fixture
def run(tmp_path: Path, undrawn: None) -> Run:
    """Two questions and four trials of each, with everything that is made of them."""
    made = make_run(tmp_path / "run", {"a": "++++", "b": "++++"}, "grading.workers=1", texts=TEXTS)
    for stage in (grade, signals.signals, categorize.categorize):
        stage(Run(made.cfg))
    return Run(made.cfg)


def sampled_anew(run: Run, **changes: str) -> None:
    """`a1="\\boxed{3}"`: the attempt is lost, and made again by another worker with this text."""
    [old] = run.attempts.glob("*.parquet")
    rows = parquet.read_table(old, ATTEMPTS)
    named = {f"{row['question_id']}{row['trial']}": row for row in rows}
    old.unlink()
    new = [named.pop(name) | {"text": text} for name, text in changes.items()]
    new = [row | {"digest": digest(row)} for row in new if row["text"]]
    for name, part in (("w1-00000", list(named.values())), ("w2-00000", new)):
        parquet.write_part(run.attempts / f"{name}.parquet", pa.Table.from_pylist(part, ATTEMPTS))


def test_what_was_made_of_another_text_is_owed_again(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert outcome_words(run).tolist() == [RIGHT["a"], RIGHT["b"]]
    assert len(categories.current(run)) > 1
    sampled_anew(run, a1=r"\boxed{3}", b3=r"\boxed{2}", b0="")  # b0 is gone
    capsys.readouterr()
    assert outcome_words(run).tolist() == [
        ["correct", "owed", "correct", "correct"],
        ["owed", "wrong", "correct", "owed"],
    ]
    said = "grades: 3 are of attempts that have changed or are gone; they do not count; run `grade`"
    assert said in capsys.readouterr().err
    score(Run(run.cfg))
    told = capsys.readouterr().err
    assert said in told and "3 of 8 attempts are still owed" in told
    assert "older than the run's attempts" in told and "rubrics are left out" in told
    cohort.load(analysis.load([str(run.path)]))
    assert said in capsys.readouterr().err
    page.status(Run(run.cfg))
    assert "1+11" in (shown := capsys.readouterr().out) and ".01+" in shown
    with pytest.raises(UserError, match="older than the run's attempts"):
        categorize.categorize(Run(run.cfg))
    grade(Run(run.cfg))
    assert "3 attempts have changed or are gone since" in (told := capsys.readouterr().err)
    assert outcome_words(run).tolist() == [
        ["correct", "wrong", "correct", "correct"],
        ["owed", "wrong", "correct", "correct"],
    ]
    for stage in (signals.signals, categorize.categorize):
        stage(Run(run.cfg))
    assert len(categories.current(run)) > 1
    sampled_anew_b0 = pa.Table.from_pylist(
        [{"question_id": "b", "trial": 0, "text": r"\boxed{2}", "finish_reason": "stop"}], ATTEMPTS
    )
    parquet.write_part(run.attempts / "w3-00000.parquet", sampled_anew_b0)
    grade(Run(run.cfg))
    capsys.readouterr()
    grade(Run(run.cfg))
    assert "nothing owed, all 8 attempts are graded" in (told := capsys.readouterr().err)
    assert "changed" not in told  # rows of before lie there still, and others are in their place
    assert "owed" not in outcome_words(run)


def test_equal_texts_of_another_time_need_no_new_grade(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    sampled_anew(run, a1=TEXTS["a"][1], b3=TEXTS["b"][3])
    capsys.readouterr()
    grade(Run(run.cfg))
    signals.signals(Run(run.cfg))
    assert capsys.readouterr().err.count("nothing owed") == 2
    assert len(categories.current(run)) > 1


def without_digests(folder: Path, columns: pa.Schema) -> None:
    for part in folder.glob("*.parquet"):
        rows = pa.Table.from_pylist(parquet.read_table(part, columns), columns)
        pq.write_table(rows.drop_columns("digest"), part)


def test_older_folders_count_until_an_attempt_is_made_anew(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    without_digests(run.attempts, ATTEMPTS)
    without_digests(run.grades, GRADES)
    for stage in (signals.signals, categorize.categorize):
        stage(Run(run.cfg))
    assert outcome_words(run).tolist() == [RIGHT["a"], RIGHT["b"]]
    assert len(categories.current(run)) > 1
    capsys.readouterr()
    grade(Run(run.cfg))
    assert "nothing owed" in capsys.readouterr().err
    sampled_anew(run, a1=r"\boxed{3}", b0="")
    assert outcome_words(run).tolist() == [
        ["correct", "owed", "correct", "correct"],
        ["owed", "wrong", "correct", "no_answer"],
    ]
    with pytest.raises(UserError, match="older than the run's attempts"):
        signals_table.current(run)


def test_means_and_imported_outcomes(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    held = digests(run)
    means = [
        {"question_id": q, "trial": t, "completion_mean_logprob": -1.0, "digest": held[q, t]}
        for q, t in (("a", 0), ("a", 1))
    ]
    parquet.write_part(run.path / "means" / "i.parquet", pa.Table.from_pylist(means, MEANS))
    assert rowkeys.streamed(run, "means", []).num_rows == 2
    sampled_anew(run, a1=r"\boxed{3}", b0="")
    assert rowkeys.streamed(run, "means", []).num_rows == 1
    assert "means: 1 are of attempts that have changed" in capsys.readouterr().err
    # A record that came with an outcome and without an attempt.
    grades = [
        row | {"digest": None} for row in rowkeys.streamed(run, "grades", ["outcome"]).to_pylist()
    ]
    grades.append({"question_id": "b", "trial": 0, "outcome": "correct"})
    table = pa.Table.from_pylist(grades, GRADES)
    parquet.write_part(run.grades / "0.parquet", table)
    assert outcome_words(run)[1].tolist()[0] == "owed"
    manifest = runfolder.read_manifest(run)
    runfolder.write_json(run.manifest, manifest | {"imported": {}})
    assert outcome_words(run)[1].tolist()[0] == "correct"


def test_all_attempts_gone_leave_nothing_graded(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(run.path, run.path.with_name("older"))
    older = Run(load_folder(run.path.with_name("older"), []))
    without_digests(older.grades, GRADES)
    for one in (run, older):
        shutil.rmtree(one.attempts)
        capsys.readouterr()
        assert (outcome_words(one) == "owed").all() and len(runfolder.owed(one)) == 8
        said = (
            "grades: 8 are of attempts that have changed or are gone; they do not count; run `gen"
        )
        assert said in capsys.readouterr().err
        assert not categories.current(one)
    manifest = runfolder.read_manifest(older)
    runfolder.write_json(older.manifest, manifest | {"imported": {}})  # a record without texts
    assert outcome_words(older).tolist() == [RIGHT["a"], RIGHT["b"]]


def spoil(path: Path, column: str) -> None:
    """Flip a byte of a column, and leave the time as it is."""
    meta, before = pq.ParquetFile(path).metadata, path.stat()
    chunks = [meta.row_group(0).column(i) for i in range(meta.num_columns)]
    [chunk] = [c for c in chunks if c.path_in_schema == column]
    data = bytearray(path.read_bytes())
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    data[start + chunk.total_compressed_size - 3] ^= 0x55
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("column", ["seed", "text"])
def test_bits_that_rot_are_found_and_owed(
    run: Run, column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    [part] = run.attempts.glob("*.parquet")
    assert not runfolder.owed(run)  # from here on the part is known to be sound
    root = str(run.path.parent)
    assert main(["status", root, "--check"]) == 0
    assert " files, 0 not sound" in capsys.readouterr().out
    spoil(part, column)
    assert not runfolder.owed(run)
    assert main(["status", root, "--check", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["sound"] and list(told["faults"]) == [str(part)]
    assert "8 damaged rows" in told["faults"][str(part)][0]
    assert len(runfolder.owed(run)) == 8


def test_every_file_of_a_folder_is_read(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    score(run)
    [part] = run.attempts.glob("*.parquet")
    rows = parquet.read_table(part, ATTEMPTS)
    rows[0]["text"] = r"\boxed{7}"  # by somebody's own program
    parquet.write_part(part, pa.Table.from_pylist(rows, ATTEMPTS))
    [graded] = run.grades.glob("*.parquet")
    spoil(graded, "outcome")
    spoil(run.path / "questions.parquet", "gold")
    archive = run.path / "matrix.npz"
    archive.write_bytes(archive.read_bytes().replace(b"correct"[:1], b"C", 9))
    (run.path / "scores.json").write_text("[" * 200_000)
    (run.path / "review.jsonl").write_text('{}\n{"a": \n')
    (run.grades / "gone.parquet").symlink_to("nowhere")
    journal = Journal(run.attempts / "_w9-00000.journal", ATTEMPTS)
    journal.append(rows[:1])
    journal.close()
    journal.path.write_bytes(journal.path.read_bytes()[:-9])
    capsys.readouterr()
    assert main(["status", str(run.path), "--check"]) == 1
    out, err = capsys.readouterr()
    named = {line.split(":")[0].rpartition("/")[2] for line in out.splitlines()[:-1]}
    assert named == {
        part.name, graded.name, "questions.parquet", "matrix.npz", "scores.json", "review.jsonl",
        "gone.parquet", journal.path.name,
    }  # fmt: skip
    assert "1 rows hold another text than was written" in out
    assert "8 files are not sound" in err
    assert [key[1] for key in runfolder.owed(run)] == [0]


def test_damaged_outcomes_are_graded_anew_though_their_keys_can_be_read(run: Run) -> None:
    [graded] = run.grades.glob("*.parquet")
    spoil(graded, "outcome")
    assert (outcome_words(run) == "owed").all()
    grade(Run(run.cfg))
    assert outcome_words(run).tolist() == [RIGHT["a"], RIGHT["b"]]
