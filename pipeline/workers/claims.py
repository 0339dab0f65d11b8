"""Which attempt a worker samples next, when any number of workers share a run.

Workers append to a numbered list of claims. Each claim is a file, and only one worker can create
the file of a number, so all that have read the list to its end agree on who samples what:

    W1.lease            the heartbeat of worker W1: its claims count while it lives
    00000000            "W1 0 1 2 3": worker W1 samples attempts 0 to 3, counted trial by trial
    00000001            "W2 4 5 6"
    00000000.done       the attempts of claim 0 are in the table
    00000002            " 5 6": released; of several claims on an attempt the last counts

Claims only save time: the table alone decides what is pending. A process that died on this host
counts as dead at once, another after two minutes without a heartbeat by the file server's clock, so
that clocks of hosts are never compared. An attempt of one that lives may then be sampled twice.
"""

import heapq
import os
import time
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.store import runfolder
from bayes_at_n.pipeline.store.runfolder import Run

BLOCK = 16  # attempts of a claim at most
POLL_S = 1.0  # between two listings of the folder, half of it while there is nothing to do
HEARTBEAT_S = 10.0
DONE = ".done"

Pending = Callable[[], Iterable[int]]
Length = Callable[[int], float]


class Heartbeat:
    """The file `claims/WORKER.lease` of a worker in a folder; it exists within the `with` block.

    `check`: called before the file is created; raises if the folder moved.
    """

    def __init__(self, folder: Path, worker: str, check: Callable[[], object] = bool) -> None:
        self.path = runfolder.heartbeat(folder, worker)
        self._token, self._check = lease.token(worker=worker), check

    def __enter__(self) -> "Heartbeat":
        self.create()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self.path.unlink()

    def create(self) -> None:
        """Create the file if it is missing: others may have thought this worker dead."""
        while not self.path.exists():
            self._check()
            self.path.parent.mkdir(exist_ok=True)
            with suppress(FileNotFoundError):  # the last worker to leave removed the folder
                lease.create(self.path, self._token)


class Claims:
    """What one worker has claimed, and what it may claim next.

    Args:
        pending: reads the table and returns the pending attempts.
        most: the most attempts of a claim.
        length: the expected length of an attempt. Once what is unclaimed fits two batches, the
            longest are claimed first, so that the last to begin are short.

    Attributes:
        pending: attempts that are not known to be durable, claimed or not.
        free: those that nobody has claimed, in order, as keys.
    """

    def __init__(
        self, beat: Heartbeat, pending: Pending, most: int = BLOCK, length: Length | None = None
    ) -> None:
        self.heartbeat, self.folder, self.me = beat, beat.path.parent, beat.path.stem
        self.most, self._read_pending, self._length = most, pending, length
        self.pending, self.free = set[int](), dict[int, None]()
        self._list, self._done = list[tuple[str, list[int]]](), set[int]()  # claims; those marked
        self._claim = dict[int, int]()  # by attempt, the claim that counts
        self._ready, self._begun = deque[int](), set[int]()  # own attempts: not begun; in flight
        self._alive, self._dead, self._filling = {self.me}, set[str](), True
        self._listed_at = self._checked_at = time.monotonic()

    def read(self) -> int:
        """Read the table; return how many attempts are pending."""
        self._follow()
        self.pending = set(self._read_pending())  # after the marks: what is marked is in the table
        # What is done and missing, of a damaged part or a lost node, may be claimed again.
        self._claim = {p: of for p, of in self._claim.items() if of not in self._done}
        self.free = dict.fromkeys(sorted(self.pending - self._claim.keys()))
        return len(self.pending)

    def take(self, in_flight: int, capacity: int, batch: int) -> int | None:
        """Return the next attempt to begin; None if there is none right now.

        Beside others a worker begins little more than a `batch`, which is what its engine runs at
        once, and at most a fair share of what is left. `capacity`: the most that may be in flight.
        """
        self._refresh()
        if (workers := len(self._alive)) > 1:
            capacity = min(capacity, batch + batch // 8, -(-len(self.pending) // workers))
        self._filling = in_flight < capacity and (self._filling or in_flight <= capacity * 7 // 8)
        while self._filling and (self._ready or self._claim_more(2 * batch * workers)):
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
        """Return whether another worker has taken an attempt over, or has even made it."""
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
        self.free.pop(position, None)  # it is there if all claims were deleted meanwhile
        claim, others = self._claim.get(position), (*self._begun, *self._ready)
        if self.holder(position) == self.me and claim not in map(self._claim.get, others):
            with suppress(FileNotFoundError):  # a deleted folder is noticed by `_follow`
                (self.folder / f"{claim:08d}{DONE}").touch()

    def again(self, position: int) -> None:
        """Put an attempt that this worker began and did not finish at the end of its queue."""
        self._begun.discard(position)
        if self.holder(position) == self.me:
            self._ready.append(position)

    def release(self) -> None:
        """Release unfinished claims. Raises OSError: others take them over when this one ends."""
        while own := [position for position in self.pending if self.holder(position) == self.me]:
            self._append("", own)  # again if another worker was faster
        self._ready.clear()

    def _refresh(self) -> None:
        """Follow the list if that is due; from time to time release what dead workers claimed."""
        now, idle = time.monotonic(), not self._ready
        if now - self._listed_at < (POLL_S / 2 if idle else POLL_S):
            return
        self.heartbeat.create()
        if not self._follow():
            self.read()
        if (idle and not self.free) or now - self._checked_at > HEARTBEAT_S:
            self._checked_at = now
            holders = set(map(self.holder, self.pending)) - {""}
            others = (self._alive | self._dead | holders) - {self.me}
            self._dead = others - runfolder.alive(self.folder.parent)
            self._alive -= self._dead
            if self._dead & holders:
                self.read()  # dead workers may have finished some of it
                self._release([p for p in self.pending if self.holder(p) in self._dead])

    def _follow(self) -> bool:
        """Read new claims and marks, all if claims were or may be deleted; return False then."""
        names, before = list[str](), self._listed_at
        with suppress(FileNotFoundError):
            names = os.listdir(self.folder)
        self._listed_at = time.monotonic()
        leases = {n.removesuffix(lease.SUFFIX) for n in names if n.endswith(lease.SUFFIX)}
        self._alive = {self.me} | leases - self._dead
        marked = {int(n.removesuffix(DONE)) for n in names if n.endswith(DONE)}
        last = max(marked.union(int(n) for n in names if n.isdecimal()), default=-1)
        # While this process was suspended, the list may have been deleted and begun anew.
        if cleared := len(self._list) > last + 1 or self._listed_at - before > lease.EXPIRE_S:
            self._list, self._claim, self._done = [], {}, set()
        while len(self._list) <= last:
            self._read_next()
        for claim in marked - self._done:
            self.pending -= {p for p in self._list[claim][1] if self._claim.get(p) == claim}
        self._done = marked
        return not cleared

    def _read_next(self) -> None:
        """Read the next claim of the list; one that is damaged or was deleted is empty."""
        text = lease.read(self.folder / f"{len(self._list):08d}") or ""
        worker, *words = text.split(" ")
        positions = [int(word) for word in words if word.isdecimal()]
        if worker:
            self._claim |= dict.fromkeys(positions, len(self._list))
            for position in positions:
                self.free.pop(position, None)
        else:
            self._release(positions)
        self._list.append((worker, positions))

    def _release(self, positions: Iterable[int]) -> None:
        """Let this worker claim what is pending of some attempts."""
        for position in (positions := {*positions}):
            self._claim.pop(position, None)
        self.free = dict.fromkeys(sorted(self.free.keys() | self.pending & positions))

    def _claim_more(self, few: int) -> bool:
        """Claim the next free attempts, the longest if they are `few`; return if there were any."""
        size = min(max(len(self.pending) // (4 * len(self._alive)), 1), self.most)
        while not self._ready:
            free = (position for position in self.free if position not in self._begun)
            longest = self._length is not None and len(self.free) <= few
            wanted = heapq.nlargest(size, free, self._length) if longest else [*islice(free, size)]
            if not wanted:
                return False
            self.heartbeat.create()  # if somebody has deleted the whole folder
            if self._append(self.me, wanted):  # else another worker was faster
                self._ready.extend(wanted)
        return True

    def _append(self, worker: str, positions: Iterable[int]) -> bool:
        """Append a claim; return False if another worker has appended one in its place."""
        path = self.folder / f"{len(self._list):08d}"
        created = lease.create(path, " ".join([worker, *map(str, positions)]))
        self._read_next()
        return created


def any_free(run: Run) -> bool:
    """Return whether live workers leave anything to another one, or nothing is pending."""
    position, alive = {key: i for i, key in enumerate(run.keys)}, runfolder.alive(run.path)
    nobody = Heartbeat(run.path, "nobody")
    claims = Claims(nobody, lambda: (position[key] for key in runfolder.pending(run)))
    claims.read()
    holders = [*map(claims.holder, claims.pending)]
    free = sum(worker not in alive for worker in holders)
    return not claims.pending or free > BLOCK * len(alive - {*holders})


def clear(run: Path) -> None:
    """Delete all claims, and the heartbeats of dead workers; call it only if no claim counts."""
    paths = [*(run / runfolder.CLAIMS).glob("[!.]*")]  # with a dot: about to be renamed
    alive = runfolder.alive(run)  # listed last, so that a worker that starts now stays
    for path in paths:
        if path.suffix != lease.SUFFIX or path.stem not in alive:
            path.unlink(missing_ok=True)
