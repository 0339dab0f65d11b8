"""The writer of attempts: nothing handed over is lost, and a full disk is no secret."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
from helpers import attempt_row as row
from helpers import run_of

from bayes_at_n.pipeline.base.journal import Journal
from bayes_at_n.pipeline.generate import attempts
from bayes_at_n.pipeline.generate.attempts import AttemptWriter
from bayes_at_n.pipeline.store import runfolder, shards
from bayes_at_n.pipeline.store.columns import ATTEMPTS


def stored(folder: Path) -> tuple[list[dict[str, Any]], shards.Damage]:
    damage = shards.Damage()
    found = [
        made
        for batch in shards.batches(folder, ATTEMPTS, ATTEMPTS.names, damage)
        for made in batch.to_pylist()
    ]
    return sorted(found, key=lambda made: made["trial"]), damage


def test_the_disk_sees_a_journal_that_grows_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, fsync = list[int](), os.fsync

    def spy(handle: int) -> None:
        seen.append(os.fstat(handle).st_size)
        fsync(handle)

    monkeypatch.setattr(os, "fsync", spy)
    monkeypatch.setattr(attempts, "SYNC_S", 0.05)
    writer = AttemptWriter(tmp_path, "w")
    writer.append([row(0)])
    [path] = tmp_path.glob("*.journal")
    limit = time.monotonic() + 30
    while path.stat().st_size not in seen and time.monotonic() < limit:
        time.sleep(0.01)
    assert path.stat().st_size in seen
    writer.close()


def test_everything_appended_is_readable_after_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large journals are sealed meanwhile; a writer without rows leaves nothing."""
    monkeypatch.setattr(attempts, "SEAL_AT", 50_000)
    writer = AttemptWriter(tmp_path, "w")
    for trial in range(0, 600, 5):
        writer.append([row(trial + i, tokens=50) for i in range(5)])
    AttemptWriter(tmp_path, "nothing").close()
    writer.close()
    found, damage = stored(tmp_path)
    assert found == [row(trial, tokens=50) for trial in range(600)] and not damage.lines
    assert writer.written == 600 and len(list(tmp_path.iterdir())) > 3
    assert {path.suffix for path in tmp_path.iterdir()} == {".parquet"}


def test_a_row_that_cannot_be_stored_is_an_error(tmp_path: Path) -> None:
    writer = AttemptWriter(tmp_path, "w")
    writer.append([row(0)])
    with pytest.raises(OSError, match="cannot be stored"):
        writer.append([row(1) | {"trial": "not a number"}])
    with pytest.raises(OSError, match="cannot be stored"):
        writer.close()
    assert not writer._thread.is_alive()
    assert stored(tmp_path)[0] == [row(0)]


def test_a_journal_of_the_killed_that_is_suspect_is_counted_and_taken_back(tmp_path: Path) -> None:
    run = run_of(tmp_path, "m", {"a": "."})
    Journal(run.attempts / "_w-00000-unproven.journal", ATTEMPTS).append([row(0), row(1)])
    runfolder.prove(run, good=False)
    assert not stored(run.attempts)[0] and runfolder.suspects(run).startswith("2 attempts")
    runfolder.accept_suspects(run)
    assert stored(run.attempts)[0] == [row(0), row(1)]
