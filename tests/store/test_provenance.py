"""Attempts of two identities are never those of one run, whatever becomes of its manifest."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import Capsys, Setup, arithmetic, write_questions
from helpers import attempt_row as row

from bayes_at_n.pipeline.base.errors import DamagedData, UserError
from bayes_at_n.pipeline.base.journal import Journal
from bayes_at_n.pipeline.grade import stage as grading
from bayes_at_n.pipeline.prepare import stage
from bayes_at_n.pipeline.store import check, provenance, runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import session


@pytest.fixture
def setup(tiny_model: Path, tmp_path: Path) -> Setup:
    return Setup(tiny_model, tmp_path)


def sampled(run: Run, *trials: int, seal: bool = True, worker: int = 1) -> Path:
    """The file of a worker with these trials of the first question, as it leaves it."""
    about = provenance.part_metadata(runfolder.check_same(run, provenance.identity(run.cfg)))
    cap, stem = run.cfg.sampling.max_tokens, f"{worker:016d}-n-1-00000{runfolder.part_suffix(run)}"
    journal = Journal(run.attempts / f"_{stem}.journal", ATTEMPTS.with_metadata(about))
    own = {"question_id": "sums-01", "finish_reason": "length", "text": seed(run)}
    journal.append([row(trial, tokens=cap) | own for trial in trials])
    journal.close()
    if not seal:
        return journal.path
    shards.seal(journal.path, ATTEMPTS)
    return run.attempts / f"{stem}.parquet"


def seed(run: Run) -> str:
    return f"seed {run.cfg.sampling.seed}"


def prepared(setup: Setup, *settings: str) -> Run:
    run = setup.run(*settings)
    stage.prepare(run)
    return run


def moved_in(setup: Setup, run: Run, *settings: str, seal: bool = True) -> Path:
    """A file of a folder with other settings, put among the attempts of this one."""
    other = prepared(setup, f"run_dir={setup.folder}-other", *settings)
    path = sampled(other, 0, 1, seal=seal, worker=9)
    run.attempts.mkdir(exist_ok=True)
    return path.rename(run.attempts / path.name)


def trials_of(run: Run, damage: shards.Damage) -> dict[int, str]:
    batches = shards.batches(run.attempts, ATTEMPTS, ["trial", "text"], damage)
    return {row["trial"]: row["text"] for batch in batches for row in batch.to_pylist()}


@pytest.mark.parametrize("settings", [[], ["sampling.seed=5", "sampling.temperature=1"]])
def test_of_two_that_begin_in_one_new_folder_the_first_to_write_wins(
    setup: Setup, monkeypatch: pytest.MonkeyPatch, settings: list[str]
) -> None:
    """Both have found no manifest; with the same settings the second goes on, with others not."""
    link, before = os.link, dict[Path, bytes]()

    def overtaken(draft: Path, path: Path) -> None:
        monkeypatch.setattr(os, "link", link)
        stage.prepare(setup.run(*settings))
        before.update({p: p.read_bytes() for p in setup.folder.iterdir() if p != draft})
        link(draft, path)

    monkeypatch.setattr(os, "link", overtaken)
    if settings:
        with pytest.raises(UserError, match=r"seed is 5 there and 1234 here; .*temperature is 1"):
            stage.prepare(setup.run())
    else:
        stage.prepare(setup.run())
    assert before == {p: p.read_bytes() for p in setup.folder.iterdir()}


def test_every_file_of_attempts_says_whose_it_is(setup: Setup) -> None:
    run = prepared(setup)
    its = runfolder.read_manifest(run)[provenance.HASH]
    journal = sampled(run, 0, seal=False)
    assert shards.metadata(journal)[b"identity_hash"].decode() == its
    shards.seal_leftovers(run.attempts, ATTEMPTS)
    [part] = run.attempts.glob("*.parquet")
    says = pq.read_metadata(part).metadata
    assert says[b"identity_hash"].decode() == its and not list(run.attempts.glob("*.journal"))
    assert json.loads(says[b"identity"])["sampling.seed"] == 1234
    # More questions, trials and tokens change nothing of that.
    write_questions(setup.questions, arithmetic(5))
    run = prepared(setup, "sampling.trials=9", "sampling.max_tokens=12")
    assert runfolder.read_manifest(run)[provenance.HASH] == its
    sampled(run, 1, worker=2)
    damage = shards.Damage()
    assert trials_of(run, damage).keys() == {0, 1} and not damage.lines
    # The sound rows of a part that is damaged stay the run's.
    shards.set_aside(shards.Damage({part: ["damaged"]}), ATTEMPTS)
    [copy] = run.attempts.glob("*-sound.parquet")
    assert shards.metadata(copy)[b"identity_hash"].decode() == its


def test_a_part_of_another_identity_is_not_read_and_its_attempts_are_owed(
    setup: Setup, capsys: Capsys
) -> None:
    run = prepared(setup)
    sampled(run, 1, 2, worker=10)
    part, damage = moved_in(setup, run, "sampling.seed=5"), shards.Damage()
    assert trials_of(run, damage) == {1: "seed 1234", 2: "seed 1234"}
    assert "made by another run" in str(damage) and part.name in str(damage)
    assert ("sums-01", 0) in runfolder.pending(run)
    assert "made by another run" in check.faults_of(part)[0]
    with pytest.raises(DamagedData, match=f"{part.name}: made by another run.*`generate`"):
        grading.grade(run)
    assert not part.exists() and part.with_name(f"_{part.name}.damaged").exists()
    assert trials_of(run, shards.Damage()).keys() == {1, 2}


def link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.with_name("gone"))


LOST: dict[str, Callable[[Path], Any]] = {
    "missing": Path.unlink,
    "no identity": lambda path: path.write_text('{"identity": 1, "generated": {}}'),
    "torn": lambda path: path.write_bytes(path.read_bytes()[:500]),
    "a link": link_to_nothing,
}


@pytest.mark.parametrize("lost", LOST)
def test_a_lost_manifest_is_known_from_the_attempts(
    setup: Setup, lost: str, capsys: Capsys
) -> None:
    run = prepared(setup)
    sampled(run, 0)
    before = runfolder.read_manifest(run)
    LOST[lost](run.manifest)
    assert "sampling.seed is 1234 there and 5 here" in setup.refused("sampling.seed=5")
    assert "max_tokens is 10 there and 9 here" in setup.refused("sampling.max_tokens=9")
    other = setup.run("sampling.temperature=1")
    with pytest.raises(UserError, match=r"temperature is 0\.6 there and 1\.0 here"):
        grading.grade(other)
    rows = arithmetic(4)
    rows[1]["answer"] = "5"
    write_questions(setup.questions, rows)
    assert "questions_hash" in setup.refused()
    write_questions(setup.questions, arithmetic(4))
    session.write_summary(run)  # as the last worker does: what it writes is as good
    assert "questions_hash" in runfolder.read_manifest(run)["identity"]
    stage.prepare(setup.run())
    after = runfolder.read_manifest(run)
    del before["created_with"]
    assert {key: after[key] for key in before} == before
    assert str(run.manifest) in capsys.readouterr().err
    assert "gone" not in {path.name for path in run.path.iterdir()}


def test_attempts_that_say_nothing_or_two_things_need_a_manifest(setup: Setup) -> None:
    run = prepared(setup)
    part = sampled(run, 0)
    other = moved_in(setup, run, "sampling.seed=5")
    run.manifest.unlink()
    assert f"of several runs ({part.name}, {other.name})" in setup.refused()
    other.unlink()
    shards.write_part(part, pq.read_table(part).replace_schema_metadata(None))
    for message in (setup.refused(), setup.refused("sampling.seed=5")):
        assert f"{run.manifest}: missing" in message and "restore it from a copy" in message
    assert "manifest.json: missing" in check.faults_of(run.path / "config.yaml")[0]
    part.unlink()
    assert prepared(setup, "sampling.seed=5").questions  # nothing is mixed
