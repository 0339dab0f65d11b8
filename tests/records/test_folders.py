"""import of run folders from another machine: copied whole, and checked."""

import json
import os
import shutil
from pathlib import Path

import pytest
from helpers import Capsys, run_of
from record_files import bring, opened

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.base.journal import Journal
from bayes_at_n.pipeline.store.columns import ATTEMPTS

HALF = {"a": "1100", "b": "10~-"}


@pytest.fixture
def there(tmp_path: Path) -> Path:
    """The folder `runs` of another machine, with one run."""
    run_of(tmp_path / "there", "m", HALF)
    return tmp_path / "there"


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def add_journal(run: Path, trial: int) -> None:
    """What a killed worker leaves: an attempt, and half of the next."""
    path = run / "attempts" / "_0000000000000001-n-1-00000.journal"
    journal = Journal(path, ATTEMPTS)
    row = {"question_id": "a", "trial": trial, "text": "t", "finish_reason": "stop"}
    row |= {"prompt_tokens": 3, "completion_tokens": 1}
    journal.append([row])
    journal.append([row | {"trial": trial + 1}])
    journal.close()
    os.truncate(path, path.stat().st_size - 7)


def test_runs_are_copied_whole_and_once(there: Path, tmp_path: Path, capsys: Capsys) -> None:
    shutil.copytree(there / "sums" / "m", there / "sums" / "n")
    (there / "_compare").mkdir()
    add_journal(there / "sums" / "m", 4)
    runs = bring(tmp_path, there)
    assert sorted(p.name for p in (runs / "sums").iterdir()) == ["m", "n"]
    assert [p.name for p in runs.iterdir() if p.name != "_imports"] == ["sums"]
    for name in ("m", "n"):
        assert tree(runs / "sums" / name) == tree(there / "sums" / name)
    assert (opened(runs / "sums" / "m").cfg.run_dir) == str(runs / "sums" / "m")
    assert "left by a kill" in capsys.readouterr().err
    before = tree(runs)
    bring(tmp_path, there)
    assert "nothing pending" in capsys.readouterr().err and tree(runs) == before


def test_a_name_that_is_taken_is_refused(there: Path, tmp_path: Path) -> None:
    runs = bring(tmp_path, there)
    before = tree(runs / "sums")
    (runs / "_imports").rename(tmp_path / "lost")
    bring(tmp_path, there)  # the same run
    run_of(tmp_path / "other", "m", HALF, "sampling.temperature=0.1")
    with pytest.raises(UserError, match=r"runs/sums/m: exists.* tag=NAME"):
        bring(tmp_path, tmp_path / "other")
    assert tree(runs / "sums") == before
    bring(tmp_path, tmp_path / "other", "tag=cold")
    assert sorted(p.name for p in (runs / "sums").iterdir()) == ["m", "m-cold"]


def test_who_is_at_work_is_waited_for(there: Path, tmp_path: Path) -> None:
    folder = there / "sums" / "m"
    with lease.held(folder / "grade.lease", "grading"), pytest.raises(UserError, match="written"):
        bring(tmp_path, there)
    assert not (tmp_path / "runs" / "sums").exists()
    (folder / "claims").mkdir()
    claim = folder / "claims" / "w.lease"
    claim.write_text(json.dumps({"host": "elsewhere", "pid": 1}))
    with pytest.raises(UserError, match=r"\(w.lease\)"):
        bring(tmp_path, there)
    os.utime(claim, (0, 0))  # long dead
    runs = bring(tmp_path, there)
    assert not (runs / "sums" / "m" / "claims").exists()


def test_links_are_refused_and_odd_files_stay(there: Path, tmp_path: Path, capsys: Capsys) -> None:
    folder, secret = there / "sums" / "m", tmp_path / "secret.json"
    wanted = tree(folder)
    (folder / "deep" / "er").mkdir(parents=True)
    (folder / "deep" / "er" / "x.json").write_text("{}")
    (folder / "run.sh").write_text("rm -rf /")
    secret.write_text("{}")
    (folder / "logs").mkdir()
    links = (folder / "logs" / "a.jsonl", secret), (folder / "caps", tmp_path)
    for link, target in links:
        link.symlink_to(target)
        with pytest.raises(UserError, match=f"{link.name} is a link or a pipe"):
            bring(tmp_path, there)
        link.unlink()
    os.mkfifo(folder / "pipe.json")
    with pytest.raises(UserError, match=r"pipe.json is a link or a pipe"):
        bring(tmp_path, there)
    (folder / "pipe.json").unlink()
    runs = bring(tmp_path, there)
    assert "2 files of other kinds not copied: deep/er/x.json, run.sh" in capsys.readouterr().err
    assert tree(runs / "sums" / "m") == wanted
    (there / "sums" / "linked").symlink_to(folder)
    with pytest.raises(UserError, match="linked: a link"):
        bring(tmp_path, there)


def test_what_is_not_sound_is_refused_and_the_rest_comes(there: Path, tmp_path: Path) -> None:
    config = (there / "sums" / "m" / "config.yaml").read_text()
    broken = {
        "attempts/00000.parquet": "",
        "questions.parquet": "",
        "config.yaml": config[: config.index("  temperature:")],
        "./config.yaml": config.replace("temperature: 0.6", "temperature: 0.5"),
        "././config.yaml": config[: config.index("run_dir:")],
    }
    for number, (name, text) in enumerate(broken.items()):
        path = shutil.copytree(there / "sums" / "m", there / "sums" / f"m{number}") / name
        if text:
            path.write_text(text)
        else:
            os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(UserError) as caught:
        bring(tmp_path, there)
    faults = str(caught.value)
    assert "5 of 6 runs not imported" in faults
    assert all(f"{name} (" in faults for name in ("attempts/00000.parquet", "questions.parquet"))
    assert "m2/config.yaml: " in faults, faults
    assert "sampling.temperature is 0.6 there and 0.5 here" in faults
    assert "config.yaml (truncated: run_dir, its last key, is missing)" in faults
    runs = tmp_path / "runs"
    assert [p.name for p in (runs / "sums").iterdir()] == ["m"]
    assert not list(runs.glob(".import.*"))
