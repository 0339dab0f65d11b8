"""The writer thread of attempts: nothing handed over is lost, and a full disk is no secret."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
from test_journal import small_disk

from pipeline import attempts, shards
from pipeline.attempts import AttemptWriter
from pipeline.journal import Journal
from pipeline.tables import ATTEMPTS


def row(trial: int, tokens: int = 20) -> dict[str, Any]:
    return {
        "question_id": f"q-{trial % 7}",
        "trial": trial,
        "seed": 1234 + trial,
        "text": f"so \\boxed{{{trial}}}",
        "finish_reason": "stop",
        "prompt_tokens": 9,
        "completion_tokens": tokens,
        "token_ids": [trial] * tokens,
        "logprobs": [-0.25] * tokens,
        "started": 1.0,
        "first_token": 2.0,
        "finished": 3.0,
    }


def stored(folder: Path) -> tuple[list[dict[str, Any]], shards.Damage]:
    damage = shards.Damage()
    found = [
        made
        for batch in shards.batches(folder, ATTEMPTS, ATTEMPTS.names, damage)
        for made in batch.to_pylist()
    ]
    return sorted(found, key=lambda made: made["trial"]), damage


def test_everything_put_is_readable_after_close(tmp_path: Path) -> None:
    writer = AttemptWriter(tmp_path, "w")
    for trial in range(500):
        writer.put(row(trial))
    writer.close()
    found, damage = stored(tmp_path)
    assert found == [row(trial) for trial in range(500)] and not damage.lines
    assert writer.written == 500
    assert [path.name for path in tmp_path.iterdir()] == ["w-00000.parquet"]


def test_an_attempt_is_readable_before_close(tmp_path: Path) -> None:
    writer = AttemptWriter(tmp_path, "w")
    try:
        writer.put(row(0))
        while not writer.written:
            time.sleep(0.01)
        assert stored(tmp_path)[0] == [row(0)]
    finally:
        writer.close()


def test_nothing_put_leaves_nothing(tmp_path: Path) -> None:
    AttemptWriter(tmp_path, "w").close()
    assert list(tmp_path.iterdir()) == []


def test_journals_are_sealed_when_they_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "SEAL_AT", 50_000)
    writer = AttemptWriter(tmp_path, "w")
    for trial in range(600):
        writer.put(row(trial, tokens=50))
    writer.close()
    assert stored(tmp_path)[0] == [row(trial, tokens=50) for trial in range(600)]
    assert len(list(tmp_path.glob("*.parquet"))) > 3
    assert not list(tmp_path.glob("*.journal"))


def test_a_full_disk_surfaces_and_what_was_written_stays(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        writer = AttemptWriter(disk, "w")
        with pytest.raises(OSError, match="No space left"):
            for trial in range(100_000):
                writer.put(row(trial, tokens=200))
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        found, damage = stored(disk)
        assert writer.written == len(found) > 20 and not damage.lines
        assert found == [row(trial, tokens=200) for trial in range(len(found))]


def test_a_disk_too_full_to_seal_keeps_the_journal(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk") as disk:
        writer = AttemptWriter(disk, "w")
        for trial in range(60):
            writer.put(row(trial))
        while writer.written < 60:
            time.sleep(0.01)
        with (disk / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError):
            while True:
                ballast.write(bytes(4096))
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        assert stored(disk)[0] == [row(trial) for trial in range(60)]
        assert not list(disk.glob(".*"))
        (disk / "ballast").unlink()
        assert shards.seal_leftovers(disk, ATTEMPTS) == []
        assert stored(disk)[0] == [row(trial) for trial in range(60)]


def test_a_row_that_cannot_be_stored_is_an_error_not_a_hang(tmp_path: Path) -> None:
    writer = AttemptWriter(tmp_path, "w")
    writer.put(row(0))
    while not writer.written:
        time.sleep(0.01)
    writer.put(row(1) | {"trial": "not a number"})
    with pytest.raises(OSError, match="cannot be stored"):
        for trial in range(2, 5000):
            writer.put(row(trial))
        writer.close()
    if writer._thread.is_alive():
        with pytest.raises(OSError):
            writer.close()
    assert stored(tmp_path)[0][0] == row(0)


def test_the_queue_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write, append = threading.Event(), Journal.append

    def slow(self: Journal, rows: list[dict[str, Any]]) -> None:
        may_write.wait()
        append(self, rows)

    monkeypatch.setattr(Journal, "append", slow)  # a disk that hangs
    monkeypatch.setattr(attempts, "_MOST_WAITING", 10)
    writer = AttemptWriter(tmp_path, "w")
    handed = 0

    def hand_over() -> None:
        nonlocal handed
        for trial in range(200):
            writer.put(row(trial))
            handed += 1

    engine = threading.Thread(target=hand_over)
    engine.start()
    time.sleep(1.0)
    waiting = handed
    may_write.set()
    engine.join()
    writer.close()
    assert waiting <= 10 + attempts._MOST_IN_FRAME
    assert stored(tmp_path)[0] == [row(trial) for trial in range(200)]
