"""The verb export: a folder that appears whole, is kept, made anew, or refused."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from helpers import Capsys, run_of
from record_files import out

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main
from bayes_at_n.pipeline.records import exporting


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs of one dataset."""
    root = tmp_path_factory.mktemp("runs")
    run_of(root, "x")
    run_of(root, "y", {"a": "1101011", "b": ".~-.1", "c": ".(+u"})
    return root


def test_the_same_again_does_nothing_and_what_changed_is_made_anew(
    tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BAYES_AT_N_OUTPUT", "json")
    run_of(tmp_path, "x", {"a": "10"})
    folder, seen = tmp_path / "sums" / "_export-csv-all", []

    def again(*settings: str, runs: Path = tmp_path) -> int:
        out(runs, "to=csv", *settings)
        answer = json.loads(capsys.readouterr().out)
        assert answer["folder"] == str(runs / "sums" / folder.name)
        assert answer["files"] == ["attempts.csv"]
        seen.append((folder / "attempts.csv").stat().st_mtime_ns)
        return len({*seen})

    assert [again(), again(), again("texts=false")] == [1, 1, 2]
    monkeypatch.chdir(tmp_path)
    assert again("texts=false", runs=Path()) == 2
    assert '"text"' not in (folder / "attempts.csv").read_text()
    (tmp_path / "sums" / "._export-csv-all.draft").mkdir()  # of a command that was killed
    run_of(tmp_path, "y", {"a": "11"})
    assert again("texts=false") == 3
    (folder / "attempts.csv").unlink()
    assert again("texts=false") == 4
    assert {p.name for p in folder.parent.glob(".*")} == set()
    (folder / "attempts.csv").write_text("short")
    assert again("texts=false") == 5
    (folder / "more.txt").write_text("mine")
    with pytest.raises(UserError, match=r"more.txt: .*out="):
        out(tmp_path, "to=csv")
    assert (folder / "more.txt").read_text() == "mine"


def test_of_two_at_once_the_second_waits_and_has_nothing_to_do(
    root: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits, written, write = Event(), list[str](), exporting._write

    def slow(*of: Any) -> None:
        written.append("once")
        assert waits.wait(60)
        write(*of)

    monkeypatch.setattr(exporting, "_write", slow)
    monkeypatch.setattr(lease.time, "sleep", lambda _: waits.set())
    with ThreadPoolExecutor() as threads:
        both = [threads.submit(out, root, "to=csv", f"out={tmp_path / 'out'}") for _ in "ab"]
        assert [one.result() for one in both] == [None, None] and written == ["once"]
    err = capsys.readouterr().err
    assert "waiting for it" in err and "nothing has changed" in err


def test_an_export_that_is_interrupted_leaves_nothing(
    root: Path, tmp_path: Path, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("bayes_at_n.pipeline.records.flat.tables", interrupted)
    arguments = ["export", f"runs={root}", "to=csv", f"out={tmp_path / 'out'}"]
    assert main(arguments) == 130
    assert "no file is half-written" in capsys.readouterr().err
    assert not [*tmp_path.iterdir()]


def test_wrong_settings_and_places_are_one_line(root: Path, tmp_path: Path, capsys: Capsys) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run_of(tmp_path, "x", {"a": ".."})
    one = str(root / "sums" / "x")
    for settings, line in (
        (["to=cvs"], "to=cvs: .*csv"),
        (["to=csv", "logprobs=true"], "logprobs=true: to=csv.*to=parquet"),
        (["to=lm_eval", "logprobs=true"], "logprobs=true: to=lm_eval.*to=parquet"),
        (["to=hub", "push=mine"], "push=mine: .*OWNER/NAME"),
        (["to=hub", "push=../mine"], "push=../mine"),
        (["to=csv", "push=me/mine"], "push=me/mine: .*to=hub"),
        (["to=csv", one, "model=y"], "folders of runs, or dataset= and model="),
        (["to=csv", one, "dataset=sums"], "not both"),
        (["to=csv", "out=x.csv"], "out=x.csv"),
        (["to=csv", "project=mine"], "project=mine: .*to=wandb"),
        (["to=csv", "ranking=borda"], "ranking: no such key"),
        (["to=eee", "metrics=pass@4"], "scoring: to=eee"),
        (["to=csv"], "no attempt yet"),
        (["to=csv", "dataset=none"], "dataset=none: no such run"),
        (["to=csv", f"out={tmp_path}"], "no export made it; .*out="),
    ):
        with pytest.raises(UserError, match=line):
            out(tmp_path, *settings)
    assert not any(tmp_path.rglob("*.draft"))
    (tmp_path / "file").touch()
    assert main(["export", f"runs={root}", "to=csv", f"out={tmp_path / 'file' / 'x'}"]) == 1
    assert "/file: " in capsys.readouterr().err


def test_what_is_not_all_there_is_named(tmp_path: Path, capsys: Capsys) -> None:
    marks = {"whole": "10", "half": "1.", "new": "..", "ungraded": "++"}
    runs = {name: run_of(tmp_path, name, {"a": of}).path for name, of in marks.items()}
    out(tmp_path, "to=csv", "texts=false")
    warnings = [line for line in capsys.readouterr().err.splitlines() if "warning" in line]
    assert warnings == [
        f"warning: {runs['half']}: 1 of 2 attempts, 1 graded",
        f"warning: {runs['new']}: 0 of 2 attempts, 0 graded",
        f"warning: {runs['ungraded']}: 2 of 2 attempts, 0 graded",
    ]
