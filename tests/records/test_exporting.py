"""The verb export: a folder that appears whole, is kept, made anew, or refused."""

import json
import resource
from pathlib import Path

import pytest
from helpers import Capsys, run_of
from record_files import NAMES, csv_of, out

from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.cli.main import main


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
    (folder / "more.txt").write_text("mine")
    with pytest.raises(UserError, match=r"more.txt: .*out="):
        out(tmp_path, "to=csv")
    assert (folder / "more.txt").read_text() == "mine"


def test_wrong_settings_and_places_are_one_line(root: Path, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    run_of(tmp_path, "x", {"a": ".."})
    one = str(root / "sums" / "x")
    for settings, line in (
        (["to=cvs"], "to=cvs: .*csv"),
        (["to=hub", "push=mine"], "push=mine: .*OWNER/NAME"),
        (["to=csv", one, "model=y"], "folders of runs, or dataset= and model="),
        (["to=eee", "metrics=pass@4"], "scoring: to=eee"),
        (["to=csv"], "no attempt yet"),
        (["to=csv", "dataset=none"], "dataset=none: no such run"),
        (["to=csv", f"out={tmp_path}"], "no export made it; .*out="),
    ):
        with pytest.raises(UserError, match=line):
            out(tmp_path, *settings)
    assert not any(tmp_path.rglob("*.draft"))


def test_a_full_disk_is_one_line(root: Path, tmp_path: Path, capsys: Capsys) -> None:
    source = csv_of(tmp_path / "x.csv", "question_id,correct", *[f"{i},1" for i in range(99)])
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, before[1]))
    exported = main(["export", f"runs={root}", "to=csv", f"out={tmp_path / 'x'}"])
    imported = main(["import", f"source={source}", f"runs={tmp_path / 'runs'}", *NAMES])
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    err = capsys.readouterr().err
    assert exported == imported == 1 and f"{tmp_path}/x: " in err and f"{tmp_path}/runs: " in err
