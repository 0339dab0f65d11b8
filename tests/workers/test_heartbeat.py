"""A worker's sign of life: fresh while its engine answers, in every run that it serves."""

import math
import os
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bayes_at_n.pipeline.workers import heartbeat
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat, Watch


@pytest.fixture
def beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heartbeat]:
    monkeypatch.setattr(heartbeat, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(heartbeat, "HANG_S", 0.5)
    with Heartbeat(tmp_path, "w") as beat:
        yield beat
    assert not beat.path.exists()


def touched(watch: Watch, beat: Heartbeat, times: int) -> None:
    """Wait until the heartbeat was touched so often; fails once nobody does that any more."""
    for _ in range(times):
        os.utime(beat.path, (1, 1))
        while beat.path.stat().st_mtime == 1:
            assert watch._thread.is_alive()
            time.sleep(0.01)


def test_one_watch_keeps_the_heartbeats_of_many_runs(beat: Heartbeat, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = Heartbeat(tmp_path / "other", "w")
    with Watch(lambda seconds: None) as watch:
        watch.beats.append(beat)
        with other:
            watch.beats.append(other)
            touched(watch, other, 2)
            shutil.rmtree(tmp_path / "other" / "claims")  # thought dead, and cleared away
            while not other.path.exists():
                time.sleep(0.01)
        touched(watch, beat, 2)  # it still looks after the other one, which is no more
        watch.beats.remove(other)
        touched(watch, beat, 2)
        assert not other.path.exists()


def test_heartbeats_stop_when_the_engine_falls_silent(beat: Heartbeat) -> None:
    told: list[float] = []
    with Watch(told.append) as watch:
        watch.beats.append(beat)
        with watch.awaiting(3600.0):  # loading may take its time
            touched(watch, beat, 15)
        for _ in range(15):  # a step may not, and each is one of its own
            with watch.awaiting():
                touched(watch, beat, 1)
        assert not told
        with watch.awaiting():
            while not told:
                time.sleep(0.01)
        watch._thread.join()
        os.utime(beat.path, (1, 1))
        assert beat.path.stat().st_mtime == 1 and told == [0.5]


def test_a_file_system_that_stands_still_is_no_silence_of_the_engine(
    beat: Heartbeat, tmp_path: Path
) -> None:
    """A pipe that nobody writes to holds its reader as a dead NFS server does."""
    pipe, told = tmp_path / "pipe", list[float]()
    os.mkfifo(pipe)

    def server() -> None:
        touched(watch, beat, 30)  # three times HANG_S
        pipe.write_text("back")

    with Watch(told.append) as watch, ThreadPoolExecutor(1) as pool:
        watch.beats.append(beat)
        with watch.awaiting():
            pass
        pool.submit(server)
        assert pipe.read_text() == "back"  # between two steps of the engine
        pool.submit(server)
        with watch.awaiting(), watch.awaiting(math.inf):  # while it waits for requests
            assert pipe.read_text() == "back"
        assert not told
        with watch.awaiting():
            with watch.awaiting(math.inf):
                pass
            while not told:
                time.sleep(0.01)
