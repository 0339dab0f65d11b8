"""Which attempt a worker makes next, when any number of workers share a run.

Attempts are counted trial by trial, and claimed in blocks: the fewer are left, the smaller. A block
is a file named by its first attempt, which says where it ends and whose it is:

    W1.lease        the heartbeat of worker W1, which renews all its claims
    00000032        "48 W1": W1 makes the attempts 32 to 47
    00000048+       48 was of a worker that died, and another has taken it over
    00000064.done   what was owed of block 64 is in the table: another name of the claim

A name is made once, and where a block ends the next one begins: no two overlap. Claims save time
and nothing else: what is made is what `attempts/` holds. Two workers that make the same attempt,
one of them thought dead, cost that attempt's time.
"""

import os
import random
import time
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.heartbeat import HEARTBEAT_S, Heartbeat

BLOCK = 16  # attempts at most
LOOK_S = 1.0  # between two looks at the folder, half of it while there is nothing to do
DONE = ".done"


class Claims:
    """What one worker has claimed, and what it may claim next.

    `owed` says which attempts the table lacks now, as positions in the run's order.
    """

    def __init__(self, heartbeat: Heartbeat, owed: Callable[[], Iterable[int]]) -> None:
        self.beat, self.folder, self._owed_now = heartbeat, heartbeat.path.parent, owed
        self.me = heartbeat.path.name.removesuffix(lease.SUFFIX)
        self._owed, self._order = set[int](), list[int]()  # not durable; the same when it was read
        self._mine = dict[str, set[int]]()  # by claim: not durable yet
        self._ready = deque[int]()  # mine and not begun
        self._begun, self._given_up = set[int](), set[int]()  # not durable nor lost; also begun
        self._blocks, self._done = dict[int, str](), set[int]()  # by start: the claim that counts
        self._starts, self._end = list[int](), 0  # of blocks; nobody has claimed what follows
        self._holder = cache(self._read_holder)  # of a claim
        self._searched = set[str]()  # claims of the dead when the table was read
        self._workers, self._filling, self._looked = 1, True, time.monotonic()

    def read(self) -> int:
        """Look into the table for what is owed; how much that is.

        The table is believed where a block is marked done and is not: a part was damaged, a node
        lost its power.
        """
        self._look(now=True)
        self._read_table()  # after the look: attempts are durable before they are marked
        for claim in {self._claim_on(position) for position in self._owed}:
            if claim.endswith(DONE):
                (self.folder / claim).unlink(missing_ok=True)
        self._look(now=True)
        return self.left

    @property
    def left(self) -> int:
        """Attempts that are not known to be durable, whoever is at them."""
        return len(self._owed)

    @property
    def given_up(self) -> set[int]:
        """Of what is left, the attempts that this worker has given up."""
        return self._given_up & self._owed

    def take(self, flying: int, room: int, batch: int) -> int | None:
        """The next attempt to begin, or None when there is nothing to do right now.

        `flying` attempts are begun and not finished, `room` is the most that may be, and `batch`
        how many run at once: beside other workers hardly more are begun, and no more than a fair
        share of what is left.
        """
        looked = self._look()
        if self._workers > 1:
            room = min(room, batch + batch // 8, -(-self.left // self._workers))
        self._filling = flying < room and (self._filling or flying <= room * 7 // 8)
        if not self._filling or not (
            self._ready or self._claim() or (looked and self._take_over())
        ):
            return None
        position = self._ready.popleft()
        self._begun.add(position)
        return position

    def lost(self, position: int) -> bool:
        """Whether somebody else makes what this worker took; then its own attempt must not count.

        Readers of the table may have seen the other one by now.
        """
        self._look()
        claim = self._claim_on(position)
        gone = self._holder(claim) != self.me if claim else position not in self._owed
        if gone:
            self._begun.discard(position)
        return gone

    def durable(self, position: int) -> None:
        """An attempt that this worker took is safe on the disk."""
        self._owed.discard(position)
        self._begun.discard(position)
        if (claim := self._claim_on(position)) in self._mine:
            self._mine[claim].discard(position)
            if not self._mine[claim]:
                self._mine.pop(claim)
                done = f"{claim[:8]}{DONE}"
                self._blocks[int(claim[:8])] = done
                self._done.add(int(claim[:8]))
                with suppress(FileNotFoundError):  # the folder was deleted: the next look sees that
                    lease.link(self.folder / claim, self.folder / done)

    def again(self, position: int) -> None:
        """An attempt that this worker began was not finished: it comes after what waits already."""
        self._begun.discard(position)
        if self._claim_on(position) in self._mine:
            self._ready.append(position)

    def give_up(self, position: int) -> None:
        """Leave an attempt that this worker began to others, who get it from `release`."""
        self._given_up.add(position)

    def release(self) -> None:
        """Leave what is not finished to others. Raises OSError: they get it when this one left."""
        for claim in self._mine:
            lease.create(self.folder / f"{claim}+", f"{self._end} ")
        self._mine, self._ready = {}, deque()

    def holders(self) -> Counter[str]:
        """Who is at what is left, and at how much of it; "" is nobody."""
        holders = Counter[str]()
        for claim, attempts in Counter(map(self._claim_on, self._owed)).items():
            holders[self._holder(claim)] += attempts
        return holders

    def steady(self) -> bool:
        """Whether those who are at what is left have shown a sign of life just now."""
        late = self.beat.now + lease.EXPIRE_S - 3 * HEARTBEAT_S
        others = self.holders().keys() - {"", self.me}
        return not any(lease.silent(self._lease(worker), late) for worker in others)

    def _read_table(self) -> None:
        self._owed = set(self._owed_now())
        self._order, self._done, self._searched = sorted(self._owed), set(), set()
        self._holder.cache_clear()

    def _look(self, now: bool = False) -> bool:
        """See what others have claimed and made, unless that was done just now."""
        silence = time.monotonic() - self._looked
        if not now and silence < (LOOK_S if self._ready else LOOK_S / 2):
            return False
        names, known = list[str](), self._blocks.keys()
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(self.folder))  # of a block's names the last one counts
        leases = {name for name in names if name.endswith(lease.SUFFIX)}
        claims = [name for name in names if name[:8].isdecimal() and name not in leases]
        if claims and int(claims[0][:8]):
            claims = []  # the folder was cleared, at least in part
        self._blocks = {int(name[:8]): name for name in claims}
        self._starts = [*self._blocks]
        self._end = (self._end_of(self._starts[-1]) or 0) if claims else 0
        done = {first for first, name in self._blocks.items() if name.endswith(DONE)}
        # Claims were cleared away or opened again, or may have been while this process slept.
        if silence > lease.EXPIRE_S or known - self._blocks.keys() or self._done - done:
            self._read_table()
        ends = dict(zip(self._starts, [*self._starts[1:], self._end], strict=False))
        for first in done - self._done:
            self._owed.difference_update(range(first, ends[first]))
        self._done = done
        self._mine = {
            c: left for c, left in self._mine.items() if self._blocks.get(int(c[:8])) == c
        }
        self._ready = deque(p for p in self._ready if self._claim_on(p) in self._mine)
        dead = sum(lease.silent(self.folder / name, self.beat.now) for name in leases)
        self._workers, self._looked = max(1, len(leases) - dead), time.monotonic()
        return True

    def _claim(self) -> bool:
        """Claim the next block of what nobody has claimed."""
        while not self._ready:
            first, at = self._end, bisect_left(self._order, self._end)
            size = (len(self._order) - at) // (4 * self._workers)
            block = self._order[at : at + min(max(size, 1), BLOCK)]
            if not block:
                return False
            claim, end = f"{first:08d}", self._end_of(first)
            if end is None and self._win(claim, block[-1] + 1):
                end = block[-1] + 1
                self._hold(claim, set(block))
            if end is not None:  # else another was faster just now
                self._blocks[first], self._end = claim, end
                self._starts.append(first)
        return True

    def _take_over(self) -> bool:
        """Take over a block of a worker that died or left, once all are claimed."""
        claims = {self._claim_on(p) for p in self._owed - self._begun} - self._mine.keys() - {""}
        dead = cache(lambda worker: lease.is_dead(self._lease(worker), self.beat.now))
        # What is this worker's own was opened again, or a listing had left it out.
        free = {c for c in claims if (worker := self._holder(c)) == self.me or dead(worker)}
        if free - self._searched:
            self._read_table()  # for what the dead had made
            self._look(now=True)
            self._searched = free
            return self._take_over()
        for theirs in random.sample(sorted(free), len(free)):
            claim = theirs if self._holder(theirs) == self.me else f"{theirs}+"
            if claim == theirs or self._win(claim, self._end):
                self._hold(claim, {p for p in self._owed if self._claim_on(p) == theirs})
            if self._ready:
                return True
        return False

    def _win(self, claim: str, end: int) -> bool:
        """Make a claim; False when another was faster."""
        if not self.beat.path.exists():  # somebody deleted it, or the whole folder
            self.beat.appear()
        return lease.create(self.folder / claim, f"{end} {self.me}")

    def _hold(self, claim: str, owed: set[int]) -> None:
        """Note that a block is this worker's."""
        self._blocks[int(claim[:8])], self._mine[claim] = claim, owed
        self._ready.extend(sorted(owed - self._begun))

    def _claim_on(self, position: int) -> str:
        """The claim that counts on the block of an attempt; "" when there is none."""
        at = bisect_right(self._starts, position)
        return self._blocks[self._starts[at - 1]] if at and position < self._end else ""

    def _end_of(self, first: int) -> int | None:
        """Where a block ends, as its claim says; None when nobody has claimed it."""
        if (text := lease.read(self.folder / f"{first:08d}")) is None:
            return None
        end = text.partition(" ")[0]
        return int(end) if end.isdecimal() else first + 1

    def _read_holder(self, claim: str) -> str:
        return (lease.read(self.folder / claim) or "").partition(" ")[2] if claim else ""

    def _lease(self, worker: str) -> Path:
        return self.folder / f"{worker}{lease.SUFFIX}"


def any_free(run: Run) -> bool:
    """Whether a worker that came now would have something to do, and need not only wait.

    True, too, where nothing is owed. False where live workers have claimed all that is, or are so
    many that there is no block for another one.
    """
    if not (alive := sessions.alive(run.path)):
        return True
    place = {key: position for position, key in enumerate(run.keys)}
    claims = Claims(Heartbeat(run.path, "nobody"), lambda: (place[k] for k in runfolder.owed(run)))
    claims.read()
    holders = claims.holders()
    free = sum(attempts for worker, attempts in holders.items() if worker not in alive)
    return not claims.left or free > BLOCK * len(alive - holders.keys())
