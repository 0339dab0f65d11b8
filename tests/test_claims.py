"""Claims: every attempt is taken once, whoever comes, goes or dies."""

import json
import os
import random
import shutil
import subprocess
import sys
import textwrap
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.base.program import ROOT
from bayes_at_n.pipeline.generate import claims
from bayes_at_n.pipeline.generate.claims import BLOCK, Claims
from bayes_at_n.pipeline.store import sessions
from bayes_at_n.pipeline.workers import heartbeat
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat

OWED = 10 * BLOCK + 5
SEEDS = [0, 1, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(2, 6))]


class Worker:
    """A worker without an engine: what it has begun, and what it has made durable."""

    def __init__(self, run: Path, name: str, made: dict[str, set[int]], owed: int = OWED) -> None:
        self.name, self.made = name, made
        run.mkdir(exist_ok=True)
        self.beat = Heartbeat(run, name)
        self.beat.__enter__()
        self.flying: list[int] = []
        self.owed = owed
        self.claims = Claims(self.beat, self.lacking, lambda worker: made.get(worker, set()))
        self.claims.read()

    def lacking(self) -> set[int]:
        """What is not made, whatever the claims say."""
        return set(range(self.owed)).difference(*self.made.values())

    def begin(self, room: int = 8, batch: int = 4) -> int | None:
        position = self.claims.take(len(self.flying), room, batch)
        if position is not None:
            self.flying.append(position)
        return position

    def end_one(self) -> None:
        position = self.flying.pop(0)
        if self.claims.lost(position):
            return
        self.made.setdefault(self.name, set()).add(position)
        self.claims.durable(position)

    def die(self) -> None:
        """As after kill -9: nothing is released, and the process is no more."""
        fields = json.loads(self.beat.path.read_text())
        with self.beat.path.open("w") as file:  # the same file: claims are links of it
            json.dump(fields | {"pid": 2**22 + 1}, file)

    def leave(self) -> None:
        self.claims.release()
        self.beat.__exit__(None, None, None)


@pytest.fixture(autouse=True)
def eager(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing waits for the next look."""
    monkeypatch.setattr(claims, "LOOK_S", 0.0)


@pytest.fixture
def made() -> dict[str, set[int]]:
    return {}


def finish(workers: list[Worker], most: int = 100_000) -> None:
    """Let all work in turn until nothing is left."""
    for _ in range(most):
        for worker in workers:
            while worker.begin() is not None:
                pass
            if worker.flying:
                worker.end_one()
        if not any(worker.claims.left for worker in workers):
            return
    raise AssertionError([worker.claims.left for worker in workers])


def everything(made: dict[str, set[int]]) -> list[int]:
    return sorted(position for positions in made.values() for position in positions)


def test_one_worker_takes_all_in_order(tmp_path: Path, made: dict[str, set[int]]) -> None:
    one = Worker(tmp_path, "one", made)
    assert [one.begin(room=OWED) for _ in range(BLOCK)] == list(range(BLOCK))
    finish([one])
    assert everything(made) == list(range(OWED))
    assert one.begin() is None and one.claims.left == 0
    one.leave()


def test_alone_it_takes_what_it_has_room_for_and_then_waits(
    tmp_path: Path, made: dict[str, set[int]]
) -> None:
    one = Worker(tmp_path, "one", made)
    assert len([p for p in iter(lambda: one.begin(room=24), None)]) == 24
    one.end_one()
    assert one.begin(room=24) is None  # many at a time are cheaper
    for _ in range(3):
        one.end_one()
    assert one.begin(room=24) is not None
    one.leave()


def test_beside_others_nobody_takes_more_than_a_share(
    tmp_path: Path, made: dict[str, set[int]]
) -> None:
    workers = [Worker(tmp_path, name, made, owed=64) for name in "abcd"]
    for worker in workers:
        while worker.begin(room=300, batch=100) is not None:
            pass
    assert [len(worker.flying) for worker in workers] == [16, 16, 16, 16]
    finish(workers)
    assert everything(made) == list(range(64))


def test_what_one_gives_up_the_other_makes(tmp_path: Path, made: dict[str, set[int]]) -> None:
    """From a block of its own, from one that was split, and begun twice before."""
    refused = {3, 5, BLOCK + 1, OWED - 1}
    one = Worker(tmp_path, "one", made)
    times: Counter[int] = Counter()

    def work(worker: Worker) -> None:
        while worker.begin() is not None:
            pass
        while worker.flying:
            if worker is two or worker.flying[0] not in refused:
                worker.end_one()
                continue
            position = worker.flying.pop(0)
            assert not worker.claims.lost(position)
            times[position] += 1
            (worker.claims.again if times[position] < 3 else worker.claims.give_up)(position)

    two: Worker | None = None
    while not one.claims.given_up:
        work(one)
    assert one.claims.given_up < refused and times[3] == 3
    two = Worker(tmp_path, "two", made)
    while one.claims.left:
        work(one)
        work(two)
    assert everything(made) == list(range(OWED))
    assert one.claims.given_up == set() and made["two"] & refused == refused - made["one"]
    assert max(times.values()) <= 3
    one.leave()
    two.leave()


def test_what_is_given_up_and_left_is_free(tmp_path: Path, made: dict[str, set[int]]) -> None:
    one = Worker(tmp_path, "one", made)
    while one.claims.left > len(one.claims.given_up):
        while one.begin() is not None:
            pass
        position = one.flying.pop(0)
        if position % 7:
            one.flying.insert(0, position)
            one.end_one()
        else:
            one.claims.give_up(position)
    refused = set(range(0, OWED, 7))
    assert one.claims.given_up == refused == one.lacking() and one.begin() is None
    one.leave()
    two = Worker(tmp_path, "two", made)
    finish([two])
    assert made["two"] == refused and everything(made) == list(range(OWED))
    two.leave()


@pytest.mark.parametrize("seed", SEEDS)
def test_any_interleaving_makes_everything_once(
    tmp_path: Path, made: dict[str, set[int]], seed: int
) -> None:
    """Workers come, go in good order, and look at the folder at different times."""
    moments = random.Random(seed)
    workers = [Worker(tmp_path, "w0", made)]
    for step in range(3000):
        worker = moments.choice(workers)
        action = moments.random()
        if action < 0.55:
            worker.begin(room=20, batch=moments.choice([1, 4, 16]))
        elif action < 0.95 and worker.flying:
            worker.end_one()
        elif action > 0.99 and len(workers) < 5:
            workers.append(Worker(tmp_path, f"w{step}", made))
        elif action > 0.985 and len(workers) > 1:
            workers.remove(worker)
            worker.leave()
    finish(workers)
    assert everything(made) == list(range(OWED))
    for worker in workers:
        worker.leave()


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_dead_had_begun_is_made_by_others(
    tmp_path: Path, made: dict[str, set[int]], seed: int
) -> None:
    moments = random.Random(seed)
    workers = [Worker(tmp_path, f"w{n}", made) for n in range(4)]
    names = iter(range(100, 200))
    for _ in range(1500):
        worker = moments.choice(workers)
        action = moments.random()
        if action < 0.6:
            worker.begin(room=20, batch=8)
        elif action < 0.985 and worker.flying:
            worker.end_one()
        elif action >= 0.985 and len(workers) > 1:
            worker.die()
            workers.remove(worker)
            workers.append(Worker(tmp_path, f"w{next(names)}", made))
    finish(workers)
    # Known to be dead, not thought to be: nothing is made twice.
    assert everything(made) == list(range(OWED))


def test_what_a_worker_makes_that_was_only_thought_dead_does_not_count(
    tmp_path: Path, made: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "EXPIRE_S", 60.0)
    sleeper, other = (Worker(tmp_path, name, made, owed=40) for name in "ab")
    while sleeper.begin() is not None:
        pass
    asleep = len(sleeper.flying)
    assert asleep
    os.utime(sleeper.beat.path, (time.time() - 61, time.time() - 61))
    finish([other])
    assert made["b"] == set(range(40))
    while sleeper.flying:
        sleeper.end_one()
    finish([sleeper])
    assert everything(made) == list(range(40))


def test_a_worker_that_slept_until_the_others_had_left(
    tmp_path: Path, made: dict[str, set[int]]
) -> None:
    sleeper, other = (Worker(tmp_path, name, made, owed=40) for name in "ab")
    while sleeper.begin() is not None:
        pass
    os.utime(sleeper.beat.path, (1, 1))
    finish([other])
    heartbeat.clear(tmp_path / "claims", other.beat.now)  # nobody else seems to be alive
    other.leave()
    sleeper.beat.appear()
    while sleeper.flying:
        sleeper.end_one()
    finish([sleeper])
    assert made["b"] == set(range(40)) and "a" not in made


def test_a_late_straggler_gives_away_what_it_has_not_begun(
    tmp_path: Path, made: dict[str, set[int]]
) -> None:
    first = Worker(tmp_path, "first", made, owed=BLOCK)
    assert first.begin(room=1, batch=1) == 0  # it has claimed the block, and makes one at a time
    second = Worker(tmp_path, "second", made, owed=BLOCK)
    assert second.begin(batch=4) is None
    first.end_one()
    assert first.begin(batch=1) == 1  # it sees that somebody has nothing to do
    taken = [second.begin(batch=4) for _ in range(4)]
    assert None not in taken and not {0, 1} & set(taken)
    finish([first, second])
    assert everything(made) == list(range(BLOCK))


def test_a_copied_folder_whose_links_are_files_of_their_own(
    tmp_path: Path, made: dict[str, set[int]]
) -> None:
    one = Worker(tmp_path / "a", "one", made)
    for _ in range(6):
        one.begin()
    one.end_one()
    one.die()
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    assert (tmp_path / "b" / "claims" / "000000").stat().st_nlink == 1
    two = Worker(tmp_path / "b", "two", made)
    finish([two])
    assert everything(made) == list(range(OWED))


@pytest.mark.parametrize("what", ["heartbeat", "folder"])
def test_somebody_deletes_the_files_of_live_workers(
    tmp_path: Path, made: dict[str, set[int]], what: str
) -> None:
    workers = [Worker(tmp_path, name, made) for name in "ab"]
    for worker in workers:
        for _ in range(4):
            worker.begin()
    if what == "folder":
        shutil.rmtree(tmp_path / "claims")
    else:
        for worker in workers:
            worker.beat.path.unlink()
    finish(workers)
    # What was under way in that moment may be made twice, and nothing is left out.
    assert set(everything(made)) == set(range(OWED)) and len(everything(made)) <= OWED + 8


def test_what_is_marked_done_and_is_not_there_is_made_again(
    tmp_path: Path, made: dict[str, set[int]]
) -> None:
    """A node lost its power, or a part was damaged; other workers are alive all the time."""
    workers = [Worker(tmp_path, name, made) for name in "ab"]
    finish(workers)
    lost = {3, 4, 5, 40, 41, OWED - 1}
    for positions in made.values():
        positions -= lost
    assert [worker.claims.left for worker in workers] == [0, 0]
    assert workers[0].claims.reopen() == len(lost)
    workers[0].begin()
    assert workers[1].claims.reopen() == len(lost)  # and leaves the other's new claim alone
    finish(workers)
    assert everything(made) == list(range(OWED))


def test_a_listing_that_lacks_a_worker_s_own_claims(
    tmp_path: Path, made: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Worker(tmp_path, "one", made)
    for _ in range(4):
        one.begin()
    real = os.scandir
    monkeypatch.setattr(os, "scandir", lambda folder: [e for e in real(folder) if e.name > "1"])
    one.begin()
    monkeypatch.setattr(os, "scandir", real)
    finish([one])
    assert everything(made) == list(range(OWED))


def test_a_listing_is_no_snapshot(
    tmp_path: Path, made: dict[str, set[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block is listed before another worker splits it, and its attempts after."""
    one, two = (Worker(tmp_path, name, made, owed=BLOCK) for name in "ab")
    taken = [one.begin(room=8, batch=8) for _ in range(8)]
    real = os.scandir

    def early(folder: Path) -> Any:
        return [entry for entry in real(folder) if entry.name != "000000"]

    monkeypatch.setattr(os, "scandir", early)
    two.claims.read()
    monkeypatch.setattr(os, "scandir", real)
    others = [two.begin(room=8, batch=8) for _ in range(8)]
    assert None not in taken + others and not set(taken) & set(others)


def test_who_is_alive(tmp_path: Path, made: dict[str, set[int]]) -> None:
    assert sessions.alive(tmp_path) == set()
    one, two = (Worker(tmp_path, name, made) for name in "ab")
    assert sessions.alive(tmp_path) == {"a", "b"}
    one.die()
    assert sessions.alive(tmp_path) == {"b"}
    two.leave()
    assert sessions.alive(tmp_path) == set()


RACER = """
    import sys, time
    from pathlib import Path
    from bayes_at_n.pipeline.generate import claims
    from bayes_at_n.pipeline.generate.claims import Claims
    from bayes_at_n.pipeline.workers.heartbeat import Heartbeat
    claims.LOOK_S = 0.05
    folder, name, owed = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    print("ready", flush=True)
    sys.stdin.readline()
    with Heartbeat(folder, name) as beat:
        mine = Claims(beat, lambda: range(owed), lambda worker: set())
        mine.read()
        with open(folder / f"{name}.made", "w") as file:
            while mine.left:
                position = mine.take(0, 1, 1)
                if position is None:
                    time.sleep(0.01)
                    continue
                file.write(f"{position}\\n")
                mine.durable(position)
    """


@pytest.fixture
def racers(tmp_path: Path) -> Iterator[list["subprocess.Popen[str]"]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                subprocess.Popen(
                    [sys.executable, "-c", textwrap.dedent(RACER), str(tmp_path), f"w{n}", "2000"],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            for n in range(4)
        ]


def test_processes_that_race_for_every_claim(
    racers: list["subprocess.Popen[str]"], tmp_path: Path
) -> None:
    for racer in racers:
        assert racer.stdout and racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin
        racer.stdin.write("go\n")
        racer.stdin.flush()
    assert [racer.wait() for racer in racers] == [0] * 4
    made = [int(line) for path in tmp_path.glob("*.made") for line in path.read_text().split()]
    assert sorted(made) == list(range(2000))
