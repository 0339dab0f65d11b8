"""Which attempt a worker samples next, when any number of workers share a run.

Workers append to a numbered list of claims. Each claim is a file, and only one worker can create
the file of a number, so all that have read the list to its end agree on who samples what:

    W1.lease            the heartbeat of worker W1: its claims count while it lives
    00000000            "W1 0 1 2 3": worker W1 samples attempts 0 to 3, counted trial by trial
    00000001            "W2 4 5 6"
    00000000.done       the attempts of claim 0 are in the table
    00000002            " 5 6": released; of several claims on an attempt the last counts

Claims only save time: the table alone decides what is pending. If two workers sample the same
attempt, because one was thought dead, that costs that attempt's time.

A heartbeat is touched every ten seconds while its worker's engine responds. A process that died on
this host counts as dead at once; one on another host, or one that hangs, after two minutes without
a heartbeat. All times are the file server's, so that clocks of hosts are never compared.
"""

import heapq
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from bayes_at_n.pipeline.base import lease, program
from bayes_at_n.pipeline.base.errors import UserError
from bayes_at_n.pipeline.config.resources import EngineConfig
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers import stopping

BLOCK = 16  # attempts of a claim at most
POLL_S = 1.0  # between two listings of the folder, half of it while there is nothing to do
DONE = ".done"
HEARTBEAT_S = 10.0
HANG_S, LOAD_S = 600.0, 3600.0  # longer than any step of an engine, and than loading one
HUNG = 86  # exit status of a process whose engine does not respond


class Heartbeat:
    """The file `claims/WORKER.lease` of a worker in a folder; it exists within the `with` block.

    `check`: called before the file is touched; raises if the folder moved.

    Attributes:
        now: the file server's time when the file was last touched, in Unix seconds.
    """

    def __init__(self, folder: Path, worker: str, check: stopping.Check = lambda: None) -> None:
        self.check, self.path, self.now = check, path_of(folder, worker), 0.0
        self._token, self._left = lease.token(worker=worker), False
        self._changing = threading.Lock()  # so that no touch recreates the file during removal

    def __enter__(self) -> Self:
        self.touch()
        return self

    def __exit__(self, *_: object) -> None:
        with self._changing, suppress(OSError):
            self._left = True
            self.path.unlink()

    def touch(self) -> None:
        """Touch the file; create it if it is missing, unless the worker has left."""
        with self._changing:
            while not self._left:
                self.check()
                self.path.parent.mkdir(exist_ok=True)
                with suppress(FileNotFoundError):  # the last worker to leave removed the folder
                    if not self.path.exists():
                        lease.create(self.path, self._token)
                    os.utime(self.path)
                    self.now = self.path.stat().st_mtime
                    return


class Watch:
    """A thread that checks the engine every `HEARTBEAT_S` and touches heartbeats while it responds.

    `hung`: called once, in that thread, with the limit in seconds, if a block of `awaiting` takes
    longer; heartbeats are no longer touched then.

    Attributes:
        beats: the heartbeats to touch, one per run; may be changed at any time.
    """

    def __init__(self, hung: Callable[[float], None]) -> None:
        self.beats: list[Heartbeat] = []
        self._hung, self._stop = hung, threading.Event()
        self._awaited = 0.0, math.inf  # start and limit of the current wait
        self._thread = threading.Thread(target=self._check, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    @contextmanager
    def awaiting(self, seconds: float | None = None) -> Iterator[None]:
        """Limit a block in which the engine has control to `seconds`, by default `HANG_S`.

        Time outside such blocks has no limit: a file system may block for as long as it likes. An
        inner block without limit (math.inf) is for when the engine waits for us; after it the limit
        of the outer one starts over.
        """
        outer, self._awaited = self._awaited[1], (time.monotonic(), seconds or HANG_S)
        try:
            yield
        finally:
            self._awaited = time.monotonic(), outer

    def _check(self) -> None:
        awake = excused = time.monotonic()
        while not self._stop.wait(HEARTBEAT_S):
            now, (since, limit) = time.monotonic(), self._awaited
            if now - awake > 3 * HEARTBEAT_S:  # this process was suspended, or the file system
                excused = now  # blocked, and the engine perhaps too
            awake = now
            if now - max(since, excused) > limit:
                return self._hung(limit)
            for beat in tuple(self.beats):
                with suppress(OSError, UserError):
                    beat.touch()


def silence_s(engine: EngineConfig) -> float:
    """Return how many seconds a step may take; for servers, time for retries is added.

    >>> silence_s(EngineConfig("vllm")) == HANG_S < silence_s(EngineConfig("openai"))
    True
    """
    served = program.kind(engine.name).served
    return HANG_S + served * (engine.patience_s + engine.timeout_s)


def path_of(folder: Path, worker: str) -> Path:
    """Return the path of a worker's heartbeat in a folder."""
    return folder / runfolder.CLAIMS / f"{worker}{lease.SUFFIX}"


class Claims:
    """What one worker has claimed, and what it may claim next.

    Args:
        beat: the worker's heartbeat.
        pending: reads the table and returns the pending attempts.
        most: the most attempts of a claim.
        length: the expected length of an attempt. Once what is unclaimed fits two batches, the
            longest are claimed first, so that the last to begin are short.

    Attributes:
        pending: attempts that are not known to be durable, claimed or not.
        free: heap of those that nobody has claimed, or had when the worker last claimed some.
    """

    def __init__(
        self,
        beat: Heartbeat,
        pending: Callable[[], Iterable[int]],
        most: int = BLOCK,
        length: Callable[[int], float] | None = None,
    ) -> None:
        self.heartbeat, self.folder, self.me = beat, beat.path.parent, beat.path.stem
        self.most, self._read_pending, self._length = most, pending, length
        self.pending, self.free = set[int](), list[int]()
        self._list = list[tuple[str, list[int]]]()  # claims: their workers and attempts
        self._claim = dict[int, int]()  # by attempt, the claim that counts
        self._done = set[int]()  # claims
        self._ready, self._begun = deque[int](), set[int]()  # own attempts: not begun; in flight
        self._alive, self._dead, self._filling = {self.me}, set[str](), True
        self._listed_at = self._checked_at = time.monotonic()

    def read(self) -> int:
        """Read the table; return how many attempts are pending.

        Those that are marked done and missing in the table may be claimed again: a part was
        damaged, or a node lost power.
        """
        self._follow()
        self.pending = set(self._read_pending())  # after the marks: what is marked is in the table
        marked = {claim for p in self.pending if (claim := self._claim.get(p)) in self._done}
        self._release(marked)
        self.free = sorted(p for p in self.pending if p not in self._claim)
        return len(self.pending)

    def take(self, in_flight: int, capacity: int, batch: int) -> int | None:
        """Return the next attempt to begin; None if there is none right now.

        With other workers around, little more than a batch is begun, and no more than a fair share
        of what is left.

        Args:
            in_flight: attempts begun and not finished.
            capacity: the most that may be in flight.
            batch: how many the engine runs at once.
        """
        self._refresh()
        if (workers := len(self._alive)) > 1:
            capacity = min(capacity, batch + batch // 8, -(-len(self.pending) // workers))
        self._filling = in_flight < capacity and (self._filling or in_flight <= capacity * 7 // 8)
        while self._filling and (self._ready or self._claim_more(2 * batch)):
            position = self._ready.popleft()
            if self.holder(position) == self.me:  # nobody has taken it over
                self._begun.add(position)
                return position
        return None

    def holder(self, position: int) -> str:
        """Return the worker that has claimed an attempt; empty if none has."""
        claim = self._claim.get(position)
        return "" if claim is None else self._list[claim][0]

    def lost(self, position: int) -> bool:
        """Return whether another worker has taken this attempt over: then it must not be written.

        Readers of the table may have seen the other worker's attempt by now.
        """
        self._refresh()
        holder = self.holder(position)
        gone = holder != self.me if holder else position not in self.pending
        if gone:
            self._begun.discard(position)
        return gone

    def durable(self, position: int) -> None:
        """Mark an attempt of this worker as durable, and its claim as done after the last."""
        self.pending.discard(position)
        self._begun.discard(position)
        if self.holder(position) == self.me:
            claim = self._claim[position]
            if self.pending.isdisjoint(self._attempts(claim)):
                self._done.add(claim)
                with suppress(FileNotFoundError):  # a deleted folder is noticed by `_follow`
                    (self.folder / f"{claim:08d}{DONE}").touch()

    def again(self, position: int) -> None:
        """Put an attempt that this worker began and did not finish at the end of its queue."""
        self._begun.discard(position)
        if self.holder(position) == self.me:
            self._ready.append(position)

    def release(self) -> None:
        """Release unfinished claims. Raises OSError: others take them over when this one ends."""
        own = [position for position in self.pending if self.holder(position) == self.me]
        while own and not self._append("", own):
            pass
        self._ready.clear()

    def _refresh(self) -> None:
        """Follow the list if that is due; from time to time release what dead workers claimed."""
        now, idle = time.monotonic(), not self._ready
        if now - self._listed_at < (POLL_S / 2 if idle else POLL_S):
            return
        if not self._follow():
            self.read()
        if (idle and not self.free) or now - self._checked_at > HEARTBEAT_S:
            self._checked_at = now
            holders = {self.holder(position) for position in self.pending} - {""}
            run, clock = self.folder.parent, self.heartbeat.now
            others = (self._alive | self._dead | holders) - {self.me}
            self._dead = {o for o in others if lease.is_dead(path_of(run, o), clock)}
            self._alive -= self._dead
            if self._dead & holders:
                self.read()  # dead workers may have finished some of it
                self._release(
                    {self._claim[p] for p in self.pending if self.holder(p) in self._dead}
                )

    def _follow(self) -> bool:
        """Read new claims and marks, all if claims were or may be deleted; return False then."""
        names, before = list[str](), self._listed_at
        with suppress(FileNotFoundError):
            names = os.listdir(self.folder)
        self._listed_at = time.monotonic()
        leases = {n.removesuffix(lease.SUFFIX) for n in names if n.endswith(lease.SUFFIX)}
        self._alive = {self.me} | leases - self._dead
        marked = {int(n.removesuffix(DONE)) for n in names if n.endswith(DONE)}
        last = max(marked.union(int(name) for name in names if name.isdecimal()), default=-1)
        # While this process was suspended, the list may have been deleted and begun anew.
        if cleared := len(self._list) > last + 1 or self._listed_at - before > lease.EXPIRE_S:
            self._list, self._claim, self._done = [], {}, set()
        while len(self._list) <= last:
            self._read_next()
        for claim in marked - self._done:
            self.pending.difference_update(self._attempts(claim))
        self._done |= marked
        return not cleared

    def _read_next(self) -> None:
        """Read the next claim of the list; one that is damaged or was deleted is empty."""
        text = lease.read(self.folder / f"{len(self._list):08d}") or ""
        worker, *words = text.split(" ")
        positions = [int(word) for word in words if word.isdecimal()]
        self._claim |= dict.fromkeys(positions, len(self._list))
        self._list.append((worker, positions))
        if not worker:
            self._release([len(self._list) - 1])

    def _attempts(self, claim: int) -> list[int]:
        """Return the attempts of a claim that no other claim has."""
        return [p for p in self._list[claim][1] if self._claim.get(p, claim) == claim]

    def _release(self, claims: Iterable[int]) -> None:
        """Let this worker claim what is pending of some claims."""
        for claim in claims:
            for position in self._attempts(claim):
                self._claim.pop(position, None)
                heapq.heappush(self.free, position)

    def _claim_more(self, few: int) -> bool:
        """Claim the next free attempts; return whether there were any. For `few` see `length`."""
        workers = len(self._alive)
        size = min(max(len(self.pending) // (4 * workers), 1), self.most)
        while not self._ready:
            many = len(self.free) > few * workers or self._length is None
            wanted, n = list[int](), size if many else len(self.free)
            while self.free and len(wanted) < n:
                position = heapq.heappop(self.free)
                taken = position in self._claim or position in self._begun
                if position in self.pending and not taken and position not in wanted[-1:]:
                    wanted.append(position)
            if not wanted:
                return False
            if not many and self._length is not None:
                wanted.sort(key=self._length, reverse=True)
            if not self.heartbeat.path.exists():  # it was deleted, or the whole folder
                self.heartbeat.touch()
            won = self._append(self.me, wanted[:size])  # else another worker was faster
            self._ready.extend(wanted[: size * won])
            for position in wanted[size * won :]:
                heapq.heappush(self.free, position)
        return True

    def _append(self, worker: str, positions: Iterable[int]) -> bool:
        """Append a claim; return False if another worker has appended one in its place."""
        path = self.folder / f"{len(self._list):08d}"
        created = lease.create(path, " ".join([worker, *map(str, positions)]))
        self._read_next()
        return created


def any_free(run: Run) -> bool:
    """Return whether another worker would find something to do, or nothing is pending.

    False if live workers have claimed all that is pending, or so much that nothing is left for
    another one.
    """
    if not (alive := runfolder.alive(run.path)):
        return True
    position = {key: i for i, key in enumerate(run.keys)}
    nobody = Heartbeat(run.path, "nobody")
    claims = Claims(nobody, lambda: (position[key] for key in runfolder.pending(run)))
    claims.read()
    holders = Counter(map(claims.holder, claims.pending))
    free = sum(attempts for worker, attempts in holders.items() if worker not in alive)
    return not claims.pending or free > BLOCK * len(alive - holders.keys())


def clear(folder: Path, now: float) -> None:
    """Delete all claims, and the heartbeats of dead workers; call it only if no claim counts."""
    for path in folder.glob("[!.]*"):  # names with a dot are temporary, about to be renamed
        if path.suffix != lease.SUFFIX or lease.is_dead(path, now):
            path.unlink(missing_ok=True)
