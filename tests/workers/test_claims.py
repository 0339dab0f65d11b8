"""Claims and heartbeats: every attempt is taken once, whoever comes, goes, sleeps or dies."""

import json
import math
import os
import random
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import race

from bayes_at_n.pipeline.workers import claims, stopping
from bayes_at_n.pipeline.workers.claims import BLOCK, Claims, Heartbeat
from bayes_at_n.pipeline.workers.stopping import Watch

PENDING = 10 * BLOCK + 5
Made = dict[str, set[int]]  # by worker: what the table holds


class Worker:
    """A worker without an engine: what it has begun, and what it has made durable."""

    def __init__(self, run: Path, name: str, made: Made, pending: int = PENDING) -> None:
        self.name, self.made, self.pending = name, made, pending
        run.mkdir(exist_ok=True)
        self.beat = Heartbeat(run, name).__enter__()
        self.in_flight: list[int] = []
        self.claims = Claims(self.beat, self.lacking)
        self.claims.read()

    def lacking(self) -> set[int]:
        """What is not made, whatever the claims say."""
        return set(range(self.pending)).difference(*self.made.values())

    def begin(self, room: int = 8, batch: int = 4) -> int | None:
        position = self.claims.take(len(self.in_flight), room, batch)
        if position is not None:
            assert position not in {*self.in_flight, *self.made.get(self.name, ())}
            self.in_flight.append(position)
        return position

    def fill(self, room: int = 8, batch: int = 4) -> None:
        while self.begin(room, batch) is not None:
            pass

    def end_one(self) -> None:
        position = self.in_flight.pop(0)
        if not self.claims.lost(position):
            self.made.setdefault(self.name, set()).add(position)
            self.claims.durable(position)

    def die(self) -> None:
        """As after kill -9: the process is no more, and all its files are there."""
        fields = json.loads(self.beat.path.read_text())
        self.beat.path.write_text(json.dumps(fields | {"pid": 2**22 + 1}))

    def leave(self) -> None:
        self.claims.release()
        self.beat.__exit__()


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the next look."""
    monkeypatch.setattr(claims, "POLL_S", 0.0)


@pytest.fixture
def made() -> Made:
    return {}


def finish(*workers: Worker) -> None:
    """Let all work in turn until nothing is left."""
    for _ in range(10_000):
        for worker in workers:
            worker.fill()
            if worker.in_flight:
                worker.end_one()
        if not any(worker.claims.pending for worker in workers):
            return
    raise AssertionError([worker.claims.pending for worker in workers])


def everything(made: Made) -> list[int]:
    return sorted(position for positions in made.values() for position in positions)


def test_claims_shrink_with_what_is_left(tmp_path: Path, made: Made) -> None:
    one, _ = (Worker(tmp_path, name, made) for name in "ab")
    one.fill(room=12, batch=12)
    assert one.in_flight == list(range(12))  # in order
    finish(one)
    assert everything(made) == list(range(PENDING)) and not one.claims.pending
    claimed = [path.read_text().split() for path in sorted((tmp_path / "claims").glob("0*[0-9]"))]
    sizes = [len(positions) for _, *positions in claimed]
    assert sizes[0] == min(BLOCK, PENDING // (4 * 2))  # of two workers
    assert sizes == sorted(sizes, reverse=True) and sizes[-8:] == [1] * 8
    assert sum(sizes) == PENDING and len([*(tmp_path / "claims").glob("*.done")]) == len(sizes)


def test_the_longest_come_first_within_the_last_two_batches(tmp_path: Path, made: Made) -> None:
    """So a kill at any moment costs at most the rounds of two batches."""
    worker, batch, begun = Worker(tmp_path, "w", made), 12, list[int]()
    worker.claims._length = lambda position: -(position % 30)  # of 30 questions
    while worker.begin(batch, batch) is not None or worker.in_flight:
        begun += worker.in_flight[-1:]
        if len(worker.in_flight) == batch or not worker.claims.free:
            worker.end_one()
        begun = list(dict.fromkeys(begun))
    for n in range(len(begun)):
        first = min({*range(PENDING)} - {*begun[:n]})
        assert first == n or PENDING - n <= 2 * batch + BLOCK
    assert begun[: PENDING - 2 * batch - BLOCK] == list(range(PENDING - 2 * batch - BLOCK))
    assert [p % 30 for p in begun[-4:]] == sorted(p % 30 for p in begun[-4:])
    assert begun != sorted(begun) and everything(made) == list(range(PENDING))


def test_several_numbers_of_trials_at_once(tmp_path: Path, made: Made) -> None:
    finish(*(Worker(tmp_path, f"w{pending}", made, pending) for pending in (40, 100, 70)))
    assert everything(made) == list(range(100))


def test_beside_others_nobody_takes_more_than_a_share(tmp_path: Path, made: Made) -> None:
    workers = [Worker(tmp_path, name, made, pending=64) for name in "abcd"]
    for worker in workers:
        worker.fill(room=300, batch=100)
    in_flight = [len(worker.in_flight) for worker in workers]
    assert max(in_flight) == 16 and sum(in_flight) > 60


@pytest.mark.parametrize(
    "seed", [0, 1, 2, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 20))]
)
def test_any_interleaving_makes_everything_once(tmp_path: Path, made: Made, seed: int) -> None:
    """Workers come, leave in good order or die; no two of them ever hold one attempt."""
    moments = random.Random(seed)
    workers = [Worker(tmp_path, f"w{n}", made) for n in range(3)]
    for step in range(1500):
        worker = moments.choice(workers)
        action = moments.random()
        if action < 0.6:
            worker.begin(room=20, batch=moments.choice([1, 4, 16]))
        elif action < 0.96 and worker.in_flight:
            worker.end_one()
        elif action > 0.98 and len(workers) < 6:
            workers.append(Worker(tmp_path, f"w-{step}", made))
        elif action > 0.97 and len(workers) > 1:
            workers.remove(worker)
            moments.choice([worker.leave, worker.die])()
        held = [p for w in workers for p in (*w.claims._begun, *w.claims._ready)]
        assert len(held) == len(set(held))
    finish(*workers)
    assert everything(made) == list(range(PENDING))  # known to be dead: nothing is made twice


@pytest.mark.parametrize("others", ["are there", "have left", "began anew"])
def test_what_a_worker_makes_that_was_only_thought_dead_does_not_count(
    tmp_path: Path, made: Made, others: str
) -> None:
    sleeper, other = (Worker(tmp_path, name, made, pending=40) for name in "ab")
    sleeper.fill()
    assert sleeper.in_flight
    os.utime(sleeper.beat.path, (1, 1))
    if others == "began anew":
        claims.clear(tmp_path)
        sleeper.claims._listed_at -= 1000
    finish(other)
    assert made["b"] == set(range(40))
    if others == "have left":
        claims.clear(tmp_path)
        other.leave()
    sleeper.beat.create()
    os.utime(sleeper.beat.path)
    while sleeper.in_flight:
        sleeper.end_one()
    finish(sleeper)
    assert "a" not in made


@pytest.mark.parametrize("what", ["heartbeats", "one claim", "first claim", "folder"])
def test_somebody_deletes_files_of_live_workers(tmp_path: Path, made: Made, what: str) -> None:
    workers = [Worker(tmp_path, name, made) for name in "ab"]
    for worker in workers:
        worker.fill()
    if what == "folder":
        shutil.rmtree(tmp_path / "claims")
    elif what == "heartbeats":
        for worker in workers:
            worker.beat.path.unlink()
    else:
        (tmp_path / "claims" / f"{what == 'one claim':08d}").unlink()
    for _ in range(PENDING):
        for worker in workers:
            worker.fill()
            if worker.in_flight:
                worker.end_one()
    for worker in workers:
        worker.claims.read()
    finish(*workers)
    # What was under way in that moment may be made twice, and nothing is left out.
    assert set(everything(made)) == set(range(PENDING)) and len(everything(made)) <= PENDING + 8


def test_a_dead_worker_gets_no_share(tmp_path: Path, made: Made) -> None:
    one, two = (Worker(tmp_path, name, made) for name in "ab")
    two.die()
    for due in (True, True, False, True, False):  # its heartbeat stays
        one.claims._checked_at -= 2 * claims.HEARTBEAT_S * due
        one.claims._refresh()
        assert one.claims._alive == {"a"}


def test_what_one_gives_up_another_makes(tmp_path: Path, made: Made) -> None:
    refused = {3, 5, BLOCK + 1, PENDING - 1}
    one, two = (Worker(tmp_path, name, made) for name in "ab")
    times = dict.fromkeys(refused, 0)
    while one.claims.pending != refused or min(times.values()) < 3:
        one.fill()
        position = one.in_flight[0]
        if position not in refused:
            one.end_one()
            continue
        one.in_flight.remove(position)
        times[position] += 1
        if times[position] < 3:
            one.claims.again(position)
    assert one.lacking() == refused and set(times.values()) == {3}
    assert one.begin() is None and two.begin() is None and two.claims.read() == len(refused)
    one.claims.release()  # it goes on in other runs
    finish(two)
    assert made["b"] == refused


def test_what_is_marked_done_and_is_not_there_is_made_again(tmp_path: Path, made: Made) -> None:
    """A node lost its power, or a part was damaged; other workers are alive all the time."""
    workers = [Worker(tmp_path, name, made) for name in "ab"]
    finish(*workers)
    lost = {3, 4, 5, 40, 41, PENDING - 1}
    for positions in made.values():
        positions -= lost
    assert [worker.claims.pending for worker in workers] == [set(), set()]
    assert [worker.claims.read() for worker in workers] == [len(lost)] * 2
    finish(*workers)
    assert everything(made) == list(range(PENDING))


def test_processes_that_race_for_every_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claims, "POLL_S", 0.05)

    def made() -> list[int]:
        return [int(n) for path in tmp_path.glob("*.made") for n in path.read_text().split()]

    def racing(number: int) -> None:
        name = f"w{number}"
        with Heartbeat(tmp_path, name) as beat, open(tmp_path / f"{name}.made", "w") as file:
            mine = claims.Claims(beat, lambda: {*range(800)} - {*made()})
            mine.read()
            while mine.pending:
                position = mine.take(0, 1, 1)
                if position is None:
                    time.sleep(0.01)
                    continue
                print(position, file=file, flush=True)
                mine.durable(position)

    race(racing)
    assert sorted(made()) == list(range(800))


@pytest.fixture
def beat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Heartbeat]:
    monkeypatch.setattr(claims, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(stopping, "HANG_S", 0.5)
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
