"""How much is said, and to whom: notes, results, JSON for programs; digits; complete runs."""

import json
import os
import time
from pathlib import Path

import pytest
from helpers import arithmetic, make_run

from bayes_at_n.pipeline.api.verbs import evaluate
from bayes_at_n.pipeline.base import console
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.config.folder import load_folder
from bayes_at_n.pipeline.store.runfolder import Run

MARKS = {"q1": "1100", "q2": "1111", "q3": "0110", "q4": "1000"}


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return make_run(tmp_path / "run", MARKS)


def test_json_is_all_that_standard_output_gets(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["score", str(run.path), "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out) == json.loads((run.path / "scores.json").read_text())
    assert out.count("\n") == 1 and "scores.json" in err
    other = make_run(tmp_path / "other", {name: line[::-1] for name, line in MARKS.items()})
    folders = [str(run.path), str(other.path), f"out={tmp_path / 'out'}"]
    assert main(["compare", *folders, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    written = json.loads((tmp_path / "out" / "compare.json").read_text())
    assert written.items() >= record.items() and record["datasets"][0]["verdict"]["sentence"]
    for verb, key in (("grade", "changes"), ("status", "done")):
        assert main([verb, str(run.path), "--json"]) == 0
        assert key in json.loads(capsys.readouterr().out)
    assert main(["score", str(tmp_path / "none"), "--json"]) == 2
    assert capsys.readouterr().out == ""


def test_numbers_and_names_in_sentences() -> None:
    clocks = [console.duration(s) for s in (42, 125, 11_040, 180_000)]
    assert clocks == ["42 s", "2 min 05 s", "3 h 04 min", "2 d 02 h"]
    assert [console.si(n) for n in (950, 68_800, 2.93e9)] == ["950", "68.8k", "2.93G"]
    assert [console.percent(x) for x in (0.975, 1 - 0.9)] == ["97.5%", "10%"]
    counted = console.plural(1, "GPU"), console.plural(2400.0, "point")
    assert counted == ("1 GPU", "2,400 points")
    names = console.joined("a"), console.joined("abc"), console.joined("abcde", 3)
    assert names == ("a", "a, b and c", "a, b, c and 2 more")


def test_a_complete_run_has_nothing_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever has changed is done again, and what rests on it."""
    given, answers = {"rows": arithmetic(3), "name": "sums"}, [r"\boxed{2}"]
    cheap = {"verifier": "none", "rubric": "exact-match", "run_dir": str(tmp_path / "x" / "run")}
    sampling = {"trials": 3}
    evaluate(lambda x: answers * len(x), given, "two", sampling=sampling, **cheap)
    folder = tmp_path / "x" / "run"
    questions = Path(load_folder(folder, []).dataset.path)

    def renewed(*settings: str) -> str:
        """The files that `run` replaces; "" where it says that nothing is pending."""
        before = {path: path.stat().st_ino for path in folder.rglob("*.[jp][sa]*")}
        assert main(["run", str(folder), *settings]) == 0
        said = "".join(capsys.readouterr())
        assert "avg@3" in said and len(said.splitlines()) <= 9
        now = {path: path.stat().st_ino for path in folder.rglob("*.[jp][sa]*")}
        changed = {
            path.relative_to(folder).parts[0] for path in now if now[path] != before.get(path)
        }
        return " ".join(sorted(changed))

    assert renewed() == ""
    (tmp_path / "sums").mkdir()  # called as the dataset, and from another place
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        assert renewed() == ""
    assert renewed("scoring.confidence=0.9") == "scores.json"
    assert renewed("scoring.confidence=0.9") == ""
    (folder / "matrix.npz").unlink()
    assert renewed("scoring.confidence=0.9") == "scores.json"
    fewer = "thresholds.include_invalid=false"
    assert renewed(fewer) == "categories scores.json thresholds.json" and renewed(fewer) == ""
    assert "grades" in renewed("grading.timeout_s=5") and renewed("grading.timeout_s=5") == ""
    assert renewed("sampling.trials=2") == renewed("sampling.trials=2") == ""
    assert json.loads((folder / "scores.json").read_text())["trials"] == 3
    os.utime(questions, (1, 1))
    assert renewed("sampling.trials=3") == ""
    questions.write_text(questions.read_text() + " ")
    assert "questions.parquet" in renewed() and renewed() == ""


def test_a_silent_command_shows_that_it_works(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    began = time.monotonic()
    with console.never_silent("compare"):
        for seconds, shown in ((0, ""), (31, "compare: 31 s"), (62, "compare: 31 s")):
            monkeypatch.setattr(console.time, "monotonic", lambda s=seconds: began + s)
            console._sign.show()
            assert shown in (err := capfd.readouterr().err) and bool(err) == bool(shown)
        console.note("loading a model ...")  # what it does now
        assert capfd.readouterr().err == "loading a model ...\n"
        monkeypatch.setattr(console.time, "monotonic", lambda: began + 100)
        with console.Meter("sampling", 3):
            console._sign.show()  # the meter shows it
        monkeypatch.setattr(console.time, "monotonic", lambda: began + 200)
        console._sign.show()
        assert "compare: 1 min 40 s" in capfd.readouterr().err
    console._sign.show()
    assert not capfd.readouterr().err
