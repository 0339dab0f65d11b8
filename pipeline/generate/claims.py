"""Which attempt a worker makes next, when any number of workers share a run.

Attempts are counted trial by trial, and sixteen in a row are a block. A block goes from free to
claimed to done. When blocks get scarce, or its worker dies, it becomes split: what is made already
is marked done, and the rest is claimed attempt by attempt. `claim_files.py` says what a claim is.

Claims save time and nothing else: what is made is what `attempts/` holds. Two workers that make the
same attempt, one of them thought dead, cost that attempt's time.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from pipeline.generate.claim_files import DONE, SPLIT, ClaimFiles
from pipeline.store import lease
from pipeline.store.heartbeat import HEARTBEAT_S, Heartbeat

BLOCK = 16  # attempts
LOOK_S = 1.0  # between two looks at the folder, half of it while there is nothing to do


class Claims:
    """What one worker has claimed, and what it may claim next.

    Args:
        heartbeat: the worker's, which must be beating.
        owed: the attempts that the table lacks now, as positions in the run's order.
        made_by: the positions that a dead worker had made durable.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        owed: Callable[[], Iterable[int]],
        made_by: Callable[[str], set[int]],
    ) -> None:
        self.files = ClaimFiles(heartbeat)
        self._owed_now, self._made_by = owed, made_by
        self._made: dict[str, set[int]] = {}  # by dead workers
        self._nobody = (DONE, SPLIT, self.files.me)  # who is no other worker
        self._owed: dict[int, set[int]] = {}  # by block: positions not known to be durable
        self._mine: dict[int, set[int]] = {}  # by block that is mine: what is not durable yet
        self._singles: set[int] = set()  # positions claimed one by one
        self._ready: deque[int] = deque()  # mine and not begun
        self._begun: set[int] = set()  # taken, and neither durable nor lost
        self._free: list[int] = []  # blocks that nobody has claimed
        self._open: list[int] = []  # positions of split blocks that nobody has claimed
        self._filling = True
        self._looked = time.monotonic()

    def read(self) -> int:
        """Look into the table for what is owed; how much that is."""
        self._read_table()
        self._look(now=True)
        return self.left

    @property
    def left(self) -> int:
        """Attempts that are not known to be durable, whoever is at them."""
        return sum(map(len, self._owed.values()))

    @property
    def alone(self) -> bool:
        """Whether no other worker seems to be alive."""
        return self.files.workers == 1

    def take(self, flying: int, room: int, batch: int) -> int | None:
        """The next attempt to begin, or None when there is nothing to do right now.

        Args:
            flying: attempts that this worker has begun and not finished.
            room: the most it may have begun when it is alone.
            batch: how many run at once; beside other workers hardly more are begun, and no more
                than a fair share of what is left.
        """
        self._look()
        if not self.alone:
            if self._ready and not self._free:
                self._share()
            room = min(batch + batch // 8, -(-self.left // self.files.workers))
        self._filling = flying < room and (self._filling or flying <= room * 7 // 8)
        if not self._filling:
            return None
        if not self._ready:
            self._claim()
        if not self._ready:
            return None
        self._begun.add(self._ready[0])
        return self._ready.popleft()

    def lost(self, position: int) -> bool:
        """Whether somebody else makes what this worker took; then its own attempt must not count.

        Readers of the table may have seen the other one by now.
        """
        self._look()
        if self._holds(position):
            return False
        block = position // BLOCK
        holder = self.files.states.get(_block(block))
        if holder in (None, SPLIT):
            holder = self.files.states.get(_single(position))
        gone = holder is not None or position not in self._owed.get(block, ())
        if gone:
            self._begun.discard(position)
        return gone

    def durable(self, position: int) -> None:
        """An attempt that this worker took is safe on the disk."""
        block = position // BLOCK
        if position in self._singles:
            self._singles.remove(position)
            self.files.mark(_single(position), DONE)
        elif block in self._mine:
            self._mine[block].discard(position)
            if not self._mine[block]:
                del self._mine[block]
                self.files.mark(_block(block), DONE)
        self._forget(block, {position})
        self._begun.discard(position)

    def seize(self, piece: str) -> bool:
        """Claim a piece of work of any other name; False when somebody has it or did it."""
        self._look(now=True)
        holder = self.files.states.get(piece)
        if holder is None:
            return self.files.win(piece)
        return holder != DONE and self.files.is_dead(holder) and self.files.supersede(piece)

    def release(self) -> None:
        """Leave what is not finished to others."""
        for block in list(self._mine):
            self._split(block, self._mine.pop(block))
        for position in self._singles:
            self.files.drop(_single(position))
        self._singles, self._ready = set(), deque()

    def _look(self, now: bool = False) -> None:
        """See what others have claimed and made, unless that was done just now."""
        pause = LOOK_S if self._ready or self._free else LOOK_S / 2
        silence = time.monotonic() - self._looked
        if not now and silence < pause:
            return
        self.files.look()
        states, names = self.files.states, self._names()
        if any(name not in states for name in names):  # thought dead, and cleared away
            self._mine, self._singles, self._ready = {}, set(), deque()
        if silence > lease.EXPIRE_S or any(name not in states for name in names):
            self._read_table()
        for block in list(self._owed):
            state = states.get(_block(block))
            if state == DONE:
                del self._owed[block]
            elif state == SPLIT:
                done = {p for p in self._owed[block] if states.get(_single(p)) == DONE}
                self._forget(block, done)
        self._keep_mine()
        self._free = [block for block in self._owed if _block(block) not in states]
        self._open = [
            position
            for block, positions in self._owed.items()
            if states.get(_block(block)) == SPLIT
            for position in positions
            if _single(position) not in states and position not in self._begun
        ]
        self._looked = time.monotonic()

    def _keep_mine(self) -> None:
        """Lose what somebody else has by now, and take up what a listing had left out."""
        states, me = (
            self.files.states,
            self.files.me,
        )  # where another is: this worker was thought dead
        self._mine = {b: left for b, left in self._mine.items() if states.get(_block(b)) == me}
        self._singles = {p for p in self._singles if states.get(_single(p)) == me}
        self._ready = deque(filter(self._holds, self._ready))
        for block, positions in self._owed.items():
            if states.get(_block(block)) == me and block not in self._mine:
                self._mine[block] = set(positions)
                self._ready.extend(sorted(positions - self._begun))
            elif states.get(_block(block)) == SPLIT:
                mine = {p for p in positions - self._singles if states.get(_single(p)) == me}
                self._singles |= mine
                self._ready.extend(sorted(mine - self._begun))

    def reopen(self) -> int:
        """Believe the table where a mark says that an attempt is done; how much is owed after all.

        A mark may outlive its attempt: a part was damaged, a node lost its power. Only for the
        holder of a lease on doing this.
        """
        self.files.look()
        states = self.files.states
        self._read_table()  # after the look: attempts are durable before they are marked
        for block, missing in self._owed.items():
            state = states.get(_block(block))
            if state not in (DONE, SPLIT):
                continue
            for position in missing:
                if states.get(_single(position)) == DONE:
                    self.files.drop(_single(position))
            if state == DONE:
                self._split(block, missing)
        self._look(now=True)
        return self.left

    def steady(self) -> bool:
        """Whether those who are at what is left have shown a sign of life just now."""
        late = lease.EXPIRE_S - 3 * HEARTBEAT_S
        return not any(self.files.is_silent(who, late) for who in set(self._holders()))

    def _read_table(self) -> None:
        self._owed = {}
        for position in self._owed_now():
            self._owed.setdefault(position // BLOCK, set()).add(position)

    def _names(self) -> list[str]:
        return [*map(_block, self._mine), *map(_single, self._singles)]

    def _holds(self, position: int) -> bool:
        return position in self._singles or position // BLOCK in self._mine

    def _forget(self, block: int, positions: set[int]) -> None:
        if block in self._owed:
            self._owed[block] -= positions
            if not self._owed[block]:
                del self._owed[block]

    def _claim(self) -> None:
        """Take a block while there are many, then single attempts, then those of the dead."""
        while self._free:
            # In order when alone; else not all the same one: whoever loses has to try again.
            spread = 1 if self.alone else 2 * self.files.workers
            block = self._free.pop(random.randrange(min(len(self._free), spread)))
            if not self.alone and len(self._free) < self.files.workers:
                if self.files.split_free(_block(block)):
                    # A listing is no snapshot: others may have split it, and claimed parts of it.
                    left = self._owed.get(block, ())
                    taken = self._begun.union(p for p in left if _single(p) in self.files.states)
                    self._open += [p for p in left if p not in taken]
            elif self.files.win(_block(block)):
                self._mine[block] = set(self._owed[block])
                self._ready.extend(sorted(self._owed[block] - self._begun))
                if self._ready:
                    return
        while self._open:
            position = self._open.pop(random.randrange(len(self._open)))
            if self.files.win(_single(position)):
                self._singles.add(position)
                self._ready.append(position)
                return
        self._take_over()

    def _take_over(self) -> None:
        """Take over what dead workers had claimed, once nothing else is left."""
        dead = {who for who in set(self._holders()) if self.files.is_dead(who)}
        if not dead:
            return
        self._look(now=True)  # what they marked before they died is to be seen by now
        states = self.files.states
        for block, positions in list(self._owed.items()):
            if states.get(_block(block)) in dead:
                durable = self._made_by_dead(states[_block(block)])
                self._split(block, positions - durable)
        for position in [p for positions in self._owed.values() for p in positions]:
            holder = states.get(_single(position))
            if holder in dead and position in self._made_by_dead(holder):
                self.files.mark(_single(position), DONE)
            elif holder in dead and self.files.supersede(_single(position)):
                self._singles.add(position)
                self._ready.append(position)
                break
        self._look(now=True)

    def _holders(self) -> Iterator[str]:
        """Who has claimed something that this worker waits for."""
        states = self.files.states
        for block, positions in self._owed.items():
            holder = states.get(_block(block), DONE)
            of_singles = (
                (states.get(_single(p), DONE) for p in positions) if holder == SPLIT else ()
            )
            yield from (who for who in (holder, *of_singles) if who not in self._nobody)

    def _made_by_dead(self, worker: str) -> set[int]:
        if worker not in self._made:
            self._made[worker] = self._made_by(worker)
        return self._made[worker]

    def _share(self) -> None:
        """Let others have what is claimed and not begun, but for the next attempt."""
        first = self._ready.popleft()
        waiting = set(self._ready) - self._singles
        for block in {position // BLOCK for position in waiting}:
            missing = self._mine.pop(block)
            for position in missing - waiting:  # they are under way, or about to be
                if self.files.win(_single(position)):
                    self._singles.add(position)
            self._split(block, missing)
        self._ready = deque([first, *(p for p in self._ready if p in self._singles)])

    def _split(self, block: int, missing: set[int]) -> None:
        """Open a block to all; what is not missing is marked done before."""
        for position in range(block * BLOCK, (block + 1) * BLOCK):
            if position not in missing:
                self.files.mark(_single(position), DONE)
        self.files.mark(_block(block), SPLIT)


def _block(block: int) -> str:
    return f"{block:06d}"


def _single(position: int) -> str:
    """The name of an attempt: its block, its place there.

    >>> _single(12 * BLOCK + 5)
    '000012.05'
    """
    return f"{_block(position // BLOCK)}.{position % BLOCK:02d}"
