"""Which attempt a worker makes next, when any number of workers share a run.

Attempts are counted trial by trial, and sixteen in a row are a block. A block goes from free to
claimed to done. When blocks get scarce, or its worker dies, it becomes split: what is made already
is marked done, and the rest is claimed attempt by attempt. `claim_files.py` says what a claim is.

Claims save time and nothing else: what is made is what `attempts/` holds. Two workers that make the
same attempt, one of them thought dead, cost that attempt's time.
"""

import functools
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from bayes_at_n.pipeline.base import lease
from bayes_at_n.pipeline.generate.claim_files import DONE, SPLIT, ClaimFiles
from bayes_at_n.pipeline.store import runfolder, sessions
from bayes_at_n.pipeline.store.runfolder import Run
from bayes_at_n.pipeline.workers.heartbeat import HEARTBEAT_S, Heartbeat

BLOCK = 16  # attempts
LOOK_S = 1.0  # between two looks at the folder, half of it while there is nothing to do


class Claims:
    """What one worker has claimed, and what it may claim next.

    `owed` says which attempts the table lacks now, as positions in the run's order, and `made_by`
    which of them a dead worker had made durable; the worker's heartbeat must be beating.
    """

    def __init__(
        self,
        heartbeat: Heartbeat,
        owed: Callable[[], Iterable[int]],
        made_by: Callable[[str], set[int]],
    ) -> None:
        self.files = ClaimFiles(heartbeat)
        self._owed_now, self._made_by = owed, functools.cache(made_by)
        self._owed: dict[str, set[int]] = {}  # by block: positions not known to be durable
        self._mine: dict[str, set[int]] = {}  # by block or attempt that is mine: not durable yet
        self._ready: deque[int] = deque()  # mine and not begun
        self._begun: set[int] = set()  # taken, and neither durable nor lost; or given up
        self._given_up: set[int] = set()
        self._free: list[str] = []  # blocks that nobody has claimed
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
    def given_up(self) -> set[int]:
        """Of what is left, the attempts that this worker has given up."""
        return {p for p in self._given_up if p in self._owed.get(_block(p), ())}

    @property
    def alone(self) -> bool:
        """Whether no other worker seems to be alive."""
        return self.files.workers == 1

    def take(self, flying: int, room: int, batch: int) -> int | None:
        """The next attempt to begin, or None when there is nothing to do right now.

        `flying` attempts are begun and not finished, `room` is the most that may be, and `batch`
        how many run at once: beside other workers hardly more are begun, and no more than a fair
        share of what is left.
        """
        self._look()
        if not self.alone:
            if self._ready and not self._free:
                self._share()
            room = min(room, batch + batch // 8, -(-self.left // self.files.workers))
        self._filling = flying < room and (self._filling or flying <= room * 7 // 8)
        if not self._filling:
            return None
        if not self._ready:
            self._claim()
        if not self._ready:
            return None
        position = self._ready.popleft()
        self._begun.add(position)
        return position

    def lost(self, position: int) -> bool:
        """Whether somebody else makes what this worker took; then its own attempt must not count.

        Readers of the table may have seen the other one by now.
        """
        self._look()
        if self._claimed(position):
            return False
        block = _block(position)
        holder = self.files.states.get(block)
        if holder in (None, SPLIT):
            holder = self.files.states.get(_single(position))
        gone = holder is not None or position not in self._owed.get(block, ())
        if gone:
            self._begun.discard(position)
        return gone

    def durable(self, position: int) -> None:
        """An attempt that this worker took is safe on the disk."""
        if piece := self._claimed(position):
            self._mine[piece].discard(position)
            if not self._mine[piece]:
                del self._mine[piece]
                self.files.mark(piece, DONE)
        self._forget({position})
        self._begun.discard(position)

    def again(self, position: int) -> None:
        """An attempt that this worker began was not finished: it comes after what waits already."""
        self._begun.discard(position)
        if self._claimed(position):
            self._ready.append(position)

    def give_up(self, position: int) -> None:
        """Leave an attempt that this worker began to others; it does not take it again."""
        self._given_up.add(position)
        piece = self._claimed(position)
        if piece == _single(position):
            del self._mine[piece]
            self.files.drop(piece)
        elif piece:
            self._open_up(piece, {position})
            self._ready = deque(filter(self._claimed, self._ready))

    def release(self) -> None:
        """Leave what is not finished to others."""
        for piece, missing in self._mine.items():
            if "." in piece:
                self.files.drop(piece)
            else:
                self._split(piece, missing)
        self._mine, self._ready = {}, deque()

    def _look(self, now: bool = False) -> None:
        """See what others have claimed and made, unless that was done just now."""
        pause = LOOK_S if self._ready or self._free else LOOK_S / 2
        silence = time.monotonic() - self._looked
        if not now and silence < pause:
            return
        self.files.look()
        states = self.files.states
        cleared = any(piece not in states for piece in self._mine)  # this worker was thought dead
        if cleared:
            self._mine, self._ready = {}, deque()
        if cleared or silence > lease.EXPIRE_S:
            self._read_table()
        for piece, positions in list(self._pieces()):
            if states.get(piece) == DONE:
                self._forget(positions)
        self._keep_mine()
        self._free = [
            b for b, left in self._owed.items() if b not in states and left - self._given_up
        ]
        self._open = [
            position
            for block, positions in self._owed.items()
            if states.get(block) == SPLIT
            for position in positions
            if _single(position) not in states and position not in self._begun
        ]
        self._looked = time.monotonic()

    def _pieces(self) -> Iterator[tuple[str, set[int]]]:
        """What is owed as it is claimed: by block, and where that is split by attempt."""
        for block, positions in self._owed.items():
            if self.files.states.get(block) == SPLIT:
                yield from ((_single(position), {position}) for position in positions)
            else:
                yield block, positions

    def _keep_mine(self) -> None:
        """Lose what somebody else has by now, and take up what a listing had left out."""
        states, me = self.files.states, self.files.me
        self._mine = {piece: left for piece, left in self._mine.items() if states.get(piece) == me}
        self._ready = deque(filter(self._claimed, self._ready))
        for piece, positions in self._pieces():
            if states.get(piece) == me and piece not in self._mine:
                self._hold(piece, positions)

    def _hold(self, piece: str, positions: set[int]) -> None:
        """A block or an attempt is this worker's."""
        self._mine[piece] = set(positions)
        self._ready.extend(sorted(positions - self._begun))

    def reopen(self) -> int:
        """Believe the table where a mark says that an attempt is done; how much is owed after all.

        A mark may outlive its attempt: a part was damaged, a node lost its power. Only for the
        holder of a lease on doing this.
        """
        self.files.look()
        states = self.files.states
        self._read_table()  # after the look: attempts are durable before they are marked
        for block, missing in self._owed.items():
            state = states.get(block)
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
        return not any(self.files.is_silent(worker, late) for worker in self._holders())

    def _read_table(self) -> None:
        self._owed = {}
        for position in self._owed_now():
            self._owed.setdefault(_block(position), set()).add(position)

    def _claimed(self, position: int) -> str | None:
        """What of this worker's an attempt belongs to: a claim on itself, or on its block."""
        pieces = (_single(position), _block(position))
        return next((piece for piece in pieces if piece in self._mine), None)

    def _forget(self, durable: set[int]) -> None:
        """Attempts of one block are not owed any more."""
        block = _block(min(durable))
        if block in self._owed:
            self._owed[block] -= durable
            if not self._owed[block]:
                del self._owed[block]

    def _claim(self) -> None:
        """Take a block while there are many, then single attempts, then those of the dead."""
        while self._free:
            # In order when alone; else not all the same one: whoever loses has to try again.
            spread = 1 if self.alone else 2 * self.files.workers
            block = self._free.pop(random.randrange(min(len(self._free), spread)))
            if not self.alone and len(self._free) < self.files.workers:
                if self.files.split_free(block):
                    # A listing is no snapshot: others may have split it, and claimed parts of it.
                    left = self._owed.get(block, ())
                    taken = self._begun.union(p for p in left if _single(p) in self.files.states)
                    self._open += [p for p in left if p not in taken]
            elif self.files.win(block):
                self._hold(block, self._owed[block])
                if self._ready:
                    return
        while self._open:
            position = self._open.pop(random.randrange(len(self._open)))
            if self.files.win(_single(position)):
                self._hold(_single(position), {position})
                return
        self._take_over()

    def _take_over(self) -> None:
        """Take over what dead workers had claimed, once nothing else is left."""
        dead = {worker for worker in self._holders() if self.files.is_dead(worker)}
        if not dead:
            return
        self._look(now=True)  # what they marked before they died is to be seen by now
        for piece, positions in list(self._pieces()):
            holder = self.files.states.get(piece)
            if holder not in dead or positions <= self._given_up:
                continue
            missing = positions - self._made_by(holder)
            if piece in self._owed:
                self._split(piece, missing)
            elif not missing:
                self.files.mark(piece, DONE)
            elif self.files.supersede(piece):
                self._hold(piece, positions)
                break
        self._look(now=True)

    def _holders(self) -> set[str]:
        """Who else has claimed something that is owed."""
        holders = {self.files.states.get(piece, DONE) for piece, _ in self._pieces()}
        return holders - {DONE, self.files.me}

    def _share(self) -> None:
        """Let others have what is claimed and not begun, but for the next attempt."""
        first = self._ready.popleft()
        waiting = {position for position in self._ready if _single(position) not in self._mine}
        for block in set(map(_block, waiting)):
            self._open_up(block, waiting)
        self._ready = deque([first, *(p for p in self._ready if _single(p) in self._mine)])

    def _open_up(self, block: str, let_go: set[int]) -> None:
        """Open a block of this worker's to all, but for the attempts that it keeps."""
        missing = self._mine.pop(block)
        for position in missing - let_go:  # they are under way, or about to be
            if self.files.win(_single(position)):
                self._mine[_single(position)] = {position}
        self._split(block, missing)

    def _split(self, block: str, missing: set[int]) -> None:
        """Open a block to all; what is not missing is marked done before."""
        start = int(block) * BLOCK
        for position in range(start, start + BLOCK):
            if position not in missing:
                self.files.mark(_single(position), DONE)
        self.files.mark(block, SPLIT)


def _block(position: int) -> str:
    return f"{position // BLOCK:06d}"


def _single(position: int) -> str:
    """The name of an attempt: its block, its place there.

    >>> _single(12 * BLOCK + 5)
    '000012.05'
    """
    return f"{_block(position)}.{position % BLOCK:02d}"


def any_free(run: Run) -> bool:
    """Whether a worker that came now would have something to do, and need not only wait.

    True, too, where nothing is owed. False where live workers have claimed all that is, or are so
    many that there is no block for another one.
    """
    alive = sessions.alive(run.path)
    if not alive:
        return True
    files = ClaimFiles(_Onlooker(run.path, "nobody"))
    files.look()
    owed = {*runfolder.owed(run)}
    free = 0
    for position, key in enumerate(run.keys):
        if key in owed:
            block = files.states.get(_block(position))
            free += (files.states.get(_single(position)) if block == SPLIT else block) not in alive
    return not owed or free > BLOCK * len(alive - {*files.states.values()})


class _Onlooker(Heartbeat):
    """Nobody's heartbeat: it only looks."""

    def appear(self) -> None:
        """Not at all."""
