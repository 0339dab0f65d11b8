"""Which attempt a worker makes next, when any number of workers share a run.

Attempts are counted trial by trial, and claimed in blocks: the fewer are left, the smaller. Every
worker cuts the same blocks, and makes a file of the name of the one that it takes:

    W1.lease            the heartbeat of worker W1, which renews all its claims
    00000000.extent     "2400": the blocks are cut from the attempts 0 to 2399
    00000032            "W1": worker W1 makes the block that begins with attempt 32
    00000048+           48 was of a worker that died or left, and another has taken it over
    00000064.done       what was pending of block 64 is in the table

Claims save time and nothing else: what is made is what the table holds. Two workers that make the
same attempt, one of them thought dead, cost that attempt's time.
"""

import os
import random
import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat, path_of

BLOCK = 16  # attempts at most
LOOK_S = 1.0  # between two looks at the folder, half of it while there is nothing to do
DONE, _EXTENT = ".done", ".extent"
_SHARE = 4 * 64  # a block is such a share of what is left: four blocks for each of 64 workers


class Claims:
    """What one worker has claimed, and what it may claim next.

    `total`: attempts of the run. `pending`: lists what the table lacks now, as positions in the
    run's order. `most`: attempts of a block.

    Attributes:
        pending: the attempts that are not known to be durable, whoever is at them.
    """

    def __init__(
        self,
        beat: Heartbeat,
        total: int,
        pending: Callable[[], Iterable[int]],
        most: int = BLOCK,
    ) -> None:
        self.beat, self.folder, self.me = beat, beat.path.parent, beat.path.stem
        self.total, self.most, self._read_pending = total, most, pending
        self.pending = set[int]()
        self._starts, self._end, self._next = list[int](), 0, 0  # of blocks; one to claim, perhaps
        self._names = dict[int, str]()  # by start of a block the claim that counts
        self._done = set[int]()  # blocks
        self._searched = set[str]()  # claims of the dead when the table was read
        self._mine, self._ready = set[str](), deque[int]()  # claims held; what is not begun of them
        self._begun = set[int]()
        self._holder = cache(lambda claim: lease.read(self.folder / claim) or "")
        self._workers, self._filling, self._looked = 1, True, time.monotonic()

    def read(self) -> int:
        """Look into the table for what is pending; return how much that is.

        The table is believed where a block is marked done and is not: a part was damaged, a node
        lost its power.
        """
        self._holder.cache_clear()
        self._starts, self._end, self._next = [], 0, 0
        while self._end < self.total:
            extent = self.folder / f"{self._end:08d}{_EXTENT}"
            if not self.folder.exists():
                self.beat.appear()
            lease.create(extent, str(self.total))
            end = max(self._end + 1, int(lease.read(extent) or 0))
            self._starts += blocks(self._end, end, self.most)
            self._end = end
        self._list()
        self.pending = set(self._read_pending())  # later: what is marked is durable before
        for block in {self._block_of(position) for position in self.pending} & self._done:
            (self.folder / self._names[block]).unlink(missing_ok=True)
        self._done, self._searched = set(), set()
        self._list()
        return len(self.pending)

    def take(self, in_flight: int, room: int, batch: int) -> int | None:
        """Take the next attempt to begin; None when there is nothing to do right now.

        `in_flight` attempts are begun and not finished, `room` is the most that may be, and `batch`
        how many run at once: beside other workers hardly more are begun, and no more than a fair
        share of what is left.
        """
        looked = self._look()
        if self._workers > 1:
            room = min(room, batch + batch // 8, -(-len(self.pending) // self._workers))
        self._filling = in_flight < room and (self._filling or in_flight <= room * 7 // 8)
        if not self._filling or not (
            self._ready or self._claim() or (looked and self._take_over())
        ):
            return None
        position = self._ready.popleft()
        self._begun.add(position)
        return position

    def lost(self, position: int) -> bool:
        """Return whether somebody else makes what this worker took; then its own must not count.

        Readers of the table may have seen the other one by now.
        """
        self._look()
        claim = self._names.get(self._block_of(position))
        gone = self._holder(claim) != self.me if claim else position not in self.pending
        if gone:
            self._begun.discard(position)
        return gone

    def durable(self, position: int) -> None:
        """Note that an attempt of this worker is safe on the disk."""
        self.pending.discard(position)
        self._begun.discard(position)
        block = self._block_of(position)
        claim = self._names.get(block, "")
        if claim in self._mine and self.pending.isdisjoint(self._span(block)):
            self._mine.discard(claim)
            self._done.add(block)
            done = self._names[block] = f"{block:08d}{DONE}"
            with suppress(FileNotFoundError):  # the folder was deleted: the next look sees that
                lease.link(self.folder / claim, self.folder / done)

    def again(self, position: int) -> None:
        """Put what this worker began and did not finish after what waits already."""
        self._begun.discard(position)
        if self._names.get(self._block_of(position)) in self._mine:
            self._ready.append(position)

    def release(self) -> None:
        """Leave what is not finished to others. Raises OSError: they get it when this one left."""
        for claim in self._mine:
            lease.create(self.folder / f"{claim}+", "")
        self._mine, self._ready = set(), deque()

    def holders(self) -> Counter[str]:
        """Count what is left by who is at it; "" is nobody."""
        claims = (self._names.get(self._block_of(position)) for position in self.pending)
        return Counter(self._holder(claim) if claim else "" for claim in claims)

    def _look(self) -> bool:
        """See what others have claimed and made, unless that was done just now."""
        silence, done = time.monotonic() - self._looked, self._done
        if silence < (LOOK_S if self._ready else LOOK_S / 2):
            return False
        # Claims were cleared away or opened again, or may have been while this process slept.
        if not self._list() or done - self._done or silence > lease.EXPIRE_S:
            self.read()
        return True

    def _list(self) -> bool:
        """List what others have claimed and made; False: the folder was cleared."""
        names, before = list[str](), self._done
        with suppress(FileNotFoundError):
            names = sorted(os.listdir(self.folder))  # of a block's names the last one counts
        others = {name for name in names if name.endswith((lease.SUFFIX, _EXTENT))}
        claims = (name for name in names if name not in others and name[:8].isdecimal())
        self._names = {int(name[:8]): name for name in claims}
        self._done = {block for block, name in self._names.items() if name.endswith(DONE)}
        for block in self._done - before:
            self.pending.difference_update(self._span(block))
        self._mine &= {*self._names.values()}
        self._ready = deque(
            p for p in self._ready if self._names.get(self._block_of(p)) in self._mine
        )
        leases = {name for name in others if name.endswith(lease.SUFFIX)}
        dead = sum(lease.silent(self.folder / name, self.beat.now) for name in leases)
        self._workers, self._looked = max(1, len(leases) - dead), time.monotonic()
        return bool(others - leases) or not self.total

    def _claim(self) -> bool:
        """Claim the next block of what nobody has claimed."""
        while not self._ready and self._next < len(self._starts):
            block = self._starts[self._next]
            if block not in self._names and not self.pending.isdisjoint(self._span(block)):
                self._win(block, f"{block:08d}")
            self._next += 1
        return bool(self._ready)

    def _take_over(self) -> bool:
        """Take over a block of a worker that died or left, once all are claimed."""
        waiting = {self._block_of(position) for position in self.pending - self._begun}
        claims = {self._names.get(block, f"{block:08d}") for block in waiting} - self._mine
        dead = cache(lambda one: lease.is_dead(path_of(self.folder.parent, one), self.beat.now))
        # What is this worker's own was opened again, or a listing had left it out.
        free = {c for c in claims if (one := self._holder(c)) == self.me or dead(one)}
        if free - self._searched:
            self.read()  # for what the dead had made
            self._searched = free
            return self._take_over()
        for claim in random.sample(sorted(free), len(free)):
            own = self._holder(claim) == self.me
            if not self._ready:
                self._win(int(claim[:8]), claim if own else f"{claim}+", own)
        return bool(self._ready)

    def _win(self, block: int, claim: str, own: bool = False) -> None:
        """Make a claim, unless another is faster or it is this worker's own."""
        if not self.beat.path.exists():  # somebody deleted it, or the whole folder
            self.beat.appear()
        self._names[block] = claim
        if own or lease.create(self.folder / claim, self.me):
            self._mine.add(claim)
            self._ready.extend(p for p in self._span(block) if p in self.pending - self._begun)

    def _block_of(self, position: int) -> int:
        return self._starts[bisect_right(self._starts, position) - 1]

    def _span(self, block: int) -> range:
        after = bisect_right(self._starts, block)
        return range(block, self._starts[after] if after < len(self._starts) else self._end)


def blocks(first: int, end: int, most: int = BLOCK) -> list[int]:
    """Cut attempts into blocks, the fewer are left the smaller; return where each begins.

    >>> blocks(0, 2400)[:3], blocks(0, 2400)[-3:], blocks(7, 10)
    ([0, 9, 18], [2397, 2398, 2399], [7, 8, 9])
    """
    starts = []
    while first < end:
        starts.append(first)
        first += min(max((end - first) // _SHARE, 1), most)
    return starts


def any_free(run: Run) -> bool:
    """Return whether a worker that came now would have something to do, and need not only wait.

    True, too, where nothing is pending. False where live workers have claimed all that is, or are
    so many that there is no block for another one.
    """
    if not (alive := sessions.alive(run.path)):
        return True
    place = {key: position for position, key in enumerate(run.keys)}
    beat = Heartbeat(run.path, "nobody")
    claims = Claims(beat, len(place), lambda: (place[key] for key in runfolder.pending(run)))
    claims.read()
    holders = claims.holders()
    free = sum(attempts for worker, attempts in holders.items() if worker not in alive)
    return not claims.pending or free > BLOCK * len(alive - holders.keys())
