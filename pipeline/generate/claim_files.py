"""The files behind claims: who has claimed what, as names in a folder that workers share.

To claim a piece of work a worker makes a file of its name: a hard link of its own heartbeat file.
That fails if the name exists, on NFS and Lustre, too; and one touch of the heartbeat renews all
claims of the worker. A claim of a dead worker is superseded by the same name with ~1, ~2 behind it.
What is done, or split into smaller pieces, is a link of a file that says so; every such mark is
true whoever writes it, so it may replace whatever was there.

    W1.lease      the heartbeat of worker W1
    000012        a link of W1's heartbeat, of `done` or of `split`
    000013.05~1   a link like that; 000013.05 is of a worker that died
"""

import errno
import os

from bayes_at_n.pipeline.base import atomic, lease
from bayes_at_n.pipeline.workers.heartbeat import Heartbeat

DONE, SPLIT = "done", "split"


class ClaimFiles:
    """One worker's look at the folder, as of its latest `look`.

    Attributes:
        states: for every piece of work that is not free DONE, SPLIT or the worker that claimed it.
        workers: how many seem to be alive, this one among them.
    """

    def __init__(self, heartbeat: Heartbeat) -> None:
        self.heartbeat, self.folder = heartbeat, heartbeat.path.parent
        self.me = heartbeat.path.name.removesuffix(lease.SUFFIX)
        self.states: dict[str, str] = {}
        self.workers = 1
        self._names: dict[str, str] = {}  # piece -> the youngest name of a claim on it
        self._contents: dict[tuple[str, int], str] = {}  # of files whose inode tells nothing

    def look(self) -> None:
        """Read the folder: one listing, whose inodes say what each name is a link of."""
        claims: dict[str, tuple[int, str, int]] = {}  # piece -> claimed how often, name, inode
        meaning: dict[int, str] = {}  # inode -> what a link of it says
        try:
            entries = list(os.scandir(self.folder))
        except FileNotFoundError:
            self.heartbeat.appear()  # somebody deleted it, or the whole folder
            entries = []
        for entry in entries:
            name = entry.name
            if name.startswith("."):
                continue
            if name in (DONE, SPLIT) or name.endswith(lease.SUFFIX):
                meaning[entry.inode()] = name.removesuffix(lease.SUFFIX)
                continue
            piece, _, times = name.partition("~")
            claim = (int(times) if times.isdigit() else 0, name, entry.inode())
            claims[piece] = max(claim, claims.get(piece, claim))
        self._names = {piece: name for piece, (_, name, _) in claims.items()}
        self.states = {
            piece: meaning.get(inode) or self._content(name, inode)
            for piece, (_, name, inode) in claims.items()
        }
        workers = {name for name in meaning.values() if name not in (DONE, SPLIT)} | {self.me}
        self.workers = sum(not self.is_silent(name) for name in workers) or 1

    def win(self, piece: str) -> bool:
        """Claim a free piece; False when another was faster."""
        return piece not in self._names and self._claim(piece, piece)

    def supersede(self, piece: str) -> bool:
        """Claim a piece whose holder is dead; False when another was faster."""
        times = int(self._names[piece].partition("~")[2] or 0)
        return self._claim(piece, f"{piece}~{times + 1}")

    def _claim(self, piece: str, name: str) -> bool:
        try:
            won = lease.link(self.heartbeat.path, self.folder / name)
        except FileNotFoundError:
            self.heartbeat.appear()  # somebody deleted it, or the whole folder
            won = lease.link(self.heartbeat.path, self.folder / name)
        if won:
            self._names[piece], self.states[piece] = name, self.me
        return won

    def split_free(self, piece: str) -> bool:
        """Mark a piece that nobody has claimed as split; False when somebody has claimed it."""
        self._make(SPLIT)
        free = lease.link(self.folder / SPLIT, self.folder / piece)
        if free:
            self.states[piece] = SPLIT
        return free

    def mark(self, piece: str, what: str) -> None:
        """Let a piece be DONE or SPLIT, whatever was said of it before."""
        name = self._names.setdefault(piece, piece)
        temporary = atomic.draft(self.folder / name)
        self._make(what)
        try:
            os.link(self.folder / what, temporary)
        except OSError as error:
            if error.errno not in (errno.EMLINK, errno.ENOENT, errno.EEXIST):
                raise
            temporary.write_text(what)  # the marker has as many links as the file system allows
        try:
            temporary.rename(self.folder / name)
        except FileNotFoundError:  # NFS repeats a lost request and then says that it is gone
            if not (self.folder / name).exists():
                raise
        finally:
            temporary.unlink(missing_ok=True)  # renamed to its own twin a file stays as it was
        self.states[piece] = what

    def drop(self, piece: str) -> None:
        """Give a claim back."""
        (self.folder / self._names.pop(piece)).unlink(missing_ok=True)
        self.states.pop(piece, None)

    def is_dead(self, worker: str) -> bool:
        """Whether whoever claimed a piece will not finish it."""
        return lease.is_dead(self.folder / f"{worker}{lease.SUFFIX}", self.heartbeat.now)

    def is_silent(self, worker: str, ahead: float = 0.0) -> bool:
        """Whether a worker's heartbeat has stopped, or will count as that so many seconds later."""
        return lease.silent(self.folder / f"{worker}{lease.SUFFIX}", self.heartbeat.now + ahead)

    def _content(self, name: str, inode: int) -> str:
        """What a claim says whose inode is nobody's: in a copied folder, or of one who left."""
        if (name, inode) not in self._contents:
            text = lease.read(self.folder / name) or ""
            state = text if text in (DONE, SPLIT) else str(lease.fields(text).get("worker"))
            self._contents[name, inode] = state
        return self._contents[name, inode]

    def _make(self, marker: str) -> None:
        if not (self.folder / marker).exists():
            lease.create(self.folder / marker, marker)
